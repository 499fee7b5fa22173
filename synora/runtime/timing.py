"""Timing of repeated calls: warm-up until stable, device events, percentiles.

On CUDA each call is bracketed by device events and the device is synchronised only outside the window, so neither an
early return of an asynchronous launch nor a synchronisation per call distorts the figures.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch

NOISY_IQR_SHARE = 0.10
STABLE_SHARE = 0.10
STABLE_CALLS = 3
WARMUP_CAP_FACTOR = 4


class Clock(Protocol):
    """Marks moments on a device and reads the time between them."""

    def synchronize(self) -> None:
        """Wait until the device has done everything it was given."""

    def mark(self) -> Any:
        """Return a mark of the present point in the device's queue; must not wait for the device."""

    def milliseconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks in ms; only after `synchronize`."""


class HostClock:
    """The CPU, where calls return when their work is done."""

    def synchronize(self) -> None:
        """Do nothing: there is no queue."""

    def mark(self) -> int:
        """Return the monotonic clock in nanoseconds."""
        return time.perf_counter_ns()

    def milliseconds(self, start: int, end: int) -> float:
        """Return the difference in milliseconds."""
        return (end - start) / 1e6


class CudaClock:
    """A CUDA stream, timed by events recorded in it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)

    def mark(self) -> torch.cuda.Event:
        """Record an event in the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def milliseconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return the time between two recorded events."""
        return float(start.elapsed_time(end))


def clock_for(device: torch.device) -> Clock:
    """Return the clock of a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()


@dataclass(frozen=True)
class Timing:
    """Times of repeated calls, in milliseconds.

    Attributes:
        calls_ms: each call of the window, in order.
        wall_ms: host time of the whole window, synchronised at both ends.
        first_call_ms: the very first call, with lazy initialisation and compilation in it.
        warmup_calls: calls before the window, the first one included.
        warmup_ms: the time of those calls together.
        stable: whether the last warm-up calls agreed within 10 %.
    """

    calls_ms: tuple[float, ...]
    wall_ms: float
    first_call_ms: float
    warmup_calls: int
    warmup_ms: float
    stable: bool

    def summary(self) -> dict[str, Any]:
        """Return n, median, mean, min, p10, p90, p99, iqr (all ms), the noisy flag and the warm-up, JSON-ready."""
        times = np.asarray(self.calls_ms)
        p10, q1, median, q3, p90, p99 = (float(v) for v in np.percentile(times, [10, 25, 50, 75, 90, 99]))
        return {
            "n": len(times),
            "median_ms": median,
            "mean_ms": float(times.mean()),
            "min_ms": float(times.min()),
            "p10_ms": p10,
            "p90_ms": p90,
            "p99_ms": p99,
            "iqr_ms": q3 - q1,
            "noisy": bool(q3 - q1 > NOISY_IQR_SHARE * median),
            "wall_ms": self.wall_ms,
            "first_call_ms": self.first_call_ms,
            "warmup_calls": self.warmup_calls,
            "warmup_ms": self.warmup_ms,
            "warmup_stable": self.stable,
        }


def time_once(call: Callable[[], object], clock: Clock) -> float:
    """Run `call` once and return its time in ms, synchronised at both ends."""
    clock.synchronize()
    start = time.perf_counter_ns()
    call()
    clock.synchronize()
    return (time.perf_counter_ns() - start) / 1e6


def measure(call: Callable[[], object], clock: Clock, *, first_call_ms: float, warmup: int, iters: int) -> Timing:
    """Warm `call` up, then time `iters` calls of it.

    Args:
        call: what to time; it was called once already.
        clock: of the device it runs on.
        first_call_ms: the time of that first call.
        warmup: calls before the window at least (the first one counts); more follow, up to four times as many, until
            three in a row agree within 10 %.
        iters: calls in the window, at least 1.
    """
    recent = [first_call_ms]
    while len(recent) < warmup or (not is_stable(recent) and len(recent) < WARMUP_CAP_FACTOR * warmup):
        recent.append(time_once(call, clock))
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        clock.synchronize()
        start = time.perf_counter_ns()
        marks = [clock.mark()]
        for _ in range(iters):
            call()
            marks.append(clock.mark())
        clock.synchronize()
        wall_ms = (time.perf_counter_ns() - start) / 1e6
    finally:
        if collecting:
            gc.enable()
    calls = tuple(clock.milliseconds(a, b) for a, b in pairwise(marks))
    return Timing(calls, wall_ms, first_call_ms, len(recent), sum(recent), is_stable(recent))


def is_stable(times: Sequence[float]) -> bool:
    """Return whether the last three times lie within 10 % of each other; fewer than three are not stable."""
    last = times[-STABLE_CALLS:]
    return len(last) == STABLE_CALLS and max(last) - min(last) <= STABLE_SHARE * min(last)
