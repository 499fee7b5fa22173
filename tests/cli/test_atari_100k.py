"""`synora atari-100k`: the whole path, and that nothing is done twice or counted twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from synora.cli import main

SHORT = "atari-100k,max_frames=400"
SMALL = ("prefill_steps=20", "pretrain_updates=1", "batch_size=2", "seq_len=5", "train_every=20", "eval_every=0")


def bench(out: Path, *flags: str, agents: str = "random") -> int:
    common = ["--agents", agents, "--protocol", SHORT, "--episodes", "1", "--num-envs", "1", "--device", "cpu"]
    return main(["atari-100k", *common, "--out-dir", str(out), *flags])


def read(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "collected.json").read_text())
    return found


def test_train_evaluate_report_and_continue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--preset", "tiny", "--games", "Pong", "--num-seeds", "2", "--steps", "40", *SMALL)
    out = tmp_path / "out put"
    assert bench(out, *flags, agents="dreamerv2") == 0
    text = capsys.readouterr()
    assert "trained to step 40" in text.err + text.out and "note: runs have 40 agent steps" in text.err
    found = read(out)
    (cell,) = found["returns"]["cells"]
    assert (cell["agent"], cell["game"], cell["n"], cell["expected"]) == ("dreamerv2", "Pong", 2, 2)
    assert [row["step"] for row in found["training"]] == [40, 40]
    assert found["missing"] == [] and found["planned"] == 4
    assert (out / "report.html").exists()
    stamps = {path: path.stat().st_mtime_ns for path in (out / "jobs").glob("*.json")}
    assert bench(out, *flags, agents="dreamerv2") == 0
    assert "4 job(s) are done already; 0 to do" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in (out / "jobs").glob("*.json")} == stamps

    runs = tmp_path / "runs"
    shutil.copytree(out / "train", runs)
    loaded = tmp_path / "loaded"
    flags = ("--games", "Pong", "--num-seeds", "2", "--checkpoint-dir", str(runs))
    assert bench(loaded, *flags, agents="dreamerv2") == 0
    assert read(loaded)["returns"]["cells"][0]["mean"] == cell["mean"]
    assert bench(loaded, *flags[:2], *flags[4:], agents="dreamerv2") == 2
    assert "dreamerv2/Pong/seed-2, dreamerv2/Pong/seed-3" in capsys.readouterr().err
    shutil.rmtree(runs / "dreamerv2" / "Pong" / "seed-1")
    shutil.copytree(runs / "dreamerv2" / "Pong" / "seed-0", runs / "dreamerv2" / "Pong" / "seed-1")
    assert bench(tmp_path / "twice", *flags, agents="dreamerv2") == 2
    assert "same training run: it would be counted twice" in capsys.readouterr().err


def test_an_untrained_agent_is_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "--games", "Pong,breakout-v5", "--num-seeds", "1", "--jobs", "2") == 0
    assert "random is not trained" in capsys.readouterr().err
    assert [cell["game"] for cell in read(tmp_path)["returns"]["cells"]] == ["Breakout", "Pong"]


def test_plan_only_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["atari-100k", "--agents", "dreamerv2", "--plan-only", "--out-dir", str(out)]) == 0
    assert "130 run(s) to train, 130 evaluation(s)" in capsys.readouterr().out
    assert not out.exists()


def test_the_protocol_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["atari-100k", "--describe-protocol"]) == 0
    text = capsys.readouterr().out
    assert "26 games x 5 training runs" in text and "100,000 agent steps = 400,000 frames" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--games", "Pong,Pnog"], "Atari 100k game 'Pnog'"),
        (["--games", "Pong,ALE/Pong-v5"], "Pong more than once"),
        (["--games", "Pong,"], "empty name"),
        (["--agents", "iriss"], "agent 'iriss'"),
        (["--num-seeds", "0"], "--num-seeds must be at least 1"),
        (["--steps", "-5"], "--steps must be at least 1"),
        (["--checkpoint-dir", "nowhere"], "is not a folder"),
        (["seed=3"], "write --num-seeds"),
        (["--agents", "dreamerv2", "no_such_value=3"], "no_such_value"),
        (["--agents", "random", "--train"], "nothing to train"),
        (["--published", "IRIZ"], "IRIZ"),
        (["--device", "gpu"], "gpu"),
        (["--protocol", "atari-1k"], "atari-1k"),
    ],
)
def test_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    assert main(["atari-100k", "--out-dir", str(tmp_path / "out"), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "synora.benchmarks.atari_100k", "--describe-protocol"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("Atari 100k: 26 games")
