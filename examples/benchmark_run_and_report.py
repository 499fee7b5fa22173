"""Benchmark an agent from Python, then make a table and a text of its report.

    python examples/benchmark_run_and_report.py                          # the random agent in bsuite's catch
    python examples/benchmark_run_and_report.py --agent dreamerv2 --checkpoint runs/dreamerv2/catch-0/seed-0

The folder holds benchmark_results.{json,csv,md,tex} afterwards, and the LaTeX table once more under the name of choice.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from synora.benchmarks import reporting
from synora.benchmarks.adapters import ADAPTERS
from synora.benchmarks.runner import BenchmarkRunner
from synora.core.errors import SynoraError


def main() -> int:
    """Run the benchmark that the arguments ask for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="random", choices=ADAPTERS.names())
    parser.add_argument("--game", default="catch/0")
    parser.add_argument("--checkpoint", help="run folder, checkpoint folder or exported file")
    parser.add_argument("--seeds", default="2", help="2: seeds 0 and 1; 0,5: these")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--out-dir", type=Path, default=Path("results/bench"))
    arguments = parser.parse_args()

    runner = BenchmarkRunner(adapter_cls=ADAPTERS.load(arguments.agent), out_dir=arguments.out_dir)
    try:
        report = runner.run(
            env_spec={"game": arguments.game},
            seeds=arguments.seeds,
            num_episodes=arguments.episodes,
            checkpoint=arguments.checkpoint,
        )
    except SynoraError as error:  # a message for people, in one line
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code

    # `report` is what benchmark_results.json holds: a row a seed, and the figures over seeds.
    for seed in report["seeds"]:
        print(f"seed {seed['eval_seed']}: returns {seed['episode_returns']}, mean {seed['mean']}")
    print(f"means of the seeds: {report['aggregate']['per_seed_means']}")
    print(reporting.as_text([report]))
    table = reporting.export_latex(report, arguments.out_dir / "table_for_the_paper.tex")
    print(f"reports: {arguments.out_dir}, the table once more: {table.name}")
    return 0 if report["aggregate"]["mean"] is not None else 1


if __name__ == "__main__":
    sys.exit(main())
