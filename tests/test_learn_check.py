"""`make learn-check`: what it refuses, and that a proof passes on its figures alone. Learning itself takes hours."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def learn_check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("learn_check", ROOT / "benchmarks" / "learn_check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["learn_check"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def pretend(scores: dict[str, float], seconds: float) -> Any:
    """Return a stand-in for the processes: it writes what `synora train` and `synora benchmark` would."""

    def run(self: Any, arguments: list[str], run: Path | None) -> None:
        if run is not None:
            run.mkdir(parents=True)
            rows = [{"kind": "eval", "step": step, "updates": step, "eval/score": step / 10} for step in (5, 10)]
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            times = [seconds / 2, seconds, seconds / 4]  # a second attempt went on
            (run / "timing.jsonl").write_text("".join(json.dumps({"seconds": one}) + "\n" for one in times))
            return
        out = Path(arguments[arguments.index("--out-dir") + 1])
        out.mkdir(parents=True)
        seed = {"mean": scores[out.name], "std": 0.1, "episode_returns": [scores[out.name]]}
        (out / "benchmark_results.json").write_text(json.dumps({"seeds": [seed]}))

    return run


@pytest.mark.parametrize(
    ("scores", "seconds", "code"),
    [
        ({"score-0": 0.9, "score-1": 0.8, "random": -0.6}, 60.0, 0),
        ({"score-0": 0.9, "score-1": 0.79, "random": -0.6}, 60.0, 1),
        ({"score-0": 0.9, "score-1": 0.9, "random": -0.6}, 3600.0, 1),
    ],
)
def test_a_proof_needs_every_seed_over_the_bar_in_time(
    scores: dict[str, float],
    seconds: float,
    code: int,
    learn_check: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(learn_check.Proof, "_synora", pretend(scores, seconds))
    line = ["--agent", "dreamerv2", "--seeds", "0,1", "--jobs", "2", "--out-dir", str(tmp_path)]
    assert learn_check.main(line) == code
    record = json.loads((tmp_path / "dreamerv2_catch" / "dreamerv2_catch.json").read_text())
    assert record["passed"] is (code == 0)
    assert [run["mean"] for run in record["runs"]] == [scores["score-0"], scores["score-1"]]
    assert record["runs"][0]["curve"] == [[5, 0.5], [10, 1.0]]
    assert record["runs"][0]["minutes"] == seconds * 1.25 / 60
    assert (tmp_path / "dreamerv2_catch" / "dreamerv2_catch.png").read_bytes().startswith(b"\x89PNG")
    assert ("NOT passed" in capsys.readouterr().out) is (code == 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--agent dreamerv3", "unknown agent for catch 'dreamerv3'"),
        ("--agent dreamerv2 --experiment cach", "Did you mean 'catch'"),
        ("--agent dreamerv2 --seeds 0,a", "not a list"),
        ("--agent dreamerv2 --seeds 0,0", "each is named once"),
        ("--agent dreamerv2 --jobs 0", "not at least 1"),
    ],
)
def test_bad_usage_is_one_line(
    line: str, words: str, learn_check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert learn_check.main([*line.split(), "--out-dir", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert words in shown and shown.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_stop_reaches_the_runs(tmp_path: Path) -> None:
    line = [sys.executable, "benchmarks/learn_check.py", "--agent", "dreamerv2", "--seeds", "0,1", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    proof = subprocess.Popen(
        [*line, "--out-dir", str(tmp_path)], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    run, deadline = tmp_path / "dreamerv2_catch" / "seed-0", time.monotonic() + 120
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    proof.send_signal(signal.SIGTERM)
    _, said = proof.communicate(timeout=120)
    assert proof.returncode == 130 and "the same command goes on" in said
    assert list((run / "checkpoints").glob("step-*/manifest.json")), "the run has saved"
    assert not (tmp_path / "dreamerv2_catch" / "seed-1").exists()


def test_every_experiment_has_its_configuration(learn_check: ModuleType) -> None:
    for name, experiment in learn_check.EXPERIMENTS.items():
        for agent in experiment.agents:
            assert (ROOT / "synora" / "configs" / "experiments" / f"{agent}_{name}.yaml").is_file()


def test_the_make_target() -> None:
    command = ["make", "-n", "learn-check", "AGENT=dreamerv1", "EXPERIMENT=pendulum", "LEARN_ARGS=--jobs 2"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "benchmarks/learn_check.py --agent dreamerv1 --experiment pendulum --jobs 2" in shown
