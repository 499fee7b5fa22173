"""Progress of a run: a live bar on a terminal, plain lines in a log, both on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

PLAIN_SECONDS = 10.0
_WATCHER: ContextVar[Callable[[int], None] | None] = ContextVar("synora_training_watcher", default=None)


@contextlib.contextmanager
def watched(on_step: Callable[[int], None]) -> Iterator[None]:
    """Call `on_step(step)` while runs that are started inside go on, as often as their loop turns.

    Args:
        on_step: called with the environment interactions so far; must be quick.
    """
    token = _WATCHER.set(on_step)
    try:
        yield
    finally:
        _WATCHER.reset(token)


class TrainingProgress:
    """Shows how far a run is and how long it will still take.

    The first round of every attempt is left out of the estimate: it holds the prefill, compilation and warm-up.

    Args:
        rounds: rounds of the whole run.
        clock: monotonic seconds.
        stream: where plain lines go, and where a terminal is looked for; None: stderr.
    """

    def __init__(self, rounds: int, *, clock: Callable[[], float] = time.monotonic, stream: Any = None) -> None:
        self._rounds = rounds
        self._done = 0
        self._clock = clock
        self._stream = sys.stderr if stream is None else stream
        self._started = clock()
        self._base: tuple[int, float] | None = None
        self._printed = float("-inf")
        self._watcher = _WATCHER.get()
        self._bar: Any = None
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            self._bar = Progress(
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.description}"),
                console=Console(file=self._stream),
                transient=True,
                refresh_per_second=2,  # drawing takes time from training
            )
            self._task = self._bar.add_task("starting", total=rounds)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def remaining(self) -> float | None:
        """Return the estimated seconds left, None before two rounds of this attempt are done."""
        if self._base is None or self._done == self._base[0]:
            return None
        rounds, since = self._base
        return (self._clock() - since) / (self._done - rounds) * (self._rounds - self._done)

    def start_at(self, done: int) -> None:
        """Say how many rounds earlier attempts did."""
        self._done = done

    def advance(self, done: int, *, step: int | None = None) -> None:
        """Say how many rounds are done, and how many steps."""
        if step is not None and self._watcher is not None:
            self._watcher(step)
        if done == self._done:
            return
        self._done = done
        if self._base is None:
            self._base = (done, self._clock())

    def show(self, text: str, *, force: bool = False) -> None:
        """Show one line about the run's state; in a log at most one in ten seconds, unless forced."""
        left = self.remaining()
        eta = f", about {clock_text(left)} left" if left is not None and self._done < self._rounds else ""
        now = self._clock()
        line = f"{text} (elapsed {clock_text(now - self._started)}{eta})"
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=line)
        elif force or now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            percent = 100 * self._done // max(1, self._rounds)
            print(f"[{percent:3d}%] {line}", file=self._stream, flush=True)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self._stream, flush=True)


def clock_text(seconds: float) -> str:
    """Return h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
