"""Spellings, protocols and the command line's lists."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from synora.cli import envs as cli
from synora.core.errors import ConfigError, UsageError
from synora.envs.factory import make_env, resolve_env
from synora.envs.ids import list_names, resolve
from synora.envs.protocol import named_protocol, protocol_names

LIBRARIES = {"ale": "ale-py 0.12.1", "bsuite": "bsuite 0.3.6", "gym": "gymnasium 1.4.0", "dummy": ""}
FINGERPRINTS = {
    ("atari-100k", True): "13929ce54c7ae225",
    ("atari-100k", False): "9eb4abfb9b68ed92",
    ("iris-paper", True): "48136c489d86f575",
    ("iris-paper", False): "32f5750ca27caecb",
    ("ale-v5", True): "8ee2f32d0de28997",
    ("ale-v5", False): "8ee2f32d0de28997",
    ("bsuite-pixels", False): "12dee0aa660d90f8",
    ("gym-pixels", False): "75c703c3d8fa9994",
}


@pytest.mark.parametrize(
    ("text", "backend", "name"),
    [
        ("Breakout", "ale", "Breakout"),
        ("breakout", "ale", "Breakout"),
        ("Breakout-v5", "ale", "Breakout"),
        ("ALE/Breakout-v5", "ale", "Breakout"),
        ("ale/breakout-v5", "ale", "Breakout"),
        ("BreakoutNoFrameskip-v4", "ale", "Breakout"),
        ("BreakoutDeterministic-v4", "ale", "Breakout"),
        (" MsPacman ", "ale", "MsPacman"),
        ("ms_pacman", "ale", "MsPacman"),
        ("up_n_down", "ale", "UpNDown"),
        ("PitfallNoFrameskip-v4", "ale", "Pitfall"),
        ("Pitfall2", "ale", "Pitfall2"),
        ("catch/0", "bsuite", "catch/0"),
        ("Catch/0", "bsuite", "catch/0"),
        ("umbrella_length/3", "bsuite", "umbrella_length/3"),
        ("Pendulum-v1", "gym", "Pendulum-v1"),
        ("pendulum", "gym", "Pendulum-v1"),
        ("CartPole-v0", "gym", "CartPole-v0"),
        ("cartpole", "gym", "CartPole-v1"),
        ("CarRacing-v3", "gym", "CarRacing-v3"),
        ("dummy", "dummy", "dummy"),
    ],
)
def test_spellings(text: str, backend: str, name: str) -> None:
    for asked in ("auto", backend):
        found = resolve(text, asked)
        assert (found.backend, found.name) == (backend, name)


def test_the_26_games_of_atari_100k_all_resolve() -> None:
    games = (
        "Alien Amidar Assault Asterix BankHeist BattleZone Boxing Breakout ChopperCommand CrazyClimber DemonAttack "
        "Freeway Frostbite Gopher Hero Jamesbond Kangaroo Krull KungFuMaster MsPacman Pong PrivateEye Qbert RoadRunner "
        "Seaquest UpNDown"
    ).split()
    assert len(games) == 26
    for game in games:
        assert {resolve(text).name for text in (game, f"{game}-v5", f"{game}NoFrameskip-v4")} == {game}


def test_ids_that_mean_other_rules_elsewhere_say_so() -> None:
    with pytest.warns(UserWarning, match="random 2 to 4 frames"), make_env("Pong-v4") as env:
        assert env.protocol.name == "atari-100k" and env.protocol.frame_skip == 4
    assert not resolve("Breakout-v5").differs and "sticky" in resolve("Breakout-v5").note
    assert resolve("BreakoutNoFrameskip-v0").differs
    assert resolve("Breakout").note == resolve("BreakoutNoFrameskip-v4").note == ""


@pytest.mark.parametrize(
    ("text", "backend", "words"),
    [
        ("Brekout", "auto", "Did you mean 'Breakout'"),
        ("ALE/Brekout-v5", "auto", "Did you mean 'Breakout'"),
        ("BrekoutNoFrameskip-v4", "ale", "Did you mean 'Breakout'"),
        ("Breakout-v7", "auto", "no such version"),
        ("Breakout-ram-v4", "auto", "memory"),
        ("Pendulum-v9", "auto", "Did you mean 'Pendulum-v1'"),
        ("catch/99", "auto", "catch/0 to catch/19"),
        ("umbrella_chain/0", "auto", "Did you mean 'umbrella_"),
        ("catch/-1", "auto", "catch/0 to catch/19"),
        ("Pong", "bsuite", "in backend bsuite"),
        ("catch/0", "ale", "in backend ale"),
        ("Pong", "alle", "Did you mean 'ale'"),
        ("Joust", "auto", "unknown environment"),
        ("", "auto", "is empty"),
        ("Hopper-v5", "auto", "unknown environment"),
        ("dummy/x", "auto", "unknown dummy environment"),
    ],
)
def test_unknown_names_are_one_line_with_the_closest(text: str, backend: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(text, backend)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fingerprints_are_pinned() -> None:
    for (name, train), fingerprint in FINGERPRINTS.items():
        protocol = named_protocol(name, train=train)
        assert protocol.replace(library=LIBRARIES[protocol.backend]).fingerprint == fingerprint, (name, train)


def test_fingerprints_tell_rules_apart_and_nothing_else() -> None:
    protocol = named_protocol("atari-100k")
    changes = [
        {"sticky_prob": 0.25},
        {"frame_skip": 2},
        {"noop_max": 0},
        {"action_set": "full"},
        {"size": 84},
        {"grayscale": True},
        {"max_frames": 18000},
        {"library": "ale-py 0.11.0"},
        {"max_pool": "off"},
        {"max_pool": "after-resize", "interpolation": "pil-bilinear"},
    ]
    prints = [protocol.replace(**change).fingerprint for change in changes]
    assert len({protocol.fingerprint, *prints}) == len(changes) + 1
    assert protocol.replace(name="other").fingerprint == protocol.fingerprint


def test_variants_keep_changes_and_evaluation_is_always_raw_and_whole() -> None:
    train = named_protocol("atari-100k", train=True).replace(size=96, reward_clip="sign")
    assert (train.life_loss, train.reward_clip, train.size) == ("end", "sign", 96)
    evaluation = train.eval()
    assert (evaluation.life_loss, evaluation.reward_clip, evaluation.size) == ("ignore", "none", 96)
    assert evaluation.train().life_loss == "end"
    iris = named_protocol("iris-paper", train=True)
    assert (iris.noop_max, iris.max_frames, iris.life_loss) == (30, 20_000, "end-noop")
    assert (iris.eval().noop_max, iris.eval().max_frames) == (1, 108_000)
    assert named_protocol("ale-v5").sticky_prob == 0.25


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frame_skip": 0}, "frame_skip"),
        ({"frame_skip": "4"}, "frame_skip"),
        ({"sticky_prob": 1.5}, "sticky_prob"),
        ({"life_loss": "end"}, "whole games"),
        ({"reward_clip": "sign"}, "raw rewards"),
        ({"frame_skip": 1}, "max_pool"),
        ({"interpolation": "pil-bilinear"}, "after-resize"),
        ({"frameskip": 4}, "Did you mean 'frame_skip'"),
        ({"scale_actions": True}, "does not apply"),
    ],
)
def test_rules_that_do_not_fit_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        named_protocol("atari-100k").replace(**changes)
    assert "\n" not in str(caught.value)


def test_rules_can_be_changed_wherever_a_name_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    changed = named_protocol("gym-pixels,frame_skip=2,grayscale=true", train=True)
    assert changed == named_protocol("gym-pixels", train=True).replace(frame_skip=2, grayscale=True)
    assert resolve_env("Pendulum-v1", protocol="gym-pixels,frame_skip=2")[1].frame_skip == 2
    assert cli.describe("gym-pixels,frame_skip=2") == 0
    assert named_protocol("gym-pixels,frame_skip=2").fingerprint in capsys.readouterr().out
    for text, words in (
        ("gym-pixel,frame_skip=2", "Did you mean 'gym-pixels'"),
        ("gym-pixels,frame_skip", "key=value"),
        ("gym-pixels,frameskip=2", "Did you mean 'frame_skip'"),
        ("gym-pixels,frame_skip=0", "greater than or equal to 1"),
        ("gym-pixels,backend=ale", "backend cannot be changed"),
        ("gym-pixels,", "key=value"),
    ):
        with pytest.raises(UsageError, match=words):
            named_protocol(text)


def test_a_protocol_cannot_be_changed_in_place() -> None:
    protocol = named_protocol("atari-100k")
    with pytest.raises(ConfigError, match="frozen"):
        protocol.size = 84  # type: ignore[misc]
    assert protocol.size == 64


def test_protocol_of_another_backend_and_unknown_protocol() -> None:
    with pytest.raises(UsageError, match="catch/0 is in bsuite"):
        resolve_env("catch/0", protocol="atari-100k")
    with pytest.raises(UsageError, match="Did you mean 'atari-100k'"):
        resolve_env("Pong", protocol="atari100k")
    assert resolve_env("Pong", train=True)[1].phase == "train"


def test_lists_hold_what_can_be_made() -> None:
    assert "Breakout" in list_names("ale")
    bsuite = list_names("bsuite")
    assert "catch/0" in bsuite and not any(name.startswith("mnist") for name in bsuite)
    assert {"Pendulum-v1", "CartPole-v1", "CarRacing-v3"} <= set(list_names("gym"))
    with pytest.raises(UsageError, match="Allowed: ale, bsuite, gym"):
        list_names("atari")


def test_command_line_lists_and_describes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.list_envs("gym") == 0
    assert "Pendulum-v1" in capsys.readouterr().out.splitlines()
    assert cli.list_envs() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ale     Breakout" in lines and "bsuite  catch/0" in lines
    for name in protocol_names():
        assert cli.describe(name) == 0
        assert named_protocol(name).fingerprint in capsys.readouterr().out
    assert cli.describe("Breakout-v4", train=True, json_output=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["environment"] == "Breakout" and "random" in told["note"]
    assert told["protocol"]["life_loss"] == "end"
    assert told["protocol"]["fingerprint"] == named_protocol("atari-100k", train=True).fingerprint
    assert cli.describe("catch/0") == 0
    assert "bsuite_num_episodes: 10000" in capsys.readouterr().out
    with pytest.raises(UsageError, match="Protocols: "):
        cli.describe("nonsense")


def test_importing_the_factory_imports_no_backend() -> None:
    code = (
        "import sys, synora.envs.factory, synora.cli.envs\n"
        "print([name for name in ('torch', 'gymnasium', 'ale_py', 'bsuite', 'cv2', 'pygame') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
