"""`python -m synora.training.train_dreamer`: the same as `synora train`, with options."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from synora.training.train_dreamer import main


def test_options_and_values_are_those_of_synora_train(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--agent", "dreamerv1", "--config", "dreamerv1_catch", "--game", "Breakout-v5", "--seed", "3"]
    assert main([*options, "--device", "cpu", "--print-config", "units=7"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["game"], shown["seed"], shown["device"], shown["units"]) == ("Breakout-v5", 3, "cpu", 7)
    assert "epsilon" in shown  # DreamerV1's
    assert main(["--preset", "tiny", "--print-config", "seed=2"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["class_size"], shown["seed"]) == (4, 2)  # DreamerV2 unless told otherwise


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agent", "dreamerv3"], "unknown agent 'dreamerv3'"),
        (["--game", "Pnog"], "Did you mean 'Pong'?"),
        (["--preset", "tniy"], "Did you mean 'tiny'?"),
        (["--seed", "-1"], "field 'seed'"),
        (["--seed", "a"], "field 'seed'"),
        (["--config", "nothing"], "cannot read config file 'nothing'"),
        (["--gmae", "Pong"], "--game"),
        (["--game"], "--game"),
        (["unitz=3"], "Did you mean 'units'?"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out_dir", str(tmp_path / "run"), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("synora: error: ")
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "synora.training.train_dreamer"]
    usage = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, timeout=120)
    assert "--preset" in usage.stdout
    small = ["--preset", "tiny", "--game", "catch/0", "--device", "cpu", "--out-dir", str(tmp_path / "run")]
    values = ["total_steps=20", "prefill_steps=10", "pretrain_updates=1", "train_every=10", "seq_len=6", "batch_size=2"]
    done = subprocess.run([*command, *small, *values, "eval_every=0"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("finished: ")
