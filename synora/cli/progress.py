"""Progress of a plan: a live bar on a terminal, plain lines in a log. Both go to stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from synora.core.result import Result
from synora.runtime.progress import clock_text


class PlanProgress:
    """Shows which job runs, what it is doing, how many are done, the time spent and the time left.

    Args:
        total: number of jobs in the plan.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[eta]}"),
                console=self._console,
                transient=True,
                refresh_per_second=2,  # drawing takes time from what is measured
            )
            self._task = self._bar.add_task("starting", total=total, eta="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def phase(self, name: str, phase: str) -> None:
        """Say what a job is doing; shown on a terminal only, a log gets one line a job."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"{name}: {phase}")

    def finished(self, result: Result, detail: str) -> None:
        """Say that a job ended.

        Args:
            result: its outcome.
            detail: the figure or the reason, one short text.
        """
        self._done += 1
        elapsed = time.monotonic() - self._started
        remaining = elapsed / self._done * (self._total - self._done)
        eta = f"about {clock_text(remaining)} left" if self._done < self._total else ""
        line = f"[{self._done}/{self._total}] {result.job.name}: {result.status}, {detail}"
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, eta=eta)
            self._console.print(line, markup=False, highlight=False)
        else:
            tail = f", {eta}" if eta else ""
            print(f"{line} (elapsed {clock_text(elapsed)}{tail})", file=sys.stderr, flush=True)
