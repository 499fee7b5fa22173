"""What `synora doctor` asks of the system: display, SLURM, container runtimes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from synora.cli.doctor_process import run

# What a check returns: status, what was found, and the command that fixes it (None when status is "ok").
Finding = tuple[str, str, str | None]

TOOL_TIMEOUT = 5.0
SLURM_COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo")


def display(env: Mapping[str, str] | None = None, x_sockets: Path = Path("/tmp/.X11-unix")) -> Finding:
    """Connect to the X or Wayland socket that the environment names; a variable alone may be a dead session's.

    Args:
        env: default `os.environ`.
        x_sockets: folder of the local X servers' sockets.
    """
    env = os.environ if env is None else env
    problems = []
    if wayland := env.get("WAYLAND_DISPLAY"):
        path = Path(env.get("XDG_RUNTIME_DIR", "/nonexistent")) / wayland  # an absolute name replaces the folder
        error = _connect(str(path))
        if error is None:
            return "ok", f"Wayland display {wayland}", None
        problems.append(f"WAYLAND_DISPLAY={wayland}: {error}")
    if name := env.get("DISPLAY"):
        error = _x_error(name, x_sockets)
        if error is None:
            return "ok", f"X display {name}", None
        problems.append(f"DISPLAY={name}: {error}")
    found = "; ".join(problems) or "neither DISPLAY nor WAYLAND_DISPLAY is set (only synora play opens a window)"
    live = _live_x_server(x_sockets)
    return "missing", found, f"export DISPLAY={live}" if live else "ssh -Y USER@THIS-MACHINE"


def slurm() -> Finding:
    """Find SLURM's commands, and ask the controller for the limits that shape job arrays."""
    here = [name for name in SLURM_COMMANDS if shutil.which(name)]
    absent = [name for name in SLURM_COMMANDS if name not in here]
    if "sbatch" in absent:
        where = f" (found: {', '.join(here)})" if here else ""
        return "missing", f"no sbatch on PATH{where}; jobs run on this machine only", "module load slurm"
    if absent:
        return "missing", f"{', '.join(here)} on PATH, but not {', '.join(absent)}", "module load slurm"
    asked = run(["scontrol", "show", "config"], timeout=TOOL_TIMEOUT)
    if asked.code != 0:
        return "missing", f"commands on PATH, but the controller does not answer: {asked.problem}", "scontrol ping"
    config = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", asked.out, re.MULTILINE))
    limits = [f"{key} {config.get(key, 'unknown')}" for key in ("MaxArraySize", "MaxJobCount")]
    accounting = config.get("AccountingStorageType", "").rpartition("/")[2] not in {"none", "(null)", ""}
    parts = [f"SLURM {config.get('SLURM_VERSION', 'of unknown version')}", *limits, _partitions()]
    parts.append("accounting on" if accounting else "no accounting (sacct answers nothing)")
    return "ok", ", ".join(parts), None


def containers() -> Finding:
    """Find container runtimes and whether each answers; one that works is enough."""
    questions = {
        "docker": ["docker", "version", "--format", "{{.Server.Version}}"],
        "podman": ["podman", "version", "--format", "{{.Client.Version}}"],
        "apptainer": ["apptainer", "--version"],
        "singularity": ["singularity", "--version"],
        "enroot": ["enroot", "version"],
    }
    works, broken = [], {}
    for name, argv in questions.items():
        if shutil.which(name) is None:
            continue
        answer = run(argv, timeout=TOOL_TIMEOUT)
        if answer.code == 0:
            version = re.search(r"[0-9]+(\.[0-9]+)+\S*", answer.out)
            works.append(f"{name} {version[0]}" if version else name)
        else:
            broken[name] = answer.problem
    found = "; ".join([*(f"{name} answers" for name in works), *(f"{name}: {text}" for name, text in broken.items())])
    if works:
        return "ok", found, None
    if not broken:
        return "missing", "no docker, podman, apptainer, singularity or enroot on PATH", "sudo apt-get install podman"
    if "docker" not in broken:
        return "missing", found, f"{next(iter(broken))} info"
    denied = "permission denied" in broken["docker"].lower()
    return "missing", found, 'sudo usermod -aG docker "$USER"' if denied else "sudo systemctl start docker"


def gpu_containers() -> Finding:
    """Find the toolkit that gives containers the GPU."""
    for name in ("nvidia-ctk", "nvidia-container-cli"):
        if shutil.which(name) is None:
            continue
        answer = run([name, "--version"], timeout=TOOL_TIMEOUT)
        if answer.code == 0:
            version = re.search(r"[0-9]+(\.[0-9]+)+", answer.out)
            return "ok", f"{name} {version[0] if version else ''}".strip(), None
        return "missing", f"{name}: {answer.problem}", "sudo apt-get install --reinstall nvidia-container-toolkit"
    return (
        "missing",
        "no nvidia-container-toolkit: containers started here see no GPU",
        "sudo apt-get install nvidia-container-toolkit",
    )


def _partitions() -> str:
    """Return the default partition with its time limit, as sinfo tells."""
    asked = run(["sinfo", "--noheader", "--format=%P|%l"], timeout=TOOL_TIMEOUT)
    if asked.code != 0:
        return f"partitions unknown ({asked.problem})"
    rows = list(dict.fromkeys(line.strip() for line in asked.out.splitlines() if "|" in line))
    for row in rows:
        name, _, limit = row.partition("|")
        if name.endswith("*"):
            return f"default partition {name[:-1]} (time limit {limit})"
    names = ", ".join(row.partition("|")[0] for row in rows[:4])
    return f"no default partition (there are: {names})" if names else "no partition"


def _x_error(name: str, x_sockets: Path) -> str | None:
    """Connect to X display `name` ("[host]:N[.screen]"); return what went wrong, None when it answered."""
    parsed = re.fullmatch(r"(.*):([0-9]+)(?:\.[0-9]+)?", name)
    if parsed is None:
        return "not of the form HOST:NUMBER"
    host, number = parsed[1], int(parsed[2])
    if host.startswith("/"):  # macOS names a socket
        return _connect(name)
    if host not in {"", "unix"}:
        return _connect((host.strip("[]"), 6000 + number)) if number < 59536 else "no such port"
    path = str(x_sockets / f"X{number}")
    error = _connect(path)
    # Linux servers listen on the abstract name as well, which is what is left where /tmp is private.
    return None if error is None or _connect(f"\0{path}") is None else error


def _live_x_server(x_sockets: Path) -> str | None:
    """Return the name of a local X display that answers, None without one."""
    with contextlib.suppress(OSError):
        for path in sorted(x_sockets.glob("X[0-9]*")):
            if _connect(str(path)) is None:
                return f":{path.name[1:]}"
    return None


def _connect(address: str | tuple[str, int]) -> str | None:
    """Connect to a socket's path or a (host, port) and leave; return why it failed, None when it did not."""
    try:
        if isinstance(address, tuple):
            socket.create_connection(address, timeout=TOOL_TIMEOUT).close()
        else:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(TOOL_TIMEOUT)
                client.connect(address)
    except OSError as error:
        return error.strerror or str(error)
    return None
