"""`synora train` as users type it."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from synora.cli import main

TINY = ["preset=tiny", "game=catch/0", "total_steps=40", "prefill_steps=30", "pretrain_updates=1", "train_every=10"]
TINY += ["seq_len=6", "batch_size=2", "eval_every=40", "eval_episodes=2", "device=cpu"]


def test_print_config_shows_the_layers_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("units: 24\nseed: 7\n")
    assert main(["train", "dreamerv2", "--config", str(file), "seed=3", "model_lr=1e-4", "--print-config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["units"], shown["seed"], shown["model_lr"], shown["deter_size"]) == (24, 3, 1e-4, 600)
    assert not Path("runs").exists() or not list(Path("runs").rglob("seed-3"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dreamrv2"], "Did you mean 'dreamerv2'?"),
        (["dreamerv2", "preset=tniy"], "Did you mean 'tiny'?"),
        (["dreamerv2", "unitz=3"], "Did you mean 'units'?"),
        (["dreamerv2", "units=many"], "field 'units'"),
        (["dreamerv2", "units"], "is not of the form key=value"),
        (["dreamerv2", "--config", "/nothing.yaml"], "cannot read config file"),
        (["dreamerv2", "game=catchh/0"], "catch"),
        (["dreamerv2", "game=catch/0", "num_envs=7"], "is not a multiple of num_envs=7"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", *arguments, "--out-dir", str(out)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_run_from_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "synora", "train", "dreamerv2", *TINY, "--out-dir", str(tmp_path / "my run")]
    first = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("finished: ")
    assert (tmp_path / "my run" / "config.yaml").is_file()
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stderr
