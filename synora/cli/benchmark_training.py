"""`synora benchmark --train-epochs`: a training run for every seed, before the evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synora.core.config import Config
from synora.core.errors import UsageError

EPOCH_STEPS = 1000
_NEEDED = ("game", "env_backend", "protocol", "seed", "total_steps", "prefill_steps", "device")


@dataclass(frozen=True)
class TrainingRun:
    """One run to train: the agent, its composed configuration and its folder, `seed-S` below the agent's."""

    agent: str
    seed: int
    config: Config
    folder: Path


def plan_training(
    agent: str,
    seeds: Sequence[int],
    folder: Path,
    *,
    epochs: int,
    game: str,
    backend: str,
    protocol: str | None,
    preset: str | None,
    device: str,
) -> list[TrainingRun]:
    """Compose the runs of an agent, one a seed; the evaluation seed is the training seed.

    Args:
        agent: registered name.
        seeds: one a run.
        folder: `folder/seed-S` is the run's.
        epochs: of `EPOCH_STEPS` agent steps each, after the prefill.
        game: environment, as in `make_env`.
        backend: as in `make_env`.
        protocol: as in `make_env`.
        preset: of the agent's configuration; None for its defaults.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        UsageError: the agent cannot be trained, or a value is not allowed.
    """
    config_class: Any = trainable_config(agent, _NEEDED)
    runs = []
    for seed in seeds:
        values = {"game": game, "env_backend": backend, "protocol": protocol, "seed": seed, "device": device}
        sizes = config_class.compose(preset=preset, overrides=values)
        total = sizes.prefill_steps + epochs * EPOCH_STEPS
        together = getattr(sizes, "num_envs", 1)
        total = -(-total // together) * together  # the environments take their steps together
        config = config_class.compose(preset=preset, overrides={**values, "total_steps": total})
        runs.append(TrainingRun(agent, seed, config, folder / f"seed-{seed}"))
    return runs


def trainable_config(agent: str, needed: Sequence[str]) -> Any:
    """Return the configuration class of an agent that can be trained.

    Args:
        agent: registered name.
        needed: fields that the class must have.

    Raises:
        UsageError: the agent cannot be trained, or a field is missing.
    """
    from synora.training import CONFIGS, TRAINERS

    if agent not in CONFIGS.names() or agent not in TRAINERS.names():
        trainable = ", ".join(sorted(set(CONFIGS.names()) & set(TRAINERS.names())))
        raise UsageError(f"agent {agent} cannot be trained here, only {trainable} can; give its checkpoint.")
    config_class: Any = CONFIGS.load(agent)
    if missing := [name for name in needed if name not in config_class.model_fields]:
        raise UsageError(f"agent {agent} cannot be trained from here: its configuration has no {', '.join(missing)}.")
    return config_class


def train_all(runs: Sequence[TrainingRun]) -> int:
    """Train one run after another; a finished one is left alone, an interrupted one continued.

    Returns:
        0, or the exit code of the run that was stopped by a signal; later ones are then not started.
    """
    from synora.training import TRAINERS

    for run in runs:
        outcome = TRAINERS.load(run.agent)(run.config, run.folder)
        if outcome.exit_code:
            return int(outcome.exit_code)
    return 0
