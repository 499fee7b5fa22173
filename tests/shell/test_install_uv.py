"""Where uv is looked for, how it is brought, and what happens when it cannot be had."""

import shlex

import pytest

FAILING_PIP = "echo 'ERROR: No matching distribution found for uv' >&2; exit 1"


def pip_that_installs(machine):
    """Shell text for `python -m`: a pip that puts the stand-in for uv where --target says."""
    source = machine.add_uv(machine.base / "wheel" / "uv")
    copy = shlex.quote(str(source.path))
    text = (
        '[ "$2" = pip ] || exit 1; env >"$HOME/pip.env"; while [ "$1" != --target ]; do shift; done; '
        f'mkdir -p "$2/bin"; cat {copy} >"$2/bin/uv"; "$CHMOD" +x "$2/bin/uv"; exit 0'
    )
    import shutil

    machine.env["CHMOD"] = shutil.which("chmod")
    return source, text


@pytest.mark.parametrize("place", ["home/.local/bin/uv", "home/.cargo/bin/uv", "home/.cache/synora/uv/bin/uv"])
def test_uv_is_found_where_installers_put_it(machine, place):
    uv = machine.add_uv(machine.base / place)
    assert machine.run().returncode == 0
    assert [argv[0] for argv in uv.argvs()] == ["sync", "run"]


def test_synora_uv_comes_first(machine, uv):
    other = machine.base / "my uv"
    other.write_text('#!/bin/sh\n[ "$1" = --version ] || echo "$1" >>"$HOME/other"\n')
    other.chmod(0o755)
    assert machine.run(SYNORA_UV=str(other)).returncode == 0
    assert (machine.home / "other").read_text() == "sync\nrun\n"
    assert uv.calls() == []


def test_synora_uv_that_does_not_run_is_an_error(machine, uv, error_line):
    result = machine.run(SYNORA_UV="/no/such uv")
    assert result.returncode == 2
    assert "SYNORA_UV=/no/such\\ uv does not run" in error_line(result)
    assert uv.calls() == []


def test_a_shim_that_does_not_run_is_passed_over(machine):
    shim = machine.bin / "uv"
    shim.write_text("#!/bin/sh\necho 'pyenv: uv: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    uv = machine.add_uv(machine.home / ".local" / "bin" / "uv")
    assert machine.run().returncode == 0
    assert len(uv.calls()) == 2


def test_pip_brings_uv_into_a_folder_of_its_own(machine):
    uv, pip = pip_that_installs(machine)
    machine.add_python(on_module=pip)
    result = machine.run("--list")
    assert result.returncode == 0, result.stderr
    assert "uv is missing: installing it into" in result.stderr
    place = machine.home / ".cache" / "synora" / "uv"
    assert (place / "bin" / "uv").exists()
    assert [p.name for p in place.parent.iterdir()] == ["uv"]
    assert [argv[0] for argv in uv.argvs()] == ["sync", "run"]
    call = next(c for c in machine.python_calls() if " -m pip " in c)
    assert "--user" not in call
    assert "--break-system-packages" not in call
    # The second time it is found.
    assert "missing" not in machine.run().stderr


def test_pip_settings_of_the_user_do_not_stand_in_the_way(machine):
    _, pip = pip_that_installs(machine)
    machine.add_python(on_module=pip)
    cache = machine.base / "my cache"
    result = machine.run(PIP_USER="1", PIP_REQUIRE_VIRTUALENV="1", XDG_CACHE_HOME=str(cache))
    assert result.returncode == 0, result.stderr
    assert (cache / "synora" / "uv" / "bin" / "uv").exists()
    seen = (machine.home / "pip.env").read_text().splitlines()
    assert "PIP_USER=0" in seen
    assert "PIP_REQUIRE_VIRTUALENV=0" in seen


def test_a_python_without_pip_makes_a_venv_that_has_one(machine):
    uv, pip = pip_that_installs(machine)
    inner = machine.add_python(machine.base / "inner" / "python", on_module=pip)
    on_module = (
        f'[ "$2" = venv ] || {{ echo "No module named pip" >&2; exit 1; }}; mkdir -p "$3/bin"; '
        f'cat {shlex.quote(str(inner))} >"$3/bin/python"; "$CHMOD" +x "$3/bin/python"; exit 0'
    )
    machine.add_python(on_module=on_module)
    result = machine.run()
    assert result.returncode == 0, result.stderr
    assert [argv[0] for argv in uv.argvs()] == ["sync", "run"]


def test_without_uv_and_network_an_environment_with_the_packages_is_used(machine):
    venv = machine.add_venv()
    machine.add_python(on_module=FAILING_PIP, modules="numpy")
    result = machine.run("--preset", "tiny")
    assert result.returncode == 0
    assert machine.sweep()["argv"] == ["--preset", "tiny"]
    assert "No matching distribution found for uv" in result.stderr
    assert f"using {venv}/bin/python as it is" in result.stderr


def test_without_uv_network_and_packages_there_is_one_error(machine, error_line):
    machine.add_python(on_module=FAILING_PIP, modules="numpy")
    result = machine.run()
    assert result.returncode == 1
    line = error_line(result)
    assert "No matching distribution found for uv" in line
    assert "--install-uv" in line
    assert machine.sweep() is None
    assert not list((machine.home / ".cache" / "synora").iterdir())


def test_without_uv_and_python_there_is_one_error(machine, error_line):
    result = machine.run()
    assert result.returncode == 1
    assert "no python3" in error_line(result)


def test_without_a_home_there_is_one_error(machine, error_line):
    environment_without_home = machine.environ
    machine.environ = lambda **more: {k: v for k, v in environment_without_home(**more).items() if k != "HOME"}
    machine.add_python(modules="numpy")
    result = machine.run()
    assert result.returncode == 1
    assert "HOME is not set" in error_line(result)


def test_a_cache_that_cannot_be_written_is_named(machine, error_line):
    (machine.home / ".cache").write_text("a file")
    machine.add_python(modules="numpy")
    result = machine.run()
    assert result.returncode == 1
    assert ".cache/synora cannot be written" in error_line(result)


# ---- The vendor's installer ----


def add_curl(machine, text):
    curl = machine.bin / "curl"
    curl.write_text(f'#!/bin/sh\necho "$*" >>"$HOME/curl.log"\n{text}\n')
    curl.chmod(0o755)
    return machine.home / "curl.log"


INSTALLER = (
    'mkdir -p "$UV_UNMANAGED_INSTALL"; cat "$WHEEL" >"$UV_UNMANAGED_INSTALL/uv"; "$CHMOD" +x "$UV_UNMANAGED_INSTALL/uv"'
)


def test_nothing_is_downloaded_unasked(machine):
    log = add_curl(machine, "exit 1")
    machine.add_python(on_module=FAILING_PIP, modules="numpy")
    assert machine.run().returncode == 1
    assert not log.exists()


def test_install_uv_runs_the_installer_when_pip_cannot(machine):
    uv, _ = pip_that_installs(machine)
    machine.env["WHEEL"] = str(uv.path)
    machine.env["INSTALLER"] = INSTALLER
    log = add_curl(machine, 'while [ "$1" != -o ]; do shift; done; printf "%s\\n" "$INSTALLER" >"$2"')
    machine.add_python(on_module=FAILING_PIP, modules="numpy")
    result = machine.run("--install-uv", "--list")
    assert result.returncode == 0, result.stderr
    assert "astral.sh/uv/install.sh" in log.read_text()
    assert machine.sweep()["argv"] == ["--list"]
    assert [argv[0] for argv in uv.argvs()] == ["sync", "run"]


@pytest.mark.parametrize("text", ["exit 6", 'while [ "$1" != -o ]; do shift; done; echo "exit 3" >"$2"'])
def test_an_installer_that_fails_is_one_error(machine, error_line, text):
    add_curl(machine, text)
    machine.add_python(on_module=FAILING_PIP, modules="numpy")
    result = machine.run("--install-uv")
    assert result.returncode == 1
    line = error_line(result)
    assert "could not be downloaded" in line or "installer failed" in line


def test_install_uv_does_not_install_over_a_uv_that_is_there(machine, uv):
    log = add_curl(machine, "exit 1")
    assert machine.run("--install-uv").returncode == 0
    assert not log.exists()
