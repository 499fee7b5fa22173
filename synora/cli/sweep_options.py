"""The sweep's options, as typer reads them: type, flag, help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from synora.core.errors import UsageError


class Preset(StrEnum):
    """Sizes of the sweep."""

    TINY = "tiny"
    SMALL = "small"
    PAPER = "paper"


class Precision(StrEnum):
    """Number formats of the sweep."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


def _at_least_one(param: typer.CallbackParam, value: int | None) -> int | None:
    """Refuse counts below one, with the flag and the value in the message."""
    if value is not None and value < 1:
        raise UsageError(f"{param.opts[0]} must be at least 1 (got {value}).")
    return value


def _not_negative(param: typer.CallbackParam, value: int) -> int:
    if value < 0:
        raise UsageError(f"{param.opts[0]} must be at least 0 (got {value}).")
    return value


def _count(flag: str, text: str) -> typer.models.OptionInfo:
    """Return an option that takes a whole number from 1."""
    return typer.Option(flag, callback=_at_least_one, metavar="N", help=text)


PresetOption = Annotated[Preset, typer.Option("--preset", help="Batch, length, width, depth; paper: the models' own.")]
Models = Annotated[
    list[str] | None, typer.Option("--models", metavar="A,B", help="Only these cases, heavy ones included.")
]
Family = Annotated[list[str] | None, typer.Option("--family", metavar="A,B", help="Only these families.")]
Everything = Annotated[bool, typer.Option("--all", help="Add the heavy tier.")]
ListOnly = Annotated[bool, typer.Option("--list", help="Print the cases, and stop.")]
Device = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda|cuda:N", help="Only auto falls back to the CPU.")
]
DType = Annotated[Precision, typer.Option("--dtype", help="fp32, or what autocast computes in.")]
NoBackward = Annotated[bool, typer.Option("--no-backward", help="Measure the forward pass only.")]
BatchSize = Annotated[int | None, _count("--batch-size", "Instead of the preset's.")]
SeqLen = Annotated[int | None, _count("--seq-len", "Time steps, instead of the preset's.")]
ImageSize = Annotated[int | None, _count("--image-size", "Pixels, instead of the preset's.")]
Warmup = Annotated[int | None, _count("--warmup", "Calls before timing; more until stable, at most 4 times as many.")]
Iters = Annotated[int | None, _count("--iters", "Timed calls.")]
Compile = Annotated[bool, typer.Option("--compile", help="Run modules through torch.compile.")]
TF32 = Annotated[bool, typer.Option("--tf32", help="Allow TF32 in fp32; otherwise fp32 is IEEE fp32.")]
Threads = Annotated[int | None, _count("--threads", "CPU threads; default: all this process may use.")]
Seed = Annotated[
    int, typer.Option("--seed", callback=_not_negative, metavar="N", help="Seeds weights and synthetic inputs.")
]
CaseTimeout = Annotated[
    float, typer.Option("--case-timeout", metavar="SECONDS", help="A case that takes longer is killed.")
]
MemoryLimit = Annotated[
    float | None,
    typer.Option("--memory-limit", metavar="GIB", help="A case that grows above is killed; default: 90 % of memory."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 if any case failed.")]
OutDir = Annotated[
    Path, typer.Option("--out-dir", "--out_dir", help="Where model_benchmarks.{json,csv,md,tex} are written.")
]
CaseFile = Annotated[
    Path | None,
    typer.Option("--cases", metavar="FILE", help="Python file whose CASES are measured; default: the built-in ones."),
]
