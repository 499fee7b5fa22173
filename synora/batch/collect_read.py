"""Reading one result file for the collector: a record of what counts, or what is wrong with the file. Torch-free."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from synora.batch.collect_files import FoundFile
from synora.core.errors import first_problem
from synora.core.job import JobSpec
from synora.core.result import SCHEMA_VERSION, Result

ProblemKind = Literal["truncated", "foreign", "newer_schema", "duplicate", "superseded", "invalid", "unreadable"]

# Of a job's parameters, those that say which job a missing or failed one is, or tell compute rows apart.
_PARAMS = (
    "agent",
    "game",
    "backend",
    "checkpoint",
    "train_seed",
    "eval_seed",
    "preset",
    "device",
    "dtype",
    "threads",
    "batch_size",
    "seq_len",
    "image_size",
    "compile",
    "tf32",
)


@dataclass(frozen=True, order=True)
class Problem:
    """A file that does not count, or not alone.

    Attributes:
        file: its name.
        problem: a word.
        detail: one line for people.
    """

    file: str
    problem: ProblemKind
    detail: str

    def as_dict(self) -> dict[str, str]:
        """Return the three fields as JSON."""
        return {"file": self.file, "problem": self.problem, "detail": self.detail}


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class _Env(_Body):
    name: str = Field(min_length=1)
    backend: str | None = None


class _Protocol(_Body):
    name: str
    fingerprint: str = Field(min_length=1)


class _Checkpoint(_Body):
    path: str
    step: int | None = Field(None, ge=0)
    sha256: str | None = None


class ReturnsBody(_Body):
    """What counts of a returns result; the figures must be those of its own episodes."""

    agent: str = Field(min_length=1)
    adapter: str | None = None
    env: _Env
    protocol: _Protocol | None
    eval_seed: int = Field(ge=0)
    train_seed: int | None
    checkpoint: _Checkpoint | None
    num_episodes: int = Field(ge=1)
    episodes_failed: int = Field(ge=0)
    episode_returns: list[float | None]
    mean: float | None
    reason: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        returns, failed = self.episode_returns, self.episode_returns.count(None)
        if len(returns) != self.num_episodes:
            raise ValueError(f"{len(returns)} returns for {self.num_episodes} episodes")
        if failed != self.episodes_failed:
            raise ValueError(f"{failed} returns are null, and episodes_failed is {self.episodes_failed}")
        if (self.mean is None) != (failed > 0):
            raise ValueError(f"the mean is {self.mean} with {failed} failed episodes")
        if self.mean is not None:
            found = statistics.fmean(value for value in returns if value is not None)
            if not math.isclose(found, self.mean, rel_tol=1e-9, abs_tol=1e-9):
                raise ValueError(f"the mean is {self.mean:g}, that of the episodes {found:g}")
        return self


class _Timing(_Body):
    median_ms: float = Field(gt=0)
    noisy: bool | None = None


class _Mode(_Body):
    timing: _Timing
    memory: dict[str, float | None] = Field(default_factory=dict)
    flops: float | None = Field(None, ge=0)
    R: float | None = None
    items_per_second: float | None = None


class ComputeBody(_Body):
    """What counts of a compute result."""

    family: str
    unit: str
    parameters: int = Field(ge=0)
    modes: dict[str, _Mode] = Field(min_length=1)


class TrainBody(_Body):
    """What counts of a train result."""

    agent: str = Field(min_length=1)
    game: str | None = None
    train_seed: int | None = None
    step: int = Field(ge=0)
    checkpoint: JsonValue = None
    status: str = "finished"
    curve: list[Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Record:
    """What counts of a result file.

    Attributes:
        file: its name.
        digest: of its bytes.
        job_id, kind, name, attempt, status: as in the result.
        params: those of the job's parameters that say which job it is.
        error_type, error_message: None for an ok result.
        started_at: UTC, ISO 8601.
        host_hash, device_name: of the machine; None where the result does not say.
        returns, compute, train: the body, by kind; None where there is none.
    """

    file: str
    digest: bytes
    job_id: str
    kind: str
    name: str
    attempt: int
    status: str
    params: Mapping[str, Any]
    error_type: str | None
    error_message: str | None
    started_at: str
    host_hash: str | None
    device_name: str | None
    returns: Evaluation | None = None
    compute: ComputeBody | None = None
    train: TrainBody | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation seed of one training run; the fields are those of the result's body."""

    agent: str
    adapter: str | None
    game: str
    backend: str | None
    protocol: str | None
    fingerprint: str | None
    eval_seed: int
    train_seed: int | None
    checkpoint: str | None
    step: int | None
    sha256: str | None
    episodes: int
    episodes_failed: int
    mean: float | None
    reason: str | None


def short_params(job: JobSpec) -> dict[str, Any]:
    """Return those parameters of a job that say which one it is; a train job's are in its configuration."""
    params: dict[str, Any] = dict(job.params)
    if job.kind == "train" and isinstance(params.get("config"), dict):
        config = params["config"]
        params |= {"game": config.get("game"), "backend": config.get("env_backend"), "train_seed": config.get("seed")}
    return {key: params[key] for key in _PARAMS if key in params}


def read_record(found: FoundFile) -> Record | Problem | None:
    """Read a result file once.

    Returns:
        The record; or what is wrong with the file; or None when the file has vanished since it was found.
    """
    try:
        with open(found.path, "rb") as stream:
            content = stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        return Problem(found.name, "unreadable", error.strerror or str(error))
    value = _parse(found.name, content)
    if isinstance(value, Problem):
        return value
    try:
        return _record(found.name, hashlib.blake2b(content, digest_size=16).digest(), Result.model_validate(value))
    except ValidationError as error:
        return Problem(found.name, "invalid", f"{first_problem(error, 'result')}.")


def _parse(name: str, content: bytes) -> dict[str, Any] | Problem:
    """Return the JSON object of a result of our schema, or what is wrong with it."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        begun = content.lstrip()[:1] == b"{" and not content.rstrip().endswith(b"}")
        return Problem(name, "truncated" if begun else "foreign", "not UTF-8 text.")
    try:
        value = json.loads(text, parse_constant=_no_such_number)
    except json.JSONDecodeError as error:
        body = text.strip()
        if not body or (body.startswith("{") and (not body.endswith("}") or error.pos >= len(text.rstrip()))):
            return Problem(name, "truncated", f"the JSON ends too early, after {len(content)} bytes.")
        return Problem(name, "invalid" if body.startswith("{") else "foreign", f"not JSON: {error}.")
    except (ValueError, RecursionError) as error:
        return Problem(name, "invalid", f"not valid JSON: {error}.")
    if not isinstance(value, dict) or "schema_version" not in value:
        return Problem(name, "foreign", "JSON, and not a synora result (no schema_version).")
    version = value["schema_version"]
    if isinstance(version, bool) or not isinstance(version, int):
        return Problem(name, "invalid", f"schema_version is {version!r}, which is no whole number.")
    if version > SCHEMA_VERSION:
        detail = f"schema version {version}; this synora reads up to {SCHEMA_VERSION}. Upgrade synora."
        return Problem(name, "newer_schema", detail)
    if "job_id" not in value and "job" not in value:
        return Problem(name, "foreign", "JSON with a schema_version, and not the result of a job.")
    return value


def _record(name: str, digest: bytes, result: Result) -> Record:
    """Return the record of a valid result.

    Raises:
        ValidationError: the body is not what its kind needs.
    """
    body: dict[str, Any] = {}
    if result.body is not None:
        if result.job.kind == "returns":
            body["returns"] = _evaluation(ReturnsBody.model_validate(result.body))
        elif result.job.kind == "compute":
            body["compute"] = ComputeBody.model_validate(result.body)
        else:
            body["train"] = TrainBody.model_validate(result.body)
    host, device = result.provenance.machine.get("host_hash"), result.provenance.device.get("name")
    return Record(
        file=name,
        digest=digest,
        job_id=result.job_id,
        kind=result.job.kind,
        name=result.job.name,
        attempt=result.attempt,
        status=result.status,
        params=short_params(result.job),
        error_type=result.error.type if result.error else None,
        error_message=result.error.message if result.error else None,
        started_at=result.provenance.started_at,
        host_hash=None if host is None else str(host),
        device_name=None if device is None else str(device),
        **body,
    )


def _evaluation(body: ReturnsBody) -> Evaluation:
    protocol, checkpoint = body.protocol, body.checkpoint
    return Evaluation(
        agent=body.agent,
        adapter=body.adapter,
        game=body.env.name,
        backend=body.env.backend,
        protocol=protocol.name if protocol else None,
        fingerprint=protocol.fingerprint if protocol else None,
        eval_seed=body.eval_seed,
        train_seed=body.train_seed,
        checkpoint=checkpoint.path if checkpoint else None,
        step=checkpoint.step if checkpoint else None,
        sha256=checkpoint.sha256 if checkpoint else None,
        episodes=body.num_episodes,
        episodes_failed=body.episodes_failed,
        mean=body.mean,
        reason=body.reason,
    )


def _no_such_number(name: str) -> float:
    raise ValueError(f"JSON has no {name}")
