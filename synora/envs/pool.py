"""The worker processes of a vector environment: started, commanded, and never left behind."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from synora.core.errors import DependencyMissing, SynoraError, UsageError
from synora.envs import worker

_PATIENCE = 5.0  # seconds for a worker to leave after its pipe is closed
# Each worker is one of as many as there are CPUs; threads of numerical libraries would only fight.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# A fresh interpreter instead of a fork: the parent may hold threads and a GPU. Unlike multiprocessing's spawn it does
# not run the caller's main module again.
_BOOT = "import sys; sys.path[:] = {path!r}; from synora.envs.worker import main; main(sys.argv[1:])"


class WorkerError(SynoraError):
    """An environment failed in a worker process, or the process died.

    Attributes:
        remote_traceback: the worker's own traceback, also the `__cause__`; empty when it died.
    """

    def __init__(self, message: str, remote_traceback: str = "") -> None:
        super().__init__(message)
        self.remote_traceback = remote_traceback


class RemoteTraceback(Exception):
    """Carries a worker's traceback as text, so that the parent's traceback shows it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Worker:
    """One process and its two pipes."""

    def __init__(self, memory: int, first: int, count: int) -> None:
        self.first, self.count = first, count
        to_read, self.commands = os.pipe()
        self.replies, to_write = os.pipe()
        try:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _BOOT.format(path=[path or os.getcwd() for path in sys.path])),
                    *map(str, (to_read, to_write, memory, os.getpid())),
                ],
                pass_fds=(to_read, to_write, memory),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a simulator prints must not get into the parent's output
                env={**os.environ, **_ONE_THREAD},
            )
        finally:
            os.close(to_read)
            os.close(to_write)


class WorkerPool:
    """Workers that each hold a contiguous share of the environments.

    Args:
        order: what a worker makes its environments of; the pool adds which.
        num_envs: environments in all.
        count: workers, at most `num_envs`.

    Raises:
        UsageError, DependencyMissing: an environment cannot be made.
        WorkerError: a worker died or failed otherwise.
    """

    def __init__(self, order: dict[str, Any], num_envs: int, count: int) -> None:
        self.num_envs = num_envs
        self._memory = _memory_file()
        self._workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _stop, self._workers, self._memory, os.getpid())
        self._owner = np.empty(num_envs, np.int64)
        try:
            for index, share in enumerate(np.array_split(np.arange(num_envs), count)):
                self._owner[share] = index
                self._workers.append(_Worker(self._memory, int(share[0]), len(share)))
            for one in self._workers:
                self._send(one, json.dumps({**order, "first": one.first, "count": one.count}).encode())
            self.greeting: dict[str, Any] = [json.loads(self._receive(one)) for one in self._workers].pop()
        except BaseException:
            self.close()
            raise

    def share(self, size: int) -> mmap.mmap:
        """Return `size` bytes of memory that all workers see."""
        os.ftruncate(self._memory, size)
        for one in self._workers:
            self._send(one, json.dumps({"bytes": size, "count": self.num_envs}).encode())
        for one in self._workers:
            self._receive(one)
        return mmap.mmap(self._memory, size)

    def run(self, command: str, chosen: npt.NDArray[np.bool_]) -> None:
        """Let the workers that have chosen environments reset or step them."""
        code = worker.STEP if command == "step" else worker.RESET
        asked = self._workers if chosen.all() else [self._workers[index] for index in np.unique(self._owner[chosen])]
        try:
            for one in asked:
                self._send(one, code)
            for one in asked:
                self._receive(one)
        except BaseException:  # after a Ctrl-C in here, questions and answers would no longer belong together
            self.close()
            raise

    def facts(self) -> list[dict[str, Any]]:
        """Return `facts()` of every environment, in order."""
        for one in self._workers:
            self._send(one, worker.FACTS)
        return [facts for one in self._workers for facts in json.loads(self._receive(one))]

    def close(self) -> None:
        """End all workers and wait for them."""
        self._finalizer()

    def _send(self, one: _Worker, message: bytes) -> None:
        if not self._finalizer.alive:
            raise SynoraError("the vector environment is closed.")
        try:
            worker.send(one.commands, message)
        except BrokenPipeError:
            self._died(one)

    def _receive(self, one: _Worker) -> bytes:
        message = worker.receive(one.replies)
        if message is None:
            self._died(one)
        assert message is not None
        if message[:1] == worker.OK:
            return message[1:]
        report = json.loads(message[1:])
        self.close()
        cause = RemoteTraceback(report["traceback"])
        for kind in (UsageError, DependencyMissing):
            if report["type"] == kind.__name__:
                raise kind(report["message"]) from cause
        what = report["message"] if report["synora"] else f"{report['type']}: {report['message']}"
        raise WorkerError(f"{_name(one)} failed: {what}", report["traceback"]) from cause

    def _died(self, one: _Worker) -> None:
        try:
            code: int | str = one.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            code = "unknown"
        self.close()
        how = f"was killed by signal {-code}" if isinstance(code, int) and code < 0 else f"left with code {code}"
        raise WorkerError(f"{_name(one)} {how}; if it was signal 9, the machine may be out of memory.")


def _name(one: _Worker) -> str:
    last = one.first + one.count - 1
    which = f"environment {one.first}" if one.count == 1 else f"environments {one.first} to {last}"
    return f"the worker of {which}"


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):  # freed by the kernel with its last user, and not bounded by /dev/shm
        return os.memfd_create("synora-envs")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _stop(workers: list[_Worker], memory: int, owner: int) -> None:
    """Close all pipes, then wait; kill what does not leave. Only in the process that started them."""
    if os.getpid() != owner:
        return
    for one in workers:
        os.close(one.commands)
        os.close(one.replies)
    for one in workers:
        try:
            one.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()
    os.close(memory)
