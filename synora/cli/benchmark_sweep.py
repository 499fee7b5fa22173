"""`synora benchmark --sweep`: the tasks of a bsuite sweep are played, and bsuite's scores reported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.benchmarks.bsuite_sweep import Sweep, split_id, sweep, task_ranges
from synora.cli.benchmark_common import Entrant, Watcher, is_trained
from synora.cli.stopping import interrupt_on_stop
from synora.core.errors import EXIT_FAILED, EXIT_OK, UsageError


def benchmark_sweep(
    name: str,
    entrants: Sequence[Entrant],
    seeds: Sequence[int],
    protocol: str | None,
    common: Mapping[str, Any],
    out_dir: Path,
    preset: str | None,
    epochs: int | None,
) -> int:
    """Check everything, train if asked to, play every task, score, and report.

    Args:
        name: of the sweep.
        entrants: who takes part; their jobs and training runs are filled in.
        seeds: each is scored by itself.
        protocol: as in `make_env`.
        common: `episodes` (None: the task's full number), `num_envs`, `device`.
        out_dir: where results and reports go.
        preset: of trained agents.
        epochs: to train first; None for none.

    Returns:
        The exit code: 0 done, 1 a task failed, 75 training was stopped.

    Raises:
        UsageError: a value is not allowed, or a checkpoint cannot play some tasks: all are named, nothing was played.
        DependencyMissing: bsuite or all of the sweep's data is missing.
        FileError: a checkpoint is damaged, or a file cannot be written.
    """
    chosen = sweep(name)
    _plan(chosen, entrants, seeds, protocol, common, out_dir, preset, epochs)
    if chosen.left_out:
        print(f"synora: note: {', '.join(chosen.left_out)} are left out: {chosen.reason}", file=sys.stderr)
    return _run(chosen, entrants, out_dir)


def _plan(
    chosen: Sweep,
    entrants: Sequence[Entrant],
    seeds: Sequence[int],
    protocol: str | None,
    common: Mapping[str, Any],
    out_dir: Path,
    preset: str | None,
    epochs: int | None,
) -> None:
    """Fill in jobs and training runs, everything checked and nothing written."""
    from synora.benchmarks.handler import load_adapter, settle_protocol
    from synora.benchmarks.settings import make_jobs, with_protocol
    from synora.cli.benchmark_training import plan_training

    groups = _groups(chosen.ids, protocol)
    adapters = []
    for one in entrants:
        cls = load_adapter(one.agent)
        if getattr(cls, "own_environments", False):
            raise UsageError(f"agent {one.agent} plays in environments of its own, not in bsuite's: leave --sweep out.")
        one.folder = out_dir / one.agent if len(entrants) > 1 else out_dir
        fields = {**common, "preset": preset if is_trained(cls) or len(entrants) == 1 else None}
        if one.checkpoint is not None:
            fields["checkpoint"] = one.checkpoint
        runs: dict[str, Any] = {}
        jobs: dict[str, Any] = {}
        for task in chosen.ids:
            env: dict[str, Any] = {"game": task, "backend": "bsuite", "protocol": protocol}
            full = split_id(task)[0].episodes
            fields["episodes"] = min(common["episodes"] or full, full)
            checkpoints = None
            if one.train:
                folder = one.folder / "train" / task.replace("/", "-")
                device = common["device"]
                runs[task] = plan_training(
                    one.agent, seeds, folder, epochs=epochs or 0, preset=preset, device=device, **env
                )
                checkpoints = {run.seed: str(run.folder) for run in runs[task]}
            jobs[task] = make_jobs(one.agent, env, seeds, checkpoints=checkpoints, **fields)
        adapters += _preflight(one, groups, jobs, runs, chosen)
        # Seed by seed, so that the first whole score is there early.
        one.jobs = [jobs[task][place] for place in range(len(seeds)) for task in chosen.ids]
        one.runs = [runs[task][place] for place in range(len(seeds)) for task in runs]
    settled = settle_protocol(protocol, adapters)
    for one in entrants:
        one.jobs = with_protocol(one.jobs, settled)
    if settled != protocol:
        print(f"synora: note: Protocol {settled}, under which the checkpoint was trained.", file=sys.stderr)


def _groups(tasks: Iterable[str], protocol: str | None) -> list[list[str]]:
    """Return the tasks grouped by their actions and frames, every one of them made once."""
    from synora.envs.factory import make_env

    groups: dict[Any, list[str]] = {}
    for task in tasks:
        with make_env(task, backend="bsuite", protocol=protocol) as env:
            groups.setdefault((env.action_space, env.observation_shape), []).append(task)
    return list(groups.values())


def _preflight(
    one: Entrant,
    groups: Sequence[Sequence[str]],
    jobs: Mapping[str, Sequence[Any]],
    runs: Mapping[str, Sequence[Any]],
    chosen: Sweep,
) -> list[Any]:
    """Check an agent in one task of each group and return the adapters.

    Raises:
        UsageError: it cannot play some tasks; all of them are named.
    """
    from synora.benchmarks.handler import preflight

    adapters, wrong = [], []
    for tasks in groups:
        first = tasks[0]
        params = dict(jobs[first][0].params)
        try:
            adapter = preflight({**params, "checkpoint": None} if one.train else params, training=one.train)
            if one.train and hasattr(adapter, "preflight_training"):
                for run in runs[first]:
                    adapter.preflight_training(run.config)
        except UsageError as error:
            if first not in str(error):  # not about the task: no task would do
                raise
            wrong.append((tasks, error))
        else:
            adapters.append(adapter)
    if wrong:
        count = sum(len(tasks) for tasks, _ in wrong)
        told = " ".join(f"{task_ranges(tasks)}: {error}" for tasks, error in wrong)
        raise UsageError(
            f"agent {one.agent} cannot play {count} of the {len(chosen.ids)} tasks of the sweep {chosen.name}. {told} "
            "Choose a sweep of tasks that fit, or --train-epochs N for a training run in every task."
        )
    return adapters


def _run(chosen: Sweep, entrants: Sequence[Entrant], out_dir: Path) -> int:
    """Train, play, score and report; returns the exit code."""
    from synora.benchmarks.bsuite_report import (
        REPORT_NAME,
        as_text,
        build_bsuite_report,
        failed,
        write_bsuite_reports,
    )
    from synora.benchmarks.runner import kept_results, run_sweep
    from synora.cli.benchmark_training import train_all
    from synora.cli.progress import PlanProgress
    from synora.core.files import require_writable_folder

    require_writable_folder(out_dir)
    if code := train_all([run for one in entrants for run in one.runs]):
        print("synora: training was stopped; the same command continues it.", file=sys.stderr)
        return code
    interrupt_on_stop()
    kept = {one.agent: kept_results(one.jobs, one.folder) for one in entrants}
    total, there = sum(len(one.jobs) for one in entrants), sum(len(found) for found in kept.values())
    if there:
        print(f"synora: {there} of {total} tasks are finished already and not played again.", file=sys.stderr)
    results = {}
    try:
        with PlanProgress(total - there) as progress:
            watcher = Watcher(progress)
            for one in entrants:
                results[one.agent] = run_sweep(
                    one.jobs,
                    one.folder,
                    kept=kept[one.agent],
                    on_phase=watcher.phase,
                    on_result=watcher.finished,
                )
    except KeyboardInterrupt:
        print("synora: the same command goes on from the last finished task.", file=sys.stderr)
        raise
    found = {_label(one): (_setting(one), results[one.agent]) for one in entrants}
    report = build_bsuite_report(chosen, found)
    if len(entrants) > 1:
        for one in entrants:
            own = {_label(one): found[_label(one)]}
            write_bsuite_reports(build_bsuite_report(chosen, own), one.folder)
    write_bsuite_reports(report, out_dir)
    print(as_text(report))
    print(f"\nReports: {out_dir.resolve() / REPORT_NAME}.{{json,csv,md,tex}}")
    for agent in report["agents"]:
        for line in agent["failures"]:
            print(f"synora: {agent['agent']}: {line}", file=sys.stderr)
    return EXIT_FAILED if failed(report) else EXIT_OK


def _label(one: Entrant) -> str:
    from synora.benchmarks.handler import label, load_adapter

    return label(load_adapter(one.agent), one.agent)


def _setting(one: Entrant) -> str:
    """Return what the agent's games are, for the report."""
    from synora.benchmarks.bsuite_report import FIXED, FROZEN, UNKNOWN
    from synora.benchmarks.handler import load_adapter

    if one.train or one.checkpoint is not None:
        return FROZEN
    return UNKNOWN if is_trained(load_adapter(one.agent)) else FIXED
