"""What `synora doctor` checks of Python, torch, the libraries and this machine's resources."""

from __future__ import annotations

import functools
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synora.cli import doctor_libraries, doctor_system
from synora.cli.doctor_process import Done, run
from synora.cli.doctor_system import Finding
from synora.core.machine import available_cpus, install_command, memory_limit_bytes, visible_devices

PROBE_TIMEOUT = 60.0
SUPPORTED_PYTHON = ((3, 11), (3, 13))
LOW_DISK_BYTES = 100 * 2**20


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the report.

    Attributes:
        name: what was checked.
        status: "ok" or "missing".
        required: without it nothing runs; the others belong to an optional capability.
        found: what was found, one line.
        fix: the command that repairs it; None when status is "ok".
    """

    name: str
    status: str
    required: bool
    found: str
    fix: str | None


def all_checks(out_dir: Path) -> list[tuple[str, bool, Callable[[], Finding | list[Check]]]]:
    """Return (name, required, function) of every check, in the order of the report.

    Args:
        out_dir: the results folder to try.
    """
    library = functools.partial
    return [
        ("python", True, python),
        ("torch", True, torch_and_devices),
        ("nvml", False, library(try_library, "nvml", install_command("gpu"))),
        ("atari", True, library(try_library, "ale", _reinstall("ale-py"))),
        ("bsuite", False, library(try_library, "bsuite", install_command("bsuite"))),
        ("video", False, library(try_library, "video", install_command("video"))),
        ("plots", False, library(try_library, "plot", install_command("plot"))),
        ("play", False, library(try_library, "play", install_command("play"))),
        ("display", False, doctor_system.display),
        ("slurm", False, doctor_system.slurm),
        ("containers", False, doctor_system.containers),
        ("gpu containers", False, doctor_system.gpu_containers),
        ("results folder", True, functools.partial(results_folder, out_dir)),
        ("machine", True, machine),
    ]


def python() -> Finding:
    """Check the interpreter's version and tell synora's."""
    from synora import __version__

    found = f"Python {platform.python_version()}, synora {__version__} ({sys.prefix})"
    low, high = SUPPORTED_PYTHON
    if low <= sys.version_info[:2] <= high:
        return "ok", found, None
    allowed = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
    return "missing", f"{found}; supported: Python {allowed}", "uv sync --inexact --python 3.13"


def torch_and_devices() -> list[Check]:
    """Import torch and start a kernel on each device, in another process: a driver may hang or crash."""
    answer = run([sys.executable, "-P", "-m", "synora.runtime.device"], timeout=PROBE_TIMEOUT, env=_with_synora())
    facts = _last_json(answer)
    if facts is None:
        problem = answer.problem or "the probe printed no facts"
        return [
            Check(name="torch", status="missing", required=True, found=f"probe: {problem}", fix=_reinstall("torch")),
            Check(
                name="devices",
                status="missing",
                required=False,
                found=f"unknown, torch was not probed ({_visible(visible_devices())})",
                fix="nvidia-smi" if _has_driver() else _reinstall("torch"),
            ),
        ]
    build = f"CUDA {facts['cuda']}" if facts.get("cuda") else f"ROCm {facts['hip']}" if facts.get("hip") else "CPU-only"
    cudnn = f", cuDNN {facts['cudnn']}" if facts.get("cudnn") else ""
    found = f"torch {facts['torch']} ({build} build{cudnn})"
    return [Check(name="torch", status="ok", required=True, found=found, fix=None), devices(facts)]


def devices(facts: dict[str, Any], *, has_driver: bool | None = None) -> Check:
    """Judge the devices in `probe()`'s facts. A machine without any GPU is in order: it runs on the CPU.

    Args:
        facts: what `synora.runtime.device.probe` returned.
        has_driver: whether this machine shows an NVIDIA driver; default: look.
    """
    visible = _visible(facts.get("visible_devices"))
    listed = [_device_line(device) for device in facts["devices"]]
    if facts["cuda_available"]:
        broken = any(device.get("error") for device in facts["devices"])
        found = f"{'; '.join(listed)}; driver {facts.get('driver') or 'unknown'}; {visible}"
        status, fix = ("missing", "nvidia-smi") if broken else ("ok", None)
        return Check(name="devices", status=status, required=False, found=found, fix=fix)
    reason = str(facts.get("reason")).rstrip(".")
    driver = bool(facts.get("driver")) or (_has_driver() if has_driver is None else has_driver)
    if not driver:
        found = f"no GPU, runs on the CPU: {reason}; {visible}"
        return Check(name="devices", status="ok", required=False, found=found, fix=None)
    found = f"a GPU driver is here, but CUDA is not usable: {reason}; {visible}"
    if listed:
        found += f"; {'; '.join(listed)}"
    fix = "nvidia-smi"
    if facts.get("visible_devices") == []:
        fix = "unset CUDA_VISIBLE_DEVICES"
    elif not facts.get("cuda") and not facts.get("hip"):
        fix = _reinstall("torch")
    return Check(name="devices", status="missing", required=False, found=found, fix=fix)


def try_library(name: str, fix: str) -> Finding:
    """Try a library of `doctor_libraries` in a process of its own.

    Args:
        name: a key of `doctor_libraries.LIBRARIES`.
        fix: the command that installs it.
    """
    answer = run([sys.executable, "-P", doctor_libraries.__file__, name], timeout=PROBE_TIMEOUT)
    facts = _last_json(answer)
    if facts is None:
        return "missing", answer.problem or "the check printed no facts", fix
    if "found" in facts:
        return "ok", facts["found"], None
    return "missing", facts["error"], fix


def results_folder(out_dir: Path) -> Finding:
    """Write a file where results go, without creating the folder, and tell the free space."""
    folder = out_dir.absolute()
    existing = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
    fix = f"synora doctor --out-dir {shlex.quote(str(Path.home() / 'synora-results'))}"
    try:
        with tempfile.TemporaryFile(dir=existing) as trial:
            trial.write(b"synora")
            trial.flush()
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return "missing", f"{folder}: cannot write in {existing}: {error.strerror or error}", fix
    new = "" if existing == folder else " (will be created)"
    found = f"{folder}{new}, {_size(free)} free"
    if free < LOW_DISK_BYTES:
        return "missing", f"{found}: too little for results", fix
    return "ok", found, None


def machine() -> Finding:
    """Tell the CPUs and the memory that this process may use."""
    return "ok", f"{available_cpus()} CPU(s), {_size(memory_limit_bytes())} of memory for this process", None


def _device_line(device: dict[str, Any]) -> str:
    """Describe one device of `probe()`."""
    name = f"cuda:{device['index']} {device.get('name', '(lost)')}"
    if device.get("error"):
        return f"{name} cannot run a kernel: {device['error'].rstrip('.')}"
    return (
        f"{name}, {_size(device['total_memory_bytes'])}, compute capability {device['compute_capability']}, "
        f"uuid {device['uuid'] or 'unknown'}"
    )


def _visible(tokens: list[str] | None) -> str:
    """Describe CUDA_VISIBLE_DEVICES."""
    if tokens is None:
        return "CUDA_VISIBLE_DEVICES not set"
    return f"CUDA_VISIBLE_DEVICES={','.join(tokens)}" if tokens else "CUDA_VISIBLE_DEVICES hides every device"


def _has_driver() -> bool:
    """Tell whether the kernel shows an NVIDIA driver (also WSL's)."""
    return any(os.path.exists(path) for path in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"))


def _reinstall(package: str) -> str:
    """Return the command that puts a required package back."""
    command = install_command()
    if command.startswith("uv sync"):
        return f"{command} --reinstall-package {package}"
    return f"pip install --force-reinstall {package}"


def _with_synora() -> dict[str, str]:
    """Return the environment in which another interpreter imports this very synora, after what it is told already."""
    parent = str(Path(__file__).resolve().parents[2])
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), parent]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _last_json(answer: Done) -> dict[str, Any] | None:
    """Return the JSON object on the last line of a program's output (libraries print before it), None without one."""
    if answer.code != 0:
        return None
    lines = answer.out.strip().splitlines()
    try:
        value = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _size(count: int) -> str:
    """Return bytes in the unit that people read."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
