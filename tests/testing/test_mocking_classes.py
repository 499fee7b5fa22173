"""The fakes find what their users do wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synora.envs.interface import Box, Discrete
from synora.envs.rollout import play_games
from synora.testing.mocking_classes import MockAdapter, MockAgent, MockEnv, MockVectorEnv

YES, NO = np.array([True, True]), np.array([False, False])


def started() -> tuple[MockVectorEnv, np.ndarray]:
    envs = MockVectorEnv(2, lambda: MockEnv(length=2))
    return envs, envs.reset()


def step_ended(envs: MockVectorEnv) -> None:
    for _ in range(3):
        envs.step(np.array([0, 1]))


def step_after_close(envs: MockVectorEnv) -> None:
    envs.close()
    envs.step(np.array([0, 1]))


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda envs: MockVectorEnv(2).step(np.array([0, 1])), "no running game"),
        (step_ended, r"environments \[0, 1\], which have no running game"),
        (step_after_close, "closed"),
        (lambda envs: envs.step(np.array([0.0, 1.0])), "float64"),
        (lambda envs: envs.step(np.array([0])), r"\(1,\)"),
        (lambda envs: envs.step(np.array([0, 1]), np.array([1, 0])), "mask is int64"),
        (lambda envs: envs.step(np.array([0, 1]), np.array([True])), "mask is bool"),
        (lambda envs: envs.reset(seeds=[1]), "1 seeds for 2"),
        (lambda envs: MockEnv().step(0), "reset"),
        (lambda envs: MockVectorEnv(1, lambda: MockEnv(Box((0.0,), (1.0,)))).envs[0].reset(), None),
    ],
)
def test_environments(misuse: Callable[[MockVectorEnv], Any], words: str | None) -> None:
    envs, _ = started()
    if words is None:
        misuse(envs)
        return
    with pytest.raises(AssertionError, match=words):
        misuse(envs)


def test_continuous_actions_are_float32() -> None:
    envs = MockVectorEnv(2, lambda: MockEnv(Box((0.0,), (1.0,))))
    envs.reset()
    envs.step(np.zeros((2, 1), np.float32))
    with pytest.raises(AssertionError, match="float64"):
        envs.step(np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda agent, frames, state: MockAgent().act(frames, YES, state), "before initial"),
        (lambda agent, frames, state: agent.act(frames, YES, dict(state)), "not what initial"),
        (lambda agent, frames, state: agent.act(frames.astype(float), YES, state), "float64"),
        (lambda agent, frames, state: agent.act(frames[:1], YES, state), "uint8"),
        (lambda agent, frames, state: agent.act(frames, np.array([1, 1]), state), "is_first is int64"),
        (lambda agent, frames, state: agent.act(frames, YES[:1], state), "is_first is bool"),
        (lambda agent, frames, state: agent.initial(0), "at least one"),
    ],
)
def test_agents(misuse: Callable[..., Any], words: str) -> None:
    _, frames = started()
    agent = MockAgent()
    with pytest.raises(AssertionError, match=words):
        misuse(agent, frames, agent.initial(2))


def test_an_agent_knows_where_games_start() -> None:
    envs, frames = started()
    agent = MockAgent()
    actions, state = agent.act(frames, YES, agent.initial(2))
    later = envs.step(actions).observations
    with pytest.raises(AssertionError, match="is_first is True in row 0"):
        agent.act(later, YES, state)
    _, state = agent.act(later, NO, state)
    with pytest.raises(AssertionError, match="is_first is False in row 0"):
        agent.act(frames, NO, state)
    with pytest.raises(AssertionError, match="never had is_first"):
        agent.act(later, NO, agent.initial(2))


@pytest.mark.parametrize("space", [Discrete(4), Box((-1.0, 0.0), (1.0, 2.0))])
def test_they_work_together(space: Any) -> None:
    games = play_games(lambda: MockVectorEnv(2, lambda: MockEnv(space)), MockAgent(space), [1, 2, 3])
    assert [(game.score, game.length) for game in games] == [(5.0, 5)] * 3


def test_adapters(tmp_path: Path) -> None:
    adapter = MockAdapter([1.0, None], seed=3)
    with pytest.raises(AssertionError, match="before load_checkpoint"):
        adapter.evaluate(1)
    for bad in (tmp_path, str(tmp_path / "nothing")):
        with pytest.raises(AssertionError, match="load_checkpoint"):
            adapter.load_checkpoint(bad)  # type: ignore[arg-type]
    adapter.load_checkpoint(str(tmp_path))
    assert adapter.evaluate(3)["episode_returns"] == [1.0, None, 1.0]
    assert len(adapter.evaluate(2, render=True)["frames"]) == 2
    for arguments in ((0,), (True,), (1.5,), (1, "yes")):
        with pytest.raises(AssertionError, match="evaluate"):
            adapter.evaluate(*arguments)  # type: ignore[arg-type]
    assert adapter.arguments == {"seed": 3}
