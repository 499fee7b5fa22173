"""One environment as the trainer drives it: games have derived seeds, and a checkpoint brings it back exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from synora.core.errors import FileError
from synora.envs.interface import Discrete, Env, StepResult, episode_seed

RESUME = np.nan  # in the list of a game's actions: an episode ended with a lost life, and the game went on


class Lane:
    """An environment and what is needed to put a copy of it where this one stands.

    Simulators cannot be saved, but they are deterministic: a new one, given the game's seed and the actions so far,
    arrives at the same place.

    Args:
        env: used by this lane alone.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self.frame: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.done = True  # the next thing to do is a reset
        self.score = 0.0
        self.length = 0
        self._games = 0
        self._game_over = True
        self._actions: list[NDArray[np.float64]] = []

    def reset(self) -> NDArray[np.uint8]:
        """Start the next episode, of the same game after a lost life, and return its first frame (C, H, W)."""
        self.done = False
        if not self._game_over:
            observation, info = self.env.reset()
            if info["seed"] is None:
                self._actions.append(np.full(self._width(), RESUME))
                return self._take(observation)
            # The step between two lives ended the game: what the environment started instead has not our seed.
        observation, _ = self.env.reset(seed=episode_seed(self.env.seed, self._games))
        self._games += 1
        self._actions = []
        self._game_over, self.score, self.length = False, 0.0, 0
        return self._take(observation)

    def step(self, action: NDArray[np.float32]) -> StepResult:
        """Advance with an action as agents give it: one-hot (A,) for discrete spaces, a vector otherwise."""
        chosen = np.argmax(action) if isinstance(self.env.action_space, Discrete) else action
        self._actions.append(np.atleast_1d(np.asarray(chosen, np.float64)))
        result = self.env.step(int(chosen) if isinstance(self.env.action_space, Discrete) else action)
        self._take(result.observation)
        self.done = result.terminated or result.truncated
        self._game_over = bool(result.info["game_over"])
        self.score += float(result.info["raw_reward"])
        self.length += 1
        return result

    @property
    def game_over(self) -> bool:
        """Whether the last step ended the whole game; `score` and `length` are then those of the game."""
        return self._game_over

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        width = self._width()
        return {
            "games": self._games,
            "actions": np.stack(self._actions) if self._actions else np.zeros((0, width)),
            "frame": self.frame.copy(),
            "done": self.done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Play the saved game up to where it stood.

        Raises:
            FileError: the environment does not arrive at the saved frame.
        """
        self._games = max(0, int(state["games"]) - 1)
        self._game_over, self.done = True, True
        if not state["games"]:
            return
        self.reset()
        for action in state["actions"]:
            if np.isnan(action).any():
                self.reset()
            else:
                self.step(self._as_given(action))
        if self.done != state["done"] or not np.array_equal(self.frame, state["frame"]):
            raise FileError(
                f"{self.env.env_id} does not come back to where the checkpoint left it; the simulator's version or "
                "the protocol has changed. Start a new run, or install the versions the checkpoint names."
            )

    def _take(self, observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
        self.frame = np.ascontiguousarray(observation.transpose(2, 0, 1))
        return self.frame

    def _width(self) -> int:
        space = self.env.action_space
        return 1 if isinstance(space, Discrete) else len(space.low)

    def _as_given(self, action: NDArray[np.float64]) -> NDArray[np.float32]:
        space = self.env.action_space
        if isinstance(space, Discrete):
            return np.eye(space.n, dtype=np.float32)[int(action[0])]
        return action.astype(np.float32)
