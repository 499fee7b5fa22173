"""The local pool: each job in a process of its own, forked from a server that has imported torch once.

A job that raises, is killed for memory, segfaults or hangs ends as a failed result with its reason, and the next job
starts from a clean process: nothing one job allocates shows in another's memory figure. The server (multiprocessing's
fork server) never touches CUDA, so a fork from it is safe on a GPU machine too.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import ModuleType

from synora.batch.execute import execute, provenance, utc_now
from synora.batch.plan import Plan, result_path
from synora.core.errors import FileError, SynoraError, UsageError
from synora.core.job import JobSpec
from synora.core.result import ErrorInfo, Result, Status

POLL_SECONDS = 0.1
LONGEST_TEMP_DIR = 60
PHASES_PER_LOOK = 50  # so that a job that reports without pause cannot keep the pool from enforcing its limits
PR_SET_PDEATHSIG = 1


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

    Raises:
        UsageError: `jobs` or `timeout` is not positive.
    """

    def __init__(
        self,
        *,
        jobs: int = 1,
        timeout: float | None = None,
        memory_limit: int | None = None,
        preload: tuple[str, ...] = (),
        on_event: Callable[[JobEvent], None] = lambda event: None,
    ) -> None:
        if jobs < 1:
            raise UsageError(f"--jobs must be at least 1 (got {jobs}).")
        if timeout is not None and timeout <= 0:
            raise UsageError(f"the time limit of a job must be above 0 seconds (got {timeout:g}).")
        self._jobs = jobs
        self._timeout = timeout
        self._memory_limit = memory_limit
        self._on_event = on_event
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        if preload:
            self._context.set_forkserver_preload(list(preload))

    def warm_up(self) -> None:
        """Start loading what `preload` names and return at once; otherwise the first job does and waits for it."""
        _start_fork_server()

    def run(self, plan: Plan, out_dir: Path) -> Iterator[Result]:
        """Yield the result of each job as it ends; every result is on disk before it is yielded.

        Leaving the iterator early (Ctrl-C, SIGTERM turned into an exception) kills the children that still run.
        """
        out_dir = out_dir.absolute()  # a job may change its folder
        waiting = list(enumerate(plan.jobs))[::-1]
        running: list[_Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    child = self._start(*waiting.pop(), out_dir)
                    running.append(child)
                    self._on_event(JobEvent(child.index, child.job, child.phase))
                for child in self._ended(running):
                    running.remove(child)
                    yield self._finish(child, out_dir)
        finally:
            for child in running:
                _kill(child)

    def call(self, function: Callable[[], object]) -> object:
        """Run `function()` in a fresh child and return what it returns (picklable), e.g. a probe that starts CUDA.

        Raises:
            RuntimeError: the child died or raised; the message says how.
        """
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_call_in_child, args=(function, sender))
        _start(process)
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

    def _start(self, index: int, job: JobSpec, out_dir: Path) -> _Running:
        path = result_path(out_dir, job)
        try:
            path.unlink(missing_ok=True)  # what an earlier run left is never taken for this one's outcome
        except OSError as error:
            raise FileError(f"cannot replace {path}: {error.strerror or error}. Choose another folder.") from error
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_run_in_child, args=(job.model_dump_json(), str(out_dir), sender))
        _start(process)
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

    def _read_phases(self, child: _Running) -> None:
        for _ in range(PHASES_PER_LOOK):
            try:
                if not child.channel.poll():
                    return
                child.phase = child.channel.recv()
            except (EOFError, OSError):  # the child is dead, or has closed its descriptors
                child.silent = True
                return
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
        error = child.verdict or _describe_death(child, _log_path(out_dir, child.job))
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


def _start(process: ForkServerProcess) -> None:
    """Start a child that does not run the parent's `__main__` again.

    multiprocessing would, so that functions defined there can be unpickled. Ours are not, and a user's script without
    the `if __name__ == "__main__"` line would start a sweep in every child.

    Raises:
        SynoraError: the fork server is gone.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        _start_fork_server()
        process.start()
    except (EOFError, ConnectionError) as error:
        raise SynoraError(
            "the process that starts the jobs has died while it loaded torch; its message stands above."
        ) from error
    except KeyboardInterrupt:
        _kill_fork_server()  # it is still loading torch and would notice our end only after that
        raise
    finally:
        sys.modules["__main__"] = main


def _start_fork_server() -> None:
    """Start multiprocessing's fork server, if it does not run, such that nothing around us disturbs it."""
    if len(tempfile.gettempdir()) > LONGEST_TEMP_DIR:
        # Its socket's path has to fit in 107 bytes; SLURM's temporary folders do not leave it that.
        configured, tempfile.tempdir = tempfile.tempdir, "/tmp"
        try:
            util.get_temp_dir()
        finally:
            tempfile.tempdir = configured
    # It is started with `python -c`, which puts the current folder first on its path: a file random.py there would be
    # run in place of the library's. Ctrl-C is for us alone, who end the children ourselves.
    safe = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        forkserver.ensure_running()
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        if safe is None:
            del os.environ["PYTHONSAFEPATH"]


def _kill_fork_server() -> None:
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _log_path(out_dir: Path, job: JobSpec) -> Path:
    """Return where a job's own output goes: warnings, prints, the fault handler's stack."""
    return result_path(out_dir, job).with_suffix(".log")


def _run_in_child(job_json: str, out_dir: str, channel: Connection) -> None:
    """Run one job and write its result; the body of every child process."""
    job = JobSpec.model_validate_json(job_json)
    _become_a_good_child(_log_path(Path(out_dir), job))

    def report(phase: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: the parent is gone and we are about to be
            channel.send(phase)

    code = 0
    try:
        execute(job, Path(out_dir), report=report)
    except FileError as error:
        report(f"writing the result: {str(error).removesuffix('.')}")
        code = 3
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)  # the result is on disk: a thread that the job left behind must not hold it back


def _call_in_child(function: Callable[[], object], channel: Connection) -> None:
    _die_with_the_pool()
    try:
        answer: tuple[bool, object] = (True, function())
    except Exception as error:  # noqa: BLE001 - sent to the caller, which raises it
        answer = (False, f"{type(error).__name__}: {error}")
    with contextlib.suppress(OSError):  # the caller is gone, by Ctrl-C
        channel.send(answer)


def _become_a_good_child(log: Path) -> None:
    """Die with the parent, be the first to go when memory runs out, keep output out of the terminal."""
    os.setsid()  # so that a kill reaches this job's own children too, and Ctrl-C reaches only the parent
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_the_pool()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # not allowed in some sandboxes; the pool's own limit still holds
            Path("/proc/self/oom_score_adj").write_text("1000")
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):  # a killed job's last words are in the log, too
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    faulthandler.enable()


def _die_with_the_pool() -> None:
    """Have this child killed when the fork server ends, which it does with the pool's process.

    multiprocessing hands every child a copy of the pipe whose closing tells the server so; the server, and with it our
    parent-death signal, would wait for the children themselves. So this child's copy is closed.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    server = getattr(forkserver, "_forkserver", None)
    descriptor = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and descriptor is not None:
        server._forkserver_alive_fd = None
        os.close(descriptor)


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
