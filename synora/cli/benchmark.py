"""`synora benchmark`: check everything, train if asked to, let agents play, print and write the reports."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synora.cli import benchmark_options as options
from synora.cli.stopping import interrupt_on_stop
from synora.core.errors import EXIT_FAILED, EXIT_OK, UsageError, unknown_value

if TYPE_CHECKING:
    from synora.cli.benchmark_training import TrainingRun
    from synora.cli.progress import PlanProgress
    from synora.core.job import JobSpec
    from synora.core.result import Result

DEFAULT_OUT_DIR = Path("results/bench")
PLAIN_SECONDS = 10.0


def benchmark(
    agent: options.Agent = None,
    all_agents: options.AllAgents = False,
    game: options.Game = None,
    checkpoint: options.Checkpoint = None,
    checkpoint_map: options.CheckpointMap = None,
    env_backend: options.EnvBackend = "auto",
    protocol: options.Protocol = None,
    seeds: options.Seeds = "1",
    episodes: options.Episodes = 5,
    out_dir: options.OutDir = DEFAULT_OUT_DIR,
    device: options.Device = "auto",
    preset: options.Preset = None,
    train_epochs: options.TrainEpochs = None,
    num_envs: options.NumEnvs = 4,
) -> int:
    """Let trained agents play whole games and report their returns.

    A trained agent needs --checkpoint, or --train-epochs. With --all-agents every trained agent needs a
    --checkpoint-map, or --train-epochs. Exit codes: 0 done, 1 an episode, a seed or a file failed, 2 bad usage, 75
    training was stopped by a signal with everything saved.
    """
    from synora.benchmarks.settings import parse_seeds

    # Idle OpenMP threads that spin steal the time of the ones that work, on any shared machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if game is None:
        raise UsageError("--game is missing: write --game ALE/Pong-v5, or another of `synora envs list`.")
    for flag, value in (("--episodes", episodes), ("--num-envs", num_envs), ("--train-epochs", train_epochs)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} must be at least 1 (got {value}).")
    wanted = parse_seeds(seeds)
    entrants = _entrants(agent, all_agents, checkpoint, checkpoint_map or [], train_epochs)
    env = {"game": game, "backend": env_backend, "protocol": protocol}
    common = {"episodes": episodes, "num_envs": num_envs, "device": device}
    _plan(entrants, wanted, env, common, out_dir, preset, train_epochs)
    return _run(entrants, out_dir, combined=all_agents)


@dataclass
class _Entrant:
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


def _entrants(
    agent: str | None, all_agents: bool, checkpoint: str | None, mapping: Sequence[str], epochs: int | None
) -> list[_Entrant]:
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
        if epochs is not None and not _trained(load_adapter(agent)):
            raise UsageError(f"agent {agent} is not trained: leave --train-epochs out.")
        return [_Entrant(agent, checkpoint, train=epochs is not None)]
    if checkpoint is not None:
        raise UsageError("--checkpoint is for one agent; with --all-agents write --checkpoint-map AGENT=PATH for each.")
    paths = _parse_map(mapping, names)
    entrants = []
    for name in names:
        train = epochs is not None and name not in paths and _trained(load_adapter(name))
        entrants.append(_Entrant(name, paths.get(name), train))
    missing = [
        one.agent
        for one in entrants
        if one.checkpoint is None and not one.train and getattr(load_adapter(one.agent), "needs_checkpoint", None)
    ]
    if missing:
        wanted = " ".join(f"--checkpoint-map {name}=PATH" for name in missing)
        raise UsageError(f"no checkpoint for {', '.join(missing)}: add {wanted}, or --train-epochs N.")
    return entrants


def _trained(cls: type) -> bool:
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


def _plan(
    entrants: Sequence[_Entrant],
    seeds: Sequence[int],
    env: Mapping[str, Any],
    common: dict[str, Any],
    out_dir: Path,
    preset: str | None,
    epochs: int | None,
) -> None:
    """Fill in jobs and training runs, everything checked and nothing written.

    Raises:
        UsageError, FileError: as `synora.benchmarks.handler.preflight`.
    """
    from synora.benchmarks.handler import load_adapter, preflight, settle_protocol
    from synora.benchmarks.settings import make_jobs, with_protocol
    from synora.cli.benchmark_training import plan_training
    from synora.envs.factory import resolve_env

    classes = {one.agent: load_adapter(one.agent) for one in entrants}
    note = ""
    if not all(getattr(cls, "own_environments", False) for cls in classes.values()):
        resolved, _ = resolve_env(env["game"], backend=env["backend"], protocol=env["protocol"])
        note = resolved.note if resolved.differs else ""
    for one in entrants:
        one.folder = out_dir / one.agent if len(entrants) > 1 else out_dir
        chosen = {**common, "preset": preset if _trained(classes[one.agent]) or len(entrants) == 1 else None}
        checkpoints = None
        if one.train:
            folder = one.folder / "train"
            one.runs = plan_training(
                one.agent, seeds, folder, epochs=epochs or 0, preset=preset, device=common["device"], **env
            )
            checkpoints = {run.seed: str(run.folder) for run in one.runs}
        elif one.checkpoint is not None:
            chosen["checkpoint"] = one.checkpoint
        one.jobs = make_jobs(one.agent, env, seeds, checkpoints=checkpoints, **chosen)
    if note:
        warnings.filterwarnings("ignore", message=re.escape(note))  # printed once, below
    adapters = []
    for one in entrants:
        params = dict(one.jobs[0].params)
        adapter = preflight({**params, "checkpoint": None} if one.train else params, training=one.train)
        adapters.append(adapter)
        if one.train and hasattr(adapter, "preflight_training"):
            for run in one.runs:
                adapter.preflight_training(run.config)
    settled = settle_protocol(env["protocol"], adapters)
    for one in entrants:
        one.jobs = with_protocol(one.jobs, settled)
    if settled != env["protocol"]:
        resolve_env(env["game"], backend=env["backend"], protocol=settled)  # a third party's adapter may say anything
        note = f"{note} Protocol {settled}, under which the checkpoint was trained.".strip()
    if note:
        print(f"synora: note: {note}", file=sys.stderr)


def _run(entrants: Sequence[_Entrant], out_dir: Path, *, combined: bool) -> int:
    """Train, evaluate and report; returns the exit code."""
    from synora.benchmarks.reporting import COMBINED_NAME, REPORT_NAME, as_text, failures, write_combined
    from synora.benchmarks.runner import failed, run_jobs
    from synora.cli.benchmark_training import train_all
    from synora.cli.progress import PlanProgress
    from synora.core.files import require_writable_folder

    require_writable_folder(out_dir)
    runs = [run for one in entrants for run in one.runs]
    if code := train_all(runs):
        print("synora: training was stopped; the same command continues it.", file=sys.stderr)
        return code
    interrupt_on_stop()
    reports = {}
    # The names of files may hold what UTF-8 cannot.
    command = shlex.join([_program(), *sys.argv[1:]]).encode("utf-8", "backslashreplace").decode()
    with PlanProgress(sum(len(one.jobs) for one in entrants)) as progress:
        watcher = _Watcher(progress)
        for one in entrants:
            reports[one.agent] = run_jobs(
                one.jobs, one.folder, metadata={"command": command}, on_phase=watcher.phase, on_result=watcher.finished
            )
    print(as_text(reports.values()))
    if combined:
        write_combined(reports, out_dir)
        print(f"\nReports: {out_dir.resolve() / COMBINED_NAME}.{{json,csv}}, and a folder an agent beside them.")
    else:
        print(f"\nReports: {out_dir.resolve() / REPORT_NAME}.{{json,csv,md,tex}}")
    for name, report in reports.items():
        for line in failures(report):
            print(f"synora: {name}: {line}", file=sys.stderr)
        if report["aggregate"]["note"]:
            print(f"synora: {name}: note: {report['aggregate']['note']}", file=sys.stderr)
    return EXIT_FAILED if any(failed(report) for report in reports.values()) else EXIT_OK


class _Watcher:
    """Shows phases on the bar of a terminal, or as a line now and then in a log."""

    def __init__(self, progress: PlanProgress) -> None:
        self._progress = progress
        self._printed = time.monotonic()

    def phase(self, job: JobSpec, phase: str) -> None:
        self._progress.phase(job.name, phase)
        now = time.monotonic()
        if not sys.stderr.isatty() and now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            print(f"{job.name}: {phase}", file=sys.stderr, flush=True)

    def finished(self, result: Result) -> None:
        self._printed = time.monotonic()
        self._progress.finished(result, _headline(result))


def _headline(result: Result) -> str:
    """Return the figure of a finished job that fits on a line."""
    if result.body is None:
        return result.error.message if result.error else "no result"
    if result.body["mean"] is None:
        return str(result.body["reason"])
    return f"mean return {result.body['mean']:.2f} over {result.body['num_episodes']} episodes"


def _program() -> str:
    """Return the program's name as the user could type it again."""
    name = Path(sys.argv[0]).name
    return "synora" if name in {"synora", "__main__.py"} else sys.argv[0]
