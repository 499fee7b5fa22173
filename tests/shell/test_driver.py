"""`bash scripts/benchmark_models.sh`: the exact calls it makes, and what reaches the sweep."""

import os
import shlex
import signal
import subprocess
import time

import pytest

ODD = ["", " ", "a b", "*", "$(touch pwned)", "`id`", "line\nbreak", "tab\there", '"', "'", "\\", "ü", "-", "--x=", "~"]


def sync(machine, *flags):
    return ["sync", "--inexact", *flags, "--project", str(machine.root)]


def run(machine, *args, flags=()):
    sweep = str(machine.root / "scripts" / "benchmark_models.py")
    return ["run", "--no-sync", *flags, "--project", str(machine.root), "python", sweep, *args]


def test_a_bare_line_syncs_inexactly_and_runs_the_sweep(machine, uv):
    result = machine.run()
    assert result.returncode == 0
    assert uv.argvs() == [sync(machine), run(machine)]
    assert machine.sweep()["argv"] == []
    assert result.stdout == "the results table\n"


def test_an_existing_environment_is_planned_before_it_is_synced(machine, uv):
    machine.add_venv()
    result = machine.run("--preset", "tiny")
    assert uv.argvs() == [
        [*sync(machine), "--dry-run", "--color", "never"],
        sync(machine),
        run(machine, "--preset", "tiny"),
    ]
    # Nothing to do, nothing to say.
    assert (result.stdout, result.stderr) == ("the results table\n", "")


@pytest.mark.parametrize(
    ("args", "flags", "run_flags", "forwarded"),
    [
        (["--extra", "viz"], ["--extra", "viz"], [], []),
        (["--extra=viz", "--extra", "ml"], ["--extra", "viz", "--extra", "ml"], [], []),
        (["--python", "3.12"], ["--python", "3.12"], ["--python", "3.12"], []),
        (["--python=3.12", "--list"], ["--python", "3.12"], ["--python", "3.12"], ["--list"]),
        (["--all", "--extra", "gpu", "--device", "cuda"], ["--extra", "gpu"], [], ["--all", "--device", "cuda"]),
        (["--preset", "tiny", "--recreate", "--allow-torch-change", "--install-uv"], [], [], ["--preset", "tiny"]),
        (["--", "--extra", "viz", "--no-sync"], [], [], ["--extra", "viz", "--no-sync"]),
        (["a", "--", "b", "--", "--uv-help"], [], [], ["a", "b", "--", "--uv-help"]),
        (["--extra", "VIZ"], ["--extra", "VIZ"], [], []),
        (["--extras", "--pythonic", "--no-sync-x"], [], [], ["--extras", "--pythonic", "--no-sync-x"]),
    ],
)
def test_wrapper_flags_go_to_uv_and_the_rest_to_the_sweep(machine, uv, args, flags, run_flags, forwarded):
    result = machine.run(*args)
    assert result.returncode == 0, result.stderr
    assert uv.argvs() == [sync(machine, *flags), run(machine, *forwarded, flags=run_flags)]
    assert machine.sweep()["argv"] == forwarded


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_odd_arguments_arrive_untouched(machine, uv, separator):
    assert machine.run(*separator, *ODD).returncode == 0
    assert machine.sweep()["argv"] == ODD
    assert not (machine.root / "pwned").exists()


def test_odd_arguments_arrive_untouched_without_uv(machine):
    machine.add_venv()
    assert machine.run("--no-sync", *ODD).returncode == 0
    assert machine.sweep()["argv"] == ODD


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_the_sweeps_and_names_the_wrappers(machine, uv, flag):
    result = machine.run(flag)
    assert machine.sweep()["argv"] == [flag]
    assert "--uv-help" in result.stderr
    assert result.stdout == "the results table\n"


def test_the_wrappers_own_help_needs_nothing(machine):
    result = machine.run("--preset", "tiny", "--uv-help")
    assert (result.returncode, result.stderr) == (0, "")
    for flag in (
        "--no-sync",
        "--extra",
        "--python",
        "--install-uv",
        "--recreate",
        "--allow-torch-change",
        "tensorboard",
        "--help",
    ):
        assert flag in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 88
    assert machine.sweep() is None


@pytest.mark.parametrize(
    "args", [["--extra"], ["--extra", "--list"], ["--extra="], ["--extra", ""], ["--list", "--python"], ["--python="]]
)
def test_a_flag_without_its_value_is_one_line(machine, uv, error_line, args):
    result = machine.run(*args)
    assert result.returncode == 2
    assert "needs a" in error_line(result)
    assert uv.calls() == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [("vis", "did you mean viz?"), ("tensor-board", "did you mean tensorboard?"), ("zzzzzz", "(allowed: box2d,")],
)
@pytest.mark.parametrize("more", [[], ["--no-sync"]])
def test_an_unknown_extra_is_named_before_anything_is_synced(machine, uv, error_line, name, hint, more):
    result = machine.run("--extra", "viz", "--extra", name, *more)
    assert result.returncode == 2
    line = error_line(result)
    assert f"unknown extra {name}" in line
    assert hint in line
    assert "(allowed: box2d, bsuite, gpu, play, plot, tensorboard, video, wandb, ml, viz)" in line
    assert uv.calls() == []


@pytest.mark.parametrize("name", ["ml\nviz", "ml viz", "*", "$(id)", "m" * 5000])
def test_an_extra_that_is_no_name_stays_one_line(machine, uv, error_line, name):
    result = machine.run("--extra", name)
    assert result.returncode == 2
    assert "unknown extra" in error_line(result)
    assert uv.calls() == []


def test_extras_are_read_from_any_layout_of_the_table(machine, uv, error_line):
    (machine.root / "pyproject.toml").write_text(
        '[project]\nname = "x"\nkeywords = [\n  "a=b",\n]\n[project.optional-dependencies]\n'
        'one = [ # comment = "]"\n  "synora[a,b]>=1",\n  "c==2",\n]\n"two-x" = ["d"]\n[other]\nthree = []\n'
    )
    result = machine.run("--extra", "three")
    assert "(allowed: one, two-x)" in error_line(result)
    assert machine.run("--extra", "one", "--extra", "Two_X").returncode == 0


@pytest.mark.parametrize("status", [0, 1, 2, 3, 77])
@pytest.mark.parametrize("no_sync", [True, False])
def test_the_sweeps_exit_code_is_returned(machine, uv, status, no_sync):
    machine.add_venv()
    args = ["--no-sync"] if no_sync else []
    assert machine.run(*args, SWEEP_EXIT=str(status)).returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_sweep_killed_by_a_signal_returns_128_plus_its_number(machine, uv, number):
    machine.add_venv()
    assert machine.run(SWEEP_SIGNAL=str(int(number))).returncode == 128 + number
    assert machine.run("--no-sync", SWEEP_SIGNAL=str(int(number))).returncode == 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_sweep(machine, uv, number):
    machine.add_venv()
    started = machine.base / "started"
    process = subprocess.Popen(
        [str(machine.bin / "bash"), str(machine.driver()), "--no-sync"],
        env=machine.environ(SWEEP_WAIT=str(started)),
        cwd=machine.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 20
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert f"stopped by {number.name}" in out
    assert process.returncode == 43


def test_it_works_from_any_directory_and_stays_there(machine, uv):
    elsewhere = machine.base / "some where"
    elsewhere.mkdir()
    relative = os.path.relpath(machine.driver(), elsewhere)
    for path in (machine.driver(), relative):
        assert machine.run("--out-dir", "results/x", path=path, cwd=elsewhere).returncode == 0
        assert machine.sweep()["cwd"] == str(elsewhere.resolve())
        assert machine.sweep()["argv"] == ["--out-dir", "results/x"]
        assert uv.argvs()[-1] == run(machine, "--out-dir", "results/x")
    assert machine.run(path="benchmark_models.sh", cwd=machine.root / "scripts").returncode == 0


def test_it_works_through_symlinks_to_the_file_and_to_a_folder(machine, uv):
    links = machine.base / "my links"
    links.mkdir()
    (links / "second").symlink_to(os.path.relpath(machine.driver(), links.resolve()))
    (links / "first").symlink_to("second")
    (links / "folder").symlink_to(machine.root)
    for path in (links / "first", "first", links / "folder" / "scripts" / "benchmark_models.sh"):
        result = machine.run(path=path, cwd=links)
        assert result.returncode == 0, result.stderr
        assert uv.argvs()[-1] == run(machine)


def test_it_works_in_a_path_of_odd_characters(machine, uv):
    odd = machine.base / "-o [d]*$d\n%s\\ 'q'"
    machine.root.rename(odd)
    machine.root = odd.resolve()
    for path, cwd in ((machine.driver(), None), (f"{odd.name}/scripts/benchmark_models.sh", machine.base)):
        command = [str(machine.bin / "bash"), "--", str(path), "a"]
        result = subprocess.run(
            command, cwd=cwd, env=machine.environ(), capture_output=True, text=True, timeout=60, check=False
        )
        assert result.returncode == 0, result.stderr
        assert uv.argvs()[-1] == run(machine, "a")


def test_a_script_without_its_checkout_does_not_sync_a_project_further_up(machine, uv, error_line):
    (machine.root / "pyproject.toml").rename(machine.root.parent / "pyproject.toml")
    for args in ([], ["--extra", "viz"], ["--no-sync"]):
        result = machine.run(*args)
        assert result.returncode == 1
        assert "no pyproject.toml" in error_line(result)
    assert uv.calls() == []


def test_it_does_not_mind_the_callers_shell_settings(machine, uv):
    (machine.base / "cd" / "scripts").mkdir(parents=True)
    result = machine.run(
        path="scripts/benchmark_models.sh",
        CDPATH=str(machine.base / "cd"),
        POSIXLY_CORRECT="1",
        GREP_OPTIONS="--color=always",
        UV_NO_PROGRESS="1",
    )
    assert (result.returncode, result.stdout) == (0, "the results table\n")
    assert uv.argvs()[-1] == run(machine)


def test_it_can_be_started_with_sh(machine, uv):
    command = shlex.join(["sh", str(machine.driver()), "a b"])
    result = subprocess.run(
        [str(machine.bin / "bash"), "-c", command], env=machine.environ(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert machine.sweep()["argv"] == ["a b"]


def test_an_active_environment_is_hidden_from_uv(machine, uv):
    # uv would warn at every call that it is not the project's.
    assert machine.run(VIRTUAL_ENV="/some/env").returncode == 0
    assert [call[0] for call in uv.calls()] == ["", ""]


# ---- --no-sync ----


def test_no_sync_uses_the_projects_environment_without_uv(machine, uv):
    venv = machine.add_venv()
    result = machine.run("--no-sync", "--list")
    assert result.returncode == 0
    assert uv.calls() == []
    assert machine.sweep()["argv"] == ["--list"]
    assert str(venv / "bin" / "python") in result.stderr
    assert machine.sweep()["env"]["PYTHONPATH"] == str(machine.root)


def test_no_sync_takes_the_environment_that_was_named(machine):
    machine.add_venv()
    other = machine.add_venv(machine.base / "other env")
    relative = machine.add_venv(machine.root / "rel")
    for value, venv in ((str(other), other), ("rel", relative)):
        result = machine.run("--no-sync", UV_PROJECT_ENVIRONMENT=value, cwd=machine.base)
        assert result.returncode == 0, result.stderr
        assert str(venv / "bin" / "python") in result.stderr


def test_no_sync_refuses_a_named_environment_that_is_none(machine, error_line):
    machine.add_venv()
    result = machine.run("--no-sync", UV_PROJECT_ENVIRONMENT="/no/such")
    assert result.returncode == 2
    assert "UV_PROJECT_ENVIRONMENT=/no/such holds no Python" in error_line(result)


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_no_sync_takes_the_active_environment_next(machine, variable):
    active = machine.add_venv(machine.base / "active")
    machine.add_python()
    result = machine.run("--no-sync", **{variable: str(active)})
    assert result.returncode == 0
    assert str(active / "bin" / "python") in result.stderr


def test_no_sync_says_that_the_projects_environment_comes_before_the_active_one(machine):
    machine.add_venv()
    active = machine.add_venv(machine.base / "active")
    result = machine.run("--no-sync", VIRTUAL_ENV=str(active))
    assert f"not the active {active}" in result.stderr
    assert "UV_PROJECT_ENVIRONMENT" in result.stderr


def test_no_sync_takes_python3_last(machine):
    python = machine.add_python()
    result = machine.run("--no-sync")
    assert result.returncode == 0
    assert f"using {python}" in result.stderr


def test_no_sync_names_what_is_lacking(machine, error_line):
    machine.add_python(modules="torch numpy yaml rich tabulate psutil filelock safetensors synora")
    result = machine.run("--no-sync")
    assert result.returncode == 1
    assert "lacks pydantic, typer" in error_line(result)


def test_no_sync_without_any_python(machine, error_line):
    result = machine.run("--no-sync")
    assert result.returncode == 1
    assert "no Python" in error_line(result)


def test_no_sync_cannot_pick_a_version_but_can_run_a_path(machine, error_line):
    machine.add_venv()
    other = machine.add_python(machine.base / "o" / "python")
    result = machine.run("--no-sync", "--python", "3.12")
    assert result.returncode == 2
    assert "takes the path" in error_line(result)
    result = machine.run("--no-sync", "--python", str(other))
    assert result.returncode == 0
    assert f"using {other}" in result.stderr


def test_no_sync_says_that_an_extra_is_not_installed(machine):
    machine.add_venv()
    result = machine.run("--no-sync", "--extra", "viz")
    assert result.returncode == 0
    assert "viz is not installed" in result.stderr


def test_a_folder_named_torch_beside_the_user_is_not_torch(machine, error_line):
    """The real check, by a real interpreter that has none of the modules."""
    import sys

    python = machine.bin / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)
    here = machine.base / "here"
    (here / "torch").mkdir(parents=True)
    (here / "torch" / "__init__.py").write_text("")
    result = machine.run("--no-sync", cwd=here)
    assert result.returncode == 1
    assert "lacks torch, numpy" in error_line(result)
