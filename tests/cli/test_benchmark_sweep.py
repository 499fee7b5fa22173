"""`synora benchmark --sweep`: tasks of bsuite with bsuite's scores."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from synora.benchmarks.bsuite_report import published_scores
from synora.cli import main


def sweep(out: Path, *flags: str) -> int:
    common = ["benchmark", "--agent", "random", "--env-backend", "bsuite", "--device", "cpu", "--out-dir", str(out)]
    return main([*common, *flags])


def test_a_short_sweep_is_partial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compile_latex: pytest.FixtureRequest
) -> None:
    assert sweep(tmp_path, "--sweep", "catch", "--episodes", "2") == 0
    assert "partial" in capsys.readouterr().out
    found = json.loads((tmp_path / "bsuite_results.json").read_text())
    (agent,) = found["agents"]
    (experiment,) = [row for row in agent["experiments"] if row["experiment"] == "catch"]
    assert experiment["complete"] is False and 0 <= experiment["score"] <= 1
    assert len(list((tmp_path / "jobs").glob("*.json"))) == 20
    printed = compile_latex((tmp_path / "bsuite_results.tex").read_text())  # type: ignore[operator]
    assert "DreamerV3, published" in printed and "0.96" in printed


@pytest.mark.parametrize(
    ("flags", "message"), [(["--sweep", "catsh"], "catsh"), (["--sweep", "catch", "--game", "catch/0"], "--game")]
)
def test_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    assert sweep(tmp_path / "out", *flags) == 2
    assert message in capsys.readouterr().err


def test_published_scores_are_those_of_the_reference() -> None:
    path = Path(__file__).resolve().parents[3] / "shared" / "reference" / "bsuite" / "published_scores.csv"
    if not path.exists():
        pytest.skip("no ../shared")
    rows = list(csv.DictReader(path.open()))
    names = {"Dreamer": "DreamerV3"}  # the column of that paper's own agent
    expected = {
        (names.get(row["agent"], row["agent"]), row["name"]): float(row["score"])
        for row in rows
        if row["level"] != "overall"
    }
    assert expected == {
        (agent, name): score for agent, scores in published_scores().items() for name, score in scores.items()
    }
