"""`synora doctor` with fake tools on PATH, fake sockets, a fake interpreter and fake facts."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synora.cli import doctor as doctor_module
from synora.cli import doctor_checks, doctor_libraries, doctor_process, doctor_system
from synora.cli.doctor import checks, doctor
from synora.cli.doctor_checks import Check, devices

CONFIG = """Configuration data as of 2026-11-24T10:00:00
AccountingStorageType   = accounting_storage/slurmdbd
MaxArraySize            = 1001
MaxJobCount             = 10000
SLURM_VERSION           = 22.05.8
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """PATH holds nothing but the stubs that `tools(name, body)` writes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name: str, body: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return add


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: a socket's path has at most 107 bytes."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="synora") as name:
        yield Path(name)


@pytest.fixture
def listening() -> Iterator[Any]:
    """`listening(path)` opens a socket there."""
    opened = []

    def listen(path: str) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()
        opened.append(server)
        return server

    yield listen
    for server in opened:
        server.close()


# --- running programs ---


def test_run_gives_output_and_exit_code(tools: Any) -> None:
    assert doctor_process.run([str(tools("a", "echo hello"))], timeout=10) == doctor_process.Done(
        code=0, out="hello\n", problem=""
    )
    failed = doctor_process.run([str(tools("b", "echo first >&2; echo last >&2; exit 4"))], timeout=10)
    assert (failed.code, failed.problem) == (4, "last")
    assert doctor_process.run([str(tools("c", "exit 4"))], timeout=10).problem == "exit code 4"
    assert doctor_process.run([str(tools("d", "kill -SEGV $$"))], timeout=10).problem == "killed by SIGSEGV"


@pytest.mark.parametrize("argv", [["/nonexistent/tool"], [""], ["/tmp"]])
def test_run_reports_what_cannot_start(argv: list[str]) -> None:
    done = doctor_process.run(argv, timeout=10)
    assert done.code is None and done.problem.startswith(f"cannot run {argv[0]!r}: ")


def test_run_kills_a_hanging_program_and_its_children(tmp_path: Path) -> None:
    script = f"/bin/sleep 60 & echo $! > '{tmp_path / 'child'}'; wait"
    start = time.monotonic()
    done = doctor_process.run(["/bin/sh", "-c", script], timeout=0.5)
    assert done.code is None and done.problem == "no answer within 0.5 s"
    assert time.monotonic() - start < 10
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


# --- display ---


def test_display_needs_a_variable(tmp_path: Path) -> None:
    status, found, fix = doctor_system.display({}, tmp_path)
    assert status == "missing" and "neither DISPLAY nor WAYLAND_DISPLAY" in found and fix == "ssh -Y USER@THIS-MACHINE"


def test_display_variables_of_a_dead_session_are_missing(short: Path) -> None:
    env = {"DISPLAY": ":7", "WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(short)}
    status, found, _ = doctor_system.display(env, short)
    assert status == "missing"
    assert "DISPLAY=:7: No such file or directory" in found and "WAYLAND_DISPLAY=wayland-0: No such file" in found
    (short / "X7").write_text("")  # a file is no server
    assert doctor_system.display(env, short)[0] == "missing"


@pytest.mark.parametrize("name", [":7", ":7.0", "unix:7"])
def test_display_connects_to_the_x_socket(short: Path, listening: Any, name: str) -> None:
    listening(str(short / "X7"))
    assert doctor_system.display({"DISPLAY": name}, short) == ("ok", f"X display {name}", None)
    status, _, fix = doctor_system.display({"DISPLAY": ":8"}, short)
    assert (status, fix) == ("missing", "export DISPLAY=:7")
    assert doctor_system.display({}, short)[2] == "export DISPLAY=:7"


def test_display_connects_to_the_abstract_x_socket(short: Path, listening: Any) -> None:
    listening(f"\0{short / 'X9'}")
    assert doctor_system.display({"DISPLAY": ":9"}, short)[0] == "ok"


def test_display_connects_to_wayland(short: Path, listening: Any) -> None:
    listening(str(short / "wayland-1"))
    for name in ("wayland-1", str(short / "wayland-1")):
        env = {"WAYLAND_DISPLAY": name, "XDG_RUNTIME_DIR": str(short)}
        assert doctor_system.display(env, short) == ("ok", f"Wayland display {name}", None)


def test_display_over_tcp_and_bad_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1] - 6000
        assert doctor_system.display({"DISPLAY": f"127.0.0.1:{number}.0"}, tmp_path)[0] == "ok"
    assert doctor_system.display({"DISPLAY": f"127.0.0.1:{number}"}, tmp_path)[0] == "missing"
    for name in ("nonsense", ":", ":x", "localhost:99999999"):
        assert doctor_system.display({"DISPLAY": name}, tmp_path)[0] == "missing"


# --- SLURM ---


def slurm_tools(tools: Any, config: str = CONFIG, partitions: str = "debug|30:00\\nmain*|7-00:00:00\\n") -> None:
    for name in ("sbatch", "squeue", "sacct", "scancel"):
        tools(name, "exit 0")
    tools("scontrol", f"while read -r line; do echo \"$line\"; done <<'END'\n{config}END")
    tools("sinfo", f"printf '{partitions}'")


def test_slurm_tells_its_limits(tools: Any) -> None:
    slurm_tools(tools)
    status, found, fix = doctor_system.slurm()
    assert (status, fix) == ("ok", None)
    for part in (
        "SLURM 22.05.8",
        "MaxArraySize 1001",
        "MaxJobCount 10000",
        "default partition main (time limit 7-00:00:00)",
        "accounting on",
    ):
        assert part in found


def test_slurm_without_default_partition_or_accounting(tools: Any) -> None:
    slurm_tools(tools, CONFIG.replace("slurmdbd", "none"), "a|1:00\\nb|2:00\\n")
    found = doctor_system.slurm()[1]
    assert "no default partition (there are: a, b)" in found and "no accounting" in found
    tools("sinfo", "echo 'sinfo: error' >&2; exit 1")
    assert "partitions unknown (sinfo: error)" in doctor_system.slurm()[1]


def test_slurm_absent(tools: Any) -> None:
    status, found, fix = doctor_system.slurm()
    assert status == "missing" and found.startswith("no sbatch on PATH; jobs run") and fix == "module load slurm"
    tools("squeue", "exit 0")
    assert "(found: squeue)" in doctor_system.slurm()[1]


def test_slurm_in_part(tools: Any) -> None:
    tools("sbatch", "exit 0")
    status, found, _ = doctor_system.slurm()
    assert status == "missing" and "sbatch on PATH, but not squeue, sacct" in found


def test_slurm_whose_controller_is_down(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm_tools(tools)
    tools("scontrol", "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2; exit 1")
    status, found, fix = doctor_system.slurm()
    assert (status, fix) == ("missing", "scontrol ping")
    assert "controller does not answer: slurm_load_ctl_conf error: Unable to contact" in found
    monkeypatch.setattr(doctor_system, "TOOL_TIMEOUT", 0.3)
    tools("scontrol", "exec /bin/sleep 60")
    assert "controller does not answer: no answer within 0.3 s" in doctor_system.slurm()[1]


# --- containers ---


def test_containers_absent(tools: Any) -> None:
    status, found, fix = doctor_system.containers()
    assert status == "missing" and found.startswith("no docker, podman") and fix == "sudo apt-get install podman"


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("Cannot connect to the Docker daemon. Is the docker daemon running?", "sudo systemctl start docker"),
        ("Got permission denied while trying to connect", 'sudo usermod -aG docker "$USER"'),
    ],
)
def test_docker_without_its_daemon(tools: Any, message: str, fix: str) -> None:
    tools("docker", f"echo '{message}' >&2; exit 1")
    assert doctor_system.containers() == ("missing", f"docker: {message}", fix)


def test_one_working_runtime_is_enough(tools: Any) -> None:
    tools("docker", "echo 'no daemon' >&2; exit 1")
    tools("apptainer", "echo 'apptainer version 1.3.4'")
    tools("enroot", "echo 3.5.0")
    found = "apptainer 1.3.4 answers; enroot 3.5.0 answers; docker: no daemon"
    assert doctor_system.containers() == ("ok", found, None)


def test_broken_runtime_other_than_docker(tools: Any) -> None:
    tools("podman", "echo 'cannot re-exec process' >&2; exit 125")
    assert doctor_system.containers() == ("missing", "podman: cannot re-exec process", "podman info")


def test_gpu_container_toolkit(tools: Any) -> None:
    assert doctor_system.gpu_containers()[2] == "sudo apt-get install nvidia-container-toolkit"
    tools("nvidia-container-cli", "exit 3")
    status, found, _ = doctor_system.gpu_containers()
    assert (status, found) == ("missing", "nvidia-container-cli: exit code 3")
    tools("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.17.4'")
    assert doctor_system.gpu_containers() == ("ok", "nvidia-ctk 1.17.4", None)


# --- torch and devices ---

GPU = {
    "index": 0,
    "name": "NVIDIA H200",
    "uuid": "GPU-8932",
    "total_memory_bytes": 150 * 2**30,
    "compute_capability": "9.0",
    "multi_processor_count": 132,
    "error": None,
}
FACTS: dict[str, Any] = {
    "torch": "2.15.0+cu132",
    "cuda": "13.2",
    "hip": None,
    "cudnn": 92600,
    "driver": "580.82.07",
    "visible_devices": ["MIG-3eb8f3a0-1f3b"],
    "cuda_available": True,
    "device_count": 1,
    "devices": [GPU],
    "reason": None,
}
NO_GPU = {
    **FACTS,
    "driver": None,
    "cuda_available": False,
    "device_count": 0,
    "devices": [],
    "reason": "Found no NVIDIA driver.",
}


def fake_interpreter(tools: Any, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(sys, "executable", str(tools("python", body)))


def answer(value: Any) -> str:
    return f"echo 'noise from a library'\necho '{json.dumps(value)}'"


def test_torch_and_devices_from_the_probe(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_interpreter(tools, monkeypatch, answer(FACTS))
    torch, gpu = doctor_checks.torch_and_devices()
    assert torch.status == "ok" and torch.required
    assert torch.found == "torch 2.15.0+cu132 (CUDA 13.2 build, cuDNN 92600)"
    assert gpu.status == "ok" and gpu.fix is None and not gpu.required
    for part in (
        "cuda:0 NVIDIA H200",
        "150.0 GiB",
        "9.0",
        "GPU-8932",
        "580.82.07",
        "CUDA_VISIBLE_DEVICES=MIG-3eb8f3a0-1f3b",
    ):
        assert part in gpu.found


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1", "No module named 'torch'"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("exec /bin/sleep 60", "no answer within 0.3 s"),
        ("echo not json", "the probe printed no facts"),
        ("exit 0", "the probe printed no facts"),
        ("echo '[1]'", "the probe printed no facts"),
    ],
)
def test_torch_that_does_not_import(tools: Any, monkeypatch: pytest.MonkeyPatch, body: str, problem: str) -> None:
    monkeypatch.setattr(doctor_checks, "PROBE_TIMEOUT", 0.3 if "sleep" in body else 30.0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,MIG-2")
    fake_interpreter(tools, monkeypatch, body)
    torch, gpu = doctor_checks.torch_and_devices()
    assert torch.status == "missing" and torch.required and problem in torch.found
    assert torch.fix is not None and "torch" in torch.fix
    assert gpu.status == "missing" and not gpu.required and "CUDA_VISIBLE_DEVICES=GPU-1,MIG-2" in gpu.found


def test_the_probe_finds_this_synora_from_any_folder(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    own, parent = doctor_checks._with_synora()["PYTHONPATH"].split(os.pathsep)
    assert own == "/users/own" and (Path(parent) / "synora/cli/doctor_checks.py").samefile(doctor_checks.__file__)


def test_other_interpreters_never_import_from_the_users_folder(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_interpreter(tools, monkeypatch, 'echo "$1" >&2; exit 1')
    assert doctor_checks.try_library("plot", "fix")[1] == "-P"
    assert doctor_checks.torch_and_devices()[0].found == "probe: -P"


def test_a_machine_without_gpu_is_in_order_and_says_so() -> None:
    gpu = devices(NO_GPU, has_driver=False)
    assert gpu.status == "ok" and gpu.found.startswith("no GPU, runs on the CPU: Found no NVIDIA driver;")


@pytest.mark.parametrize(
    ("changes", "fix", "found"),
    [
        ({"reason": "driver too old"}, "nvidia-smi", "driver too old"),
        ({"visible_devices": [], "reason": "hidden"}, "unset CUDA_VISIBLE_DEVICES", "hides every device"),
        ({"cuda": None, "reason": "this torch is a CPU-only build"}, "--reinstall-package torch", "CPU-only"),
        ({"devices": [{**GPU, "error": "no kernel image."}]}, "nvidia-smi", "cannot run a kernel: no kernel image"),
        ({"devices": [{"index": 0, "error": "GPU is lost"}]}, "nvidia-smi", "cuda:0 (lost) cannot run a kernel"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_missing(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], fix: str, found: str
) -> None:
    monkeypatch.setattr(doctor_checks, "install_command", lambda: "uv sync --inexact")
    gpu = devices({**NO_GPU, **changes}, has_driver=True)
    assert gpu.status == "missing" and not gpu.required
    assert fix in str(gpu.fix) and found in gpu.found


def test_one_broken_gpu_of_two_is_reported() -> None:
    gpu = devices({**FACTS, "devices": [GPU, {**GPU, "index": 1, "error": "lost"}]})
    assert gpu.status == "missing" and "cuda:1 NVIDIA H200 cannot run a kernel: lost" in gpu.found


# --- libraries ---


def library(name: str, **env: str) -> dict[str, str]:
    """Run the real library script, with the fake modules in the folders that PYTHONPATH names."""
    done = subprocess.run(
        [sys.executable, "-P", doctor_libraries.__file__, name],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_ale_counts_the_roms_that_are_really_there(tmp_path: Path) -> None:
    from ale_py import roms

    assert len(doctor_libraries.ATARI_100K) == len(set(doctor_libraries.ATARI_100K)) == 26
    count = len(roms.get_all_rom_ids())
    assert f"{count} ROMs, all 26 Atari-100k games" in library("ale")["found"]
    source = Path(roms.__file__).parent
    for rom in source.glob("*.bin"):
        (tmp_path / rom.name).symlink_to(rom)
    (tmp_path / "pong.bin").unlink()
    (tmp_path / "hero.bin").unlink()
    (tmp_path / "hero.bin").write_bytes(b"another game")
    error = library("ale", ALE_ROMS_DIR=str(tmp_path))["error"]
    assert "2 of 26 Atari-100k ROMs missing (hero, pong)" in error and "hash of hero.bin" in error
    assert "26 of 26" in library("ale", ALE_ROMS_DIR=str(tmp_path / "gone"))["error"]


def fake_module(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "module"),
    [("bsuite", "bsuite"), ("video", "av"), ("plot", "matplotlib"), ("play", "pygame"), ("nvml", "pynvml")],
)
def test_a_library_that_is_not_installed(tmp_path: Path, name: str, module: str) -> None:
    text = f"raise ModuleNotFoundError('No module', name={module!r})"
    assert library(name, PYTHONPATH=fake_module(tmp_path, module, text)) == {"error": f"{module} is not installed"}


def test_a_library_that_is_broken(tmp_path: Path) -> None:
    path = fake_module(tmp_path, "av", "import libav_of_another_century")
    assert library("video", PYTHONPATH=path) == {"error": "av: No module named 'libav_of_another_century'"}
    path = fake_module(tmp_path, "av", "raise OSError('libavcodec.so.61: cannot open')")
    assert library("video", PYTHONPATH=path) == {"error": "OSError: libavcodec.so.61: cannot open"}


def test_the_original_pygame_is_not_pygame_ce(tmp_path: Path) -> None:
    text = "print('Hello from the pygame community')\nclass version: ver = '2.6.1'"
    error = library("play", PYTHONPATH=fake_module(tmp_path, "pygame", text))["error"]
    assert "pygame 2.6.1 is installed in the place of pygame-ce" in error


def test_video_needs_an_encoder_that_works(tmp_path: Path) -> None:
    pytest.importorskip("av")
    assert "encoder " in library("video")["found"]
    text = "__version__ = '14'\nclass FFmpegError(Exception): pass\ndef open(*a, **k): raise FFmpegError('no encoder')"
    error = library("video", PYTHONPATH=fake_module(tmp_path, "av", text))["error"]
    assert "PyAV 14 has no working encoder (libx264: no encoder; h264:" in error


NVML = """
import importlib.metadata
importlib.metadata.version = lambda name: '13.0'
class NVMLError_LibraryNotFound(Exception): pass
class NVMLError_DriverNotLoaded(Exception): pass
def nvmlInit(): {init}
def nvmlSystemGetDriverVersion(): return '580.1'
def nvmlDeviceGetCount(): return 8
"""


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("pass", {"found": "nvidia-ml-py 13.0, driver 580.1, 8 GPU(s)"}),
        ("raise NVMLError_LibraryNotFound", {"found": "nvidia-ml-py 13.0; no NVIDIA driver on this machine to ask"}),
        ("raise ValueError('version mismatch')", {"error": "ValueError: version mismatch"}),
    ],
)
def test_nvml(tmp_path: Path, init: str, expected: dict[str, str]) -> None:
    assert library("nvml", PYTHONPATH=fake_module(tmp_path, "pynvml", NVML.format(init=init))) == expected


def test_library_findings_carry_the_fix(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_interpreter(tools, monkeypatch, answer({"error": "av is not installed"}))
    assert doctor_checks.try_library("video", "install it") == ("missing", "av is not installed", "install it")
    fake_interpreter(tools, monkeypatch, "kill -ABRT $$")
    assert doctor_checks.try_library("video", "install it") == ("missing", "killed by SIGABRT", "install it")
    fake_interpreter(tools, monkeypatch, answer({"found": "PyAV 14"}))
    assert doctor_checks.try_library("video", "install it") == ("ok", "PyAV 14", None)


# --- resources ---


def test_results_folder_is_tried_but_not_created(tmp_path: Path) -> None:
    status, found, fix = doctor_checks.results_folder(tmp_path / "new/results")
    assert (status, fix) == ("ok", None) and "(will be created)" in found and "GiB free" in found
    assert list(tmp_path.iterdir()) == []
    assert "(will be created)" not in doctor_checks.results_folder(tmp_path)[1]


def test_results_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name in ("file", "file/results", "dangling/results"):
        status, found, fix = doctor_checks.results_folder(tmp_path / name)
        assert status == "missing" and "cannot write in" in found and "--out-dir" in str(fix)

    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor_checks.tempfile, "TemporaryFile", refuse)
    assert "Permission denied" in doctor_checks.results_folder(tmp_path)[1]


def test_results_folder_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "LOW_DISK_BYTES", 2**70)
    status, found, _ = doctor_checks.results_folder(tmp_path)
    assert status == "missing" and "too little for results" in found


def test_an_unsupported_python_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_checks.python()[0] == "ok"
    monkeypatch.setattr(doctor_checks, "SUPPORTED_PYTHON", ((3, 98), (3, 99)))
    status, found, _ = doctor_checks.python()
    assert status == "missing" and "supported: Python 3.98 to 3.99" in found


def test_machine_tells_cpus_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "available_cpus", lambda: 12)
    monkeypatch.setattr(doctor_checks, "memory_limit_bytes", lambda: 512 * 2**20)
    assert doctor_checks.machine() == ("ok", "12 CPU(s), 512 MiB of memory for this process", None)


# --- the report ---


def report(monkeypatch: pytest.MonkeyPatch, *plan: Any) -> None:
    monkeypatch.setattr(doctor_module, "all_checks", lambda out_dir: list(plan))


def fine() -> Any:
    return "ok", "found it", None


def absent() -> Any:
    return "missing", "not\n \x1b[31mhere\x1b[0m\x07", "install it"


def crash() -> Any:
    raise ZeroDivisionError("inside the check")


@pytest.mark.parametrize(
    ("required", "check", "code"),
    [(True, fine, 0), (False, absent, 0), (True, absent, 1), (False, crash, 0), (True, crash, 1)],
)
def test_only_required_checks_decide_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], required: bool, check: Any, code: int
) -> None:
    report(monkeypatch, ("first", True, fine), ("second", required, check))
    assert doctor(True, Path("results")) == code
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is (code == 0)
    assert [set(entry) for entry in printed["checks"]] == [{"name", "status", "required", "found", "fix"}] * 2


def test_a_check_that_crashes_is_reported_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    report(monkeypatch, ("bad", False, crash), ("good", True, fine))
    bad, good = checks(Path("results"))
    assert bad.status == "missing" and "ZeroDivisionError: inside the check" in bad.found and bad.fix
    assert good == Check(name="good", status="ok", required=True, found="found it", fix=None)


def test_checks_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    meeting = threading.Barrier(3)

    def meet() -> Any:
        meeting.wait(timeout=30)  # breaks, and fails the check, unless all three are there
        return fine()

    report(monkeypatch, *((name, True, meet) for name in "abc"))
    assert [check.status for check in checks(Path("results"))] == ["ok"] * 3


def test_lines_are_plain_aligned_and_hold_the_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report(monkeypatch, ("a", True, fine), ("longer name", False, absent), ("b", True, absent))
    assert doctor(False, Path("results")) == 1
    assert capsys.readouterr().out == (
        "ok       a            found it\n"
        "missing  longer name  not here (optional)\n"
        "                      fix: install it\n"
        "missing  b            not here\n"
        "                      fix: install it\n"
        "Required but missing: b. 1 optional item(s) missing.\n"
    )


def test_lines_survive_an_old_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    report(monkeypatch, ("a", True, lambda: ("ok", "Grafikkarte für Zürich", None)))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert doctor(False, Path("results")) == 0
    stream.flush()
    assert b"Grafikkarte f\\xfcr Z\\xfcrich" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_the_whole_report_on_a_machine_that_has_nothing(
    tools: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake_interpreter(tools, monkeypatch, "echo 'No module named anything' >&2; exit 1")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert doctor(True, tmp_path) == 1
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["checks"]}
    required = {"python", "torch", "atari", "results folder", "machine"}
    optional = {
        "devices",
        "nvml",
        "bsuite",
        "video",
        "plots",
        "play",
        "display",
        "slurm",
        "containers",
        "gpu containers",
    }
    assert {name for name, entry in entries.items() if entry["required"]} == required
    assert set(entries) == required | optional
    missing = {name for name, entry in entries.items() if entry["status"] == "missing"}
    assert missing == {"torch", "atari", *optional}
    assert all(entries[name]["fix"] for name in missing)
    for extra, name in {"gpu": "nvml", "bsuite": "bsuite", "video": "video", "plot": "plots", "play": "play"}.items():
        assert f"--extra {extra}" in entries[name]["fix"] or f"synora[{extra}]" in entries[name]["fix"]


def test_the_json_of_this_machine_is_alone_on_stdout(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from synora.cli.doctor import doctor;"
        "code = doctor(True, Path(sys.argv[1])); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    printed = json.loads(done.stdout)
    assert done.returncode == (0 if printed["ok"] else 1), done.stderr
    assert [field.name for field in dataclasses.fields(Check)] == list(printed["checks"][0])
    assert {entry["name"]: entry["status"] for entry in printed["checks"]}["torch"] == "ok"


INTERRUPTED = """
import signal, sys
from pathlib import Path
from synora.cli import doctor, doctor_process

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

def hang():
    done = doctor_process.run(["/bin/sh", "-c", f"echo $$ > '{sys.argv[1]}'; exec sleep 60"], timeout=60)
    return "missing", done.problem, "wait"

doctor.all_checks = lambda out_dir: [("hang", False, hang)]
doctor.doctor(True, Path("results"))
"""


def test_ctrl_c_stops_the_programs_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(pid_file)], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err
    assert not _alive(int(pid_file.read_text()))
