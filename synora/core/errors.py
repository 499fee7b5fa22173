"""Errors meant for people, and the exit codes they carry.

Every error a user can cause or meet is a `SynoraError`: its message is one line that says what was wrong, which value,
what is allowed and what to do. The command line prints that line without a traceback and leaves with `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pydantic import ValidationError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PREEMPTED = 75  # sysexits.h: a temporary failure, try again; SLURM launchers requeue on it


class SynoraError(Exception):
    """Work that failed for a reason we can name (exit code 1)."""

    exit_code: ClassVar[int] = EXIT_FAILED


class UsageError(SynoraError, ValueError):
    """A value the user gave is not allowed (exit code 2). Raised before any long work starts."""

    exit_code: ClassVar[int] = EXIT_USAGE


class ConfigError(UsageError):
    """A configuration file, preset or `key=value` override is not valid (exit code 2)."""


class FileError(SynoraError):
    """A file or folder cannot be read or written: full disk, missing permission, truncated content (exit code 1)."""


class JobSkipped(SynoraError):
    """A job does not apply here and was not run; the message says why. Recorded as `skipped`, never as a number."""


class JobPreempted(SynoraError):
    """A job was stopped on request with everything saved; run again, it continues. Recorded as `preempted`."""

    exit_code: ClassVar[int] = EXIT_PREEMPTED


class DependencyMissing(SynoraError):
    """An optional library is not installed; the message holds the command that installs it (exit code 1)."""


def closest(value: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name most like `value`, or None when nothing comes close."""
    names = {name.lower(): name for name in allowed}
    matches = difflib.get_close_matches(value.lower(), names, n=1, cutoff=0.5)
    return names[matches[0]] if matches else None


def unknown_value(kind: str, value: str, allowed: Iterable[str], *, hint: str = "") -> UsageError:
    """Build the error for a name outside a closed set.

    Args:
        kind: what the value names, in the user's words ("model", "preset").
        value: what the user wrote.
        allowed: every name that would have been accepted.
        hint: where to look further, added at the end.
    """
    names = sorted(allowed)
    match = closest(value, names)
    guess = f" Did you mean {match!r}?" if match else ""
    tail = f" {hint}" if hint else ""
    return UsageError(f"unknown {kind} {value!r}.{guess} Allowed: {', '.join(names) or '(none)'}.{tail}")


def first_problem(error: ValidationError, whole: str) -> str:
    """Return the first finding of a validation as "field: message".

    Args:
        error: pydantic's.
        whole: what to call a finding about the record as a whole.
    """
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or whole
    return f"{where}: {first['msg']}"
