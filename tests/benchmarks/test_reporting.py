"""The reports as their readers find them."""

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synora.benchmarks import reporting
from synora.benchmarks.settings import make_jobs
from synora.core.errors import FileError
from synora.core.job import JobSpec
from synora.core.result import ErrorInfo, Provenance, Result


def result(job: JobSpec, returns: list[float | None] | None, train_seed: int | None = 0) -> Result:
    from synora.benchmarks.episodes import read_evaluation, summary

    where = Provenance(started_at="2026-01-01T00:00:00+00:00", wall_seconds=1.5)
    if returns is None:
        error = ErrorInfo(type="died", message="the agent is 100 % gone")
        return Result(job_id=job.job_id, job=job, status="failed", error=error, provenance=where)
    episodes = read_evaluation({"episode_returns": returns}, len(returns))
    body = {
        **{name: job.params[name] for name in ("eval_seed", "device", "preset", "num_envs")},
        "adapter": "some.where:Adapter_1",
        "train_seed": train_seed,
        "checkpoint": {"path": str(job.params["checkpoint"]), "step": 100_000},
        "num_episodes": len(episodes),
        "episode_returns": returns,
        **summary(episodes),
        "episodes": episodes,
    }
    return Result(job_id=job.job_id, job=job, status="ok", provenance=where, body=body)  # type: ignore[arg-type]


def report(*returns: list[float | None] | None, agent: str = "my_agent", checkpoints: Any = None) -> dict[str, Any]:
    seeds = range(len(returns))
    common = {"episodes": 2} if checkpoints else {"episodes": 2, "checkpoint": "runs/a_b"}
    jobs = make_jobs("random", {"game": "catch/0"}, seeds, checkpoints=checkpoints, **common)
    results = [result(job, values) for job, values in zip(jobs, returns, strict=True)]
    env = {"game": "catch/0", "name": "catch/0", "backend": "bsuite", "note": None}
    protocol = {"name": "bsuite-pixels", "fingerprint": "0123456789abcdef"}
    about = {"agent": agent, "env": env, "protocol": protocol, "metadata": {"started_at": "now", "none": None}}
    return reporting.build_report(results, about)


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_figures_over_seeds() -> None:
    total = report([1.0, 3.0], [4.0, 6.0])["aggregate"]
    assert total["per_seed_means"] == [2.0, 5.0]
    assert total["mean"] == 3.5 and total["std"] == pytest.approx(math.sqrt(4.5))
    assert (total["num_seeds"], total["num_episodes"], total["episodes_failed"]) == (2, 4, 0)
    assert "one training run (train seed 0)" in total["note"]
    assert report([1.0, 3.0])["aggregate"]["reason"] == "one seed has no spread"
    several = report([1.0, 3.0], [4.0, 6.0], checkpoints={0: "a", 1: "b"})
    assert several["aggregate"]["note"] == "The 2 seeds evaluate 2 training runs."


def test_what_failed_has_no_figures_anywhere(tmp_path: Path) -> None:
    found = report([1.0, None], None, [4.0, 6.0])
    assert found["aggregate"]["per_seed_means"] == [None, None, 5.0]
    assert found["aggregate"]["mean"] is None and found["aggregate"]["episodes_failed"] == 3
    reporting.write_reports(found, tmp_path)
    table = rows(tmp_path / "benchmark_results.csv")
    assert [row["mean"] for row in table] == ["", "", "5.0"]
    assert [row["status"] for row in table] == ["ok", "failed", "ok"]
    assert [row["episodes_failed"] for row in table] == ["1", "2", "0"]
    page = (tmp_path / "benchmark_results.md").read_text()
    assert "seed 1 failed: the agent is 100 % gone" in page
    assert "seed 0, episode 1 failed: the adapter reported no return (None)" in page
    assert "nan" not in page.lower() and "None" not in page.split("## Failed")[0]
    assert json.loads((tmp_path / "benchmark_results.json").read_text()) == found


def test_the_four_files_and_the_columns_of_the_csv(tmp_path: Path) -> None:
    found = report([1.0, 3.0], [4.0, 6.0])
    for name in ("json", "csv", "markdown", "latex"):
        getattr(reporting, f"export_{name}")(found, tmp_path / name)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["csv", "json", "latex", "markdown"]
    first = rows(tmp_path / "csv")[0]
    expected = {"agent": "my_agent", "eval_seed": "0", "train_seed": "0", "mean": "2.0", "checkpoint_step": "100000"}
    assert expected.items() <= first.items()
    assert first["protocol_fingerprint"] == "0123456789abcdef"
    assert " all |" in (tmp_path / "markdown").read_text()


def test_latex_escapes_what_latex_would_read(compile_latex: Callable[[str], str]) -> None:
    text = reporting.as_latex(report([1.0, 3.0], None, agent="a_b & 50% #1"))
    assert r"a\_b \& 50\% \#1" in text
    assert text.count(r"\\") == 4 and r"\toprule" in text and r"\end{tabular}" in text
    assert "a_b & 50% #1" in compile_latex(text)


def test_markdown_keeps_its_columns() -> None:
    page = reporting.as_markdown(report([1.0, 3.0], agent="a|b"))
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in lines} == {11}


def test_several_agents(tmp_path: Path) -> None:
    reports = {"one": report([1.0, 3.0], agent="one"), "two": report(None, agent="two")}
    reporting.write_combined(reports, tmp_path)
    combined = json.loads((tmp_path / "combined_benchmark_results.json").read_text())
    assert list(combined["agents"]) == ["one", "two"]
    assert combined["agents"]["one"]["aggregate"]["per_seed_means"] == [2.0]
    assert combined["agents"]["two"]["aggregate"]["per_seed_means"] == [None]
    assert [row["agent"] for row in rows(tmp_path / "combined_benchmark_results.csv")] == ["one", "two"]
    assert "two" in reporting.as_text(reports.values())


def test_a_folder_that_is_not_there_any_more(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError):
        reporting.export_csv(report([1.0, 3.0]), tmp_path / "file" / "x.csv")
