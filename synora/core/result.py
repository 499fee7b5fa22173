"""The result of one job: one schema for every kind, one JSON file a job.

A result is either `ok` with a body, or it says why there is none. Numbers in it are finite or null; where a number is
null because it does not apply, the body gives the reason. Nothing here invents a value.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from synora.core.errors import FileError, first_problem
from synora.core.files import read_json, write_json
from synora.core.job import JobSpec

SCHEMA_VERSION = 1

Status = Literal["ok", "failed", "timeout", "preempted", "skipped"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ErrorInfo(_Record):
    """Why a job has no body.

    Attributes:
        type: a short machine-readable word: the exception's class, "out_of_memory", "timeout", "signal:SIGSEGV", ….
        message: one line for people.
        traceback: the Python traceback, when there was one.
    """

    type: str
    message: str
    traceback: str | None = None


class Provenance(_Record):
    """Where, when and with what a job ran.

    Attributes:
        started_at: UTC, ISO 8601.
        wall_seconds: from the job's start to its end, including building and warm-up.
        versions: package name -> version ("synora", "python", "torch", …).
        git: commit of the checkout, whether it was dirty, or the reason it is unknown.
        machine: facts of the host, without its name (`host_hash` instead).
        device: facts of the device the job ran on; empty for jobs that use none.
        protocol: fingerprint of the environment protocol, for jobs that have one.
    """

    started_at: str
    wall_seconds: float = Field(ge=0)
    versions: dict[str, str] = Field(default_factory=dict)
    git: dict[str, JsonValue] = Field(default_factory=dict)
    machine: dict[str, JsonValue] = Field(default_factory=dict)
    device: dict[str, JsonValue] = Field(default_factory=dict)
    protocol: str | None = None


class Result(_Record):
    """The outcome of one attempt at one job.

    Attributes:
        schema_version: of this file's layout; a reader refuses versions above its own.
        job_id: the id of `job`.
        job: the spec that was run.
        attempt: 1 for the first try, raised by every retry or requeue.
        status: ok, failed, timeout, preempted or skipped.
        error: why there is no body; None exactly when the status is ok.
        provenance: where, when and with what it ran.
        body: what the handler measured, by kind; None unless the status is ok.
    """

    schema_version: int = SCHEMA_VERSION
    job_id: str
    job: JobSpec
    attempt: int = Field(default=1, ge=1)
    status: Status
    error: ErrorInfo | None = None
    provenance: Provenance
    body: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.job_id != self.job.job_id:
            raise ValueError(f"job_id {self.job_id!r} does not belong to this job ({self.job.job_id!r})")
        if (self.status == "ok") != (self.error is None) or (self.status == "ok") != (self.body is not None):
            raise ValueError("a result is either ok with a body, or not ok with an error")
        return self

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write this result to `path` atomically; errors as `synora.core.files.write_json`."""
        return write_json(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a result.

        Raises:
            FileError: missing, truncated, not a result, or written by a newer synora; the message names the file.
        """
        value: Any = read_json(path)
        if not isinstance(value, dict) or "schema_version" not in value:
            raise FileError(f"{path} is not a synora result (no schema_version).")
        version = value["schema_version"]
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise FileError(
                f"{path} has schema version {version!r}; this synora reads up to {SCHEMA_VERSION}. Upgrade synora."
            )
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise FileError(f"{path} is not a valid synora result: {first_problem(error, 'result')}.") from error
