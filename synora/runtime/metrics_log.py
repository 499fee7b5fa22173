"""Metrics: an append-only JSONL file that is always written, and dashboards that can never stop a run.

A row of the file depends on the run's state alone, never on a clock, so the rows of a resumed run equal those of an
uninterrupted one, byte for byte.
"""

from __future__ import annotations

import json
import netrc
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from synora.core.errors import FileError
from synora.core.machine import install_command

Row = Mapping[str, float | int | str | None]


class MetricsLog:
    """A JSONL file with one row a line, written line by line.

    Each line reaches the operating system whole, in one write, so a killed process leaves whole lines; the disk has
    them when `state_dict` returns.

    Args:
        path: of the file; created when missing.

    Raises:
        FileError: it cannot be opened for writing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._rows = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise FileError(f"cannot write {self.path}: {error.strerror or error}.") from error

    def append(self, row: Row) -> None:
        """Append a row.

        Raises:
            ValueError: a value is NaN or infinite.
            FileError: the disk is full; no part of the row is kept.
        """
        line = (json.dumps(dict(row), allow_nan=False, ensure_ascii=False) + "\n").encode()
        try:
            start = os.fstat(self._handle).st_size
            if (count := os.write(self._handle, line)) != len(line):
                os.ftruncate(self._handle, start)
                raise FileError(f"cannot write {self.path}: the disk took {count} of {len(line)} bytes. Free space.")
        except OSError as error:
            raise FileError(f"cannot write {self.path}: {error.strerror or error}.") from error
        self._rows += 1

    def state_dict(self) -> dict[str, int]:
        """Put the rows on the disk and return how many there are: `rows` and `bytes`."""
        os.fsync(self._handle)
        return {"rows": self._rows, "bytes": os.fstat(self._handle).st_size}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Cut off the rows that came after `state`.

        Raises:
            FileError: the file is shorter than that, or was altered; it is left as it is.
        """
        size = os.fstat(self._handle).st_size
        if size < state["bytes"]:
            raise FileError(
                f"{self.path} has {size} bytes and the checkpoint counts {state['bytes']}: put the file of this run "
                "back, or start another run."
            )
        kept = os.pread(self._handle, state["bytes"], 0)
        if kept.count(b"\n") != state["rows"] or (kept and not kept.endswith(b"\n")):
            raise FileError(f"{self.path} was altered: its first {state['bytes']} bytes are not {state['rows']} rows.")
        os.ftruncate(self._handle, state["bytes"])
        self._rows = state["rows"]

    def clear(self) -> None:
        """Drop all rows: nothing is committed yet."""
        os.ftruncate(self._handle, 0)
        self._rows = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the whole rows of a metrics file; a line that is being written now is left out.

    Raises:
        FileError: missing, or a line is not a JSON object; the message has its number.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {error}.") from error
    rows = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise FileError(f"{path}, line {number}: not a metrics row.")
        rows.append(row)
    return rows


class Sink(Protocol):
    """A dashboard that gets a copy of every row."""

    def write(self, row: Row, step: int) -> None:
        """Show a row; `step` is the number of environment interactions."""

    def close(self) -> None:
        """Finish."""


class TensorBoardSink:
    """TensorBoard event files (extra `tensorboard`).

    Args:
        folder: for the event files.
        first_step: where a resumed run goes on; TensorBoard hides what an earlier attempt wrote from there on.
    """

    def __init__(self, folder: str | os.PathLike[str], *, first_step: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=first_step or None)

    def write(self, row: Row, step: int) -> None:
        """Write the row's numbers as scalars."""
        for name, value in row.items():
            if isinstance(value, (int, float)) and name not in {"step", "updates"}:
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()


class WandbSink:
    """Weights & Biases (extra `wandb`), offline when no API key is configured.

    Args:
        folder: of the run; holds wandb's files and the id by which a resumed run goes on.
        project: wandb project.
        config: the run's configuration.
    """

    def __init__(self, folder: str | os.PathLike[str], *, project: str, config: Mapping[str, Any]) -> None:
        import wandb

        marker = Path(folder) / "wandb_id"
        known = marker.read_text(encoding="utf-8").strip() if marker.is_file() else None
        # Without a key wandb would ask for one on a terminal, and wait.
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_wandb_key() else "offline")
        self._run: Any = wandb.init(
            project=project, dir=str(folder), config=dict(config), id=known, resume="allow", mode=mode
        )
        marker.write_text(f"{self._run.id}\n", encoding="utf-8")
        self._run.define_metric("*", step_metric="step")

    def write(self, row: Row, step: int) -> None:
        """Log the row; its own `step` is the axis, because wandb's may only grow."""
        self._run.log({**row, "step": step})

    def close(self) -> None:
        """Finish the wandb run."""
        self._run.finish()


def _has_wandb_key() -> bool:
    """Say whether an API key is where wandb looks for one: its variable, or the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


class SafeSinks:
    """Several sinks, each of which is dropped with one warning line when it fails.

    Args:
        makers: name -> function that starts the sink. Called here, so an extra is imported only when it is asked for.
        say: where warnings go; None: stderr.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Sink]], say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self._sinks: dict[str, Sink] = {}
        for name, make in makers.items():
            sink = self._try(name, make)
            if sink is not None:
                self._sinks[name] = sink

    def write(self, row: Row, step: int) -> None:
        """Give every sink a row."""
        for name, sink in tuple(self._sinks.items()):
            self._try(name, partial(sink.write, row, step))

    def close(self) -> None:
        """Close every sink."""
        for name, sink in tuple(self._sinks.items()):
            self._try(name, sink.close)
        self._sinks.clear()

    def _try(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a dashboard raises, training goes on
            self._sinks.pop(name, None)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            if isinstance(error, ModuleNotFoundError):
                reason = f"{error.name} is not installed; install it with: {install_command(name)}"
            self._say(f"warning: no more metrics to {name} ({reason}); metrics.jsonl goes on")
            return None
