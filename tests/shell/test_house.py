"""scripts/env.sh, the Makefile and CI: the lines a developer types."""

import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml


def env_sh(machine, *args, **env):
    return subprocess.run(
        [str(machine.bin / "bash"), str(machine.root / "scripts" / "env.sh"), *args],
        env=machine.environ(**env),
        cwd=machine.base,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_env_sh_syncs_everything_then_runs_the_command(machine, uv):
    result = env_sh(machine, "--all-extras", "--", "python", "-c", "print('hello')")
    assert (result.returncode, result.stdout) == (0, "hello\n")
    project = ["--project", str(machine.root)]
    assert uv.argvs() == [
        ["sync", "--inexact", "--all-extras", *project],
        ["run", "--no-sync", *project, "python", "-c", "print('hello')"],
    ]


def test_env_sh_without_a_command_only_syncs(machine, uv):
    assert env_sh(machine, "--extra", "viz").returncode == 0
    assert [argv[0] for argv in uv.argvs()] == ["sync"]


def test_env_sh_no_sync_runs_the_environments_own_programs(machine, uv):
    venv = machine.add_venv()
    tool = venv / "bin" / "tool"
    tool.write_text('#!/bin/sh\nprintf "%s|" "$@"\nuv sync --inexact >/dev/null 2>&1 && echo uv\nexit 5\n')
    tool.chmod(0o755)
    result = env_sh(machine, "--no-sync", "tool", "--extra", "a b")
    assert (result.returncode, result.stdout, result.stderr) == (5, "--extra|a b|uv\n", "")


def test_env_sh_makes_a_private_uv_reachable(machine):
    private = machine.add_uv(machine.home / ".cache" / "synora" / "uv" / "bin" / "uv")
    machine.add_venv()
    result = env_sh(machine, "--no-sync", "--", "uv", "sync", "--dry-run")
    assert result.returncode == 0
    assert private.argvs() == [["sync", "--dry-run"]]


@pytest.mark.parametrize(
    ("args", "what"),
    [(["--all"], "unknown flag --all"), (["--extra", "vis"], "did you mean viz?"), (["--extra"], "needs")],
)
def test_env_sh_refuses_what_it_does_not_know(machine, uv, error_line, args, what):
    result = env_sh(machine, *args)
    assert result.returncode == 2
    assert what in error_line(result)
    assert uv.calls() == []


def test_env_sh_names_a_program_that_is_not_there(machine, error_line):
    machine.add_venv()
    result = env_sh(machine, "--no-sync", "--", "no-such-tool")
    assert result.returncode == 1
    assert "no-such-tool is not in the environment" in error_line(result)


# ---- Makefile ----


@pytest.fixture
def make(machine, checkout):
    """Run make, from elsewhere, in a checkout whose path has a space."""
    program = shutil.which("make")
    assert program, "the tests need make"
    shutil.copy(checkout / "Makefile", machine.root)

    def call(*args, **env):
        return subprocess.run(
            [program, "-C", str(machine.root), *args],
            env=machine.environ(**env),
            cwd=machine.base,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def test_make_shows_its_targets(make):
    result = make()
    assert result.returncode == 0
    for target in ("help", "bench", "bench-all", "test", "lint", "format", "check", "lock", "docs", "clean"):
        assert re.search(rf"^  make {target} +\w", result.stdout, re.MULTILINE), target


@pytest.mark.parametrize(("target", "first"), [("bench", []), ("bench-all", ["--all"])])
def test_make_bench_passes_its_arguments_and_the_failure_on(make, machine, uv, target, first):
    result = make(target, "BENCH_ARGS=--preset small --models a,b --extra viz", SWEEP_EXIT="1")
    assert result.returncode == 2  # make's own code for a failed line
    assert "Error 1" in result.stderr
    assert machine.sweep()["argv"] == [*first, "--preset", "small", "--models", "a,b"]
    assert uv.argvs()[0][2:4] == ["--extra", "viz"]


def test_make_test_syncs_everything_and_runs_pytest_in_parallel(make, machine, uv):
    venv = machine.add_venv()
    pytest_program = venv / "bin" / "pytest"
    pytest_program.write_text('#!/bin/sh\necho "pytest $*"\n')
    pytest_program.chmod(0o755)
    result = make("test", "TEST_ARGS=-k rssm")
    assert result.returncode == 0, result.stderr
    assert "pytest -n auto -k rssm" in result.stdout.splitlines()
    assert uv.argvs()[-1] == ["sync", "--inexact", "--all-extras", "--project", str(machine.root)]


# ---- Files that must agree ----


def test_the_modules_a_fallback_needs_are_dependencies(checkout):
    text = (checkout / "scripts" / "lib.sh").read_text()
    modules = set(re.search(r"^SWEEP_IMPORTS='(.*)'$", text, re.MULTILINE)[1].split())
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    names = {re.match(r"[\w-]+", line)[0].lower() for line in project["dependencies"]}
    names = {"yaml" if name == "pyyaml" else name.replace("-", "_") for name in names}
    assert modules - {"synora"} <= names
    assert "(3, 11)" in text
    assert project["requires-python"].startswith(">=3.11,")


def test_the_scripts_and_ci_are_executable_and_name_no_package_index(checkout):
    for path in (*(checkout / "scripts").glob("*.sh"), checkout / ".ci" / "run"):
        text = path.read_text()
        assert "pypi" not in text.lower()
        if text.startswith("#!"):
            assert path.stat().st_mode & 0o111, path
            assert "set -euo pipefail" in text
        subprocess.run(["bash", "-n", str(path)], check=True)


def test_pre_commit_fetches_nothing(checkout):
    config = yaml.safe_load((checkout / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    assert {hook["language"] for hook in config["repos"][0]["hooks"]} == {"system"}


def test_the_driver_runs_under_this_interpreter_too(checkout):
    """The committed script itself, in the environment the tests run in: no copy, no stand-in."""
    result = subprocess.run(
        [
            "bash",
            str(checkout / "scripts" / "env.sh"),
            "--no-sync",
            "--",
            "python",
            "-c",
            "import sys; print(sys.prefix)",
        ],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "UV_PROJECT_ENVIRONMENT": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout.strip()) == (0, sys.prefix), result.stderr
