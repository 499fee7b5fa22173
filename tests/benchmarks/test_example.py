"""The example runs as its first lines say."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "benchmark_run_and_report.py"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, cwd=cwd)


def test_the_random_agent_by_default(tmp_path: Path) -> None:
    done = run(cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "means of the seeds" in done.stdout
    names = {path.name for path in (tmp_path / "results" / "bench").iterdir()}
    assert {"benchmark_results.json", "table_for_the_paper.tex"} <= names


def test_a_checkpoint_and_a_mistake(tmp_path: Path, dreamer: Callable[..., Path]) -> None:
    done = run("--agent", "dreamerv2", "--checkpoint", str(dreamer()), "--episodes", "2", "--seeds", "3,", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "dreamerv2" in done.stdout
    done = run("--agent", "dreamerv2", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("error: agent dreamerv2 needs a checkpoint")
