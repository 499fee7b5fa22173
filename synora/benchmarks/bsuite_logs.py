"""The logs that bsuite's scores are computed from: checked, read from bsuite's own CSV files, or made from games.

A log has a row for some of a task's episodes. What a row holds is summed (best figures: the best) over all episodes up
to and including its own, as bsuite's logging wrapper does (Osband et al., 2020, arXiv:1908.03568, and bsuite 0.3.6).
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synora.benchmarks.bsuite_sweep import Experiment, split_id
from synora.core.errors import FileError, UsageError

Floats = NDArray[np.float64]
# One task's log: column -> values, by episode.
Log = dict[str, Floats]
_PREFIX = "bsuite_id_-_"
_FILE_NAME = re.compile(rf"{_PREFIX}(?P<experiment>[a-z_]+)-(?P<index>[0-9]+)\.csv")
_COLUMNS = {
    "bandit": ("total_regret",),
    "cartpole": ("raw_return", "best_episode"),
    "cartpole_swingup": ("total_return", "best_episode"),
    "catch": ("total_regret",),
    "deep_sea": ("total_bad_episodes",),
    "deep_sea_stochastic": ("total_bad_episodes",),
    "discounting_chain": ("total_return",),
    "memory_len": ("total_perfect",),
    "memory_size": ("total_perfect",),
    "mnist": ("total_regret",),
    "mountain_car": ("raw_return",),
    "umbrella_distract": ("total_regret",),
    "umbrella_length": ("total_regret",),
}
# Tenths of a power of ten at which bsuite logs.
_LOGGED = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)


@dataclass(frozen=True)
class Logs:
    """The logs of a folder.

    Attributes:
        tasks: task -> its log.
        ignored: names of CSV files that are no logs of bsuite.
    """

    tasks: dict[str, Log]
    ignored: tuple[str, ...]


def columns(experiment: Experiment) -> tuple[str, ...]:
    """Return the columns that a row needs for the experiment's score."""
    return ("episode", *_COLUMNS[experiment.rule])


def as_log(task: str, rows: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> Log:
    """Check the log of a task and return what its score needs, ordered by episode.

    Args:
        task: of bsuite ("catch/0").
        rows: mappings with at least `columns` of the task's experiment; or one mapping of whole columns.

    Raises:
        UsageError: bsuite has no such task; no rows, a column is missing, a value is no finite number, an episode is
            no whole number from 1, or is there twice.
    """
    wanted = columns(split_id(task)[0])
    if not isinstance(rows, Mapping):
        listed = list(rows)
        for row in listed:
            _require_columns(task, wanted, row)
        rows = {name: [row[name] for row in listed] for name in wanted}
    _require_columns(task, wanted, rows)
    log = {name: _numbers(task, name, rows[name]) for name in wanted}
    episodes = log["episode"]
    if len({len(values) for values in log.values()}) > 1 or not len(episodes):
        raise UsageError(f"the log of {task} has no rows, or columns of different lengths.")
    if bad := episodes[(episodes < 1) | (episodes != np.floor(episodes))].tolist():
        raise UsageError(f"the log of {task} has the episode {bad[0]:g}; episodes are whole numbers from 1.")
    order = np.argsort(episodes, kind="stable")
    twice = np.flatnonzero(np.diff(episodes[order]) == 0)
    if len(twice):
        raise UsageError(
            f"the log of {task} has the episode {episodes[order][twice[0]]:g} more than once: two runs in one log, or "
            "one that was logged by step."
        )
    return {name: values[order] for name, values in log.items()}


def read_logs(folder: str | os.PathLike[str]) -> Logs:
    """Read the files bsuite_id_-_EXPERIMENT-INDEX.csv of a folder, which bsuite's CSV logger writes for one agent.

    Raises:
        FileError: not such a folder, a file cannot be read, or its name or content is not that of a log.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".csv"))
    except OSError as error:
        raise FileError(f"the folder {os.fspath(folder)!r} cannot be read: {error.strerror}.") from error
    logs = [name for name in names if name.startswith(_PREFIX)]
    if not logs:
        raise FileError(f"{os.fspath(folder)!r} has no logs of bsuite ({_PREFIX}EXPERIMENT-INDEX.csv).")
    tasks = dict(_read_log(Path(folder) / name) for name in logs)
    return Logs(tasks, tuple(name for name in names if name not in logs))


def rows_of_games(games: Iterable[Mapping[str, float]]) -> Iterator[dict[str, float]]:
    """Yield the rows that bsuite's logger would write for the games of one task.

    Args:
        games: in the order in which they count. Each has `return` (of the task, its noise and scale included), `length`
            (steps), and the figures that the task's `bsuite_info()` has after this game alone.
    """
    total: dict[str, float] = {"steps": 0, "episode": 0, "total_return": 0.0}
    for game in games:
        figures = {name: value for name, value in game.items() if name not in ("return", "length")}
        total["steps"] += game["length"]
        total["episode"] += 1
        total["total_return"] += game["return"]
        for name, value in figures.items():
            best = name.startswith("best")
            total[name] = max(total.get(name, value), value) if best else total.get(name, 0) + value
        if is_logged(int(total["episode"])):
            yield {**total, "episode_len": game["length"], "episode_return": game["return"]}


def is_logged(episode: int) -> bool:
    """Return whether bsuite writes a row at the end of an episode."""
    return episode > 0 and any(10 * episode == tenths * 10 ** (len(str(episode)) - 1) for tenths in _LOGGED)


def _require_columns(task: str, wanted: tuple[str, ...], there: Iterable[str]) -> None:
    if missing := [name for name in wanted if name not in there]:
        raise UsageError(f"the log of {task} lacks {', '.join(missing)}; its score needs {', '.join(wanted)}.")


def _numbers(task: str, name: str, values: Any) -> Floats:
    try:
        numbers = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the log of {task} has a {name} that is no number: {error}.") from error
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise UsageError(f"the log of {task} has a {name} that is missing or not finite.")
    return numbers


def _read_log(path: Path) -> tuple[str, Log]:
    match = _FILE_NAME.fullmatch(path.name)
    task = f"{match['experiment']}/{match['index']}" if match else ""
    try:
        if not task:
            raise UsageError(f"the name is not {_PREFIX}EXPERIMENT-INDEX.csv.")
        wanted = columns(split_id(task)[0])
        text = path.read_text(encoding="utf-8-sig")
        # The logger writes the whole file anew for every row, so that a reader may meet half a file.
        if not text.endswith("\n"):
            raise UsageError("the file is empty or its last line is cut off.")
        return task, as_log(task, _parse(task, wanted, text))
    except (UsageError, csv.Error) as error:
        raise FileError(f"{str(path)!r}: {error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{str(path)!r} is not a text file.") from error
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be read: {error.strerror}.") from error


def _parse(task: str, wanted: tuple[str, ...], text: str) -> dict[str, list[float]]:
    """Return the wanted columns of a CSV text; the others may hold what they like."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader)
    _require_columns(task, wanted, header)
    places = {name: header.index(name) for name in wanted}
    values: dict[str, list[float]] = {name: [] for name in wanted}
    for cells in reader:
        if not cells:  # an empty line
            continue
        if len(cells) != len(header):
            raise UsageError(f"line {reader.line_num} has {len(cells)} values for {len(header)} columns.")
        for name, place in places.items():
            value = _number(cells[place])
            if value is None:
                raise UsageError(f"line {reader.line_num}: {name} is {cells[place]!r}, which is no finite number.")
            values[name].append(value)
    return values


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
