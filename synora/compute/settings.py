"""The sweep's settings and how they become job specs. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from pydantic import Field

from synora.compute.case import SIZE_FIELDS, BenchCase, Scale
from synora.core.config import Config
from synora.core.errors import UsageError, unknown_value
from synora.core.job import JobSpec

Preset = Literal["tiny", "small", "paper"]
DType = Literal["fp32", "bf16", "fp16"]


class ComputeParams(Config):
    """The parameters of one compute job.

    Attributes:
        case: the name of the `BenchCase`.
        source: the Python file whose `CASES` holds it; None for the built-in cases.
        preset, batch_size, seq_len, image_size: the scale (see `Scale`).
        device: "cpu", "cuda" or "cuda:N"; resolved before the job is planned.
        dtype: fp32, or the type autocast computes in (parameters stay fp32, as in training).
        warmup: calls before the timing window at least.
        iters: calls in the timing window.
        backward: measure the backward pass and the optimiser step too.
        compile: run the module through torch.compile.
        tf32: allow TF32 products in fp32.
        threads: intra-op CPU threads.
        seed: seeds torch before the module and its inputs are built.
    """

    case: str
    source: str | None = None
    preset: Preset = "tiny"
    batch_size: int = Field(1, ge=1)
    seq_len: int = Field(1, ge=1)
    image_size: int = Field(64, ge=1)
    device: str = "cpu"
    dtype: DType = "fp32"
    warmup: int = Field(2, ge=1)
    iters: int = Field(5, ge=1)
    backward: bool = True
    compile: bool = False
    tf32: bool = False
    threads: int = Field(1, ge=1, le=1024)
    seed: int = Field(0, ge=0, lt=2**63)

    @property
    def scale(self) -> Scale:
        """The sizes the case is built at."""
        return Scale(preset=self.preset, batch_size=self.batch_size, seq_len=self.seq_len, image_size=self.image_size)


@cache
def presets() -> dict[str, dict[str, int]]:
    """Return the sweep's presets: name -> batch_size, seq_len, image_size, warmup, iters."""
    text = files("synora.configs").joinpath("sweep.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def scale_of(case: BenchCase, preset: str, overrides: Mapping[str, int | None]) -> dict[str, int]:
    """Resolve the sizes of a case: preset, then (at `paper`) the model's own defaults, then the user's overrides."""
    sizes = {name: presets()[preset][name] for name in SIZE_FIELDS}
    if preset == "paper":
        sizes.update(case.paper_sizes)
    elif case.image_sizes is not None and sizes["image_size"] not in case.image_sizes:
        sizes["image_size"] = case.image_sizes[0]
    sizes.update({name: value for name, value in overrides.items() if value is not None})
    return sizes


def make_jobs(
    cases: Sequence[BenchCase],
    *,
    preset: str,
    overrides: Mapping[str, int | None],
    warmup: int | None = None,
    iters: int | None = None,
    source: str | None = None,
    **common: Any,
) -> list[JobSpec]:
    """Turn cases into compute jobs.

    Args:
        cases: what to measure, in order.
        preset: tiny, small or paper.
        overrides: values for `batch_size`, `seq_len`, `image_size`; None where the preset's holds.
        warmup: calls before the window; None for the preset's.
        iters: calls in the window; None for the preset's.
        source: the file that holds the cases; None for the built-in ones.
        common: further fields of `ComputeParams`, the same for every job.

    Raises:
        UsageError: a value is not allowed, or an image size fits none of the cases.
    """
    if preset not in presets():
        raise unknown_value("preset", preset, presets())
    jobs = []
    image_size = overrides.get("image_size")
    if image_size is not None and not any(accepts_image(case, image_size) for case in cases):
        allowed = sorted({size for case in cases for size in case.image_sizes or ()})
        raise UsageError(
            f"--image-size {image_size} fits none of the chosen models. Allowed: {', '.join(map(str, allowed))}."
        )
    loop = presets()[preset]
    for case in cases:
        fields: dict[str, Any] = {
            **common,
            **scale_of(case, preset, overrides),
            "case": case.name,
            "source": source,
            "preset": preset,
            "warmup": loop["warmup"] if warmup is None else warmup,
            "iters": loop["iters"] if iters is None else iters,
        }
        jobs.append(JobSpec(kind="compute", name=case.name, params=ComputeParams(**fields).model_dump(mode="json")))
    return jobs


def accepts_image(case: BenchCase, image_size: int) -> bool:
    """Return whether the case's architecture takes square frames of this size."""
    return case.image_sizes is None or image_size in case.image_sizes
