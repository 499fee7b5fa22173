"""`synora benchmark`: check everything, train if asked to, let agents play, print and write the reports."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.cli import benchmark_options as options
from synora.cli.benchmark_common import DEFAULT_OUT_DIR, Entrant, Watcher, find_entrants, is_trained
from synora.cli.stopping import interrupt_on_stop
from synora.core.errors import EXIT_FAILED, EXIT_OK, UsageError

GAMES = 5  # a seed, of one environment


def benchmark(
    agent: options.Agent = None,
    all_agents: options.AllAgents = False,
    game: options.Game = None,
    checkpoint: options.Checkpoint = None,
    checkpoint_map: options.CheckpointMap = None,
    env_backend: options.EnvBackend = "auto",
    sweep: options.SweepName = None,
    protocol: options.Protocol = None,
    seeds: options.Seeds = "1",
    episodes: options.Episodes = None,
    out_dir: options.OutDir = DEFAULT_OUT_DIR,
    device: options.Device = "auto",
    preset: options.Preset = None,
    train_epochs: options.TrainEpochs = None,
    num_envs: options.NumEnvs = 4,
) -> int:
    """Let trained agents play whole games and report their returns, or bsuite's scores with --sweep.

    A trained agent needs --checkpoint, or --train-epochs. With --all-agents every trained agent needs a
    --checkpoint-map, or --train-epochs. bsuite defines its scores over the whole learning run of an agent; here a
    trained agent's checkpoint is frozen while it plays, and the report says so. A sweep that was interrupted is
    continued by the same command. Exit codes: 0 done, 1 an episode, a seed, a task or a file failed, 2 bad usage, 75
    training was stopped by a signal with everything saved.
    """
    from synora.benchmarks.settings import parse_seeds

    # Idle OpenMP threads that spin steal the time of the ones that work, on any shared machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _require_one_target(game, sweep, env_backend)
    for flag, value in (("--episodes", episodes), ("--num-envs", num_envs), ("--train-epochs", train_epochs)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} must be at least 1 (got {value}).")
    wanted = parse_seeds(seeds)
    entrants = find_entrants(agent, all_agents, checkpoint, checkpoint_map or [], train_epochs)
    common = {"episodes": episodes or GAMES, "num_envs": num_envs, "device": device}
    if sweep is not None:
        from synora.cli.benchmark_sweep import benchmark_sweep

        common["episodes"] = episodes
        return benchmark_sweep(sweep, entrants, wanted, protocol, common, out_dir, preset, train_epochs)
    env = {"game": game, "backend": env_backend, "protocol": protocol}
    _plan(entrants, wanted, env, common, out_dir, preset, train_epochs)
    return _run(entrants, out_dir, combined=all_agents)


def _require_one_target(game: str | None, sweep: str | None, backend: str) -> None:
    """Raise UsageError unless there is a game or a sweep of bsuite."""
    if game is None and sweep is None:
        raise UsageError(
            "--game is missing: write --game ALE/Pong-v5, or another of `synora envs list`; or --sweep catch for all "
            "tasks of one of bsuite's experiments."
        )
    if game is not None and sweep is not None:
        raise UsageError("--game and --sweep are both given: one task is --game catch/0, a whole sweep --sweep catch.")
    if sweep is not None and backend not in ("auto", "bsuite"):
        raise UsageError(f"--sweep is for bsuite: leave --env-backend out, or write bsuite (got {backend!r}).")


def _plan(
    entrants: Sequence[Entrant],
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
        chosen = {**common, "preset": preset if is_trained(classes[one.agent]) or len(entrants) == 1 else None}
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


def _run(entrants: Sequence[Entrant], out_dir: Path, *, combined: bool) -> int:
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
        watcher = Watcher(progress)
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


def _program() -> str:
    """Return the program's name as the user could type it again."""
    name = Path(sys.argv[0]).name
    return "synora" if name in {"synora", "__main__.py"} else sys.argv[0]
