"""Collect the results of many jobs: find and read the files, count every job once, build the mapping. Torch-free.

Of the attempts at one job the newest complete one counts: an ok result before any other, then the highest attempt, then
the latest start, then the file's digest, so that the choice never depends on an order of reading. A compute job that
ran on two machines is two measurements, and both count.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from synora.batch.collect_files import Found, FoundFile, find_files, printable
from synora.batch.collect_read import Problem, ProblemKind, Record, read_record
from synora.batch.collected import Options, build_collected
from synora.batch.collected_aggregates import check_published
from synora.batch.plan import Plan
from synora.core.errors import FileError, SynoraError, UsageError, unknown_value
from synora.core.job import JobSpec

MODES = ("strict", "available")
_MOST_NAMED = 3


def collect_folders(
    folders: Sequence[str | os.PathLike[str]],
    *,
    plans: Sequence[str | os.PathLike[str]] = (),
    mode: Literal["strict", "available"] = "available",
    allow_mixed_protocol: bool = False,
    published: Sequence[str] | None = (),
) -> dict[str, Any]:
    """Return what the results below some folders say together; `docs/collect.md` describes the mapping.

    The same files give the same mapping, whatever the order of the folders or of the file system.

    Args:
        folders: searched for `jobs/*.json` and `plan.json`; a file that is named counts whatever it is called.
        plans: further plans, whose jobs are expected.
        mode: "strict" gives no figure where a run is missing, "available" computes from those that are there and says
            how many.
        allow_mixed_protocol: keep results of one agent in one game under different rules, apart from each other.
        published: agents from papers ("IRIS"); None for IRIS and DIAMOND when a game of Atari 100k is there.

    Raises:
        UsageError: a folder, plan or published agent does not exist, or the mode is none.
        SynoraError: there is no result, or one agent played one game under different rules.
    """
    if mode not in MODES:
        raise unknown_value("mode", str(mode), MODES)
    options = Options(mode, allow_mixed_protocol, None if published is None else tuple(published))
    check_published(options.published)
    found = find_files(folders)
    problems = [Problem(name, "unreadable", f"the folder: {reason}.") for name, reason in found.unreadable.items()]
    planned = _planned(found.plans, [Path(plan) for plan in plans], problems)
    records: list[Record] = []
    read = 0
    for file in found.results:
        outcome = read_record(file)
        read += outcome is not None
        if isinstance(outcome, Record):
            records.append(outcome)
        elif outcome is not None:
            problems.append(outcome)
    if not records:
        raise SynoraError(_nothing(folders, found, problems, len(planned)))
    counted, beaten = choose(records)
    collected = build_collected(counted, planned, problems + beaten, options)
    collected["files"] = {"read": read, "ok": len(records), **collected["files"]}
    return collected


def choose(records: Iterable[Record]) -> tuple[list[Record], list[Problem]]:
    """Return the records that count, sorted by file, and a line for every file that another one beats.

    Byte-identical copies are one file, without a line.
    """
    jobs: dict[str, dict[bytes, Record]] = defaultdict(dict)
    for record in records:
        copies = jobs[record.job_id]
        known = copies.get(record.digest)
        copies[record.digest] = record if known is None or record.file < known.file else known
    counted: list[Record] = []
    beaten: list[Problem] = []
    for copies in jobs.values():
        for group in _groups(list(copies.values())):
            *losers, best = sorted(group, key=_rank)
            counted.append(best)
            beaten += [_beaten(loser, best) for loser in losers]
    return sorted(counted, key=lambda record: record.file), beaten


def write_collected(collected: dict[str, Any], out_dir: str | os.PathLike[str]) -> list[Path]:
    """Write `collected.{json,csv,md,tex}`, each atomically, and return their paths; the JSON is the last.

    Raises:
        FileError: a file cannot be written.
        SynoraError: no job of the mapping succeeded, and the folder holds a report in which some did.
    """
    from synora.batch.collect_report import write_reports

    return write_reports(collected, Path(out_dir))


def _rank(record: Record) -> tuple[bool, int, str, bytes]:
    return record.status == "ok", record.attempt, record.started_at, record.digest


def _groups(records: list[Record]) -> list[list[Record]]:
    """Return the records of one job as groups of which one counts each: one, or one a machine for compute jobs."""
    if records[0].kind != "compute" or len(records) == 1:
        return [records]
    done: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.status == "ok":
            done[record.host_hash or "", record.device_name or ""].append(record)
    if not done:
        return [records]
    newest = {key: max(record.attempt for record in group) for key, group in done.items()}
    alone = []
    for record in records:
        if record.status == "ok":
            continue
        # A failure counts unless its job succeeded on the same machine, or anywhere in a later attempt.
        same = [key for key in sorted(done) if key[0] == (record.host_hash or "")]
        later = [key for key in sorted(done) if newest[key] > record.attempt]
        if same or later:
            done[(same or later)[0]].append(record)
        else:
            alone.append(record)
    return [*done.values(), *([alone] if alone else [])]


def _beaten(loser: Record, best: Record) -> Problem:
    same = (loser.status == "ok", loser.attempt) == (best.status == "ok", best.attempt)
    which = f"attempt {loser.attempt} ({loser.status}) of job {loser.job_id}"
    counts = f"attempt {best.attempt} ({best.status}) counts: {best.file}"
    if same:
        return Problem(
            loser.file, "duplicate", f"another {which} with other content; the one that started last, {counts}"
        )
    return Problem(loser.file, "superseded", f"{which}; {counts}")


def _planned(found: Sequence[FoundFile], named: Sequence[Path], problems: list[Problem]) -> dict[str, JobSpec]:
    """Return job id -> spec of all plans; a plan that was found and cannot be read is a problem.

    Raises:
        UsageError: a plan that was named cannot be read.
    """
    planned: dict[str, JobSpec] = {}
    for path in named:
        try:
            planned |= {job.job_id: job for job in Plan.read(path).jobs}
        except FileError as error:
            raise UsageError(str(error)) from error
    for file in found:
        try:
            planned |= {job.job_id: job for job in Plan.read(file.path).jobs}
        except FileError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # vanished since it was found
                problems.append(Problem(file.name, _plan_problem(error), str(error).replace(file.path, "the plan")))
    return dict(sorted(planned.items()))


def _plan_problem(error: FileError) -> ProblemKind:
    if isinstance(error.__cause__, OSError):
        return "unreadable"
    return "newer_schema" if "this synora reads up to" in str(error) else "invalid"


def _nothing(folders: Sequence[str | os.PathLike[str]], found: Found, problems: Sequence[Problem], planned: int) -> str:
    """Return why there is nothing to report."""
    where = ", ".join(printable(os.fspath(folder)) for folder in folders)
    text = f"no result to collect in {where}"
    if problems:
        first = "; ".join(
            f"{one.file} ({one.problem}: {one.detail.rstrip('.')})" for one in sorted(problems)[:_MOST_NAMED]
        )
        more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        text += f": {len(problems)} files do not count: {first}{more}"
    elif found.others:
        text += (
            f": of its {found.others} JSON files none is in a folder jobs/; results elsewhere can be named one by one"
        )
    else:
        text += ": there is no jobs/*.json"
    if planned:
        text += f". None of the {planned} planned jobs has a result yet"
    return f"{text}. Nothing was written."
