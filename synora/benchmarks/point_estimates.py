"""Aggregates of a runs x tasks array, as one number or over a batch of resampled arrays.

The definitions are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
NeurIPS 2021 (arXiv:2108.13264), section 4. Import these names from `synora.benchmarks.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synora.benchmarks.score_matrix import Floats, Missing, as_matrix, check_scores
from synora.core.errors import UsageError

# A game average that is exactly the human score may come out a hair below 1 in another order of summation.
SUPERHUMAN_ALLOWANCE = 1e-9


def iqm_of_array(values: Any, *, missing: Missing = "strict") -> float:
    """Return the interquartile mean of all values: without the floor(n / 4) smallest and largest.

    The trimmed mean of Agarwal et al. (2021), section 4.3, equal to `scipy.stats.trim_mean(values, 0.25)`. No value
    counts in part, so for n that is no multiple of 4 it differs from the interquartile mean with fractional weights.

    Args:
        values: any shape; a runs x tasks array is pooled.
        missing: "strict" or "available".

    Raises:
        UsageError: no values, one is not finite, or one is missing under "strict".
    """
    flat = np.array(values, dtype=object).ravel().tolist()
    return float(batch_iqm(check_scores(flat, missing=missing)[None])[0])


def mean(scores: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None) -> float:
    """Return the mean over tasks of the mean over runs.

    Agarwal et al. (2021), section 4.3: dominated by the few tasks with the largest scores.

    Args:
        scores: shape (runs, tasks), normally human-normalised; a flat list is the runs of one task.
        missing: "strict" refuses missing cells; "available" uses those that are there.
        tasks: names of the columns, for error messages.

    Raises:
        UsageError: the scores are not such an array, or cells are missing under "strict".
    """
    return float(batch_mean(_one(scores, missing, tasks))[0])


def median(scores: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None) -> float:
    """Return the median over tasks of the mean over runs (not of the pooled scores); arguments as `mean`.

    Agarwal et al. (2021), section 4.3: half of the tasks could be zero without a change.
    """
    return float(batch_median(_one(scores, missing, tasks))[0])


def iqm(scores: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None) -> float:
    """Return the interquartile mean of all runs x tasks scores, pooled; arguments as `mean`.

    Agarwal et al. (2021), section 4.3. Not the interquartile mean of the tasks' averages.
    """
    return float(batch_iqm(_one(scores, missing, tasks))[0])


def optimality_gap(
    scores: Any, threshold: float = 1.0, *, missing: Missing = "strict", tasks: Sequence[str] | None = None
) -> float:
    """Return by how much scores fall short of a threshold, on average over single scores; lower is better.

    Agarwal et al. (2021), section 4.3: `threshold` minus the average of min(score, threshold). What exceeds the
    threshold in one run does not make up for what another lacks.

    Args:
        scores: shape (runs, tasks).
        threshold: the score that is good enough; 1 is a human's on human-normalised scores.
        missing: as `mean`.
        tasks: as `mean`.
    """
    return float(batch_optimality_gap(_one(scores, missing, tasks), threshold)[0])


def superhuman_count(scores: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None) -> int:
    """Return how many tasks have an average over runs of at least 1; arguments as `mean`.

    Args:
        scores: human-normalised, shape (runs, tasks).
        missing: as `mean`.
        tasks: as `mean`.
    """
    return int(batch_superhuman(_one(scores, missing, tasks))[0])


def task_means(scores: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None) -> Floats:
    """Return the average over runs of each task, shape (tasks,); a task without any run is left out."""
    return batch_task_means(_one(scores, missing, tasks))[0]


def run_score_profile(
    scores: Any, taus: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None
) -> Floats:
    """Return the share of single scores strictly above each threshold.

    The run-score distribution of Agarwal et al. (2021), section 4.2.

    Args:
        scores: shape (runs, tasks).
        taus: thresholds, shape (k,), in the unit of the scores.
        missing: as `mean`.
        tasks: as `mean`.

    Returns:
        Shape (k,), in [0, 1].
    """
    return batch_run_profile(_one(scores, missing, tasks), check_taus(taus))[0]


def average_score_profile(
    scores: Any, taus: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None
) -> Floats:
    """Return the share of tasks whose average over runs is strictly above each threshold.

    The average-score distribution of Agarwal et al. (2021), section 4.2; arguments and result as `run_score_profile`.
    """
    return batch_average_profile(_one(scores, missing, tasks), check_taus(taus))[0]


def improvement_per_task(x: Any, y: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None) -> Floats:
    """Return for each task the share of pairs (a run of X, a run of Y) that X wins; a tie counts one half.

    Tasks in which either has no run are left out under "available". Arguments as `probability_of_improvement`.

    Returns:
        Shape (tasks,), in [0, 1].
    """
    left, right = check_pair(x, y, missing=missing, tasks=tasks)
    return np.array([float(win.mean()) for win in win_tables(left, right)])


def probability_of_improvement(
    x: Any, y: Any, *, missing: Missing = "strict", tasks: Sequence[str] | None = None
) -> float:
    """Return how likely a run of X beats a run of Y in a task drawn at random.

    Agarwal et al. (2021), section 4.3: the Mann-Whitney statistic per task, averaged over tasks. Ties have to be exact
    to count as ties: round scores first where they were computed in different ways.

    Args:
        x: shape (runs of X, tasks).
        y: shape (runs of Y, tasks), the same tasks in the same order; the number of runs may differ.
        missing: as `mean`.
        tasks: as `mean`.

    Raises:
        UsageError: as `mean`, or the numbers of tasks differ.
    """
    return float(improvement_per_task(x, y, missing=missing, tasks=tasks).mean())


def check_pair(x: Any, y: Any, *, missing: Missing, tasks: Sequence[str] | None) -> tuple[Floats, Floats]:
    """Return two arrays of the same tasks, each task with a run in both; errors as `probability_of_improvement`."""
    left, right = as_matrix(x), as_matrix(y)
    if left.shape[1] != right.shape[1]:
        raise UsageError(f"X has {left.shape[1]} tasks and Y has {right.shape[1]}; give both the same tasks.")
    check_scores(left, missing=missing, tasks=tasks)
    check_scores(right, missing=missing, tasks=tasks)
    both = ~np.isnan(left).all(axis=0) & ~np.isnan(right).all(axis=0)
    if not both.any():
        raise UsageError("X and Y have no task in which both have a run.")
    return left[:, both], right[:, both]


def check_taus(taus: Any) -> Floats:
    """Return thresholds as an array of shape (k,).

    Raises:
        UsageError: none, more than one axis, or one that is not finite.
    """
    values = np.asarray(taus, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise UsageError("taus are not a list of finite thresholds, such as [0, 0.5, 1].")
    return values


def win_tables(x: Floats, y: Floats) -> list[Floats]:
    """Return for each task the table of shape (runs of X, runs of Y): 1 where X wins, 0.5 for a tie, else 0."""
    tables = []
    for left, right in zip(x.T, y.T, strict=True):
        a, b = left[~np.isnan(left)][:, None], right[~np.isnan(right)][None, :]
        tables.append((a > b) + 0.5 * (a == b))
    return tables


# The same statistics over a batch of arrays, shape (batch, runs, tasks) -> (batch,). NaN stands at the same cells of
# all of them, and every task has at least one score. Sums run over sorted values or along fixed axes, so that a result
# does not depend on the machine's vector instructions.


def batch_task_means(batch: Floats) -> Floats:
    """Return the average over runs, shape (batch, tasks)."""
    if not np.isnan(batch[0]).any():
        return np.add.reduce(batch, axis=1) / batch.shape[1]
    counts = (~np.isnan(batch[0])).sum(axis=0)
    return np.nansum(batch, axis=1) / counts


def batch_mean(batch: Floats) -> Floats:
    """Batch form of `mean`."""
    return batch_task_means(batch).mean(axis=1)


def batch_median(batch: Floats) -> Floats:
    """Batch form of `median`."""
    return np.median(batch_task_means(batch), axis=1)


def batch_superhuman(batch: Floats) -> Floats:
    """Batch form of `superhuman_count`."""
    return (batch_task_means(batch) >= 1 - SUPERHUMAN_ALLOWANCE).sum(axis=1).astype(np.float64)


def batch_iqm(batch: Floats) -> Floats:
    """Batch form of `iqm`."""
    # A full sort, not a partition: what a partition leaves between its pivots, and so the rounding of the sum,
    # depends on the processor. NaN is sorted to the end.
    pooled = np.sort(batch.reshape(len(batch), -1), axis=1)
    count = pooled.shape[1] - int(np.isnan(pooled[0]).sum())
    cut = count // 4
    return pooled[:, cut : count - cut].mean(axis=1)


def batch_optimality_gap(batch: Floats, threshold: float = 1.0) -> Floats:
    """Batch form of `optimality_gap`."""
    pooled = np.minimum(batch, threshold).reshape(len(batch), -1)
    if not np.isnan(pooled[0]).any():
        return threshold - pooled.mean(axis=1)
    return threshold - np.nanmean(pooled, axis=1)


def batch_run_profile(batch: Floats, taus: Floats) -> Floats:
    """Batch form of `run_score_profile`, shape (batch, k)."""
    pooled = batch.reshape(len(batch), -1)
    count = pooled.shape[1] - int(np.isnan(pooled[0]).sum())
    # A comparison with NaN is False: missing scores are above nothing.
    return np.stack([(pooled > tau).sum(axis=1) / count for tau in taus], axis=1)


def batch_average_profile(batch: Floats, taus: Floats) -> Floats:
    """Batch form of `average_score_profile`, shape (batch, k)."""
    means = batch_task_means(batch)
    return np.stack([(means > tau).mean(axis=1) for tau in taus], axis=1)


BatchStatistic = Callable[[Floats], NDArray[Any]]

STATISTICS: dict[str, BatchStatistic] = {
    "mean": batch_mean,
    "median": batch_median,
    "iqm": batch_iqm,
    "optimality_gap": batch_optimality_gap,
    "superhuman": batch_superhuman,
}


def _one(scores: Any, missing: Missing, tasks: Sequence[str] | None) -> Floats:
    """Return checked scores as a batch of one."""
    return check_scores(scores, missing=missing, tasks=tasks)[None]
