"""`python -m synora.training.train_dreamer`: `synora train` for Dreamer, with options for common values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from synora.cli.app import main as synora

PROGRAM = "python -m synora.training.train_dreamer"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `synora train` with the options written as its arguments, and return its exit code.

    Args:
        arguments: without the program's name; default `sys.argv[1:]`.
    """
    program = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.command()(train_dreamer)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        words = program(given, prog_name=PROGRAM, standalone_mode=False)
    except TyperException as error:
        print(f"synora: error: {' '.join(error.format_message().split())}", file=sys.stderr)
        return error.exit_code
    return synora(["train", *words]) if isinstance(words, list) else int(words or 0)  # a number after --help


def train_dreamer(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Config values; they win over the options.")
    ] = None,
    agent: Annotated[str, typer.Option("--agent", "-a", metavar="dreamerv1|dreamerv2")] = "dreamerv2",
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE|NAME", help="YAML file, or a packaged experiment.")
    ] = None,
    game: Annotated[str | None, typer.Option("--game", "-g", help="Environment, in any spelling.")] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="Named sizes: tiny, small, …, paper.")] = None,
    seed: Annotated[str | None, typer.Option("--seed", metavar="N", help="Of every random stream.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out-dir", "--out_dir", help="The run's folder; default: runs/AGENT/GAME/seed-N."),
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the composed config, and stop.")] = False,
) -> list[str]:
    """Train DreamerV1 or DreamerV2; the same command continues an interrupted run."""
    options = {"game": game, "preset": preset, "seed": seed, "device": device}
    values = [f"{name}={value}" for name, value in options.items() if value is not None]
    flags = [f"--config={config}"] if config is not None else []
    flags += [f"--out-dir={out_dir}"] if out_dir is not None else []
    flags += ["--print-config"] if print_config else []
    return [*flags, "--", agent, *values, *(overrides or ())]


if __name__ == "__main__":
    sys.exit(main())
