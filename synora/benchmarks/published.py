"""Published results on Atari 100k: scores a game and printed summary figures, with citation. Torch-free.

`published.csv` has a row for each agent, version and source. A version names a set of runs: papers print different
columns under one agent's name, and a column of one version does not belong to a summary figure of another. Rows of the
same agent and version in different sources are about the same runs.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal

from synora.benchmarks.scores import atari_100k_games
from synora.core.errors import unknown_value

TABLE = "published.csv"
FIGURES = ("mean", "median", "iqm", "optimality_gap", "superhuman")
Origin = Literal["paper", "released data", "second-hand"]


@dataclass(frozen=True)
class Figure:
    """A summary figure as printed.

    Attributes:
        text: with the printed digits, such as "1.046" or "126.7%".
        value: as a number; percentages as fractions.
        rounding: half of the last printed digit, in the unit of `value`.
        follows: False when it contradicts the scores of its version, their rounding allowed for; the row's note says
            how.
    """

    text: str
    value: float
    rounding: float
    follows: bool

    @classmethod
    def read(cls, text: str, *, follows: bool = True) -> Figure:
        """Read a printed figure."""
        scale = 100.0 if text.endswith("%") else 1.0
        digits = text.rstrip("%")
        rounding = 0.5 * 10.0 ** -len(digits.partition(".")[2])
        return cls(text, float(digits) / scale, rounding / scale, follows)


@dataclass(frozen=True)
class PublishedResult:
    """What one source says of one version of an agent.

    Attributes:
        agent: "IRIS".
        version: which runs, where an agent has several sets, such as "100 runs"; else "".
        source: key of the source; agent, version and source together are unique.
        citation: of the source, short.
        runs: training runs behind each game's score; None where the source gives one score a game without saying, or
            it is not known.
        origin: how the values were read: in the paper, from data the authors released, or in another text.
        scores: canonical game -> mean raw score; empty where the source has summary figures only.
        figures: "mean", "median", "iqm", "optimality_gap", "superhuman" -> as printed; those it prints.
        iqm_over: what the printed IQM is over: "runs" x games pooled, or the "games" averages, which is not comparable.
        note: a line, or "".
    """

    agent: str
    version: str
    source: str
    citation: str
    runs: int | None
    origin: Origin
    scores: Mapping[str, float]
    figures: Mapping[str, Figure]
    iqm_over: Literal["runs", "games"] | None
    note: str

    @property
    def label(self) -> str:
        """The agent with its version: "SPR (100 runs)"."""
        return f"{self.agent} ({self.version})" if self.version else self.agent


@cache
def published_results() -> tuple[PublishedResult, ...]:
    """Return every row of the table, by agent, version and source."""
    text = files("synora.benchmarks").joinpath(TABLE).read_text(encoding="utf-8")
    return tuple(_read(row) for row in csv.DictReader(text.splitlines()))


def find_published(agent: str | None = None, version: str | None = None) -> list[PublishedResult]:
    """Return one row for each version of each agent, fit to stand in a table: a row of one source, nothing merged.

    It has scores if any source has, then as many summary figures as possible, then the most digits.

    Args:
        agent: only this one, in any case.
        version: only this one.

    Raises:
        UsageError: no such agent or version.
    """
    rows = list(published_results())
    if agent is not None:
        names = {row.agent for row in rows}
        rows = [row for row in rows if row.agent.lower() == agent.lower()]
        if not rows:
            raise unknown_value("published agent", agent, names)
    if version is not None:
        versions = {row.version for row in rows}
        rows = [row for row in rows if row.version == version]
        if not rows:
            raise unknown_value("version", version, versions)
    best: dict[tuple[str, str], PublishedResult] = {}
    for row in rows:
        key = (row.agent, row.version)
        if key not in best or _rank(row) > _rank(best[key]):
            best[key] = row
    return list(best.values())


def _rank(row: PublishedResult) -> tuple[bool, int, int]:
    digits = sum(score != round(score) for score in row.scores.values())
    return bool(row.scores), len(row.figures), digits


def _read(row: Mapping[str, str]) -> PublishedResult:
    doubtful = row["mismatch"].split()
    figures = {name: Figure.read(row[name], follows=name not in doubtful) for name in FIGURES if row[name]}
    scores = {game: float(row[game]) for game in atari_100k_games() if row[game]}
    return PublishedResult(
        agent=row["agent"],
        version=row["version"],
        source=row["source"],
        citation=row["citation"],
        runs=int(row["runs"]) if row["runs"] else None,
        origin=row["origin"],  # type: ignore[arg-type]  # the tests check the words
        scores=MappingProxyType(scores),
        figures=MappingProxyType(figures),
        iqm_over=row["iqm_over"] or None,  # type: ignore[arg-type]
        note=row["note"],
    )
