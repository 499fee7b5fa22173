"""The driver with the real uv, on a tiny project whose packages are wheels made here: no network."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest

PROJECT = """\
[project]
name = "tiny"
version = "0"
requires-python = ">=3.11"
dependencies = ["torch=={torch}", "sweepdeps"]
[project.optional-dependencies]
viz = ["extrapkg"]
[tool.uv]
package = false
"""
# In its own file, so that a test can take the packages away.
LOCAL = 'no-index = true\nfind-links = ["wheels"]\n'

MODULES = "numpy pydantic yaml rich tabulate psutil typer filelock safetensors"


def make_wheel(folder, name, version, files):
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


@pytest.fixture(scope="session")
def real_uv(tmp_path_factory):
    """The uv program itself, not a version manager's shim: a bare PATH must be enough for it."""
    found = os.environ.get("SYNORA_UV") or shutil.which("uv")
    program = "import os; print(os.environ['UV'])"
    if found:
        command = [found, "run", "--no-project", "--no-config", "--offline", "--python", sys.executable]
        asked = subprocess.run(
            [*command, "python", "-c", program],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path_factory.mktemp("nowhere"),
        )
        if asked.returncode == 0:
            return asked.stdout.strip()
        pytest.fail(f"{found} does not run: {asked.stderr}")
    if os.environ.get("CI"):
        pytest.fail("uv is not on PATH: make test brings it")
    pytest.skip("uv is not on PATH: make test brings it, and runs these tests")


@pytest.fixture
def tiny(machine, real_uv):
    """The machine with the real uv, one Python, and a tiny project in the checkout's place."""
    (machine.bin / "uv").symlink_to(real_uv)
    (machine.bin / "python3").symlink_to(os.path.realpath(sys.executable))
    machine.env.update(UV_OFFLINE="1", UV_PYTHON_DOWNLOADS="never", UV_CACHE_DIR=str(machine.base / "uv cache"))
    wheels = machine.root / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "sweepdeps", "1", {f"{name}.py": "" for name in MODULES.split()})
    make_wheel(wheels, "extrapkg", "1", {"extrapkg.py": ""})
    make_wheel(wheels, "stray", "1", {"stray.py": ""})
    (machine.root / "synora").mkdir()
    (machine.root / "synora" / "__init__.py").write_text("")

    def project(torch, extra=LOCAL):
        """Let the project require a version of torch, the only one there is."""
        for old in wheels.glob("torch-*"):
            old.unlink()
        text = f"__version__ = '{torch}'\ncuda: Optional[str] = '12.1'\n"
        make_wheel(wheels, "torch", torch, {"torch/__init__.py": "", "torch/version.py": text})
        (machine.root / "pyproject.toml").write_text(PROJECT.format(torch=torch) + extra)

    machine.project = project
    machine.project("2.0.0+cu121")
    return machine


def site(machine):
    return next((machine.venv / "lib").glob("python*/site-packages"))


def installed(machine):
    return sorted(path.name.removesuffix(".dist-info") for path in site(machine).glob("*.dist-info"))


BASE = ["sweepdeps-1", "torch-2.0.0+cu121"]


def test_from_nothing_to_a_sweep_in_the_projects_environment(tiny):
    elsewhere = tiny.base / "else where"
    elsewhere.mkdir()
    result = tiny.run("--preset", "a b", "--", "--help", "", "*", cwd=elsewhere, SWEEP_EXIT="3")
    assert result.returncode == 3, result.stderr
    assert result.stdout == "the results table\n"
    sweep = tiny.sweep()
    assert sweep["argv"] == ["--preset", "a b", "--help", "", "*"]
    assert sweep["prefix"] == str(tiny.venv)
    assert sweep["cwd"] == str(elsewhere.resolve())
    assert installed(tiny) == BASE
    # Now there is nothing to do, and nothing is said.
    assert tiny.run().stderr == ""


def test_packages_of_the_user_stay(tiny, real_uv):
    assert tiny.run("--extra", "viz").returncode == 0
    assert installed(tiny) == ["extrapkg-1", *BASE]
    command = [
        real_uv,
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        "wheels",
        "stray",
        "--python",
        ".venv",
    ]
    subprocess.run(command, cwd=tiny.root, env=tiny.environ(), check=True)
    assert tiny.run().returncode == 0
    assert installed(tiny) == ["extrapkg-1", "stray-1", *BASE]


def test_an_environment_for_another_python_is_not_rebuilt_unasked(tiny, error_line):
    assert tiny.run().returncode == 0
    # As after an upgrade of the interpreter under the environment: it takes no second Python.
    config = tiny.venv / "pyvenv.cfg"
    lines = config.read_text().splitlines()
    lines = ["version_info = 3.0.1" if line.startswith("version_info") else line for line in lines]
    config.write_text("\n".join(lines) + "\n")
    mark = site(tiny) / "mark"
    mark.write_text("")
    result = tiny.run()
    assert result.returncode == 2
    assert "--recreate" in error_line(result)
    assert mark.exists()
    assert installed(tiny) == BASE
    # The new environment gets the very same torch: only --recreate is needed.
    result = tiny.run("--recreate")
    assert result.returncode == 0, result.stderr
    assert not mark.exists()
    assert installed(tiny) == BASE


def test_a_python_asked_for_does_not_rebuild_unasked(tiny, error_line):
    assert tiny.run().returncode == 0
    # The same interpreter under another path is another interpreter to uv.
    wrapped = tiny.base / "another python"
    wrapped.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" "$@"\n')
    wrapped.chmod(0o755)
    result = tiny.run("--python", str(wrapped))
    assert result.returncode == 2
    assert "--recreate" in error_line(result)
    assert installed(tiny) == BASE


def test_a_project_that_excludes_the_interpreter_leaves_the_environment_alone(tiny, error_line):
    assert tiny.run().returncode == 0
    pyproject = tiny.root / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace(">=3.11", ">=3.99"))
    result = tiny.run()
    assert result.returncode == 1
    assert "uv sync failed" in error_line(result)
    assert installed(tiny) == BASE


@pytest.mark.parametrize(("before", "after"), [("2.0.0+cu121", "2.1.0+cpu"), ("2.0.0", "2.1.0+cpu")])
def test_a_cuda_torch_is_not_replaced_unasked(tiny, error_line, before, after):
    tiny.project(before)
    assert tiny.run().returncode == 0
    tiny.project(after)
    result = tiny.run()
    assert result.returncode == 2
    line = error_line(result)
    assert f"torch {before} (a GPU build, cu121)" in line
    assert f"torch {after}" in line
    assert f"torch-{before}" in installed(tiny)
    result = tiny.run("--no-sync")
    assert result.returncode == 0, result.stderr
    assert tiny.run("--allow-torch-change").returncode == 0
    assert f"torch-{after}" in installed(tiny)


def test_a_lock_without_the_label_does_not_take_a_labelled_torch_away(tiny, error_line):
    # The usual case of a torch from a CUDA index: to uv, the lock's 2.0.0 is another package.
    assert tiny.run().returncode == 0
    tiny.project("2.0.0")
    result = tiny.run()
    assert result.returncode == 2
    assert "--no-sync" in error_line(result)
    assert installed(tiny) == BASE


# Port 1 of this machine: refused at once, and never leaves it.
UNREACHABLE = '[[tool.uv.index]]\nname = "away"\nurl = "http://127.0.0.1:1/simple"\ndefault = true\n'


def test_without_network_the_environment_is_used_as_it_is(tiny):
    assert tiny.run().returncode == 0
    tiny.project("2.1.0+cpu", UNREACHABLE)
    result = tiny.run("--list", UV_OFFLINE="0", UV_HTTP_RETRIES="0", SWEEP_EXIT="1")
    assert result.returncode == 1
    assert tiny.sweep()["argv"] == ["--list"]
    assert tiny.sweep()["prefix"] == str(tiny.venv)
    assert "could not reach the package index" in result.stderr
    assert installed(tiny) == BASE


def test_without_network_and_environment_there_is_one_error(tiny, error_line):
    tiny.project("2.0.0", UNREACHABLE)
    result = tiny.run(UV_OFFLINE="0", UV_HTTP_RETRIES="0")
    assert result.returncode == 1
    assert "could not reach the package index" in error_line(result)


def test_an_interpreter_that_does_not_exist_is_a_usage_error(tiny, error_line):
    result = tiny.run("--python", "3.99")
    assert result.returncode == 2
    assert "--python 3.99 cannot be used" in error_line(result)
    assert not tiny.venv.exists()


def test_a_folder_in_the_environments_place_is_left_alone(tiny, error_line):
    tiny.venv.mkdir()
    (tiny.venv / "thesis.txt").write_text("years of work")
    result = tiny.run("--recreate")
    assert result.returncode == 2
    assert "no Python environment" in error_line(result)
    assert (tiny.venv / "thesis.txt").exists()


def test_signals_pass_through_uv(tiny):
    assert tiny.run().returncode == 0
    assert tiny.run(SWEEP_SIGNAL="9").returncode == 128 + signal.SIGKILL
    started = tiny.base / "started"
    process = subprocess.Popen(
        [str(tiny.bin / "bash"), str(tiny.driver())],
        env=tiny.environ(SWEEP_WAIT=str(started)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert "stopped by SIGTERM" in out
    assert process.returncode == 43
