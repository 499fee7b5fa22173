"""Playing whole games with an agent: the one loop behind evaluation, the returns benchmark and videos.

Games are given by their seeds and every one of them counts, so short games are not favoured as they are where the first
n to end are taken. Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from synora.core.errors import SynoraError, UsageError
from synora.envs.factory import make_vector_env, resolve_env
from synora.envs.interface import Discrete, Observation, Space, check_seed
from synora.envs.protocol import Protocol as RulesProtocol
from synora.envs.vector import VectorEnv

LONGEST_ERROR = 300
PATIENCE = 3


class Agent(Protocol):
    """Chooses actions for a batch of environments.

    An agent may hold a memory of each environment (the `state`), which it gets back at the next call.
    """

    def initial(self, count: int, /) -> Any:
        """Return the state before the first frame of `count` environments."""

    def act(
        self, observations: npt.NDArray[np.uint8], is_first: npt.NDArray[np.bool_], state: Any, /, *, generator: Any
    ) -> tuple[npt.NDArray[Any], Any]:
        """Choose an action for every environment.

        Args:
            observations: (N, H, W, C) uint8.
            is_first: (N,) the observation starts a game: what was remembered of that environment is to be dropped.
            state: what `initial` or the last `act` returned.
            generator: source of the draws, of the kind the agent needs.

        Returns:
            Actions as `VectorEnv.step` takes them, (N,) whole numbers or (N, A) float32, and the new state.
        """


@runtime_checkable
class TellsGames(Protocol):
    """An agent that wants to know which game starts where, so that its draws belong to the game and not to the row."""

    def start_game(self, row: int, seed: int, /) -> None:
        """Learn that the next observation in `row` starts the game with this seed."""


@dataclass(frozen=True)
class Game:
    """One game, played to its end or failed.

    Attributes:
        index: its place among the seeds that were asked for.
        seed: of the game.
        status: "failed" games have an error and no score.
        score: sum of raw rewards; None when the game failed.
        length: agent steps, of a failed game those before the failure.
        frames: emulator frames, no-op starts included.
        error: one line; None when the game was played to its end.
        figures: what bsuite's scores need of the game; None when it failed, and in other backends.
    """

    index: int
    seed: int
    status: Literal["ok", "failed"]
    score: float | None
    length: int
    frames: int
    error: str | None = None
    figures: dict[str, float] | None = None


class RandomAgent:
    """Draws actions uniformly from the space; the draws belong to the game, whatever is played beside it.

    Args:
        space: of the actions.
        seed: together with a game's seed it decides the draws of that game.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        self._space, self._seed = space, check_seed(seed)
        self._rngs: list[np.random.Generator] = []

    def initial(self, count: int) -> None:
        """Forget all games."""
        self._rngs = [np.random.default_rng((self._seed, row)) for row in range(count)]

    def start_game(self, row: int, seed: int) -> None:
        """Start the draws of a game."""
        self._rngs[row] = np.random.default_rng((self._seed, seed))

    def act(
        self,
        observations: npt.NDArray[np.uint8],
        is_first: npt.NDArray[np.bool_],
        state: None,
        *,
        generator: Any = None,
    ) -> tuple[npt.NDArray[Any], None]:
        """Return one draw for every row, (N,) int64 or (N, A) float32."""
        return np.stack([np.asarray(self._space.sample(rng)) for rng in self._rngs]), None


def evaluation_envs(
    game: str,
    num_envs: int,
    *,
    backend: str = "auto",
    protocol: str | RulesProtocol | None = None,
    local: bool = False,
    options: Mapping[str, Any] | None = None,
) -> VectorEnv:
    """Make the environments of an evaluation, in worker processes where a step takes long enough for that to pay.

    Args:
        game: as in `make_env`.
        num_envs: how many.
        backend: as in `make_env`.
        protocol: as in `make_env`.
        local: keep them in this process, for pictures.
        options: as in `make_env`.

    Raises:
        UsageError, DependencyMissing: as `make_vector_env`.
    """
    resolved, _ = resolve_env(game, backend=backend, protocol=protocol)
    cheap = resolved.backend in ("bsuite", "dummy")
    return make_vector_env(
        game, num_envs, backend=backend, protocol=protocol, workers=0 if local or cheap else None, options=options
    )


def evaluation(games: Sequence[Game]) -> dict[str, Any]:
    """Return what the benchmark adapters return for games, ready for JSON; failed games have None as their return."""
    return {
        "episode_returns": [game.score for game in games],
        "episode_lengths": [game.length for game in games],
        "episode_frames": [game.frames for game in games],
        "episode_seeds": [game.seed for game in games],
        "episodes": [asdict(game) for game in games],
    }


def play_games(
    make_envs: Callable[[], VectorEnv],
    agent: Agent,
    seeds: Sequence[int],
    *,
    generator: Any = None,
    on_game: Callable[[Game], None] | None = None,
    on_step: Callable[[int], None] | None = None,
    on_frame: Callable[[int, Observation], None] | None = None,
) -> list[Game]:
    """Play one whole game for every seed, side by side.

    An environment whose game ended gets the next seed; when none is left it is not stepped any more. A reward that is
    not finite, or an action outside the action space, fails its game. Any other failure (an exception of an
    environment, a worker or the agent) fails all games in progress, because it leaves them in an unknown state: the
    environments are made anew and the remaining games go on. After `PATIENCE` such failures without a completed game
    between them, the remaining games fail too.

    Args:
        make_envs: makes the environments, under an evaluation protocol; called again after a failure. They are closed
            here.
        agent: chooses the actions; `agent.start_game` is called where it exists.
        seeds: one a game.
        generator: handed to the agent.
        on_game: called with every game as it ends.
        on_step: called after every step with the number of agent steps so far.
        on_frame: called with a game's index and its picture for people, (H, W, 3) uint8, at its start and after each
            step; needs environments that live in this process (`workers=0`).

    Returns:
        The games in the order of `seeds`.

    Raises:
        UsageError: a seed is not allowed, the protocol lets lost lives end episodes, or frames are asked of workers.
        SynoraError: the environments cannot be made at all.
    """
    run = _Run(agent, generator, deque(enumerate(check_seed(seed) for seed in seeds)), on_game, on_step, on_frame)
    failures, completed = 0, 0
    while run.waiting:
        try:
            envs = make_envs()
        except Exception as error:
            if not run.games:  # nothing was played: the caller asked for something that does not exist
                raise
            run.give_up(_one_line(error))
            break
        with envs:
            _require_usable(envs, pictures=on_frame is not None)
            try:
                run.play(envs)
            except _Failure as failure:
                failures = failures + 1 if run.completed == completed else 1
                completed = run.completed
                if failures == PATIENCE:
                    run.give_up(failure.line)
    return [run.games[index] for index in sorted(run.games)]


def _require_usable(envs: VectorEnv, *, pictures: bool) -> None:
    if envs.protocol.life_loss != "ignore":
        raise UsageError(
            f"protocol {envs.protocol.name} ({envs.protocol.phase}) ends episodes at lost lives; whole games need an "
            "evaluation protocol."
        )
    if pictures and not envs.local:
        raise UsageError("pictures of games need environments in this process: workers=0.")


class _Failure(Exception):
    """Something went wrong in an environment or the agent, not in the caller's functions."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.line = _one_line(error)


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    """Turn every exception inside into a `_Failure`."""
    try:
        yield
    except Exception as error:
        raise _Failure(error) from error


@dataclass
class _Seat:
    """A game in progress."""

    index: int
    seed: int
    score: float = 0.0
    length: int = 0
    frames: int = 0


class _Run:
    """The games that wait, are played and are done."""

    def __init__(
        self,
        agent: Agent,
        generator: Any,
        waiting: deque[tuple[int, int]],
        on_game: Callable[[Game], None] | None,
        on_step: Callable[[int], None] | None,
        on_frame: Callable[[int, Observation], None] | None,
    ) -> None:
        self.agent, self.generator, self.waiting = agent, generator, waiting
        self.on_game, self.on_step, self.on_frame = on_game, on_step, on_frame
        self.games: dict[int, Game] = {}
        self.completed = 0
        self.steps = 0
        self.seats: list[_Seat | None] = []

    def play(self, envs: VectorEnv) -> None:
        """Play until no game waits and none is in progress; on a failure the games in progress are failed."""
        self.seats = [None] * envs.num_envs
        try:
            self._play(envs)
        except _Failure as failure:
            rows = [row for row, seat in enumerate(self.seats) if seat is not None]
            which = f" (in one of {len(rows)} games side by side)" if len(rows) > 1 else ""
            for row in rows:
                self._end(row, failure.line + which)
            raise

    def give_up(self, why: str) -> None:
        """Fail every game that waits."""
        while self.waiting:
            index, seed = self.waiting.popleft()
            self._record(Game(index, seed, "failed", None, 0, 0, f"not started: {why}"))

    def _play(self, envs: VectorEnv) -> None:
        observations = np.zeros((envs.num_envs, *envs.observation_shape), np.uint8)
        with _failing():
            state = self.agent.initial(envs.num_envs)
        while True:
            fresh = self._seat()
            playing = np.array([seat is not None for seat in self.seats])
            if not playing.any():
                return
            with _failing():
                if fresh.any():
                    observations = self._start(envs, fresh)
                actions, state = self.agent.act(observations, fresh, state, generator=self.generator)
                actions = np.asarray(actions)
                allowed = _allowed(envs, actions)
            self._show(envs, fresh)
            for row in np.flatnonzero(playing & ~allowed):
                self._end(int(row), f"the agent's action {actions[row]} is not in the action space")
            playing &= allowed
            if not playing.any():
                continue
            with _failing():
                step = envs.step(actions, playing)
            observations = step.observations
            self._count(step.raw_rewards, step.episode_frames, playing)
            self._show(envs, playing)
            figures = self._figures(envs, playing & step.game_over)
            for row in np.flatnonzero(playing):
                reward = step.raw_rewards[row]
                if not math.isfinite(reward):
                    self._end(int(row), f"the environment's reward is {reward}")
                elif step.game_over[row]:
                    self._end(int(row), None, figures[int(row)])

    def _seat(self) -> npt.NDArray[np.bool_]:
        """Give the free environments the next games; return which got one."""
        fresh = np.zeros(len(self.seats), np.bool_)
        for row, seat in enumerate(self.seats):
            if seat is None and self.waiting:
                self.seats[row] = _Seat(*self.waiting.popleft())
                fresh[row] = True
        return fresh

    def _start(self, envs: VectorEnv, fresh: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
        starting = [(row, seat.seed) for row, seat in enumerate(self.seats) if seat is not None and fresh[row]]
        if isinstance(self.agent, TellsGames):
            for row, seed in starting:
                self.agent.start_game(row, seed)
        return envs.reset(fresh, seeds=[seed for _, seed in starting])

    def _count(
        self, rewards: npt.NDArray[np.float64], frames: npt.NDArray[np.int64], playing: npt.NDArray[np.bool_]
    ) -> None:
        for row, seat in enumerate(self.seats):
            if seat is not None and playing[row]:
                seat.score += float(rewards[row])
                seat.length += 1
                seat.frames = int(frames[row])
        self.steps += int(playing.sum())
        if self.on_step is not None:
            self.on_step(self.steps)

    def _show(self, envs: VectorEnv, rows: npt.NDArray[np.bool_]) -> None:
        if self.on_frame is None:
            return
        for row, seat in enumerate(self.seats):
            if seat is not None and rows[row]:
                with _failing():
                    picture = envs.render(row)
                self.on_frame(seat.index, picture)

    def _figures(self, envs: VectorEnv, ended: npt.NDArray[np.bool_]) -> Sequence[dict[str, float] | None]:
        """Return what the environments say of the games that ended now, beyond their rewards, a row each."""
        if envs.protocol.backend != "bsuite" or not ended.any():
            return [None] * envs.num_envs
        with _failing():
            return [dict(facts["game_info"]) for facts in envs.facts()]

    def _end(self, row: int, error: str | None, figures: dict[str, float] | None = None) -> None:
        """Record the game in a row and free the row."""
        seat = self.seats[row]
        assert seat is not None
        self.seats[row] = None
        if error is None and not math.isfinite(seat.score):
            error = f"the sum of the rewards is {seat.score}"
        self.completed += error is None
        status: Literal["ok", "failed"] = "ok" if error is None else "failed"
        score = seat.score if error is None else None
        if error is not None:
            figures = None
        self._record(Game(seat.index, seat.seed, status, score, seat.length, seat.frames, error, figures))

    def _record(self, game: Game) -> None:
        self.games[game.index] = game
        if self.on_game is not None:
            self.on_game(game)


def _allowed(envs: VectorEnv, actions: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return (N,) which actions are in the space; shapes and types are checked by `VectorEnv.step`."""
    space = envs.action_space
    if isinstance(space, Discrete):
        if actions.dtype.kind in "iu" and actions.shape == (envs.num_envs,):
            return np.asarray((actions >= 0) & (actions < space.n))
    elif actions.dtype.kind == "f" and actions.shape == (envs.num_envs, *space.shape):
        return np.asarray(np.isfinite(actions).all(axis=1))
    return np.ones(envs.num_envs, np.bool_)


def _one_line(error: Exception) -> str:
    known = isinstance(error, SynoraError) and not isinstance(error, UsageError)
    text = " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 3] + "..."
