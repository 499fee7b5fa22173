"""`synora sweep` as users type it: whole runs in a process of their own, and bad usage."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from synora.cli import main

SYNORA = [sys.executable, "-m", "synora"]
FAST = ["--iters", "2", "--warmup", "1", "--device", "cpu"]


def sweep(case_file: Path, out: Path, *flags: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*SYNORA, "sweep", "--cases", str(case_file), "--out-dir", str(out), *FAST, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, **options)


def report(out: Path) -> dict[str, Any]:
    return json.loads((out / "model_benchmarks.json").read_text())


def test_good_and_broken_cases_in_one_sweep(case_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out put"
    done = sweep(case_file, out, "--family", "good,bad", "--memory-limit", "8")
    assert done.returncode == 0, done.stderr
    rows = {row["job"]["name"]: row for row in report(out)["results"]}
    statuses = {name: row["status"] for name, row in rows.items()}
    assert {name for name, status in statuses.items() if status == "ok"} == {"mlp", "conv", "nested", "frozen"}
    assert {name for name, status in statuses.items() if status == "failed"} == {
        *("nothing", "nan", "nan-gradient", "raises", "wrong-inputs", "no-floats", "segfault", "killed", "leaves"),
    }
    assert rows["segfault"]["error"]["type"] == "signal:SIGSEGV"
    assert rows["killed"]["error"]["type"] == "signal:SIGKILL"
    assert "memory" in rows["killed"]["error"]["message"]
    assert "exit code 7" in rows["leaves"]["error"]["message"]
    assert "during: building" in rows["segfault"]["error"]["message"]
    # Table on stdout; progress, one plain line a case, and reasons on stderr.
    assert done.stdout.splitlines()[0].startswith("model")
    assert "[1/13] mlp: ok" in done.stderr
    assert "elapsed" in done.stderr and "left" in done.stderr
    assert "\x1b[" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert f"Reports: {out}/model_benchmarks." in done.stdout
    metadata = report(out)["metadata"]
    assert metadata["complete"] is True
    for name in ("device_name", "dtype", "torch", "cuda", "driver", "threads", "cpu_model", "git_commit", "host_hash"):
        assert name in metadata
    for kind in ("csv", "md", "tex"):
        assert "segfault" in (out / f"model_benchmarks.{kind}").read_text()
    (run_dir,) = (out / "runs").iterdir()
    assert len(list((run_dir / "jobs").glob("*.json"))) == 13
    assert json.loads((run_dir / "plan.json").read_text())["jobs"][0]["name"] == "mlp"


def test_hanging_and_greedy_cases_are_killed_and_strict_fails(case_file: Path, tmp_path: Path) -> None:
    flags = ("--models", "hangs,hog,mlp", "--case-timeout", "25", "--memory-limit", "1.5", "--strict")
    done = sweep(case_file, tmp_path, *flags)
    assert done.returncode == 1, done.stderr
    rows = {row["job"]["name"]: row for row in report(tmp_path)["results"]}
    assert rows["hangs"]["status"] == "timeout"
    assert "time limit of 25 s, during: forward: first call" in rows["hangs"]["error"]["message"]
    assert rows["hog"]["error"]["type"] == "out_of_memory"
    assert "the limit is 1.5 GiB" in rows["hog"]["error"]["message"]
    assert rows["mlp"]["status"] == "ok"


def test_a_big_case_does_not_raise_the_next_one_s_memory(tmp_path: Path) -> None:
    source = tmp_path / "cases.py"
    source.write_text(
        "import torch\nfrom torch import nn\nfrom synora.compute.case import BenchCase\n"
        "def case(name, size):\n"
        "    return BenchCase(name=name, family='f', build=lambda s: nn.Linear(size, size),\n"
        "                     inputs=lambda s: torch.ones(1, size))\n"
        "CASES = [case('small', 64), case('large', 8192), case('small-again', 64)]\n"
    )
    done = sweep(source, tmp_path / "out", "--no-backward")
    assert done.returncode == 0, done.stderr
    peaks = {
        row["job"]["name"]: row["body"]["modes"]["forward"]["memory"]["peak_rss_bytes"]
        for row in report(tmp_path / "out")["results"]
    }
    weights = 4 * 8192 * 8192
    assert weights < peaks["large"] < 1.5 * weights
    assert peaks["small"] < weights / 4
    assert abs(peaks["small"] - peaks["small-again"]) < 2**23


def test_rows_survive_a_sweep_that_is_killed(case_file: Path, tmp_path: Path) -> None:
    command = [*SYNORA, "sweep", "--cases", str(case_file), "--out-dir", str(tmp_path), *FAST, "--models", "mlp,hangs"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "[1/2] mlp: ok" in line
        deadline = time.monotonic() + 30
        while not (tmp_path / "model_benchmarks.tex").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 130
        assert "interrupted" in process.stderr.read()
    assert report(tmp_path)["metadata"]["complete"] is False
    assert [row["job"]["name"] for row in report(tmp_path)["results"]] == ["mlp"]


ODD = """
import os, threading, time
from torch import nn, randn
from synora.compute.case import BenchCase

def moves(scale):
    os.chdir("/")
    return nn.Linear(4, 4)

def lingers(scale):
    threading.Thread(target=time.sleep, args=(3000,)).start()
    return nn.Linear(4, 4)

def case(name, **fields):
    return BenchCase(**{"name": name, "family": "odd", "build": lambda s: nn.Linear(4, 4),
                        "inputs": lambda s: randn(1, 4), **fields})

CASES = [case("moves", build=moves), case("lingers", build=lingers), case("no-items", items=lambda s: 0)]
"""


def test_a_hostile_place_changes_nothing(tmp_path: Path) -> None:
    """Files that shadow modules, a long TMPDIR, a relative folder, a case that leaves its folder or a thread behind."""
    place = tmp_path / "place"
    place.mkdir()
    for name in ("random", "torch", "numpy", "queue"):
        (place / f"{name}.py").write_text("raise RuntimeError('the current folder is not on the path')")
    (tmp_path / "cases.py").write_text(ODD)
    long = tmp_path / ("t" * 90)
    long.mkdir()
    program = Path(sys.executable).with_name("synora")
    command = [str(program), "sweep", "--cases", str(tmp_path / "cases.py"), "--out-dir", "out", *FAST]
    env = {**os.environ, "TMPDIR": str(long)}
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stderr
    rows = {row["job"]["name"]: row for row in report(place / "out")["results"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "moves": "ok",
        "lingers": "ok",
        "no-items": "failed",
    }
    assert "the items function of no-items returned 0" in rows["no-items"]["error"]["message"]
    assert report(place / "out")["metadata"]["command"].startswith("synora sweep --cases")


def test_a_sweep_in_which_nothing_was_measured_has_failed(case_file: Path, tmp_path: Path) -> None:
    done = sweep(case_file, tmp_path, "--models", "raises")
    assert done.returncode == 1, done.stderr
    assert report(tmp_path)["results"][0]["status"] == "failed"


@pytest.mark.parametrize("content", ["{", "[]", '{"plan_version": 99}', '{"plan_version": 1, "jobs": [{"kind": "x"}]}'])
def test_a_plan_that_is_none_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    assert main(["run-job", "--plan", str(tmp_path / "plan.json"), "--index", "0"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "plan.json" in error and "http" not in error


def test_list_names_every_case_without_running(case_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--cases", str(case_file), "--list"]) == 0
    shown = capsys.readouterr().out
    assert "mlp" in shown and "two layers" in shown
    assert "big" in shown and "heavy (--all)" in shown


def test_list_follows_the_selection(case_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--cases", str(case_file), "--list", "--family", "good"]) == 0
    shown = capsys.readouterr().out
    assert "mlp" in shown and "hog" not in shown


def test_built_in_cases_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--list"]) == 0
    shown = capsys.readouterr().out
    for version in ("dreamerv1", "dreamerv2"):
        for part in ("encoder", "decoder", "rssm", "world-model", "behaviour"):
            assert f"{version}-{part}" in shown


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--models", "mpl"], "unknown model 'mpl'. Did you mean 'mlp'? Allowed:"),
        (["--family", "goood"], "unknown family 'goood'. Did you mean 'good'?"),
        (["--models", ","], "--models needs at least one name"),
        (["--preset", "tinny"], "unknown preset 'tinny'. Did you mean 'tiny'? Allowed: paper, small, tiny."),
        (["--dtype", "fp8"], "unknown dtype 'fp8'. Did you mean 'fp32'? Allowed: bf16, fp16, fp32."),
        (["--device", "cpuu"], "Did you mean 'cpu'?"),
        (["--device", "cuda:x"], "cuda:N"),
        (["--iters", "0"], "--iters must be at least 1 (got 0)"),
        (["--iters", "-3"], "--iters must be at least 1 (got -3)"),
        (["--warmup", "0"], "--warmup must be at least 1 (got 0)"),
        (["--batch-size", "0"], "--batch-size must be at least 1 (got 0)"),
        (["--iters", "many"], "valid integer"),
        (["--case-timeout", "0"], "--case-timeout must be a number above 0"),
        (["--case-timeout", "nan"], "--case-timeout must be a number above 0"),
        (["--case-timeout", "inf"], "--case-timeout must be a number above 0"),
        (["--memory-limit", "0"], "--memory-limit must be a number above 0"),
        (["--memory-limit", "nan"], "--memory-limit must be a number above 0"),
        (["--memory-limit", "1e300"], "--memory-limit must be a number above 0"),
        (["--threads", "99999999999999999999"], "field 'threads'"),
        (["--seed", "99999999999999999999"], "field 'seed'"),
        (["--image-size", "48", "--models", "conv"], "--image-size 48 fits none of the chosen models"),
        (["--frobnicate"], "No such option: --frobnicate"),
        (["--modells", "mlp"], "--models"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    out = tmp_path / "out"
    assert main(["sweep", "--cases", str(case_file), "--out-dir", str(out), *flags]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("synora: error: ")
    assert captured.out == ""
    assert not list(out.glob("model_benchmarks*"))


def test_unwritable_output_folder_is_bad_usage(case_file: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    assert main(["sweep", "--cases", str(case_file), "--out-dir", str(tmp_path / "file" / "below")]) == 2
    error = capsys.readouterr().err
    assert "is not writable" in error and "--out-dir" in error and error.count("\n") == 1


def test_cuda_that_is_not_there_says_what_torch_sees(case_file: Path, tmp_path: Path) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "MIG-0123"}
    command = [*SYNORA, "sweep", "--cases", str(case_file), "--out-dir", str(tmp_path), "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    for words in ("torch", "CUDA", "driver", "CUDA_VISIBLE_DEVICES", "MIG-0123"):
        assert words in done.stderr
    assert not (tmp_path / "model_benchmarks.json").exists()


def test_full_disk_is_failed_work_and_leaves_no_half_report(case_file: Path, tmp_path: Path) -> None:
    """A file size limit stands for the full disk: writes fail with an OSError all the same."""
    command = f"ulimit -f 8; exec {sys.executable} -m synora sweep --cases '{case_file}' --out-dir '{tmp_path}' "
    command += f"--models mlp,conv,nested {' '.join(FAST)}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot write" in done.stderr
    for path in tmp_path.glob("model_benchmarks.json"):
        json.loads(path.read_text())
    assert not list(tmp_path.rglob("*.tmp"))


def test_run_job_runs_one_job_of_a_plan(case_file: Path, tmp_path: Path) -> None:
    done = sweep(case_file, tmp_path / "first", "--models", "mlp,raises")
    assert done.returncode == 0, done.stderr
    (plan,) = (tmp_path / "first" / "runs").glob("*/plan.json")
    out = tmp_path / "again"
    command = [*SYNORA, "run-job", "--plan", str(plan), "--out-dir", str(out), "--attempt", "2", "--index"]
    good = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=120, check=False)
    assert good.returncode == 0, good.stderr
    (written,) = (out / "jobs").glob("mlp-*.json")
    assert json.loads(written.read_text())["attempt"] == 2
    bad = subprocess.run([*command, "1"], capture_output=True, text=True, timeout=120, check=False)
    assert bad.returncode == 1
    assert "ZeroDivisionError" in bad.stderr
    outside = subprocess.run([*command, "2"], capture_output=True, text=True, timeout=120, check=False)
    assert outside.returncode == 2
    assert "it has jobs 0 to 1" in outside.stderr


def test_a_terminal_sees_what_runs_and_how_long_it_takes(case_file: Path, tmp_path: Path) -> None:
    import pty

    command = [*SYNORA, "sweep", "--cases", str(case_file), "--out-dir", str(tmp_path), *FAST, "--models", "mlp,conv"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            shown += chunk
        assert process.wait(timeout=60) == 0
    os.close(ours)
    text = shown.decode(errors="replace")
    assert "torch: loading" in text
    assert "mlp: " in text
    assert "1/2" in text
    assert "left" in text
    assert "\x1b[" in text
    assert "[2/2] conv: ok" in text


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["sweep", "--help"], ["run-job", "--help"], ["--version"]])
def test_help_and_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr().out


def test_no_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert "sweep" in captured.out + captured.err


def test_an_unknown_command_gets_the_closest_match(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweeep"]) == 2
    assert "sweep" in capsys.readouterr().err


def test_the_flags_allow_what_the_jobs_allow() -> None:
    from typing import get_args

    from synora.cli import sweep_options
    from synora.compute import settings

    assert get_args(settings.Preset) == sweep_options.PRESETS
    assert get_args(settings.DType) == sweep_options.DTYPES
    assert set(settings.presets()) == set(sweep_options.PRESETS)
