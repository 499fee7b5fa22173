"""Peak memory: real on the CPU, with a fake driver on CUDA."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from synora.compute.memory import PeakMemory


def test_cpu_peak_sees_what_was_freed_again() -> None:
    memory = PeakMemory(torch.device("cpu"))
    memory.start()
    block = torch.ones(64 * 2**18)  # 64 MiB
    del block
    peak = memory.read()
    assert 60 * 2**20 < peak["peak_rss_bytes"] < 120 * 2**20
    assert peak["peak_rss_since_process_start"] is False


def test_cpu_peak_forgets_what_came_before_the_start() -> None:
    memory = PeakMemory(torch.device("cpu"))
    block = torch.ones(64 * 2**18)
    del block
    memory.start()
    assert memory.read()["peak_rss_bytes"] < 40 * 2**20


def test_a_kernel_without_reset_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synora.compute.memory._reset_peak_rss", lambda: False)
    memory = PeakMemory(torch.device("cpu"))
    memory.start()
    assert memory.read()["peak_rss_since_process_start"] is True


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A CUDA device that reports fixed figures."""
    calls: dict[str, Any] = {"reset": 0}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: calls.update(reset=calls["reset"] + 1))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 200)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    return calls


def fake_nvml(monkeypatch: pytest.MonkeyPatch, processes: list[Any] | None) -> None:
    module: Any = ModuleType("pynvml")
    module.nvmlInit = module.nvmlShutdown = lambda: None

    def handle(uuid: str) -> str:
        assert uuid == "GPU-abc"
        if processes is None:
            raise RuntimeError("Driver/library version mismatch")
        return uuid

    module.nvmlDeviceGetHandleByUUID = handle
    module.nvmlDeviceGetComputeRunningProcesses = lambda handle: processes
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_cuda_has_allocated_reserved_and_process(cuda: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    fake_nvml(
        monkeypatch, [SimpleNamespace(pid=1, usedGpuMemory=5), SimpleNamespace(pid=os.getpid(), usedGpuMemory=300)]
    )
    memory = PeakMemory(torch.device("cuda", 0))
    memory.start()
    peak = memory.read()
    assert cuda["reset"] == 1
    assert (peak["cuda_peak_allocated_bytes"], peak["cuda_peak_reserved_bytes"]) == (100, 200)
    assert peak["cuda_process_bytes"] == 300
    assert peak["peak_rss_bytes"] is None
    assert peak["missing"] == {"peak_rss_bytes": "the case ran on CUDA"}


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        ([], "in a container it sees other process ids"),
        ([SimpleNamespace(pid=1, usedGpuMemory=5)], "does not list this process"),
        (None, "NVML: Driver/library version mismatch"),
    ],
)
def test_a_process_figure_that_is_not_known_is_null_with_a_reason(
    cuda: dict[str, Any], monkeypatch: pytest.MonkeyPatch, processes: list[Any] | None, reason: str
) -> None:
    fake_nvml(monkeypatch, processes)
    peak = PeakMemory(torch.device("cuda", 0)).read()
    assert peak["cuda_process_bytes"] is None
    assert reason in peak["missing"]["cuda_process_bytes"]


def test_without_nvml_the_extra_is_named(cuda: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    peak = PeakMemory(torch.device("cuda", 0)).read()
    assert "extra gpu" in peak["missing"]["cuda_process_bytes"]
