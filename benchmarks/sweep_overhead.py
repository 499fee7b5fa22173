"""What a tiny sweep costs beyond importing torch and the windows it measures, on a quiet machine."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 5


def seconds(*command: str) -> float:
    """Return the wall time of a command, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"})
    return time.perf_counter() - start


def measured_seconds(report: Path) -> float:
    """Return the sweep's measured time: calibrations, warm-ups and timing windows of all cases."""
    total = 0.0
    for result in json.loads(report.read_text())["results"]:
        body = result["body"]
        total += body["calibration"]["spent_ms"]
        total += sum(mode["timing"]["warmup_ms"] + mode["timing"]["wall_ms"] for mode in body["modes"].values())
    return total / 1e3


def main() -> None:
    """Print the figures of each repeat and the median overhead."""
    overheads = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(REPEATS):
            torch = seconds(sys.executable, "-c", "import torch")
            sweep = seconds(
                *(sys.executable, "-m", "synora", "sweep", "--preset", "tiny"),
                *("--device", "cpu", "--out-dir", folder),
            )
            measured = measured_seconds(Path(folder) / "model_benchmarks.json")
            overheads.append(sweep - torch - measured)
            print(f"sweep {sweep:.2f} s, torch {torch:.2f} s, measured {measured:.2f} s: {overheads[-1]:.2f} s beyond")
    print(f"median overhead: {statistics.median(overheads):.2f} s")


if __name__ == "__main__":
    main()
