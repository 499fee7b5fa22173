"""What is shipped: the lock file and the wheel."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXPORT = ["export", "--quiet", "--all-extras", "--no-dev", "--no-emit-project", "--no-header"]


def uv() -> str:
    program = os.environ.get("SYNORA_UV") or shutil.which("uv")
    assert program, "uv is needed; `make test` finds or installs it"
    return program


def test_requirements_lock_matches_pyproject() -> None:
    fresh = subprocess.run(
        [uv(), *EXPORT, "--format", "requirements-txt", "--project", str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    assert fresh.stdout == (ROOT / "requirements.lock").read_text(), "requirements.lock is out of date: make lock"


def test_requirements_lock_has_hashes_and_no_addresses() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "torch==" in text
    assert "://" not in text
    requirements = [
        line for line in text.replace("\\\n", "").splitlines() if line and not line.lstrip().startswith("#")
    ]
    assert len(requirements) > 20
    assert all("--hash=sha256:" in line for line in requirements)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment outside the checkout that holds the built wheel; its dependencies are borrowed from ours."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("synora-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A .pth file adds our libraries behind the environment's own; the .pth files in there (the editable checkout) are
    # not read again.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [
            uv(),
            "pip",
            "install",
            "--offline",
            "--no-deps",
            "--python",
            str(folder / "venv" / "bin" / "python"),
            str(wheel),
        ],
        check=True,
        capture_output=True,
    )
    return folder / "venv" / "bin"


def run(program: Path, *arguments: str) -> str:
    """Run a program of the fresh environment, away from the checkout and from what leads back to it."""
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    command = [str(program), *arguments]
    return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_wheel_runs_outside_the_checkout(installed: Path) -> None:
    where = run(installed / "python", "-c", "import synora; print(synora.__file__)").strip()
    assert Path(where).is_relative_to(installed.parent), "the test must not run the checkout"
    assert "sweep" in run(installed / "synora", "--help")
    assert "dreamerv2-world-model" in run(installed / "synora", "sweep", "--list")


def test_the_wheel_brings_its_yaml(installed: Path, tmp_path: Path) -> None:
    """A sweep needs the presets file, and runs from the wheel alone."""
    flags = ["--models", "dreamerv1-encoder", "--no-backward", "--iters", "1", "--warmup", "1", "--device", "cpu"]
    table = run(installed / "synora", "sweep", *flags, "--out-dir", str(tmp_path))
    assert "dreamerv1-encoder  ok" in table


def test_the_wheel_brings_the_experiments(installed: Path) -> None:
    shown = run(installed / "synora", "train", "dreamerv2", "--config", "dreamerv2_catch", "--print-config")
    assert "game: catch/0" in shown
