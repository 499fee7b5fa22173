"""`synora collect`: every result counts once, nothing is averaged that differs, and nothing is lost or made up."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synora.batch.collect import collect_folders, write_collected
from synora.batch.plan import Plan
from synora.cli import main
from synora.core.errors import SynoraError, UsageError
from synora.core.job import JobSpec

REPORTS = tuple(f"collected.{extension}" for extension in ("csv", "json", "md", "tex"))


def collect(folder: Path, *flags: str) -> int:
    return main(["collect", str(folder), "--no-plots", *flags])


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "collected.json").read_text())
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in REPORTS}


def problems(folder: Path) -> dict[str, str]:
    return {row["file"]: row["problem"] for row in read(folder)["files"]["problems"]}


@pytest.fixture
def many(results: Any) -> Any:
    """Two agents, two games, three runs, with a compute case, a training run and a failure."""
    for agent, better in (("iris", 0.0), ("mine_%&", 5.0)):
        for game, low in (("Pong", -15.0), ("Breakout", 2.0)):
            for seed in range(3):
                results.returns(agent, game, [low + seed + better, low + seed + better + 1], train_seed=seed)
    results.compute("encoder")
    results.compute("broken", status="failed")
    results.train()
    return results


def test_reports_have_the_figures(many: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect(many.folder) == 0
    out = capsys.readouterr()
    assert "iris" in out.out and "15 results count, 1 failed" in out.out
    assert "broken failed: the process was killed" in out.err
    found = read(many.folder)
    pong = next(cell for cell in found["returns"]["cells"] if (cell["agent"], cell["game"]) == ("iris", "Pong"))
    assert pong["mean"] == pytest.approx(-13.5) and pong["std"] == pytest.approx(1.0) and pong["n"] == 3
    assert [run["mean"] for run in pong["runs"]] == [-14.5, -13.5, -12.5]
    assert pong["low"] <= pong["mean"] <= pong["high"]
    assert pong["hns"] == pytest.approx((-13.5 + 20.7) / (14.6 + 20.7))
    aggregate = found["returns"]["aggregates"][0]
    breakout = (3.5 - 1.7) / (30.5 - 1.7)
    assert aggregate["estimates"]["mean"]["value"] == pytest.approx((pong["hns"] + breakout) / 2)
    assert [row["label"] for row in found["published"]] == ["IRIS", "DIAMOND"]
    table = (many.folder / "collected.md").read_text()
    assert "| Pong" in table and "**" in table and "the process was killed" in table
    rows = list(csv.DictReader((many.folder / "collected.csv").open()))
    runs = [row for row in rows if row["kind"] == "run" and row["agent"] == "mine_%&" and row["game"] == "Pong"]
    assert [float(row["value"]) for row in runs] == [-9.5, -8.5, -7.5]


def test_latex_compiles(many: Any, compile_latex: Callable[[str], str]) -> None:
    many.returns("_^~{x}#$\\", "catch/0", [1.0], backend="bsuite", rules="bsuite-pixels")
    assert collect(many.folder) == 0
    printed = compile_latex((many.folder / "collected.tex").read_text())
    assert "mine_%&" in printed and "optimality gap" in printed


def test_same_bytes_whatever_the_order(many: Any, tmp_path: Path) -> None:
    assert collect(many.folder) == 0
    first = contents(many.folder)
    assert collect(many.folder) == 0
    assert contents(many.folder) == first
    moved = tmp_path / "elsewhere" / "results"
    (moved / "jobs").mkdir(parents=True)
    for path in sorted((many.folder / "jobs").iterdir(), reverse=True):
        shutil.copy(path, moved / "jobs")
    assert collect(moved) == 0
    assert contents(moved) == first


def test_folders_in_any_order(many: Any, tmp_path: Path) -> None:
    other = tmp_path / "more"
    (other / "jobs").mkdir(parents=True)
    for path in sorted((many.folder / "jobs").iterdir())[::2]:
        path.rename(other / "jobs" / path.name)
    one = collect_folders([many.folder, other])
    assert one == collect_folders([other, many.folder])
    assert one["files"]["counted"] == 15


def test_files_that_do_not_count_are_named(results: Any, capsys: pytest.CaptureFixture[str]) -> None:
    good = results.returns(returns=[4.0])
    whole = json.loads(good.read_text())
    jobs = results.folder / "jobs"
    (jobs / "cut.json").write_bytes(good.read_bytes()[:-20])
    (jobs / "empty.json").write_bytes(b"")
    (jobs / "foreign.json").write_text('{"a": 1}')
    (jobs / "list.json").write_text("[1, 2]")
    (jobs / "newer.json").write_text(json.dumps({**whole, "schema_version": 99}))
    (jobs / "nan.json").write_text(good.read_text().replace("4.0", "NaN"))
    (jobs / "negative.json").write_text(json.dumps({**whole, "body": {**whole["body"], "num_episodes": -1}}))
    (jobs / "lie.json").write_text(json.dumps({**whole, "body": {**whole["body"], "mean": 400.0}}))
    assert collect(results.folder) == 0
    assert problems(results.folder) == {
        "jobs/cut.json": "truncated",
        "jobs/empty.json": "truncated",
        "jobs/foreign.json": "foreign",
        "jobs/list.json": "foreign",
        "jobs/newer.json": "newer_schema",
        "jobs/nan.json": "invalid",
        "jobs/negative.json": "invalid",
        "jobs/lie.json": "invalid",
    }
    err = capsys.readouterr().err
    assert "jobs/newer.json: newer_schema: schema version 99" in err
    assert "the mean is 400, that of the episodes 4" in err
    assert read(results.folder)["returns"]["cells"][0]["mean"] == 4.0
    assert collect(results.folder, "--strict") == 1
    assert "--strict: something is missing, failed or in doubt" in capsys.readouterr().err


def test_the_newest_complete_attempt_counts_once(results: Any) -> None:
    results.returns(returns=[1.0], file="a.json")
    results.returns(returns=[2.0], attempt=2, file="b.json")
    results.returns(status="failed", attempt=3, file="c.json")
    shutil.copy(results.folder / "jobs" / "b.json", results.folder / "jobs" / "copy.json")
    assert collect(results.folder, "--strict") == 0
    cell = read(results.folder)["returns"]["cells"][0]
    assert (cell["mean"], cell["n"]) == (2.0, 1)
    assert problems(results.folder) == {"jobs/a.json": "superseded", "jobs/c.json": "superseded"}


def test_two_contents_of_one_attempt_are_in_doubt(results: Any) -> None:
    results.returns(returns=[1.0], file="a.json")
    results.returns(returns=[2.0], file="b.json", started_at="2026-01-02T00:00:00+00:00")
    assert collect(results.folder) == 0
    assert read(results.folder)["returns"]["cells"][0]["mean"] == 2.0
    assert problems(results.folder) == {"jobs/a.json": "duplicate"}
    assert collect(results.folder, "--strict") == 1


def test_evaluation_seeds_are_no_runs(results: Any) -> None:
    results.returns(returns=[1.0], eval_seed=0)
    results.returns(returns=[3.0], eval_seed=1)
    assert collect(results.folder) == 0
    cell = read(results.folder)["returns"]["cells"][0]
    assert (cell["mean"], cell["n"], cell["low"]) == (2.0, 1, None)
    assert "run" in cell["reason"]


def test_protocols_are_never_averaged(results: Any, capsys: pytest.CaptureFixture[str]) -> None:
    results.returns(returns=[1.0])
    results.returns(returns=[3.0], rules="ale-v5", train_seed=1)
    assert collect(results.folder) == 1
    err = capsys.readouterr().err
    assert "under different rules: ale-v5" in err and "--allow-mixed-protocol" in err
    assert not (results.folder / "collected.json").exists()
    assert collect(results.folder, "--allow-mixed-protocol") == 0
    cells = read(results.folder)["returns"]["cells"]
    assert [(cell["protocol"], cell["mean"]) for cell in cells] == [("ale-v5", 3.0), ("atari-100k", 1.0)]


def test_two_agents_of_one_name_stay_apart(results: Any) -> None:
    results.returns("mine", returns=[1.0], adapter="a:A")
    results.returns("mine", returns=[3.0], adapter="b:B", train_seed=1)
    assert collect(results.folder) == 0
    found = read(results.folder)
    assert {cell["agent"]: cell["mean"] for cell in found["returns"]["cells"]} == {"mine [a:A]": 1.0, "mine [b:B]": 3.0}
    assert "stands for 2 adapters" in found["notes"][0]


def test_two_checkpoints_of_one_training_seed_are_not_averaged(results: Any) -> None:
    results.returns(returns=[1.0], checkpoint="runs/a")
    results.returns(returns=[3.0], checkpoint="runs/b")
    assert collect(results.folder, "--strict") == 1
    cell = read(results.folder)["returns"]["cells"][0]
    assert cell["mean"] is None and "training seed 0 has two checkpoints" in cell["reason"]


def test_hardware_is_never_averaged(results: Any) -> None:
    results.compute(median_ms=2.0, file="a.json")
    results.compute(median_ms=4.0, file="b.json", host="ffff00000000")
    assert collect(results.folder) == 0
    assert [row["median_ms"] for row in read(results.folder)["compute"]] == [2.0, 4.0]


def test_a_failed_episode_is_no_figure(results: Any) -> None:
    results.returns(returns=[1.0, None])
    results.returns(returns=[3.0, 3.0], train_seed=1)
    assert collect(results.folder, "--strict") == 1
    cell = read(results.folder)["returns"]["cells"][0]
    assert (cell["mean"], cell["n"], cell["expected"]) == (3.0, 1, 2)
    assert "1 of 2 episodes failed" in (results.folder / "collected.md").read_text()
    assert collect(results.folder, "--missing", "strict") == 0
    assert read(results.folder)["returns"]["cells"][0]["mean"] is None


def test_planned_jobs_without_a_result_are_missing(results: Any, tmp_path: Path) -> None:
    path = results.returns(returns=[1.0])
    job = JobSpec.model_validate(json.loads(path.read_text())["job"])
    params = {**job.params, "train_seed": 1, "checkpoint": "runs/iris/Pong/1"}
    other = JobSpec(kind="returns", name="the other", params=params)
    Plan.of([job, other]).write(tmp_path / "wanted.json")
    assert collect(results.folder, "--plan", str(tmp_path / "wanted.json"), "--strict") == 1
    found = read(results.folder)
    assert [row["name"] for row in found["missing"]] == ["the other"] and found["planned"] == 2
    assert (found["returns"]["cells"][0]["n"], found["returns"]["cells"][0]["expected"]) == (1, 2)
    assert "(1 of 2)" in (results.folder / "collected.md").read_text()


@pytest.mark.parametrize("content", [None, "not json"])
def test_a_plan_that_cannot_be_read_is_bad_usage(results: Any, tmp_path: Path, content: str | None) -> None:
    results.returns()
    plan = tmp_path / "p.json"
    if content is not None:
        plan.write_text(content)
    assert collect(results.folder, "--plan", str(plan)) == 2


def test_nothing_to_collect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert collect(empty) == 1
    assert "there is no jobs/*.json. Nothing was written" in capsys.readouterr().err
    assert list(empty.iterdir()) == []
    assert collect(tmp_path / "nowhere") == 2
    assert "does not exist" in capsys.readouterr().err


def test_all_failed_keeps_the_earlier_report(results: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = results.returns(returns=[1.0])
    assert collect(results.folder) == 0
    before = contents(results.folder)
    path.unlink()
    results.returns(status="failed")
    assert collect(results.folder) == 1
    assert "no job succeeded" in capsys.readouterr().err
    assert contents(results.folder) == before


def test_all_failed_says_so_in_a_fresh_folder(results: Any, capsys: pytest.CaptureFixture[str]) -> None:
    results.returns(status="failed")
    assert collect(results.folder) == 1
    assert "no job succeeded; the failures are in" in capsys.readouterr().err
    assert "the process was killed" in (results.folder / "collected.md").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--missing", "some"], "value of --missing"),
        (["--published", "IRIZ"], "published agent 'IRIZ'"),
        (["--published", "IRIS,,"], "empty name"),
        (["--published", "all,IRIS"], "'all' stands alone|all stands alone"),
    ],
)
def test_bad_flags(results: Any, capsys: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    results.returns()
    assert collect(results.folder, *flags) == 2
    err = capsys.readouterr().err
    assert any(part in err for part in message.split("|")), err
    assert not (results.folder / "collected.json").exists()


def test_published_agents(results: Any) -> None:
    results.returns()
    assert collect(results.folder, "--published", "none") == 0
    assert read(results.folder)["published"] == []
    assert collect(results.folder, "--published", "dreamerv3,SimPLe (5 runs)") == 0
    labels = [row["label"] for row in read(results.folder)["published"]]
    assert labels[-1] == "SimPLe (5 runs)" and all(label.startswith("DreamerV3") for label in labels[:-1])


def test_an_unwritable_folder_is_found_first(results: Any, tmp_path: Path) -> None:
    results.returns()
    (tmp_path / "file").write_text("")
    assert collect(results.folder, "--out-dir", str(tmp_path / "file")) == 2


def test_links_that_go_round_and_doubles(results: Any, tmp_path: Path) -> None:
    results.returns()
    os.symlink(results.folder, results.folder / "round")
    os.symlink(results.folder, tmp_path / "again")
    found = collect_folders([results.folder, tmp_path / "again"])
    assert found["files"]["counted"] == 1 and found["files"]["problems"] == []


def test_the_script_is_the_command(results: Any) -> None:
    results.returns()
    script = Path(__file__).parents[2] / "scripts" / "collect_results.py"
    command = [sys.executable, str(script), str(results.folder), "--no-plots"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert read(results.folder)["files"]["counted"] == 1


def test_python_calls(results: Any, tmp_path: Path) -> None:
    results.returns()
    found = collect_folders([results.folder], mode="strict")
    assert [path.name for path in write_collected(found, tmp_path)] == [
        f"collected.{x}" for x in ("csv", "md", "tex", "json")
    ]
    with pytest.raises(UsageError, match="mode"):
        collect_folders([results.folder], mode="other")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no folder"):
        collect_folders([])
    (results.folder / "jobs" / "x").mkdir()
    with pytest.raises(SynoraError, match="no jobs"):
        collect_folders([results.folder / "jobs" / "x"])
