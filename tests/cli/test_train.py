"""`synora train` as users type it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from synora.cli import main
from synora.core.files import lease

TINY = ["preset=tiny", "game=catch/0", "total_steps=40", "prefill_steps=30", "pretrain_updates=1", "train_every=10"]
TINY += ["seq_len=6", "batch_size=2", "eval_every=40", "eval_episodes=2", "device=cpu"]


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one error line; progress lines may stand before it."""
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("synora: error: ")
    assert not any("Traceback" in line for line in lines)
    return lines[-1]


def test_print_config_shows_the_layers_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("units: 24\nseed: 7\n")
    assert main(["train", "dreamerv2", "--config", str(file), "seed=3", "model_lr=1e-4", "--print-config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["units"], shown["seed"], shown["model_lr"], shown["deter_size"]) == (24, 3, 1e-4, 600)
    assert not Path("runs").exists() or not list(Path("runs").rglob("seed-3"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dreamrv2"], "Did you mean 'dreamerv2'?"),
        (["dreamerv2", "preset=tniy"], "Did you mean 'tiny'?"),
        (["dreamerv2", "preset="], "preset= is empty"),
        (["dreamerv2", "unitz=3"], "Did you mean 'units'?"),
        (["dreamerv2", "class=3"], "class"),
        (["dreamerv1", "class_size=8"], "unknown field 'class_size'"),
        (["dreamerv2", "units"], "is not of the form key=value"),
        (["dreamerv2", "=3"], "is not of the form key=value"),
        (["dreamerv2", "units=many"], "field 'units'"),
        (["dreamerv2", "units="], "units"),
        (["dreamerv2", "units=-1"], "greater than or equal to 1 (got -1)"),
        (["dreamerv2", "units=0"], "greater than or equal to 1 (got 0)"),
        (["dreamerv2", "units=1.5"], "(got 1.5)"),
        (["dreamerv2", "units=true"], "(got True)"),
        (["dreamerv2", "units=[1, 2]"], "(got [1, 2])"),
        (["dreamerv2", "model_lr=nan"], "valid number (got 'nan')"),
        (["dreamerv2", "model_lr=.nan"], "finite number (got nan)"),
        (["dreamerv2", "model_lr=1e999"], "finite number (got inf)"),
        (["dreamerv2", "model_lr=0"], "greater than 0 (got 0)"),
        (["dreamerv2", "actor_init_std=.inf"], "finite number (got inf)"),
        (["dreamerv2", "discount=1.5"], "less than or equal to 1"),
        (["dreamerv2", "seed=-1"], "field 'seed'"),
        (["dreamerv2", "seed=a"], "field 'seed'"),
        (["dreamerv2", "log_every=0"], "field 'log_every'"),
        (["dreamerv2", "num_envs=0"], "field 'num_envs'"),
        (["dreamerv2", "precision=fp16"], "'float32', 'bfloat16' or 'float16' (got 'fp16')"),
        (["dreamerv2", "game="], "game"),
        (["dreamerv2", "game=catchh/0"], "catch"),
        (["dreamerv2", "game=Pnog"], "Did you mean 'Pong'?"),
        (["dreamerv2", "game=catch/0", "env_backend=bsuit"], "Did you mean 'bsuite'?"),
        (["dreamerv2", "game=Pong", "env_backend=bsuite"], "in backend bsuite"),
        (["dreamerv2", "game=Pong", "protocol=atari-10k"], "Did you mean 'atari-100k'?"),
        (["dreamerv2", "game=catch/0", "protocol=atari-100k"], "is for the ale backend"),
        (["dreamerv2", "game=catch/0", "num_envs=7"], "is not a multiple of num_envs=7"),
        (["dreamerv2", "--config", "/nothing.yaml"], "cannot read config file '/nothing.yaml'"),
        (["dreamerv2", "--config", "dreamerv2_cach"], "Did you mean 'dreamerv2_catch'?"),
        (["dreamerv2", "--config", "elsewhere/dreamerv2_catch.yaml"], "Did you mean 'dreamerv2_catch'?"),
        (["dreamerv2", "--confgi", "x"], "--config"),
        (["dreamerv2", "units=3", "--out-dir"], "--out-dir"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    folder = [] if "--out-dir" in arguments else ["--out-dir", str(out)]
    assert main(["train", *arguments, *folder]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"- 1\n- 2\n", "must hold a mapping"),
        (b"3\n", "must hold a mapping"),
        (b"units: [1\n", "is not valid YAML"),
        (b"units: 3\n---\nunits: 4\n", "is not valid YAML"),
        (bytes(range(256)), "is not valid YAML"),
        (b"units: \0\n", "is not valid YAML"),
        (b"game: !!python/object/apply:os.system ['touch ran']\n", "is not valid YAML"),
        (b"unitz: 3\n", "Did you mean 'units'?"),
        (b"units: many\n", "field 'units'"),
        (b"preset: tniy\n", "Did you mean 'tiny'?"),
    ],
)
def test_a_bad_config_file_is_one_line(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my config.yaml").write_bytes(content)
    assert main(["train", "dreamerv2", "--config", "my config.yaml", "--out-dir", "run"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert [path.name for path in Path.cwd().iterdir()] == ["my config.yaml"]


def test_a_folder_is_no_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "dreamerv2", "--config", str(tmp_path)]) == 2
    assert "Is a directory" in complaint(capsys)


def test_a_packaged_experiment_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dreamerv2", "--config", "dreamerv2_catch", "seed=5", "--print-config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["game"], shown["seed"]) == ("catch/0", 5)
    Path("dreamerv2_catch").write_text("units: 24\n")  # a file that exists is what the user means
    assert main(["train", "dreamerv2", "--config", "dreamerv2_catch", "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["units"] == 24
    assert main(["train", "dreamerv1", "--list-configs"]) == 0
    listed = capsys.readouterr().out
    assert "dreamerv1_catch" in listed
    assert "dreamerv2" not in listed


def test_a_missing_library_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    assert main(["train", "dreamerv2", "game=CarRacing-v3", "--out-dir", str(tmp_path / "run")]) == 1
    assert "[box2d]" in complaint(capsys)
    assert not (tmp_path / "run").exists()


def test_memory_that_cannot_be_had_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: object, folder: Path) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 51200000000 bytes.")

    monkeypatch.setattr("synora.algorithms.dreamer.trainer.train_dreamer", train)
    assert main(["train", "dreamerv2", "--out-dir", str(tmp_path / "run")]) == 1
    assert "out of memory; lower batch_size" in complaint(capsys)


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_is_one_line(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert main(["train", "dreamerv2", *TINY, "--out-dir", str(tmp_path / place)]) == 2
    assert "is not writable" in complaint(capsys)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, started as users start one."""
    folder = tmp_path_factory.mktemp("runs") / "my run"
    command = [sys.executable, "-m", "synora", "train", "dreamerv2", *TINY, "--out-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("finished: ")
    assert (folder / "config.yaml").is_file()
    return folder


def again(folder: Path, *more: str, agent: str = "dreamerv2") -> int:
    return main(["train", agent, *TINY, *more, "--out-dir", str(folder)])


def test_a_finished_run_is_left_alone(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again(finished) == 0
    assert "nothing to do" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["seed=1"], "seed was 0"),
        (["game=catch/1"], 'game was "catch/0"'),
        (["game=Pong"], 'game was "catch/0"'),
        (["units=17"], "units was 16"),
        (["num_envs=2"], "num_envs was 1"),
    ],
)
def test_another_run_in_the_folder_is_refused(
    more: list[str], words: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for path in finished.rglob("*") if path.suffix != ".lock")
    assert again(finished, *more) == 2
    assert words in complaint(capsys)
    assert sorted(path for path in finished.rglob("*") if path.suffix != ".lock") == before


def test_the_run_of_another_agent_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again(finished, agent="dreamerv1") == 2
    assert "holds a run of dreamerv2, not of dreamerv1" in complaint(capsys)


def test_two_processes_on_one_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lease(finished / "run"):
        assert again(finished) == 1
    assert "another live process" in complaint(capsys)


@pytest.mark.parametrize("damage", ["truncated", "altered", "manifest"])
def test_a_damaged_checkpoint_is_one_line(
    damage: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    file = newest / ("manifest.json" if damage == "manifest" else "agent.safetensors")
    content = file.read_bytes()
    cut = content[: len(content) // 2]
    file.write_bytes(cut if damage != "altered" else content[:-1] + bytes([content[-1] ^ 1]))
    assert again(folder, "total_steps=60") == 1
    assert str(file) in complaint(capsys)
