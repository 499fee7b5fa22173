"""The Python way to a benchmark: checked whole, played, reported, and again from a plan file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from synora.batch.execute import execute
from synora.batch.plan import Plan
from synora.benchmarks import adapters
from synora.benchmarks.runner import BenchmarkRunner, failed
from synora.cli import main
from synora.core.errors import FileError, SynoraError, UsageError
from synora.core.result import Result
from synora.testing.mocking_classes import MockAdapter

CATCH = {"game": "catch/0"}
FILES = [f"benchmark_results.{kind}" for kind in ("csv", "json", "md", "tex")]


def written(folder: Path) -> list[str]:
    return (
        sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".lock")
        if folder.exists()
        else []
    )


def test_the_seeds_example(tmp_path: Path) -> None:
    runner = BenchmarkRunner(adapter_cls=adapters.RandomAdapter, out_dir=tmp_path / "bench")
    report = runner.run(env_spec={"game": "catch/0"}, seeds=[0, 1], num_episodes=3)
    assert written(tmp_path / "bench") == [*FILES, "plan.json"]
    assert json.loads((tmp_path / "bench" / "benchmark_results.json").read_text()) == report
    assert (report["schema_version"], report["kind"], report["agent"]) == (1, "returns", "random")
    assert [seed["eval_seed"] for seed in report["seeds"]] == [0, 1]
    means = report["aggregate"]["per_seed_means"]
    assert means == [sum(seed["episode_returns"]) / 3 for seed in report["seeds"]]
    assert report["aggregate"]["mean"] == pytest.approx(sum(means) / 2)
    assert (report["aggregate"]["num_seeds"], report["aggregate"]["num_episodes"]) == (2, 6)
    fingerprint = report["protocol"]["fingerprint"]
    results = [Result.read(path) for path in (tmp_path / "bench" / "jobs").glob("*.json")]
    assert {result.provenance.protocol for result in results} == {fingerprint} and len(results) == 2
    assert not failed(report)


def test_a_returns_job_runs_from_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = BenchmarkRunner(adapters.RandomAdapter, tmp_path).run(CATCH, "2", 2)
    assert (
        main(["run-job", "--plan", str(tmp_path / "plan.json"), "--index", "1", "--out-dir", str(tmp_path / "b")]) == 0
    )
    (path,) = (tmp_path / "b" / "jobs").glob("*.json")
    again = Result.read(path)
    assert again.job_id == report["seeds"][1]["job_id"]
    assert again.body is not None and again.body["episode_returns"] == report["seeds"][1]["episode_returns"]


class Twice:
    """An adapter that knows nothing of synora, as the seeds describe it."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def load_checkpoint(self, path: str) -> None:
        self.text = Path(path).read_text()

    def evaluate(self, num_episodes: int, render: bool = False) -> dict[str, list[float | None]]:
        if hasattr(self, "text") and "broken" in self.text:
            raise RuntimeError("the weights are all zero")
        return {"episode_returns": [self.factor * k for k in range(num_episodes)]}


def test_an_adapter_of_somebody_else(tmp_path: Path) -> None:
    report = BenchmarkRunner(Twice, tmp_path, {"factor": 2.0}).run(CATCH, [3], 4)
    assert report["agent"] == "Twice"
    assert report["aggregate"]["per_seed_means"] == [3.0]
    assert report["seeds"][0]["episodes"][1] == {
        **dict.fromkeys(("seed", "length", "frames", "error")),
        "index": 1,
        "status": "ok",
        "return": 2.0,
    }


def test_an_adapter_that_cannot_be_imported_runs_here(tmp_path: Path) -> None:
    class Local(Twice):
        own_environments = True

    report = BenchmarkRunner(Local, tmp_path).run({"game": "my own world"}, [0], 2)
    assert report["seeds"][0]["adapter"].endswith("test_an_adapter_that_cannot_be_imported_runs_here.<locals>.Local")
    assert (report["env"]["name"], report["protocol"]) == ("my own world", None)
    assert "my own world" in (tmp_path / "benchmark_results.md").read_text()


def test_an_adapter_of_an_importable_module_is_found_by_name_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_adapters.py").write_text(
        "class Outer:\n    class Mine:\n        def load_checkpoint(self, path): pass\n"
        "        def evaluate(self, num_episodes, render=False): return {'episode_returns': [1.5] * num_episodes}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_adapters

    BenchmarkRunner(my_adapters.Outer.Mine, tmp_path / "out").run(CATCH, [0], 2)
    job = Plan.read(tmp_path / "out" / "plan.json").job(0)
    assert job.params["agent"] == "my_adapters:Outer.Mine"
    sys.modules.pop("my_adapters")
    result = execute(job, tmp_path / "again")
    assert result.body is not None and result.body["mean"] == 1.5


def test_the_mock_adapter_is_an_adapter(tmp_path: Path) -> None:
    (tmp_path / "weights").touch()
    runner = BenchmarkRunner(
        MockAdapter, tmp_path / "out", {"returns": [1.0, None], "checkpoint": tmp_path / "weights"}
    )
    report = runner.run(CATCH, [0, 1], 2)
    assert report["aggregate"]["per_seed_means"] == [None, None]
    assert report["aggregate"]["episodes_failed"] == 2 and failed(report)
    assert "2 of 2 seeds have no mean" in report["aggregate"]["reason"]


def test_a_seed_that_fails_is_reported_and_the_others_stand(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("broken")
    report = BenchmarkRunner(Twice, tmp_path / "out").run(CATCH, [0], 2, checkpoint=tmp_path / "weights")
    seed = report["seeds"][0]
    assert (seed["status"], seed["mean"], seed["episode_returns"]) == ("failed", None, [None, None])
    assert seed["error"]["message"] == "RuntimeError: the weights are all zero"
    assert "failed" in (tmp_path / "out" / "benchmark_results.tex").read_text()
    assert failed(report)


def test_episodes_that_fail_in_the_environment(tmp_path: Path) -> None:
    env = {"game": "dummy", "options": {"fail_at": 3}}
    report = BenchmarkRunner(adapters.RandomAdapter, tmp_path).run(env, [0], 2)
    assert report["seeds"][0]["episode_returns"] == [None, None]
    assert report["seeds"][0]["status"] == "ok" and failed(report)
    assert "dummy failure at step 3" in (tmp_path / "benchmark_results.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seeds": []}, "0 were given"),
        ({"seeds": [0, 0]}, "more than once"),
        ({"seeds": "a"}, "'a'"),
        ({"num_episodes": 0}, "episodes"),
        ({"env_spec": {"game": "catchh/0"}}, "catch/0"),
        ({"env_spec": {"gmae": "catch/0"}}, "game"),
        ({"device": "gpu"}, "gpu"),
        ({"speed": 3}, "'speed'"),
        ({"checkpoint": "nowhere"}, "no checkpoint"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    runner = BenchmarkRunner(adapters.RandomAdapter, tmp_path / "out")
    with pytest.raises(UsageError) as caught:
        runner.run(**{"env_spec": CATCH, "seeds": [0], "num_episodes": 1, **arguments})
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("adapter", "extra", "error"),
    [
        (dict, {}, UsageError),
        (adapters.AgentAdapter, {}, UsageError),
        (adapters.RandomAdapter, {"unknown": 1}, UsageError),
        (Twice, {"factor": object()}, UsageError),
        (adapters.RandomAdapter, {"env_spec": {"game": "bandit/0"}}, UsageError),
        (adapters.RandomAdapter, {"seed": 5}, UsageError),
        (Twice, {"checkpoint": "/no/such/file"}, UsageError),
    ],
)
def test_adapters_and_arguments_that_do_not_work(tmp_path: Path, adapter: type, extra: Any, error: type) -> None:
    with pytest.raises(error):
        BenchmarkRunner(adapter, tmp_path / "out", extra).run(CATCH, [0], 1)
    assert not (tmp_path / "out").exists()


def test_an_adapter_does_not_choose_the_exit_code(tmp_path: Path) -> None:
    class Leaving(Twice):
        def evaluate(self, num_episodes: int, render: bool = False) -> dict[str, list[float | None]]:
            sys.exit(0)

    report = BenchmarkRunner(Leaving, tmp_path / "out").run(CATCH, [0], 1)
    assert failed(report) and "agent Leaving called sys.exit(0)" in report["seeds"][0]["reason"]

    class Early(Twice):
        def __init__(self) -> None:
            sys.exit(4)

    with pytest.raises(SynoraError, match=r"agent Early called sys.exit\(4\)"):
        BenchmarkRunner(Early, tmp_path / "none").run(CATCH, [0], 1)


def test_one_benchmark_a_folder(tmp_path: Path) -> None:
    class Nested(Twice):
        def evaluate(self, num_episodes: int, render: bool = False) -> dict[str, list[float | None]]:
            with pytest.raises(FileError, match="another live process"):
                BenchmarkRunner(Twice, tmp_path / "out").run(CATCH, [3], 1)
            return {"episode_returns": [1.0]}

    assert not failed(BenchmarkRunner(Nested, tmp_path / "out").run(CATCH, [0], 1))
    assert len(Plan.read(tmp_path / "out" / "plan.json").jobs) == 1


def test_an_adapter_whose_constructor_fails_is_named(tmp_path: Path) -> None:
    class Broken(Twice):
        def __init__(self) -> None:
            raise OSError("no such library")

    with pytest.raises(SynoraError, match="agent Broken cannot be loaded: OSError: no such library"):
        BenchmarkRunner(Broken, tmp_path / "out").run(CATCH, [0], 1)
    assert not (tmp_path / "out").exists()


def test_an_interruption_keeps_finished_seeds_and_writes_no_half_report(tmp_path: Path) -> None:
    class Interrupted(Twice):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.seed = seed

        def evaluate(self, num_episodes: int, render: bool = False) -> Any:
            if self.seed == 1:
                raise KeyboardInterrupt
            return super().evaluate(num_episodes)

    with pytest.raises(KeyboardInterrupt):
        BenchmarkRunner(Interrupted, tmp_path).run(CATCH, [0, 1, 2], 1)
    assert written(tmp_path) == ["plan.json"]
    assert len(list((tmp_path / "jobs").glob("*.json"))) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((UsageError, FileError), match="out_dir"):
        BenchmarkRunner(adapters.RandomAdapter, tmp_path / "file" / "out").run(CATCH, [0], 1)
