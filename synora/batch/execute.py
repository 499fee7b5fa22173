"""Run one job, here and now, and turn whatever happens into a `Result`.

This is the one place where an exception of a job becomes data: every executor, local or on a cluster, ends here.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from synora.batch.plan import Plan, result_path
from synora.core.errors import JobPreempted, JobSkipped, SynoraError, first_problem
from synora.core.files import lease
from synora.core.job import JobSpec
from synora.core.registry import Registry
from synora.core.result import ErrorInfo, Provenance, Result, Status

# A handler takes the job's params and a `report(phase)` callback and returns (body, device facts), or (body, device
# facts, fingerprint of the environment's protocol).
HANDLERS = Registry(
    "job kind",
    {
        "compute": "synora.compute.measure:run",
        "returns": "synora.benchmarks.handler:run",
        "train": "synora.training.handler:run",
    },
)

Report = Callable[[str], None]


def run_job(job: JobSpec, *, attempt: int = 1, report: Report = lambda phase: None) -> Result:
    """Run `job` in this process and return its result, whatever the outcome.

    Args:
        job: what to run.
        attempt: recorded in the result.
        report: called with a short text whenever the job enters a new phase.

    Raises:
        KeyboardInterrupt, SystemExit: these are the user's or the scheduler's, not the job's.
    """
    started_at, start = utc_now(), time.perf_counter()

    def outcome(
        status: Status,
        error: ErrorInfo | None = None,
        body: dict[str, Any] | None = None,
        device: dict[str, Any] | None = None,
        protocol: str | None = None,
    ) -> Result:
        seconds = time.perf_counter() - start
        return Result(
            job_id=job.job_id,
            job=job,
            attempt=attempt,
            status=status,
            error=error,
            provenance=provenance(started_at, seconds, device, protocol),
            body=body,
        )

    try:
        body, device, *protocol = HANDLERS.load(job.kind)(job.params, report)
        try:
            return outcome("ok", None, body, device, *protocol)
        except ValidationError as invalid:
            found = first_problem(invalid, "result")
            raise SynoraError(f"the job returned what no result may hold: {found}.") from invalid
    except JobSkipped as reason:
        return outcome("skipped", ErrorInfo(type="skipped", message=_one_line(str(reason))))
    except JobPreempted as reason:
        return outcome("preempted", ErrorInfo(type="preempted", message=_one_line(str(reason))))
    except Exception as failure:  # noqa: BLE001 - the job's outcome is recorded as failed, with its traceback
        return outcome("failed", describe_exception(failure))


def describe_exception(failure: Exception) -> ErrorInfo:
    """Turn an exception into an error record; memory exhaustion of any kind gets the type "out_of_memory"."""
    text = _one_line(str(failure)) or type(failure).__name__
    kind = type(failure).__name__
    if isinstance(failure, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in text:
        kind = "out_of_memory"
    first_line = text if len(text) <= 300 else text[:297] + "..."
    expected = isinstance(failure, SynoraError)
    return ErrorInfo(
        type=kind,
        message=first_line if expected or kind == "out_of_memory" else f"{type(failure).__name__}: {first_line}",
        traceback=None if expected else _unicode("".join(traceback.format_exception(failure))),
    )


def _one_line(text: str) -> str:
    return " ".join(_unicode(text).split())


def _unicode(text: str) -> str:
    """Escape what UTF-8 cannot hold: half characters, as in the names of files that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def provenance(
    started_at: str, wall_seconds: float, device: dict[str, Any] | None = None, protocol: str | None = None
) -> Provenance:
    """Collect what is recorded beside every result; imports nothing that is not imported already, so no torch."""
    from synora.core.machine import machine_facts

    versions, git = software()
    return Provenance(
        started_at=started_at,
        wall_seconds=wall_seconds,
        versions=versions,
        git=git,
        machine=machine_facts(),
        device=device or {},
        protocol=protocol,
    )


@cache
def software() -> tuple[dict[str, str], dict[str, Any]]:
    """Return the versions of what runs here and the commit of our own code, as they were when first asked for."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import synora
    from synora.core.machine import git_commit

    versions = {"synora": synora.__version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "gymnasium", "ale-py"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions, git_commit(Path(synora.__file__).parent)


def utc_now() -> str:
    """Return the present moment in UTC, ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def execute(job: JobSpec, out_dir: Path, *, attempt: int = 1, report: Report = lambda phase: None) -> Result:
    """Run `job` and write its result below `out_dir`; only one live process may do so at a time.

    Raises:
        FileError: another live process is at the same job, or the result cannot be written.
    """
    path = result_path(out_dir, job)
    with lease(path):
        result = run_job(job, attempt=attempt, report=report)
        result.write(path)
    return result


class InProcessExecutor:
    """Runs jobs one after another in this process: for debugging, and for one job inside an array task."""

    def run(self, plan: Plan, out_dir: Path) -> Iterator[Result]:
        """Yield the result of each job as it finishes, in plan order."""
        for job in plan.jobs:
            yield execute(job, out_dir)
