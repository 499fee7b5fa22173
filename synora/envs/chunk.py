"""Some environments stepped one after the other, their inputs and outputs in arrays that a process may share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synora.envs.interface import Box, Discrete, Env, Space

CONTINUE = -1  # in `seeds`: go on with the game after a lost life


@dataclass(frozen=True)
class Arrays:
    """Everything that passes between a vector environment and its environments, one row each.

    Attributes:
        observations: (n, H, W, C) uint8, of the last reset or step.
        actions: (n,) int64, or (n, A) float32.
        chosen: (n,) bool, the environments the next command is for.
        seeds: (n,) int64, for a reset: a new game's seed, or `CONTINUE`; after it, the seed of the game that was
            started, or `CONTINUE` where one went on.
        rewards, raw_rewards: (n,) float64.
        terminated, truncated, life_lost, game_over: (n,) bool.
        episode_frames: (n,) int64.
    """

    observations: npt.NDArray[np.uint8]
    actions: npt.NDArray[Any]
    chosen: npt.NDArray[np.bool_]
    seeds: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float64]
    raw_rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    life_lost: npt.NDArray[np.bool_]
    game_over: npt.NDArray[np.bool_]
    episode_frames: npt.NDArray[np.int64]


def layout(
    count: int, shape: Sequence[int], action_size: int
) -> tuple[dict[str, tuple[int, str, tuple[int, ...]]], int]:
    """Return where each array stands in one block of memory (offset, dtype, shape), and the block's bytes.

    Args:
        count: environments.
        shape: of one observation.
        action_size: numbers of a continuous action; 0 for discrete actions.
    """
    actions = ("float32", (count, action_size)) if action_size else ("int64", (count,))
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {
        "observations": ("uint8", (count, *shape)),
        "actions": actions,
        **dict.fromkeys(("seeds", "episode_frames"), ("int64", (count,))),
        **dict.fromkeys(("rewards", "raw_rewards"), ("float64", (count,))),
        **dict.fromkeys(("chosen", "terminated", "truncated", "life_lost", "game_over"), ("bool", (count,))),
    }
    places, offset = {}, 0
    for name, (dtype, size) in kinds.items():
        places[name] = (offset, dtype, size)
        offset += -(-int(np.prod(size)) * np.dtype(dtype).itemsize // 64) * 64
    return places, offset


def arrays_in(memory: Any, count: int, shape: Sequence[int], action_size: int) -> Arrays:
    """Return the arrays of a block of memory (`layout` gives its size)."""
    places, _ = layout(count, shape, action_size)
    return Arrays(
        **{
            name: np.ndarray(size, dtype, buffer=memory, offset=offset)
            for name, (offset, dtype, size) in places.items()
        }
    )


def action_size(space: Space) -> int:
    """Return how many numbers a continuous action has, 0 for a discrete one."""
    return 0 if isinstance(space, Discrete) else space.shape[0]


class Chunk:
    """Environments `first`, `first + 1`, … of a vector environment."""

    def __init__(self, envs: Sequence[Env], first: int) -> None:
        self.envs, self.first = list(envs), first

    def reset(self, arrays: Arrays) -> None:
        """Reset the chosen environments with their seeds."""
        for index, env in self._chosen(arrays):
            seed = int(arrays.seeds[index])
            observation, info = env.reset(None if seed == CONTINUE else seed)
            arrays.seeds[index] = CONTINUE if info["seed"] is None else info["seed"]
            arrays.observations[index] = observation
            arrays.episode_frames[index] = env.episode_frames

    def step(self, arrays: Arrays) -> None:
        """Step the chosen environments with their actions."""
        actions = arrays.actions.tolist() if arrays.actions.ndim == 1 else arrays.actions
        for index, env in self._chosen(arrays):
            observation, reward, terminated, truncated, info = env.step(actions[index])
            arrays.observations[index] = observation
            arrays.rewards[index], arrays.raw_rewards[index] = reward, info["raw_reward"]
            arrays.terminated[index], arrays.truncated[index] = terminated, truncated
            arrays.life_lost[index], arrays.game_over[index] = info["life_lost"], info["game_over"]
            arrays.episode_frames[index] = info["episode_frames"]

    def facts(self) -> list[dict[str, Any]]:
        """Return `facts()` of each environment."""
        return [env.facts() for env in self.envs]

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _chosen(self, arrays: Arrays) -> list[tuple[int, Env]]:
        chosen = arrays.chosen.tolist()
        return [(index, env) for index, env in enumerate(self.envs, start=self.first) if chosen[index]]


def describe_space(space: Space) -> dict[str, Any]:
    """Return a space ready for JSON."""
    return {"n": space.n} if isinstance(space, Discrete) else {"low": space.low, "high": space.high}


def read_space(values: dict[str, Any]) -> Space:
    """Return the space that `describe_space` described."""
    return Discrete(values["n"]) if "n" in values else Box(tuple(values["low"]), tuple(values["high"]))
