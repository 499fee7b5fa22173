"""Timing with a clock whose every call is recorded, and a stream that runs behind the host."""

import pytest

from synora.runtime.timing import Timing, is_stable, measure, time_once


class FakeDevice:
    """A device that works asynchronously: calls queue work, marks are read in device time."""

    def __init__(self, costs_ms: list[float]) -> None:
        self.costs = costs_ms
        self.calls = 0
        self.device_ms = 0.0
        self.log: list[str] = []

    def call(self) -> None:
        self.device_ms += self.costs[min(self.calls, len(self.costs) - 1)]
        self.calls += 1
        self.log.append("call")

    def synchronize(self) -> None:
        self.log.append("sync")

    def mark(self) -> float:
        self.log.append("mark")
        return self.device_ms

    def milliseconds(self, start: float, end: float) -> float:
        assert self.log[-1] in {"sync", "read"}, "a mark was read before the device was synchronised"
        self.log.append("read")
        return end - start


def test_no_synchronisation_inside_the_window() -> None:
    device = FakeDevice([5.0])
    measure(device.call, device, first_call_ms=5.0, warmup=1, iters=4)
    window = device.log[device.log.index("mark") :]
    window = window[: window.index("read")]
    assert window == ["mark", "call", "mark", "call", "mark", "call", "mark", "call", "mark", "sync"]
    assert device.log[device.log.index("mark") - 1] == "sync"


def test_times_are_the_device_s_not_the_launch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    from synora.runtime import timing as module

    monkeypatch.setattr(module, "time_once", lambda call, clock: 1.0)
    device = FakeDevice([10.0, 20.0, 30.0])
    timing = measure(device.call, device, first_call_ms=1.0, warmup=9, iters=3)
    assert timing.calls_ms == (10.0, 20.0, 30.0)
    assert (timing.warmup_calls, timing.warmup_ms) == (9, 9.0)


def test_time_once_synchronises_at_both_ends() -> None:
    device = FakeDevice([1.0])
    time_once(device.call, device)
    assert device.log == ["sync", "call", "sync"]


@pytest.mark.parametrize(
    ("times", "stable"),
    [
        ([1.0, 1.0], False),
        ([9.0, 1.0, 1.05, 1.0], True),
        ([1.0, 1.0, 1.2], False),
        ([1.2, 1.0, 1.0, 1.0], True),
    ],
)
def test_stability_is_three_calls_within_ten_percent(times: list[float], stable: bool) -> None:
    assert is_stable(times) is stable


def test_unstable_warmup_stops_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    from synora.runtime import timing as module

    times = iter(float(2**k) for k in range(100))
    monkeypatch.setattr(module, "time_once", lambda call, clock: next(times))
    device = FakeDevice([1.0])
    timing = measure(device.call, device, first_call_ms=0.5, warmup=3, iters=1)
    assert (timing.warmup_calls, timing.stable) == (12, False)


def test_stable_warmup_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from synora.runtime import timing as module

    monkeypatch.setattr(module, "time_once", lambda call, clock: 1.0)
    device = FakeDevice([1.0])
    timing = measure(device.call, device, first_call_ms=50.0, warmup=2, iters=1)
    assert (timing.warmup_calls, timing.stable) == (4, True)


def test_summary_percentiles() -> None:
    timing = Timing(tuple(float(v) for v in range(1, 102)), 5151.0, 7.0, 3, 21.0, True)
    summary = timing.summary()
    assert summary["n"] == 101
    assert summary["median_ms"] == 51.0
    assert (summary["p10_ms"], summary["p90_ms"], summary["p99_ms"]) == (11.0, 91.0, 100.0)
    assert (summary["min_ms"], summary["mean_ms"], summary["iqr_ms"]) == (1.0, 51.0, 50.0)
    assert summary["noisy"] is True
    assert (summary["first_call_ms"], summary["warmup_calls"], summary["warmup_ms"]) == (7.0, 3, 21.0)
    assert summary["wall_ms"] == 5151.0


def test_quiet_times_are_not_noisy() -> None:
    assert Timing((10.0, 10.1, 10.2, 10.1), 40.4, 11.0, 3, 33.0, True).summary()["noisy"] is False


def test_garbage_collection_is_off_in_the_window_and_on_after() -> None:
    import gc

    device = FakeDevice([1.0])
    states: list[bool] = []
    measure(lambda: states.append(gc.isenabled()), device, first_call_ms=1.0, warmup=1, iters=2)
    assert states[-2:] == [False, False]
    assert gc.isenabled()
