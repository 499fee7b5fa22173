"""bsuite tasks with their compact observations drawn as images, and what bsuite's own scoring needs.

How an observation is drawn. Every number gets a cell of pixels: a board (rows x columns, both above 1) has its cells
where the board has them; a vector of up to 16 numbers becomes that many bands from top to bottom, a longer one a grid,
row by row, as nearly square as it fits. A number's share in [0, 1] is the number itself in the families whose numbers
are all from 0 to 1, and (1 + x / (1 + |x|)) / 2 in the others, which have no bounds. The cell is filled with white from
left to right, column by column from the top, to that share of its pixels; the pixel at the edge takes the rest as a
gray whose channels differ by at most one level. A cell of n pixels so tells 765 n levels apart: boards, flags, counters
and clocks keep all their values, and the real numbers of cartpole and mountain car at least 17 bits.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from synora.core.errors import DependencyMissing, UsageError
from synora.envs.ids import BSUITE_DATA, bsuite_tasks
from synora.envs.interface import Discrete, Env, Observation, Transition
from synora.envs.protocol import Protocol

_LEVELS = 3 * 255
_MOST_BANDS = 16
# Families whose observations are numbers from 0 to 1 only.
_UNIT = ("bandit", "catch", "deep_sea", "umbrella")
_MNIST_FOLDER = Path("/tmp/mnist")  # where bsuite looks for the data, and would download it to
_MNIST_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


class BsuiteEnv(Env):
    """One bsuite task as (size, size, 3) images.

    Every game is a fresh instance of the task whose own generator starts from the game's seed and the task's place in
    its family; what the sweep fixes
    (action mappings, noise scales) stays. Rewards are the task's, its noise and scale included.

    Attributes:
        bsuite_num_episodes: games that bsuite's score of this task is computed from.

    Args:
        task: a name of bsuite's sweep ("catch/0").
        protocol: a `bsuite` protocol.
        seed: base seed of the games.

    Raises:
        DependencyMissing: bsuite, or the data the task needs, is not there.
    """

    def __init__(self, task: str, protocol: Protocol, *, seed: int = 0) -> None:
        self._family, _, place = task.partition("/")
        self._place = int(place)
        if self._family in BSUITE_DATA:
            require_mnist(task)
        self.bsuite_num_episodes = bsuite_tasks()[task]
        self._settings = _settings(task)
        self._info_before: dict[str, float] = {}
        self._games_done = self._steps = 0
        self._task = self._make(0)
        self._drawing = Drawing(
            self._task.observation_spec().shape, protocol.size, unit=self._family.startswith(_UNIT), task=task
        )
        self._observation = np.zeros((protocol.size, protocol.size, 3), np.uint8)
        count = int(self._task.action_spec().num_values)
        super().__init__(
            env_id=task,
            protocol=protocol,
            channels=3,
            action_space=Discrete(count),
            action_meanings=[str(action) for action in range(count)],
            seed=seed,
        )

    def bsuite_info(self) -> dict[str, float]:
        """Return the task's scoring figures over all games of this environment so far.

        The keys are bsuite's (`total_regret`, `raw_return`, `best_episode`, …, none for discounting chains): best
        figures are the best of any game, all others sums.
        """
        return _merge(self._info_before, self.game_info())

    def game_info(self) -> dict[str, float]:
        """Return the task's scoring figures of the current game alone, with the keys of `bsuite_info`."""
        return {str(key): float(value) for key, value in self._task.bsuite_info().items()}

    def score_row(self) -> dict[str, float]:
        """Return `bsuite_info` with `episode` (games finished) and `steps`, as bsuite's own log counts them."""
        return {"episode": self._games_done, "steps": self._steps, **self.bsuite_info()}

    def _make(self, seed: int) -> Any:
        # Tasks that are repeats of one setting (catch/0 to catch/19) would otherwise play the very same games. bsuite's
        # generators take 32 bits.
        key = (self._place,) if self._place else ()
        narrow = int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])
        import bsuite
        from bsuite.bsuite import EXPERIMENT_NAME_TO_ENVIRONMENT
        from bsuite.environments.deep_sea import DeepSea

        if self._family == "deep_sea_stochastic":  # its loader takes no seed
            return DeepSea(deterministic=False, seed=narrow, **self._settings)
        takes_seed = "seed" in inspect.signature(EXPERIMENT_NAME_TO_ENVIRONMENT[self._family]).parameters
        return bsuite.load(self._family, {**self._settings, **({"seed": narrow} if takes_seed else {})})

    def _start(self, seed: int) -> Observation:
        self._info_before = self.bsuite_info()
        self._task = self._make(seed)
        self.episode_frames = 0
        return self._draw(self._task.reset().observation)

    def _advance(self, action: int) -> Transition:
        step = self._task.step(action)
        self.episode_frames += 1
        self._steps += 1
        over = bool(step.last())
        self._games_done += over
        terminated = over and step.discount == 0.0
        return Transition(self._draw(step.observation), float(step.reward), terminated, over and not terminated)

    def _draw(self, values: npt.NDArray[Any]) -> Observation:
        self._observation = self._drawing.draw(values)
        return self._observation

    def facts(self) -> dict[str, Any]:
        """Return what every info adds: `bsuite_info`, and `game_info`, the figures of the current game alone."""
        game = self.game_info()
        return {"bsuite_info": _merge(self._info_before, game), "game_info": game}

    def render(self) -> Observation:
        """Return the last observation, (size, size, 3) uint8."""
        return self._observation.copy()


class Drawing:
    """Draws observations of one shape; the module's docstring has the rule.

    Args:
        shape: of the task's observations.
        size: height and width of the image.
        unit: the numbers are all from 0 to 1.
        task: for the error message.

    Raises:
        UsageError: there are more numbers than the image has room for.
    """

    def __init__(self, shape: tuple[int, ...], size: int, *, unit: bool, task: str = "") -> None:
        self._unit, self._size = unit, size
        count = math.prod(shape)
        if len(shape) == 2 and min(shape) > 1:
            rows, columns = shape
        elif count <= _MOST_BANDS:
            rows, columns = count, 1
        else:
            columns = math.ceil(math.sqrt(count))
            rows = math.ceil(count / columns)
        height, width = size // rows, size // columns
        if not height or not width:
            raise UsageError(f"{task}: {rows} x {columns} numbers do not fit an image of {size} x {size} pixels.")
        cell_y, cell_x = np.divmod(np.arange(count), columns)
        x, y = np.divmod(np.arange(height * width), height)
        self._pixels = (cell_y[:, None] * height + y) * size + cell_x[:, None] * width + x
        self._thresholds = np.arange(height * width) * _LEVELS

    def draw(self, values: npt.NDArray[Any]) -> Observation:
        """Return the image (size, size, 3) uint8 of an observation."""
        numbers = np.asarray(values, np.float64).reshape(-1, 1)
        share = numbers if self._unit else (1.0 + numbers / (1.0 + np.abs(numbers))) / 2.0
        levels = np.rint(share * (_LEVELS * len(self._thresholds))).astype(np.int64)
        fill = np.clip(levels - self._thresholds, 0, _LEVELS)
        image = np.zeros((self._size * self._size, 3), np.uint8)
        image[self._pixels] = (fill[:, :, None] + np.array([2, 1, 0])) // 3
        return image.reshape(self._size, self._size, 3)


def _settings(task: str) -> dict[str, Any]:
    """Return the sweep's settings of a task; a seed among them is left to us."""
    from bsuite import sweep

    return {key: value for key, value in sweep.SETTINGS[task].items() if key != "seed"}


def _merge(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {
        key: max(before.get(key, value), value) if key.startswith("best") else before.get(key, 0.0) + value
        for key, value in now.items()
    }


def require_mnist(task: str) -> None:
    """Raise DependencyMissing, with what to do, unless the files that a task of mnist needs are there."""
    if not all((_MNIST_FOLDER / name).is_file() for name in _MNIST_FILES):
        raise DependencyMissing(
            f"{task} needs the MNIST data set, which Synora does not download: put {', '.join(_MNIST_FILES)} into "
            f"{_MNIST_FOLDER}, or choose another family (`synora envs list --backend bsuite`)."
        )
