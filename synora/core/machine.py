"""Facts of the machine this process runs on, read without torch.

Numbers are what *this process* may use: a container or a SLURM job that grants two of 128 cores reads as two. Nothing
here raises for a missing file or tool; a fact that cannot be read is None with a reason.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from synora.core.errors import UsageError, closest

DEVICE_NAMES = ("auto", "cpu", "cuda", "cuda:N")

# Variables by which a git hook or a wrapper points git at another repository than the one around a path.
_GIT_REDIRECTS = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CEILING_DIRECTORIES",
)


def available_cpus(root: str | os.PathLike[str] = "/") -> int:
    """Return how many CPUs this process may use: its affinity mask, cut by the cgroup CPU quota (rounded up), >= 1.

    Args:
        root: folder that holds `proc/` and `sys/` (for tests).
    """
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        count = os.cpu_count() or 1
    for controller, folder in _cgroup_folders(Path(root), "cpu"):
        quota = _quota_v2(folder) if controller == "v2" else _quota_v1(folder)
        if quota is not None:
            count = min(count, math.ceil(quota))
    return max(1, count)


def memory_limit_bytes(root: str | os.PathLike[str] = "/") -> int:
    """Return the bytes of memory this process may use: physical memory, cut by every cgroup limit above it.

    Args:
        root: folder that holds `proc/` and `sys/` (for tests).
    """
    import psutil

    limit = int(psutil.virtual_memory().total)
    for controller, folder in _cgroup_folders(Path(root), "memory"):
        text = _read(folder / ("memory.max" if controller == "v2" else "memory.limit_in_bytes"))
        # "max" (v2) and -1 or about 2**63 (v1) stand for "no limit"; 0 admits no process, so it is not ours.
        if text is not None and text.isdecimal() and int(text) > 0:
            limit = min(limit, int(text))
    return limit


def host_hash() -> str:
    """Return the first 12 hex digits of the host name's sha256: tells machines apart without naming them."""
    return _hash(socket.gethostname())


def cpu_model() -> str:
    """Return the CPU's model name, such as "AMD EPYC 9654 96-Core Processor"; the architecture when it has none."""
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Processor", "cpu model"} and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown"


def git_commit(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the commit of the checkout that holds the `synora` package.

    Args:
        path: folder of the package, or any folder of tracked code; default: the package that is running.

    Returns:
        `commit` (40 hex digits or None), `dirty` (tracked files differ from the commit, or untracked files lie in
        `path`; None when unknown) and `reason` (why something is None, otherwise None). A repository that merely
        surrounds an installed package, without tracking it, is not taken for its checkout.
    """
    folder = Path(path) if path is not None else Path(__file__).resolve().parents[1]
    if {"site-packages", "dist-packages"} & set(folder.resolve().parts):
        return _no_commit("synora is installed as a package, not run from a checkout")
    code, inside = _git(folder, "rev-parse", "--is-inside-work-tree")
    if code is None or code != 0 or inside != "true":
        return _no_commit(_git_reason(code, inside))
    code, tracked = _git(folder, "ls-files", "--", ".")
    if code != 0:
        return _no_commit(_git_reason(code, tracked))
    code, commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if code != 0:
        return _no_commit("the checkout has no commit yet")
    if not tracked:
        return _no_commit("the repository around the package does not track it")
    code, changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":/")
    if code == 0 and not changes:
        code, changes = _git(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".")
    if code != 0:
        return {"commit": commit, "dirty": None, "reason": f"git status failed: {_first_line(changes)}"}
    return {"commit": commit, "dirty": bool(changes), "reason": None}


def visible_devices(env: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the tokens of `CUDA_VISIBLE_DEVICES` as text, or None when the variable is not set.

    Tokens are indices ("0") or UUIDs ("GPU-…", "MIG-…", "MIG-GPU-…/gi/ci") and are never read as numbers. As in CUDA,
    an empty or negative token ends the list ("0,-1,1" is ["0"]); "" and "NoDevFiles" hide every device ([]).
    """
    value = (os.environ if env is None else env).get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    tokens = []
    for token in (part.strip() for part in value.split(",")):
        if not token or token.startswith("-") or token == "NoDevFiles":
            break
        tokens.append(token)
    return tokens


def check_device_name(name: str) -> str:
    """Return `name` when it has the form of a device: "auto", "cpu", "cuda" or "cuda:N". Says nothing of its presence.

    Raises:
        UsageError: any other text; the message gives the allowed names and the closest match.
    """
    if re.fullmatch(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,8}))?", name):
        return name
    base = re.fullmatch(r"\s*([a-z]*)\W*0*([0-9]*)\W*", name.lower())
    word, index = (base[1], base[2] or ("0" if re.search("[0-9]", name) else "")) if base else (name, "")
    # "gpu" is one letter from "cpu", which is the opposite of what its writer wants.
    match = "cuda" if word in {"gpu", "nvidia"} else closest(word, ("auto", "cpu", "cuda"))
    guess = f" Did you mean {match + (f':{index}' if match == 'cuda' and index else '')!r}?" if match else ""
    raise UsageError(f"unknown device {name!r}.{guess} Allowed: {', '.join(DEVICE_NAMES)}.")


def explain_no_cuda(facts: Mapping[str, Any]) -> str:
    """Return one line that says what torch sees of CUDA, why it cannot be used, and the fix.

    Args:
        facts: what `synora.runtime.device.probe` returned, possibly read back from JSON.
    """
    build = "CPU-only"
    if facts.get("cuda") or facts.get("hip"):
        build = f"CUDA {facts['cuda']}" if facts.get("cuda") else f"ROCm {facts['hip']}"
    driver = facts.get("driver") or "none found"
    tokens = facts.get("visible_devices")
    visible = "not set" if tokens is None else repr(",".join(tokens))
    seen = (
        f"torch {facts.get('torch') or 'not importable'} ({build} build), driver {driver}, "
        f"CUDA_VISIBLE_DEVICES {visible}, {facts.get('device_count', 0)} device(s)"
    )
    reason = facts.get("reason") or "no reason given"
    return f"CUDA is not usable: {_first_line(str(reason))}. Torch sees: {seen}. Fix: {cuda_fix(facts)}."


def cuda_fix(facts: Mapping[str, Any]) -> str:
    """Return what a user has to do to make CUDA usable, from the facts of `synora.runtime.device.probe`."""
    if not facts.get("torch"):
        return "reinstall torch, or use --device cpu where a command offers it"
    if not facts.get("cuda") and not facts.get("hip"):
        return "install a CUDA build of torch (https://pytorch.org/get-started/locally), or use --device cpu"
    if facts.get("visible_devices") == []:
        return "unset CUDA_VISIBLE_DEVICES or name a device in it, or use --device cpu"
    if not facts.get("driver") and not facts.get("hip"):
        return "run on a machine with an NVIDIA driver (in SLURM ask for --gpus=1), or use --device cpu"
    return "check the driver with nvidia-smi and the devices in CUDA_VISIBLE_DEVICES, or use --device cpu"


def install_command(extra: str | None = None) -> str:
    """Return the command that installs synora's dependencies, those of `extra` included, into this environment.

    A checkout is synced with uv (which leaves other packages alone: `--inexact`), an installed package uses pip.
    """
    checkout = Path(__file__).resolve().parents[2]
    if "site-packages" in checkout.parts or not (checkout / "pyproject.toml").is_file():
        return f"pip install 'synora[{extra}]'" if extra else "pip install --force-reinstall synora"
    try:
        here = Path.cwd() == checkout
    except OSError:  # the working folder was deleted
        here = False
    project = "" if here else f" --project {shlex.quote(str(checkout))}"
    return f"uv sync --inexact{project}" + (f" --extra {extra}" if extra else "")


def machine_facts() -> dict[str, Any]:
    """Return JSON-ready facts for reports: no host name, user name or path.

    `memory_bytes` and `cpus` are what this process may use. `slurm` is None outside a SLURM job.
    """
    slurm = None
    if os.environ.get("SLURM_JOB_ID"):
        node = os.environ.get("SLURMD_NODENAME")
        slurm = {
            "job_id": os.environ["SLURM_JOB_ID"],
            "array_job_id": os.environ.get("SLURM_ARRAY_JOB_ID"),
            "array_task_id": os.environ.get("SLURM_ARRAY_TASK_ID"),
            "node_hash": _hash(node) if node else None,
        }
    return {
        "host_hash": host_hash(),
        "cpu_model": cpu_model(),
        "cpus": available_cpus(),
        "memory_bytes": memory_limit_bytes(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "slurm": slurm,
    }


def _cgroup_folders(root: Path, controller: str) -> Iterator[tuple[str, Path]]:
    """Yield ("v1" or "v2", folder) for this process's cgroups with `controller`, from its own up to the mount's root.

    Inside a container the path in /proc/self/cgroup may be the host's, which does not exist below the mount; the walk
    then reaches the mount's root, which is the container's own cgroup.
    """
    mount = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        parts = [part for part in path.split("/") if part not in {"", ".", ".."}]
        if not names:
            version, bases = "v2", [mount, mount / "unified"]
        elif controller in names.split(","):
            version, bases = "v1", [mount / names, mount / controller]
        else:
            continue
        for base in bases:
            for depth in range(len(parts), -1, -1):
                yield version, base.joinpath(*parts[:depth])


def _quota_v2(folder: Path) -> float | None:
    """Return the CPU quota of a cgroup v2 folder in CPUs, None without one."""
    fields = (_read(folder / "cpu.max") or "").split()
    return _ratio(*fields) if len(fields) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    """Return the CPU quota of a cgroup v1 folder in CPUs, None without one."""
    return _ratio(_read(folder / "cpu.cfs_quota_us") or "", _read(folder / "cpu.cfs_period_us") or "")


def _ratio(quota: str, period: str) -> float | None:
    """Return quota / period, both in microseconds; None unless both are positive ("max" and -1 mean no quota)."""
    if not (quota.isdecimal() and period.isdecimal()) or int(quota) <= 0 or int(period) <= 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str | None:
    """Return a small text file's content without surrounding blanks, None when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _git(folder: Path, *arguments: str) -> tuple[int | None, str]:
    """Run git in `folder`; return its exit code and output (its error text when it failed), None if it cannot run."""
    env = {key: value for key, value in os.environ.items() if key not in _GIT_REDIRECTS}
    # English texts to recognise; no index refresh, which would fight with a git command the user runs now.
    env.update(LC_ALL="C", GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0")
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=env,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=False,
        )
    except FileNotFoundError:
        return None, "git is not installed"
    except subprocess.TimeoutExpired:
        return None, "git did not answer within 10 s"
    except OSError as error:
        return None, f"git cannot run: {error.strerror or error}"
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()


def _git_reason(code: int | None, output: str) -> str:
    """Return why git gave no answer, without the paths in its text (reports carry no paths)."""
    if code is None:
        return output
    if "dubious ownership" in output:
        return "git refuses a checkout owned by another user; run: git config --global --add safe.directory <checkout>"
    if code == 0 or "not a git repository" in output:
        return "the synora package is not in a git checkout"
    return f"git failed with exit code {code}"


def _no_commit(reason: str) -> dict[str, Any]:
    """Build `git_commit`'s answer for an unknown commit."""
    return {"commit": None, "dirty": None, "reason": reason}


def _first_line(text: str) -> str:
    """Return the first line of `text` that is not blank, without its final full stop."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else "no message"


def _hash(name: str) -> str:
    """Return 12 hex digits that stand for `name`."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]
