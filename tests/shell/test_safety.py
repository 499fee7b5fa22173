"""Syncs that would destroy something stop; failures of the sync say what to do."""

import platform

import pytest

PLAN = "Would use project environment at: .venv\nResolved 153 packages in 2ms\nFound up-to-date lockfile at: uv.lock\n"
REPLACE = "Using CPython 3.12.1 interpreter at: /usr/bin/python3\nWould replace project environment at: .venv\n"

# version.py as torch writes it; the wheel of the default index has no label in its metadata.
CUDA = "__version__ = '2.9.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
CPU = "__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
ROCM = "__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n"
OLD_CUDA = "__version__ = '1.13.1'\ncuda = '11.7'\n"


def planned(uv, *lines, head=PLAN):
    text = head + "".join(f" {line}\n" for line in lines)
    uv.answer("plan", 0, text)
    return text


def synced(uv):
    return [argv for argv in uv.argvs() if argv[0] == "sync" and "--dry-run" not in argv]


# ---- Replacing the environment ----


@pytest.mark.parametrize(
    "head",
    [
        REPLACE,
        "Would replace existing virtual environment at: .venv\n",
        "warning: Ignoring existing virtual environment linked to non-existent Python interpreter\n" + REPLACE,
    ],
)
def test_it_stops_before_uv_rebuilds_an_environment(machine, uv, error_line, head):
    machine.add_venv()
    planned(uv, "+ numpy==2.4.6", head=head)
    result = machine.run()
    assert result.returncode == 2
    line = error_line(result)
    assert str(machine.venv) in line
    assert "--recreate" in line
    assert "--no-sync" in line
    assert synced(uv) == []
    assert machine.sweep() is None


def test_it_names_the_interpreter_that_was_asked_for(machine, uv, error_line):
    machine.add_venv()
    planned(uv, head=REPLACE)
    assert "--python 3.12" in error_line(machine.run("--python", "3.12"))


def test_recreate_allows_it(machine, uv):
    machine.add_venv()
    planned(uv, head=REPLACE)
    assert machine.run("--recreate").returncode == 0
    assert len(synced(uv)) == 1


def test_a_broken_environment_is_planned_too(machine, uv, error_line):
    (machine.venv / "bin").mkdir(parents=True)
    (machine.venv / "bin" / "python").symlink_to("/no/such/python")
    (machine.venv / "pyvenv.cfg").write_text("home = /no/such\n")
    planned(uv, head=REPLACE)
    assert "--recreate" in error_line(machine.run())


def test_the_environment_that_was_named_is_the_one_checked(machine, uv, error_line):
    other = machine.add_venv(machine.base / "other env")
    planned(uv, head=REPLACE)
    assert str(other) in error_line(machine.run(UV_PROJECT_ENVIRONMENT=str(other)))


@pytest.mark.parametrize("text", ["", "Something new and unknown\n"])
def test_a_plan_that_cannot_be_read_stops(machine, uv, error_line, text):
    machine.add_venv()
    uv.answer("plan", 0, text)
    result = machine.run("--recreate")
    assert result.returncode == 1
    assert "cannot be read" in error_line(result)
    assert synced(uv) == []
    assert machine.run("--recreate", "--allow-torch-change").returncode == 0


# ---- Replacing torch ----

LINUX = platform.system() == "Linux" and platform.machine() == "x86_64"


@pytest.mark.parametrize(
    ("installed", "text", "plan", "allowed"),
    [
        # From a CUDA index, by its label: only the same label is sure to be like it.
        ("2.9.0+cu126", CUDA, ["- torch==2.9.0+cu126", "+ torch==2.15.0"], False),
        ("2.9.0+cu126", CUDA, ["- torch==2.9.0+cu126", "+ torch==2.15.0+cpu"], False),
        ("2.9.0+cu126", CUDA, ["- torch==2.9.0+cu126", "+ torch==2.15.0+cu132"], False),
        ("2.9.0+cu126", CUDA, ["- torch==2.9.0+cu126", "+ torch==2.15.0+cu126"], True),
        ("2.9.0+cu126", CUDA, ["~ torch==2.9.0+cu126"], True),
        ("2.9.0+cu126", CUDA, ["- torch==2.9.0+cu126"], False),
        # From the default index.
        ("2.9.0", CUDA, ["- torch==2.9.0", "+ torch==2.15.0+cpu"], False),
        ("2.9.0", CUDA, ["- torch==2.9.0", "+ torch==2.15.0+rocm6.4"], False),
        ("2.9.0", CUDA, ["- torch==2.9.0", "+ torch==2.15.0+cu126"], False),
        ("2.9.0", CUDA, ["- torch==2.9.0", "+ torch==2.15.0+cu128"], True),
        ("2.9.0", CUDA, ["- torch==2.9.0", "+ torch==2.15.0+cu132"], True),
        ("2.9.0", CUDA, ["- torch==2.9.0", "+ torch==2.15.0"], True),
        ("1.13.1", OLD_CUDA, ["- torch==1.13.1", "+ torch==2.15.0+cpu (from file:///x)"], False),
        ("2.9.0+cu126", CUDA, ["- torch==2.9.0+cu126 (from file:///x)", "+ torch==2.15.0 (from file:///y)"], False),
        # Other GPUs.
        ("2.9.0+rocm6.4", ROCM, ["- torch==2.9.0+rocm6.4", "+ torch==2.15.0"], False),
        ("2.9.0", ROCM, ["- torch==2.9.0", "+ torch==2.15.0"], False),
        # Nothing to lose, or nothing lost.
        ("2.9.0+cpu", CPU, ["- torch==2.9.0+cpu", "+ torch==2.15.0"], True),
        ("2.9.0+cu126", CUDA, ["- numpy==1.0", "+ numpy==2.0", "+ torchvision==0.30", "- torch-extra==1"], True),
    ],
)
def test_a_gpu_torch_is_not_lost_unasked(machine, uv, error_line, installed, text, plan, allowed):
    if not LINUX and allowed and plan[-1] == "+ torch==2.15.0" and text == CUDA:
        allowed = False  # elsewhere an unlabelled torch may be a CPU build
    machine.add_venv(torch=installed, text=text)
    planned(uv, "+ aaa==1", *plan, "+ zzz==1")
    result = machine.run()
    if allowed:
        assert result.returncode == 0, result.stderr
        assert len(synced(uv)) == 1
        return
    assert result.returncode == 2
    line = error_line(result)
    assert f"torch {installed} (a GPU build" in line
    assert "--allow-torch-change" in line
    assert "--no-sync" in line
    assert synced(uv) == []
    assert machine.run("--allow-torch-change").returncode == 0
    assert len(synced(uv)) == 1


@pytest.mark.parametrize(
    ("system", "cpu", "status"),
    [("Linux", "x86_64", 0), ("Linux", "aarch64", 2), ("Darwin", "arm64", 2), ("MINGW64_NT", "x86_64", 2)],
)
def test_an_unlabelled_torch_is_a_cuda_build_on_one_platform_only(machine, uv, system, cpu, status):
    (machine.bin / "uname").unlink()
    fake = machine.bin / "uname"
    fake.write_text(f"#!/bin/sh\ncase $1 in -s) echo {system};; -m) echo {cpu};; esac\n")
    fake.chmod(0o755)
    machine.add_venv(torch="2.9.0", text=CUDA)
    planned(uv, "- torch==2.9.0", "+ torch==2.15.0")
    assert machine.run().returncode == status


def test_a_rebuilt_environment_loses_its_torch_too(machine, uv, error_line):
    # uv lists no removals when it deletes the whole environment.
    machine.add_venv(torch="2.9.0+cu126", text=CUDA)
    planned(uv, "+ torch==2.15.0", head=REPLACE)
    result = machine.run("--recreate")
    assert result.returncode == 2
    assert "--allow-torch-change" in error_line(result)
    assert synced(uv) == []
    assert machine.run("--recreate", "--allow-torch-change").returncode == 0


def test_torch_of_a_conda_environment_is_seen(machine, uv, error_line):
    env = machine.add_venv(machine.base / "conda", torch="2.9.0+cu126", text=CUDA)
    (env / "pyvenv.cfg").unlink()
    planned(uv, "- torch==2.9.0+cu126", "+ torch==2.15.0")
    assert "--allow-torch-change" in error_line(machine.run(UV_PROJECT_ENVIRONMENT=str(env)))


# ---- Failing syncs ----

OFFLINE = [
    "error: Failed to fetch: `https://index/simple/torch/`\n  cause: error sending request for url (…)\n"
    "  cause: client error (Connect)\n  cause: dns error: failed to lookup address information\n",
    "error: No solution found when resolving dependencies\n\nhint: Packages were unavailable because the network"
    " was disabled. When the network is disabled, registry packages may only be read from the cache.\n",
    "error: Failed to download `torch`\n  cause: operation timed out\n",
]


@pytest.mark.parametrize("text", OFFLINE)
@pytest.mark.parametrize("stage", ["plan", "sync"])
def test_offline_the_environment_is_used_as_it_is(machine, uv, text, stage):
    venv = machine.add_venv()
    planned(uv, "+ numpy==2.0")
    uv.answer(stage, 2, text)
    result = machine.run("--preset", "tiny", SWEEP_EXIT="1")
    assert result.returncode == 1
    assert machine.sweep()["argv"] == ["--preset", "tiny"]
    assert text in result.stderr
    note = result.stderr.splitlines()[-1]
    assert "could not reach the package index" in note
    assert str(venv / "bin" / "python") in note
    assert "run" not in [argv[0] for argv in uv.argvs()]


def test_offline_without_an_environment_the_active_python_is_used(machine, uv):
    uv.answer("sync", 2, OFFLINE[0])
    python = machine.add_python()
    result = machine.run("--extra", "viz")
    assert result.returncode == 0
    assert f"using {python} as it is" in result.stderr
    assert "not installed for the same reason: viz" in result.stderr


def test_offline_an_environment_without_the_packages_is_passed_over(machine, uv):
    machine.add_python(machine.venv / "bin" / "python", modules="numpy")
    active = machine.add_venv(machine.base / "active")
    uv.answer("plan", 2, OFFLINE[0])
    result = machine.run(VIRTUAL_ENV=str(active))
    assert result.returncode == 0
    assert f"using {active}/bin/python" in result.stderr


def test_offline_with_nothing_to_fall_back_on(machine, uv, error_line):
    uv.answer("sync", 2, OFFLINE[0])
    machine.add_python(modules="numpy")
    result = machine.run()
    assert result.returncode == 1
    line = error_line(result)
    assert "could not reach the package index" in line
    assert "torch" in line
    assert "network" in line


def test_offline_an_interpreter_that_was_asked_for_is_not_replaced_by_another(machine, uv, error_line):
    machine.add_venv()
    uv.answer("plan", 2, OFFLINE[0])
    result = machine.run("--python", "3.13")
    assert result.returncode == 1
    assert "--python 3.13 cannot be provided" in error_line(result)


@pytest.mark.parametrize("stage", ["plan", "sync"])
def test_another_failure_stops_with_a_line_under_uvs_own(machine, uv, error_line, stage):
    machine.add_venv()
    planned(uv, "+ numpy==2.0")
    uv.answer(stage, 2, "error: Failed to build `x`\n")
    result = machine.run()
    assert result.returncode == 1
    assert "uv sync failed (exit 2" in error_line(result)
    assert result.stderr.splitlines()[-2] == "error: Failed to build `x`"
    assert machine.sweep() is None


def test_a_failure_of_a_sync_that_had_nothing_to_do_is_shown(machine, uv, error_line):
    machine.add_venv()
    uv.answer("sync", 2, "error: disk full\n")
    result = machine.run()
    assert result.returncode == 1
    assert error_line(result)
    assert "error: disk full" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "error: No interpreter found for Python 3.99 in managed installations or search path\n",
        "error: Failed to inspect Python interpreter from provided path at `/bin/ls`\n",
        "error: The requested interpreter resolved to Python 3.10.13, which is incompatible with the project's Python "
        "requirement: `>=3.11, <3.14`\n",
    ],
)
def test_a_python_that_cannot_be_used_is_a_usage_error(machine, uv, error_line, text):
    uv.answer("sync", 2, text)
    result = machine.run("--python", "3.99")
    assert result.returncode == 2
    line = error_line(result)
    assert "--python 3.99 cannot be used" in line
    assert ">=3.11,<3.14" in line


def test_a_uv_that_is_too_old(machine, uv, error_line):
    machine.add_venv()
    uv.answer("plan", 2, "error: unexpected argument '--dry-run' found\n")
    result = machine.run()
    assert result.returncode == 1
    assert "too old" in error_line(result)


def test_a_folder_that_is_no_environment(machine, uv, error_line):
    machine.venv.mkdir()
    (machine.venv / "x").write_text("")
    uv.answer(
        "sync",
        2,
        "error: Project virtual environment directory `.venv` cannot be used because it is not a valid Python"
        " environment (no Python executable was found)\n",
    )
    result = machine.run()
    assert result.returncode == 2
    assert "remove that folder" in error_line(result)


def test_an_interrupted_sync_is_no_failure_to_explain(machine, uv):
    uv.answer("sync", -2, "")
    result = machine.run()
    assert result.returncode == 130
    assert "error" not in result.stderr
    assert machine.sweep() is None


def test_uvs_progress_is_shown_on_stderr(machine, uv):
    uv.answer("sync", 0, "Downloading torch (822.0MiB)\nno newline at the end")
    result = machine.run()
    assert "Downloading torch (822.0MiB)\nno newline at the end" in result.stderr
    assert result.stdout == "the results table\n"
