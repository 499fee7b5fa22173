"""Statistics of benchmark scores: the public names, and the summary of one agent. Torch-free.

Everything is a pure function of a runs x tasks array: rows are training runs, columns are games, cells are normally
human-normalised scores. `docs/statistics.md` has the definitions and their traps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from synora.benchmarks.bootstrap import (
    Band,
    Interval,
    bootstrap_ci,
    bootstrap_cis,
    bootstrap_improvement_ci,
    bootstrap_iqm_ci,
    bootstrap_profile_ci,
    make_rng,
)
from synora.benchmarks.point_estimates import (
    STATISTICS,
    average_score_profile,
    improvement_per_task,
    iqm,
    iqm_of_array,
    mean,
    median,
    optimality_gap,
    probability_of_improvement,
    run_score_profile,
    superhuman_count,
    task_means,
)
from synora.benchmarks.score_matrix import Coverage, Missing, check_scores, coverage, stack_runs
from synora.benchmarks.scores import human_normalised, human_normalised_score, normalise_games

__all__ = [
    "STATISTICS",
    "Band",
    "Coverage",
    "Estimate",
    "Interval",
    "Missing",
    "Summary",
    "average_score_profile",
    "bootstrap_ci",
    "bootstrap_cis",
    "bootstrap_improvement_ci",
    "bootstrap_iqm_ci",
    "bootstrap_profile_ci",
    "coverage",
    "human_normalised",
    "human_normalised_score",
    "improvement_per_task",
    "iqm",
    "iqm_of_array",
    "make_rng",
    "mean",
    "median",
    "normalise_games",
    "optimality_gap",
    "probability_of_improvement",
    "run_score_profile",
    "stack_runs",
    "summarise",
    "superhuman_count",
    "task_means",
]


@dataclass(frozen=True)
class Estimate:
    """A statistic with its interval.

    Attributes:
        value: None when there is nothing to compute it from.
        interval: without bounds, and with a reason, where there is none.
    """

    value: float | None
    interval: Interval


@dataclass(frozen=True)
class Summary:
    """The aggregates of one agent.

    Attributes:
        estimates: "mean", "median", "iqm", "optimality_gap", "superhuman" -> value and interval. The count of games has
            no interval in the papers, but the resamples give one.
        coverage: which scores are there.
        reason: why there are no values; None when there are.
    """

    estimates: dict[str, Estimate]
    coverage: Coverage
    reason: str | None


def summarise(
    scores: Any,
    *,
    tasks: Sequence[str] | None = None,
    runs: Sequence[Any] | None = None,
    missing: Missing = "strict",
    num_samples: int = 2000,
    alpha: float = 0.05,
    rng: Any = None,
) -> Summary:
    """Return all aggregates of one agent with their intervals.

    Missing scores are no error here: under "strict" the values are None, and the reason names what is missing, so that
    a table of several agents can still be made.

    Args:
        scores: human-normalised, shape (runs, tasks); NaN is missing.
        tasks: names of the columns.
        runs: labels of the rows.
        missing: "strict" for no value unless every score is there; "available" for those that are there.
        num_samples: as `bootstrap_ci`.
        alpha: as `bootstrap_ci`.
        rng: as `bootstrap_ci`.

    Raises:
        UsageError: as `bootstrap_ci`, except for missing scores.
    """
    found = coverage(scores, tasks=tasks, runs=runs)
    if found.found == 0 or (missing == "strict" and not found.complete):
        reason = str(found)
        nothing = Estimate(None, Interval(None, None, 1 - alpha, 0, reason))
        return Summary(dict.fromkeys(STATISTICS, nothing), found, reason)
    matrix = check_scores(scores, missing=missing, tasks=tasks)
    intervals = bootstrap_cis(matrix, list(STATISTICS), num_samples, alpha, rng, missing=missing)
    points = {name: float(statistic(matrix[None])[0]) for name, statistic in STATISTICS.items()}
    return Summary({name: Estimate(points[name], intervals[name]) for name in STATISTICS}, found, None)
