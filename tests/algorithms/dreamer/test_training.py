"""Training Dreamer on real environments: a run finishes, is a no-op then, and comes back from stops bit for bit."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.trainer import DreamerTrainer, train_dreamer
from synora.core.errors import ConfigError

SMALL = {
    "total_steps": 120,
    "prefill_steps": 60,
    "pretrain_updates": 1,
    "train_every": 20,
    "seq_len": 6,
    "batch_size": 2,
    "horizon": 3,
    "num_envs": 2,
    "eval_every": 60,
    "eval_episodes": 3,
    "log_every": 20,
    "device": "cpu",
}


def config(version: type[DreamerConfig], game: str, **changes: Any) -> DreamerConfig:
    return version.compose(preset="tiny", overrides={**SMALL, "game": game, **changes})


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def final_tensors(checkpoint: Path | None) -> dict[str, torch.Tensor]:
    assert checkpoint is not None
    return {
        f"{file.name}:{name}": value
        for file in sorted(checkpoint.glob("*.safetensors"))
        for name, value in load_file(file).items()
    }


def stop_at(monkeypatch: pytest.MonkeyPatch, calls: set[int]) -> None:
    """Send this process a SIGTERM during the given calls of `collect`, counted over all attempts."""
    original, count = DreamerTrainer.collect, [0]

    def collect(self: DreamerTrainer, steps: int) -> dict[str, float]:
        count[0] += 1
        if count[0] in calls:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, steps)

    monkeypatch.setattr(DreamerTrainer, "collect", collect)


@pytest.mark.parametrize(
    ("version", "game"),
    [
        (DreamerV1Config, "catch/0"),
        (DreamerV2Config, "catch/0"),
        (DreamerV1Config, "Pendulum-v1"),
        (DreamerV2Config, "dummy"),
    ],
)
def test_a_stopped_run_ends_as_an_uninterrupted_one(
    version: type[DreamerConfig], game: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = train_dreamer(config(version, game), tmp_path / "whole")
    assert (wanted.status, wanted.step) == ("finished", 120)
    stop_at(monkeypatch, {1, 2, 4})
    for _ in range(3):
        assert train_dreamer(config(version, game), tmp_path / "stopped").status == "preempted"
    found = train_dreamer(config(version, game), tmp_path / "stopped")
    assert found.status == "finished"
    assert (tmp_path / "stopped" / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    first, second = final_tensors(wanted.checkpoint), final_tensors(found.checkpoint)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    train_dreamer(config(DreamerV2Config, "dummy"), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")}
    again = train_dreamer(config(DreamerV2Config, "dummy"), tmp_path)
    assert (again.status, "nothing to do" in again.message) == ("finished", True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")} == before
    assert {row["kind"] for row in rows(tmp_path)} == {"train", "eval"}
    assert rows(tmp_path)[-1]["eval/games"] == 3


def test_the_architecture_of_a_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, {2})
    assert train_dreamer(config(DreamerV2Config, "dummy"), tmp_path).status == "preempted"
    with pytest.raises(ConfigError, match="units"):
        train_dreamer(config(DreamerV2Config, "dummy", units=24), tmp_path)
    assert train_dreamer(config(DreamerV2Config, "dummy", model_lr=1e-3), tmp_path).status == "finished"
    assert "model_lr" in (tmp_path / "changes.jsonl").read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"num_envs": 7}, "prefill_steps=60 is not a multiple of num_envs=7"), ({"game": "catchh/0"}, "catch")],
)
def test_what_does_not_fit_is_refused_before_work(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        train_dreamer(config(DreamerV2Config, **{"game": "dummy", **changes}), tmp_path / "run")
    assert words in str(caught.value)
    assert not (tmp_path / "run").exists()
