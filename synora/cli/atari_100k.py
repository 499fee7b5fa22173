"""`synora atari-100k`: train or load, evaluate and report agents on the 26 games; the same command continues."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synora.core.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from synora.cli.atari_100k_plan import Entry, Settings

DEFAULT_OUT_DIR = Path("results/atari_100k")
PROTOCOL = "atari-100k"

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Values of the agents' training configurations.")
]
Benchmark = Annotated[
    bool, typer.Option("--benchmark", help="Train or load, evaluate, report. The default, unless --train stands alone.")
]
Train = Annotated[
    bool,
    typer.Option(
        "--train",
        help="Alone: only train. With --benchmark and --checkpoint-dir: train what has no checkpoint there. "
        "(--benchmark without --checkpoint-dir trains anyway.)",
    ),
]
CheckpointDir = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint-dir",
        "--checkpoint_dir",
        metavar="DIR",
        help="Load DIR/AGENT/GAME/seed-S (run folder, checkpoint folder or .safetensors file) instead of training.",
    ),
]
Games = Annotated[
    list[str] | None, typer.Option("--games", metavar="A,B", help="In any spelling; default: all 26 games.")
]
Agents = Annotated[
    list[str] | None, typer.Option("--agents", "--agent", metavar="a,b", help="Default: iris if there, else dreamerv2.")
]
NumSeeds = Annotated[
    int, typer.Option("--num-seeds", "--num_seeds", metavar="N", help="Training runs a game: seeds 0 to N-1.")
]
Episodes = Annotated[
    int | None, typer.Option("--episodes", metavar="N", help="Whole games an evaluation; default 100 (tiny: 2).")
]
Steps = Annotated[
    int | None, typer.Option("--steps", metavar="N", help="Agent steps a run instead of 100,000 (tiny: 600).")
]
Preset = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="Sizes of the networks; tiny: the whole path in minutes, no result."),
]
Protocol = Annotated[
    str | None, typer.Option("--protocol", metavar="NAME", help="Other rules, as in `synora envs describe`.")
]
Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|cuda:N", help="For training and evaluation.")]
NumEnvs = Annotated[
    int, typer.Option("--num-envs", "--num_envs", metavar="N", help="Games side by side in an evaluation.")
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Runs at a time, each in its own process.")]
OutDir = Annotated[Path, typer.Option("--out-dir", "--out_dir", help="Where runs, results and reports go.")]
Published = Annotated[
    list[str] | None,
    typer.Option("--published", metavar="A,B|all|none", help="Agents from papers beside yours; default IRIS, DIAMOND."),
]
PlanOnly = Annotated[
    bool, typer.Option("--plan-only", "--dry-run", help="Check everything, print what would run, write nothing.")
]
Describe = Annotated[bool, typer.Option("--describe-protocol", help="Print the rules of the benchmark, and stop.")]


def atari_100k(
    overrides: Overrides = None,
    benchmark: Benchmark = False,
    train: Train = False,
    checkpoint_dir: CheckpointDir = None,
    games: Games = None,
    agents: Agents = None,
    num_seeds: NumSeeds = 5,
    episodes: Episodes = None,
    steps: Steps = None,
    preset: Preset = None,
    protocol: Protocol = None,
    device: Device = "auto",
    num_envs: NumEnvs = 4,
    jobs: Jobs = 1,
    out_dir: OutDir = DEFAULT_OUT_DIR,
    published: Published = None,
    plan_only: PlanOnly = False,
    describe_protocol: Describe = False,
) -> int:
    """Benchmark agents on Atari with 100,000 agent steps (400,000 frames) a run.

    Every run of every game is trained, then evaluated with its final checkpoint; what is finished is not done again, so
    the same command continues after any stop. Exit codes: 0 done, 1 something failed (the rest is done), 2 bad usage,
    75 stopped by a scheduler's signal and 130 by Ctrl-C, with everything saved.
    """
    from synora.cli import atari_100k_plan as plan

    tiny = preset == "tiny"
    rules = protocol or (plan.TINY_PROTOCOL if tiny else PROTOCOL)
    if describe_protocol:
        print(_describe(rules, num_seeds, episodes or plan.EPISODES, steps or plan.STEPS))
        return EXIT_OK
    counts = {"--num-seeds": num_seeds, "--episodes": episodes, "--steps": steps, "--num-envs": num_envs}
    for flag, value in {**counts, "--jobs": jobs}.items():
        if value is not None and not 1 <= value <= 10**9:
            raise UsageError(f"{flag} must be at least 1 and at most 1,000,000,000 (got {value}).")
    names = _published(published)
    settings = plan.Settings(
        agents=plan.parse_agents(agents),
        games=plan.parse_games(games),
        seeds=tuple(range(num_seeds)),
        episodes=episodes or (plan.TINY_EPISODES if tiny else plan.EPISODES),
        steps=steps or (plan.TINY_STEPS if tiny else None),
        preset=preset,
        protocol=rules,
        device=device,
        num_envs=num_envs,
        overrides=tuple(overrides or ()),
        checkpoint_dir=checkpoint_dir,
        train=train or checkpoint_dir is None,
        evaluate=benchmark or not train,
        out_dir=out_dir,
    )
    return _benchmark(settings, jobs, names, plan_only)


def _benchmark(settings: Settings, jobs: int, published: Sequence[str] | None, plan_only: bool) -> int:
    """Check everything, then work and report; returns the exit code."""
    from synora.cli import atari_100k_run as work
    from synora.cli.atari_100k_plan import check_entries, make_entries
    from synora.core.files import require_writable_folder

    work.share_cpus(jobs)
    entries = make_entries(settings)
    check_entries(entries, settings)
    notes = _notes(entries, settings)
    if plan_only:
        print(_plan_text(entries, settings))
        for note in notes:
            print(f"synora: note: {note}", file=sys.stderr)
        return EXIT_OK
    require_writable_folder(settings.out_dir)
    for note in notes:
        print(f"synora: note: {note}", file=sys.stderr)
    try:
        results = work.run_entries(entries, settings, jobs=jobs)
    except work.Stopped as stopped:
        line = work.command_line()
        print(f"synora: stopped by {stopped.name}; all is saved. To continue: {line}", file=sys.stderr)
        return stopped.exit_code
    code = work.exit_code(results)
    if settings.evaluate:
        work.report(settings, notes, published)
    else:
        print(f"Runs: {settings.out_dir.resolve() / 'train'}")
    return code


def _notes(entries: Sequence[Entry], settings: Settings) -> list[str]:
    """Return what a reader of the figures has to know."""
    from synora.cli.atari_100k_plan import EPISODES, STEPS, is_trained

    notes = []
    if settings.preset == "tiny":
        notes.append("preset tiny shows that everything runs: its figures are no results.")
    budgets = sorted({getattr(entry.config, "total_steps", STEPS) for entry in entries if entry.config is not None})
    if budgets not in ([], [STEPS]):
        told = ", ".join(f"{steps:,}" for steps in budgets)
        notes.append(f"runs have {told} agent steps; Atari 100k has {STEPS:,}.")
    if settings.evaluate and settings.episodes != EPISODES:
        notes.append(f"evaluations have {settings.episodes} episode(s); the benchmark has {EPISODES}.")
    if settings.protocol != PROTOCOL:
        notes.append(f"the rules are {settings.protocol}, not {PROTOCOL}.")
    for agent in settings.agents:
        if not is_trained(agent):
            notes.append(
                f"{agent} is not trained: its {len(settings.seeds)} seed(s) are evaluations, no training runs."
            )
    return notes


def _plan_text(entries: Sequence[Entry], settings: Settings) -> str:
    """Return a table of what would be done."""
    from tabulate import tabulate

    rows = []
    for entry in entries:
        source = "-" if entry.training is None else f"train to step {getattr(entry.config, 'total_steps', '?'):,}"
        source = f"load {entry.checkpoint}" if entry.checkpoint is not None else source
        games = f"{settings.episodes} episodes" if entry.evaluation is not None else "-"
        rows.append([entry.agent, entry.game, entry.seed, source, games])
    trainings = sum(entry.training is not None for entry in entries)
    evaluations = sum(entry.evaluation is not None for entry in entries)
    tail = f"{trainings} run(s) to train, {evaluations} evaluation(s), in {settings.out_dir}. Nothing was written."
    table = tabulate(rows, ("agent", "game", "seed", "run", "evaluation"), tablefmt="simple")
    return f"{table}\n\n{tail}"


def _describe(protocol: str, seeds: int, episodes: int, steps: int) -> str:
    """Return the rules of the benchmark as text."""
    from synora.benchmarks.scores import atari_100k_games
    from synora.envs.factory import resolve_env
    from synora.envs.protocol import named_protocol

    resolve_env(atari_100k_games()[0], backend="ale", protocol=protocol)
    training, evaluation = named_protocol(protocol, train=True), named_protocol(protocol)
    frames = steps * training.frame_skip
    lines = [
        f"Atari 100k: {len(atari_100k_games())} games x {seeds} training runs, each with its own seed",
        f"training: {steps:,} agent steps = {frames:,} frames = {frames / 60 / 3600:.2f} hours of play at 60 frames/s",
        f"evaluation: {episodes} whole games of the final checkpoint of each run, raw rewards",
        "score: human-normalised, (score - random) / (human - random), from the mean of each run",
        f"games: {', '.join(atari_100k_games())}",
        "",
        training.describe_text(),
        "",
        evaluation.describe_text(),
    ]
    return "\n".join(lines)


def _published(texts: Sequence[str] | None) -> list[str] | None:
    """Return the agents from papers that are to stand beside ours; None for the usual ones.

    Raises:
        UsageError: there is no such agent.
    """
    from synora.batch.collected_aggregates import check_published
    from synora.cli.atari_100k_plan import split_names

    if texts is None:
        return None
    names = split_names(texts, "--published")
    if names == ["none"]:
        return []
    check_published(names)
    return names
