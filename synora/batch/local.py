"""The local pool: each job in a process of its own, forked from a server that has imported torch once.

A job that raises, is killed for memory, segfaults or hangs ends as a failed result with its reason, and the next job
starts from a clean process: nothing one job allocates shows in another's memory figure. The server (multiprocessing's
fork server) never touches CUDA, so a fork from it is safe on a GPU machine too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from synora.batch.child import call_in_child, log_path, run_in_child, start_fork_server, start_process
from synora.batch.execute import provenance, utc_now
from synora.batch.plan import Plan, result_path
from synora.core.errors import FileError, UsageError
from synora.core.job import JobSpec
from synora.core.result import ErrorInfo, Result, Status

POLL_SECONDS = 0.1
PHASES_PER_LOOK = 50  # so that a job that reports without pause cannot keep the pool from enforcing its limits


@dataclass(frozen=True)
class JobEvent:
    """What a pool tells whoever shows progress: a job started, or entered a phase."""

    index: int
    job: JobSpec
    phase: str


@dataclass
class _Running:
    """One live child and what is known of it."""

    index: int
    job: JobSpec
    process: ForkServerProcess
    channel: Connection
    started_at: str = field(default_factory=utc_now)
    started: float = field(default_factory=time.perf_counter)
    phase: str = "starting"
    silent: bool = False  # its end of the channel is closed: waiting for more would spin
    verdict: ErrorInfo | None = None  # set when the pool itself kills the child

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started


class LocalPool:
    """Runs the jobs of a plan in child processes, at most `jobs` at a time.

    Args:
        jobs: how many children may live at once.
        timeout: seconds after which a job is killed and recorded as `timeout`; None for no limit.
        memory_limit: bytes of resident memory after which a job is killed and recorded as out of memory, so that one
            job cannot take the machine down; None for no limit.
        preload: modules the fork server imports before the first job.
        on_event: called in this process whenever a job starts or enters a new phase.
        grace: seconds that running jobs get between SIGTERM and SIGKILL when the pool is left early, to save what they
            have; 0 kills at once. Leaving it again (a second Ctrl-C) kills at once, too.
        keep: says of the `ok` result that an earlier run left whether it still holds: the job is then not run again,
            and that result is yielded. None runs every job.
        follow: returns the jobs that a result makes possible, such as the evaluation of what was trained; they are
            next.

    Raises:
        UsageError: `jobs` or `timeout` is not positive, or `grace` is negative.
    """

    def __init__(
        self,
        *,
        jobs: int = 1,
        timeout: float | None = None,
        memory_limit: int | None = None,
        preload: tuple[str, ...] = (),
        on_event: Callable[[JobEvent], None] = lambda event: None,
        grace: float = 0.0,
        keep: Callable[[Result], bool] | None = None,
        follow: Callable[[Result], Sequence[JobSpec]] = lambda result: (),
    ) -> None:
        if jobs < 1:
            raise UsageError(f"--jobs must be at least 1 (got {jobs}).")
        if timeout is not None and timeout <= 0:
            raise UsageError(f"the time limit of a job must be above 0 seconds (got {timeout:g}).")
        if grace < 0:
            raise UsageError(f"the time that jobs get to save must be at least 0 seconds (got {grace:g}).")
        self._jobs = jobs
        self._timeout = timeout
        self._memory_limit = memory_limit
        self._on_event = on_event
        self._grace = grace
        self._keep = keep
        self._follow = follow
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        if preload:
            self._context.set_forkserver_preload(list(preload))

    def warm_up(self) -> None:
        """Start loading what `preload` names and return at once; otherwise the first job does and waits for it."""
        start_fork_server()

    def run(self, plan: Plan, out_dir: Path) -> Generator[Result, None, None]:
        """Yield the result of each job as it ends; every result is on disk before it is yielded.

        Leaving the iterator early (Ctrl-C, SIGTERM turned into an exception) ends the children that still run; see
        `grace`. What they write in that time is on disk, and not yielded.
        """
        out_dir = out_dir.absolute()  # a job may change its folder
        waiting = list(enumerate(plan.jobs))[::-1]
        known = len(waiting)
        running: list[_Running] = []
        try:
            while waiting or running:
                ended: list[Result] = []
                while waiting and len(running) < self._jobs and not ended:
                    index, job = waiting.pop()
                    kept = self._kept(job, out_dir)
                    if kept is not None:
                        ended.append(kept)
                        continue
                    child = self._start(index, job, out_dir)
                    running.append(child)
                    self._on_event(JobEvent(child.index, child.job, child.phase))
                for child in [] if ended else self._ended(running):
                    running.remove(child)
                    ended.append(self._finish(child, out_dir))
                for result in ended:
                    yield result
                    next_ones = list(enumerate(self._follow(result), start=known))
                    waiting += reversed(next_ones)
                    known += len(next_ones)
        finally:
            try:
                if self._grace:
                    self._ask_to_stop(running)
            finally:
                for child in running:
                    _kill(child)

    def call(self, function: Callable[[], object]) -> object:
        """Run `function()` in a fresh child and return what it returns (picklable), e.g. a probe that starts CUDA.

        Raises:
            RuntimeError: the child died or raised; the message says how.
        """
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=call_in_child, args=(function, sender))
        start_process(process)
        sender.close()
        try:
            ok, value = receiver.recv()
        except EOFError:
            process.join()
            raise RuntimeError(f"the probe process died (exit code {process.exitcode})") from None
        finally:
            receiver.close()
        process.join()
        if not ok:
            raise RuntimeError(str(value))
        return value

    def _kept(self, job: JobSpec, out_dir: Path) -> Result | None:
        """Return the result of an earlier run that still holds, if there is one."""
        if self._keep is None:
            return None
        try:
            earlier = Result.read(result_path(out_dir, job))
        except FileError:
            return None
        return earlier if earlier.status == "ok" and earlier.job == job and self._keep(earlier) else None

    def _start(self, index: int, job: JobSpec, out_dir: Path) -> _Running:
        path = result_path(out_dir, job)
        try:
            path.unlink(missing_ok=True)  # what an earlier run left is never taken for this one's outcome
        except OSError as error:
            raise FileError(f"cannot replace {path}: {error.strerror or error}. Choose another folder.") from error
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=run_in_child, args=(job.model_dump_json(), str(out_dir), sender))
        start_process(process)
        sender.close()
        return _Running(index, job, process, receiver)

    def _ended(self, running: list[_Running]) -> list[_Running]:
        """Wait a moment, pass on phases, enforce limits; return the children that are gone."""
        channels = [child.channel for child in running if not child.silent]
        wait([*(child.process.sentinel for child in running), *channels], POLL_SECONDS)
        for child in running:
            self._read_phases(child)
            if child.verdict is None and child.process.is_alive():
                child.verdict = self._over_limit(child)
                if child.verdict is not None:
                    _kill(child)
        return [child for child in running if not child.process.is_alive()]

    def _ask_to_stop(self, running: list[_Running]) -> None:
        """Send SIGTERM to the children, not to what they started, and wait for them, at most the grace."""
        for child in running:
            child.process.terminate()
        deadline = time.monotonic() + self._grace
        while alive := [child for child in running if child.process.is_alive()]:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            channels = [child.channel for child in alive if not child.silent]
            wait([*(child.process.sentinel for child in alive), *channels], min(left, POLL_SECONDS))
            for child in alive:  # a full channel would hold it up
                self._read_phases(child, tell=False)

    def _read_phases(self, child: _Running, *, tell: bool = True) -> None:
        for _ in range(PHASES_PER_LOOK):
            try:
                if not child.channel.poll():
                    return
                child.phase = child.channel.recv()
            except (EOFError, OSError):  # the child is dead, or has closed its descriptors
                child.silent = True
                return
            if tell:
                self._on_event(JobEvent(child.index, child.job, child.phase))

    def _over_limit(self, child: _Running) -> ErrorInfo | None:
        if self._timeout is not None and child.seconds > self._timeout:
            return ErrorInfo(
                type="timeout",
                message=f"killed after the time limit of {self._timeout:g} s, during: {child.phase}. "
                "Raise --case-timeout or choose a smaller preset.",
            )
        resident = _resident_bytes(child.process.pid) if self._memory_limit is not None else None
        if self._memory_limit is not None and resident is not None and resident > self._memory_limit:
            return ErrorInfo(
                type="out_of_memory",
                message=f"killed at {resident / 2**30:.1f} GiB of resident memory, the limit is "
                f"{self._memory_limit / 2**30:.1f} GiB; during: {child.phase}.",
            )
        return None

    def _finish(self, child: _Running, out_dir: Path) -> Result:
        """Return the result the child wrote, or write one that says how it died."""
        _kill(child)  # it is gone; what it started and left behind must not disturb the next job
        self._read_phases(child)
        child.channel.close()
        path = result_path(out_dir, child.job)
        if child.verdict is None and child.process.exitcode == 0:
            with contextlib.suppress(FileError):  # left with os._exit(0): no result
                return Result.read(path)
        error = child.verdict or _describe_death(child, log_path(out_dir, child.job))
        status: Status = "timeout" if error.type == "timeout" else "failed"
        result = Result(
            job_id=child.job.job_id,
            job=child.job,
            status=status,
            error=error,
            provenance=provenance(child.started_at, child.seconds),
        )
        result.write(path)
        return result


def _kill(child: _Running) -> None:
    """Kill a child and everything it started, and wait until it is gone."""
    pid = child.process.pid
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)
    child.process.kill()
    child.process.join()


def _resident_bytes(pid: int | None) -> int | None:
    """Return the resident memory of a process, None when it is gone."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _describe_death(child: _Running, log: Path) -> ErrorInfo:
    """Say how a child died that left no result."""
    code = child.process.exitcode
    if code == -signal.SIGKILL:
        return ErrorInfo(
            type="signal:SIGKILL",
            message=f"killed by SIGKILL during: {child.phase}; most likely the machine ran out of memory.",
        )
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return ErrorInfo(
            type=f"signal:{name}",
            message=f"died of {name} during: {child.phase}. Its stack is in {log}.",
        )
    return ErrorInfo(
        type="died", message=f"left with exit code {code} and no result during: {child.phase}. Its output is in {log}."
    )
