"""Plans: a list of job specs in one file, whose index is the SLURM array index. Torch-free."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from synora.core.errors import FileError, UsageError, first_problem
from synora.core.files import read_json, write_json
from synora.core.job import JobSpec

PLAN_VERSION = 1


class Plan(BaseModel):
    """An ordered list of distinct jobs.

    Attributes:
        plan_version: of this file's layout.
        jobs: the specs; a job's place in the list is its index for `synora run-job`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    plan_version: int = PLAN_VERSION
    jobs: tuple[JobSpec, ...]

    @classmethod
    def of(cls, jobs: Iterable[JobSpec]) -> Self:
        """Build a plan.

        Raises:
            UsageError: no jobs, or the same job twice.
        """
        items = tuple(jobs)
        if not items:
            raise UsageError("the plan is empty: nothing was selected.")
        twice = [job_id for job_id, count in Counter(job.job_id for job in items).items() if count > 1]
        if twice:
            raise UsageError(f"the plan holds the same job more than once: {', '.join(twice)}.")
        return cls(jobs=items)

    def job(self, index: int) -> JobSpec:
        """Return the job at `index` (from 0).

        Raises:
            UsageError: the index is outside the plan.
        """
        if not 0 <= index < len(self.jobs):
            raise UsageError(f"index {index} is outside the plan: it has jobs 0 to {len(self.jobs) - 1}.")
        return self.jobs[index]

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan atomically; errors as `synora.core.files.write_json`."""
        return write_json(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan.

        Raises:
            FileError: missing, truncated, not a plan, or from a newer synora.
        """
        value: Any = read_json(path)
        if not isinstance(value, dict) or "plan_version" not in value:
            raise FileError(f"{path} is not a synora plan (no plan_version).")
        if not isinstance(value["plan_version"], int) or value["plan_version"] > PLAN_VERSION:
            raise FileError(
                f"{path} has plan version {value['plan_version']!r}; this synora reads up to {PLAN_VERSION}. "
                "Upgrade synora."
            )
        try:
            # A tuple field refuses a list in strict mode; JSON has only lists.
            return cls.of(JobSpec.model_validate(item) for item in value.get("jobs", []))
        except ValidationError as error:
            raise FileError(f"{path} is not a valid synora plan: {first_problem(error, 'job')}.") from error
        except (UsageError, TypeError) as error:
            raise FileError(f"{path} is not a valid synora plan: {' '.join(str(error).split())}") from error


def result_path(out_dir: str | os.PathLike[str], job: JobSpec) -> Path:
    """Return where the result of `job` lives below an output folder."""
    return Path(out_dir) / "jobs" / f"{job.job_id}.json"
