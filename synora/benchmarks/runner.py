"""A whole benchmark of one agent: plan, check, play, report. It stands above `synora.batch`, which runs its jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.batch.execute import execute, provenance, utc_now
from synora.batch.plan import Plan, result_path
from synora.benchmarks.handler import environment, label, load_adapter, name_of, preflight, settle_protocol
from synora.benchmarks.reporting import build_report, write_reports
from synora.benchmarks.settings import NUM_ENVS, ReturnsParams, make_jobs, parse_seeds, with_protocol
from synora.core.errors import FileError, UsageError
from synora.core.files import lease, require_writable_folder
from synora.core.job import JobSpec
from synora.core.result import Result

DEFAULT_OUT_DIR = "results/bench"
# Arguments of the benchmark itself that callers may also put into `extra_kwargs`.
_OURS = ("device", "preset", "num_envs", "checkpoint")


class BenchmarkRunner:
    """Benchmarks one agent.

    Args:
        adapter_cls: class of the adapter: one of `synora.benchmarks.adapters`, or any with `load_checkpoint(path)` and
            `evaluate(num_episodes, render=False) -> {"episode_returns": [...]}`.
        out_dir: where the reports and the results of the jobs are written.
        extra_kwargs: `device`, `preset`, `num_envs` and `checkpoint`, and further keyword arguments of the adapter
            (JSON values).

    Raises:
        UsageError: the class is not an adapter, or an argument is not a JSON value.
    """

    def __init__(
        self,
        adapter_cls: type,
        out_dir: str | os.PathLike[str] = DEFAULT_OUT_DIR,
        extra_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.agent = name_of(adapter_cls)
        self.out_dir = Path(out_dir)
        extra = dict(extra_kwargs or {})
        self._common = {name: extra.pop(name) for name in _OURS if extra.get(name) is not None}
        self._common["extra"] = {name: value for name, value in extra.items() if name not in _OURS}

    def run(
        self,
        env_spec: Mapping[str, Any],
        seeds: Sequence[int] | str = (0,),
        num_episodes: int = 5,
        checkpoint: str | os.PathLike[str] | None = None,
        **common: Any,
    ) -> dict[str, Any]:
        """Check everything, play, write the four reports, and return what `benchmark_results.json` holds.

        Args:
            env_spec: `{"game": "ALE/Pong-v5"}`; optional: `backend`, `protocol` (default: the one the checkpoint was
                trained under, else the backend's).
            seeds: of the evaluation, or a text as `--seeds` takes it.
            num_episodes: games a seed.
            checkpoint: of the agent, where it needs one.
            common: `device`, `preset`, `num_envs`.

        Raises:
            UsageError: a value is not allowed; nothing was played or written.
            FileError: the checkpoint is damaged, or a report cannot be written.
        """
        if unknown := sorted(set(common) - set(_OURS)):
            raise UsageError(f"run() does not take {unknown[0]!r}. Allowed: device, preset, num_envs.")
        fields = {**self._common, **{name: value for name, value in common.items() if value is not None}}
        if checkpoint is not None:
            fields["checkpoint"] = os.fspath(checkpoint)
        if fields.get("checkpoint") is not None:
            fields["checkpoint"] = os.fspath(fields["checkpoint"])
        jobs = make_jobs(
            self.agent,
            env_spec,
            parse_seeds(seeds) if isinstance(seeds, str) else seeds,
            label=label(load_adapter(self.agent), self.agent),
            episodes=num_episodes,
            **fields,
        )
        adapter = preflight(jobs[0].params)
        jobs = with_protocol(jobs, settle_protocol(jobs[0].params["protocol"], [adapter]))  # type: ignore[arg-type]
        require_writable_folder(self.out_dir, flag="out_dir")
        return run_jobs(jobs, self.out_dir)


def run_jobs(
    jobs: Sequence[JobSpec],
    out_dir: Path,
    *,
    metadata: Mapping[str, Any] | None = None,
    on_phase: Callable[[JobSpec, str], None] = lambda job, phase: None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> dict[str, Any]:
    """Run the checked jobs of one agent one after another in this process, write the reports, return the report.

    Every finished job's result is in `out_dir/jobs` at once, so an interruption loses the running job only; the reports
    are written when all have ended.

    Args:
        jobs: of one agent in one environment.
        out_dir: where.
        metadata: further facts of the run.
        on_phase: called when a job enters a phase.
        on_result: called when a job ends.

    Raises:
        FileError: a file cannot be written, or another live process is at it in this folder.
    """
    # Two benchmarks into one folder would mix their plans and reports.
    with lease(out_dir / "benchmark", what=f"the benchmark in {out_dir}"):
        return _run_jobs(jobs, out_dir, metadata, on_phase, on_result)


def _run_jobs(
    jobs: Sequence[JobSpec],
    out_dir: Path,
    metadata: Mapping[str, Any] | None,
    on_phase: Callable[[JobSpec, str], None],
    on_result: Callable[[Result], None],
) -> dict[str, Any]:
    """Do what `run_jobs` says, as the only one in the folder."""
    started_at, started = utc_now(), time.perf_counter()
    Plan.of(jobs).write(out_dir / "plan.json")
    results = []
    for job in jobs:
        on_phase(job, "starting")
        results.append(execute(job, out_dir, report=lambda phase, job=job: on_phase(job, phase)))  # type: ignore[misc]
        on_result(results[-1])
    params = ReturnsParams(**jobs[0].params)  # type: ignore[arg-type]
    cls = load_adapter(params.agent)
    facts = {**_metadata(params, results[0], started_at, time.perf_counter() - started), **(metadata or {})}
    about = {"agent": label(cls, params.agent), **environment(params, cls), "metadata": facts}
    report = build_report(results, about)
    write_reports(report, out_dir)
    return report


def kept_results(jobs: Sequence[JobSpec], out_dir: Path) -> dict[str, Result]:
    """Return the results below a folder that need not be made again: job id -> result.

    It is the result of the same job (same id, so same agent, task, seed, number of games, …) under the same rules of
    the environment, all of its games were played to their end, and its checkpoint has the same content today.

    Raises:
        UsageError, FileError: a checkpoint cannot be read any more.
    """
    kept, digests = {}, dict[tuple[str, str], str | None]()
    for job in jobs:
        path = result_path(out_dir, job)
        if not path.exists():
            continue
        try:
            result = Result.read(path)
        except FileError:  # a damaged file is no result
            continue
        body: Mapping[str, Any] = result.body or {}
        if result.job != job or body.get("episodes_failed") != 0:
            continue
        params = ReturnsParams(**job.params)  # type: ignore[arg-type]
        if environment(params, load_adapter(params.agent))["protocol"] != body.get("protocol"):
            continue
        if params.checkpoint is not None:
            key = params.agent, params.checkpoint
            if key not in digests:
                adapter = preflight(job.params)
                digests[key] = adapter.checkpoint_digest() if hasattr(adapter, "checkpoint_digest") else None
            if digests[key] is None or digests[key] != body["checkpoint"].get("sha256"):
                continue
        kept[job.job_id] = result
    return kept


def run_sweep(
    jobs: Sequence[JobSpec],
    out_dir: Path,
    *,
    kept: Mapping[str, Result] | None = None,
    on_phase: Callable[[JobSpec, str], None] = lambda job, phase: None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run the checked jobs of one agent in many tasks, one after another in this process.

    Every finished job's result is in `out_dir/jobs` at once.

    Args:
        jobs: of one agent.
        out_dir: where.
        kept: results that need not be made again, as `kept_results` finds them.
        on_phase: called when a job enters a phase.
        on_result: called when a job ends that was not kept.

    Returns:
        A result for every job, in their order.

    Raises:
        FileError: a file cannot be written, or another live process is at it in this folder.
    """
    results = []
    with lease(out_dir / "benchmark", what=f"the benchmark in {out_dir}"):
        Plan.of(jobs).write(out_dir / "plan.json")
        for job in jobs:
            result = (kept or {}).get(job.job_id)
            if result is None:
                on_phase(job, "starting")
                result = execute(job, out_dir, report=lambda phase, job=job: on_phase(job, phase))  # type: ignore[misc]
                on_result(result)
            results.append(result)
    return results


def failed(report: Mapping[str, Any]) -> bool:
    """Return whether a seed or an episode of a report failed."""
    return bool(report["aggregate"]["episodes_failed"]) or any(seed["status"] != "ok" for seed in report["seeds"])


def _metadata(params: ReturnsParams, first: Result, started_at: str, seconds: float) -> dict[str, Any]:
    """Return the facts of the run that stand above the tables, flat and ready for JSON."""
    here = provenance(started_at, seconds)
    return {
        "started_at": started_at,
        "wall_seconds": round(seconds, 3),
        "episodes_per_seed": params.episodes,
        "num_envs": params.num_envs,
        "device": (first.body or {}).get("device", params.device),
        "device_name": first.provenance.device.get("name"),
        "preset": params.preset,
        **here.versions,
        "git_commit": here.git.get("commit"),
        "git_dirty": here.git.get("dirty"),
        **here.machine,
    }


__all__ = ["DEFAULT_OUT_DIR", "NUM_ENVS", "BenchmarkRunner", "failed", "kept_results", "run_jobs", "run_sweep"]
