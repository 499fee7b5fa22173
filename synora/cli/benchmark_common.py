"""What the two forms of `synora benchmark` share: who takes part, and what is shown of their jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from synora.core.errors import UsageError, unknown_value

if TYPE_CHECKING:
    from synora.cli.benchmark_training import TrainingRun
    from synora.cli.progress import PlanProgress
    from synora.core.job import JobSpec
    from synora.core.result import Result

DEFAULT_OUT_DIR = Path("results/bench")
PLAIN_SECONDS = 10.0


@dataclass
class Entrant:
    """One agent of the benchmark.

    Attributes:
        agent: registered name.
        checkpoint: the user's; None where there is none or it is trained first.
        train: a run is trained for every seed.
        folder: where its reports go.
        jobs: one a seed.
        runs: to be trained.
    """

    agent: str
    checkpoint: str | None
    train: bool
    folder: Path = DEFAULT_OUT_DIR
    jobs: list[JobSpec] = field(default_factory=list)
    runs: list[TrainingRun] = field(default_factory=list)


def find_entrants(
    agent: str | None, all_agents: bool, checkpoint: str | None, mapping: Sequence[str], epochs: int | None
) -> list[Entrant]:
    """Return who takes part, with which checkpoint.

    Raises:
        UsageError: the options contradict each other, or checkpoints are missing; all of them are named.
    """
    from synora.benchmarks.adapters import ADAPTERS
    from synora.benchmarks.handler import load_adapter

    names = ADAPTERS.names()
    if all_agents == (agent is not None):
        problem = "are both given" if all_agents else "are both missing"
        raise UsageError(f"--agent and --all-agents {problem}: choose one. Agents: {', '.join(names)}.")
    if agent is not None:
        if agent not in names:
            raise unknown_value("agent", agent, names)
        if mapping:
            raise UsageError(f"--checkpoint-map is for --all-agents; with --agent {agent} write --checkpoint PATH.")
        if checkpoint is not None and epochs is not None:
            raise UsageError("--checkpoint and --train-epochs are both given: evaluate the one, or train the other.")
        if epochs is not None and not is_trained(load_adapter(agent)):
            raise UsageError(f"agent {agent} is not trained: leave --train-epochs out.")
        return [Entrant(agent, checkpoint, train=epochs is not None)]
    if checkpoint is not None:
        raise UsageError("--checkpoint is for one agent; with --all-agents write --checkpoint-map AGENT=PATH for each.")
    paths = _parse_map(mapping, names)
    entrants = []
    for name in names:
        train = epochs is not None and name not in paths and is_trained(load_adapter(name))
        entrants.append(Entrant(name, paths.get(name), train))
    missing = [
        one.agent
        for one in entrants
        if one.checkpoint is None and not one.train and getattr(load_adapter(one.agent), "needs_checkpoint", None)
    ]
    if missing:
        wanted = " ".join(f"--checkpoint-map {name}=PATH" for name in missing)
        raise UsageError(f"no checkpoint for {', '.join(missing)}: add {wanted}, or --train-epochs N.")
    return entrants


def is_trained(cls: type) -> bool:
    """Return whether an adapter's agent is trained at all; the random one is not."""
    return getattr(cls, "needs_checkpoint", None) is not False


def _parse_map(mapping: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return agent -> path of the `AGENT=PATH` texts."""
    paths: dict[str, str] = {}
    for text in mapping:
        name, separator, path = text.partition("=")
        if not separator or not name.strip() or not path.strip():
            raise UsageError(f"--checkpoint-map {text!r} is not of the form AGENT=PATH.")
        name = name.strip()
        if name not in names:
            raise unknown_value("agent", name, names, hint="(in --checkpoint-map)")
        if name in paths:
            raise UsageError(f"--checkpoint-map gives agent {name} twice: {paths[name]} and {path}.")
        paths[name] = path
    return paths


class Watcher:
    """Shows phases on the bar of a terminal, or as a line now and then in a log."""

    def __init__(self, progress: PlanProgress) -> None:
        self._progress = progress
        self._printed = time.monotonic()

    def phase(self, job: JobSpec, phase: str) -> None:
        """Show what a job does now."""
        self._progress.phase(job.name, phase)
        now = time.monotonic()
        if not sys.stderr.isatty() and now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            print(f"{job.name}: {phase}", file=sys.stderr, flush=True)

    def finished(self, result: Result) -> None:
        """Show how a job ended."""
        self._printed = time.monotonic()
        self._progress.finished(result, _headline(result))


def _headline(result: Result) -> str:
    """Return the figure of a finished job that fits on a line."""
    if result.body is None:
        return result.error.message if result.error else "no result"
    if result.body["mean"] is None:
        return str(result.body["reason"])
    return f"mean return {result.body['mean']:.2f} over {result.body['num_episodes']} episodes"
