"""Aggregates over the games of Atari 100k, and the published rows beside them. Torch-free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synora.batch.collected_returns import Mode, normalised
from synora.benchmarks import metrics
from synora.benchmarks.published import PublishedResult, find_published
from synora.benchmarks.scores import find_reference
from synora.core.errors import unknown_value

DEFAULT_PUBLISHED = ("IRIS", "DIAMOND")

Cell = Mapping[str, Any]


def aggregates(cells: Sequence[Cell], mode: Mode) -> list[dict[str, Any]]:
    """Return one entry an agent and protocol with a game of Atari 100k.

    Intervals are stratified bootstraps over training runs (fixed seed). The expected number of runs is the same for all
    games: the most that any game has or should have.
    """
    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        if is_atari_100k(cell):
            groups[cell["agent"], cell["protocol"], cell["fingerprint"]].append(cell)
    found = []
    for (agent, protocol, fingerprint), members in groups.items():
        if any(cell["runs"] for cell in members):
            key = {"agent": agent, "protocol": protocol, "fingerprint": fingerprint}
            found.append(key | _aggregate(sorted(members, key=_game), mode))
    return sorted(found, key=lambda row: [str(row[name] or "") for name in ("agent", "protocol", "fingerprint")])


def is_atari_100k(cell: Cell) -> bool:
    """Return whether a cell's game is one of the 26."""
    return (
        cell["backend"] in (None, "auto", "ale")
        and find_reference(cell["game"], cell["backend"] or "auto").scores is not None
    )


def check_published(names: Sequence[str] | None) -> list[PublishedResult]:
    """Return the rows of published agents: of a name all versions, of a label such as "SPR (100 runs)" that one.

    Args:
        names: ["all"] for everybody; None for the default ones.

    Raises:
        UsageError: nobody has that name.
    """
    if names is None:
        names = DEFAULT_PUBLISHED
    if [name.strip().lower() for name in names] == ["all"]:
        return find_published()
    labels = {row.label.lower(): row for row in find_published()}
    agents = {row.agent for row in labels.values()}
    rows: dict[str, PublishedResult] = {}
    for name in (name.strip() for name in names):
        if name.lower() in {agent.lower() for agent in agents}:
            rows |= {row.label: row for row in find_published(name)}
        elif name.lower() in labels:
            rows[labels[name.lower()].label] = labels[name.lower()]
        else:
            raise unknown_value("published agent", name, agents, hint="Or: all, none.")
    return list(rows.values())


def published_rows(names: Sequence[str] | None, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the published agents that were asked for, as JSON.

    Args:
        names: as `check_published`; the default ones only when a game of Atari 100k is there.
        cells: of the results.

    Raises:
        UsageError: as `check_published`.
    """
    if names is None and not any(is_atari_100k(cell) for cell in cells):
        return []
    return [
        {
            "label": row.label,
            "citation": row.citation,
            "source": row.source,
            "runs": row.runs,
            "scores": dict(row.scores),
            "figures": {
                name: {"text": figure.text, "value": figure.value, "follows": figure.follows}
                for name, figure in row.figures.items()
            },
            "iqm_over": row.iqm_over,
            "note": row.note or None,
        }
        for row in check_published(names)
    ]


def _game(cell: Cell) -> str:
    return str(cell["game"])


def _aggregate(cells: Sequence[Cell], mode: Mode) -> dict[str, Any]:
    """Return the estimates of one agent under one protocol."""
    # A cell whose runs cannot be told apart has none.
    runs = {cell["game"]: cell["runs"] if cell["n"] else [] for cell in cells}
    count = max(cell["expected"] for cell in cells)
    labels = _labels(runs, count)
    matrix = np.full((len(labels), len(cells)), np.nan)
    scores: dict[str, list[float]] = {}
    for column, cell in enumerate(cells):
        scores[cell["game"]] = []
        for index, run in enumerate(runs[cell["game"]]):
            score = normalised(cell, run["mean"]).value
            if score is not None:
                row = labels.index(run["run"]) if run["run"] in labels else index
                matrix[row, column] = score
                scores[cell["game"]].append(score)
    summary = metrics.summarise(matrix, tasks=list(runs), runs=labels, missing=mode)
    estimates = {
        name: {
            "value": estimate.value,
            "low": estimate.interval.lower,
            "high": estimate.interval.upper,
            "reason": summary.reason or estimate.interval.reason,
        }
        for name, estimate in summary.estimates.items()
    }
    return {
        "games": list(runs),
        "games_with_scores": sum(bool(found) for found in scores.values()),
        "runs": list(summary.coverage.runs),
        "coverage": str(summary.coverage),
        "complete": summary.coverage.complete,
        "mode": mode,
        "estimates": estimates,
        "scores": scores,
    }


def _labels(runs: Mapping[str, Sequence[Mapping[str, Any]]], count: int) -> list[str]:
    """Return names of the rows: the runs' own where the games share them, else their places in the lists."""
    union = sorted({run["run"] for found in runs.values() for run in found}, key=lambda name: (len(name), name))
    if len(union) <= count:
        spare = [str(index) for index in range(len(union) + count) if str(index) not in union]
        return [*union, *spare[: count - len(union)]]
    return [str(index) for index in range(count)]
