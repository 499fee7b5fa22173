"""The runs x tasks array that every statistic reads: what is allowed in it, and what is missing from it.

A cell is the score of one training run in one task (game); NaN means that it is missing. Runs of different tasks have
nothing to do with each other, so tasks may have different numbers of runs: shorter columns end in NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from synora.core.errors import UsageError, unknown_value

Missing = Literal["strict", "available"]
Floats = NDArray[np.float64]

MISSING: tuple[Missing, ...] = ("strict", "available")
_MOST_NAMED = 5


@dataclass(frozen=True)
class Coverage:
    """How much of a runs x tasks array is there.

    Attributes:
        found: cells with a score.
        expected: cells.
        runs: fewest and most runs with a score over the tasks that have any; (0, 0) when none has.
        missing: a name for every missing cell, task by task: "Pong run 2", or "Pong" for a task without any.
    """

    found: int
    expected: int
    runs: tuple[int, int]
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether no cell is missing."""
        return self.found == self.expected

    def __str__(self) -> str:
        """Return "n of N scores", with the names of the first missing cells."""
        text = f"{self.found} of {self.expected} scores"
        if self.complete:
            return text
        more = f" and {len(self.missing) - _MOST_NAMED} more" if len(self.missing) > _MOST_NAMED else ""
        return f"{text}; missing: {', '.join(self.missing[:_MOST_NAMED])}{more}"


def as_matrix(scores: Any) -> Floats:
    """Return scores as a float64 array of shape (runs, tasks); a flat list is the runs of one task.

    Args:
        scores: numbers; None and NaN are missing.

    Raises:
        UsageError: empty, not numbers, another number of axes, or an infinite score.
    """
    try:
        # A copy: nothing below may write into the caller's array.
        matrix = np.array(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(
            "scores are not a table of numbers (runs x tasks): every row needs the same length; write NaN for a "
            "missing run."
        ) from error
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.size == 0:
        raise UsageError(f"scores have the shape {matrix.shape}; a table of at least one run x one task is needed.")
    if np.isinf(matrix).any():
        raise UsageError("scores hold an infinite value; a run that diverged has no score: write NaN.")
    return matrix


def stack_runs(per_task: Mapping[str, Sequence[float | None]]) -> tuple[Floats, list[str]]:
    """Return the runs x tasks array and the tasks' names of lists of different lengths, padded with NaN.

    Args:
        per_task: task -> the scores of its runs; None is a missing run.

    Raises:
        UsageError: no task, or no run in any.
    """
    longest = max((len(values) for values in per_task.values()), default=0)
    if longest == 0:
        raise UsageError("no scores: there is no task with a run.")
    columns = [[*values, *[None] * (longest - len(values))] for values in per_task.values()]
    return as_matrix(columns).T.copy(), list(per_task)


def coverage(scores: Any, *, tasks: Sequence[str] | None = None, runs: Sequence[Any] | None = None) -> Coverage:
    """Return which cells are missing.

    Args:
        scores: shape (runs, tasks).
        tasks: names of the columns; default "task 0", "task 1", …
        runs: labels of the rows, such as training seeds; default 0, 1, …

    Raises:
        UsageError: as `as_matrix`, or the names do not fit the shape.
    """
    matrix = as_matrix(scores)
    names = _labels(tasks, matrix.shape[1], "tasks") or [f"task {index}" for index in range(matrix.shape[1])]
    rows = _labels(runs, matrix.shape[0], "runs") or [str(index) for index in range(matrix.shape[0])]
    there = ~np.isnan(matrix)
    counts = there.sum(axis=0)
    missing: list[str] = []
    for name, column, count in zip(names, there.T, counts, strict=True):
        if count == 0:
            missing.append(name)
        else:
            missing += [f"{name} run {row}" for row, found in zip(rows, column, strict=True) if not found]
    some = counts[counts > 0]
    spread = (int(some.min()), int(some.max())) if some.size else (0, 0)
    return Coverage(found=int(there.sum()), expected=int(there.size), runs=spread, missing=tuple(missing))


def check_scores(scores: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None) -> Floats:
    """Return scores fit for a statistic: shape (runs, tasks), every task with at least one run.

    Args:
        scores: shape (runs, tasks), or a flat list for one task.
        missing: "strict" refuses missing cells; "available" leaves out tasks without any run and uses what is there.
        tasks: names of the columns, for the message.

    Raises:
        UsageError: as `as_matrix`; cells are missing under "strict"; or no score is there at all.
    """
    if missing not in MISSING:
        raise unknown_value("value of missing", str(missing), MISSING)
    matrix = as_matrix(scores)
    there = ~np.isnan(matrix)
    if there.all():
        return matrix
    if missing == "strict":
        raise UsageError(f"{coverage(matrix, tasks=tasks)}. Write missing='available' to use those that are there.")
    kept = there.any(axis=0)
    if not kept.any():
        raise UsageError(f"none of the {matrix.size} scores is there: nothing to compute.")
    return matrix[:, kept]


def run_counts(matrix: Floats) -> NDArray[np.int64]:
    """Return the number of runs with a score for each task, shape (tasks,)."""
    return (~np.isnan(matrix)).sum(axis=0).astype(np.int64)


def canonical_order(*matrices: Floats) -> tuple[Floats, ...]:
    """Return arrays with the same scores in an order that depends on the scores alone.

    Runs are exchangeable within a task, and tasks are in the aggregate; without this, the same seed would give another
    interval when results arrive in another order. Arrays given together keep their columns paired. NaN goes last.
    """
    ordered = [np.sort(matrix, axis=0) for matrix in matrices]
    order = np.lexsort(np.concatenate(ordered, axis=0))
    return tuple(np.ascontiguousarray(matrix[:, order]) for matrix in ordered)


def _labels(given: Sequence[Any] | None, count: int, kind: str) -> list[str]:
    if given is None:
        return []
    if len(given) != count:
        raise UsageError(f"{len(given)} names of {kind} were given for {count} {kind}.")
    return [str(name) for name in given]
