"""Stop requests: SIGTERM, SIGUSR2 (a scheduler's warning) and Ctrl-C set a flag that the loop reads between steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR2", "SIGINT") if hasattr(signal, name)
)  # SIGUSR2 is not on Windows


class StopSignals:
    """Context in which a signal asks for a stop instead of ending the process.

    A second Ctrl-C raises KeyboardInterrupt at once. The handlers found on entry are put back on exit. Outside the main
    thread, where Python allows no handlers, nothing is installed. Processes forked inside the context keep the effect
    that the signals had before.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}
        self._owner = os.getpid()

    @property
    def requested(self) -> str | None:
        """Name of the first signal that came, such as "SIGTERM"; None while nobody asked for a stop."""
        return self._name

    def __enter__(self) -> Self:
        self._owner = os.getpid()
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in tuple(self._before):
            self._restore(number)

    def _restore(self, number: signal.Signals) -> None:
        before = self._before.pop(number)
        # None stands for a handler that was not installed from Python and cannot be put back.
        signal.signal(number, signal.SIG_DFL if before is None else before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a forked worker, which nobody asks for its flag
            self._restore(signal.Signals(number))
            os.kill(os.getpid(), number)
            return
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self._name = self._name or signal.Signals(number).name
