"""The Atari-100k benchmark at work: what is left to do goes through the pool, and becomes a report."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from synora.core.errors import EXIT_FAILED, EXIT_OK, EXIT_PREEMPTED, FileError

if TYPE_CHECKING:
    from synora.batch.local import JobEvent
    from synora.cli.atari_100k_plan import Entry, Settings
    from synora.cli.progress import PlanProgress
    from synora.core.job import JobSpec
    from synora.core.result import Result

EXIT_INTERRUPTED = 130
GRACE_SECONDS = 120.0  # for a checkpoint with its replay on a slow disk
PLAIN_SECONDS = 60.0
ASIDE = ".aside"
TRAIN_PLAN = "train.plan.json"
_HANDLERS = ("synora.training.handler", "synora.benchmarks.handler", "synora.batch.preload")


class Stops:
    """Context in which the scheduler's signals do what Ctrl-C does: KeyboardInterrupt, after a line for the user.

    Attributes:
        name: of the first signal that came, None before.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 75 after a scheduler's signal: to be started again."""
        return EXIT_INTERRUPTED if self.name in (None, "SIGINT") else EXIT_PREEMPTED

    def _handle(self, number: int, frame: object) -> None:
        if self.name is None:
            self.name = signal.Signals(number).name
            print(f"\nsynora: {self.name}: runs are being saved; Ctrl-C ends them at once.", file=sys.stderr)
        raise KeyboardInterrupt


def run_entries(entries: Sequence[Entry], settings: Settings, *, jobs: int) -> list[Result]:
    """Do what is not done yet, `jobs` at a time; return the results of now and of earlier.

    A run is evaluated as soon as it is trained.

    Raises:
        Stopped: by a signal; what trains has been saved.
        FileError: a file cannot be written, or another process is at this benchmark.
    """
    from synora.core.files import lease

    out_dir = settings.out_dir
    with lease(out_dir / "atari_100k", what=f"the benchmark in {out_dir}"), Stops() as stops:
        try:
            return _run(entries, settings, jobs)
        except KeyboardInterrupt:
            raise Stopped(stops.name or "SIGINT", stops.exit_code) from None


def _run(entries: Sequence[Entry], settings: Settings, jobs: int) -> list[Result]:
    from synora.batch.keep import still_holds
    from synora.batch.local import LocalPool
    from synora.batch.plan import Plan
    from synora.cli.progress import PlanProgress

    _write_plans(entries, settings)
    _set_aside(entries, settings)
    first, evaluations, results, total = _to_do(entries, settings.out_dir)
    if results:
        print(f"synora: {len(results)} job(s) are done already; {total} to do.", file=sys.stderr)
    if not first:
        return results
    trained = any(entry.training or entry.checkpoint for entry in entries)
    progress = PlanProgress(total)
    watcher = _Watcher(progress)
    pool = LocalPool(
        jobs=jobs,
        preload=(*(("synora.compute.preload",) if trained else ()), *_HANDLERS),
        on_event=watcher.event,
        grace=GRACE_SECONDS,
        keep=still_holds,
        follow=lambda result: evaluations.get(result.job_id, ()) if result.status == "ok" else (),
    )
    # Closed here and now, not when the traceback that holds it goes.
    with progress, contextlib.closing(pool.run(Plan.of(first), settings.out_dir)) as finished:
        for result in finished:
            results.append(result)
            watcher.finished(result)
    return results


class Stopped(Exception):
    """The benchmark was stopped by a signal.

    Attributes:
        name: of the signal.
        exit_code: of the process.
    """

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(name)
        self.name, self.exit_code = name, exit_code


def report(settings: Settings, notes: Sequence[str], published: Sequence[str] | None) -> None:
    """Collect every result in the output folder, print the tables and write the reports.

    Raises:
        SynoraError: there is no result at all, or nothing succeeded.
    """
    from synora.batch.collect import collect_folders, write_collected
    from synora.batch.collect_report import as_text
    from synora.cli.collect import draw_report

    plan = settings.out_dir / TRAIN_PLAN
    collected = collect_folders([settings.out_dir], plans=[plan] if plan.exists() else [], published=published)
    collected["notes"] = sorted({*collected["notes"], *notes})
    print(as_text(collected))
    for note in collected["notes"]:
        print(f"synora: note: {note}", file=sys.stderr)
    write_collected(collected, settings.out_dir)
    draw_report(collected, settings.out_dir)
    print(f"\nReports: {settings.out_dir.resolve() / 'collected'}.{{json,csv,md,tex}}")


def exit_code(results: Sequence[Result]) -> int:
    """Say on stderr what failed or was stopped, by name; return 1 if anything failed, 75 if a run is to go on, or 0."""
    code = EXIT_OK
    for result in results:
        body: Any = result.body or {}
        if result.error is not None:
            print(f"synora: {result.job.name} {result.status}: {result.error.message}", file=sys.stderr)
        elif failed := body.get("episodes_failed"):
            print(f"synora: {result.job.name}: {failed} of {body['num_episodes']} games failed.", file=sys.stderr)
        if result.status == "preempted":
            code = code or EXIT_PREEMPTED
        elif result.error is not None or body.get("episodes_failed"):
            code = EXIT_FAILED
    return code


def command_line() -> str:
    """Return the line that the user could type again."""
    program = Path(sys.argv[0]).name
    start = ["python", "-m", "synora.benchmarks.atari_100k"] if program == "atari_100k.py" else [program]
    if program == "__main__.py":
        start = ["synora"]
    return shlex.join([*start, *sys.argv[1:]]).encode("utf-8", "backslashreplace").decode()


def share_cpus(jobs: int) -> None:
    """Give each of several jobs its share of the CPUs, unless the user has said otherwise; before torch is loaded."""
    from synora.core.machine import available_cpus

    # Idle OpenMP threads that spin steal the time of the ones that work, on any shared machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if jobs > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cpus() // jobs)))


def _write_plans(entries: Sequence[Entry], settings: Settings) -> None:
    """Write the jobs as plans, which any executor can run and the report looks for missing ones in."""
    from synora.batch.plan import Plan

    if trainings := [entry.training for entry in entries if entry.training]:
        Plan.of(trainings).write(settings.out_dir / TRAIN_PLAN)
    else:
        (settings.out_dir / TRAIN_PLAN).unlink(missing_ok=True)
    if settings.evaluate:
        Plan.of(entry.evaluation for entry in entries if entry.evaluation).write(settings.out_dir / "plan.json")


def _to_do(
    entries: Sequence[Entry], out_dir: Path
) -> tuple[list[JobSpec], dict[str, list[JobSpec]], list[Result], int]:
    """Return the jobs to start with, those that follow a training (by its id), earlier results, and how many are left.

    An evaluation that follows may turn out to be done: its run had nothing left to train.
    """
    first: list[JobSpec] = []
    following: dict[str, list[JobSpec]] = {}
    done: list[Result] = []
    total = 0
    for entry in entries:
        training, evaluation = entry.training, entry.evaluation
        if training is not None and not _held(training, out_dir, done):
            first.append(training)
            total += 1
            if evaluation is not None:
                following[training.job_id] = [evaluation]
                total += 1
        elif evaluation is not None and not _held(evaluation, out_dir, done):
            first.append(evaluation)
            total += 1
    return first, following, done, total


def _held(job: JobSpec, out_dir: Path, done: list[Result]) -> bool:
    """Return whether a job's earlier result still holds, and then add it to `done`."""
    from synora.batch.keep import still_holds
    from synora.batch.plan import result_path
    from synora.core.result import Result

    try:
        earlier = Result.read(result_path(out_dir, job))
    except FileError:
        return False
    if earlier.job != job or not still_holds(earlier):
        return False
    done.append(earlier)
    return True


def _set_aside(entries: Sequence[Entry], settings: Settings) -> None:
    """Rename results that would be counted beside those of this plan: of the same agents with other settings.

    They come back when their settings do. Nothing is deleted.
    """
    from synora.batch.plan import result_path
    from synora.core.result import Result

    jobs = [job for entry in entries for job in (entry.training, entry.evaluation) if job is not None]
    paths = {result_path(settings.out_dir, job) for job in jobs}
    for path in paths:
        aside = path.with_name(path.name + ASIDE)
        if aside.exists() and not path.exists():
            aside.rename(path)
    ours = {_key(job) for job in jobs}
    kinds = {(job.kind, job.params.get("agent")): _settings_of(job) for job in jobs}
    moved = 0
    for path in sorted((settings.out_dir / "jobs").glob("*.json")):
        if path in paths:
            continue
        try:
            job = Result.read(path).job
        except FileError:  # the report names it
            continue
        known = kinds.get((job.kind, job.params.get("agent")))
        if known is not None and (_key(job) in ours or _settings_of(job) != known):
            path.rename(path.with_name(path.name + ASIDE))
            moved += 1
    if moved:
        print(
            f"synora: note: {moved} result(s) with other settings were set aside as jobs/*.json{ASIDE}; they do not "
            "count in this report.",
            file=sys.stderr,
        )


def _key(job: JobSpec) -> tuple[Any, ...]:
    """Return what a job is about: two results with the same key are about the same run."""
    params: Any = job.params
    if job.kind == "train":
        return job.kind, params["agent"], params["folder"]
    return job.kind, params.get("agent"), params.get("game"), params.get("eval_seed")


def _settings_of(job: JobSpec) -> Any:
    """Return the settings that all evaluations of an agent must have in common; of trainings, the rules."""
    params: Any = job.params
    if job.kind == "train":
        return params["config"].get("protocol"), params["config"].get("total_steps")
    return tuple(params.get(name) for name in ("protocol", "episodes", "num_envs"))


class _Watcher:
    """Shows phases on the bar of a terminal, or as a line now and then in a log."""

    def __init__(self, progress: PlanProgress) -> None:
        self._progress = progress
        self._printed: dict[str, float] = {}

    def event(self, event: JobEvent) -> None:
        self._progress.phase(event.job.name, event.phase)
        now = time.monotonic()
        if not sys.stderr.isatty() and now - self._printed.setdefault(event.job.name, now) >= PLAIN_SECONDS:
            self._printed[event.job.name] = now
            print(f"{event.job.name}: {event.phase}", file=sys.stderr, flush=True)

    def finished(self, result: Result) -> None:
        self._progress.finished(result, _headline(result))


def _headline(result: Result) -> str:
    """Return the figure of a finished job that fits on a line."""
    body: Any = result.body
    if body is None:
        return result.error.message if result.error else "no result"
    if result.job.kind == "train":
        return f"trained to step {body['step']:,}"
    if body["mean"] is None:
        return str(body["reason"])
    return f"mean return {body['mean']:.2f} over {body['num_episodes']} episodes"
