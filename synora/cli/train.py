"""`synora train`: compose the config, then start, continue or leave alone the run in its folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from synora.core.errors import SynoraError, UsageError

DEFAULT_ROOT = Path("runs")


def train(
    agent: Annotated[str, typer.Argument(help="dreamerv1 or dreamerv2.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Config values, preset=NAME among them.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE|NAME", help="YAML file of config values, or a packaged experiment."),
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the composed config, and stop.")] = False,
    list_configs: Annotated[bool, typer.Option("--list-configs", help="Print the packaged experiments.")] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out-dir", "--out_dir", help="The run's folder; default: runs/AGENT/GAME/seed-N."),
    ] = None,
) -> int:
    """Train an agent; the same command continues an interrupted run and leaves a finished one alone.

    Values are layered: YAML file, then preset, then key=value. Exit codes: 0 finished, 75 stopped by SIGTERM or SIGUSR2
    with everything saved, 1 failed, 2 bad usage.
    """
    from synora.configs.experiments import experiment_names, experiment_title, find_experiment
    from synora.training import CONFIGS, TRAINERS

    if any(text.replace(" ", "") == "preset=" for text in overrides or ()):  # $PRESET was not set: not the full size
        raise UsageError("preset= is empty; write preset=NAME, or preset=null for none.")
    config_class = CONFIGS.load(agent)
    if list_configs:
        for name in experiment_names(agent):
            print(f"{name:<24} {experiment_title(name)}")
        return 0
    file = find_experiment(config) if config is not None else None
    composed: Any = config_class.compose(file=file, overrides=overrides or ())
    if print_config:
        print(composed.to_yaml(), end="")
        return 0
    # Idle OpenMP threads that spin steal the time of the ones that work, on any shared machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    folder = out_dir if out_dir is not None else DEFAULT_ROOT / agent / _slug(composed.game) / f"seed-{composed.seed}"
    _require_run_of(agent, folder)
    try:
        outcome = TRAINERS.load(agent)(composed, folder)
    except (MemoryError, RuntimeError) as error:
        from synora.batch.execute import describe_exception

        found = describe_exception(error)
        if found.type != "out_of_memory":
            raise
        raise SynoraError(f"out of memory; lower batch_size, seq_len or the sizes: {found.message}") from error
    print(f"{outcome.status}: {outcome.checkpoint or folder}")
    return int(outcome.exit_code)


def _require_run_of(agent: str, folder: Path) -> None:
    """Raise UsageError when the folder holds a run of another agent."""
    if not (folder / "checkpoints").is_dir():
        return
    from synora.runtime.checkpoint import CHECKPOINTS, latest, read_manifest

    newest = latest(folder / CHECKPOINTS)
    found = agent if newest is None else read_manifest(newest).spec.agent
    if found != agent:
        raise UsageError(f"{folder} holds a run of {found}, not of {agent}; choose another folder with --out-dir.")


def _slug(game: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", game).strip("-")
