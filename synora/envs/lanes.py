"""A vector environment that can be put back where a checkpoint left it: games are played again, action by action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from synora.core.errors import FileError, SynoraError
from synora.envs.interface import Discrete, episode_seed
from synora.envs.vector import Flags, VectorEnv, VectorStep

RESUME = -1  # among the actions of a discrete game: an episode ended with a lost life, and the game went on


class FinishedGame(NamedTuple):
    """A game that ended.

    Attributes:
        score: sum of its raw rewards.
        length: its agent steps, over all its lives.
    """

    score: float
    length: int


class Lanes:
    """The environments of a training run, one lane each, with what is needed to bring them back.

    Simulators cannot be saved, but they are deterministic: a new one, given the game's seed and the actions so far,
    arrives at the same place. Only the games in progress are kept, from their first action on.

    Args:
        envs: used by this object alone.

    Attributes:
        frames: (N, C, H, W) uint8, the last observation of each lane.
        done: (N,) bool: the next thing this lane does is to start an episode.
        scores: (N,) float64, sum of the raw rewards of each lane's game so far.
        lengths: (N,) int64, its agent steps.
    """

    def __init__(self, envs: VectorEnv) -> None:
        self.envs = envs
        count, (height, width, channels) = envs.num_envs, envs.observation_shape
        self.frames = np.zeros((count, channels, height, width), np.uint8)
        self.scores, self.lengths = np.zeros(count), np.zeros(count, np.int64)
        self.done = np.ones(count, np.bool_)
        self._idle = np.ones(count, np.bool_)  # no game is in progress
        self._actions: list[list[Any]] = [[] for _ in range(count)]
        self._finished: list[FinishedGame] = []

    def start(self) -> Flags:
        """Start an episode in every lane whose last one is over: the next life of the same game, or a new game.

        Returns:
            (N,) bool: the lanes whose frame is the first of an episode.
        """
        fresh = self.done.copy()
        if fresh.any():
            before = self.envs.games.copy()
            self._take(self.envs.reset(fresh))
            began = fresh & (self._idle | (self.envs.games != before))
            # A game that ended between two lives ends here; after its last step it still seemed to go on.
            self._finish(began & ~self._idle)
            for index in np.flatnonzero(fresh & ~began):
                self._actions[index].append(self._resume_mark())
            for index in np.flatnonzero(began):
                self._actions[index] = []
            self.scores[began], self.lengths[began] = 0, 0
            self._idle &= ~fresh
            self.done &= ~fresh
        return fresh

    def step(self, actions: npt.NDArray[Any], mask: Flags | None = None) -> VectorStep:
        """Advance all lanes (those of `mask`) by one action each: (N,) whole numbers, or (N, A) floats."""
        result = self.envs.step(actions, mask)
        chosen = np.flatnonzero(result.stepped)
        for index in chosen:
            self._actions[index].append(actions[index].copy() if actions.ndim > 1 else int(actions[index]))
        self._take(result.observations)
        self.done |= result.done
        self.scores += result.raw_rewards
        self.lengths[chosen] += 1
        over = result.done & result.game_over
        if over.any():
            self._finish(over)
            self._idle |= over
        return result

    def take_finished(self) -> list[FinishedGame]:
        """Return the games that ended since the last call, in the order in which they ended."""
        finished, self._finished = self._finished, []
        return finished

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs: the numbering, and each lane's game with its actions."""
        lanes = []
        for index, idle in enumerate(self._idle.tolist()):
            lanes.append(
                {
                    "game": int(self.envs.games[index]),
                    "idle": idle,
                    "done": bool(self.done[index]),
                    "frame": self.frames[index].copy(),
                    "actions": self._as_array([] if idle else self._actions[index]),
                }
            )
        return {"next_game": self.envs.next_game, "lanes": lanes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Play the saved games up to where they stood, all lanes side by side.

        Raises:
            FileError: another number of lanes, or a game does not arrive at its saved frame.
            WorkerError: an environment failed.
        """
        lanes = state["lanes"]
        if len(lanes) != self.envs.num_envs:
            raise FileError(f"the checkpoint has {len(lanes)} environments, this run {self.envs.num_envs}.")
        games = [int(lane["game"]) for lane in lanes]
        self._idle = np.array([lane["idle"] for lane in lanes], np.bool_)
        self.done, self._actions = np.ones(len(lanes), np.bool_), [[] for _ in lanes]
        self.scores[:], self.lengths[:] = 0, 0
        playing = np.flatnonzero(~self._idle)
        idle = self._idle.copy()
        if len(playing):
            seeds = [episode_seed(self.envs.seed, games[index]) for index in playing]
            self._take(self.envs.reset(~idle, seeds=seeds))
            self.done = idle.copy()
            self._replay([np.asarray(lane["actions"]) for lane in lanes])
        for index, lane in enumerate(lanes):
            if idle[index]:
                self.frames[index] = lane["frame"]
            elif self.done[index] != lane["done"] or not np.array_equal(self.frames[index], lane["frame"]):
                raise self._lost()
        self.envs.rejoin(games, int(state["next_game"]), idle)
        self._finished = []

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _replay(self, actions: list[npt.NDArray[Any]]) -> None:
        """Give every lane its actions again; lanes with fewer of them wait at the end."""
        lengths = np.array([len(one) for one in actions])
        width = (len(actions), *self._resume_mark().shape)
        for turn in range(int(lengths.max())):
            given = np.zeros(width, self._resume_mark().dtype)
            present = turn < lengths
            given[present] = [one[turn] for one, here in zip(actions, present, strict=True) if here]
            marks = given == self._resume_mark() if given.ndim == 1 else np.isnan(given).any(axis=1)
            resumed, moved = present & marks, present & ~marks
            if (resumed & ~self.done).any() or (moved & self.done).any() or (moved & self._idle).any():
                raise self._lost()
            if resumed.any():
                before = self.envs.games.copy()
                self._take(self.envs.reset(resumed))
                if (self.envs.games != before).any():
                    raise self._lost()
                for index in np.flatnonzero(resumed):
                    self._actions[index].append(self._resume_mark())
                self.done &= ~resumed
            if moved.any():
                self.step(given, moved)

    def _lost(self) -> SynoraError:
        return FileError(
            f"{self.envs.env_id} does not come back to where the checkpoint left it; the simulator's version or the "
            "protocol has changed. Start a new run, or install the versions the checkpoint names."
        )

    def _finish(self, over: Flags) -> None:
        for index in np.flatnonzero(over):
            self._finished.append(FinishedGame(float(self.scores[index]), int(self.lengths[index])))

    def _take(self, observations: npt.NDArray[np.uint8]) -> None:
        self.frames = np.ascontiguousarray(observations.transpose(0, 3, 1, 2))

    def _resume_mark(self) -> npt.NDArray[Any]:
        """What stands among the actions for the start of the next life; no action looks like it."""
        space = self.envs.action_space
        return np.array(RESUME) if isinstance(space, Discrete) else np.full(space.shape, np.nan, np.float32)

    def _as_array(self, actions: list[Any]) -> npt.NDArray[Any]:
        """Actions (T,) int64 or (T, A) float32."""
        mark = self._resume_mark()
        return np.array(actions, mark.dtype).reshape(len(actions), *mark.shape)
