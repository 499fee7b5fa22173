"""Collecting experience into replay with a policy, for every algorithm, from one environment or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from synora.envs.interface import Discrete
from synora.envs.lanes import Lanes
from synora.envs.vector import Flags, VectorEnv

# (frames (N, C, H, W) uint8, fresh (N,) bool: the frame starts an episode, interactions so far) -> actions:
# (N,) whole numbers or (N, A) one-hot for discrete spaces, (N, A) floats for continuous ones.
Policy = Callable[[npt.NDArray[np.uint8], Flags, int], npt.NDArray[Any]]

# Simulators that take long enough for a step that sending it to another process pays.
_SLOW_BACKENDS = ("ale", "gym")


class ReplayWriter(Protocol):
    """What the collector needs of a replay; `synora.runtime.replay.Replay` has it."""

    def add(
        self,
        *,
        image: npt.NDArray[np.uint8],
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        is_first: npt.NDArray[Any],
        is_terminal: npt.NDArray[Any],
        is_last: npt.NDArray[Any],
        step: int,
        streams: Sequence[int] | None = None,
    ) -> None:
        """Append one frame to each stream."""


class Collector:
    """Steps a vector environment with a policy and writes what happens into replay, one stream a lane.

    A frame goes into replay with the action and the reward that led to it. The first frame of an episode is written
    when the episode starts; it is no interaction and has no action. Nothing is written that did not happen.

    Results do not depend on how many processes step the environments, and a collector that is loaded from a checkpoint
    goes on as the saved one would have.

    Args:
        envs: used by this collector alone, and closed with it.
        replay: with as many streams as there are environments.
        action_shape: of one action as the policy gives it and replay stores it; () for an action's number.

    Attributes:
        lanes: the environments and their last frames.
        step: interactions so far.
    """

    def __init__(self, envs: VectorEnv, replay: ReplayWriter, action_shape: Sequence[int] = ()) -> None:
        self.lanes, self.step = Lanes(envs), 0
        self._replay, self._action_shape = replay, tuple(action_shape)

    def collect(self, steps: int, policy: Policy) -> dict[str, float]:
        """Take interactions into replay.

        Args:
            steps: how many, a multiple of the number of environments.
            policy: chooses the actions; called once for every step of all environments together.

        Returns:
            `return` (sum of raw rewards) and `game_length` (agent steps): means over the games that ended; empty when
            none did.

        Raises:
            ValueError: `steps` is no such multiple.
            WorkerError: an environment failed.
        """
        count = self.lanes.envs.num_envs
        if steps % count:
            raise ValueError(f"{steps} interactions cannot be shared by {count} environments")
        for _ in range(steps // count):
            fresh = self.lanes.start()
            if fresh.any():
                self._add_first(np.flatnonzero(fresh))
            actions = policy(self.lanes.frames, fresh, self.step)
            result = self.lanes.step(self._for_envs(actions))
            self.step += count
            self._replay.add(
                image=self.lanes.frames,
                action=actions,
                reward=result.rewards,
                is_first=np.zeros(count, np.bool_),
                is_terminal=result.terminated,
                is_last=result.done,
                step=self.step,
            )
        games = self.lanes.take_finished()
        if not games:
            return {}
        scores, lengths = zip(*games, strict=True)
        return {"return": float(np.mean(scores)), "game_length": float(np.mean(lengths))}

    def state_dict(self) -> dict[str, Any]:
        """Return the counter and the environments' games."""
        return {"step": self.step, **self.lanes.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a checkpoint: the games in progress are played up to where they stood.

        Raises:
            FileError: a game does not arrive there.
        """
        self.lanes.load_state_dict(state)
        self.step = int(state["step"])

    def close(self) -> None:
        """Close the environments."""
        self.lanes.close()

    def _add_first(self, started: npt.NDArray[np.int64]) -> None:
        count = len(started)
        none = np.zeros(count, np.bool_)
        self._replay.add(
            image=self.lanes.frames[started],
            action=np.zeros((count, *self._action_shape)),
            reward=np.zeros(count),
            is_first=~none,
            is_terminal=none,
            is_last=none,
            step=self.step,
            streams=started.tolist(),
        )

    def _for_envs(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        discrete = isinstance(self.lanes.envs.action_space, Discrete)
        return np.argmax(actions, axis=1) if discrete and actions.ndim == 2 else actions


def auto_workers(backend: str, num_envs: int) -> int | None:
    """Return the `workers` of `make_vector_env` with which collecting is fastest: None is one a usable CPU.

    Args:
        backend: the environment's, resolved: `protocol.backend`.
        num_envs: environments stepped together.
    """
    return None if num_envs > 1 and backend in _SLOW_BACKENDS else 0
