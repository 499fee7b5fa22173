"""A copy of the checkout's scripts around a stand-in sweep, and machines to run them on.

A `Machine` sees only the programs in its own `bin`: whatever the real machine has installed (uv,
several Pythons) is invisible until a test puts it there.
"""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]

# Everything the scripts may call besides uv, Python and pip. The list is a promise: a new entry
# is one more thing that a bare machine must have.
TOOLS = "awk bash cat dirname env grep head mkdir mktemp mv paste readlink rm sed sh tr uname".split()

# Writes down how it was started, then ends as the test asks.
SWEEP = """\
import json, os, signal, sys, time
here = os.environ["SWEEP_LOG"]
with open(here, "w") as log:
    json.dump({"argv": sys.argv[1:], "cwd": os.getcwd(), "python": sys.executable,
               "prefix": sys.prefix, "env": dict(os.environ)}, log)
print("the results table")
sys.stdout.flush()
if "SWEEP_WAIT" in os.environ:
    def stop(number, frame):
        print("stopped by", signal.Signals(number).name, flush=True)
        sys.exit(43)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    open(os.environ["SWEEP_WAIT"], "w").close()
    time.sleep(30)
if "SWEEP_SIGNAL" in os.environ:
    os.kill(os.getpid(), int(os.environ["SWEEP_SIGNAL"]))
sys.exit(int(os.environ.get("SWEEP_EXIT", "0")))
"""

# Stands for uv: records each call, answers as the files beside it say, and on `run` starts the
# command that follows its own flags. In shell, since it is started a thousand times.
FAKE_UV = """\
#!{bash}
home={home}
case $1 in
  --version) echo "uv 0.0.0 (fake)"; exit 0 ;;
esac
printf '%s\\1' "${{VIRTUAL_ENV-}}" "$@" >>"$home/calls"
printf '\\2' >>"$home/calls"
if [ "$1" = run ]; then
  while [ $# -gt 1 ] && [ "$1" != python ]; do shift; done
  [ "$1" = python ] || exec "$1"
  shift
  exec {python} -IS "$@"
fi
echo "stdout of uv"
name=sync
case " $* " in *" --dry-run "*) name=plan ;; esac
cat "$home/$name.txt" >&2
status=$(cat "$home/$name.status")
[ "$status" -ge 0 ] || kill "$status" $$
exit "$status"
"""

UP_TO_DATE = """\
Would use project environment at: .venv
Resolved 153 packages in 2ms
Found up-to-date lockfile at: uv.lock
Checked 85 packages in 12ms
Would make no changes
"""

# Stands for a Python: has the modules that HAS_MODULES names, and hands the rest to a real one.
FAKE_PYTHON = """\
#!{bash}
printf '%s\\n' "$0 $*" >>{log}
case "${{1:-}}" in
  -) for name in $2; do
       case " {modules} " in *" $name "*) ;; *) printf '%s, ' "$name" ;; esac
     done
     exit 0 ;;
  -c) exit 0 ;;
  -m) {on_module} ;;
esac
exec {python} -S "$@"
"""

ALL_MODULES = "torch numpy pydantic yaml rich tabulate psutil typer filelock safetensors synora"


def script(path: Path, text: str) -> Path:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@dataclass
class FakeUv:
    """The stand-in for uv, and what it was asked."""

    path: Path
    home: Path

    def answer(self, name: str, status: int, text: str) -> None:
        """Set what `plan` (a dry run) or `sync` prints on stderr and returns."""
        (self.home / f"{name}.txt").write_text(text, encoding="utf-8")
        (self.home / f"{name}.status").write_text(str(status), encoding="utf-8")

    def calls(self) -> list[list[str]]:
        """Every call but `--version`, in order: the VIRTUAL_ENV it saw, then its arguments."""
        log = self.home / "calls"
        if not log.exists():
            return []
        return [call.split("\1")[:-1] for call in log.read_text(encoding="utf-8").split("\2")[:-1]]

    def argvs(self) -> list[list[str]]:
        """The arguments of every call."""
        return [call[1:] for call in self.calls()]


@dataclass
class Machine:
    """A home, a PATH and a checkout to run the scripts of."""

    base: Path
    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def bin(self) -> Path:
        """The only folder on PATH."""
        return self.base / "bin"

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.base / "home"

    @property
    def venv(self) -> Path:
        """The project's environment."""
        return self.root / ".venv"

    def driver(self) -> Path:
        """The script every user types first."""
        return self.root / "scripts" / "benchmark_models.sh"

    def environ(self, **more: str) -> dict[str, str]:
        """The environment variables of a run."""
        return {
            "PATH": str(self.bin),
            "HOME": str(self.home),
            "TMPDIR": str(self.base / "tmp"),
            "LC_ALL": "C.UTF-8",
            "SWEEP_LOG": str(self.base / "sweep.json"),
            **self.env,
            **more,
        }

    def run(
        self,
        *args: str,
        path: Path | str | None = None,
        cwd: Path | None = None,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run the driver as a shell user would: 128+n is what a shell makes of a signal."""
        command = shlex.join(["bash", str(path or self.driver()), *args])
        return subprocess.run(
            [str(self.bin / "bash"), "-c", f"{command}; exit $?"],
            cwd=cwd or self.root,
            env=self.environ(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def sweep(self) -> dict[str, Any] | None:
        """How the sweep was started, or None when it was not."""
        log = self.base / "sweep.json"
        if not log.exists():
            return None
        seen: dict[str, Any] = json.loads(log.read_text(encoding="utf-8"))
        return seen

    def add_uv(self, path: Path | None = None) -> FakeUv:
        """Install the stand-in for uv, by default on PATH."""
        home = self.base / "uv-state"
        home.mkdir(exist_ok=True)
        uv = FakeUv(path or self.bin / "uv", home)
        script(
            uv.path,
            FAKE_UV.format(bash=self.bin / "bash", python=shlex.quote(sys.executable), home=shlex.quote(str(home))),
        )
        uv.answer("plan", 0, UP_TO_DATE)
        uv.answer("sync", 0, "Resolved 153 packages in 2ms\n")
        return uv

    def add_python(self, path: Path | None = None, *, modules: str = ALL_MODULES, on_module: str = "exit 1") -> Path:
        """Install a Python that claims to have `modules`; `on_module` is run for `-m`."""
        return script(
            path or self.bin / "python3",
            FAKE_PYTHON.format(
                bash=self.bin / "bash",
                log=shlex.quote(str(self.base / "python.log")),
                modules=modules,
                on_module=on_module,
                python=shlex.quote(sys.executable),
            ),
        )

    def python_calls(self) -> list[str]:
        """How the fake Pythons were called."""
        log = self.base / "python.log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def add_venv(self, path: Path | None = None, *, torch: str | None = None, text: str = "") -> Path:
        """Make an environment whose Python has everything, and the files of a torch in it."""
        venv = path or self.venv
        self.add_python(venv / "bin" / "python")
        (venv / "pyvenv.cfg").write_text("home = /nowhere\n", encoding="utf-8")
        if torch:
            site = venv / "lib" / "python3.11" / "site-packages"
            (site / f"torch-{torch}.dist-info").mkdir(parents=True)
            (site / "torch").mkdir()
            (site / "torch" / "version.py").write_text(text, encoding="utf-8")
        return venv


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The real checkout."""
    return CHECKOUT


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A bare machine: no uv, no Python; the checkout lies in a folder with a space."""
    root = tmp_path / "a check out"
    scripts = root / "scripts"
    scripts.mkdir(parents=True)
    for file in (CHECKOUT / "scripts").glob("*.sh"):
        shutil.copy(file, scripts)
    shutil.copy(CHECKOUT / "pyproject.toml", root)
    (scripts / "benchmark_models.py").write_text(SWEEP, encoding="utf-8")
    machine = Machine(tmp_path, root.resolve())
    for folder in (machine.bin, machine.home, tmp_path / "tmp"):
        folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"the tests need {tool} on PATH"
        (machine.bin / tool).symlink_to(found)
    return machine


@pytest.fixture
def uv(machine: Machine) -> FakeUv:
    """The machine with a stand-in for uv on PATH."""
    return machine.add_uv()


def one_error(result: subprocess.CompletedProcess[str]) -> str:
    """Return the error line of a run that must have printed just one, and nothing on stdout."""
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if ": error: " in line]
    assert len(lines) == 1, result.stderr
    assert result.stderr.splitlines()[-1] == lines[0]
    return lines[0]


@pytest.fixture
def error_line() -> Any:
    """Give `one_error` to tests: with importlib import mode they cannot import this file."""
    return one_error
