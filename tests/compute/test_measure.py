"""One case measured in this process, through the job that the executors run."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from synora.batch.execute import run_job
from synora.compute.settings import ComputeParams
from synora.core.job import JobSpec
from synora.core.result import Result


@pytest.fixture(autouse=True)
def small_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real reference product takes a second on a busy machine; its size is checked in test_calibrate.py."""
    monkeypatch.setattr("synora.compute.calibrate.REFERENCE_SIZE", 64)


def job(case_file: Path, case: str, **params: Any) -> JobSpec:
    fields = {"warmup": 1, "iters": 3, "batch_size": 2, **params}
    spec = ComputeParams(case=case, source=str(case_file), **fields)
    return JobSpec(kind="compute", name=case, params=spec.model_dump(mode="json"))


def run(case_file: Path, case: str, **params: Any) -> Result:
    return run_job(job(case_file, case, **params))


def test_three_modes_with_every_figure(case_file: Path) -> None:
    result = run(case_file, "mlp", iters=4)
    assert result.status == "ok", result.error
    body: Any = result.body
    assert list(body["modes"]) == ["forward", "forward_backward", "train_step"]
    assert body["parameters"] == body["trainable_parameters"] == 16 * 32 + 32 + 32 * 4 + 4
    forward = 2 * 2 * (16 * 32 + 32 * 4)
    for name, mode in body["modes"].items():
        timing = mode["timing"]
        assert timing["n"] == 4, name
        assert 0 < timing["min_ms"] <= timing["median_ms"] <= timing["p90_ms"] <= timing["p99_ms"]
        assert mode["items_per_second"] == pytest.approx(2 / (timing["median_ms"] / 1e3))
        assert mode["R"] == pytest.approx(timing["median_ms"] / body["calibration"]["reference_ms"])
        assert mode["achieved_flops_per_second"] == pytest.approx(mode["flops"] / (timing["median_ms"] / 1e3))
        assert 0 < mode["ceiling_share"] < 1
        assert mode["macs"] * 2 == mode["flops"]
        assert mode["flops_lower_bound"] is False
    assert body["modes"]["forward"]["flops"] == forward
    # The input needs no gradient, so the first layer's backward is one product, not two.
    assert body["modes"]["forward_backward"]["flops"] == 3 * forward - 2 * 2 * 16 * 32
    assert body["modes"]["train_step"]["flops"] == body["modes"]["forward_backward"]["flops"]


def test_no_backward_measures_the_forward_pass_only(case_file: Path) -> None:
    assert list(run(case_file, "mlp", backward=False).body["modes"]) == ["forward"]  # type: ignore[index]


def test_a_case_that_does_not_train_is_measured_forward_only(case_file: Path) -> None:
    assert list(run(case_file, "frozen").body["modes"]) == ["forward"]  # type: ignore[index]


def test_keyword_inputs_and_nested_outputs(case_file: Path) -> None:
    result = run(case_file, "nested")
    assert result.status == "ok", result.error
    assert result.body["modes"]["forward"]["flops"] == 2 * 2 * 16 * 4  # type: ignore[index]


def test_items_and_unit_come_from_the_case(case_file: Path) -> None:
    body: Any = run(case_file, "conv", image_size=32, backward=False).body
    assert (body["items_per_call"], body["unit"]) == (4, "frames")
    assert body["modes"]["forward"]["flops"] == 2 * 2 * 8 * 30 * 30 * 27


def test_memory_on_the_cpu_is_resident_memory_and_nothing_else(case_file: Path) -> None:
    memory = run(case_file, "mlp").body["modes"]["train_step"]["memory"]  # type: ignore[index]
    assert memory["peak_rss_bytes"] >= 0
    for name in ("cuda_peak_allocated_bytes", "cuda_peak_reserved_bytes", "cuda_process_bytes"):
        assert memory[name] is None
        assert memory["missing"][name] == "the case ran on the CPU"


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_runs_under_autocast(case_file: Path, dtype: str) -> None:
    result = run(case_file, "mlp", dtype=dtype)
    assert result.status == "ok", result.error
    assert result.body["calibration"]["dtype"] == dtype  # type: ignore[index]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("nothing", "the builder of nothing returned NoneType, expected a torch.nn.Module"),
        ("nan", "forward: the output is not finite"),
        ("nan-gradient", "forward_backward: the gradient of weight is not finite"),
        ("raises", "ZeroDivisionError: division by zero"),
        ("wrong-inputs", "the inputs function of wrong-inputs returned str"),
        ("no-floats", "holds no floating-point tensor to make a loss from"),
        ("nosuch", "unknown model 'nosuch'"),
    ],
)
def test_a_broken_case_is_failed_with_its_reason(case_file: Path, case: str, words: str) -> None:
    result = run(case_file, case)
    assert result.status == "failed"
    assert result.body is None
    assert result.error is not None
    assert words in result.error.message
    assert "\n" not in result.error.message


def test_an_image_size_the_model_cannot_take_is_skipped(case_file: Path) -> None:
    result = run(case_file, "conv", image_size=48)
    assert result.status == "skipped"
    assert result.error is not None
    assert "takes image size 32, 64, not 48" in result.error.message


def test_torch_running_out_of_memory_is_named(tmp_path: Path) -> None:
    source = tmp_path / "cases.py"
    source.write_text(
        "import torch\nfrom torch import nn\nfrom synora.compute.case import BenchCase\n"
        "CASES = [BenchCase(name='huge', family='f', build=lambda s: nn.Linear(2**40, 2**10), inputs=lambda s: None)]\n"
    )
    result = run(source, "huge")
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.type == "out_of_memory"


def test_the_same_seed_builds_the_same_weights_and_inputs(case_file: Path) -> None:
    from synora.compute.catalog import find_case, load_cases
    from synora.compute.measure import Workload

    def workload(seed: int) -> Workload:
        params = ComputeParams(case="mlp", source=str(case_file), batch_size=2, seed=seed)
        return Workload(find_case(load_cases(str(case_file)), "mlp"), params, torch.device("cpu"))

    first, again, other = workload(1).forward(), workload(1).forward(), workload(2).forward()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_step_trains(case_file: Path) -> None:
    """The timed step is a real one: repeated, it lowers the loss."""
    from synora.compute.catalog import find_case, load_cases
    from synora.compute.measure import Workload

    params = ComputeParams(case="mlp", source=str(case_file), batch_size=8)
    work = Workload(find_case(load_cases(str(case_file)), "mlp"), params, torch.device("cpu"))
    losses = [work.train_step().item() for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]
    assert all(math.isfinite(loss) for loss in losses)


def test_plain_step_is_torch_s_step() -> None:
    from synora.compute.measure import plain_step

    def trained(plain: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 4)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(2, 4)).square().sum().backward()
            if plain:
                with torch.no_grad():
                    plain_step(optimizer)(optimizer)
            else:
                optimizer.step()
        return layer.weight.detach()

    assert torch.equal(trained(plain=True), trained(plain=False))


def test_provenance_says_where_it_ran(case_file: Path) -> None:
    provenance = run(case_file, "mlp", backward=False).provenance
    assert provenance.versions["torch"] == torch.__version__.split("+")[0]
    assert provenance.machine["host_hash"]
    assert provenance.device["type"] == "cpu"
    assert provenance.wall_seconds > 0
    assert set(provenance.git) >= {"commit", "dirty", "reason"}
