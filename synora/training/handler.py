"""One train job: a run is started, continued, or left alone when it is finished. Torch-free until it trains."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from synora.core.config import Config
from synora.core.errors import JobPreempted, UsageError
from synora.core.job import JobSpec
from synora.envs.factory import resolve_env
from synora.runtime.progress import watched

REPORT_SECONDS = 1.0
MOST_POINTS = 500


class TrainParams(Config):
    """The parameters of one train job.

    Attributes:
        agent: registered name.
        config: values of the agent's configuration; those that are left out have its defaults.
        folder: of the run.
    """

    agent: str = Field(min_length=1)
    config: dict[str, JsonValue] = Field(default_factory=dict)
    folder: str = Field(min_length=1)


def make_train_job(agent: str, config: Config, folder: Path, *, name: str) -> JobSpec:
    """Return the job that trains one run.

    Args:
        agent: registered name.
        config: composed; all of its values are in the job.
        folder: of the run.
        name: what people call the job.

    Raises:
        UsageError: the folder's name is not UTF-8.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(f"folder {str(folder)!r} has a name that is not UTF-8: choose another.") from None
    params = TrainParams(agent=agent, config=config.model_dump(mode="json"), folder=str(folder))
    return JobSpec(kind="train", name=name[:120], params=params.model_dump(mode="json"))


def run(params: Mapping[str, Any], report: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Train a run to its end.

    Args:
        params: the fields of `TrainParams`.
        report: called with a short text at every phase.

    Returns:
        The result's body, the device's facts and the fingerprint of the training protocol.

    Raises:
        JobPreempted: the run was stopped by a signal, with everything saved.
        SynoraError: as the agent's trainer.
    """
    from synora.training import CONFIGS, TRAINERS

    settings = TrainParams(**params)
    config: Any = CONFIGS.load(settings.agent).compose(overrides=settings.config)
    total = getattr(config, "total_steps", None)
    report("preparing")
    train = TRAINERS.load(settings.agent)
    with watched(_Steps(total, report)):
        outcome = train(config, Path(settings.folder))
    if outcome.status == "preempted":
        raise JobPreempted(str(outcome.message))
    rules = _rules(config)
    body = {
        "agent": settings.agent,
        "game": getattr(config, "game", None),
        "backend": rules.backend if rules else None,
        "protocol": getattr(config, "protocol", None) or (rules.name if rules else None),
        "train_seed": getattr(config, "seed", None),
        "step": outcome.step,
        "total_steps": total,
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "status": "finished",
        "curve": learning_curve(Path(settings.folder)),
    }
    return body, _device_facts(getattr(config, "device", None)), rules.fingerprint if rules else None


def learning_curve(folder: Path, most: int = MOST_POINTS) -> list[list[float]]:
    """Return the scores of a run over its steps, as `[step, score]`.

    Args:
        folder: of the run.
        most: points; a longer curve is thinned evenly; the last point stays.

    Returns:
        The mean returns of its evaluation games; of a run without any, those of the games it collected. Empty where
        the run has no metrics of ours.

    Raises:
        FileError: the metrics cannot be read.
    """
    from synora.runtime.metrics_log import read_rows

    path = folder / "metrics.jsonl"
    rows = read_rows(path) if path.exists() else []
    for key in ("eval/score", "train/return"):
        points = {row["step"]: row[key] for row in rows if row.get(key) is not None}
        if points:
            curve = [[step, score] for step, score in sorted(points.items())]
            stride = -(-len(curve) // most)
            return curve[::-1][::stride][::-1]
    return []


class _Steps:
    """Reports how far a run is, at most once a second."""

    def __init__(self, total: int | None, report: Callable[[str], None]) -> None:
        self._tail = "" if total is None else f" of {total:,}"
        self._report = report
        self._said = float("-inf")

    def __call__(self, step: int) -> None:
        now = time.monotonic()
        if now - self._said >= REPORT_SECONDS:
            self._said = now
            self._report(f"step {step:,}{self._tail}")


def _rules(config: Any) -> Any:
    """Return the rules the run was trained under; None for an agent that brings its own environments."""
    if not isinstance(getattr(config, "game", None), str):
        return None
    backend, protocol = getattr(config, "env_backend", "auto"), getattr(config, "protocol", None)
    return resolve_env(config.game, backend=backend, protocol=protocol, train=True)[1]


def _device_facts(name: Any) -> dict[str, Any]:
    """Return the facts of the device that was used; none where the agent needed no torch."""
    if not isinstance(name, str) or "torch" not in sys.modules:
        return {}
    from synora.runtime.device import device_facts, resolve_device

    return device_facts(resolve_device(name))
