"""Fake jobs for both executors, and ways to look at processes."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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


class Results:
    """Writes result files as jobs do, into `folder/jobs`.

    Attributes:
        folder: what to collect.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir(parents=True)

    def returns(
        self,
        agent: str = "iris",
        game: str = "Pong",
        returns: Sequence[float | None] = (1.0, 3.0),
        *,
        train_seed: int | None = 0,
        eval_seed: int = 0,
        backend: str = "ale",
        rules: str = "atari-100k",
        **more: Any,
    ) -> Path:
        """Write the result of one evaluation; `more`: see `_write`, and `adapter`, `checkpoint`, `body`."""
        checkpoint = more.pop("checkpoint", f"runs/{agent}/{game}/{train_seed}")
        params = {"agent": agent, "game": game, "backend": backend, "checkpoint": checkpoint, "eval_seed": eval_seed}
        failed = list(returns).count(None)
        body = {
            "agent": agent,
            "adapter": more.pop("adapter", "some.where:Adapter"),
            "env": {"game": game, "name": game, "backend": backend, "note": None},
            "protocol": {"name": rules, "fingerprint": f"{rules}-0123"},
            "eval_seed": eval_seed,
            "train_seed": train_seed,
            "checkpoint": {"path": checkpoint, "step": 100},
            "num_episodes": len(returns),
            "episodes_failed": failed,
            "episode_returns": list(returns),
            "mean": None if failed else sum(returns) / len(returns),  # type: ignore[arg-type]
            "reason": f"{failed} of {len(returns)} episodes failed" if failed else None,
            **more.pop("body", {}),
        }
        return self._write("returns", f"{agent} {game} {train_seed} {eval_seed}", params, body, **more)

    def compute(self, model: str = "encoder", *, median_ms: float = 2.5, device: str = "cpu", **more: Any) -> Path:
        """Write the result of one compute case."""
        timing = {"median_ms": median_ms, "noisy": False}
        mode = {"timing": timing, "memory": {"peak_rss_bytes": 3 * 2**20}, "flops": 1e9, "R": 1.5}
        body = {
            "family": "f",
            "unit": "frames",
            "parameters": 10,
            "modes": {"forward": {**mode, "items_per_second": 9.0}},
        }
        return self._write("compute", model, {"model": model, "device": device, "dtype": "float32"}, body, **more)

    def train(
        self, agent: str = "iris", game: str = "Pong", seed: int = 0, curve: Any = ((10, 1.0), (20, 2.0))
    ) -> Path:
        """Write the result of one training run."""
        params = {"agent": agent, "config": {"game": game, "seed": seed}, "folder": "runs/x"}
        body = {"agent": agent, "game": game, "train_seed": seed, "step": 20, "checkpoint": "c", "curve": list(curve)}
        return self._write("train", f"{agent} {game} {seed}", params, body)

    def _write(
        self,
        kind: Any,
        name: str,
        params: dict[str, Any],
        body: dict[str, Any],
        *,
        status: str = "ok",
        attempt: int = 1,
        host: str = "0123456789ab",
        started_at: str = "2026-01-01T00:00:00+00:00",
        file: str | None = None,
    ) -> Path:
        job = JobSpec(kind=kind, name=name, params=params)
        error = None if status == "ok" else {"type": "died", "message": "the process was killed", "traceback": None}
        value = {
            "schema_version": 1,
            "job_id": job.job_id,
            "job": job.model_dump(mode="json"),
            "attempt": attempt,
            "status": status,
            "error": error,
            "provenance": {
                "started_at": started_at,
                "wall_seconds": 1.0,
                "machine": {"host_hash": host},
                "device": {"name": "Some CPU"},
            },
            "body": body if status == "ok" else None,
        }
        path = self.folder / "jobs" / (file or f"{job.job_id}.json")
        path.write_text(json.dumps(value), encoding="utf-8")
        return path


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A folder in which a test writes results."""
    return Results(tmp_path / "results")
