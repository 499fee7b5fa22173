"""The metrics file and the dashboards beside it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from synora.core.errors import FileError
from synora.runtime import metrics_log
from synora.runtime.metrics_log import MetricsLog, SafeSinks, TensorBoardSink, read_rows


def test_rows_are_lines(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "run" / "metrics.jsonl")
    rows = [{"step": 1, "loss": 0.1}, {"step": 2, "name": "é\n", "none": None}]
    for row in rows:
        log.append(row)
        assert read_rows(log.path)[-1] == row, "each row is there when append returns"
    assert log.path.read_text(encoding="utf-8").splitlines() == [json.dumps(row, ensure_ascii=False) for row in rows]


def test_rows_after_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({"step": 1})
    log.append({"step": 2})
    state = log.state_dict()
    committed = log.path.read_bytes()
    log.append({"step": 3})
    log.close()
    with open(log.path, "ab") as stream:
        stream.write(b'{"step": 4, "lo')  # a machine that lost its power in the middle of a line
    again = MetricsLog(log.path)
    again.load_state_dict(json.loads(json.dumps(state)))
    assert log.path.read_bytes() == committed
    again.append({"step": 3})
    assert again.state_dict()["rows"] == 3
    assert [row["step"] for row in read_rows(log.path)] == [1, 2, 3]


def test_a_file_that_lost_rows_is_refused_and_kept(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(5):
        log.append({"step": step})
    state = log.state_dict()
    log.close()
    whole = log.path.read_bytes()
    for broken, message in (
        (whole[:-3], "the checkpoint counts"),
        (whole.replace(b"\n", b" ", 1), "are not 5 rows"),
        (whole[:-1] + b" ", "are not 5 rows"),
    ):
        log.path.write_bytes(broken)
        again = MetricsLog(log.path)
        with pytest.raises(FileError, match=message):
            again.load_state_dict(state)
        again.close()
        assert log.path.read_bytes() == broken


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_only_numbers_that_json_has(tmp_path: Path, value: float) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        log.append({"loss": value})
    assert log.path.read_bytes() == b""


def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({"step": 1})
    write = os.write
    monkeypatch.setattr(metrics_log.os, "write", lambda handle, data: write(handle, data[:4]))
    with pytest.raises(FileError, match="the disk took 4 of"):
        log.append({"step": 2})
    monkeypatch.undo()
    assert read_rows(log.path) == [{"step": 1}]
    if Path("/dev/full").exists():
        with pytest.raises(FileError, match="No space left"):
            MetricsLog("/dev/full").append({"step": 1})


def test_reading_names_the_bad_line_and_waits_for_the_last(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2')
    assert read_rows(path) == [{"step": 1}]
    path.write_text('{"step": 1}\n[]\n')
    with pytest.raises(FileError, match="line 2"):
        read_rows(path)
    with pytest.raises(FileError, match="cannot read"):
        read_rows(tmp_path / "missing")


class Memory:
    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.closed = 0

    def write(self, row: Any, step: int) -> None:
        self.rows.append((step, row))

    def close(self) -> None:
        self.closed += 1


class Failing(Memory):
    def write(self, row: Any, step: int) -> None:
        super().write(row, step)
        raise SystemExit("the dashboard\nwants to leave")


def test_a_failing_sink_is_dropped_with_one_line() -> None:
    good, bad, lines = Memory(), Failing(), []

    def absent() -> Any:
        raise ModuleNotFoundError("No module named 'tensorboard'", name="tensorboard")

    sinks = SafeSinks({"bad": lambda: bad, "good": lambda: good, "tensorboard": absent}, lines.append)
    for step in range(3):
        sinks.write({"loss": 1.0}, step)
    sinks.close()
    assert [step for step, _ in good.rows] == [0, 1, 2]
    assert len(bad.rows) == 1
    assert good.closed == 1
    assert len(lines) == 2
    assert "tensorboard is not installed; install it with: " in lines[0] and "tensorboard" in lines[0].split(":")[-1]
    assert "SystemExit: the dashboard wants to leave" in lines[1]
    assert not any("\n" in line for line in lines)


def test_an_interrupt_is_not_a_dashboard_s_failure() -> None:
    class Interrupted(Memory):
        def write(self, row: Any, step: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SafeSinks({"x": Interrupted}, print).write({}, 0)


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoardSink(tmp_path)
    sink.write({"kind": "train", "step": 7, "train/loss": 0.5}, 7)
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(7, 0.5)]


def test_wandb_runs_offline_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in with wandb's interface: the real one starts a service process."""
    calls: list[Any] = []

    class Run:
        id = "abc"

        def define_metric(self, *a: Any, **k: Any) -> None:
            pass

        def log(self, row: Any) -> None:
            calls.append(row)

        def finish(self) -> None:
            calls.append("finish")

    class FakeWandb:
        @staticmethod
        def init(**settings: Any) -> Run:
            calls.append((settings["mode"], settings["id"], settings["resume"]))
            return Run()

    monkeypatch.setitem(sys.modules, "wandb", FakeWandb)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for _ in range(2):
        sink = metrics_log.WandbSink(tmp_path, project="p", config={"a": 1})
        sink.write({"train/loss": 1.0}, 3)
        sink.close()
    row = {"train/loss": 1.0, "step": 3}
    assert calls == [("offline", None, "allow"), row, "finish", ("offline", "abc", "allow"), row, "finish"]
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    metrics_log.WandbSink(tmp_path, project="p", config={})
    monkeypatch.setenv("WANDB_MODE", "disabled")
    metrics_log.WandbSink(tmp_path, project="p", config={})
    assert [call[0] for call in calls[6:]] == ["online", "disabled"]
