"""The options of `synora benchmark`, as typer reads them: type, flag, help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Agent = Annotated[
    str | None,
    typer.Option("--agent", "-a", metavar="AGENT", help="dreamerv1, dreamerv2, random, or an installed one."),
]
AllAgents = Annotated[bool, typer.Option("--all-agents", help="Every registered agent, in the same environment.")]
Game = Annotated[
    str | None,
    typer.Option("--game", "-g", metavar="GAME", help="ALE/Pong-v5, catch/0, Pendulum-v1; see: synora envs."),
]
Checkpoint = Annotated[
    str | None,
    typer.Option("--checkpoint", "-c", metavar="PATH", help="Run folder, checkpoint folder or exported .safetensors."),
]
CheckpointMap = Annotated[
    list[str] | None,
    typer.Option("--checkpoint-map", metavar="AGENT=PATH", help="For --all-agents: one an agent; repeat it."),
]
EnvBackend = Annotated[
    str, typer.Option("--env-backend", "--backend", metavar="auto|ale|bsuite|gym", help="Where to look for the game.")
]
SweepName = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        metavar="catch|TAG|testing|all",
        help="Instead of --game: bsuite's score over an experiment's tasks, a tag's, bsuite's testing ones, or all. A "
        "checkpoint is frozen while it plays, so that its score is not that of a learning run.",
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="Rules, as in `synora envs describe`; default: the checkpoint's, or the backend's.",
    ),
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="N|A,B", help="3: seeds 0, 1, 2. 0,5: these. 3,: seed 3 alone.")]
Episodes = Annotated[
    int | None,
    typer.Option(
        "--episodes",
        "-n",
        metavar="N",
        help="Whole games a seed; default: 5, in a sweep as many as bsuite's score needs (1,000 or 10,000 a task; with "
        "fewer it is marked partial, more are not played).",
    ),
]
OutDir = Annotated[
    Path,
    typer.Option(
        "--out-dir", "--out_dir", help="Where {benchmark,bsuite}_results.{json,csv,md,tex} go, and every job's result."
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda|cuda:N", help="auto: CUDA where it works, else the CPU.")
]
Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help="Sizes the agent must have; with --train-epochs: gets.")
]
TrainEpochs = Annotated[
    int | None,
    typer.Option(
        "--train-epochs", metavar="N", help="Train a run a seed first: the prefill, then N times 1,000 agent steps."
    ),
]
NumEnvs = Annotated[
    int, typer.Option("--num-envs", metavar="N", help="Games side by side; the draws of a policy depend on it.")
]
