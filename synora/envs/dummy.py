"""A deterministic fake environment that writes its own step count into the picture, for tests of loops and replay."""

from __future__ import annotations

from typing import Any

import numpy as np

from synora.envs.interface import Box, Discrete, Env, Observation, Transition
from synora.envs.protocol import Protocol

LENGTH = 10


class DummyEnv(Env):
    """Counts its steps; every game lasts a known number of them.

    The pixel (0, 0) holds the step count of the episode modulo 256, (0, 1) the low byte of the game's seed, (0, 2) the
    last action (a continuous one as a byte: -1 to 1 is 0 to 255); the three channels are equal and the rest of the
    image is the step count. The reward of step t is t. Lives fall every `life_every` steps, when that is set.

    Args:
        protocol: the `dummy` protocol or one made from it.
        seed: base seed of the games.
        length: steps of a game.
        truncate: games are truncated instead of terminated.
        life_every: steps between lost lives; 0 for a game without lives.
        fail_at: step of a game that raises, for tests of error handling; 0 for never.
        continuous: a `Box` of two numbers instead of three discrete actions.
    """

    def __init__(
        self,
        protocol: Protocol,
        *,
        seed: int = 0,
        length: int = LENGTH,
        truncate: bool = False,
        life_every: int = 0,
        fail_at: int = 0,
        continuous: bool = False,
    ) -> None:
        space = Box((-1.0, -1.0), (1.0, 1.0)) if continuous else Discrete(3)
        super().__init__(
            env_id="dummy/continuous" if continuous else "dummy",
            protocol=protocol,
            channels=3,
            action_space=space,
            action_meanings=("first", "second") if continuous else ("NOOP", "LEFT", "RIGHT"),
            seed=seed,
        )
        self._length, self._truncate, self._life_every, self._fail_at = length, truncate, life_every, fail_at
        self._action = 0

    def _start(self, seed: int) -> Observation:
        self._action, self.episode_frames = 0, 0
        return self.render()

    def _advance(self, action: Any) -> Transition:
        self.episode_frames += 1
        if self.episode_frames == self._fail_at:
            raise RuntimeError(f"dummy failure at step {self._fail_at}")
        self._action = action if isinstance(action, int) else round((float(action[0]) + 1.0) / 2.0 * 255.0)
        over = self.episode_frames >= self._length
        lost = bool(self._life_every) and self.episode_frames % self._life_every == 0
        return Transition(
            self.render(), float(self.episode_frames), over and not self._truncate, over and self._truncate, lost
        )

    def _resume(self) -> Transition:
        return Transition(self.render(), 0.0, terminated=False, truncated=False)

    def render(self) -> Observation:
        """Return the observation (size, size, 3) uint8."""
        image = np.full(self.observation_shape, self.episode_frames % 256, np.uint8)
        image[0, 1] = self._game_seed % 256
        image[0, 2] = self._action
        return image
