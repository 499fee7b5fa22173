"""Time of bootstrap intervals: 10,000 resamples of 26 games x 5 runs, for 12 agents."""

from __future__ import annotations

import time

import numpy as np

from synora.benchmarks import metrics


def main() -> None:
    """Print wall and processor seconds for the IQM alone and for all aggregates."""
    scores = np.random.default_rng(0).normal(size=(12, 5, 26))
    for names in (["iqm"], list(metrics.STATISTICS)):
        wall, processor = time.perf_counter(), time.process_time()
        for agent in scores:
            metrics.bootstrap_cis(agent, names, num_samples=10_000)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(f"{', '.join(names)}: {wall:.2f} s ({processor:.2f} s of processor time)")


if __name__ == "__main__":
    main()
