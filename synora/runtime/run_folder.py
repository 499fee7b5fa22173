"""What a run's folder says before the run starts: finished, never committed, or to be continued with changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.core.errors import ConfigError, FileError, UsageError
from synora.core.files import read_json
from synora.runtime.checkpoint import CHECKPOINTS, Manifest
from synora.runtime.metrics_log import MetricsLog, read_rows


def finished_marker(folder: Path) -> dict[str, Any] | None:
    """Return the marker of a finished run (`step`, `round`, `checkpoint`), None when it is not finished.

    Raises:
        FileError: the file is there and is not a marker.
    """
    path = folder / "finished.json"
    if not path.is_file():
        return None
    marker = read_json(path)
    if not isinstance(marker, dict) or not {"step", "round"} <= set(marker):
        raise FileError(f"{path} is not the marker of a finished run; delete it to continue the run.")
    return marker


_LOGS = ("metrics.jsonl", "timing.jsonl", "changes.jsonl")
_LOCK = ".run.lock"  # of the lease every attempt holds; it stays


def require_ours(folder: Path) -> None:
    """Refuse a folder in which somebody else's files have the names of a run's; call it before the lease.

    Raises:
        UsageError: such files are there, and no attempt at a run ever was.
    """
    if (folder / _LOCK).exists() or (folder / CHECKPOINTS).is_dir():
        return
    there = [name for name in ("replay", *_LOGS) if (folder / name).exists()]
    if there:
        raise UsageError(
            f"{folder} holds {', '.join(there)} and is not the folder of a run: choose another one with --out-dir."
        )


def drop_uncommitted(folder: Path) -> None:
    """Remove what an attempt left that ended before its first checkpoint."""
    shutil.rmtree(folder / "replay", ignore_errors=True)
    for name in _LOGS:
        (folder / name).unlink(missing_ok=True)


def find_changes(
    folder: Path, saved: Manifest, config: Mapping[str, Any], frozen: Collection[str]
) -> list[dict[str, str | int]]:
    """Return what differs between a configuration and that of the checkpoint: `step`, `field`, `from`, `to`.

    Args:
        folder: of the run, for messages.
        saved: of the checkpoint to continue from.
        config: JSON values.
        frozen: names (dotted below the top level) that may not change, with everything below them.

    Raises:
        ConfigError: a frozen value was changed.
    """
    old, new = dict(_leaves(saved.config)), dict(_leaves(config))
    changed = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    for name in changed:
        parts = name.split(".")
        if any(".".join(parts[:depth]) in frozen for depth in range(1, len(parts) + 1)):
            raise ConfigError(
                f"{name} was {_text(old, name)} when run {folder} started and cannot become {_text(new, name)}: "
                "keep it, or choose another run folder."
            )
    return [{"step": saved.step, "field": name, "from": _text(old, name), "to": _text(new, name)} for name in changed]


def record_changes(folder: Path, changes: Sequence[Mapping[str, str | int]], say: Callable[[str], None]) -> None:
    """Say what was changed, one line a field, and append it to `changes.jsonl`."""
    if not changes:
        return
    path = folder / "changes.jsonl"
    # An attempt that was killed before its first checkpoint has recorded them already.
    known = read_rows(path) if path.exists() else []
    log = MetricsLog(path)
    for change in changes:
        say(f"changed from step {change['step']} on: {change['field']} from {change['from']} to {change['to']}")
        if dict(change) not in known:
            log.append(change)
    log.close()


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value below nested mappings with its dotted name."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(values: Mapping[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "not set"
