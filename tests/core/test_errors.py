"""Errors: exit codes, one line, the closest match."""

from __future__ import annotations

import pytest

from synora.core import errors
from synora.core.errors import SynoraError, UsageError, closest, unknown_value


@pytest.mark.parametrize(
    ("kind", "code"),
    [("SynoraError", 1), ("UsageError", 2), ("ConfigError", 2), ("FileError", 1), ("DependencyMissing", 1)],
)
def test_each_kind_of_error_has_its_exit_code(kind: str, code: int) -> None:
    error = getattr(errors, kind)("what was wrong")
    assert isinstance(error, SynoraError)
    assert error.exit_code == code
    assert str(error) == "what was wrong"


def test_wrong_usage_is_a_value_error_for_callers_of_the_library() -> None:
    assert issubclass(UsageError, ValueError)


@pytest.mark.parametrize(
    ("value", "match"),
    [("dreamr", "Dreamer"), ("DREAMER", "Dreamer"), ("iirs", "iris"), ("zzz", None), ("", None)],
)
def test_closest_ignores_case_and_gives_up_on_strangers(value: str, match: str | None) -> None:
    assert closest(value, ["Dreamer", "iris", "diamond"]) == match


def test_unknown_value_says_what_is_allowed_on_one_line() -> None:
    error = unknown_value("model", "irs\n", ["iris", "dreamer"], hint="See --list.")
    assert error.exit_code == 2
    assert str(error) == r"unknown model 'irs\n'. Did you mean 'iris'? Allowed: dreamer, iris. See --list."
    assert str(unknown_value("model", "zzzz", [])) == "unknown model 'zzzz'. Allowed: (none)."
