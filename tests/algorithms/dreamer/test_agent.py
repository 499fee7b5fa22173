"""The public agent: what it loads is what was trained, and it plays as it did there."""

from pathlib import Path

import numpy as np
import pytest
import torch

from synora.algorithms.dreamer.agent import DreamerAgent, PolicyAgent
from synora.algorithms.dreamer.config import DreamerV1Config, DreamerV2Config
from synora.core.errors import FileError, UsageError
from synora.envs.interface import episode_seed
from synora.envs.rollout import evaluation_envs, play_games
from synora.runtime.manifest import AgentSpec
from synora.runtime.seeding import Streams

SPEC = AgentSpec(agent="dreamerv2", observation_shape=[3, 64, 64], action_count=3)
TINY = DreamerV2Config.compose(preset="tiny", overrides={"image_channels": 3, "game": "catch/0"})


def test_a_checkpoint_plays_as_the_trainer_did(tmp_path: Path) -> None:
    """The score that the trainer wrote down is the mean return of the loaded agent in the same games."""
    changes = {
        **{"game": "catch/0", "seed": 4, "device": "cpu", "total_steps": 40, "prefill_steps": 30, "train_every": 10},
        **{"pretrain_updates": 2, "seq_len": 6, "batch_size": 2, "horizon": 3, "eval_every": 40, "eval_episodes": 5},
    }
    outcome = DreamerAgent.train(DreamerV2Config.compose(preset="tiny", overrides=changes), tmp_path)
    agent = DreamerAgent.from_checkpoint(tmp_path, device="cpu")
    assert outcome.checkpoint == agent.source and agent.train_seed == 4
    assert agent.manifest is not None and agent.manifest.step == 40
    streams = Streams(4)
    games = play_games(
        lambda: evaluation_envs("catch/0", 5),
        agent,
        [episode_seed(streams.seed_for("eval"), k) for k in range(5)],
        generator=torch.Generator().manual_seed(streams.seed_for("eval-policy")),
    )
    assert np.mean([game.score for game in games]) == agent.manifest.score


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize(("name", "config"), [("dreamerv1", DreamerV1Config), ("dreamerv2", DreamerV2Config)])
def test_actions_are_what_environments_take(name: str, config: type, kind: str) -> None:
    spec = AgentSpec(agent=name, observation_shape=[3, 64, 64], action_count=2, action_kind=kind)  # type: ignore[arg-type]
    frames = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), np.uint8)
    for mode in ("eval", "train"):
        agent = DreamerAgent(
            config.compose(preset="tiny", overrides={"image_channels": 3}), spec, device="cpu", mode=mode
        )
        actions, state = agent.act(frames, np.ones(4, bool), agent.initial(4), generator=agent.generator(0))
        assert actions.shape == ((4,) if kind == "discrete" else (4, 2))
        assert actions.dtype == (np.int64 if kind == "discrete" else np.float32)
        assert np.abs(actions).max() <= 1
        # A frame that starts a game is seen without memory of what was there before.
        again, _ = agent.act(frames, np.ones(4, bool), state, generator=agent.generator(0))
        assert np.array_equal(actions, again)


def test_a_saved_agent_is_the_same_and_moves(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    agent = DreamerAgent(TINY, SPEC, device="cpu")
    agent.save(tmp_path / "first", step=3)
    (tmp_path / "first").rename(tmp_path / "second")
    loaded = DreamerAgent.from_checkpoint(tmp_path / "second", device="cpu")
    assert loaded.evaluate(3, seed=1) == agent.evaluate(3, seed=1)
    assert loaded.evaluate(3, seed=2)["episode_seeds"] != agent.evaluate(3, seed=1)["episode_seeds"]
    assert torch.equal(before, torch.random.get_rng_state())
    assert isinstance(loaded, PolicyAgent) and loaded.spec == SPEC


def test_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="DreamerV1Config is not the configuration of dreamerv2"):
        DreamerAgent(DreamerV1Config(), SPEC, device="cpu")
    with pytest.raises(UsageError, match="1 channels of 64 x 64"):
        DreamerAgent(DreamerV2Config.compose(preset="tiny"), SPEC, device="cpu")
    with pytest.raises(UsageError, match="num_episodes 0"):
        DreamerAgent(TINY, SPEC, device="cpu").evaluate(0)
    with pytest.raises(UsageError, match="unknown agent"):
        DreamerAgent(TINY, SPEC.model_copy(update={"agent": "dreamerv9"}), device="cpu")
    with pytest.raises(FileError, match="does not exist"):
        DreamerAgent.from_checkpoint(tmp_path / "nothing")
