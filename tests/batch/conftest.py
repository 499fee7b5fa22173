"""Fake jobs for both executors, and ways to look at processes."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest

from synora.batch import execute
from synora.core.job import JobSpec

HERE = Path(__file__).parent


@pytest.fixture
def fake_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `synora_fake_jobs` the handler in this process."""
    monkeypatch.setattr(execute, "HANDLERS", execute.HANDLERS)  # so that it is put back
    monkeypatch.setattr(sys, "path", [str(HERE), *sys.path])
    monkeypatch.setattr(execute, "HANDLERS", importlib.import_module("synora_fake_jobs").HANDLERS)


@pytest.fixture(scope="module")
def fake_server() -> Iterator[tuple[str, ...]]:
    """Give these tests a fork server of their own, with the fake jobs in it; yields the `preload` of their pools."""
    server: Any = forkserver._forkserver
    server._stop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=":")
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        patch.setattr(server, "_preload_modules", [])
        yield ("synora_fake_jobs",)
        server._stop()


@pytest.fixture
def job() -> Callable[..., JobSpec]:
    """Make the spec of a fake job from what it does."""

    def make(do: str, **params: Any) -> JobSpec:
        return JobSpec(kind="compute", name=f"{do} {params.get('x', '')}".strip(), params={"do": do, **params})

    return make


def is_gone(pid: int) -> bool:
    """Say whether a process is dead; one that nobody has waited for yet counts as dead."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def wait_gone() -> Callable[..., bool]:
    """Wait a bounded time for a process to die."""

    def wait(pid: int, seconds: float = 15) -> bool:
        deadline = time.monotonic() + seconds
        while not is_gone(pid):
            if time.monotonic() > deadline:
                psutil.Process(pid).kill()  # do not leave it behind
                return False
            time.sleep(0.02)
        return True

    return wait


@pytest.fixture
def wait_pid() -> Callable[[Path], int]:
    """Wait a bounded time for a file that holds a pid."""

    def wait(path: Path) -> int:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} does not appear"
            time.sleep(0.01)
        return int(path.read_text())

    return wait
