"""Fakes of agents, environments and adapters that check how they are used; for fast unit tests. No torch.

Each raises `AssertionError`, with a line that says what was wrong, as soon as its partner breaks the protocol: steps an
environment that has ended, gives an action of another shape or type, acts with a state that is not the last one, says
that a frame starts a game when it does not. Everything is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from synora.envs.interface import Discrete, Env, Observation, Space, StepResult, Transition
from synora.envs.protocol import Protocol, named_protocol
from synora.envs.vector import VectorEnv, VectorStep

STEPS_SHOWN = 255  # the largest step count a pixel can hold


def _wrong(what: str) -> NoReturn:
    raise AssertionError(what)


class MockEnv(Env):
    """An environment of known length and rewards that refuses to be misused.

    The first pixel of a frame is the number of steps of the game so far, at most 255, and the second the low byte of
    the game's seed; so a frame is a game's first exactly when its first pixel is 0.

    Args:
        space: of the actions; default: three discrete ones.
        length: steps of a game.
        reward: of step t, counted from 1, given the game's seed.
        fails: whether the game with this seed raises at its last step.
        size: height and width of a frame.
        seed: base seed.

    Attributes:
        actions: all that were taken, in order.
    """

    def __init__(
        self,
        space: Space = Discrete(3),  # noqa: B008 - frozen
        *,
        length: int = 5,
        reward: Callable[[int, int], float] = lambda seed, step: 1.0,
        fails: Callable[[int], bool] = lambda seed: False,
        size: int = 64,
        seed: int = 0,
    ) -> None:
        count = space.n if isinstance(space, Discrete) else space.shape[0]
        super().__init__(
            env_id="mock",
            protocol=named_protocol("dummy").replace(size=size),
            channels=3,
            action_space=space,
            action_meanings=[f"action {index}" for index in range(count)],
            seed=seed,
        )
        self.actions: list[Any] = []
        self._length, self._reward, self._fails = length, reward, fails
        self._closed = False

    def reset(self, seed: int | None = None) -> tuple[Observation, dict[str, Any]]:
        """Start a game; see `Env.reset`."""
        if self._closed:
            _wrong("reset() of an environment that was closed")
        return super().reset(seed)

    def step(self, action: Any) -> StepResult:
        """Advance one step; see `Env.step`."""
        if self._closed:
            _wrong("step() of an environment that was closed")
        if not self._running:
            _wrong("step() without a running game: reset() comes first, and again after every end")
        _check_action(action, self.action_space, ())
        return super().step(action)

    def close(self) -> None:
        """Close; using it afterwards is an error."""
        super().close()
        self._closed = True

    def render(self) -> Observation:
        """Return the frame."""
        image = np.zeros(self.observation_shape, np.uint8)
        image[0, 0] = min(self.episode_frames, STEPS_SHOWN)
        image[0, 1] = self._game_seed % 256
        return image

    def _start(self, seed: int) -> Observation:
        self.episode_frames = 0
        return self.render()

    def _advance(self, action: Any) -> Transition:
        self.episode_frames += 1
        self.actions.append(action)
        over = self.episode_frames >= self._length
        if over and self._fails(self._game_seed):
            raise RuntimeError(f"the game with seed {self._game_seed} fails, as it was told to")
        reward = float(self._reward(self._game_seed, self.episode_frames))
        return Transition(self.render(), reward, terminated=over, truncated=False)


class MockVectorEnv(VectorEnv):
    """Several `MockEnv` behind the interface of `synora.envs.vector.VectorEnv`.

    Args:
        num_envs: how many.
        make: makes one of them; default `MockEnv`.

    Attributes:
        envs: the environments.
        closed: whether `close` was called.
    """

    def __init__(self, num_envs: int, make: Callable[[], MockEnv] = MockEnv) -> None:
        self.num_envs = num_envs
        self.envs = [make() for _ in range(num_envs)]
        first = self.envs[0]
        self.env_id, self.seed = first.env_id, first.seed
        self.protocol: Protocol = first.protocol
        self.observation_shape, self.action_space = first.observation_shape, first.action_space
        self.action_meanings = first.action_meanings
        self.running = np.zeros(num_envs, np.bool_)
        self.closed = False
        self._last = np.zeros((num_envs, *self.observation_shape), np.uint8)

    def reset(self, mask: npt.ArrayLike | None = None, *, seeds: Sequence[int] | None = None) -> npt.NDArray[np.uint8]:
        """Start games in the chosen environments; see `VectorEnv.reset`."""
        chosen = np.flatnonzero(self._mask(mask))
        if seeds is not None and len(seeds) != len(chosen):
            _wrong(f"reset() got {len(seeds)} seeds for {len(chosen)} chosen environments")
        for place, index in enumerate(chosen):
            self._last[index], _ = self.envs[index].reset(None if seeds is None else seeds[place])
        self.running[chosen] = True
        return self._last.copy()

    def step(self, actions: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> VectorStep:
        """Step the chosen environments; see `VectorEnv.step`."""
        chosen = self._mask(mask)
        if ended := np.flatnonzero(chosen & ~self.running).tolist():
            _wrong(f"step() of environments {ended}, which have no running game: leave them out or reset(mask) them")
        taken = np.asarray(actions)
        _check_action(taken, self.action_space, (self.num_envs,))
        numbers = np.zeros((2, self.num_envs))
        flags = np.zeros((4, self.num_envs), np.bool_)
        for index in np.flatnonzero(chosen):
            result = self.envs[index].step(taken[index])
            self._last[index] = result.observation
            numbers[:, index] = result.reward, result.info["raw_reward"]
            over = result.info["game_over"]
            flags[:, index] = result.terminated, result.truncated, result.info["life_lost"], over
            self.running[index] = not (result.terminated or result.truncated)
        frames = np.array([env.episode_frames for env in self.envs])
        rewards, raw = numbers
        terminated, truncated, life_lost, game_over = flags
        return VectorStep(self._last.copy(), rewards, terminated, truncated, raw, life_lost, game_over, frames, chosen)

    @property
    def local(self) -> bool:
        """Whether pictures can be had: always."""
        return True

    def render(self, index: int) -> Observation:
        """Return the frame of one environment."""
        return self.envs[index].render()

    def facts(self) -> list[dict[str, Any]]:
        """Return an empty mapping for each environment."""
        return [env.facts() for env in self.envs]

    def close(self) -> None:
        """Close all; using them afterwards is an error."""
        self.closed = True
        for env in self.envs:
            env.close()

    def __enter__(self) -> MockVectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mask(self, mask: Any) -> npt.NDArray[np.bool_]:
        if self.closed:
            _wrong("use of a vector environment that was closed")
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else np.asarray(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (self.num_envs,):
            _wrong(f"mask is {chosen.dtype} {chosen.shape}, not bool {(self.num_envs,)}")
        return chosen


class MockAgent:
    """An agent (`synora.envs.rollout.Agent`) that takes the actions 0, 1, 2, … of each game in turn.

    Args:
        space: of the actions.
        mock_frames: the frames come from `MockEnv`, so that `is_first` can be checked.
        acts: called with the number of the call to `act`, counted from 0; may raise.

    Attributes:
        calls: how often `act` was called.
    """

    def __init__(
        self,
        space: Space = Discrete(3),  # noqa: B008 - frozen
        *,
        mock_frames: bool = True,
        acts: Callable[[int], None] = lambda call: None,
    ) -> None:
        self._space, self._mock_frames, self._acts = space, mock_frames, acts
        self._state: dict[str, Any] | None = None
        self.calls = 0

    def initial(self, count: int) -> dict[str, Any]:
        """Return the state before the first frames."""
        if count < 1:
            _wrong(f"initial({count}): at least one environment")
        self._state = {"steps": np.zeros(count, np.int64), "known": np.zeros(count, np.bool_)}
        return self._state

    def act(
        self,
        observations: npt.NDArray[np.uint8],
        is_first: npt.NDArray[np.bool_],
        state: dict[str, Any],
        *,
        generator: Any = None,
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Check everything, and return the next actions."""
        if self._state is None:
            _wrong("act() before initial()")
        if state is not self._state:
            _wrong("act() with a state that is not what initial() or the last act() returned")
        count = len(state["steps"])
        if observations.dtype != np.uint8 or observations.ndim != 4 or len(observations) != count:
            _wrong(f"observations are {observations.dtype} {observations.shape}, not uint8 ({count}, H, W, C)")
        if is_first.dtype != np.bool_ or is_first.shape != (count,):
            _wrong(f"is_first is {is_first.dtype} {is_first.shape}, not bool ({count},)")
        if self._mock_frames:
            starts = observations[:, 0, 0, 0] == 0
            playing = is_first | state["known"]
            if rows := np.flatnonzero(playing & (starts != is_first)).tolist():
                _wrong(f"is_first is {is_first[rows[0]]} in row {rows[0]}, whose frame says {starts[rows[0]]}")
            if rows := np.flatnonzero(~playing & ~starts).tolist():
                _wrong(f"row {rows[0]} shows a game in progress that never had is_first")
        self.calls += 1
        self._acts(self.calls - 1)
        steps = np.where(is_first, 0, state["steps"])
        self._state = {"steps": steps + 1, "known": state["known"] | is_first}
        if isinstance(self._space, Discrete):
            return steps % self._space.n, self._state
        low, high = np.asarray(self._space.low, np.float32), np.asarray(self._space.high, np.float32)
        share = ((steps % 3) / 2).astype(np.float32)[:, None]
        return (low + share * (high - low)).astype(np.float32), self._state


class MockAdapter:
    """A benchmark adapter with given returns; checks that it is loaded before it is asked, and asked for its number.

    Args:
        returns: of the episodes, None for a failed one; repeated as often as needed.
        extra: any further argument of the benchmark (`env_spec`, `seed`, `device`, …), kept in `arguments`.

    Attributes:
        arguments: what it was made with.
        loaded: path of the checkpoint; None before `load_checkpoint`.
    """

    name = "mock"

    def __init__(self, returns: Sequence[float | None] = (1.0, 2.0, 3.0), **extra: Any) -> None:
        self.returns = list(returns)
        self.arguments: Mapping[str, Any] = extra
        self.loaded: str | None = None

    def load_checkpoint(self, path: str) -> None:
        """Note the path, which must exist."""
        if not isinstance(path, str):
            _wrong(f"load_checkpoint() got {path!r}, not a text")
        if not Path(path).exists():
            _wrong(f"load_checkpoint() got {path!r}, which does not exist")
        self.loaded = path

    def evaluate(self, num_episodes: int, render: bool = False) -> dict[str, Any]:
        """Return the given returns."""
        if self.loaded is None:
            _wrong("evaluate() before load_checkpoint()")
        if isinstance(num_episodes, bool) or not isinstance(num_episodes, int) or num_episodes < 1:
            _wrong(f"evaluate() got {num_episodes!r} episodes, not a whole number of at least 1")
        if not isinstance(render, bool):
            _wrong(f"evaluate() got render={render!r}, not true or false")
        found: dict[str, Any] = {"episode_returns": [self.returns[k % len(self.returns)] for k in range(num_episodes)]}
        if render:
            found["frames"] = [np.zeros((1, 4, 4, 3), np.uint8) for _ in range(num_episodes)]
        return found


def _check_action(action: Any, space: Space, batch: tuple[int, ...]) -> None:
    """Raise AssertionError unless these are actions of the space, with the leading shape `batch`."""
    value = np.asarray(action)
    if isinstance(space, Discrete):
        if value.dtype.kind not in "iu" or value.shape != batch:
            _wrong(f"action is {value.dtype} {value.shape}, not whole numbers {batch}")
        return
    if value.dtype != np.float32 or value.shape != (*batch, *space.shape):
        _wrong(f"action is {value.dtype} {value.shape}, not float32 {(*batch, *space.shape)}")
