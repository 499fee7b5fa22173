"""From what an adapter returned to the episodes and figures of a result; nothing is taken for a number that is none."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from synora.core.errors import SynoraError

_LISTS = {"length": "episode_lengths", "frames": "episode_frames", "seed": "episode_seeds"}
STATISTICS = ("mean", "std", "median", "min", "max")


def read_evaluation(value: Any, num_episodes: int) -> list[dict[str, Any]]:
    """Check what `evaluate` returned and return one record an episode.

    Args:
        value: a mapping with `episode_returns`, a number an episode; None or NaN where it failed. Optional:
            `episode_lengths`, `episode_frames`, `episode_seeds`, and `episodes`, mappings whose `error` says why
            and whose `figures` are numbers by name.
        num_episodes: how many were asked for.

    Returns:
        Mappings with `index`, `seed`, `status` ("ok" or "failed"), `return`, `length`, `frames`, `error`, `figures`
        (None where there are none).

    Raises:
        SynoraError: not such a mapping, another number of episodes, a return that is neither a number nor None, or a
            figure that is no finite number.
    """
    returns = _as_list(value.get("episode_returns")) if isinstance(value, Mapping) else None
    if returns is None:
        raise SynoraError(f"the adapter's evaluate() returned no 'episode_returns' but {_short(value)}.")
    if len(returns) != num_episodes:
        raise SynoraError(
            f"the adapter returned {len(returns)} returns for {num_episodes} episodes; a failed one is a None in them."
        )
    columns = {name: _column(value, key, num_episodes) for name, key in _LISTS.items()}
    records = _column(value, "episodes", num_episodes)
    return [_episode(index, returns[index], records[index], columns) for index in range(num_episodes)]


def summary(episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of a result: `mean`, `std` (sample, n - 1), `median`, `min`, `max`, and `reason`.

    All are None when an episode failed, `std` also when there is only one; `reason` then says why.
    """
    failed = [episode for episode in episodes if episode["status"] == "failed"]
    returns = [episode["return"] for episode in episodes]
    figures: dict[str, Any] = dict.fromkeys(STATISTICS)
    figures |= {"episodes_failed": len(failed), "reason": None}
    if failed:
        figures["reason"] = f"{len(failed)} of {len(episodes)} episodes failed; the first: {failed[0]['error']}"
        return figures
    figures |= {"mean": statistics.fmean(returns), "median": statistics.median(returns)}
    figures |= {"min": min(returns), "max": max(returns), "std": spread(returns)}
    if len(returns) == 1:
        figures["reason"] = "one episode has no spread"
    return figures


def spread(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1), None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def _episode(index: int, given: Any, record: Any, columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    score, error = _number(given, index), _error(record)
    if score is not None and error is not None:
        raise SynoraError(f"the adapter returned {score} for episode {index} and an error too: {error}")
    if score is None:
        error = error or f"the adapter reported no return ({given!r})"
    return {
        "index": index,
        "seed": _whole(columns["seed"][index]),
        "status": "ok" if error is None else "failed",
        "return": score,
        "length": _whole(columns["length"][index]),
        "frames": _whole(columns["frames"][index]),
        "error": error,
        "figures": _figures(record, index),
    }


def _number(given: Any, index: int) -> float | None:
    """Return a return as a float, None for None, NaN and infinities."""
    if given is None:
        return None
    if isinstance(given, bool | str) or not hasattr(given, "__float__"):
        raise SynoraError(f"the adapter's return of episode {index} is {_short(given)}, which is no number.")
    value = float(given)
    return value if math.isfinite(value) else None


def _whole(given: Any) -> int | None:
    """Return a count or a seed, None for None."""
    if given is None:
        return None
    if isinstance(given, bool | str) or not hasattr(given, "__index__") or given < 0:
        raise SynoraError(f"the adapter returned {_short(given)} where a whole number of at least 0 belongs.")
    return int(given)


def _as_list(value: Any) -> list[Any] | None:
    """Return a sequence or a one-dimensional array as a list, None for anything else: sets have no order."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return list(value) if getattr(value, "ndim", 0) == 1 else None


def _column(value: Mapping[str, Any], key: str, count: int) -> Sequence[Any]:
    if value.get(key) is None:
        return [None] * count
    column = _as_list(value[key])
    if column is None:
        raise SynoraError(f"the adapter's {key} is no list but {_short(value[key])}.")
    if len(column) != count:
        raise SynoraError(f"the adapter's {key} holds {len(column)} values for {count} episodes.")
    return column


def _error(episode: Any) -> str | None:
    error = episode.get("error") if isinstance(episode, Mapping) else None
    return None if error is None else " ".join(str(error).split())


def _figures(record: Any, index: int) -> dict[str, float] | None:
    figures = record.get("figures") if isinstance(record, Mapping) else None
    if figures is None:
        return None
    if not isinstance(figures, Mapping) or not all(isinstance(name, str) for name in figures):
        raise SynoraError(f"the adapter's figures of episode {index} are no mapping of names but {_short(figures)}.")
    for name, value in figures.items():
        if isinstance(value, bool | str) or not hasattr(value, "__float__") or not math.isfinite(value):
            raise SynoraError(f"the adapter's {name} of episode {index} is {_short(value)}, which is no finite number.")
    return {name: float(value) for name, value in figures.items()}


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
