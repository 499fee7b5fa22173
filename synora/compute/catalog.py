"""Where bench cases come from: the algorithms' own `bench.py` files, or a user's file with a `CASES` list."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from synora.compute.case import SIZE_FIELDS, BenchCase
from synora.core.errors import UsageError, unknown_value
from synora.core.registry import Registry

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
# Other packages add families through the entry-point group, without an edit here.
FAMILIES = Registry(
    "bench family",
    {"dreamer": "synora.algorithms.dreamer.bench:CASES"},
    group="synora.bench",
)


def builtin_cases() -> list[BenchCase]:
    """Return the cases of every registered family, in the order of the families' names."""
    return list(_builtin_cases())


@cache
def _builtin_cases() -> tuple[BenchCase, ...]:
    return tuple(case for family in FAMILIES.names() for case in FAMILIES.load(family))


def load_cases(source: str | None) -> list[BenchCase]:
    """Return the cases of a Python file's `CASES`, or the built-in ones for None.

    Raises:
        UsageError: the file does not exist, fails to import, has no `CASES`, or holds something that is no case.
    """
    cases = builtin_cases() if source is None else list(_cases_of(Path(source)))
    check_cases(cases, source)
    return cases


def check_cases(cases: Iterable[object], source: str | None = None) -> None:
    """Check that every entry is a `BenchCase` and every name is used once.

    Raises:
        UsageError: otherwise; the message names the entry.
    """
    where = source or "the built-in cases"
    names: Counter[str] = Counter()
    for position, case in enumerate(cases):
        if not isinstance(case, BenchCase):
            raise UsageError(f"CASES[{position}] in {where} is a {type(case).__name__}, expected a BenchCase.")
        problem = _problem(case)
        if problem is not None:
            raise UsageError(f"CASES[{position}] ({case.name!r}) in {where}: {problem}.")
        names[case.name] += 1
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise UsageError(f"CASES in {where} has more than one case named {', '.join(twice)}; names must be unique.")


def _problem(case: BenchCase) -> str | None:
    """Say what is wrong with a case's fields, None when nothing is."""
    for field in ("name", "family"):
        if not isinstance(getattr(case, field), str) or not _NAME.fullmatch(getattr(case, field)):
            return f"{field} must be lower-case letters, digits, dashes, dots or underscores, at most 80"
    if not isinstance(case.unit, str) or not case.unit.isprintable() or not case.unit.strip():
        return f"unit must be a word or two on one line, not {case.unit!r}"
    for field in ("build", "inputs", "items"):
        if not callable(getattr(case, field)):
            return f"{field} must be a function, not {getattr(case, field)!r}"
    for field in ("loss", "optimizer"):
        if getattr(case, field) is not None and not callable(getattr(case, field)):
            return f"{field} must be a function or None, not {getattr(case, field)!r}"
    sizes = case.image_sizes
    if sizes is not None and not (isinstance(sizes, tuple) and sizes and all(map(_is_count, sizes))):
        return f"image_sizes must be None or a tuple of whole numbers from 1, not {sizes!r}"
    if not isinstance(case.paper_sizes, Mapping) or not all(
        name in SIZE_FIELDS and _is_count(value) for name, value in case.paper_sizes.items()
    ):
        return f"paper_sizes must map {', '.join(SIZE_FIELDS)} to whole numbers from 1, not {case.paper_sizes!r}"
    if case.clip_norm is not None and not (isinstance(case.clip_norm, int | float) and case.clip_norm > 0):
        return f"clip_norm must be None or above 0, not {case.clip_norm!r}"
    for field in ("heavy", "trains"):
        if not isinstance(getattr(case, field), bool):
            return f"{field} must be True or False, not {getattr(case, field)!r}"
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def find_case(cases: Sequence[BenchCase], name: str) -> BenchCase:
    """Return the case called `name`; UsageError with the closest match when there is none."""
    for case in cases:
        if case.name == name:
            return case
    raise unknown_value("model", name, [case.name for case in cases], hint="See --list.")


def select_cases(
    cases: Sequence[BenchCase], *, models: Sequence[str] = (), families: Sequence[str] = (), heavy: bool = False
) -> list[BenchCase]:
    """Narrow the cases down as `--models`, `--family` and `--all` ask.

    Args:
        cases: all there are.
        models: names; a heavy case named here is included.
        families: family names; together with `models` the union is taken.
        heavy: include the heavy tier.

    Raises:
        UsageError: an unknown name, with the closest match, or nothing is left.
    """
    if not cases:
        raise UsageError("CASES is empty: append a BenchCase to it.")
    wanted = {find_case(cases, name).name for name in models}
    known = sorted({case.family for case in cases})
    for family in families:
        if family not in known:
            raise unknown_value("family", family, known, hint="See --list.")
    everything = not models and not families
    chosen = [
        case
        for case in cases
        if case.name in wanted or ((everything or case.family in families) and (heavy or not case.heavy))
    ]
    if not chosen:
        raise UsageError("no case is left to run: the chosen families have only heavy cases; add --all.")
    return chosen


def _cases_of(path: Path) -> Sequence[BenchCase]:
    module = _import_file(path)
    cases = getattr(module, "CASES", None)
    if not isinstance(cases, Sequence) or isinstance(cases, str):
        raise UsageError(f"{path} has no CASES list.")
    return cases


def _import_file(path: Path) -> ModuleType:
    """Import a user's file once in this process, under a name of its own."""
    name = f"synora_cases_{abs(hash(str(path.resolve())))}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise UsageError(f"case file {str(path)!r} does not exist.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"case file {str(path)!r} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(f"case file {str(path)!r} cannot be imported: {type(error).__name__}: {error}.") from error
    return module
