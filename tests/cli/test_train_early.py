"""`synora train` refuses what cannot work before any long work, and leaves nothing behind."""

from pathlib import Path

import pytest

from synora.cli import main

TINY = ["preset=tiny", "game=catch/0", "total_steps=40", "prefill_steps=30", "pretrain_updates=1", "train_every=10"]
TINY += ["seq_len=6", "batch_size=2", "eval_every=40", "eval_episodes=2", "device=cpu"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["total_steps=20"], "total_steps=20 is less than prefill_steps=30"),
        (["prefill_steps=3"], "Raise prefill_steps to 5"),
        (["prefill_steps=0"], "Raise prefill_steps to 5"),
        (["replay_capacity=3"], "The least is 6"),
        (["num_envs=7"], "prefill_steps=30 is not a multiple of num_envs=7"),
        (["num_envs=1000000"], "field 'num_envs'"),
        (["units=100000000"], "field 'units'"),
        (["seed=99999999999999999999"], "field 'seed'"),
        (["device=gpu"], "Did you mean 'cuda'?"),
        (["device=cuda:999"], "cuda:999"),
        (["precision=float16"], "precision=float16 needs a CUDA device"),
        (["replay_capacity=1000000000000", "total_steps=1000000000000"], "are free there"),
    ],
)
def test_what_cannot_work_is_refused_early(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "dreamerv2", *TINY, *arguments, "--out-dir", str(out)]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("synora: error: ")
    assert words in error
    assert not out.exists()


ALIASES = "\n".join(
    [
        "a: &a [1, 1, 1]",
        *(f"{b}: &{b} [{', '.join(f'*{a}' for _ in range(9))}]" for a, b in zip("abcdefghi", "bcdefghij", strict=True)),
    ]
)


@pytest.mark.parametrize(
    ("text", "words"),
    [("units: 3\nunits: 4\n", "units stands there twice"), (ALIASES, "aliases"), ("# " + "x" * 1_000_001, "too large")],
)
def test_a_config_file_that_hides_something(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert main(["train", "dreamerv2", "--config", str(file), "--print-config"]) == 2
    assert words in capsys.readouterr().err


def test_an_endless_config_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "dreamerv2", "--config", "/dev/zero", "--print-config"]) == 2
    assert "too large" in capsys.readouterr().err
