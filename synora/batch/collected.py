"""From the results that count to the mapping that `collected.json` holds. Torch-free.

Everything is sorted by content; nothing depends on the time or the order of reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from synora.batch.collect_read import Problem, Record
from synora.batch.collected_aggregates import aggregates, published_rows
from synora.batch.collected_returns import Jobs, returns_cells
from synora.core.job import JobSpec

SCHEMA_VERSION = 1
KIND = "collected"
_SCALE = ("batch_size", "seq_len", "image_size", "threads", "compile", "tf32")


@dataclass(frozen=True)
class Options:
    """How to collect; the fields are those of `synora.batch.collect.collect_folders`."""

    mode: Literal["strict", "available"] = "available"
    allow_mixed_protocol: bool = False
    published: tuple[str, ...] | None = ()


def build_collected(
    records: Sequence[Record], planned: Mapping[str, JobSpec], problems: Iterable[Problem], options: Options
) -> dict[str, Any]:
    """Return the mapping, without the number of files that were read.

    Args:
        records: one a job (a compute job: one a machine).
        planned: job id -> spec of the jobs that are expected.
        problems: files that do not count.
        options: how.

    Raises:
        SynoraError: one agent played one game under different rules, and that is not allowed.
        UsageError: no published agent has such a name.
    """
    found = returns_cells(records, Jobs(records, planned), options.mode, options.allow_mixed_protocol)
    done = {record.job_id for record in records}
    missing = [
        {"job_id": job_id, "name": job.name, "kind": job.kind} for job_id, job in planned.items() if job_id not in done
    ]
    every = sorted([*problems, *found.problems])
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "mode": options.mode,
        "planned": len(planned) or None,
        "returns": {"cells": found.cells, "aggregates": aggregates(found.cells, options.mode)},
        "published": published_rows(options.published, found.cells),
        "compute": compute_rows(records),
        "training": training_rows(records),
        "failures": failures(records),
        "missing": sorted(missing, key=lambda row: (row["kind"], row["name"], row["job_id"])),
        "files": {"counted": len(records), "problems": [problem.as_dict() for problem in every]},
        "notes": found.notes,
    }


def compute_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row a compute result and mode; a result without a body has one row with the reason.

    Rows are never merged: another device, machine, precision, size or number of threads is another row.
    """
    rows = []
    for record in records:
        if record.kind != "compute":
            continue
        params, body = record.params, record.compute
        base = {
            "model": record.name,
            "family": body.family if body else None,
            **{key: params.get(key) for key in ("preset", "dtype", "device")},
            "device_name": record.device_name,
            "host_hash": record.host_hash,
            **{key: params.get(key) for key in _SCALE},
            "status": record.status,
            "unit": body.unit if body else None,
            "parameters": body.parameters if body else None,
            "reason": record.error_message,
            "job_id": record.job_id,
        }
        if body is None:
            empty = ("mode", "median_ms", "R", "items_per_second", "flops", "memory_bytes", "noisy")
            rows.append({**base, **dict.fromkeys(empty)})
            continue
        for mode, values in body.modes.items():
            memory = values.memory.get("cuda_peak_allocated_bytes") or values.memory.get("peak_rss_bytes")
            rows.append(
                {
                    **base,
                    "mode": mode,
                    "median_ms": values.timing.median_ms,
                    "R": values.R,
                    "items_per_second": values.items_per_second,
                    "flops": values.flops,
                    "memory_bytes": memory,
                    "noisy": values.timing.noisy,
                }
            )
    return sorted(rows, key=lambda row: _order(row, ("model", "device", "device_name", "host_hash", "job_id", "mode")))


def training_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row a train job."""
    rows = []
    for record in records:
        if record.kind != "train":
            continue
        body, params = record.train, record.params
        rows.append(
            {
                "job_id": record.job_id,
                "agent": body.agent if body else params.get("agent"),
                "game": body.game if body else params.get("game"),
                "train_seed": body.train_seed if body else params.get("train_seed"),
                "status": body.status if body else record.status,
                "step": body.step if body else None,
                "checkpoint": body.checkpoint if body else None,
                "curve": body.curve if body else [],
            }
        )
    return sorted(rows, key=lambda row: _order(row, ("agent", "game", "train_seed", "job_id")))


def failures(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row a job that is not ok, and one for each returns job in which a game failed."""
    rows = []
    for record in records:
        kind, message = record.error_type, record.error_message
        if record.status == "ok":
            if record.returns is None or not record.returns.episodes_failed:
                continue
            kind, message = "episodes_failed", record.returns.reason
        rows.append(
            {
                "job_id": record.job_id,
                "name": record.name,
                "kind": record.kind,
                "status": record.status,
                "attempt": record.attempt,
                "type": kind,
                "message": message,
                "file": record.file,
            }
        )
    return sorted(rows, key=lambda row: _order(row, ("kind", "name", "job_id", "file")))


def is_complete(collected: Mapping[str, Any]) -> bool:
    """Return whether nothing is missing, failed or in doubt; skipped jobs and superseded attempts are neither."""
    cells = collected["returns"]["cells"]
    return not (
        collected["missing"]
        or any(row["status"] != "skipped" for row in collected["failures"])
        or any(row["problem"] != "superseded" for row in collected["files"]["problems"])
        or any(cell["mean"] is None or cell["n"] < cell["expected"] for cell in cells)
    )


def has_results(collected: Mapping[str, Any]) -> bool:
    """Return whether any job succeeded."""
    return (
        any(run["mean"] is not None for cell in collected["returns"]["cells"] for run in cell["runs"])
        or any(row["status"] == "ok" for row in collected["compute"])
        or any(row["step"] is not None for row in collected["training"])
    )


def _order(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    """Return a sorting key in which None goes first and numbers go by value."""
    return tuple(
        (0, 0.0, "")
        if row[key] is None
        else (1, float(row[key]), "")
        if isinstance(row[key], int)
        else (2, 0.0, str(row[key]))
        for key in keys
    )
