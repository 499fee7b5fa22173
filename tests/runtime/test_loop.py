"""The training loop with a toy algorithm that uses everything a real one does: replay, torch, optimiser, streams.

Run as a script this file is the warm process that trains and kills children (see `kill_trials`); so torch is imported
once, and nothing is forked from a process with threads.
"""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from synora.core.config import Config
from synora.core.errors import ConfigError, FileError, UsageError
from synora.runtime import checkpoint as checkpoints
from synora.runtime.checkpoint import AgentSpec, Manifest, load_checkpoint
from synora.runtime.loop import (
    EXIT_PREEMPTED,
    NonFiniteError,
    Outcome,
    RunContext,
    RunPlan,
    require_finite,
    train,
)
from synora.runtime.metrics_log import read_rows
from synora.runtime.progress import TrainingProgress
from synora.runtime.replay import Replay
from synora.runtime.run_folder import find_changes, finished_marker
from synora.runtime.schedule import (
    Action,
    Interleaved,
    LoopSettings,
    LoopState,
    Round,
    crossed,
    current_round,
    next_action,
)
from synora.runtime.state import gather_state, restore_state

SHAPE = (3, 4, 4)
STREAMS = 2


class ToyConfig(Config):
    width: int = 4
    lr: float = 1e-2
    total_steps: int = 96
    seed: int = 0


class Counter:
    """Environments that count: frame values follow from the state, episodes end after 5 to 9 steps."""

    def __init__(self) -> None:
        self.values = np.zeros(STREAMS, np.int64)
        self.left = np.zeros(STREAMS, np.int64)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "left": self.left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values, self.left = state["values"].copy(), state["left"].copy()


class Toy:
    """Learns the reward of the counter; `events` is called between its steps, so that a test can interfere."""

    spec = AgentSpec(agent="toy", observation_shape=list(SHAPE), action_count=3)

    def __init__(self, context: RunContext, config: ToyConfig, events: Callable[[str], None]) -> None:
        torch.set_num_threads(1)
        self.streams, self.events = context.streams, events
        with self.streams.as_global("init"):
            self.net = nn.Sequential(
                nn.Flatten(), nn.Linear(48, config.width), nn.Dropout(0.1), nn.Linear(config.width, 1)
            )
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=config.lr, fused=True)
        self.env = Counter()
        self.lr = config.lr
        self.steps = 0
        self.score = 0.0
        self.closed = 0
        self.replay = Replay(
            context.replay_folder,
            capacity=40,
            observation_shape=SHAPE,
            action_shape=(3,),
            streams=STREAMS,
            chunk_rows=8,
            say=context.say,
        )
        self.parts = {"agent": self.net, "optimizer": self.optimizer, "replay": self.replay, "env": self.env}

    def state_dict(self) -> dict[str, Any]:
        return {**gather_state(self.parts), "counters": {"steps": self.steps, "score": self.score}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        counters = state.pop("counters")
        restore_state(self.parts, state)
        self.steps, self.score = counters["steps"], counters["score"]
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr

    def collect(self, steps: int) -> dict[str, float]:
        rng = self.streams.rng("explore")
        for _ in range(steps // STREAMS):
            first = self.env.left == 0
            self.env.left[first] = rng.integers(5, 10, first.sum())
            actions = np.eye(3, dtype=np.float32)[rng.integers(0, 3, STREAMS)]
            self.env.values = np.where(first, 0, self.env.values + actions.argmax(-1))
            self.env.left -= 1
            self.steps += STREAMS
            image = np.broadcast_to(self.env.values.reshape(-1, 1, 1, 1), (STREAMS, *SHAPE)).astype(np.uint8)
            self.replay.add(
                image=image,
                action=actions,
                reward=self.env.values % 3,
                is_first=first,
                is_terminal=self.env.left == 0,
                is_last=self.env.left == 0,
                step=self.steps,
            )
            self.events("collect")
        return {"value": float(self.env.values.mean())}

    def update(self, phase: str) -> dict[str, float | torch.Tensor]:
        batch = self.replay.sample(4, 3, self.streams.rng("replay"), prioritize_ends=True).tensors()
        with self.streams.as_global("dropout"):
            out = self.net(batch["image"].flatten(0, 1).float() / 255).view(3, 4)
        noise = torch.randn(out.shape, generator=self.streams.generator("noise"))
        loss = (out - batch["reward"] - 0.1 * noise).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        metrics = require_finite({"loss": loss, "grad_norm": norm})
        self.optimizer.step()
        self.events("update")
        return metrics

    def evaluate(self) -> dict[str, float]:
        # A walk with ups and downs, so that the best checkpoint is not the last.
        self.score = float(self.streams.rng("evaluate").normal())
        self.events("evaluate")
        return {"score": self.score}

    def committed(self) -> None:
        self.replay.committed()

    def close(self) -> None:
        self.closed += 1
        self.replay.close()


def run_toy(
    folder: Path,
    *,
    events: Callable[[str], None] = lambda name: None,
    settings: dict[str, Any] | None = None,
    make: Callable[..., Any] = Toy,
    plan: dict[str, Any] | None = None,
    **config: Any,
) -> Outcome:
    values = ToyConfig(**config)
    built = RunPlan(
        folder=folder,
        seed=values.seed,
        config=values,
        schedule=Interleaved(total_steps=values.total_steps, prefill=24, pretrain=3, train_every=6, updates=2),
        settings=LoopSettings(
            **{"log_every": 10, "eval_every": 20, "save_every": 15, "collect_slice": 4, **(settings or {})}
        ),
        **{"frozen": {"width", "seed"}, **(plan or {})},
    )
    return train(built, lambda context: make(context, values, events))


def final_state(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Return all that a run ends with: the newest checkpoint's state and the metric rows."""
    state = load_checkpoint(folder).state
    return state, (folder / "metrics.jsonl").read_bytes()


def same(left: Any, right: Any) -> bool:
    """Say whether two states are equal bit for bit, types included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return bool(left == right)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing matters to power failures only, which are not tested here, and it waits for a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Stop(Exception):
    """Ends a run in the middle, as an exception in an algorithm would."""


def counter(stop_at: int, call: Callable[[], None]) -> Callable[[str], None]:
    """Return an events function that calls `call` at event `stop_at`."""
    seen = iter(range(1, 10**6))

    def events(name: str) -> None:
        if next(seen) == stop_at:
            call()

    return events


def raising() -> None:
    raise Stop


def test_killed_runs_end_as_uninterrupted_ones(tmp_path: Path) -> None:
    """SIGKILL at random moments, saves included: weights, optimiser, streams, replay cursor and rows are equal."""
    command = [sys.executable, __file__, str(tmp_path), "20", "1"]
    package = str(Path(checkpoints.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": package, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["failed"] == []
    assert report["different"] == []
    assert report["kills"] >= 20, "the children must have been killed"
    assert report["resumed"] >= 10, "and many of them must have had a checkpoint to go on from"
    assert report["stale"] > 0, "some of them in the middle of a save"
    assert report["stale_after"] == 0
    assert report["rows"] > 10


def test_an_exception_loses_only_what_was_not_saved(tmp_path: Path) -> None:
    assert run_toy(tmp_path / "whole").status == "finished"
    for stop_at in (5, 30, 61, 80):
        folder = tmp_path / f"stopped-{stop_at}"
        with pytest.raises(Stop):
            run_toy(folder, events=counter(stop_at, raising))
        assert finished_marker(folder) is None
        assert run_toy(folder).status == "finished"
        whole, here = final_state(tmp_path / "whole"), final_state(folder)
        assert same(whole[0], here[0])
        assert whole[1] == here[1]


@pytest.mark.parametrize(("name", "moment"), [("SIGTERM", 41), ("SIGUSR2", 5), ("SIGUSR2", 12), ("SIGINT", 13)])
def test_a_signal_saves_at_the_next_boundary(
    tmp_path: Path, name: str, moment: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The moments lie in the prefill, between its updates, and in a later round."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGINT)
    later: list[str] = []
    numbers = iter(range(10**6))

    def events(event: str) -> None:
        index = next(numbers)
        if index == moment:
            os.kill(os.getpid(), getattr(signal, name))
        elif index > moment:
            later.append(event)

    outcome = run_toy(tmp_path / "run", events=events, settings={"save_every": 0})
    assert (outcome.status, outcome.exit_code) == ("preempted", EXIT_PREEMPTED)
    assert set(later) <= {"collect"} and len(later) < 3, "nothing but the rest of the present slice may follow"
    assert outcome.checkpoint is not None
    assert load_checkpoint(outcome.checkpoint).manifest.step == outcome.step
    assert f"{name}: stopped at step {outcome.step}" in capsys.readouterr().err
    assert before == tuple(signal.getsignal(getattr(signal, each)) for each in ("SIGTERM", "SIGUSR2", "SIGINT"))
    assert run_toy(tmp_path / "run", settings={"save_every": 0}).status == "finished"
    run_toy(tmp_path / "whole", settings={"save_every": 0})
    whole, here = final_state(tmp_path / "whole"), final_state(tmp_path / "run")
    assert same(whole[0], here[0])
    assert whole[1] == here[1]


def test_a_stop_requested_before_the_first_step_saves_too(tmp_path: Path) -> None:
    def make(context: RunContext, config: ToyConfig, events: Callable[[str], None]) -> Toy:
        os.kill(os.getpid(), signal.SIGTERM)
        return Toy(context, config, events)

    outcome = run_toy(tmp_path / "run", make=make)
    assert (outcome.status, outcome.step) == ("preempted", 0)
    again = run_toy(tmp_path / "run", make=make)
    assert again.status == "preempted"
    assert again.checkpoint == outcome.checkpoint, "nothing new to save"
    assert run_toy(tmp_path / "run").status == "finished"
    run_toy(tmp_path / "whole")
    assert same(final_state(tmp_path / "whole")[0], final_state(tmp_path / "run")[0])


def test_a_finished_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run_toy(tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}

    def make(*_: Any) -> Any:
        raise AssertionError("a finished run must not build its algorithm")

    again = run_toy(tmp_path, make=make)
    assert (again.status, again.step, again.checkpoint) == ("finished", 96, first.checkpoint)
    assert "is finished at step 96: nothing to do" in capsys.readouterr().err
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


def test_a_finished_run_is_not_taken_for_another(tmp_path: Path) -> None:
    run_toy(tmp_path)
    with pytest.raises(ConfigError, match=r"width was 4 when run .* cannot become 8"):
        run_toy(tmp_path, width=8)
    shutil.rmtree(tmp_path / "checkpoints")
    rows = (tmp_path / "metrics.jsonl").read_bytes()
    assert run_toy(tmp_path).status == "finished"
    with pytest.raises(FileError, match="finished at step 96 and has no checkpoint to continue from"):
        run_toy(tmp_path, total_steps=120)
    assert (tmp_path / "metrics.jsonl").read_bytes() == rows, "nothing of it is dropped"


def test_somebody_else_s_files_are_no_run(tmp_path: Path) -> None:
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "mine").write_text("x")
    (tmp_path / "metrics.jsonl").write_text("mine")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"holds replay, metrics\.jsonl and is not the folder of a run"):
            run_toy(tmp_path)
    assert (tmp_path / "replay" / "mine").read_text() == "x" and (tmp_path / "metrics.jsonl").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "replay"]


def test_frozen_fields_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen names no field of ToyConfig: widht"):
        run_toy(tmp_path, plan={"frozen": {"widht", "seed"}})


def test_nested_fields_are_compared_by_their_dotted_names(tmp_path: Path) -> None:
    saved = Manifest(spec=Toy.spec, config={"net": {"width": 1, "act": "elu"}, "lr": 0.1, "old": None}, step=7)
    config = {"net": {"width": 1, "act": "relu"}, "lr": 0.1, "new": [1]}
    assert find_changes(tmp_path, saved, config, {"net.width"}) == [
        {"step": 7, "field": "net.act", "from": '"elu"', "to": '"relu"'},
        {"step": 7, "field": "old", "from": "null", "to": "not set"},
        {"step": 7, "field": "new", "from": "not set", "to": "[1]"},
    ]
    for frozen in ("net", "net.act"):
        with pytest.raises(ConfigError, match=r'net.act was "elu"'):
            find_changes(tmp_path, saved, config, {frozen})


def test_more_steps_continue_a_finished_run(tmp_path: Path) -> None:
    run_toy(tmp_path)
    assert run_toy(tmp_path, total_steps=120).step == 120
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")][-1] == 120
    assert finished_marker(tmp_path) == {"step": 120, "round": 17, "checkpoint": "step-000000120"}


def test_changes_are_applied_and_recorded_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Stop):
        run_toy(tmp_path, events=counter(60, raising))
    config = (tmp_path / "config.yaml").read_text()
    for frozen in ({"width": 8}, {"seed": 1}):
        with pytest.raises(ConfigError, match=rf"{next(iter(frozen))} was \d+ when run .* cannot become \d+"):
            run_toy(tmp_path, **frozen)
    assert (tmp_path / "config.yaml").read_text() == config
    assert not (tmp_path / "changes.jsonl").exists()
    step = checkpoints.read_manifest(checkpoints.latest(tmp_path / "checkpoints") or "").step
    run_toy(tmp_path, lr=0.5)
    assert f"changed from step {step} on: lr from 0.01 to 0.5" in capsys.readouterr().err
    assert read_rows(tmp_path / "changes.jsonl") == [{"step": step, "field": "lr", "from": "0.01", "to": "0.5"}]
    assert "lr: 0.5" in (tmp_path / "config.yaml").read_text()
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.manifest.config["lr"] == 0.5
    assert checkpoint.state["optimizer"]["param_groups"][0]["lr"] == 0.5


def test_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    run_toy(tmp_path, settings={"keep_last": 1, "save_every": 6})
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if row["kind"] == "eval"]
    best = max(rows, key=lambda row: row["eval/score"])
    assert best["step"] != 96, "this seed must have its best evaluation before the end"
    kept = checkpoints.list_checkpoints(tmp_path / "checkpoints")
    assert [path.name for path in kept] == [f"step-{best['step']:09d}", "step-000000096"]
    assert checkpoints.read_manifest(kept[0]).score == best["eval/score"]


class Broken(Toy):
    """Meets a loss that is not finite in its tenth update."""

    calls = 0

    def update(self, phase: str) -> dict[str, float | torch.Tensor]:
        self.calls += 1
        if self.calls == 10:
            require_finite({"loss": torch.tensor(1.0), "grad_norm": torch.tensor(float("inf"))})
        return super().update(phase)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    for _ in range(2):  # the same command meets it again
        with pytest.raises(NonFiniteError, match="step 48, update 9: grad_norm is inf") as caught:
            run_toy(tmp_path, make=Broken, settings={"save_every": 0, "eval_every": 0})
    assert "\n" not in str(caught.value)
    [debug] = checkpoints.list_checkpoints(tmp_path / "debug")
    saved = load_checkpoint(debug)
    assert saved.manifest.step == 48
    assert "grad_norm is inf" in str(saved.manifest.note)
    assert all(torch.isfinite(value).all() for value in saved.state["agent"].values())
    assert finished_marker(tmp_path) is None
    assert checkpoints.latest(tmp_path / "checkpoints") is None, "nothing continues from a debug checkpoint"


def test_metrics_that_are_not_finite_stop_the_run_too(tmp_path: Path) -> None:
    class Careless(Toy):
        def update(self, phase: str) -> dict[str, float | torch.Tensor]:
            return {"model": torch.tensor(float("nan"))}

    with pytest.raises(NonFiniteError, match="model is nan"):
        run_toy(tmp_path, make=Careless)


def test_require_finite_returns_floats() -> None:
    assert require_finite({"a": torch.tensor([0.1]), "b": 2, "c": torch.tensor(3)}) == {
        "a": float(np.float32(0.1)),
        "b": 2.0,
        "c": 3.0,
    }
    with pytest.raises(NonFiniteError, match=r"b is inf, c is nan"):
        require_finite({"a": torch.tensor(1.0), "b": float("inf"), "c": torch.tensor(float("nan"))})


def test_the_algorithm_is_closed_whatever_happens(tmp_path: Path) -> None:
    made: list[Toy] = []

    def make(*arguments: Any) -> Toy:
        made.append(Toy(*arguments))
        return made[-1]

    with pytest.raises(Stop):
        run_toy(tmp_path / "run", make=make, events=counter(3, raising))
    run_toy(tmp_path / "run", make=make)
    assert [toy.closed for toy in made] == [1, 1]


def test_sinks_get_the_rows_and_cannot_stop_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got: list[tuple[int, dict[str, Any]]] = []
    began: list[int] = []

    class Good:
        def __init__(self, step: int) -> None:
            began.append(step)

        def write(self, row: Any, step: int) -> None:
            got.append((step, dict(row)))

        def close(self) -> None:
            raise RuntimeError("cannot close")

    class Bad(Good):
        def write(self, row: Any, step: int) -> None:
            raise ConnectionError("no network")

    def absent(step: int) -> Any:
        raise ModuleNotFoundError("No module named 'wandb'", name="wandb")

    run_toy(tmp_path, plan={"sinks": {"good": Good, "bad": Bad, "wandb": absent}})
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [{key: value for key, value in row.items() if not key.startswith("time/")} for _, row in got] == rows
    assert all("time/steps_per_second" in row for _, row in got)
    assert began == [0, 0]
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 3
    assert "bad (ConnectionError: no network)" in warnings[1]
    assert "wandb is not installed; install it with:" in warnings[0]


def test_a_run_has_one_process(tmp_path: Path) -> None:
    def make(context: RunContext, config: ToyConfig, events: Callable[[str], None]) -> Toy:
        with pytest.raises(FileError, match=f"^run {tmp_path} is being written by another live process"):
            run_toy(tmp_path)
        return Toy(context, config, events)

    assert run_toy(tmp_path, make=make).status == "finished"


def test_a_run_can_be_moved(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run_toy(tmp_path / "here", events=counter(60, raising))
    (tmp_path / "here").rename(tmp_path / "there")
    for path in (tmp_path / "there").rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes(), path
    assert run_toy(tmp_path / "there").status == "finished"
    run_toy(tmp_path / "whole")
    assert same(final_state(tmp_path / "whole")[0], final_state(tmp_path / "there")[0])


def test_another_algorithm_s_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run_toy(tmp_path, events=counter(60, raising))

    class Other(Toy):
        spec = AgentSpec(agent="toy", observation_shape=list(SHAPE), action_count=4)

    with pytest.raises(FileError, match="action count 3, and 4 is needed"):
        run_toy(tmp_path, make=Other, lr=0.5)
    assert not (tmp_path / "changes.jsonl").exists()

    class More(Toy):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.parts["critic"] = nn.Linear(1, 1)

    with pytest.raises(FileError, match=r"missing \['critic'\], unknown \[\]"):
        run_toy(tmp_path, make=More)
    assert run_toy(tmp_path).status == "finished", "what was refused changed nothing"


def test_a_replay_that_is_not_the_checkpoint_s_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        run_toy(tmp_path, events=counter(60, raising))
    size = load_checkpoint(tmp_path).state["replay"]["streams"][1]["size"]
    (tmp_path / "replay" / "stream-001" / f"frames-{(size - 1) // 8:08d}.bin").unlink()
    with pytest.raises(FileError, match="is missing: the checkpoint needs"):
        run_toy(tmp_path)


def test_checkpoints_by_the_clock(tmp_path: Path) -> None:
    now = iter(range(0, 10**7, 20))  # every look at the clock is 20 s after the last
    run_toy(
        tmp_path,
        settings={"save_every": 0, "eval_every": 0, "save_minutes": 10.0, "keep_last": 100},
        plan={"clock": lambda: next(now)},
    )
    run_toy(tmp_path / "never", settings={"save_every": 0, "eval_every": 0, "save_minutes": 0.0, "keep_last": 100})
    assert len(checkpoints.list_checkpoints(tmp_path / "checkpoints")) > 2
    assert len(checkpoints.list_checkpoints(tmp_path / "never" / "checkpoints")) == 1
    assert same(final_state(tmp_path)[0]["agent"], final_state(tmp_path / "never")[0]["agent"])


# Progress -------------------------------------------------------------------------------------------------------------


def test_the_estimate_leaves_out_the_first_round() -> None:
    now, stream = [0.0], io.StringIO()
    progress = TrainingProgress(12, clock=lambda: now[0], stream=stream)
    progress.start_at(2)
    now[0] = 500.0  # compilation, prefill
    progress.advance(3)
    assert progress.remaining() is None
    progress.show("step 3")
    for done in (4, 5):
        now[0] += 10.0
        progress.advance(done)
    assert progress.remaining() == 70.0
    progress.show("step 5")
    now[0] += 1.0
    progress.show("too early")
    progress.show("forced", force=True)
    assert stream.getvalue().splitlines() == [
        "[ 25%] step 3 (elapsed 0:08:20)",
        "[ 41%] step 5 (elapsed 0:08:40, about 0:01:10 left)",
        "[ 41%] forced (elapsed 0:08:41, about 0:01:14 left)",
    ]


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with TrainingProgress(2, stream=stream) as progress:
        progress.advance(1)
        progress.show("step 1: loss 2")
        progress.say("a line [that] stays")
    assert "a line [that] stays" in stream.getvalue()


# Schedules ------------------------------------------------------------------------------------------------------------


def test_the_global_generators_are_untouched(tmp_path: Path) -> None:
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    run_toy(tmp_path)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (np.random.get_state()[1].tolist(), random.getstate())  # type: ignore[index]


def test_interleaved_takes_every_step_once() -> None:
    schedule = Interleaved(total_steps=100, prefill=30, pretrain=2, train_every=16, updates=3)
    state, collected, updates = LoopState(), [], 0
    while (this := current_round(state, schedule)) is not None:
        if state.collected < this.collect:
            collected.append(this.collect)
            state.collected, state.step = this.collect, state.step + this.collect
        else:
            state.done, updates = state.done + 1, updates + 1
    assert collected == [30, 16, 16, 16, 16, 6]
    assert updates == 2 + 5 * 3
    assert (state.round, schedule.rounds) == (6, 6)


@pytest.mark.parametrize(
    ("progress", "last", "every", "expected"),
    [
        (9, 0, 10, False),
        (10, 0, 10, True),
        (25, 10, 10, True),
        (19, 10, 10, False),
        (10, 10, 10, False),
        (99, 0, 0, False),
    ],
)
def test_crossed(progress: int, last: int, every: int, expected: bool) -> None:
    assert crossed(progress, last, every) is expected


def test_the_order_of_actions() -> None:
    settings = LoopSettings(log_every=10, eval_every=10, save_every=10)
    this = Round(4, (("train", 1),))
    state = LoopState(step=10)

    def decide(stop: bool = False, dirty: bool = True, seconds: float = 0.0, round_: Round | None = this) -> Action:
        return next_action(state, round_, settings, dirty=dirty, stop=stop, seconds_since_save=seconds)

    assert decide(stop=True) is Action.SAVE
    assert decide(stop=True, dirty=False) is Action.STOP
    assert decide() is Action.LOG
    state.logged = 10
    assert decide() is Action.EVALUATE
    state.collected = 2
    assert decide() is Action.COLLECT, "in the middle of a round nothing is evaluated or saved on schedule"
    state.collected, state.evaluated = 0, 10
    assert decide() is Action.SAVE
    state.saved = 10
    assert decide() is Action.COLLECT
    assert decide(seconds=599) is Action.COLLECT
    assert decide(seconds=600) is Action.SAVE
    assert decide(seconds=600, dirty=False) is Action.COLLECT
    state.best_unsaved = True
    assert decide() is Action.SAVE
    state.best_unsaved, state.collected = False, 4
    assert decide() is Action.UPDATE
    state.sums = {"loss": [1.0, 1]}
    assert decide(round_=None) is Action.LOG
    state.sums = {}
    assert decide(round_=None) is Action.EVALUATE
    state.fresh = True
    assert decide(round_=None) is Action.SAVE
    assert decide(round_=None, dirty=False) is Action.FINISH


# The warm process -----------------------------------------------------------------------------------------------------


def child(folder: Path, kill_after: int | None, *, slow: bool, by_clock: float | None = None) -> int:
    """Fork, run the toy, and return the wait status; `kill_after` counts events, file syncs and renames included."""
    pid = os.fork()
    if pid:
        if by_clock is not None:
            time.sleep(by_clock)
            os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    code = 70
    try:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        seen = 0

        def event(name: str) -> None:
            nonlocal seen
            seen += 1
            if seen == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)

        def around(call: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                event("before")
                if slow:
                    time.sleep(0.001)
                result = call(*args, **kwargs)
                event("after")
                return result

            return wrapped

        os.fsync = lambda handle: None  # a kill loses nothing that the operating system has
        for name in ("fsync", "rename", "replace", "unlink", "ftruncate", "truncate", "mkdir"):
            setattr(os, name, around(getattr(os, name)))
        run_toy(folder, events=event, total_steps=72)
        (folder.parent / f"{folder.name}.events").write_text(str(seen))
        code = 0
    except BaseException as error:  # noqa: BLE001 -- whatever it was, the parent reports it
        (folder.parent / f"{folder.name}.error").write_text(repr(error))
    finally:
        os._exit(code)


def kill_trials(base: Path, trials: int, seed: int) -> dict[str, Any]:
    """Kill runs at random moments until they finish, and compare each with a run that nobody killed."""
    rng = random.Random(seed)
    started = time.monotonic()
    assert child(base / "whole", None, slow=True) == 0
    seconds = time.monotonic() - started
    state, rows = final_state(base / "whole")
    events = int((base / "whole.events").read_text())
    report: dict[str, Any] = {"different": [], "failed": [], "kills": 0, "stale": 0, "stale_after": 0, "resumed": 0}
    for trial in range(trials):
        folder = base / f"trial-{trial}"
        for attempt in range(1 + (trial % 3 == 0)):
            status = (
                child(folder, None, slow=True, by_clock=rng.uniform(0.02, 0.95) * seconds)
                if (trial + attempt) % 3 == 0
                else child(folder, rng.randint(1, events // (attempt + 1)), slow=False)
            )
            report["kills"] += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            report["stale"] += len(list(folder.glob("checkpoints/.*.tmp")))
            report["resumed"] += checkpoints.latest(folder / "checkpoints") is not None
        if child(folder, None, slow=False) != 0:
            report["failed"].append((trial, Path(f"{folder}.error").read_text()))
            continue
        there, found = final_state(folder)
        if not (same(state, there) and rows == found and finished_marker(folder)):
            report["different"].append(trial)
        report["stale_after"] += len(list(folder.glob("checkpoints/.*.tmp")))
    report["rows"] = len(rows.splitlines())
    return report


if __name__ == "__main__":
    # What is imported late is imported here once, not by every child.
    run_toy(Path(sys.argv[1]) / "warm")
    assert not Path("/proc/self/task").exists() or len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
    print(json.dumps(kill_trials(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
