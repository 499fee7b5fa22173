"""SIGTERM and SIGHUP end a command as Ctrl-C does: children are ended, what is finished is on disk, nothing is half."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_STOPS = (signal.SIGTERM, signal.SIGHUP)


def interrupt_on_stop() -> None:
    """Turn the signals into KeyboardInterrupt from here on; works inside `kept_handlers`."""
    for number in _STOPS:
        signal.signal(number, _interrupt)


@contextlib.contextmanager
def kept_handlers() -> Iterator[None]:
    """Put the signals' handlers back at the end: `main` may be called from somebody else's program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt
