"""Seconds-long checks that the returns benchmark works end to end; the full tests are in tests/benchmarks."""

import json
from pathlib import Path

from synora.benchmarks import adapters
from synora.benchmarks.runner import BenchmarkRunner
from synora.cli import main
from synora.envs.rollout import play_games
from synora.testing.mocking_classes import MockAdapter, MockAgent, MockEnv, MockVectorEnv


def test_the_command_writes_its_reports(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert main(["benchmark", "--agent", "random", "--game", "catch/0", "--episodes", "2", "--out-dir", out]) == 0
    report = json.loads((tmp_path / "out" / "benchmark_results.json").read_text())
    assert len(report["aggregate"]["per_seed_means"]) == 1
    for kind in ("csv", "md", "tex"):
        assert (tmp_path / "out" / f"benchmark_results.{kind}").stat().st_size > 0


def test_the_runner_with_a_built_in_and_a_mock_adapter(tmp_path: Path) -> None:
    report = BenchmarkRunner(adapters.RandomAdapter, tmp_path / "random").run({"game": "dummy"}, [0], 2)
    assert report["aggregate"]["per_seed_means"] == [55.0]  # 1 + 2 + … + 10, whatever the actions
    (tmp_path / "weights").touch()
    report = BenchmarkRunner(MockAdapter, tmp_path / "mock", {"returns": [1.0, 3.0]}).run(
        {"game": "dummy"}, [0, 1], 2, checkpoint=tmp_path / "weights"
    )
    assert report["aggregate"]["per_seed_means"] == [2.0, 2.0]


def test_games_of_mock_environments() -> None:
    games = play_games(lambda: MockVectorEnv(2, lambda: MockEnv(length=4)), MockAgent(), [7, 8, 9])
    assert [game.score for game in games] == [4.0, 4.0, 4.0]
