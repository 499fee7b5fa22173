"""Several environments of one kind stepped together, in this process or in worker processes.

There is no automatic reset. `step` returns the observation an episode ended on; the caller then resets the ended
environments by mask. So no transition exists that did not happen, whatever is stored.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from synora.core.errors import SynoraError, UsageError
from synora.envs.backends import build
from synora.envs.chunk import CONTINUE, Arrays, Chunk, action_size, arrays_in, layout, read_space
from synora.envs.ids import EnvId
from synora.envs.interface import Discrete, Space, check_seed, episode_seed
from synora.envs.pool import WorkerPool
from synora.envs.protocol import Protocol

Flags = npt.NDArray[np.bool_]


class VectorStep(NamedTuple):
    """One step of every chosen environment; rows of the others hold zeros and their last observation.

    Attributes:
        observations: (n, H, W, C) uint8, after the action, also where the episode ended.
        rewards: (n,) float64, as the protocol gives them.
        terminated: (n,) bool: ended by the task, or by a lost life where the protocol says so.
        truncated: (n,) bool: cut by a frame or step limit.
        raw_rewards: (n,) float64, unclipped.
        life_lost: (n,) bool.
        game_over: (n,) bool: the whole game ended, so that the next reset starts a new one.
        episode_frames: (n,) int64.
        stepped: (n,) bool: the environments this step was for.
    """

    observations: npt.NDArray[np.uint8]
    rewards: npt.NDArray[np.float64]
    terminated: Flags
    truncated: Flags
    raw_rewards: npt.NDArray[np.float64]
    life_lost: Flags
    game_over: Flags
    episode_frames: npt.NDArray[np.int64]
    stepped: Flags

    @property
    def done(self) -> Flags:
        """(n,) bool: the episodes that ended in this step; pass it to `reset`."""
        return self.terminated | self.truncated


class VectorEnv:
    """`num_envs` environments stepped together; made by `make_vector_env`.

    New games are numbered in the order of resets, lower environments first; game k is seeded with
    `episode_seed(seed, k)` however many environments there are.

    Attributes:
        num_envs, observation_shape, action_space, action_meanings, protocol, env_id, seed: as in `Env`.
        games: (n,) int64: the number k of each environment's current game, -1 before its first or with a given seed.
        running: (n,) bool: the environments with an episode in progress.
        next_game: the number of the next new game.
    """

    def __init__(
        self,
        resolved: EnvId,
        rules: Protocol,
        num_envs: int,
        *,
        seed: int,
        workers: int | None,
        options: dict[str, Any],
    ) -> None:
        self.env_id, self.protocol, self.num_envs, self.seed = resolved.name, rules, num_envs, seed
        count = len(os.sched_getaffinity(0)) if workers is None and hasattr(os, "sched_getaffinity") else workers
        count = min(os.cpu_count() or 1 if count is None else count, num_envs)
        self._pool: WorkerPool | None = None
        self._local: Chunk | None = None
        if count:
            order = {"env": asdict(resolved), "protocol": rules.model_dump(), "options": options}
            self._pool = WorkerPool(order, num_envs, count)
            greeting = self._pool.greeting
            self.observation_shape = tuple(greeting["observation_shape"])
            self.action_space: Space = read_space(greeting["action_space"])
            self.action_meanings = tuple(greeting["action_meanings"])
        else:
            self._local = Chunk([build(resolved, rules, seed=0, options=options) for _ in range(num_envs)], 0)
            first = self._local.envs[0]
            self.observation_shape, self.action_space = first.observation_shape, first.action_space
            self.action_meanings = first.action_meanings
        self._arrays = self._share()
        self.games = np.full(num_envs, -1, np.int64)
        self.running = np.zeros(num_envs, np.bool_)
        self._between_lives = np.zeros(num_envs, np.bool_)
        self.next_game = 0

    def _share(self) -> Arrays:
        size = action_size(self.action_space)
        _, total = layout(self.num_envs, self.observation_shape, size)
        memory = mmap.mmap(-1, total) if self._pool is None else self._pool.share(total)
        return arrays_in(memory, self.num_envs, self.observation_shape, size)

    def reset(self, mask: npt.ArrayLike | None = None, *, seeds: Sequence[int] | None = None) -> npt.NDArray[np.uint8]:
        """Start an episode in the chosen environments.

        Args:
            mask: (n,) bool; None for all. After a lost life that ended an episode the game goes on, unless it ends on
                the way into its next life: then the next game starts.
            seeds: start a new game in each chosen environment, with exactly these seeds, in their order.

        Returns:
            (n, H, W, C) uint8: the first observations of the chosen, the last ones of the others.

        Raises:
            UsageError: the mask, or the number of seeds, does not fit.
            WorkerError: an environment failed.
        """
        chosen = self._mask(mask)
        indices = np.flatnonzero(chosen)
        if seeds is not None and len(seeds) != len(indices):
            raise UsageError(f"reset got {len(seeds)} seeds for {len(indices)} environments.")
        for place, index in enumerate(indices):
            if seeds is not None:
                self._arrays.seeds[index], self.games[index] = check_seed(seeds[place]), -1
            elif self._between_lives[index]:
                self._arrays.seeds[index] = CONTINUE
            else:
                self._number(index)
        resumed = chosen & (self._arrays.seeds == CONTINUE)
        self._run("reset", chosen)
        # What an environment started by itself, because its game ended between two lives, has not our seed.
        ended = resumed & (self._arrays.seeds != CONTINUE)
        if ended.any():
            for index in np.flatnonzero(ended):
                self._number(index)
            self._run("reset", ended)
        self.running |= chosen
        self._between_lives &= ~chosen
        return self._arrays.observations.copy()

    def step(self, actions: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> VectorStep:
        """Step the chosen environments.

        Args:
            actions: (n,) whole numbers, or (n, A) floats put within the bounds; rows of the others are ignored.
            mask: (n,) bool; None for all.

        Raises:
            UsageError: an action does not fit the action space, or the mask does not fit.
            SynoraError: a chosen environment has no running episode: `reset(mask)` it first.
            WorkerError: an environment failed.
        """
        chosen = self._mask(mask)
        if (chosen > self.running).any():
            ended = ", ".join(map(str, np.flatnonzero(chosen > self.running)))
            raise SynoraError(f"{self.env_id}: no episode is running in environments {ended}; call reset(mask) first.")
        self._set_actions(np.asarray(actions), chosen)
        arrays = self._arrays
        if not chosen.all():
            for values in (arrays.rewards, arrays.raw_rewards, arrays.terminated, arrays.truncated):
                values[~chosen] = 0
            for values in (arrays.life_lost, arrays.game_over):
                values[~chosen] = False
        self._run("step", chosen)
        done = arrays.terminated | arrays.truncated
        if done.any():
            self.running &= ~done
            self._between_lives |= done & ~arrays.game_over
        return VectorStep(
            arrays.observations.copy(),
            arrays.rewards.copy(),
            arrays.terminated.copy(),
            arrays.truncated.copy(),
            arrays.raw_rewards.copy(),
            arrays.life_lost.copy(),
            arrays.game_over.copy(),
            arrays.episode_frames.copy(),
            chosen,
        )

    def rejoin(self, games: npt.ArrayLike, next_game: int, idle: npt.ArrayLike) -> None:
        """Go on with the numbering of another run's games, after they were played up to where they stood.

        Args:
            games: (n,) whole numbers for `games`.
            next_game: the number of the next new game.
            idle: (n,) bool: the environments without a game; their next reset starts one.
        """
        self.games[:] = games
        self.next_game = next_game
        stopped = self._mask(idle)
        self.running &= ~stopped
        self._between_lives &= ~stopped

    def facts(self) -> list[dict[str, Any]]:
        """Return what the backend knows of each environment (`lives`; `bsuite_info`)."""
        return self._local.facts() if self._local is not None else self._workers().facts()

    @property
    def local(self) -> bool:
        """Whether the environments live in this process, so that `render` works."""
        return self._local is not None

    def render(self, index: int) -> npt.NDArray[np.uint8]:
        """Return the picture for people of one environment, (H, W, 3) uint8, at the simulator's own size.

        Raises:
            UsageError: the environments live in workers, which send observations only.
        """
        if self._local is None:
            raise UsageError("pictures for people need environments in this process: workers=0.")
        return self._local.envs[index].render()

    def close(self) -> None:
        """End the workers and free the memory; calling it twice is fine."""
        if self._local is not None:
            self._local.close()
        if self._pool is not None:
            self._pool.close()
        self.running[:] = False

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _number(self, index: int | np.integer[Any]) -> None:
        """Give environment `index` the next new game."""
        self._arrays.seeds[index], self.games[index] = episode_seed(self.seed, self.next_game), self.next_game
        self.next_game += 1

    def _run(self, command: str, chosen: Flags) -> None:
        self._arrays.chosen[:] = chosen
        if self._local is None:
            self._workers().run(command, chosen)
        elif command == "step":
            self._local.step(self._arrays)
        else:
            self._local.reset(self._arrays)

    def _workers(self) -> WorkerPool:
        assert self._pool is not None
        return self._pool

    def _mask(self, mask: npt.ArrayLike | None) -> Flags:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        chosen = np.array(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (self.num_envs,):
            raise UsageError(
                f"mask must be {self.num_envs} true/false values, not {chosen.dtype} of shape {chosen.shape}."
            )
        return chosen

    def _set_actions(self, actions: npt.NDArray[Any], chosen: Flags) -> None:
        wanted = self._arrays.actions.shape
        if actions.shape != wanted:
            raise UsageError(f"actions have shape {actions.shape}; this vector environment takes {wanted}.")
        space = self.action_space
        if isinstance(space, Discrete):
            if actions.dtype.kind not in "iu" or ((actions < 0) | (actions >= space.n))[chosen].any():
                raise UsageError(f"actions {actions.tolist()} are not whole numbers from 0 to {space.n - 1}.")
        elif actions.dtype.kind not in "iuf" or not np.isfinite(actions[chosen]).all():
            raise UsageError(f"actions {actions.tolist()} are not finite numbers.")
        self._arrays.actions[chosen] = actions[chosen]
