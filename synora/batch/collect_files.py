"""Finding result files and plans below folders, in an order and under names that depend on the files alone. Torch-free.

Result files are the JSON files of folders named `jobs`, and those elsewhere whose name ends like a job's id. Links to
folders are followed, each folder is entered once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from synora.core.errors import UsageError

JOBS = "jobs"
PLAN = "plan.json"
# Folders of training runs: many files, none of them a result.
_NOT_ENTERED = frozenset({"checkpoints", "replay", "plots", "__pycache__"})
_OUR_REPORTS = re.compile(r"^(collected|(combined_)?benchmark_results|model_benchmarks|manifest|finished|state)\.json$")
_JOB_FILE = re.compile(r"-[0-9a-f]{10}\.json$")


@dataclass(frozen=True, order=True)
class FoundFile:
    """A file to read.

    Attributes:
        name: relative to the folder given on the command line, or to the deepest folder that holds all given ones;
            slashes.
        path: to open it by.
    """

    name: str
    path: str


@dataclass
class Found:
    """What lies below the given folders.

    Attributes:
        results: candidates, sorted by name, each file once.
        plans: files named plan.json, likewise.
        unreadable: names of folders that cannot be listed, and why.
        others: JSON files that are no candidates.
    """

    results: list[FoundFile] = field(default_factory=list)
    plans: list[FoundFile] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    others: int = 0


def find_files(given: Sequence[str | os.PathLike[str]]) -> Found:
    """Return every candidate below the given folders; a file that is given is one, whatever its name.

    Raises:
        UsageError: nothing is given, or something given is not there.
    """
    if not given:
        raise UsageError("no folder to collect from: write synora collect DIR.")
    starts = [os.path.abspath(path) for path in given]
    for path, start in zip(given, starts, strict=True):
        if not os.path.exists(start):
            raise UsageError(
                f"{os.fspath(path)!r} does not exist: give folders that hold jobs/*.json, or result files."
            )
    base = os.path.commonpath([start if os.path.isdir(start) else os.path.dirname(start) for start in starts])
    found, results, plans, others = Found(), _Names(base), _Names(base), _Names(base)
    for start in starts:
        if not os.path.isdir(start):
            (plans if os.path.basename(start) == PLAN else results).add(start)
            continue
        for path in _walk(start, base, found.unreadable):
            folder, name = os.path.split(path)
            if name == PLAN:
                plans.add(path)
            elif _OUR_REPORTS.match(name):
                continue
            elif os.path.basename(folder) == JOBS or _JOB_FILE.search(name):
                results.add(path)
            else:
                others.add(path)
    found.results, found.plans, found.others = results.files(), plans.files(), len(others.files())
    return found


class _Names:
    """Files, each once, under the first of its names: through links a file may have several."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._names: dict[tuple[str, str], tuple[int, str, str]] = {}
        self._real: dict[str, str] = {}

    def add(self, path: str) -> None:
        folder, leaf = os.path.split(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        name = os.path.relpath(path, self._base).replace(os.sep, "/")
        key, entry = (self._real[folder], leaf), (name.count("/"), name, path)
        self._names[key] = min(self._names.get(key, entry), entry)

    def files(self) -> list[FoundFile]:
        return sorted(FoundFile(printable(name), path) for _, name, path in self._names.values())


def _walk(start: str, base: str, unreadable: dict[str, str]) -> Iterator[str]:
    """Yield every JSON file below a folder; each real folder is entered once."""
    waiting, seen = [start], set()
    while waiting:
        folder = waiting.pop(0)
        try:
            facts = os.stat(folder)
            if (facts.st_dev, facts.st_ino) in seen:
                continue
            seen.add((facts.st_dev, facts.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except FileNotFoundError:
            continue  # vanished since it was listed
        except OSError as error:
            unreadable[printable(os.path.relpath(folder, base))] = error.strerror or str(error)
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue  # half-written files of ours, locks, version control
            try:
                if entry.is_dir():
                    if entry.name not in _NOT_ENTERED:
                        waiting.append(entry.path)
                elif entry.name.endswith(".json") and entry.is_file():
                    yield entry.path
            except OSError:  # a link that leads round in a circle
                continue


def printable(name: str) -> str:
    """Return a file's name as text that UTF-8 can hold."""
    return name.encode("utf-8", "backslashreplace").decode()
