"""Devices: real CPU, and CUDA as torch would show it, faked by its functions."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from synora.core.errors import UsageError
from synora.core.machine import cpu_model, memory_limit_bytes
from synora.runtime import device

UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"


class FakeCuda:
    """Replaces what `synora.runtime.device` asks torch of CUDA: `count` devices, those in `broken` run no kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = 2) -> None:
        self.count, self.current = count, 0
        self.broken: dict[int, str] = {}
        self.tried: list[int] = []
        properties = types.SimpleNamespace(
            name="NVIDIA H200", uuid=UUID, total_memory=150 * 2**30, major=9, minor=0, multi_processor_count=132
        )
        monkeypatch.setattr(torch.version, "cuda", "13.2")
        monkeypatch.setattr(torch.cuda, "init", lambda: None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: self.count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: self.count)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda index: None)
        monkeypatch.setattr(device, "driver_version", lambda: "580.82.07")
        real_ones = torch.ones

        def ones(*shape: int, device: torch.device | None = None) -> torch.Tensor:
            if device is not None and device.type == "cuda":
                self.tried.append(device.index)
                if device.index in self.broken:
                    raise RuntimeError(self.broken[device.index])
            return real_ones(*shape)

        monkeypatch.setattr(torch, "ones", ones)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A CUDA build on a machine without a driver."""
    fake = FakeCuda(monkeypatch, count=0)

    def init() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check that you have an NVIDIA GPU")

    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.cuda, "current_device", init)
    monkeypatch.setattr(device, "driver_version", lambda: None)
    return fake


class FakeNvml(types.ModuleType):
    """NVML as far as Synora asks it."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.open, self.asked = 0, ""

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "999.1"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked = uuid
        if uuid.startswith("MIG-"):
            raise RuntimeError("Not Supported")
        return uuid

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700000


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_probe_lists_devices_with_their_facts(cuda: FakeCuda) -> None:
    facts = device.probe()
    assert facts["cuda_available"] is True and facts["reason"] is None
    assert (facts["device_count"], facts["driver"], facts["cuda"]) == (2, "580.82.07", "13.2")
    assert facts["devices"][1] == {
        "index": 1,
        "name": "NVIDIA H200",
        "uuid": UUID,
        "total_memory_bytes": 150 * 2**30,
        "compute_capability": "9.0",
        "multi_processor_count": 132,
        "error": None,
    }
    assert json.loads(json.dumps(facts)) == facts


def test_probe_of_one_device_leaves_the_others_alone(cuda: FakeCuda) -> None:
    facts = device.probe(only=1)
    assert cuda.tried == [1]
    assert [entry["index"] for entry in facts["devices"]] == [1] and facts["device_count"] == 2


def test_a_listed_device_that_runs_no_kernel_is_unusable(cuda: FakeCuda) -> None:
    advice = "\nCUDA kernel errors might be asynchronously reported\nFor debugging consider CUDA_LAUNCH_BLOCKING=1"
    cuda.broken = dict.fromkeys((0, 1), "CUDA error: no kernel image is available for execution on the device" + advice)
    facts = device.probe()
    assert facts["cuda_available"] is False
    text = "CUDA error: no kernel image is available for execution on the device"
    assert facts["reason"] == f"device 0 cannot run a kernel: {text}"
    assert facts["devices"][1]["error"] == text


def test_one_broken_device_of_two_leaves_cuda_available(cuda: FakeCuda) -> None:
    cuda.broken = {0: "lost"}
    facts = device.probe()
    assert facts["cuda_available"] is True and facts["reason"] is None
    assert [entry["error"] for entry in facts["devices"]] == ["lost", None]


def test_a_kernel_that_computes_nonsense_is_an_error(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "ones", lambda *shape, device=None: torch.zeros(*shape))
    assert device.probe()["reason"] == "device 0 cannot run a kernel: a tiny addition gave a wrong sum"


def test_probe_survives_a_device_that_got_lost(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(index: int) -> None:
        raise RuntimeError("GPU is lost")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lost)
    facts = device.probe()
    assert facts["devices"][0] == {"index": 0, "error": "GPU is lost"} and not facts["cuda_available"]


def test_probe_reasons(no_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.probe()["reason"] == "Found no NVIDIA driver on your system."
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    facts = device.probe()
    assert facts["visible_devices"] == [] and facts["reason"] == "CUDA_VISIBLE_DEVICES='-1' hides every device"
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert device.probe()["reason"] == "this torch is a CPU-only build"


def test_probe_without_any_listed_device(cuda: FakeCuda) -> None:
    cuda.count = 0
    assert device.probe()["reason"] == "torch lists no device"


def test_probe_keeps_mig_and_gpu_uuids_as_text(no_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-3eb8f3a0,GPU-8932f937,MIG-GPU-8932f937/1/0")
    assert device.probe()["visible_devices"] == ["MIG-3eb8f3a0", "GPU-8932f937", "MIG-GPU-8932f937/1/0"]


def test_probe_as_a_program_prints_one_json_line() -> None:
    done = subprocess.run([sys.executable, "-m", "synora.runtime.device"], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert facts["torch"] == str(torch.__version__) and (facts["reason"] is None) is facts["cuda_available"]


def test_resolve_cpu_never_touches_cuda(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked for CUDA"))
    assert device.resolve_device("cpu") == torch.device("cpu") and cuda.tried == []


@pytest.mark.parametrize(("name", "index"), [("cuda", 1), ("auto", 1), ("cuda:0", 0), ("cuda:1", 1)])
def test_resolve_gives_an_indexed_device_and_tries_only_that_one(cuda: FakeCuda, name: str, index: int) -> None:
    cuda.current = 1
    assert device.resolve_device(name) == torch.device("cuda", index)
    assert cuda.tried == [index]


def test_only_auto_falls_back(no_cuda: FakeCuda) -> None:
    assert device.resolve_device("auto") == torch.device("cpu")
    for name in ("cuda", "cuda:0", "cuda:3"):
        with pytest.raises(UsageError) as caught:
            device.resolve_device(name)
        text = str(caught.value)
        for part in (repr(name), torch.__version__, "CUDA 13.2 build", "driver none", "not set", "no NVIDIA", "Fix:"):
            assert part in text, part
        assert "\n" not in text


def test_auto_falls_back_from_a_device_that_runs_no_kernel(cuda: FakeCuda) -> None:
    cuda.broken = {0: "no kernel image"}
    assert device.resolve_device("auto") == torch.device("cpu")
    with pytest.raises(UsageError, match="device 0 cannot run a kernel: no kernel image"):
        device.resolve_device("cuda")
    assert device.resolve_device("cuda:1") == torch.device("cuda", 1)


def test_auto_falls_back_when_cuda_is_promised_but_does_not_start(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch.cuda, "current_device", refuse)
    cuda.broken = {0: "out of memory"}
    assert device.resolve_device("auto") == torch.device("cpu")


def test_index_out_of_range_names_the_count(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    with pytest.raises(UsageError) as caught:
        device.resolve_device("cuda:2")
    text = str(caught.value)
    for part in ("'cuda:2'", "sees 2 CUDA device(s)", "580.82.07", "'MIG-a,MIG-b'", "cuda:0 to cuda:1"):
        assert part in text
    cuda.count = 1
    with pytest.raises(UsageError, match="Allowed: cuda:0, cuda"):
        device.resolve_device("cuda:1")


def test_resolve_refuses_other_names_before_asking_torch(cuda: FakeCuda) -> None:
    with pytest.raises(UsageError, match="Did you mean 'cuda'"):
        device.resolve_device("gpu")
    assert cuda.tried == []


@pytest.mark.parametrize(
    ("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_autocast_context_sets_the_dtype_of_products(name: str, dtype: torch.dtype) -> None:
    with device.autocast_context(torch.device("cpu"), name):
        assert (torch.eye(4) @ torch.eye(4)).dtype is dtype
    assert (torch.eye(4) @ torch.eye(4)).dtype is torch.float32


def test_autocast_context_refuses_other_dtypes() -> None:
    with pytest.raises(UsageError, match=r"unknown dtype 'fp61'\. Did you mean 'fp16'"):
        device.autocast_context("cpu", "fp61")


def precisions() -> list[str]:
    backends: Any = torch.backends
    operators = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    return [operator.fp32_precision for operator in operators] + [
        getattr(backends.mkldnn, name).fp32_precision for name in ("matmul", "conv", "rnn")
    ]


@pytest.fixture
def restored_precision() -> Iterator[None]:
    yield
    device.set_fp32_precision(False)


@pytest.mark.parametrize(("tf32", "mode", "older"), [(False, "ieee", "highest"), (True, "tf32", "high")])
@pytest.mark.parametrize("before", ["nothing", "wide setting", "older setting"])
def test_fp32_precision_holds_in_both_of_torchs_views(
    restored_precision: None, tf32: bool, mode: str, older: str, before: str
) -> None:
    backends: Any = torch.backends
    with contextlib.ExitStack() as stack:
        if before == "wide setting":
            backends.fp32_precision = "ieee" if tf32 else "tf32"
            stack.callback(setattr, backends, "fp32_precision", "none")
        elif before == "older setting":
            backends.cudnn.allow_tf32 = not tf32
            torch.set_float32_matmul_precision("highest" if tf32 else "high")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            device.set_fp32_precision(tf32)
            assert precisions() == [mode] * 6
            # Reading the older view raises when it differs from the newer one.
            assert torch.get_float32_matmul_precision() == older
            assert backends.cuda.matmul.allow_tf32 is tf32 and backends.cudnn.allow_tf32 is tf32
            with backends.cudnn.flags(enabled=True):
                pass
            torch.nn.GRU(2, 2)(torch.zeros(2, 1, 2))
            torch.nn.Conv2d(1, 1, 2)(torch.zeros(1, 1, 4, 4))


def test_device_facts_of_the_cpu() -> None:
    facts = device.device_facts("cpu")
    assert facts["type"] == "cpu" and facts["name"] == cpu_model() and facts["memory_bytes"] == memory_limit_bytes()
    assert facts["torch"] == str(torch.__version__)
    for name in ("index", "uuid", "compute_capability", "power_limit_watts"):
        assert facts[name] is None
    assert json.loads(json.dumps(facts)) == facts


def test_device_facts_of_a_gpu(cuda: FakeCuda, nvml: FakeNvml) -> None:
    cuda.current = 1
    facts = device.device_facts(torch.device("cuda"))
    assert (facts["type"], facts["index"], facts["name"]) == ("cuda", 1, "NVIDIA H200")
    assert facts["memory_bytes"] == 150 * 2**30 and facts["compute_capability"] == "9.0"
    assert facts["power_limit_watts"] == 700.0 and nvml.asked == f"GPU-{UUID}" and nvml.open == 0
    assert "total_memory_bytes" not in facts
    assert json.loads(json.dumps(facts)) == facts


def test_power_limit_is_none_where_nvml_has_none(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device._power_limit_watts(f"MIG-{UUID}") is None and nvml.open == 0
    assert device._power_limit_watts(None) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert device._power_limit_watts(UUID) is None


PROC_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs)\nGCC: 13\n"
PROC_CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [(PROC_OPEN, "580.82.07"), (PROC_CLOSED, "535.104.05"), ("unreadable", None), (None, None)],
)
def test_driver_version_from_the_kernel_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    if text is not None:
        (tmp_path / "version").write_text(text)
    assert device.driver_version(tmp_path / "version") == expected


def test_driver_version_prefers_nvml(nvml: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(PROC_OPEN)
    assert device.driver_version(tmp_path / "version") == "999.1" and nvml.open == 0
