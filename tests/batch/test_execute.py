"""Running one job in this process: whatever it does becomes a result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synora.batch.execute import InProcessExecutor, execute, run_job
from synora.batch.plan import Plan, result_path
from synora.core.errors import FileError
from synora.core.files import lease
from synora.core.job import JobSpec
from synora.core.result import Result

pytestmark = pytest.mark.usefixtures("fake_jobs")
MakeJob = Callable[..., JobSpec]


def test_a_job_that_works_has_a_body_and_says_where_it_ran(job: MakeJob) -> None:
    phases: list[str] = []
    spec = job("work", x=3)
    result = run_job(spec, attempt=4, report=phases.append)
    assert (result.status, result.error, result.attempt) == ("ok", None, 4)
    assert result.body == {"square": 9, "nothing": None, "text": "é"}
    assert result.job == spec
    assert phases == ["about to work"]
    assert result.provenance.device == {"name": "fake"}
    assert result.provenance.wall_seconds >= 0
    assert result.provenance.started_at.endswith("+00:00")
    assert {"synora", "python", "torch", "numpy"} <= set(result.provenance.versions)
    assert "commit" in result.provenance.git


@pytest.mark.parametrize(
    ("do", "kind", "message", "traceback"),
    [
        ("raise", "ValueError", "ValueError: the model is wrong", True),
        ("raise usage", "UsageError", "unknown env 'Pnog'.", False),
        ("raise half character", "OSError", "OSError: no such file: \\udcff.bin", True),
        ("run out of memory", "out_of_memory", "MemoryError", True),
        ("return nan", "SynoraError", "body.median.list.1.float: Input should be a finite number.", False),
        ("return object", "SynoraError", "body.module: input was not a valid JSON value.", False),
        ("return none", "SynoraError", "a result is either ok with a body", False),
    ],
)
def test_a_job_that_goes_wrong_fails_with_the_reason(
    job: MakeJob, do: str, kind: str, message: str, traceback: bool
) -> None:
    result = run_job(job(do), attempt=2)
    assert (result.status, result.body, result.attempt) == ("failed", None, 2)
    assert result.error is not None
    assert result.error.type == kind
    assert message in result.error.message
    assert "\n" not in result.error.message
    assert (result.error.traceback is not None) == traceback
    if traceback:
        assert result.error.traceback is not None
        assert "synora_fake_jobs.py" in result.error.traceback


def test_a_job_that_does_not_apply_is_skipped(job: MakeJob) -> None:
    result = run_job(job("skip"))
    assert result.status == "skipped"
    assert result.error is not None
    assert (result.error.type, result.error.message) == ("skipped", "does not apply here")


def test_a_kind_without_a_handler_fails_by_name() -> None:
    result = run_job(JobSpec(kind="train", name="a"))
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.message.startswith("unknown job kind 'train'.")


def test_leaving_is_not_a_result(job: MakeJob, tmp_path: Path) -> None:
    """A scheduler's or user's wish to stop goes through, and the job can be run again."""
    with pytest.raises(SystemExit):
        execute(job("exit politely", code=5), tmp_path)
    assert not result_path(tmp_path, job("exit politely", code=5)).exists()
    with lease(result_path(tmp_path, job("exit politely", code=5))):
        pass


def test_execute_writes_what_it_returns(job: MakeJob, tmp_path: Path) -> None:
    for spec, attempt in ((job("work", x=2), 3), (job("raise"), 1), (job("raise half character"), 1)):
        result = execute(spec, tmp_path, attempt=attempt)
        assert Result.read(result_path(tmp_path, spec)) == result
        assert result.attempt == attempt


def test_a_later_attempt_replaces_the_earlier_result(job: MakeJob, tmp_path: Path) -> None:
    spec = job("work", x=2)
    execute(spec, tmp_path)
    execute(spec, tmp_path, attempt=2)
    assert Result.read(result_path(tmp_path, spec)).attempt == 2


def test_a_job_another_process_is_at_is_refused(job: MakeJob, tmp_path: Path) -> None:
    spec = job("work", x=2)
    with lease(result_path(tmp_path, spec)), pytest.raises(FileError, match="another live process"):
        execute(spec, tmp_path)
    assert not result_path(tmp_path, spec).exists()


def test_a_plan_runs_in_order_each_result_on_disk_before_the_next_job(job: MakeJob, tmp_path: Path) -> None:
    plan = Plan.of([job("work", x=1), job("raise"), job("skip"), job("work", x=2)])
    seen: list[Any] = []
    for result in InProcessExecutor().run(plan, tmp_path):
        seen.append((result.job_id, result.status))
        written = {path.stem for path in (tmp_path / "jobs").glob("*.json")}
        assert written == {job_id for job_id, _ in seen}
    assert [status for _, status in seen] == ["ok", "failed", "skipped", "ok"]
    assert [job_id for job_id, _ in seen] == [spec.job_id for spec in plan.jobs]


def test_planning_and_executing_need_no_torch() -> None:
    script = "import synora.batch.local, synora.batch.execute, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
