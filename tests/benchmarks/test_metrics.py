"""Statistics against stored numbers: of the papers and of rliable (outside the repository), and our own (committed)."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synora.benchmarks import metrics
from synora.benchmarks.bootstrap import ONE_RUN
from synora.core.errors import UsageError

HERE = Path(__file__).resolve().parent
REFERENCE_DIR = Path(os.environ.get("SYNORA_REFERENCE_DIR") or HERE.parents[2] / "shared" / "reference")
GOLDEN_DIR = HERE / "golden" / "statistics"
NO_REFERENCE = f"no reference numbers at {REFERENCE_DIR} (set SYNORA_REFERENCE_DIR)"
needs_reference = pytest.mark.skipif(not REFERENCE_DIR.is_dir(), reason=NO_REFERENCE)
INTERVALS = ("mean", "median", "iqm", "optimality_gap")


def rows_of(name: str) -> list[dict[str, str]]:
    with (REFERENCE_DIR / "atari100k" / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def per_seed(agent: str) -> tuple[np.ndarray, list[str]]:
    """Return the human-normalised runs x games of an agent, games by name."""
    raw: dict[str, list[float | None]] = {}
    for row in rows_of("per_seed.csv"):
        if row["agent"] == agent:
            raw.setdefault(row["game"], []).append(float(row["score"]))
    matrix, games = metrics.stack_runs(dict(sorted(raw.items())))
    low = {row["game"]: (float(row["random"]), float(row["human"])) for row in rows_of("random_human.csv")}
    random_scores, human_scores = zip(*(low[game] for game in games), strict=True)
    return metrics.human_normalised(matrix, random_scores, human_scores), games


def stored(file: str, key: str) -> list[Any]:
    """Return a parameter for every case of a file in the reference folder and in ours."""
    params = []
    for folder, label in ((REFERENCE_DIR / "metrics", ""), (GOLDEN_DIR, "-golden")):
        if not (folder / file).is_file():
            params.append(pytest.param(None, id=f"none{label}", marks=pytest.mark.skip(reason=NO_REFERENCE)))
            continue
        content = json.loads((folder / file).read_text())
        cases = content[key].items() if isinstance(content[key], dict) else [(c["name"], c) for c in content[key]]
        params += [pytest.param((folder, name, case), id=f"{name}{label}") for name, case in cases]
    return params


def matrix_of(folder: Path, value: Any) -> np.ndarray:
    """Return a matrix, given itself or by its name in matrices.json."""
    if isinstance(value, str):
        value = json.loads((folder / "matrices.json").read_text())["scores"][value]
    if isinstance(value, dict):
        return per_seed(value["from"].split("agent ")[1].split(":")[0])[0]
    return np.array(value, dtype=float)


def close(got: Any, want: Any) -> Any:
    return got == pytest.approx(want, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", stored("matrices.json", "expected"))
def test_point_estimates_and_profiles(case: Any) -> None:
    folder, name, want = case
    scores = matrix_of(folder, name)
    whole = not np.isnan(scores).any()
    for key, value in want["point"].items():
        if key == "superhuman_tasks":
            got: float = metrics.superhuman_count(scores, missing="available")
        elif key.startswith("optimality_gap"):
            threshold = float(key.partition("gamma_")[2] or 1)
            got = metrics.optimality_gap(scores, threshold, missing="available")
        else:
            got = {"mean": metrics.mean, "median": metrics.median, "iqm": metrics.iqm}[key](scores, missing="available")
        assert close(got, value), key
    if whole:
        assert metrics.iqm_of_array(scores) == metrics.iqm(scores)
    assert close(list(metrics.task_means(scores, missing="available")), want["per_task_mean"])
    profile = want["profile"]
    above = metrics.run_score_profile(scores, profile["tau"], missing="available")
    assert close(list(above), profile["fraction_of_runs_above"])
    above = metrics.average_score_profile(scores, profile["tau"], missing="available")
    assert close(list(above), profile["fraction_of_task_means_above"])


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("case", stored("matrices.json", "expected"))
def test_intervals(case: Any, seed: int) -> None:
    folder, name, want = case
    scores = matrix_of(folder, name)
    found = metrics.bootstrap_cis(scores, list(want["ci95"]), rng=seed, missing="available")
    assert set(want["ci95"]) == set(INTERVALS)
    for key, bounds in want["ci95"].items():
        if len(scores) == 1:
            # rliable gives an interval of no width; we give none and say why.
            low, high = bounds["reference_50000"]
            assert close(low, high)
            assert (found[key].lower, found[key].reason) == (None, ONE_RUN)
            continue
        for got, middle, tolerance in zip(found[key], bounds["reference_50000"], bounds["tolerance_2000"], strict=True):
            assert abs(got - middle) <= tolerance, key
    profile = want["profile"]
    if "ci95_seed_2000" in profile and len(scores) > 1:
        band = metrics.bootstrap_profile_ci(scores, profile["tau"], rng=seed)
        for got, middle, tolerance in zip(
            (band.lower, band.upper), profile["ci95_seed_2000"], profile["tolerance_2000"], strict=True
        ):
            assert (np.abs(got - np.array(middle)) <= np.array(tolerance)).all()


@pytest.mark.parametrize("case", stored("matrices.json", "expected"))
def test_wrong_schemes_are_told_apart(case: Any) -> None:
    """Where the file's traps lie outside the tolerance, so do they lie outside of ours."""
    folder, name, want = case
    scores = matrix_of(folder, name)
    traps = want.get("traps", {})
    for key, got in (("iqm_of_task_means", metrics.iqm), ("median_of_pooled", metrics.median)):
        right = want["point"][key.split("_")[0]]
        if key in traps and not close(traps[key], right):
            assert abs(got(scores) - traps[key]) > 1e-6
    bounds = want["ci95"]["iqm"]
    for key in ("ci95_iqm_if_whole_runs_resampled", "ci95_iqm_if_pool_resampled"):
        pairs = zip(traps.get(key, []), bounds["reference_50000"], bounds["tolerance_2000"], strict=False)
        if len(scores) > 1 and any(abs(trap - middle) > 2 * tolerance for trap, middle, tolerance in pairs):
            found = metrics.bootstrap_iqm_ci(scores)
            off = [abs(got - trap) for got, trap in zip(found, traps[key], strict=True)]
            assert any(value > tolerance for value, tolerance in zip(off, bounds["tolerance_2000"], strict=True)), key


@pytest.mark.parametrize("case", stored("pairs.json", "pairs"))
def test_probability_of_improvement(case: Any) -> None:
    folder, _, want = case
    x, y = matrix_of(folder, want["x"]), matrix_of(folder, want["y"])
    assert close(metrics.probability_of_improvement(x, y), want["probability"])
    assert close(metrics.probability_of_improvement(y, x), want["reverse"])
    assert close(list(metrics.improvement_per_task(x, y)), want["per_task"])
    interval = metrics.bootstrap_improvement_ci(x, y)
    if len(x) == len(y) == 1:
        assert (interval.lower, interval.reason) == (None, ONE_RUN)
        return
    for got, middle, tolerance in zip(interval, want["ci95"]["bounds"], want["ci95"]["tolerance"], strict=True):
        assert abs(got - middle) <= tolerance


@pytest.mark.parametrize("case", stored("iqm_vectors.json", "vectors"))
def test_iqm_of_lists(case: Any) -> None:
    want = case[2]
    assert close(metrics.iqm_of_array(want["values"]), want["iqm"])


@needs_reference
def test_the_papers_aggregates_to_the_printed_digits() -> None:
    for exact in rows_of("recomputed_aggregates.csv"):
        scores, games = per_seed(exact["agent"])
        assert scores.shape == (int(exact["runs"]), int(exact["games"])) and len(games) == int(exact["games"])
        found = {name: float(statistic(scores[None])[0]) for name, statistic in metrics.STATISTICS.items()}
        for name, value in found.items():
            assert f"{value:.10f}" == f"{float(exact[name]):.10f}", name
        assert found["superhuman"] == metrics.superhuman_count(scores)
        checked = 0
        for row in rows_of("published_aggregates.csv"):
            if (row["agent"], row["recomputed_from"], row["reproduces"]) != (exact["agent"], "runs x games", "yes"):
                continue
            digits = len(row["printed"].rstrip("%").partition(".")[2])
            scale = 100 if row["printed"].endswith("%") else 1
            assert f"{found[row['metric']] * scale:.{digits}f}" == row["printed"].rstrip("%"), row
            checked += 1
        assert checked > 0, exact["agent"]


@needs_reference
def test_superhuman_games_are_counted_on_averages_with_the_human_score_included() -> None:
    scores, games = per_seed("IRIS")
    assert metrics.superhuman_count(scores) == 10
    pong = scores[:, games.index("Pong")]
    assert abs(pong.mean() - 1) < 1e-12
    # In whatever order the runs are summed up.
    for order in itertools.permutations(range(len(pong))):
        assert metrics.superhuman_count(scores[list(order)]) == 10


# From here on without any stored number.


def random_matrix(rng: random.Random, runs: int, tasks: int) -> list[list[float]]:
    return [
        [rng.choice([0.0, 0.5, rng.gauss(0.5, 1.0), rng.expovariate(1.0)]) for _ in range(tasks)] for _ in range(runs)
    ]


@pytest.mark.parametrize("runs,tasks", [(1, 1), (1, 6), (2, 3), (5, 4), (7, 3), (3, 26)])
def test_points_equal_plain_python(runs: int, tasks: int) -> None:
    scores = random_matrix(random.Random(runs * 100 + tasks), runs, tasks)
    means = [statistics.fmean(column) for column in zip(*scores, strict=True)]
    pooled = sorted(value for row in scores for value in row)
    cut = len(pooled) // 4
    assert close(metrics.mean(scores), statistics.fmean(means))
    assert close(metrics.median(scores), statistics.median(means))
    assert close(metrics.iqm(scores), statistics.fmean(pooled[cut : len(pooled) - cut]))
    assert close(metrics.iqm_of_array(pooled), metrics.iqm(scores))
    assert close(metrics.optimality_gap(scores, 0.7), statistics.fmean(0.7 - min(value, 0.7) for value in pooled))


def test_a_hair_below_the_human_score_is_the_human_score() -> None:
    runs = [0.7, 1.4, 0.9]
    assert sum(runs) / 3 < 1 and sum(runs[::-1]) / 3 >= 1, "which of the two it is depends on the order of summation"
    assert metrics.superhuman_count(runs) == metrics.superhuman_count(runs[::-1]) == 1
    assert metrics.superhuman_count([1 - 1e-6]) == 0


def test_bootstrap_equals_the_exact_distribution() -> None:
    """Two runs of three tasks have 64 equally likely resamples: all of them can be listed."""
    tasks = [(0.1, 0.9), (0.4, 1.5), (-0.3, 0.2)]
    choices = [list(itertools.product(runs, repeat=2)) for runs in tasks]
    exact = sorted(metrics.iqm(np.array(drawn).T) for drawn in itertools.product(*choices))
    assert len(exact) == 64
    found = metrics.bootstrap_ci(np.array(tasks).T, "iqm", 200_000, alpha=0.3, rng=1)
    assert exact[8] <= found.lower <= exact[10]
    assert exact[53] <= found.upper <= exact[55]


def test_intervals_do_not_depend_on_the_order_of_results() -> None:
    scores = np.array(random_matrix(random.Random(3), 5, 7))
    first = metrics.bootstrap_cis(scores, list(metrics.STATISTICS), 300, rng=5)
    generator = np.random.default_rng(0)
    for _ in range(5):
        moved = generator.permuted(scores, axis=0)[:, generator.permutation(7)]
        assert metrics.bootstrap_cis(moved, list(metrics.STATISTICS), 300, rng=5) == first
        assert close(metrics.mean(moved), metrics.mean(scores))
        assert metrics.iqm(moved) == metrics.iqm(scores)
    order = generator.permutation(7)
    other = np.array(random_matrix(random.Random(4), 3, 7))
    pair = metrics.bootstrap_improvement_ci(scores, other, 300)
    assert metrics.bootstrap_improvement_ci(scores[::-1, order], other[:, order], 300) == pair


def test_same_seed_same_interval_on_any_machine() -> None:
    """Written down once: another machine, processor or NumPy must print the same digits."""
    scores = np.arange(15).reshape(5, 3) ** 2 / 64
    found = metrics.bootstrap_cis(scores, list(metrics.STATISTICS), 500, rng=42)
    want = {
        "mean": (0.5676822916666667, 1.5638541666666663),
        "median": (0.45742187500000003, 1.590625),
        "iqm": (0.3489583333333333, 1.548958333333333),
        "optimality_gap": (0.18486979166666664, 0.6084374999999999),
        "superhuman": (0.0, 3.0),
    }
    for name, bounds in want.items():
        assert tuple(found[name]) == pytest.approx(bounds, rel=1e-13), name


def test_rng() -> None:
    scores = random_matrix(random.Random(1), 4, 5)
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    default = metrics.bootstrap_iqm_ci(scores)
    assert metrics.bootstrap_iqm_ci(scores, rng=0) == default
    assert metrics.bootstrap_iqm_ci(scores, rng=np.random.Generator(np.random.PCG64(0))) == default
    assert metrics.bootstrap_iqm_ci(scores, rng=1) != default
    generator = metrics.make_rng(0)
    assert metrics.bootstrap_iqm_ci(scores, rng=generator) == default
    assert metrics.bootstrap_iqm_ci(scores, rng=generator) != default, "a generator goes on"
    metrics.bootstrap_improvement_ci(scores, scores)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]
    for bad in (-1, 1.5, True, "0", np.random.RandomState(0)):
        with pytest.raises(UsageError, match=r"neither a numpy\.random\.Generator nor a seed"):
            metrics.bootstrap_iqm_ci(scores, rng=bad)  # type: ignore[arg-type]


def test_constant_scores_have_an_interval_of_no_width() -> None:
    scores = np.full((4, 6), 0.25)
    for name, interval in metrics.bootstrap_cis(scores).items():
        value = {"optimality_gap": 0.75}.get(name, 0.25)
        assert tuple(interval) == (value, value)
    assert metrics.probability_of_improvement(scores, scores) == 0.5
    assert tuple(metrics.bootstrap_improvement_ci(scores, scores)) == (0.5, 0.5)


def test_one_run_has_no_interval_and_says_why() -> None:
    interval = metrics.bootstrap_iqm_ci([[0.1, 0.5, 0.9]])
    assert (interval.lower, interval.upper, interval.num_samples) == (None, None, 0)
    assert "one training run per task" in str(interval.reason)
    with pytest.warns(UserWarning, match="no interval: one training run"):
        lower, upper = metrics.bootstrap_iqm_ci([0.3])
    assert math.isnan(lower) and math.isnan(upper)
    assert metrics.bootstrap_ci([[0.1]], lambda batch: batch.mean(axis=(1, 2))).reason == ONE_RUN
    band = metrics.bootstrap_profile_ci([[0.1, 0.2]], [0.0, 1.0])
    assert (band.lower, band.reason) == (None, ONE_RUN)
    some = metrics.bootstrap_iqm_ci([[0.1, 0.5], [0.2, None]], missing="available")
    assert some.lower is not None
    assert some.reason == "1 of 2 tasks have one training run, whose spread counts as zero: too narrow an interval"


def test_missing_scores_are_named() -> None:
    scores = [[0.1, None, 0.5], [0.3, math.nan, None], [0.2, None, 0.7]]
    tasks = ["Pong", "Alien", "Hero"]
    found = metrics.coverage(scores, tasks=tasks, runs=["seed 0", "seed 1", "seed 2"])
    assert (found.found, found.expected, found.runs, found.complete) == (5, 9, (2, 3), False)
    assert str(found) == "5 of 9 scores; missing: Alien, Hero run seed 1"
    for function in (metrics.mean, metrics.median, metrics.iqm, metrics.optimality_gap, metrics.superhuman_count):
        with pytest.raises(UsageError, match=r"5 of 9 scores; missing: Alien, Hero run 1\. Write missing='available'"):
            function(scores, tasks=tasks)
    assert close(metrics.mean(scores, missing="available"), (0.2 + 0.6) / 2)
    assert close(metrics.iqm(scores, missing="available"), (0.2 + 0.3 + 0.5) / 3)
    assert close(metrics.iqm_of_array(scores, missing="available"), (0.2 + 0.3 + 0.5) / 3)
    assert close(metrics.optimality_gap(scores, missing="available"), 1 - 1.8 / 5)
    with pytest.raises(UsageError, match="5 of 9"):
        metrics.bootstrap_ci(scores, "mean")
    assert metrics.bootstrap_ci(scores, "mean", missing="available").lower is not None
    many = metrics.coverage([[None] * 8, [1.0] * 8])
    assert str(many).endswith("task 4 run 0 and 3 more")
    with pytest.raises(UsageError, match="none of the 2 scores is there"):
        metrics.mean([[None, None]], missing="available")


def test_missing_scores_of_a_pair() -> None:
    x, y = [[1.0, None], [2.0, 3.0]], [[0.0, 1.0]]
    with pytest.raises(UsageError, match="3 of 4"):
        metrics.probability_of_improvement(x, y)
    assert metrics.probability_of_improvement(x, y, missing="available") == 1.0
    with pytest.raises(UsageError, match="no task in which both"):
        metrics.probability_of_improvement([[1.0, None]], [[None, 1.0]], missing="available")
    with pytest.raises(UsageError, match="X has 2 tasks and Y has 1"):
        metrics.probability_of_improvement([[1.0, 2.0]], [[1.0]])


@pytest.mark.parametrize(
    "scores,match",
    [
        ([], "at least one run"),
        ([[]], "at least one run"),
        (None, "shape"),
        ([[1.0], [1.0, 2.0]], "same length"),
        (["a", "b"], "not a table of numbers"),
        ([[1.0, math.inf]], "infinite"),
        (np.zeros((2, 2, 2)), "shape"),
    ],
)
def test_bad_scores(scores: Any, match: str) -> None:
    for function in (metrics.mean, metrics.iqm, metrics.bootstrap_iqm_ci, metrics.coverage):
        with pytest.raises(UsageError, match=match):
            function(scores)


def test_bad_options() -> None:
    scores = [[0.1, 0.2], [0.3, 0.4]]
    for samples in (0, -1, 1.5, True, 10**9):
        with pytest.raises(UsageError, match="num_samples"):
            metrics.bootstrap_iqm_ci(scores, num_samples=samples)  # type: ignore[arg-type]
    for alpha in (0, 1, -0.1, "0.05"):
        with pytest.raises(UsageError, match="alpha"):
            metrics.bootstrap_iqm_ci(scores, alpha=alpha)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Did you mean 'median'"):
        metrics.bootstrap_ci(scores, "medain")
    with pytest.raises(UsageError, match="Did you mean 'strict'"):
        metrics.mean(scores, missing="stric")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="3 names of tasks were given for 2 tasks"):
        metrics.coverage(scores, tasks=["a", "b", "c"])
    for taus in ([], [math.nan], 0.5):
        with pytest.raises(UsageError, match="thresholds"):
            metrics.run_score_profile(scores, taus)


def test_any_statistic() -> None:
    scores = np.array(random_matrix(random.Random(8), 5, 4))
    own = metrics.bootstrap_ci(scores, lambda batch: batch.max(axis=(1, 2)), 500)
    assert own.upper == scores.max()
    with pytest.raises(UsageError, match="one value for each"):
        metrics.bootstrap_ci(scores, lambda batch: batch.mean(axis=(0, 1, 2)))
    with pytest.raises(UsageError, match="one number is needed"):
        metrics.bootstrap_ci(scores, lambda batch: batch.mean(axis=1))
    with pytest.raises(UsageError, match="not a finite number"):
        metrics.bootstrap_ci(scores, lambda batch: np.full(len(batch), np.nan))


def test_inputs_are_left_alone() -> None:
    scores = np.array([[0.4, np.nan], [0.1, 0.3], [0.2, 0.9]])
    before = scores.copy()
    metrics.summarise(scores, missing="available", num_samples=50)
    metrics.bootstrap_ci(scores, "iqm", 50, missing="available")
    assert np.array_equal(scores, before, equal_nan=True)


def test_summary() -> None:
    scores = np.array(random_matrix(random.Random(2), 3, 5))
    found = metrics.summarise(scores, num_samples=200)
    assert found.reason is None and found.coverage.complete
    assert found.estimates["iqm"].value == metrics.iqm(scores)
    assert found.estimates["mean"].interval == metrics.bootstrap_ci(scores, "mean", 200)
    scores[1, 2] = np.nan
    found = metrics.summarise(scores, tasks=["a", "b", "c", "d", "e"], num_samples=200)
    assert found.reason == "14 of 15 scores; missing: c run 1"
    assert [estimate.value for estimate in found.estimates.values()] == [None] * 5
    found = metrics.summarise(scores, missing="available", num_samples=200)
    assert found.reason is None and found.estimates["iqm"].value == metrics.iqm(scores, missing="available")
    nothing = metrics.summarise([[None, None]], missing="available")
    assert nothing.reason is not None and nothing.estimates["mean"].value is None


def test_runs_of_different_numbers_are_stacked() -> None:
    matrix, tasks = metrics.stack_runs({"Pong": [1.0, 2.0, 3.0], "Alien": [4.0], "Hero": []})
    assert tasks == ["Pong", "Alien", "Hero"]
    assert np.array_equal(matrix, [[1, 4, np.nan], [2, np.nan, np.nan], [3, np.nan, np.nan]], equal_nan=True)
    with pytest.raises(UsageError, match="no scores"):
        metrics.stack_runs({"Pong": []})


def test_statistics_need_no_heavy_library() -> None:
    names = "synora.benchmarks.metrics, synora.benchmarks.published"
    code = f"import sys, {names}; print([name for name in ('torch', 'pandas', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_seeds_snippet() -> None:
    per_seed_means = [1.0, 2.0, 4.0, 5.0, 9.0]
    iqm = metrics.iqm_of_array(per_seed_means)
    lower, upper = metrics.bootstrap_iqm_ci(per_seed_means, num_samples=2000, alpha=0.05)
    assert f"IQM={iqm:.3f}" == "IQM=3.667"
    assert 1 <= lower < iqm < upper <= 9
