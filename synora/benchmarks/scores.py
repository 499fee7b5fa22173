"""Human and random scores of Atari games, and human-normalised scores. Torch-free.

The table is `atari_scores.csv`: the 26 games of Atari 100k, with the columns that every paper on it uses. A game that
is not in it, or an environment that is no Atari game, has no human-normalised score, and a line says why; there is no
fallback to 0 and 1, which would pass the raw score for a normalised one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np

from synora.benchmarks.score_matrix import Floats, as_matrix
from synora.core.errors import SynoraError, UsageError
from synora.envs.ids import resolve

TABLE = "atari_scores.csv"


@dataclass(frozen=True)
class ReferenceScores:
    """What a human and a uniformly random agent score in a game.

    Attributes:
        game: canonical name, as `synora.envs.ids` spells it.
        random: mean raw score of a random agent.
        human: mean raw score of a human tester.
        source: where the two numbers are from.
    """

    game: str
    random: float
    human: float
    source: str


@dataclass(frozen=True)
class Lookup:
    """The reference scores of an environment, or why there are none: exactly one of the two is set."""

    scores: ReferenceScores | None
    reason: str | None


@dataclass(frozen=True)
class Normalised:
    """A human-normalised score, or why there is none: exactly one of the two is set."""

    value: float | None
    reason: str | None


@cache
def reference_scores() -> Mapping[str, ReferenceScores]:
    """Return canonical game -> its scores, in alphabetical order: the 26 games of Atari 100k."""
    text = files("synora.benchmarks").joinpath(TABLE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    table = [ReferenceScores(row["game"], float(row["random"]), float(row["human"]), row["source"]) for row in rows]
    return MappingProxyType({entry.game: entry for entry in table})


@cache
def atari_100k_games() -> tuple[str, ...]:
    """Return the 26 games of the Atari 100k benchmark by canonical name."""
    return tuple(reference_scores())


@cache
def find_reference(env: str, backend: str = "auto") -> Lookup:
    """Return the reference scores of an environment in any spelling.

    Args:
        env: `Breakout`, `breakout`, `Breakout-v5`, `ALE/Breakout-v5`, `BreakoutNoFrameskip-v4`, `atari_breakout`, …
        backend: as `synora.envs.ids.resolve`.
    """
    table = reference_scores()
    if env in table and backend in ("auto", "ale"):
        return Lookup(table[env], None)  # saves asking the emulator for its games
    try:
        found = resolve(_without_prefix(env), backend)
    except SynoraError as error:
        return Lookup(None, f"no human-normalised score: {error}")
    if found.backend != "ale":
        return Lookup(None, f"{found.name} ({found.backend}) is no Atari game: it has no human and random score.")
    if found.name not in table:
        return Lookup(None, f"{found.name} is not among the {len(table)} games with a human and a random score.")
    return Lookup(table[found.name], None)


def human_normalised_score(env: str, score: float | None, backend: str = "auto") -> Normalised:
    """Return (score - random) / (human - random): 0 is random play, 1 a human's; neither clipped nor bounded.

    Args:
        env: as `find_reference`.
        score: raw score, the sum of unclipped rewards over a whole game; None or NaN where there is none.
        backend: as `find_reference`.
    """
    found = find_reference(env, backend)
    if found.scores is None:
        return Normalised(None, found.reason)
    if score is None or not np.isfinite(score):
        return Normalised(None, f"{found.scores.game} has no score.")
    span = found.scores.human - found.scores.random
    return Normalised((float(score) - found.scores.random) / span, None)


def human_normalised(scores: Any, random: Any, human: Any) -> Floats:
    """Return human-normalised scores of a whole array.

    Args:
        scores: raw scores, shape (runs, tasks); NaN stays NaN.
        random: shape (tasks,), or one number.
        human: as `random`.

    Raises:
        UsageError: the shapes do not fit, or human and random are not finite and different.
    """
    matrix = as_matrix(scores)
    low, high = np.asarray(random, dtype=np.float64), np.asarray(human, dtype=np.float64)
    for name, values in (("random", low), ("human", high)):
        if values.shape not in ((), (matrix.shape[1],)):
            raise UsageError(f"{name} has the shape {values.shape}; scores have {matrix.shape[1]} tasks.")
    span = high - low
    if not np.isfinite(span).all() or (span == 0).any():
        raise UsageError("human and random scores must be finite and different from each other in every task.")
    return (matrix - low) / span


def normalise_games(scores: Any, games: Sequence[str], backend: str = "auto") -> tuple[Floats, dict[str, str]]:
    """Return human-normalised scores of named games, and a line for each game that has none.

    Args:
        scores: raw scores, shape (runs, games); NaN is missing.
        games: the environments of the columns, in any spelling.
        backend: as `find_reference`.

    Returns:
        Shape (runs, games), where a game without reference scores is NaN in every run; and game -> reason.

    Raises:
        UsageError: the shapes do not fit, or two columns are the same game.
    """
    matrix = as_matrix(scores)
    if len(games) != matrix.shape[1]:
        raise UsageError(f"{len(games)} games were given for scores of {matrix.shape[1]}.")
    found = [find_reference(game, backend) for game in games]
    names = [entry.scores.game for entry in found if entry.scores is not None]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{twice[0]} is given more than once, in different spellings: it would be counted twice.")
    result = np.full_like(matrix, np.nan)
    reasons: dict[str, str] = {}
    for column, (game, entry) in enumerate(zip(games, found, strict=True)):
        if entry.scores is None:
            reasons[game] = str(entry.reason)
        else:
            span = entry.scores.human - entry.scores.random
            result[:, column] = (matrix[:, column] - entry.scores.random) / span
    return result, reasons


def _without_prefix(env: str) -> str:
    """Return a name without `atari_`, which other packages put before it and no game begins with."""
    return re.sub(r"^\s*atari[_/-]", "", env, flags=re.IGNORECASE) if isinstance(env, str) else env
