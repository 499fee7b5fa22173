"""Where bench cases come from: the algorithms' own `bench.py` files, or a user's file with a `CASES` list."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from synora.compute.case import BenchCase
from synora.core.errors import UsageError, unknown_value
from synora.core.registry import Registry

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
        names[case.name] += 1
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise UsageError(f"CASES in {where} has more than one case named {', '.join(twice)}; names must be unique.")


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
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"case file {str(path)!r} cannot be imported: {type(error).__name__}: {error}.") from error
    return module
