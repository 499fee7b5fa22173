"""`synora benchmark` as users type it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synora.cli import benchmark_training, main

FILES = ["benchmark_results.csv", "benchmark_results.json", "benchmark_results.md", "benchmark_results.tex"]


@pytest.fixture
def dreamer(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes the run folder of an untrained agent."""

    def make(agent: str = "dreamerv2", name: str = "", actions: int = 3, kind: Any = "discrete", **values: Any) -> str:
        from synora.algorithms.dreamer.agent import DreamerAgent
        from synora.algorithms.dreamer.config import VERSIONS
        from synora.runtime.manifest import AgentSpec

        values = {"game": "catch/0", "image_channels": 3, "seed": 9, **values}
        config = VERSIONS[agent].compose(preset="tiny", overrides=values)
        spec = AgentSpec(agent=agent, observation_shape=[3, 64, 64], action_count=actions, action_kind=kind)
        folder = tmp_path / "runs" / (name or agent)
        DreamerAgent(config, spec, device="cpu").save(folder / "checkpoints", step=7)
        return str(folder)

    return make


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(("benchmark", "combined")))


def test_one_agent(tmp_path: Path, dreamer: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, out = dreamer(), tmp_path / "out"
    line = f"benchmark -a dreamerv2 -g catch/0 --env-backend bsuite -c {checkpoint} --seeds 0,1 -n 3 --device cpu"
    assert main([*line.split(), "--out_dir", str(out)]) == 0
    assert files(out) == FILES
    report = read(out / "benchmark_results.json")
    assert [(seed["eval_seed"], seed["train_seed"]) for seed in report["seeds"]] == [(0, 9), (1, 9)]
    assert report["metadata"]["device"] == "cpu"
    shown = capsys.readouterr()
    assert "dreamerv2  catch/0" in shown.out and str(out / "benchmark_results") in shown.out
    assert "[2/2] dreamerv2 catch/0 seed 1: ok, mean return" in shown.err
    assert "one training run (train seed 9)" in shown.err


def test_all_agents(tmp_path: Path, dreamer: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    line = ["benchmark", "--all-agents", "--game", "catch/0", "--episodes", "2", "--out-dir", str(tmp_path / "out")]
    maps = [f"--checkpoint-map={agent}={dreamer(agent)}" for agent in ("dreamerv1", "dreamerv2")]
    assert main([*line, *maps, "--preset", "tiny"]) == 0
    assert files(tmp_path / "out") == ["combined_benchmark_results.csv", "combined_benchmark_results.json"]
    assert [files(tmp_path / "out" / agent) for agent in ("dreamerv1", "dreamerv2", "random")] == [FILES] * 3
    combined = read(tmp_path / "out" / "combined_benchmark_results.json")
    assert list(combined["agents"]) == ["dreamerv1", "dreamerv2", "random"]
    rows = list(csv.DictReader((tmp_path / "out" / "combined_benchmark_results.csv").read_text().splitlines()))
    assert [row["agent"] for row in rows] == ["dreamerv1", "dreamerv2", "random"]
    # The same games for all.
    seeds = [[game["seed"] for game in one["seeds"][0]["episodes"]] for one in combined["agents"].values()]
    assert seeds[0] == seeds[1] == seeds[2]
    assert "[3/3] random" in capsys.readouterr().err


def test_the_rules_are_the_checkpoints_unless_others_are_asked_for(
    tmp_path: Path, dreamer: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "gym-pixels,frame_skip=2,max_frames=20"
    trained = {"game": "Pendulum-v1", "actions": 1, "kind": "continuous"}
    line = ["benchmark", "--game", "Pendulum-v1", "-n", "1", "--device", "cpu", "--out-dir", str(tmp_path / "out")]
    maps = [f"--checkpoint-map={agent}={dreamer(agent, protocol=rules, **trained)}" for agent in ("dreamerv1",)]
    maps.append(f"--checkpoint-map=dreamerv2={dreamer('dreamerv2', **trained)}")
    assert main([*line, "--all-agents", *maps]) == 0
    assert f"Protocol {rules}, under which the checkpoint was trained" in capsys.readouterr().err
    for agent in ("dreamerv1", "dreamerv2", "random"):
        report = read(tmp_path / "out" / agent / "benchmark_results.json")
        assert report["protocol"]["frame_skip"] == 2
        assert report["seeds"][0]["episodes"][0]["length"] == 10
    other = dreamer("dreamerv2", name="other", protocol="gym-pixels,frame_skip=4,max_frames=20", **trained)
    mixed = [*line, "--all-agents", maps[0], f"--checkpoint-map=dreamerv2={other}"]
    assert main(mixed) == 2
    assert "different rules" in capsys.readouterr().err
    assert main([*mixed, "--protocol", "gym-pixels,max_frames=5"]) == 0
    capsys.readouterr()
    job = read(tmp_path / "out" / "dreamerv2" / "plan.json")["jobs"][0]
    assert job["params"]["protocol"] == "gym-pixels,max_frames=5"


def test_training_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(benchmark_training, "EPOCH_STEPS", 16)
    line = (
        "benchmark --agent dreamerv2 --game dummy --train-epochs 1 --preset tiny --seeds 3,4 --episodes 2 --device cpu"
    )
    assert main([*line.split(), "--out-dir", str(tmp_path)]) == 0
    report = read(tmp_path / "benchmark_results.json")
    assert [(seed["eval_seed"], seed["train_seed"]) for seed in report["seeds"]] == [(3, 3), (4, 4)]
    assert [seed["checkpoint"]["step"] for seed in report["seeds"]] == [116, 116]
    assert report["seeds"][1]["checkpoint"]["path"] == str(tmp_path / "train" / "seed-4")
    assert report["aggregate"]["note"] == "The 2 seeds evaluate 2 training runs."
    capsys.readouterr()
    assert main([*line.split(), "--out-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err.count("nothing to do") == 2


def test_training_what_has_no_checkpoint(
    tmp_path: Path, dreamer: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_training, "EPOCH_STEPS", 16)
    line = "benchmark --all-agents --game catch/0 --train-epochs 1 --preset tiny --episodes 1 --device cpu"
    given = f"--checkpoint-map=dreamerv1={dreamer('dreamerv1')}"
    assert main([*line.split(), given, "--out-dir", str(tmp_path / "out")]) == 0
    agents = read(tmp_path / "out" / "combined_benchmark_results.json")["agents"]
    steps = {name: (one["seeds"][0]["checkpoint"] or {}).get("step") for name, one in agents.items()}
    assert steps == {"dreamerv1": 7, "dreamerv2": 116, "random": None}
    assert (tmp_path / "out" / "dreamerv2" / "train" / "seed-0" / "finished.json").exists()
    assert not (tmp_path / "out" / "random" / "train").exists()


def test_stopped_training_is_to_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from synora import training
    from synora.runtime.loop import Outcome

    def preempted(config: Any, folder: Path) -> Outcome:
        return Outcome("preempted", 3, None, "stopped")

    monkeypatch.setattr(training.TRAINERS, "load", lambda agent: preempted)
    line = "benchmark --agent dreamerv2 --game catch/0 --train-epochs 1 --preset tiny --device cpu --out-dir"
    assert main([*line.split(), str(tmp_path / "out")]) == 75
    assert "the same command continues" in capsys.readouterr().err
    assert files(tmp_path / "out") == []


def test_an_agent_of_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other_agents.py").write_text(
        "class Mine:\n    def load_checkpoint(self, path): pass\n"
        "    def evaluate(self, num_episodes, render=False): return {'episode_returns': [2.5] * num_episodes}\n"
    )
    about = tmp_path / "other_agents-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-agents\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[synora.adapters]\nmine = other_agents:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "out"
    assert main(["benchmark", "--agent", "mine", "--game", "catch/0", "--episodes", "2", "--out-dir", str(out)]) == 0
    report = read(out / "benchmark_results.json")
    assert (report["agent"], report["aggregate"]["per_seed_means"]) == ("mine", [2.5])
    # Without a word on checkpoints it takes part with and without one.
    line = ["benchmark", "--all-agents", "--game", "catch/0", "--out-dir", str(tmp_path / "all")]
    assert main(line) == 2
    assert "no checkpoint for dreamerv1, dreamerv2: add" in capsys.readouterr().err
    assert main([*line[:1], "--agent", "mine", *line[2:], "--train-epochs", "1"]) == 2
    assert "agent mine cannot be trained here" in capsys.readouterr().err


def test_a_spelling_that_means_other_rules_elsewhere_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["benchmark", "--agent", "random", "--game", "Freeway-v4", "--seeds", "1", "--episodes", "1"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main([*line, "--out-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err.count("frame skip") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--game catch/0", "--agent and --all-agents are both missing"),
        ("--agent random --all-agents --game catch/0", "both given"),
        ("--agent random", "--game is missing"),
        ("--agent rnadom --game catch/0", "Did you mean 'random'?"),
        ("--agent iris --game catch/0", "unknown agent 'iris'. Allowed: dreamerv1, dreamerv2, random."),
        ("--agent random --game catchh/0", "Did you mean 'catch/0'?"),
        ("--agent random --game catch/0 --env-backend bsuit", "Did you mean 'bsuite'?"),
        ("--agent random --game catch/0 --protocol atari-100k", "bsuite-pixels"),
        ("--agent random --game catch/0 --seeds a", "'a'"),
        ("--agent random --game catch/0 --seeds=-1", "'-1'"),
        ("--agent random --game catch/0 --seeds 0,,1", "'0,,1'"),
        ("--agent random --game catch/0 --seeds 1,1", "more than once"),
        ("--agent random --game catch/0 --seeds 0", "'0'"),
        ("--agent random --game catch/0 --episodes 0", "--episodes must be at least 1 (got 0)"),
        ("--agent random --game catch/0 --episodes x", "valid integer"),
        ("--agent random --game catch/0 --num-envs 0", "--num-envs must be at least 1"),
        ("--agent random --game catch/0 --device gpu", "gpu"),
        ("--agent random --game catch/0 --device cuda:77", "cuda:77"),
        ("--agent random --game catch/0 --preset tiny", "no presets"),
        ("--agent random --game catch/0 --checkpoint x", "takes no checkpoint"),
        ("--agent random --game catch/0 --train-epochs 1", "not trained"),
        ("--agent random --game catch/0 --checkpoint-map random=x", "--checkpoint-map is for --all-agents"),
        ("--agent dreamerv2 --game catch/0", "needs a checkpoint"),
        ("--agent dreamerv2 --game catch/0 --checkpoint /no/such", "'/no/such' does not exist"),
        ("--agent dreamerv2 --game catch/0 --checkpoint x --train-epochs 1", "both given"),
        ("--agent dreamerv2 --game catch/0 --train-epochs 0", "--train-epochs must be at least 1"),
        ("--agent dreamerv2 --game catch/0 --train-epochs 1 --preset tny", "Did you mean 'tiny'?"),
        ("--all-agents --game catch/0", "no checkpoint for dreamerv1, dreamerv2"),
        ("--all-agents --game catch/0 --checkpoint-map dreamerv1=x", "no checkpoint for dreamerv2"),
        ("--all-agents --game catch/0 --checkpoint x", "--checkpoint-map"),
        ("--all-agents --game catch/0 --checkpoint-map dreamer1=x", "Did you mean 'dreamerv1'?"),
        ("--all-agents --game catch/0 --checkpoint-map dreamerv1", "AGENT=PATH"),
        ("--all-agents --game catch/0 --checkpoint-map dreamerv1=", "AGENT=PATH"),
        ("--all-agents --game catch/0 --checkpoint-map dreamerv1=x --checkpoint-map dreamerv1=y", "twice: x and y"),
    ],
)
def test_bad_usage_is_one_line_and_leaves_nothing(
    line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", *line.split(), "--out-dir", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr()
    assert words in shown.err and shown.err.count("\n") == 1 and shown.out == ""
    assert not (tmp_path / "out").exists()


def test_every_checkpoint_is_checked_before_anything_is_played(
    tmp_path: Path, dreamer: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["benchmark", "--all-agents", "--game", "catch/0", "--out-dir", str(tmp_path / "out")]
    good = f"--checkpoint-map=dreamerv1={dreamer('dreamerv1')}"
    other = dreamer("dreamerv2", name="six", actions=6)
    assert main([*line, good, f"--checkpoint-map=dreamerv2={other}"]) == 2
    assert "acts with 6 discrete actions, and catch/0 has 3" in capsys.readouterr().err
    continuous = dreamer("dreamerv2", name="continuous", actions=1, kind="continuous")
    assert main([*line, good, f"--checkpoint-map=dreamerv2={continuous}"]) == 2
    assert "continuous actions of 1 dimension" in capsys.readouterr().err
    assert main([*line, good, f"--checkpoint-map=dreamerv2={dreamer('dreamerv1')}"]) == 2
    assert "not of dreamerv2" in capsys.readouterr().err
    cut = next((Path(dreamer("dreamerv2", name="cut")) / "checkpoints").iterdir()) / "agent.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    assert main([*line, good, f"--checkpoint-map=dreamerv2={cut.parent}"]) == 1
    shown = capsys.readouterr().err
    assert "truncated" in shown and shown.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_failing_episode_is_the_exit_code_and_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from synora.envs.dummy import DummyEnv

    original = DummyEnv._advance

    def sometimes(self: Any, action: Any) -> Any:
        if self.episode_frames == 4 and self._game_seed % 5 == 0:
            raise RuntimeError("the emulator is tired")
        return original(self, action)

    monkeypatch.setattr(DummyEnv, "_advance", sometimes)
    line = "benchmark --agent random --game dummy --seeds 2 --episodes 8 --num-envs 1 --out-dir"
    assert main([*line.split(), str(tmp_path)]) == 1
    report = read(tmp_path / "benchmark_results.json")
    games = [game for seed in report["seeds"] for game in seed["episodes"]]
    assert {(game["return"], game["status"]) for game in games} == {(55.0, "ok"), (None, "failed")}
    assert [game["status"] == "failed" for game in games] == [game["seed"] % 5 == 0 for game in games]
    assert report["aggregate"]["mean"] is None
    shown = capsys.readouterr()
    assert "the emulator is tired" in shown.err and "failed" in shown.out and "nan" not in shown.out.lower()


def test_names_of_files_that_are_not_utf8(tmp_path: Path, dreamer: Callable[..., str]) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff")
    line = [sys.executable, "-m", "synora", "benchmark", "--game", "catch/0", "--episodes", "1", "--out-dir", odd]
    done = subprocess.run([*line, "--agent", "random"], capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr
    Path(dreamer()).rename(f"{odd}/run")
    done = subprocess.run(
        [*line, "--agent", "dreamerv2", "-c", f"{odd}/run"], capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 2 and "not UTF-8" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("flag", [["--out-dir", ""], ["--out_dir="]])
def test_an_unset_variable_is_no_folder(flag: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "--agent", "random", "--game", "catch/0", *flag]) == 2
    assert list(tmp_path.iterdir()) == []


def test_streams_that_are_closed_or_narrow(tmp_path: Path) -> None:
    line = f"{sys.executable} -m synora benchmark --agent random --game catch/0 -n 1 --out-dir"
    code = subprocess.run(["bash", "-c", f"{line} {tmp_path}/closed 2>&-"], stdout=subprocess.DEVNULL).returncode
    assert code == 0 and files(tmp_path / "closed") == FILES
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*line.split(), str(tmp_path / "é")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "xe9/benchmark_results" in done.stdout
    piped = f"{sys.executable} -m synora envs list | true; echo ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", piped], capture_output=True, text=True).stdout.strip() == "0"


def test_the_callers_signal_handlers_come_back(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    assert main(["benchmark", "--agent", "random", "--game", "catch/0", "-n", "1", "--out-dir", str(tmp_path)]) == 0
    assert [signal.getsignal(number) for number in numbers] == before


def test_the_older_name_is_the_same_command(tmp_path: Path) -> None:
    line = f"-m synora.benchmarks.cli --agent random --game catch/0 --episodes 1 --out-dir {tmp_path / 'out'}"
    done = subprocess.run([sys.executable, *line.split()], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "out") == FILES
    done = subprocess.run(
        [sys.executable, "-m", "synora.benchmarks.cli", "--agent", "x"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")


def test_help_names_every_option_of_the_seeds() -> None:
    code = "import sys; from synora.cli import main; main(['benchmark', '--help']); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert done.stdout.strip().endswith("False")
    options = "--agent --all-agents --game --checkpoint --checkpoint-map --env-backend --protocol --seeds --episodes"
    for option in [*options.split(), "--out-dir", "--out_dir", "--device", "--preset", "--train-epochs", "--num-envs"]:
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", done.stdout), option


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_is_finished(number: signal.Signals, tmp_path: Path) -> None:
    line = f"-m synora benchmark --agent random --game Pong --seeds 0,1 --episodes 40 --out-dir {tmp_path}"
    process = subprocess.Popen([sys.executable, *line.split()], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not (tmp_path / "plan.json").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err and "Traceback" not in err
    assert files(tmp_path) == []
