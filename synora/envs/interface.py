"""What every environment looks like to agents, training and evaluation, and how its episodes are seeded."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from synora.core.errors import SynoraError, UsageError
from synora.envs.protocol import Protocol

Observation = npt.NDArray[np.uint8]
Action = int | np.integer[Any] | Sequence[float] | npt.NDArray[Any]


@dataclass(frozen=True)
class Discrete:
    """Actions 0 to n - 1."""

    n: int

    def check(self, action: Any) -> int:
        """Return the action as an int.

        Raises:
            UsageError: not a whole number, or outside 0 to n - 1.
        """
        if type(action) is int and 0 <= action < self.n:
            return action
        try:
            # A 0-d or 1-element array is what a batch of one gives; a float or a bool is a mistake upstream.
            value = np.asarray(action).reshape(())
        except (ValueError, TypeError):
            value = np.asarray(math.nan)
        if value.dtype.kind not in "iu" or not 0 <= value < self.n:
            raise UsageError(f"action {action!r} is not a whole number from 0 to {self.n - 1}.")
        return int(value)

    def sample(self, rng: np.random.Generator) -> int:
        """Draw an action uniformly."""
        return int(rng.integers(self.n))


@dataclass(frozen=True)
class Box:
    """Actions that are vectors of float32 between `low` and `high`, one bound for each number."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def shape(self) -> tuple[int]:
        """The shape of one action."""
        return (len(self.low),)

    def check(self, action: Any) -> npt.NDArray[np.float32]:
        """Return the action as a float32 vector, values beyond the bounds put on them.

        Raises:
            UsageError: wrong shape, not numbers, or not finite.
        """
        try:
            value = np.asarray(action, dtype=np.float32)
        except (ValueError, TypeError):
            value = np.asarray(math.nan, dtype=np.float32)
        if value.shape != self.shape or not np.isfinite(value).all():
            raise UsageError(f"action {action!r} is not a vector of {len(self.low)} finite numbers.")
        return np.clip(value, np.asarray(self.low, np.float32), np.asarray(self.high, np.float32))

    def sample(self, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Draw an action uniformly, (A,) float32."""
        return rng.uniform(self.low, self.high).astype(np.float32)


Space = Discrete | Box


class Transition(NamedTuple):
    """What a backend reports of one agent step, before the protocol's train and eval rules."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    life_lost: bool = False


class StepResult(NamedTuple):
    """What `Env.step` returns; unpacks like Gymnasium's five values."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed of the k-th game of a run, 53 bits wide (exact in JSON), whatever runs beside it.

    Args:
        seed: the run's base seed, not negative.
        episode: k, from 0.
    """
    state = np.random.SeedSequence(seed, spawn_key=(episode,)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(11))


def check_seed(seed: Any) -> int:
    """Return the seed as an int.

    Raises:
        UsageError: not a whole number from 0 to 2**63 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 1 << 63:
        raise UsageError(f"seed {seed!r} is not a whole number from 0 to 2**63 - 1.")
    return int(seed)


class Env(ABC):
    """One environment with image observations.

    An *episode* ends when `step` reports terminated or truncated; a *game* ends when `info["game_over"]` is true. The
    two differ only where the protocol lets a lost life end an episode: then `reset()` goes on with the next life.

    Attributes:
        env_id: the canonical name ("Breakout", "catch/0", "Pendulum-v1").
        protocol: the rules it runs under.
        observation_shape: (height, width, channels); observations are uint8 arrays that nobody else holds.
        action_space: `Discrete` or `Box`.
        action_meanings: a word for each discrete action, or for each number of a continuous one.
        seed: base seed; `reset()` gives game k the seed `episode_seed(seed, k)`.
        episode_frames: emulator (or simulator) frames of the current game so far, no-op starts included.
    """

    def __init__(
        self,
        *,
        env_id: str,
        protocol: Protocol,
        channels: int,
        action_space: Space,
        action_meanings: Sequence[str],
        seed: int,
    ) -> None:
        self.env_id = env_id
        self.protocol = protocol
        self.observation_shape = (protocol.size, protocol.size, channels)
        self.action_space = action_space
        self.action_meanings = tuple(action_meanings)
        self.seed = check_seed(seed)
        self.episode_frames = 0
        self._games = 0
        self._game_seed = 0
        self._running = False
        self._between_lives = False

    def reset(self, seed: int | None = None) -> tuple[Observation, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: start a new game with exactly this seed. None: after a lost life go on with the same game, otherwise
                start the next game with its derived seed.

        Returns:
            The observation and the info: `seed` of a new game (None when a game goes on), and the keys of `step`.

        Raises:
            UsageError: the seed is not a whole number from 0 to 2**63 - 1.
        """
        if seed is None and self._between_lives:
            transition = self._resume()
            self._between_lives = False
            if not (transition.terminated or transition.truncated):
                self._running = True
                return transition.observation, {"seed": None, **self._info(transition, 0.0, game_over=False)}
            # The game ended on the way into its next life: its successor is not one of the run's numbered games.
            seed = episode_seed(self._game_seed, 0)
        if seed is None:
            seed = episode_seed(self.seed, self._games)
            self._games += 1
        self._running = self._between_lives = False
        self._game_seed = check_seed(seed)
        observation = self._start(self._game_seed)
        self._running = True
        start = Transition(observation, 0.0, terminated=False, truncated=False)
        return observation, {"seed": self._game_seed, **self._info(start, 0.0, game_over=False)}

    def step(self, action: Action) -> StepResult:
        """Advance one agent step.

        Args:
            action: an int for a `Discrete` space, a float vector for a `Box`.

        Returns:
            Observation (H, W, C) uint8; reward as the protocol gives it; terminated; truncated; and info with
            `raw_reward` (unclipped), `life_lost`, `game_over`, `episode_frames` and what the backend adds.

        Raises:
            UsageError: the action does not fit the action space.
            SynoraError: the episode is over; call `reset()`.
        """
        if not self._running:
            raise SynoraError(f"{self.env_id}: no episode is running; call reset() before step().")
        transition = self._advance(self.action_space.check(action))
        game_over = transition.terminated or transition.truncated
        life_over = transition.life_lost and self.protocol.life_loss != "ignore" and not game_over
        self._running = not (game_over or life_over)
        self._between_lives = life_over
        reward = float(np.sign(transition.reward)) if self.protocol.reward_clip == "sign" else transition.reward
        info = self._info(transition, transition.reward, game_over=game_over)
        return StepResult(
            transition.observation, reward, transition.terminated or life_over, transition.truncated, info
        )

    def _info(self, transition: Transition, raw_reward: float, *, game_over: bool) -> dict[str, Any]:
        return {
            "raw_reward": raw_reward,
            "life_lost": transition.life_lost,
            "game_over": game_over,
            "episode_frames": self.episode_frames,
            **self.facts(),
        }

    def facts(self) -> dict[str, Any]:
        """Return what the backend adds to every info, ready for JSON."""
        return {}

    @abstractmethod
    def _start(self, seed: int) -> Observation:
        """Start a new game, everything random in it drawn from `seed`."""

    @abstractmethod
    def _advance(self, action: Any) -> Transition:
        """Advance one agent step with an action that fits the space."""

    def _resume(self) -> Transition:
        """Go on with the game after a lost life ended an episode."""
        raise NotImplementedError(f"{type(self).__name__} has no lives")

    @abstractmethod
    def render(self) -> Observation:
        """Return the current picture for people, (H, W, 3) uint8, at the simulator's own size."""

    def close(self) -> None:
        """Free what the simulator holds; calling it twice is fine."""
        self._running = False

    def __enter__(self) -> Env:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
