"""The sweep's options, as typer reads them: type, flag, help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from synora.core.errors import UsageError, unknown_value

PRESETS = ("tiny", "small", "paper")
DTYPES = ("fp32", "bf16", "fp16")
LARGEST = 1e9


def _one_of(kind: str, allowed: tuple[str, ...]) -> Callable[[str], str]:
    """Return a check that a value is in a closed set; the error names the closest match."""

    def check(value: str) -> str:
        if value not in allowed:
            raise unknown_value(kind, value, allowed)
        return value

    return check


def _at_least_one(param: typer.CallbackParam, value: int | None) -> int | None:
    """Refuse counts below one, with the flag and the value in the message."""
    if value is not None and value < 1:
        raise UsageError(f"{param.opts[0]} must be at least 1 (got {value}).")
    return value


def _not_negative(param: typer.CallbackParam, value: int) -> int:
    if value < 0:
        raise UsageError(f"{param.opts[0]} must be at least 0 (got {value}).")
    return value


def _finite_positive(param: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse what is no amount: zero, negative, NaN, infinity."""
    if value is not None and not 0 < value < LARGEST:
        raise UsageError(f"{param.opts[0]} must be a number above 0 and below {LARGEST:g} (got {value:g}).")
    return value


def _count(flag: str, text: str) -> typer.models.OptionInfo:
    """Return an option that takes a whole number from 1."""
    return typer.Option(flag, callback=_at_least_one, metavar="N", help=text)


Preset = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="|".join(PRESETS),
        callback=_one_of("preset", PRESETS),
        help="Batch, length, width, depth; paper: the models' own.",
    ),
]
Models = Annotated[
    list[str] | None, typer.Option("--models", metavar="A,B", help="Only these cases, heavy ones included.")
]
Family = Annotated[list[str] | None, typer.Option("--family", metavar="A,B", help="Only these families.")]
Everything = Annotated[bool, typer.Option("--all", help="Add the heavy tier.")]
ListOnly = Annotated[bool, typer.Option("--list", help="Print the cases, and stop.")]
Device = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda|cuda:N", help="Only auto falls back to the CPU.")
]
DType = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="|".join(DTYPES),
        callback=_one_of("dtype", DTYPES),
        help="fp32, or what autocast computes in.",
    ),
]
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
    float,
    typer.Option(
        "--case-timeout", callback=_finite_positive, metavar="SECONDS", help="A case that takes longer is killed."
    ),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option(
        "--memory-limit",
        callback=_finite_positive,
        metavar="GIB",
        help="A case that grows above is killed; default: 90 % of memory.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 if any case failed.")]
OutDir = Annotated[
    Path, typer.Option("--out-dir", "--out_dir", help="Where model_benchmarks.{json,csv,md,tex} are written.")
]
CaseFile = Annotated[
    Path | None,
    typer.Option("--cases", metavar="FILE", help="Python file whose CASES are measured; default: the built-in ones."),
]
