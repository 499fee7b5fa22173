"""Plans: indices, duplicates, round trips, and files that are no plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from synora.batch.plan import Plan, result_path
from synora.core.errors import FileError, UsageError
from synora.core.job import JobSpec

JOBS = [JobSpec(kind="compute", name=name, params={"x": [1, {"y": 0.5}]}) for name in ("c", "a", "b")]


def test_a_plan_keeps_the_order_and_survives_its_file(tmp_path: Path) -> None:
    plan = Plan.of(iter(JOBS))
    path = plan.write(tmp_path / "new" / "plan.json")
    again = Plan.read(path)
    assert again == plan
    assert [job.name for job in again.jobs] == ["c", "a", "b"]
    assert [again.job(index).job_id for index in range(3)] == [job.job_id for job in JOBS]


@pytest.mark.parametrize("index", [-1, 3, 10**6])
def test_an_index_outside_is_wrong_usage(index: int) -> None:
    with pytest.raises(UsageError, match=rf"index {index} is outside the plan: it has jobs 0 to 2"):
        Plan.of(JOBS).job(index)


def test_a_plan_is_not_empty() -> None:
    with pytest.raises(UsageError, match="the plan is empty"):
        Plan.of([])


def test_a_plan_holds_a_job_once() -> None:
    with pytest.raises(UsageError, match="more than once") as caught:
        Plan.of([*JOBS, JOBS[1]])
    assert JOBS[1].job_id in str(caught.value)
    assert JOBS[0].job_id not in str(caught.value)


def test_jobs_that_differ_only_in_params_are_two() -> None:
    assert len(Plan.of([JobSpec(kind="train", name="a", params={"seed": seed}) for seed in range(3)]).jobs) == 3


def test_each_job_has_its_own_result_file(tmp_path: Path) -> None:
    paths = {result_path(tmp_path, job) for job in JOBS}
    assert len(paths) == 3
    assert result_path(str(tmp_path), JOBS[0]) == tmp_path / "jobs" / f"{JOBS[0].job_id}.json"


def content(**changes: Any) -> str:
    return json.dumps({**Plan.of(JOBS).model_dump(mode="json"), **changes})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not valid JSON"),
        (content()[:-20], "not valid JSON"),
        ("[]", "no plan_version"),
        ('{"schema_version": 1}', "no plan_version"),
        (content(plan_version=2), "plan version 2; this synora reads up to 1. Upgrade synora"),
        (content(plan_version="1"), "plan version '1'"),
        (content(jobs=[]), "empty"),
        (content(jobs=None), "not a valid synora plan"),
        (content(jobs=5), "not a valid synora plan"),
        (content(jobs="abc"), "not a valid synora plan"),
        (content(jobs=[{"kind": "compute"}]), "name"),
        (content(jobs=[{"kind": "other", "name": "a"}]), "kind"),
        (content(jobs=[{"kind": "train", "name": "a", "params": {}, "when": "now"}]), "when"),
        (content(jobs=[{"kind": "train", "name": "a"}] * 2), "more than once"),
        ('{"plan_version": 1}', "empty"),
    ],
)
def test_what_is_no_plan_is_named_on_one_line(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "strange.json"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        Plan.read(path)
    line = str(caught.value)
    assert line.startswith(str(path))
    assert part in line
    assert "\n" not in line


def test_a_missing_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"gone\.json"):
        Plan.read(tmp_path / "gone.json")
