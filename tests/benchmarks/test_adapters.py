"""Adapters: which checkpoints an agent takes, and what it plays."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synora.benchmarks import adapters
from synora.benchmarks.handler import preflight, run
from synora.benchmarks.settings import make_jobs
from synora.core.errors import FileError, SynoraError, UsageError

CATCH = {"game": "catch/0", "backend": "bsuite"}


def params(agent: str = "dreamerv2", env: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    fields = {"device": "cpu", "episodes": 2, **fields}
    if "checkpoint" in fields:
        fields["checkpoint"] = str(fields["checkpoint"])
    return dict(make_jobs(agent, env or CATCH, [fields.pop("seed", 0)], **fields)[0].params)


def no_report(phase: str) -> None:
    """Nobody listens."""


def manifest(folder: Path) -> Path:
    return next((folder / "checkpoints").iterdir()) / "manifest.json"


@pytest.mark.parametrize("agent", ["dreamerv1", "dreamerv2"])
def test_an_agent_plays_and_says_what_it_is(agent: str, dreamer: Callable[..., Path]) -> None:
    folder = dreamer(agent, seed=5)
    preflight(params(agent, checkpoint=folder))
    body, device, protocol = run(params(agent, checkpoint=folder, episodes=3), no_report)
    assert (body["agent"], body["train_seed"], body["eval_seed"], body["num_envs"]) == (agent, 5, 0, 3)
    assert (body["checkpoint"]["step"], len(body["checkpoint"]["sha256"])) == (123, 64)
    assert body["checkpoint"]["path"] == str(folder)
    assert protocol == body["protocol"]["fingerprint"] and device["type"] == body["device"] == "cpu"
    assert {abs(score) for score in body["episode_returns"]} == {1.0}
    assert [episode["length"] for episode in body["episodes"]] == [9, 9, 9]
    json.dumps(body, allow_nan=False)


def test_the_same_job_gives_the_same_returns_and_another_seed_other_games(dreamer: Callable[..., Path]) -> None:
    folder = dreamer()
    first, again, other = (run(params(checkpoint=folder, episodes=5, seed=seed), no_report)[0] for seed in (1, 1, 2))
    assert first == again
    seeds = [{episode["seed"] for episode in body["episodes"]} for body in (first, other)]
    assert len(seeds[0]) == len(seeds[1]) == 5 and not seeds[0] & seeds[1]


def test_the_random_agent_needs_nothing_and_is_the_same_however_many_play_side_by_side() -> None:
    bodies = [run(params("random", episodes=6, num_envs=count), no_report)[0] for count in (1, 4)]
    assert bodies[0]["episode_returns"] == bodies[1]["episode_returns"]
    assert bodies[0]["checkpoint"] is None and bodies[0]["train_seed"] is None
    assert run(params("random", {"game": "Pendulum-v1"}, episodes=1), no_report)[0]["episodes"][0]["length"] == 200


def test_other_forms_of_a_checkpoint(dreamer: Callable[..., Path], tmp_path: Path) -> None:
    from synora.runtime.checkpoint import export_checkpoint

    folder = dreamer()
    step = next((folder / "checkpoints").iterdir())
    exported = export_checkpoint(folder, tmp_path / "agent.safetensors")
    bodies = [run(params(checkpoint=path), no_report)[0] for path in (folder, folder / "checkpoints", step, exported)]
    assert len({str(body["episode_returns"]) for body in bodies}) == 1
    assert len({body["checkpoint"]["sha256"] for body in bodies}) == 2  # of the folder, and of the file


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"game": "Pong"}, "acts with 3 discrete actions, and Pong has 6 discrete actions"),
        ({"game": "Pendulum-v1"}, "acts with 3 discrete actions, and Pendulum-v1 has continuous actions"),
        ({"game": "catchh/0"}, "Did you mean 'catch/0'?"),
        ({"game": "catch/0", "backend": "ale"}, "catch/0"),
        ({"game": "catch/0", "protocol": "atari-100k"}, "bsuite-pixels"),
    ],
)
def test_an_environment_the_agent_cannot_play_in(env: dict[str, Any], words: str, dreamer: Callable[..., Path]) -> None:
    with pytest.raises(UsageError) as caught:
        preflight(params(env=env, checkpoint=dreamer()))
    assert words in str(caught.value)


def test_a_continuous_agent_cannot_play_a_discrete_game(dreamer: Callable[..., Path]) -> None:
    folder = dreamer("dreamerv1", actions=1, kind="continuous", game="Pendulum-v1")
    preflight(params("dreamerv1", {"game": "Pendulum-v1"}, checkpoint=folder))
    with pytest.raises(UsageError, match="acts with continuous actions of 1 dimension, and catch/0 has 3 discrete"):
        preflight(params("dreamerv1", checkpoint=folder))


def test_frames_of_another_shape(dreamer: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="takes frames of 1 x 64 x 64, and catch/0 has 3 x 64 x 64"):
        preflight(params(checkpoint=dreamer(image_channels=1)))


def test_the_checkpoint_of_another_agent(dreamer: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="is a checkpoint of dreamerv1, not of dreamerv2: choose --agent dreamerv1"):
        preflight(params(checkpoint=dreamer("dreamerv1")))
    folder = dreamer()
    text = manifest(folder).read_text().replace('"agent": "dreamerv2"', '"agent": "iris"')
    manifest(folder).write_text(text)
    with pytest.raises(UsageError, match="'iris'"):
        preflight(params(checkpoint=folder))


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--checkpoint PATH"):
        preflight(params())
    with pytest.raises(UsageError, match="does not exist"):
        preflight(params(checkpoint=tmp_path / "nothing"))
    with pytest.raises(FileError, match="holds no synora checkpoint"):
        preflight(params(checkpoint=tmp_path))
    with pytest.raises(UsageError, match="takes no checkpoint"):
        preflight(params("random", checkpoint=tmp_path))
    with pytest.raises(SynoraError, match="load_checkpoint"):
        adapters.DreamerV2Adapter(env_spec=CATCH).evaluate(1)


def test_damage_is_found_before_anything_is_played(dreamer: Callable[..., Path], tmp_path: Path) -> None:
    def damaged(name: str, change: Callable[[bytes], bytes]) -> Path:
        folder = tmp_path / f"damaged-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(whole, folder)
        path = manifest(folder).parent / name
        path.write_bytes(change(path.read_bytes()))
        return folder

    whole = dreamer()
    for name in ("agent.safetensors", "state.json", "manifest.json"):
        with pytest.raises(FileError):
            preflight(params(checkpoint=damaged(name, lambda content: content[: len(content) // 2])))
    with pytest.raises(FileError, match="sha256"):
        preflight(params(checkpoint=damaged("agent.safetensors", lambda c: c[:-1] + bytes([c[-1] ^ 1]))))
    future = damaged("manifest.json", lambda c: c.replace(b'"format_version": 1', b'"format_version": 99'))
    with pytest.raises(FileError, match="format 99"):
        preflight(params(checkpoint=future))
    none = damaged("manifest.json", lambda c: c.replace(b'"format_version": 1', b'"format_version": -3'))
    with pytest.raises(FileError, match="format -3, and formats count from 1"):
        preflight(params(checkpoint=none))
    endless = damaged("agent.safetensors", lambda content: content)
    (manifest(endless).parent / "agent.safetensors").unlink()
    os.mkfifo(manifest(endless).parent / "agent.safetensors")
    with pytest.raises(FileError, match="is not a file"):
        preflight(params(checkpoint=endless))
    with pytest.raises(FileError, match="configuration"):
        preflight(params(checkpoint=damaged("manifest.json", lambda c: c.replace(b'"horizon"', b'"horizont"'))))
    # Another width than the tensors have, in the manifest, which has no digest of its own.
    with pytest.raises(FileError, match="networks"):
        preflight(params(checkpoint=damaged("manifest.json", lambda c: c.replace(b'"units": 16', b'"units": 17'))))


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    import torch

    marker = tmp_path / "marker"
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Bomb(marker)))
    torch.save({"weights": Bomb(marker)}, tmp_path / "zipped.pt")
    for name in ("plain.pt", "zipped.pt"):
        with pytest.raises(FileError, match=r"pickle.*safetensors"):
            preflight(params(checkpoint=tmp_path / name))
    assert not marker.exists()


def test_a_preset_is_checked_against_the_checkpoint(dreamer: Callable[..., Path]) -> None:
    folder = dreamer()
    preflight(params(checkpoint=folder, preset="tiny"))
    with pytest.raises(UsageError, match="its deter_size is 16, not 200"):
        preflight(params(checkpoint=folder, preset="small"))
    with pytest.raises(UsageError, match="Did you mean 'small'"):
        preflight(params(checkpoint=folder, preset="smal"))
    with pytest.raises(UsageError, match="no presets"):
        preflight(params("random", preset="tiny"))


def test_names_that_do_not_exist(dreamer: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="Did you mean 'dreamerv2'"):
        preflight(params("dreamerv22"))
    with pytest.raises(SynoraError, match="cannot be loaded"):
        preflight(params("no_such_module:Adapter"))
    with pytest.raises(UsageError, match="no method load_checkpoint"):
        preflight(params("pathlib:Path"))
    with pytest.raises(UsageError, match="CUDA"):
        preflight(params("random", device="cuda:99"))


def test_networks_that_give_no_numbers_are_no_score(dreamer: Callable[..., Path], tmp_path: Path) -> None:
    """The most likely of NaN logits is an action like any other; the returns would look real."""
    import torch

    from synora.algorithms.dreamer.agent import DreamerAgent

    agent = DreamerAgent.from_checkpoint(dreamer(), device="cpu")
    with torch.no_grad():
        next(agent.behaviour.actor.parameters()).fill_(torch.nan)
    agent.save(tmp_path / "nan")
    body, _, _ = run(params(checkpoint=tmp_path / "nan"), no_report)
    assert body["episode_returns"] == [None, None] and body["mean"] is None
    assert "not finite" in body["episodes"][0]["error"]


def test_pictures(dreamer: Callable[..., Path]) -> None:
    adapter = adapters.DreamerV2Adapter(env_spec=CATCH, device="cpu")
    adapter.load_checkpoint(str(dreamer()))
    found = adapter.evaluate(2, render=True)
    assert [shown.shape[0] for shown in found["frames"]] == [10, 10]
    assert found["frames"][0].dtype == np.uint8 and found["frames"][0].shape[-1] == 3
    assert "frames" not in adapter.evaluate(1)


def test_listing_agents() -> None:
    assert adapters.ADAPTERS.names() == ["dreamerv1", "dreamerv2", "random"]
    assert adapters.ADAPTERS.load("dreamerv2") is adapters.DreamerV2Adapter
