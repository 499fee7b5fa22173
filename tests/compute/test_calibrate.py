"""The figures that make times comparable across machines."""

import pytest
import torch

from synora.compute.calibrate import REFERENCE_SIZE, Ceiling, best_of, calibrate
from synora.runtime.timing import HostClock

CPU = torch.device("cpu")


def test_the_reference_is_one_2048_cube_float32_product() -> None:
    assert REFERENCE_SIZE == 2048
    ceiling = calibrate(CPU, "fp32", False, HostClock())
    # On the CPU in fp32 the reference is the ceiling: one product, two views of its time.
    assert ceiling.size == 2048
    assert ceiling.flops_per_second == pytest.approx(2 * 2048**3 / (ceiling.reference_ms / 1e3))


def test_the_ceiling_is_measured_in_the_run_s_precision() -> None:
    ceiling = calibrate(CPU, "bf16", False, HostClock())
    assert ceiling.dtype == "bf16"
    assert ceiling.flops_per_second > 0
    assert ceiling.reference_ms > 0


def test_before_and_after_are_joined() -> None:
    before, after = Ceiling(40.0, 1e9, 2048, "fp32", 50.0), Ceiling(44.0, 3e9, 512, "fp32", 60.0)
    assert best_of(before, after) == Ceiling(42.0, 3e9, 512, "fp32", 110.0)


def test_calibrating_leaves_the_precision_as_the_run_asked_for() -> None:
    from synora.runtime.device import set_fp32_precision

    calibrate(CPU, "fp32", True, HostClock())
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    set_fp32_precision(False)
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"
