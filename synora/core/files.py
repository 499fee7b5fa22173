"""Atomic files: a reader sees the old content or the new content, never half of one.

Writers go through a temporary file in the target's own folder, flushed to disk and renamed over the target. A process
killed at any moment leaves at most a `.NAME.XXXX.tmp` file, which no reader takes for a result.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from synora.core.errors import FileError, UsageError


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write `content` to `path` atomically and return the path.

    Raises:
        FileError: the folder is not writable or the disk is full; the old file, if any, is untouched.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise FileError(
            f"cannot write {target}: {error.strerror or error}. Free space there or choose another folder."
        ) from error
    finally:
        if temporary is not None:  # an error, or Ctrl-C
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return target


def write_text(path: str | os.PathLike[str], content: str) -> Path:
    """Write UTF-8 text to `path` atomically; errors as `write_bytes`."""
    return write_bytes(path, content.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> Path:
    """Write `value` as indented JSON atomically. NaN and infinity are refused: JSON has no such numbers.

    Raises:
        ValueError: `value` holds a non-finite number.
        FileError: as `write_bytes`.
    """
    return write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON from `path`.

    Raises:
        FileError: the file is missing, unreadable or not whole JSON; the message names it.
    """
    target = Path(path)
    try:
        return json.loads(target.read_text(encoding="utf-8"), parse_constant=_no_such_number)
    except OSError as error:
        raise FileError(f"cannot read {target}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{target} is not valid JSON ({error}): it may be truncated or another kind of file."
        ) from error


def require_writable_folder(path: str | os.PathLike[str], *, flag: str = "--out-dir") -> Path:
    """Create `path` if needed and prove that a file can be written there, before long work starts.

    Raises:
        UsageError: the folder cannot be created or written; the message names `flag`.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"synora")
            probe.flush()
    except OSError as error:
        raise UsageError(
            f"output folder {str(folder)!r} is not writable: {error.strerror or error}. Choose another with {flag}."
        ) from error
    return folder


@contextlib.contextmanager
def lease(path: str | os.PathLike[str], *, what: str | None = None) -> Iterator[None]:
    """Hold the one right to write what `path` stands for; the operating system drops it when the process dies.

    Args:
        path: the lock lies beside it.
        what: the name for people of what is written; default: the path.

    Raises:
        FileError: another live process holds it.
    """
    from filelock import FileLock, Timeout

    target = Path(path)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise FileError(
            f"{what or target} is being written by another live process; wait for it or stop it first."
        ) from None
    except OSError as error:
        raise FileError(f"cannot lock {target}: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.release()


def _no_such_number(name: str) -> float:
    raise ValueError(f"JSON has no {name}")


def _umask() -> int:
    """Return the process's umask (reading it needs setting it)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
