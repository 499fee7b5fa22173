"""Write golden/statistics: the statistics of small matrices, by plain Python loops and nothing of Synora or NumPy.

The layout is that of ../shared/reference/metrics; null is a missing run. Run it again only when a case is added.
"""

import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent / "golden" / "statistics"
LONG, SHORT = 20_000, 2000
TAUS = [-0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0]
Matrix = list[list[float | None]]

MATRICES: dict[str, Matrix] = {
    "five_runs_4_tasks": [
        [0.12, 1.31, -0.04, 0.66],
        [0.25, 0.97, 0.01, 0.71],
        [0.08, 1.84, 0.0, 0.43],
        [0.31, 1.02, -0.11, 0.95],
        [0.19, 1.15, 0.07, 0.58],
    ],
    "three_runs_2_tasks_exactly_human": [[1.0, 0.5], [0.9, 1.5], [1.1, 0.25]],
    "ties": [[0.5, 0.0, 1.0], [0.5, 1.0, 1.0], [0.5, 0.0, 0.0], [0.0, 1.0, 0.5]],
    "outlier": [[0.1, 0.2, 0.3], [0.2, 0.1, 30.0]],
    "constant": [[0.25, 0.25], [0.25, 0.25], [0.25, 0.25]],
    "one_run": [[0.3, 1.2, -0.2, 0.8, 2.5]],
    "one_task": [[0.4], [0.9], [0.1], [1.6], [0.7], [0.2]],
    "different_numbers_of_runs": [[0.3, 1.1, 0.2], [0.6, 1.4, -0.1], [0.45, None, 0.35], [None, None, 0.9]],
}
PAIRS: dict[str, tuple[Any, Any]] = {
    "five_against_four": ("five_runs_4_tasks", [[0.2, 1.0, 0.0, 0.6], [0.1, 1.2, 0.1, 0.5], [0.3, 0.9, 0.0, 0.7]]),
    "with_itself": ("ties", "ties"),
    "one_run_each": ([[0.2, 0.5]], [[0.1, 0.5]]),
    "certain": ([[2.0, 3.0], [4.0, 5.0]], [[0.0, 1.0], [1.0, -1.0]]),
}


def tasks_of(matrix: Matrix) -> list[list[float]]:
    return [[value for value in column if value is not None] for column in zip(*matrix, strict=True)]


def trimmed(values: list[float]) -> float:
    kept = sorted(values)[len(values) // 4 : len(values) - len(values) // 4]
    return math.fsum(kept) / len(kept)


def point(tasks: list[list[float]]) -> dict[str, float]:
    means = [math.fsum(runs) / len(runs) for runs in tasks]
    pooled = [score for runs in tasks for score in runs]
    found: dict[str, float] = {"mean": statistics.fmean(means), "median": statistics.median(means)}
    found["iqm"] = trimmed(pooled)
    for threshold in (1, 0.5, 2):
        name = "optimality_gap" if threshold == 1 else f"optimality_gap_gamma_{threshold}"
        found[name] = threshold - statistics.fmean(min(score, threshold) for score in pooled)
    found["superhuman_tasks"] = sum(mean >= 1 - 1e-9 for mean in means)
    return found


def improvement(x: list[list[float]], y: list[list[float]]) -> list[float]:
    shares = []
    for left, right in zip(x, y, strict=True):
        won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in left for b in right)
        shares.append(won / (len(left) * len(right)))
    return shares


def percentile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def interval(replicates: list[float]) -> dict[str, Any]:
    """Bounds of many replicates, and how far those of 2000 may be off: see `tolerance_rule`."""
    ordered = sorted(replicates)
    bounds, allowed = [], []
    for share in (0.025, 0.975):
        bound = percentile(ordered, share)
        half = 4.5 * math.sqrt(share * (1 - share) / SHORT)
        around = [percentile(ordered, min(max(share + side * half, 0.0), 1.0)) for side in (-1, 1)]
        bounds.append(bound)
        allowed.append(max(1e-9, *(1.25 * abs(value - bound) for value in around)))
    return {"reference_50000": bounds, "tolerance_2000": allowed}


def resample(tasks: list[list[float]], rng: random.Random) -> list[list[float]]:
    return [rng.choices(runs, k=len(runs)) for runs in tasks]


def expected(matrix: Matrix, rng: random.Random) -> dict[str, Any]:
    tasks = tasks_of(matrix)
    means = [math.fsum(runs) / len(runs) for runs in tasks]
    pooled = [score for runs in tasks for score in runs]
    replicates = [point(resample(tasks, rng)) for _ in range(LONG)]
    names = ("mean", "median", "iqm", "optimality_gap")
    return {
        "point": point(tasks),
        "per_task_mean": means,
        "profile": {
            "tau": TAUS,
            "fraction_of_runs_above": [sum(score > tau for score in pooled) / len(pooled) for tau in TAUS],
            "fraction_of_task_means_above": [sum(mean > tau for mean in means) / len(means) for tau in TAUS],
        },
        "ci95": {name: interval([replicate[name] for replicate in replicates]) for name in names},
    }


def pair(x: Any, y: Any, rng: random.Random) -> dict[str, Any]:
    left, right = (tasks_of(MATRICES[side] if isinstance(side, str) else side) for side in (x, y))
    shares = improvement(left, right)
    replicates = [statistics.fmean(improvement(resample(left, rng), resample(right, rng))) for _ in range(LONG)]
    found = interval(replicates)
    return {
        "x": x,
        "y": y,
        "probability": statistics.fmean(shares),
        "reverse": statistics.fmean(improvement(right, left)),
        "per_task": shares,
        "ci95": {"reps": LONG, "bounds": found["reference_50000"], "tolerance": found["tolerance_2000"]},
    }


def main() -> None:
    rng = random.Random(20_261_201)
    rule = "1.25 times the distance to the percentiles p +- 4.5 sqrt(p (1 - p) / 2000) of the replicates, at least 1e-9"
    meta = {"made_by": "tests/benchmarks/make_statistics_golden.py", "reps_long": LONG, "tolerance_rule": rule}
    values = [rng.choice([-1, 1]) * round(rng.expovariate(1.0), 3) for _ in range(13)]
    vectors = [{"name": f"n={n}", "values": values[:n], "iqm": trimmed(values[:n])} for n in range(1, 14)]
    cases = {name: expected(matrix, rng) for name, matrix in MATRICES.items()}
    contents = {
        "matrices.json": {"meta": meta, "scores": MATRICES, "expected": cases},
        "pairs.json": {"meta": meta, "pairs": {name: pair(x, y, rng) for name, (x, y) in PAIRS.items()}},
        "iqm_vectors.json": {"meta": meta, "vectors": vectors},
    }
    OUT.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (OUT / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
