"""The children of the local pool: how one is started, and what it does before and after its job."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType

from synora.batch.execute import execute
from synora.batch.plan import result_path
from synora.core.errors import FileError, SynoraError
from synora.core.job import JobSpec

LONGEST_TEMP_DIR = 60
PR_SET_PDEATHSIG = 1


def start_process(process: ForkServerProcess) -> None:
    """Start a child that does not run the parent's `__main__` again.

    multiprocessing would, so that functions defined there can be unpickled. Ours are not, and a user's script without
    the `if __name__ == "__main__"` line would start a sweep in every child.

    Raises:
        SynoraError: the fork server is gone.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        start_fork_server()
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


def start_fork_server() -> None:
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


def log_path(out_dir: Path, job: JobSpec) -> Path:
    """Return where a job's own output goes: warnings, prints, the fault handler's stack."""
    return result_path(out_dir, job).with_suffix(".log")


def run_in_child(job_json: str, out_dir: str, channel: Connection) -> None:
    """Run one job and write its result; the body of every child process."""
    job = JobSpec.model_validate_json(job_json)
    _become_a_good_child(log_path(Path(out_dir), job))

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


def call_in_child(function: Callable[[], object], channel: Connection) -> None:
    """Call a function and send what it returns, or raises, to the pool."""
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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
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
