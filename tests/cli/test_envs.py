"""`synora envs` as users type it."""

import json

import pytest

from synora.cli import main


def test_list_by_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "list", "--backend", "bsuite"]) == 0
    assert "catch/0" in capsys.readouterr().out.splitlines()
    assert main(["envs", "list", "--backend", "ale"]) == 0
    assert "Breakout" in capsys.readouterr().out.splitlines()
    assert main(["envs", "list", "--backend", "gym"]) == 0
    assert "Pendulum-v1" in capsys.readouterr().out.splitlines()


def test_describe_a_protocol_and_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "describe", "atari-100k", "--json"]) == 0
    protocol = json.loads(capsys.readouterr().out)["protocol"]
    assert main(["envs", "describe", "Breakout-v5", "--json"]) == 0
    game = json.loads(capsys.readouterr().out)["protocol"]
    assert protocol["fingerprint"] == game["fingerprint"]
    assert main(["envs", "describe", "atari-100k", "--train", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["protocol"]["fingerprint"] != protocol["fingerprint"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["list", "--backend", "alee"], "Did you mean 'ale'?"), (["describe", "Breakoutt"], "Breakout")],
)
def test_unknown_names_get_the_closest_match(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["envs", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
