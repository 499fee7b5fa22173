"""A run killed at random moments, during saves too, ends as one that never was: weights and metric rows bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from synora.runtime.checkpoint import latest, read_manifest

DRIVER = Path(__file__).with_name("killed_runs.py")
CONFIG = {
    "game": "catch/0", "num_envs": 2, "total_steps": 100, "prefill_steps": 40, "pretrain_updates": 2, "train_every": 4,
    "updates_per_train": 1, "seq_len": 6, "batch_size": 2, "horizon": 3, "eval_every": 40, "eval_episodes": 2,
    "log_every": 20, "save_every": 8, "device": "cpu", "seed": 1,
}  # fmt: skip


def differences(folder: Path) -> list[str]:
    """Return what differs between FOLDER/whole and FOLDER/killed: rows, tensors, JSON state."""
    runs = [folder / "whole", folder / "killed"]
    found = []
    if runs[0].joinpath("metrics.jsonl").read_bytes() != runs[1].joinpath("metrics.jsonl").read_bytes():
        found.append("metrics.jsonl")
    newest = [latest(run / "checkpoints") for run in runs]
    assert newest[0] is not None and newest[1] is not None
    # A stop between the last step and the last evaluation leaves two checkpoints of that step; the second is step-N-1.
    steps = [read_manifest(one).step for one in newest if one is not None]
    names = [sorted(path.name for path in one.iterdir()) for one in newest if one is not None]
    if steps[0] != steps[1] or names[0] != names[1]:
        return [*found, f"checkpoints of steps {steps} hold {names}"]
    for name in names[0]:
        one, two = newest[0] / name, newest[1] / name
        if name.endswith(".safetensors"):
            first, second = load_file(one), load_file(two)
            found += [f"{name}: {key}" for key in first.keys() | second.keys()
                      if first[key].tobytes() != second[key].tobytes()]  # fmt: skip
        elif name == "state.json" and json.loads(one.read_text()) != json.loads(two.read_text()):
            found.append(name)
    return found


def play(folder: Path, agent: str, kills: int, seed: int, **changes: Any) -> dict[str, Any]:
    order: dict[str, Any] = {"agent": agent, "kills": kills, "seed": seed, "events": 60, "longest": 0.25}
    order["config"] = {**CONFIG, **changes}
    command = [sys.executable, str(DRIVER), str(folder), json.dumps(order)]
    # One thread: the numbers must not depend on how many a loaded machine gives, nor the time on how they wait.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    logs = "".join(path.read_text()[-3000:] for path in sorted(folder.glob("*.log")))
    assert done.returncode == 0, done.stderr + logs
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["ends"][0] == report["ends"][-1] == "0", f"{report}\n{logs}"
    return report


@pytest.mark.parametrize(
    ("agent", "changes"),
    [("dreamerv2", {}), ("dreamerv1", {"game": "Pendulum-v1", "eval_every": 0, "total_steps": 72})],
)
def test_killed_runs_end_as_whole_ones(agent: str, changes: dict[str, Any], tmp_path: Path) -> None:
    report = play(tmp_path, agent, kills=5, seed=3, **changes)
    assert report["kills"] >= 3, report
    assert differences(tmp_path) == []
