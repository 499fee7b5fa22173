"""Results: one schema, its consistency rules, and files that are no results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from synora.core.errors import FileError
from synora.core.job import JobSpec
from synora.core.result import SCHEMA_VERSION, ErrorInfo, Provenance, Result

JOB = JobSpec(kind="compute", name="a", params={"x": 1})
WHY = ErrorInfo(type="timeout", message="too slow")
PROVENANCE = Provenance(started_at="2026-01-01T00:00:00+00:00", wall_seconds=1.5, git={"dirty": None}, machine={"n": 2})


def result(**fields: Any) -> Result:
    defaults: dict[str, Any] = {"job_id": JOB.job_id, "job": JOB, "status": "ok", "provenance": PROVENANCE}
    return Result(**{**defaults, **fields})


OK = result(body={"value": 0.1, "missing": None, "list": [1, {"é": "漢"}]}, attempt=3)
FAILED = result(status="failed", error=ErrorInfo(type="ValueError", message="no", traceback="Traceback\n  …"))


@pytest.mark.parametrize("written", [OK, FAILED, *(result(status=s, error=WHY) for s in ("timeout", "preempted"))])
def test_a_result_is_read_as_it_was_written(tmp_path: Path, written: Result) -> None:
    path = written.write(tmp_path / "jobs" / "a.json")
    assert Result.read(path) == written
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["schema_version"] == SCHEMA_VERSION == 1
    assert content["job"] == {"kind": "compute", "name": "a", "params": {"x": 1}}
    assert content["attempt"] == written.attempt


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "ok"},
        {"status": "ok", "body": {}, "error": WHY},
        {"status": "ok", "error": WHY},
        {"status": "failed"},
        {"status": "failed", "body": {}},
        {"status": "failed", "body": {}, "error": WHY},
        {"status": "skipped", "body": {"x": 1}, "error": WHY},
        {"status": "fine", "body": {}},
        {"job_id": "a-0123456789", "body": {}},
        {"attempt": 0, "body": {}},
        {"body": {"x": float("nan")}},
        {"body": {"x": [{"y": float("inf")}]}},
        {"body": {"x": object()}},
        {"body": {}, "extra": 1},
    ],
)
def test_an_inconsistent_result_cannot_be_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        result(**fields)


def test_provenance_is_finite_and_not_negative() -> None:
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            Provenance(started_at="now", wall_seconds=seconds)


def test_a_result_is_frozen() -> None:
    with pytest.raises(ValidationError):
        OK.status = "failed"


def changed(**changes: Any) -> str:
    return json.dumps({**OK.model_dump(mode="json"), **changes})


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "not valid JSON"),
        (changed()[:-40], "not valid JSON"),
        ("[]", "no schema_version"),
        ('{"plan_version": 1, "jobs": []}', "no schema_version"),
        (changed(schema_version=2), "schema version 2; this synora reads up to 1. Upgrade synora"),
        (changed(schema_version="1"), "schema version '1'"),
        (changed(schema_version=None), "schema version None"),
        (changed(job_id="b-0123456789"), "does not belong to this job"),
        (changed(job={**OK.job.model_dump(), "name": "b"}), "does not belong to this job"),
        (changed(status="fine"), "status"),
        (changed(attempt="3"), "attempt"),
        (changed(body=None), "either ok with a body"),
        (changed(surprise=1), "surprise"),
        (changed(body={"x": float("nan")}), "not valid JSON"),
        (changed(body={"x": 1}).replace(" 1}", " 1e999}"), "finite"),
        ('{"schema_version": 1}', "job_id"),
    ],
)
def test_what_is_no_result_is_named_on_one_line(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "strange.json"
    path.write_text(content)
    with pytest.raises(FileError) as caught:
        Result.read(path)
    line = str(caught.value)
    assert line.startswith(str(path))
    assert part in line
    assert "\n" not in line


def test_a_missing_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"gone\.json: No such file"):
        Result.read(tmp_path / "gone.json")
