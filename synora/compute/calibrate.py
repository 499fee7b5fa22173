"""What the machine can do at this moment: matrix products timed in the same run as the case.

Two figures: the time of one 2048-cube float32 product, of which every step's time is given as a multiple R (so that
figures from different machines compare), and the best FLOP/s of a large product in the run's own precision, the ceiling
that the achieved FLOP/s are a share of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from synora.runtime.device import set_fp32_precision
from synora.runtime.timing import Clock, time_once

REFERENCE_SIZE = 2048
CUDA_CEILING_SIZE = 8192
REPEATS = 3
BUDGET_MS = 300.0
PROBE_SIZE = 256
SLOW_PROBE_MS = 5.0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Ceiling:
    """The machine's speed.

    Attributes:
        reference_ms: time of one 2048 x 2048 x 2048 IEEE float32 product, ms.
        flops_per_second: best rate of a square product in the run's precision.
        size: of that square product.
        dtype: the precision of that product.
        spent_ms: what finding all this out took.
    """

    reference_ms: float
    flops_per_second: float
    size: int
    dtype: str
    spent_ms: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures JSON-ready."""
        return asdict(self)


def calibrate(device: torch.device, dtype: str, tf32: bool, clock: Clock) -> Ceiling:
    """Time the products now.

    Args:
        device: where.
        dtype: "fp32", "bf16" or "fp16": the precision of the ceiling.
        tf32: whether fp32 products of the run may use TF32 (the reference product never does).
        clock: of the device.
    """
    start = time.perf_counter()
    set_fp32_precision(False)
    reference = _product_ms(device, torch.float32, REFERENCE_SIZE, clock)
    set_fp32_precision(tf32)
    if dtype == "fp32" and not tf32 and device.type != "cuda":
        size, best = REFERENCE_SIZE, reference
    else:
        size = _ceiling_size(device, DTYPES[dtype], clock)
        best = _product_ms(device, DTYPES[dtype], size, clock)
    spent = 1e3 * (time.perf_counter() - start)
    return Ceiling(reference, 2 * size**3 / (best / 1e3), size, dtype, spent)


def best_of(first: Ceiling, second: Ceiling) -> Ceiling:
    """Join the calibrations before and after a case: the mean reference, the higher ceiling."""
    faster = max(first, second, key=lambda ceiling: ceiling.flops_per_second)
    mean = (first.reference_ms + second.reference_ms) / 2
    return replace(faster, reference_ms=mean, spent_ms=first.spent_ms + second.spent_ms)


def _ceiling_size(device: torch.device, dtype: torch.dtype, clock: Clock) -> int:
    """Choose a product large enough to fill the machine, small enough where the precision is emulated slowly."""
    if device.type == "cuda":
        return CUDA_CEILING_SIZE
    return PROBE_SIZE if _product_ms(device, dtype, PROBE_SIZE, clock) > SLOW_PROBE_MS else REFERENCE_SIZE


def _product_ms(device: torch.device, dtype: torch.dtype, size: int, clock: Clock) -> float:
    """Return the fastest of up to three square products in ms: interference only ever adds time.

    A machine on which one product takes most of the budget times just one: a sweep is not about the calibration.
    """
    _multiply(device, dtype, min(size, PROBE_SIZE))()  # starts the thread pool or the library's handle
    call = _multiply(device, dtype, size)
    times = [time_once(call, clock)]
    while len(times) < REPEATS and sum(times) + min(times) < BUDGET_MS:
        times.append(time_once(call, clock))
    return min(times)


def _multiply(device: torch.device, dtype: torch.dtype, size: int) -> Callable[[], torch.Tensor]:
    """Return a call that multiplies a square matrix by itself into one that is there already."""
    factor = torch.ones(size, size, device=device, dtype=dtype)
    out = torch.zeros(size, size, device=device, dtype=dtype)
    return lambda: torch.mm(factor, factor, out=out)
