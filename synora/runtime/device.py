"""Devices: what torch sees, which one a name means, and what precision "fp32" has there.

`python -m synora.runtime.device` prints `probe()` as one JSON line; the torch-free command line starts it that way.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from synora.core.errors import UsageError, unknown_value
from synora.core.machine import check_device_name, cpu_model, explain_no_cuda, memory_limit_bytes, visible_devices

DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# Where the finding in torch's error texts ends and general advice begins.
_ADVICE = re.compile(r"CUDA kernel errors|Search for `cuda|For debugging consider|Compile with `TORCH|Please check")


def probe(only: int | None = None) -> dict[str, Any]:
    """Return JSON-ready facts of what torch sees. Never raises.

    Initialises CUDA and starts a kernel on the devices, so call it in a process of its own, never in one that will fork
    workers or measure memory.

    Args:
        only: index of the one device to start a kernel on; default: every device.

    Returns:
        `torch`, `cuda`, `hip`, `cudnn`, `driver` (versions or None), `visible_devices` (CUDA_VISIBLE_DEVICES tokens or
        None), `device_count`, `devices` (index, name, uuid, total_memory_bytes, compute_capability,
        multi_processor_count, error), `cuda_available` (at least one device ran a kernel) and `reason` (one line why
        not; None when available).
    """
    facts: dict[str, Any] = {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn_version(),
        "driver": driver_version(),
        "visible_devices": visible_devices(),
        "cuda_available": False,
        "device_count": 0,
        "devices": [],
        "reason": None,
    }
    reason = _init_error(facts)
    if reason is None:
        try:
            facts["device_count"] = torch.cuda.device_count()
            wanted = range(facts["device_count"])
            facts["devices"] = [_device_entry(index) for index in wanted if only is None or index == only]
        except Exception as error:  # noqa: BLE001 -- drivers raise many types; the text is the finding
            reason = _one_line(error)
    errors = [device["error"] for device in facts["devices"]]
    facts["cuda_available"] = any(error is None for error in errors)
    if not facts["cuda_available"]:
        broken = f"device {facts['devices'][0]['index']} cannot run a kernel: {errors[0]}" if errors else None
        facts["reason"] = reason or broken or "torch lists no device"
    return facts


def resolve_device(name: str) -> torch.device:
    """Return the device that `name` means, checked by running a kernel on it. Initialises CUDA unless `name` is "cpu".

    Args:
        name: "cpu", "cuda" (torch's current device), "cuda:N", or "auto" (a usable "cuda", otherwise "cpu").

    Raises:
        UsageError: not such a name; or CUDA is not usable, or has no device N. Only "auto" falls back.
    """
    check_device_name(name)
    if name == "cpu":
        return torch.device("cpu")
    index = int(name.partition(":")[2] or -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a failed initialisation, which probe() puts into words
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count and index >= count:
        known = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        tokens = visible_devices()
        visible = "not set" if tokens is None else repr(",".join(tokens))
        raise UsageError(
            f"no device {name!r}: torch {torch.__version__} sees {count} CUDA device(s), driver "
            f"{driver_version() or 'unknown'}, CUDA_VISIBLE_DEVICES {visible}. Allowed: {known}, cuda, cpu, auto."
        )
    chosen = index if index >= 0 else _current_index()
    if count and _kernel_error(chosen) is None:
        return torch.device("cuda", chosen)
    if name == "auto":
        return torch.device("cpu")
    raise UsageError(f"device {name!r}: " + explain_no_cuda(probe(only=chosen)))


def autocast_context(device: torch.device | str, dtype_name: str) -> AbstractContextManager[Any]:
    """Return the context in which a forward pass runs in `dtype_name`: nothing for "fp32", autocast for the others.

    Raises:
        UsageError: `dtype_name` is not "fp32", "bf16" or "fp16".
    """
    if dtype_name not in DTYPES:
        raise unknown_value("dtype", dtype_name, DTYPES)
    if dtype_name == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(device).type, dtype=DTYPES[dtype_name])


def set_fp32_precision(tf32: bool) -> None:
    """Make float32 products, convolutions and recurrent layers compute in IEEE float32, or in TF32 when `tf32`.

    Covers cuBLAS, cuDNN and oneDNN of this process. TF32 keeps 10 bits of mantissa; cuDNN uses it unless told not to.
    """
    mode = "tf32" if tf32 else "ieee"
    backends: Any = torch.backends
    # torch >= 2.9 holds this setting twice. When the two views differ, reading the older one raises, which
    # torch.compile and `cudnn.flags` do; so set the older one first and then the newer one, operator by operator (its
    # wide settings do not reach cuDNN's operators, whose own default is tf32).
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    backends.cudnn.allow_tf32 = tf32
    operators = (
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.cudnn.rnn,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
        backends.mkldnn.rnn,
    )
    for operator in operators:
        operator.fp32_precision = mode


def device_facts(device: torch.device | str) -> dict[str, Any]:
    """Return the JSON-ready facts of `device` that a result carries.

    `memory_bytes` is the device's memory, for a CPU what this process may use; `power_limit_watts` comes from NVML;
    facts that do not apply or cannot be read are None.
    """
    where = torch.device(device)
    facts: dict[str, Any] = {
        "type": where.type,
        "index": None,
        "name": cpu_model(),
        "uuid": None,
        "memory_bytes": memory_limit_bytes(),
        "compute_capability": None,
        "multi_processor_count": None,
        "power_limit_watts": None,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn_version(),
        "driver": driver_version(),
    }
    if where.type == "cuda":
        index = torch.cuda.current_device() if where.index is None else where.index
        entry = _properties(index)
        facts["memory_bytes"] = entry.pop("total_memory_bytes")
        facts.update(entry, power_limit_watts=_power_limit_watts(entry["uuid"]))
    return facts


def driver_version(proc: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the NVIDIA driver's version ("580.82.07"), from NVML when installed, otherwise from `proc`; None without.

    Args:
        proc: the kernel module's own version file.
    """
    try:
        with _nvml() as nvml:
            return str(nvml.nvmlSystemGetDriverVersion())
    except Exception:  # noqa: BLE001 -- not installed, no driver, driver mismatch: the file is the other source
        pass
    try:
        found = re.search(r"(?:Kernel Module|for x86_64|for aarch64)\s+([0-9]+(?:\.[0-9]+)+)", proc.read_text())
    except OSError:
        return None
    return found[1] if found else None


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """Give NVML's module, initialised; raises ImportError without the extra `gpu`, NVMLError without a driver."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


@contextlib.contextmanager
def nvml_device(uuid: str) -> Iterator[tuple[Any, Any]]:
    """Give NVML's module and its handle of the GPU or MIG slice with torch's `uuid`.

    By UUID, because NVML counts all GPUs and torch only those in CUDA_VISIBLE_DEVICES. Raises as NVML does.
    """
    with _nvml() as nvml:
        yield nvml, nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")


def _current_index() -> int:
    """Return the index of torch's current CUDA device, 0 when CUDA does not start (a kernel then gives the reason)."""
    try:
        return torch.cuda.current_device()
    except Exception:  # noqa: BLE001 -- drivers raise many types; _kernel_error meets the same one and reports it
        return 0


def _init_error(facts: Mapping[str, Any]) -> str | None:
    """Initialise CUDA; return why that cannot work in one line, None when it did."""
    if not facts["cuda"] and not facts["hip"]:
        return "this torch is a CPU-only build"
    if facts["visible_devices"] == []:
        return f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r} hides every device"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.init()
    except Exception as error:  # noqa: BLE001 -- drivers raise many types; the text is the finding
        return _one_line(error)
    return None


def _device_entry(index: int) -> dict[str, Any]:
    """Return a device's facts with the error of a first kernel on it, None when it ran."""
    try:
        entry = _properties(index)
    except Exception as error:  # noqa: BLE001 -- a device that is listed but lost
        return {"index": index, "error": _one_line(error)}
    return {**entry, "error": _kernel_error(index)}


def _properties(index: int) -> dict[str, Any]:
    """Return the facts of CUDA device `index` that torch knows."""
    properties = torch.cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)
    return {
        "index": index,
        "name": properties.name,
        "uuid": None if uuid is None else str(uuid),
        "total_memory_bytes": properties.total_memory,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multi_processor_count": properties.multi_processor_count,
    }


def _kernel_error(index: int) -> str | None:
    """Run one tiny addition on CUDA device `index`; return what went wrong in one line, None when it worked."""
    try:
        total = torch.ones(2, device=torch.device("cuda", index)) + 1
        torch.cuda.synchronize(index)
        if total.sum().item() != 4.0:
            return "a tiny addition gave a wrong sum"
    except Exception as error:  # noqa: BLE001 -- drivers raise many types; the text is the finding
        return _one_line(error)
    return None


def _cudnn_version() -> int | None:
    """Return cuDNN's version as torch writes it (91002 for 9.10.2), None in builds without it."""
    try:
        return torch.backends.cudnn.version()
    except Exception:  # noqa: BLE001 -- torch raises when the library's version does not fit the build
        return None


def _power_limit_watts(uuid: str | None) -> float | None:
    """Return the enforced power limit of the GPU with torch's `uuid`, None when NVML cannot tell (also for MIG)."""
    if not uuid:
        return None
    try:
        with nvml_device(uuid) as (nvml, handle):
            return float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1000.0
    except Exception:  # noqa: BLE001 -- not installed, no driver, not permitted, a MIG slice: no figure
        return None


def _one_line(error: BaseException) -> str:
    """Return an error's text in one line, without torch's debugging advice."""
    return " ".join(_ADVICE.split(str(error))[0].split())[:300] or type(error).__name__


def _main() -> None:
    """Print the facts as one JSON line."""
    import json

    print(json.dumps(probe()))


if __name__ == "__main__":
    _main()
