"""Peak memory of a stretch of work: CUDA allocated, reserved and process; resident memory on the CPU.

A figure that does not apply is None with a reason, never 0.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Any

import psutil
import torch

from synora.runtime.device import nvml_device

CLEAR_PEAK = "5"  # written to /proc/self/clear_refs it resets VmHWM (proc(5))


class PeakMemory:
    """Measures the peak between `start` and `read`, on the device that does the work.

    On the CPU the figure is the peak resident set above `baseline_bytes`, which is read when this object is made:
    make it before the model is built, so that parameters, activations, gradients and optimiser state are all in it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        _return_freed_memory()
        self.baseline_bytes = int(psutil.Process().memory_info().rss)
        self._can_reset = False

    def start(self) -> None:
        """Forget earlier peaks."""
        self._can_reset = _reset_peak_rss()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def read(self) -> dict[str, Any]:
        """Return peaks since `start` in bytes, JSON-ready, with the reason for each that is None."""
        if self._device.type != "cuda":
            return {
                "peak_rss_bytes": max(0, _peak_rss() - self.baseline_bytes),
                "baseline_rss_bytes": self.baseline_bytes,
                "peak_rss_since_process_start": not self._can_reset,
                "cuda_peak_allocated_bytes": None,
                "cuda_peak_reserved_bytes": None,
                "cuda_process_bytes": None,
                "missing": dict.fromkeys(_CUDA_FIELDS, "the case ran on the CPU"),
            }
        process, reason = _nvml_process_bytes(self._device)
        missing = {"peak_rss_bytes": "the case ran on CUDA"}
        if process is None:
            missing["cuda_process_bytes"] = reason
        return {
            "peak_rss_bytes": None,
            "cuda_peak_allocated_bytes": int(torch.cuda.max_memory_allocated(self._device)),
            "cuda_peak_reserved_bytes": int(torch.cuda.max_memory_reserved(self._device)),
            "cuda_process_bytes": process,
            "missing": missing,
        }


_CUDA_FIELDS = ("cuda_peak_allocated_bytes", "cuda_peak_reserved_bytes", "cuda_process_bytes")


def _return_freed_memory() -> None:
    """Give freed heap pages back to the system: what the case took from them would not show above the baseline."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc only
        trim(0)


def _reset_peak_rss() -> bool:
    """Reset the kernel's record of our peak resident set; False where that is not possible."""
    try:
        Path("/proc/self/clear_refs").write_text(CLEAR_PEAK)
    except OSError:
        return False
    return True


def _peak_rss() -> int:
    """Return the peak resident set of this process in bytes."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: getrusage below
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _nvml_process_bytes(device: torch.device) -> tuple[int | None, str]:
    """Return what the driver says this process holds on `device`, or None and why it is not known."""
    try:
        with nvml_device(str(torch.cuda.get_device_properties(device).uuid)) as (nvml, handle):
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.pid == os.getpid() and process.usedGpuMemory is not None:
                    return int(process.usedGpuMemory), ""
    except ImportError:
        return None, "nvidia-ml-py is not installed (extra gpu)"
    except Exception as error:  # noqa: BLE001 - drivers raise many types; the reason is recorded beside the null
        return None, f"NVML: {error}"
    return None, "NVML does not list this process (in a container it sees other process ids)"
