"""Run another program for `synora doctor`: bounded in time, its output as text, every failure as a value."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_live: set[subprocess.Popen[str]] = set()
_stopping = threading.Event()  # set for good by `kill_all`: the program is about to end


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a program ended.

    Attributes:
        code: exit code; None when it did not start, was killed by a signal or did not answer in time.
        out: what it wrote on stdout.
        problem: one line why there is no good answer (last line of stderr, signal, time-out); "" when it exited with 0.
    """

    code: int | None
    out: str
    problem: str


def run(argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> Done:
    """Run `argv` for at most `timeout` seconds with no input; a program that hangs is killed with its children."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=None if env is None else dict(env),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Done(code=None, out="", problem=f"cannot run {argv[0]!r}: {getattr(error, 'strerror', None) or error}")
    _live.add(process)
    if _stopping.is_set():  # it was started while the others were being killed
        _kill(process)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        # Not waited for without bound: a process stuck inside a driver does not die of SIGKILL either.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=2)
        return Done(code=None, out="", problem=f"no answer within {timeout:g} s")
    finally:
        _live.discard(process)
    if process.returncode < 0:
        return Done(code=None, out=out, problem=f"killed by {_signal_name(-process.returncode)}")
    if process.returncode > 0:
        lines = [line.strip() for line in (err or out).splitlines() if line.strip()]
        return Done(code=process.returncode, out=out, problem=lines[-1] if lines else f"exit code {process.returncode}")
    return Done(code=0, out=out, problem="")


def kill_all() -> None:
    """Kill every program still running (the user pressed Ctrl-C)."""
    _stopping.set()
    for process in list(_live):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a program and the children it started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    """Return "SIGSEGV" for 11, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
