"""`synora train`: compose the config, then start, continue or leave alone the run in its folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT_ROOT = Path("runs")


def train(
    agent: Annotated[str, typer.Argument(help="dreamerv1 or dreamerv2.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Config values, preset=NAME among them.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="YAML file of config values.")] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the composed config, and stop.")] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out-dir", "--out_dir", help="The run's folder; default: runs/AGENT/GAME/seed-N."),
    ] = None,
) -> int:
    """Train an agent; the same command continues an interrupted run and leaves a finished one alone.

    Values are layered: YAML file, then preset, then key=value. Exit codes: 0 finished, 75 stopped by SIGTERM or SIGUSR2
    with everything saved, 1 failed, 2 bad usage.
    """
    from synora.training import CONFIGS, TRAINERS

    composed: Any = CONFIGS.load(agent).compose(file=config, overrides=overrides or ())
    if print_config:
        print(composed.to_yaml(), end="")
        return 0
    # Idle OpenMP threads that spin steal the time of the ones that work, on any shared machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    folder = out_dir if out_dir is not None else DEFAULT_ROOT / agent / _slug(composed.game) / f"seed-{composed.seed}"
    outcome = TRAINERS.load(agent)(composed, folder)
    print(f"{outcome.status}: {outcome.checkpoint or folder}")
    return int(outcome.exit_code)


def _slug(game: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", game).strip("-")
