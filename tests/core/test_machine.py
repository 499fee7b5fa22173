"""Machine facts: fake cgroup trees, fake git checkouts, fake environments."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from synora.core import machine
from synora.core.errors import UsageError

GIB = 2**30


@pytest.fixture(autouse=True)
def no_git_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run from a git hook, these tests must not write into the repository that the hook names."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.fixture
def sixteen_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: real._replace(total=16 * GIB))


def tree(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Write /proc/self/cgroup and files below /sys/fs/cgroup."""
    below = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {"proc/self/cgroup": cgroup, **below}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/job/step", {"job/step/cpu.max": "max 100000", "job/cpu.max": "250000 100000"}, 3),
        ("0::/job/step", {"job/step/cpu.max": "150000 100000", "job/cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/job", {"job/cpu.max": "max 100000"}, 8),
        ("0::/job", {"job/cpu.max": "6400000 100000"}, 8),
        # A container that still shows the host's path: only the mount's root exists.
        ("0::/system.slice/docker-1.scope", {"cpu.max": "200000 100000"}, 2),
        ("0::/../../other", {"cpu.max": "400000 100000"}, 4),
        (
            "4:cpu,cpuacct:/docker/1\n0::/",
            {"cpu,cpuacct/docker/1/cpu.cfs_quota_us": "350000", "cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("4:cpuacct,cpu:/a", {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "50000"}, 2),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "0"}, 8),
        # Another controller's group has no say.
        ("4:cpuset:/x", {"cpuset/x/cpu.cfs_quota_us": "100000", "cpuset/x/cpu.cfs_period_us": "100000"}, 8),
        ("garbage", {"cpu.max": "what is this"}, 8),
    ],
)
def test_cpus_follow_the_tightest_quota(
    tmp_path: Path, eight_cpus: None, cgroup: str, files: dict[str, str], expected: int
) -> None:
    assert machine.available_cpus(tree(tmp_path, cgroup, files)) == expected


def test_cpus_follow_the_affinity_without_any_cgroup(tmp_path: Path, eight_cpus: None) -> None:
    assert machine.available_cpus(tmp_path) == 8


def test_cpus_of_this_very_process_follow_a_narrower_affinity() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from synora.core.machine import available_cpus; print(available_cpus())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "1\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/job/step", {"job/step/memory.max": "max", "job/memory.max": str(4 * GIB)}, 4 * GIB),
        ("0::/job/step", {"job/step/memory.max": str(2 * GIB), "job/memory.max": str(4 * GIB)}, 2 * GIB),
        ("0::/job", {"job/memory.max": str(64 * GIB)}, 16 * GIB),
        ("0::/gone", {"memory.max": str(3 * GIB)}, 3 * GIB),
        ("5:memory:/slurm/job_1", {"memory/slurm/job_1/memory.limit_in_bytes": str(GIB)}, GIB),
        ("5:memory:/a", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, 16 * GIB),
        ("5:memory:/a", {"memory/a/memory.limit_in_bytes": "-1"}, 16 * GIB),
        ("5:cpu:/a", {"cpu/a/memory.limit_in_bytes": str(GIB)}, 16 * GIB),
    ],
)
def test_memory_follows_the_tightest_limit(
    tmp_path: Path, sixteen_gib: None, cgroup: str, files: dict[str, str], expected: int
) -> None:
    assert machine.memory_limit_bytes(tree(tmp_path, cgroup, files)) == expected


def test_memory_is_the_physical_one_without_cgroups(tmp_path: Path) -> None:
    assert machine.memory_limit_bytes(tmp_path) == psutil.virtual_memory().total


def test_host_hash_is_a_prefix_of_the_names_sha256() -> None:
    assert machine.host_hash() == hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", []),
        ("0", ["0"]),
        (" 3, 1 ", ["3", "1"]),
        ("0,-1,1", ["0"]),
        ("-1", []),
        ("0,,1", ["0"]),
        ("NoDevFiles", []),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"]),
        ("MIG-3eb8f3a0-1f3b-5d6c-8c1d-0d6c7f3b1a2e,007", ["MIG-3eb8f3a0-1f3b-5d6c-8c1d-0d6c7f3b1a2e", "007"]),
        ("MIG-GPU-8932f937-d72c/1/0", ["MIG-GPU-8932f937-d72c/1/0"]),
    ],
)
def test_visible_devices_are_tokens(value: str | None, expected: list[str] | None) -> None:
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert machine.visible_devices(env) == expected


def test_visible_devices_reads_the_environment_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a")
    assert machine.visible_devices() == ["MIG-a"]


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_device_names(name: str) -> None:
    assert machine.check_device_name(name) == name


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("gpu", "'cuda'"),
        ("GPU:1", "'cuda:1'"),
        ("cuda0", "'cuda:0'"),
        ("cuda:01", "'cuda:1'"),
        ("cuda:00", "'cuda:0'"),
        ("CUDA", "'cuda'"),
        ("cude", "'cuda'"),
        ("cpu:0", "'cpu'"),
        ("autp", "'auto'"),
        ("cuda:1\n", "'cuda:1'"),
        ("mps", None),
        ("", None),
        ("cuda:٣", None),
        ("cuda:-x", None),
    ],
)
def test_other_device_names_are_errors_with_a_guess(name: str, guess: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        machine.check_device_name(name)
    text = str(caught.value)
    assert text.startswith(f"unknown device {name!r}.") and "Allowed: auto, cpu, cuda, cuda:N." in text
    assert "\n" not in text
    if guess is not None:
        assert f"Did you mean {guess}?" in text
    elif not name.startswith("cuda"):
        assert "Did you mean" not in text


CUDA_FACTS = {
    "torch": "2.15.0+cu132",
    "cuda": "13.2",
    "driver": "580.1",
    "visible_devices": None,
    "device_count": 0,
    "reason": "driver too old",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["CUDA 13.2 build", "driver 580.1", "CUDA_VISIBLE_DEVICES not set", "driver too old", "nvidia-smi"]),
        ({"cuda": None}, ["CPU-only build", "install a CUDA build of torch"]),
        ({"cuda": None, "hip": "6.3"}, ["ROCm 6.3 build", "nvidia-smi"]),
        ({"visible_devices": []}, ["CUDA_VISIBLE_DEVICES ''", "unset CUDA_VISIBLE_DEVICES"]),
        ({"visible_devices": ["MIG-1", "GPU-2"]}, ["CUDA_VISIBLE_DEVICES 'MIG-1,GPU-2'"]),
        ({"driver": None}, ["driver none found", "run on a machine with an NVIDIA driver"]),
        ({"torch": None}, ["torch not importable", "reinstall torch"]),
        ({"reason": "first line\nsecond"}, ["not usable: first line. Torch sees"]),
        ({"reason": None}, ["no reason given"]),
    ],
)
def test_explain_no_cuda_says_what_torch_sees_and_the_fix(changes: dict[str, object], expected: list[str]) -> None:
    text = machine.explain_no_cuda({**CUDA_FACTS, **changes})
    assert "\n" not in text
    for part in expected:
        assert part in text


def git(folder: Path, *arguments: str) -> str:
    settings = ("user.name=a", "user.email=a@b", "commit.gpgsign=false", "core.hooksPath=/dev/null")
    identity = [word for setting in settings for word in ("-c", setting)]
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose folder `synora` is tracked and committed."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    root = tmp_path / "a checkout"
    (root / "synora").mkdir(parents=True)
    (root / "synora/__init__.py").write_text("")
    git(root, "init", "-q")
    git(root, "add", "synora")
    git(root, "commit", "-qm", "first")
    return root


def test_git_commit_of_a_clean_checkout(checkout: Path) -> None:
    assert machine.git_commit(checkout / "synora") == {
        "commit": git(checkout, "rev-parse", "HEAD"),
        "dirty": False,
        "reason": None,
    }


@pytest.mark.parametrize(
    ("file", "dirty"),
    [("synora/__init__.py", True), ("synora/new.py", True), ("results.json", False)],
)
def test_git_commit_knows_what_makes_code_dirty(checkout: Path, file: str, dirty: bool) -> None:
    (checkout / file).write_text("changed")
    assert machine.git_commit(checkout / "synora")["dirty"] is dirty


def test_git_commit_ignores_the_variables_of_a_git_hook(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(checkout / "nowhere/index"))
    assert machine.git_commit(checkout / "synora")["commit"] == head


@pytest.mark.parametrize("place", ["venv/lib/python3.11/site-packages/synora", "vendored/synora"])
def test_git_commit_is_not_that_of_a_repository_around_an_installed_package(checkout: Path, place: str) -> None:
    package = checkout / place
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    facts = machine.git_commit(package)
    assert facts["commit"] is None and facts["dirty"] is None
    assert "installed as a package" in facts["reason"] or "does not track it" in facts["reason"]


def test_git_commit_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert machine.git_commit(tmp_path)["reason"] == "the checkout has no commit yet"


def test_git_commit_outside_any_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.git_commit(tmp_path)["reason"] == "the synora package is not in a git checkout"
    assert machine.git_commit(tmp_path / "gone")["commit"] is None


def stub(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_git_commit_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.git_commit(tmp_path) == {"commit": None, "dirty": None, "reason": "git is not installed"}


def test_git_commit_in_a_checkout_of_another_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "fatal: detected dubious ownership in repository at '/secret/place'"
    stub(tmp_path / "bin", "git", f'echo "{message}" >&2; exit 128')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    reason = machine.git_commit(tmp_path)["reason"]
    assert "owned by another user" in reason and "safe.directory" in reason
    assert "/secret/place" not in reason


def test_git_commit_with_a_broken_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path / "bin", "git", "exit 3")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert machine.git_commit(tmp_path)["reason"] == "git failed with exit code 3"


def test_machine_facts_are_json_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    facts = machine.machine_facts()
    assert facts["slurm"] is None
    assert facts["cpus"] == machine.available_cpus() and facts["memory_bytes"] == machine.memory_limit_bytes()
    assert facts["cpu_model"] and facts["python"].startswith("3.")
    assert json.loads(json.dumps(facts)) == facts


def test_machine_facts_hold_the_slurm_job_but_hide_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "70")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "secret-node-7")
    facts = machine.machine_facts()
    node = hashlib.sha256(b"secret-node-7").hexdigest()[:12]
    assert facts["slurm"] == {"job_id": "77", "array_job_id": "70", "array_task_id": "7", "node_hash": node}
    assert "secret-node-7" not in json.dumps(facts)


def test_install_command_of_a_checkout_and_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "my clone"
    (checkout / "synora/core").mkdir(parents=True)
    (checkout / "pyproject.toml").write_text("")
    monkeypatch.setattr(machine, "__file__", str(checkout / "synora/core/machine.py"))
    monkeypatch.chdir(checkout)
    assert machine.install_command("gpu") == "uv sync --inexact --extra gpu"
    monkeypatch.chdir(tmp_path)
    assert machine.install_command("gpu") == f"uv sync --inexact --project '{checkout}' --extra gpu"
    (tmp_path / "deleted").mkdir()
    monkeypatch.chdir(tmp_path / "deleted")
    (tmp_path / "deleted").rmdir()
    assert machine.install_command("gpu") == f"uv sync --inexact --project '{checkout}' --extra gpu"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "lib/site-packages/synora/core/machine.py"))
    assert machine.install_command("gpu") == "pip install 'synora[gpu]'"


def test_importing_it_imports_no_torch() -> None:
    code = "import sys, synora.core.machine as m; m.machine_facts(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
