"""What a run can be given besides its sizes: worker processes, dashboards, exploration; and failed evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from synora.algorithms.dreamer import trainer
from synora.algorithms.dreamer.agent import Policy
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.trainer import train_dreamer
from synora.core.errors import SynoraError
from synora.envs.dummy import DummyEnv
from synora.envs.interface import episode_seed
from synora.runtime.checkpoint import load_checkpoint
from synora.runtime.metrics_log import read_rows
from synora.runtime.seeding import Streams
from synora.runtime.state import flatten

SMALL = {
    "game": "dummy", "total_steps": 60, "prefill_steps": 30, "pretrain_updates": 1, "train_every": 10, "seq_len": 6,
    "batch_size": 2, "horizon": 3, "num_envs": 2, "eval_every": 30, "eval_episodes": 3, "log_every": 10,
    "device": "cpu",
}  # fmt: skip


def config(version: type[DreamerConfig] = DreamerV2Config, **changes: Any) -> DreamerConfig:
    return version.compose(preset="tiny", overrides={**SMALL, **changes})


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    tensors, _ = flatten({"agent": load_checkpoint(folder).state["agent"]})
    return tensors


def test_results_do_not_depend_on_the_worker_processes(tmp_path: Path) -> None:
    for workers in (0, 2):
        train_dreamer(config(env_workers=workers), tmp_path / str(workers))
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("0", "2")]
    assert rows[0] == rows[1] and any("train/return" in row for row in rows[0])
    first, second = state_of(tmp_path / "0"), state_of(tmp_path / "2")
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_another_step_size_is_taken_over_when_a_run_is_continued(tmp_path: Path) -> None:
    train_dreamer(config(eval_every=0), tmp_path)
    train_dreamer(config(eval_every=0, total_steps=80, model_lr=0.25), tmp_path)
    group = load_checkpoint(tmp_path).state["agent"]["model_optimizer"]["param_groups"][0]
    assert group["lr"] == 0.25 and "model_lr" in (tmp_path / "changes.jsonl").read_text()


def test_tensorboard_gets_every_row(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_dreamer(config(tensorboard=True), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    rows = read_rows(tmp_path / "metrics.jsonl")
    shown = {event.step: event.value for event in events.Scalars("eval/score")}
    wanted = {row["step"]: row["eval/score"] for row in rows if row["kind"] == "eval"}
    assert shown == pytest.approx(wanted) and len(shown) == 2
    assert {"train/model_objective", "train/return", "time/steps_per_second"} <= set(events.Tags()["scalars"])


class FakeWandb:
    """A dashboard that remembers its rows, or fails."""

    made: list[FakeWandb]
    fails = ""

    def __init__(self, folder: Path, *, project: str, config: Mapping[str, Any]) -> None:
        if self.fails == "start":
            raise RuntimeError("no network")
        self.project, self.config, self.closed = project, config, False
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.made.append(self)

    def write(self, row: Mapping[str, Any], step: int) -> None:
        if self.fails == "write":
            raise OSError("quota")
        self.rows.append((step, dict(row)))

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("fails", ["", "start", "write"])
def test_wandb_gets_every_row_and_cannot_stop_a_run(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FakeWandb, "made", [], raising=False)
    monkeypatch.setattr(FakeWandb, "fails", fails)
    monkeypatch.setattr(trainer, "WandbSink", FakeWandb)
    assert train_dreamer(config(wandb="worlds"), tmp_path).status == "finished"
    rows = read_rows(tmp_path / "metrics.jsonl")
    said = capsys.readouterr().err
    if fails:
        assert said.count("warning: no more metrics to wandb") == 1
    else:
        (one,) = FakeWandb.made
        assert (one.project, one.closed, one.config["game"]) == ("worlds", True, "dummy")
        assert [step for step, _ in one.rows] == [row["step"] for row in rows]
        assert all(row.items() <= got.items() for row, (_, got) in zip(rows, one.rows, strict=True))
    assert rows[-1]["kind"] == "eval"


def fail_games(monkeypatch: pytest.MonkeyPatch, *indices: int) -> None:
    """Let these evaluation games fail at their third step."""
    original, base = DummyEnv._advance, Streams(0).seed_for("eval")
    seeds = [episode_seed(base, index) for index in indices]

    def advance(self: DummyEnv, action: Any) -> Any:
        if self.protocol.phase == "eval" and self.episode_frames == 2 and self._game_seed in seeds:
            raise RuntimeError("the simulator broke")
        return original(self, action)

    monkeypatch.setattr(DummyEnv, "_advance", advance)


def test_a_failed_evaluation_game_is_reported_and_never_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trainer, "EVAL_ENVS", 1)
    fail_games(monkeypatch, 1, 3)
    train_dreamer(config(eval_episodes=5), tmp_path)
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if row["kind"] == "eval"]
    assert len(rows) == 2 and all("eval/score" not in row for row in rows)
    assert [(row["eval/games"], row["eval/failed_games"]) for row in rows] == [(3, 2), (3, 2)]
    assert "the simulator broke" in capsys.readouterr().err


def test_a_run_whose_evaluations_all_fail_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_games(monkeypatch, 0, 1, 2)
    with pytest.raises(SynoraError, match=r"every evaluation game failed; evaluation game 0 \(seed .*simulator broke"):
        train_dreamer(config(), tmp_path)


def test_epsilon_falls_linearly_with_the_updates() -> None:
    plain = DreamerV1Config(epsilon=0.3)
    assert plain.epsilon_at(0) == plain.epsilon_at(10**9) == 0.3
    paper = DreamerV1Config(epsilon=0.4, epsilon_final=0.1)
    assert [paper.epsilon_at(n) for n in (0, 50_000, 200_000, 10**7)] == pytest.approx([0.4, 0.325, 0.1, 0.1])


def test_the_trainer_acts_with_the_scheduled_epsilon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    original = Policy.act

    def act(self: Policy, *args: Any, **kwargs: Any) -> Any:
        if kwargs["mode"] == "train":
            seen.append(self.epsilon)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Policy, "act", act)
    scheduled = config(DreamerV1Config, epsilon=0.4, epsilon_final=0.1, epsilon_decay_updates=3, eval_every=0)
    train_dreamer(scheduled, tmp_path)
    wanted = np.repeat([0.3, 0.2, 0.1], 5)  # 1 pretraining update, then 1 more every 10 steps of 2 environments
    assert seen == pytest.approx(wanted.tolist())
