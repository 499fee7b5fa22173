"""Time and memory of collecting 100,000 result files: 20 agents, 26 games, 10 training runs and evaluation seeds."""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from synora.batch.collect import collect_folders, write_collected
from synora.batch.plan import Plan
from synora.benchmarks.scores import atari_100k_games
from synora.core.job import JobSpec

RUNS, EPISODES = 10, 5
FACTS = {f"fact_{index}": f"value {index}" for index in range(12)}


def make_files(folder: Path, count: int) -> None:
    """Write result files as the returns benchmark does, 3 to 4 KB each, and their plan."""
    (folder / "jobs").mkdir()
    agents = [f"agent{index}" for index in range(20)]
    jobs = []
    cells = itertools.product(range(count), range(RUNS), atari_100k_games(), agents)
    for eval_seed, train_seed, game, agent in itertools.islice(cells, count):
        params: dict[str, Any] = {"agent": agent, "game": game, "checkpoint": f"runs/{agent}/{game}/{train_seed}"}
        params |= {"eval_seed": eval_seed, "episodes": EPISODES, "backend": "auto", "device": "auto"}
        name = f"{agent} {game} run {train_seed} seed {eval_seed}"
        jobs.append(JobSpec(kind="returns", name=name, params=params))
        path = folder / "jobs" / f"{jobs[-1].job_id}.json"
        path.write_text(json.dumps(_result(jobs[-1], train_seed), indent=2), encoding="utf-8")
    Plan.of(jobs).write(folder / "plan.json")


def _result(job: JobSpec, train_seed: int) -> dict[str, Any]:
    params: Any = job.params
    returns = [float(train_seed * 10 + index) for index in range(EPISODES)]
    common = {"length": 1000, "frames": 4000, "error": None, "status": "ok"}
    body = {
        "agent": params["agent"],
        "adapter": "synora.benchmarks.adapters:Some",
        "env": {"game": params["game"], "name": params["game"], "backend": "ale", "note": None},
        "protocol": {"name": "atari-100k", "fingerprint": "0123456789abcdef", **FACTS},
        "eval_seed": params["eval_seed"],
        "train_seed": train_seed,
        "checkpoint": {"path": params["checkpoint"], "step": 100_000, "sha256": params["checkpoint"]},
        "num_episodes": EPISODES,
        "episode_returns": returns,
        "mean": sum(returns) / EPISODES,
        "episodes_failed": 0,
        "reason": None,
        "episodes": [{"index": index, "seed": index, "return": value, **common} for index, value in enumerate(returns)],
    }
    provenance = {"started_at": "2026-01-01T00:00:00+00:00", "wall_seconds": 1.0, "machine": FACTS, "device": FACTS}
    head = {"schema_version": 1, "job_id": job.job_id, "job": job.model_dump(mode="json"), "attempt": 1}
    return {**head, "status": "ok", "error": None, "provenance": provenance, "body": body}


def main() -> None:
    """Print wall and processor seconds and the peak of resident memory of a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is None:
        with tempfile.TemporaryDirectory() as folder:
            make_files(Path(folder), options.files)
            subprocess.run([sys.executable, __file__, "--measure", folder], check=True)
        return
    wall, processor = time.perf_counter(), time.process_time()
    collected = collect_folders([options.measure])
    read = time.perf_counter() - wall
    write_collected(collected, options.measure)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{collected['files']['counted']} results: {wall:.1f} s ({processor:.1f} s of processor time), {read:.1f} s of "
        f"it reading; peak {peak:.2f} GiB"
    )


if __name__ == "__main__":
    main()
