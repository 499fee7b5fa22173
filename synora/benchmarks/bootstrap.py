"""Intervals over training runs: the stratified bootstrap of Agarwal et al. (2021), section 4.1.

For every resample and every task separately, runs are drawn with replacement; tasks are not resampled. The interval is
the percentile interval of the statistic over the resamples. Import these names from `synora.benchmarks.metrics`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synora.benchmarks.point_estimates import (
    STATISTICS,
    BatchStatistic,
    batch_average_profile,
    batch_run_profile,
    check_pair,
    check_taus,
    win_tables,
)
from synora.benchmarks.score_matrix import Floats, Missing, canonical_order, check_scores, run_counts
from synora.core.errors import UsageError, unknown_value

Rng = np.random.Generator | int | None

DEFAULT_SEED = 0
ONE_RUN = (
    "one training run per task: nothing says how much another run would differ. Evaluation seeds of the same run do "
    "not count; train with more seeds."
)
# Values of a block of resamples: small enough for the processor's cache, whatever the number of runs.
_BLOCK = 2**18
_MOST_SAMPLES = 10_000_000


@dataclass(frozen=True)
class Interval:
    """A confidence interval over training runs.

    Unpacks into two numbers, `lower, upper = interval`, which are NaN where there is no interval.

    Attributes:
        lower: bound in the unit of the statistic; None when there is no interval.
        upper: as `lower`.
        level: the share of resamples inside, such as 0.95.
        num_samples: resamples; 0 when there is no interval.
        reason: why there is no interval, or what it leaves out; None when nothing is to be said.
    """

    lower: float | None
    upper: float | None
    level: float
    num_samples: int
    reason: str | None = None

    def __iter__(self) -> Iterator[float]:
        if self.lower is None:
            # Whoever unpacks sees two NaN and loses the reason.
            warnings.warn(f"no interval: {self.reason}", stacklevel=2)
        yield float("nan") if self.lower is None else self.lower
        yield float("nan") if self.upper is None else self.upper


@dataclass(frozen=True)
class Band:
    """Pointwise intervals of a performance profile.

    Attributes:
        lower: shape (k,), one bound a threshold; None when there are no intervals.
        upper: as `lower`.
        level: as `Interval`, for each threshold by itself.
        num_samples: as `Interval`.
        reason: as `Interval`.
    """

    lower: Floats | None
    upper: Floats | None
    level: float
    num_samples: int
    reason: str | None = None


def bootstrap_iqm_ci(
    values: Any, num_samples: int = 2000, alpha: float = 0.05, rng: Rng = None, *, missing: Missing = "strict"
) -> Interval:
    """Return the interval of the interquartile mean, which unpacks into its two bounds.

    Args:
        values: shape (runs, tasks); a flat list is one value for each run of one task.
        num_samples: resamples.
        alpha: the share outside; 0.05 for a 95% interval.
        rng: as `bootstrap_ci`.
        missing: "strict" or "available".

    Raises:
        UsageError: as `bootstrap_ci`.
    """
    return bootstrap_ci(values, "iqm", num_samples, alpha, rng, missing=missing)


def bootstrap_ci(
    scores: Any,
    statistic: str | BatchStatistic,
    num_samples: int = 2000,
    alpha: float = 0.05,
    rng: Rng = None,
    *,
    missing: Missing = "strict",
    tasks: Sequence[str] | None = None,
) -> Interval:
    """Return the stratified bootstrap interval of one statistic.

    Args:
        scores: shape (runs, tasks); a flat list is the runs of one task. Rows are training runs, never evaluation
            seeds of one run.
        statistic: "mean", "median", "iqm", "optimality_gap" or "superhuman"; or a function from a batch of shape
            (batch, runs, tasks) to shape (batch,). The function sees tasks in their order; missing scores are NaN.
        num_samples: resamples.
        alpha: the share outside the interval.
        rng: a generator, which is advanced; or a seed; None is seed 0. NumPy's global generator is not touched. The
            same seed gives the same interval in whatever order the runs (and, for a named statistic, the tasks) come.
        missing: "strict" refuses missing cells; "available" draws as many runs of a task as it has.
        tasks: names of the columns, for error messages.

    Returns:
        The percentile interval; without bounds, and with a reason, when no task has two runs.

    Raises:
        UsageError: the scores, the statistic, `num_samples`, `alpha` or `rng` are not as described.
    """
    if isinstance(statistic, str):
        return bootstrap_cis(scores, [statistic], num_samples, alpha, rng, missing=missing, tasks=tasks)[statistic]
    matrix = np.sort(check_scores(scores, missing=missing, tasks=tasks), axis=0)  # runs of a task have no order
    found = _bounds(matrix, {"": statistic}, num_samples, alpha, rng)[""]
    if found is None:
        return Interval(None, None, 1 - alpha, 0, ONE_RUN)
    if found.shape != (2,):
        raise UsageError(f"the statistic returns values of shape {found.shape[1:]} a resample; one number is needed.")
    return Interval(float(found[0]), float(found[1]), 1 - alpha, num_samples, _single_runs(matrix))


def bootstrap_cis(
    scores: Any,
    statistics: Sequence[str] = ("mean", "median", "iqm", "optimality_gap"),
    num_samples: int = 2000,
    alpha: float = 0.05,
    rng: Rng = None,
    *,
    missing: Missing = "strict",
    tasks: Sequence[str] | None = None,
) -> dict[str, Interval]:
    """Return the intervals of several named statistics from the same resamples; see `bootstrap_ci`."""
    for name in statistics:
        if name not in STATISTICS:
            raise unknown_value("statistic", str(name), STATISTICS)
    (matrix,) = canonical_order(check_scores(scores, missing=missing, tasks=tasks))
    found = _bounds(matrix, {name: STATISTICS[name] for name in statistics}, num_samples, alpha, rng)
    reason = _single_runs(matrix)
    intervals = {}
    for name, bounds in found.items():
        if bounds is None:
            intervals[name] = Interval(None, None, 1 - alpha, 0, ONE_RUN)
        else:
            intervals[name] = Interval(float(bounds[0]), float(bounds[1]), 1 - alpha, num_samples, reason)
    return intervals


def bootstrap_profile_ci(
    scores: Any,
    taus: Any,
    num_samples: int = 2000,
    alpha: float = 0.05,
    rng: Rng = None,
    *,
    average: bool = False,
    missing: Missing = "strict",
    tasks: Sequence[str] | None = None,
) -> Band:
    """Return pointwise intervals of a performance profile; see `bootstrap_ci`.

    Args:
        scores: shape (runs, tasks).
        taus: thresholds, shape (k,).
        num_samples: resamples.
        alpha: the share outside at each threshold.
        rng: as `bootstrap_ci`.
        average: of `average_score_profile` instead of `run_score_profile`.
        missing: as `bootstrap_ci`.
        tasks: as `bootstrap_ci`.

    Raises:
        UsageError: as `bootstrap_ci`, or thresholds that are not finite numbers.
    """
    thresholds = check_taus(taus)
    profile = batch_average_profile if average else batch_run_profile
    (matrix,) = canonical_order(check_scores(scores, missing=missing, tasks=tasks))
    found = _bounds(matrix, {"": lambda batch: profile(batch, thresholds)}, num_samples, alpha, rng)[""]
    if found is None:
        return Band(None, None, 1 - alpha, 0, ONE_RUN)
    return Band(found[0], found[1], 1 - alpha, num_samples, _single_runs(matrix))


def bootstrap_improvement_ci(
    x: Any,
    y: Any,
    num_samples: int = 2000,
    alpha: float = 0.05,
    rng: Rng = None,
    *,
    missing: Missing = "strict",
    tasks: Sequence[str] | None = None,
) -> Interval:
    """Return the interval of `probability_of_improvement`: the runs of X and of Y are drawn independently.

    Args:
        x: shape (runs of X, tasks).
        y: shape (runs of Y, tasks).
        num_samples: resamples.
        alpha: the share outside.
        rng: as `bootstrap_ci`.
        missing: as `bootstrap_ci`.
        tasks: as `bootstrap_ci`.

    Raises:
        UsageError: as `bootstrap_ci`, or the numbers of tasks differ.
    """
    _check(num_samples, alpha)
    generator = make_rng(rng)
    left, right = canonical_order(*check_pair(x, y, missing=missing, tasks=tasks))
    if max(run_counts(left).max(), run_counts(right).max()) < 2:
        return Interval(None, None, 1 - alpha, 0, ONE_RUN)
    tables = win_tables(left, right)
    shares = np.zeros(num_samples)
    block = max(1, _BLOCK // max(len(left), len(right)))
    for table in tables:
        for start in range(0, num_samples, block):
            size = min(block, num_samples - start)
            # How often each run was drawn. Whole and half numbers: the sums are exact in any order.
            drawn = [_drawn_counts(generator, size, runs) for runs in table.shape]
            wins = ((drawn[0] @ table) * drawn[1]).sum(axis=1)
            shares[start : start + size] += wins / table.size
    lower, upper = np.quantile(shares / len(tables), [alpha / 2, 1 - alpha / 2])
    return Interval(float(lower), float(upper), 1 - alpha, num_samples, _single_runs(left, right))


def make_rng(rng: Rng) -> np.random.Generator:
    """Return a generator: the given one, or a new one from a seed (None: seed 0).

    Raises:
        UsageError: neither a `numpy.random.Generator` nor a whole number of at least 0.
    """
    if isinstance(rng, np.random.Generator):
        return rng
    seed = DEFAULT_SEED if rng is None else rng
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise UsageError(f"rng {rng!r} is neither a numpy.random.Generator nor a seed of at least 0.")
    # By name: default_rng may become another generator in a later NumPy.
    return np.random.Generator(np.random.PCG64(int(seed)))


def resamples(matrix: Floats, num_samples: int, generator: np.random.Generator) -> Iterator[Floats]:
    """Yield the resampled arrays in blocks of shape (block, runs, tasks).

    Args:
        matrix: shape (runs, tasks), every column sorted with NaN last; a task with n scores gets n draws.
        num_samples: arrays in total.
        generator: advanced by one number a cell, block size and machine notwithstanding.
    """
    runs, tasks = matrix.shape
    counts = run_counts(matrix)
    unused = np.arange(runs)[:, None] >= counts  # NaN in every resample
    columns, flat = np.arange(tasks), matrix.ravel()
    block = max(1, _BLOCK // matrix.size)
    for start in range(0, num_samples, block):
        # u < 1 is at most 1 - 2**-53, so that u * n never rounds up to n. Unlike `integers`, this takes one number a
        # draw whatever n is.
        draws = generator.random((min(block, num_samples - start), runs, tasks))
        draws *= counts
        rows = draws.astype(np.int64)
        rows *= tasks
        rows += columns
        batch = flat.take(rows)
        if unused.any():
            batch[:, unused] = np.nan
        yield batch


def _bounds(
    matrix: Floats, statistics: dict[str, BatchStatistic], num_samples: int, alpha: float, rng: Rng
) -> dict[str, NDArray[np.float64] | None]:
    """Return lower and upper bound of each statistic, shape (2, …); None for all when no task has two runs."""
    _check(num_samples, alpha)
    generator = make_rng(rng)
    if run_counts(matrix).max() < 2:
        return dict.fromkeys(statistics)
    parts: dict[str, list[Floats]] = {name: [] for name in statistics}
    for batch in resamples(matrix, num_samples, generator):
        for name, statistic in statistics.items():
            values = np.asarray(statistic(batch), dtype=np.float64)
            if values.shape[:1] != batch.shape[:1]:
                raise UsageError(
                    f"the statistic turns a batch of shape {batch.shape} into shape {values.shape}; it must return one "
                    f"value for each of the {len(batch)} resamples."
                )
            if not np.isfinite(values).all():
                raise UsageError("the statistic is not a finite number on some resample, so it has no interval.")
            parts[name].append(values)
    edges = [alpha / 2, 1 - alpha / 2]
    return {name: np.quantile(np.concatenate(values), edges, axis=0) for name, values in parts.items()}


def _drawn_counts(generator: np.random.Generator, size: int, runs: int) -> Floats:
    """Return how often each of `runs` runs is drawn in each of `size` resamples, shape (size, runs)."""
    rows = (generator.random((size, runs)) * runs).astype(np.int64) + np.arange(size)[:, None] * runs
    return np.bincount(rows.ravel(), minlength=size * runs).reshape(size, runs).astype(np.float64)


def _single_runs(*matrices: Floats) -> str | None:
    """Return a line when some tasks have a single run, whose spread the interval takes for zero."""
    counts = np.min([run_counts(matrix) for matrix in matrices], axis=0)
    single = int((counts < 2).sum())
    if single == 0:
        return None
    return f"{single} of {counts.size} tasks have one training run, whose spread counts as zero: too narrow an interval"


def _check(num_samples: int, alpha: float) -> None:
    whole = isinstance(num_samples, (int, np.integer)) and not isinstance(num_samples, bool)
    if not whole or not 1 <= num_samples <= _MOST_SAMPLES:
        raise UsageError(f"num_samples {num_samples!r} is not a whole number from 1 to {_MOST_SAMPLES}.")
    if not isinstance(alpha, (int, float)) or not 0 < alpha < 1:
        raise UsageError(f"alpha {alpha!r} is not between 0 and 1; write 0.05 for a 95% interval.")
