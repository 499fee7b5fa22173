"""Imports point one way, and planning never loads torch (DESIGN.md section 2)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "synora"

# A module may import from lower layers and from its own package. `compute.case` is the contract that algorithms
# fill in (`BenchCase`), so it stands with the contracts; `benchmarks.runner` plans and runs jobs, so it stands above
# `batch`; modules that people start with `python -m` are programs, above everything.
LAYERS = {
    "core": 0,
    "compute.case": 0,
    "runtime": 1,
    "nn": 1,
    "envs": 1,
    "algorithms": 2,
    "configs": 3,
    "models": 3,
    "training": 3,
    "benchmarks": 3,
    "compute": 3,
    "inference": 3,
    "testing": 3,
    "batch": 4,
    "benchmarks.runner": 5,
    "cli": 6,
    "programs": 7,
}
PROGRAMS = ("benchmarks.cli", "benchmarks.atari_100k", "training.train_")
TORCH_FREE = [
    "synora",
    "synora.cli",
    "synora.cli.sweep",
    "synora.cli.doctor",
    "synora.core.config",
    "synora.core.files",
    "synora.core.job",
    "synora.core.machine",
    "synora.core.registry",
    "synora.core.result",
    "synora.batch.plan",
    "synora.batch.execute",
    "synora.batch.local",
    "synora.compute.case",
    "synora.compute.catalog",
    "synora.compute.report",
    "synora.compute.settings",
    "synora.cli.train",
    "synora.cli.envs",
    "synora.cli.benchmark",
    "synora.cli.benchmark_training",
    "synora.benchmarks.adapters",
    "synora.benchmarks.handler",
    "synora.benchmarks.reporting",
    "synora.benchmarks.runner",
    "synora.benchmarks.settings",
    "synora.testing.mocking_classes",
    "synora.envs.factory",
    "synora.envs.rollout",
    "synora.training",
    "synora.benchmarks.bsuite_scores",
    "synora.benchmarks.cli",
    "synora.benchmarks.metrics",
    "synora.benchmarks.published",
    "synora.benchmarks.scores",
    "synora.algorithms.dreamer.bench",
    "synora.algorithms.dreamer.config",
]


def modules() -> list[Path]:
    inside = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE]
    return sorted(path for path in inside if path.parent.name != "tests")  # smoke tests use everything


def unit_of(module: str) -> str:
    """Return the layered unit a dotted module name below `synora.` belongs to."""
    if module.startswith(PROGRAMS):
        return "programs"
    return next((unit for unit in LAYERS if "." in unit and module.startswith(unit)), module.split(".")[0])


def imports_of(path: Path) -> set[str]:
    """Return the dotted names below `synora.` that a file imports, whatever the block they stand in."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return {name.removeprefix("synora.") for name in found if name.startswith("synora.")}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    unit = unit_of(own)
    assert unit in LAYERS, f"{own}: give synora.{unit} a place in LAYERS"
    for name in imports_of(path):
        other = unit_of(name)
        if other == "__version__" or other not in LAYERS:
            assert other == "__version__", f"{own} imports synora.{name}, which has no layer"
            continue
        if other == unit:
            if unit == "algorithms" and "." in own and "." in name:
                assert name.split(".")[1] == own.split(".")[1], f"{own} imports another algorithm: synora.{name}"
            continue
        assert LAYERS[other] < LAYERS[unit], f"{own} (layer {LAYERS[unit]}) imports synora.{name} ({LAYERS[other]})"


def test_planning_does_not_import_torch() -> None:
    code = f"import sys, {', '.join(TORCH_FREE)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_import_time_is_that_of_its_libraries() -> None:
    """`synora --help` must not pull in the slow libraries; the time itself is a recorded benchmark."""
    slow = ("torch", "numpy", "pandas", "scipy", "gymnasium", "ale_py", "pydantic")
    code = (
        "import sys; sys.argv = ['synora', '--help']\nfrom synora.cli import main\nmain()\n"
        f"print([name for name in {slow!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage: synora" in done.stdout
    assert done.stderr.strip() == "[]"
