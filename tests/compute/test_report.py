"""Reports from results, without torch."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from synora.compute.report import as_csv, as_latex, as_markdown, as_text, write_reports
from synora.core.files import read_json
from synora.core.job import JobSpec
from synora.core.result import ErrorInfo, Provenance, Result


def mode(
    median: float, *, flops: int = 3_000_000_000, noisy: bool = False, lower_bound: bool = False
) -> dict[str, Any]:
    return {
        "timing": {"median_ms": median, "n": 5, "noisy": noisy, "p10_ms": median, "first_call_ms": 2 * median},
        "memory": {"peak_rss_bytes": 64 * 2**20, "cuda_peak_allocated_bytes": None, "missing": {}},
        "flops": flops,
        "macs": flops // 2,
        "flops_lower_bound": lower_bound,
        "items_per_second": 1000.0,
        "achieved_flops_per_second": 1e9,
        "ceiling_share": 0.125,
        "R": 0.5,
    }


def result(
    name: str, modes: dict[str, Any] | None = None, error: ErrorInfo | None = None, rate: float = 3e11
) -> Result:
    spec = JobSpec(kind="compute", name=name, params={"preset": "tiny", "batch_size": 2, "dtype": "fp32"})
    calibration = {"reference_ms": 50.0, "flops_per_second": rate, "size": 2048, "dtype": "bf16"}
    body = {
        "family": "f",
        "calibration": calibration,
        "unit": "frames",
        "items_per_call": 2,
        "parameters": 12345,
        "modes": modes or {},
    }
    return Result(
        job_id=spec.job_id,
        job=spec,
        status="ok" if error is None else "failed",
        error=error,
        provenance=Provenance(started_at="2026-01-01T00:00:00+00:00", wall_seconds=1.0, device={"name": "Fast GPU"}),
        body=body if error is None else None,
    )


RESULTS = [
    result("whole", {"forward": mode(1.5), "forward_backward": mode(4.0), "train_step": mode(5.0, noisy=True)}),
    result("inference", {"forward": mode(2.0, lower_bound=True)}),
    result("broken", error=ErrorInfo(type="ValueError", message="no such layer")),
]


def test_csv_has_a_row_a_case_and_mode_and_empty_cells_where_nothing_applies() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(RESULTS))))
    assert [(row["model"], row["mode"]) for row in rows] == [
        ("whole", "forward"),
        ("whole", "forward_backward"),
        ("whole", "train_step"),
        ("inference", "forward"),
        ("broken", ""),
    ]
    assert rows[0]["median_ms"] == "1.5"
    assert rows[0]["cuda_peak_allocated_bytes"] == ""
    assert rows[0]["device_name"] == "Fast GPU"
    assert (rows[4]["status"], rows[4]["reason"], rows[4]["median_ms"]) == ("failed", "no such layer", "")


def test_the_table_shows_the_last_mode_s_figures_and_marks() -> None:
    lines = as_text(RESULTS).splitlines()
    whole, inference, broken = lines[2], lines[3], lines[4]
    assert "12,345" in whole
    assert "train_step noisy" in whole
    assert "1,000 frames/s" in whole
    assert "12.5" in whole
    assert ">=3" in inference
    assert "no such layer" in broken


def test_a_precision_the_machine_emulates_is_said() -> None:
    assert "emulated" not in as_text([result("case", {"forward": mode(1.0)})])
    assert "bf16 is emulated here" in as_text([result("case", {"forward": mode(1.0)}, rate=1e9)])


def test_a_zero_is_never_shown_for_what_was_not_measured() -> None:
    broken = as_text(RESULTS).splitlines()[4]
    assert not any(character.isdigit() for character in broken)


def test_markdown_says_what_ran_where_and_why_cases_failed() -> None:
    page = as_markdown(RESULTS, {"device_name": "Fast GPU", "threads": 2})
    assert "- device_name: Fast GPU" in page
    assert "- broken failed: no such layer" in page
    assert "| whole " in page


def test_latex_is_a_booktabs_table_with_escaped_text() -> None:
    text = as_latex(RESULTS)
    assert r"\toprule" in text
    assert r"train\_step noisy" in text
    assert r"\% peak" in text


def test_reports_are_whole_and_json_keeps_everything(tmp_path: Path) -> None:
    paths = write_reports(tmp_path, RESULTS, {"threads": 2}, complete=False)
    assert [path.name for path in paths] == [f"model_benchmarks.{kind}" for kind in ("json", "csv", "md", "tex")]
    report = read_json(paths[0])
    assert report["metadata"] == {"complete": False, "threads": 2}
    assert [Result.model_validate(value) for value in report["results"]] == RESULTS
    assert "NaN" not in json.dumps(report)


def test_reports_do_not_depend_on_anything_but_their_input(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_reports(tmp_path / "a", RESULTS, {"threads": 2}, complete=True)]
    second = [path.read_bytes() for path in write_reports(tmp_path / "b", RESULTS, {"threads": 2}, complete=True)]
    assert first == second


def test_no_results_yet_is_still_a_report(tmp_path: Path) -> None:
    write_reports(tmp_path, [], {}, complete=False)
    assert (tmp_path / "model_benchmarks.csv").read_text() == "model,status\n"


@pytest.mark.parametrize("text", ["with | pipe", "50 % & more", "under_score"])
def test_reasons_with_special_characters_do_not_break_the_tables(text: str) -> None:
    rows = [result("case", error=ErrorInfo(type="X", message=text))]
    assert len(as_markdown(rows, {}).split("## Not measured")) == 2
    table = next(line for line in as_markdown(rows, {}).splitlines() if line.startswith("| case"))
    assert table.replace(r"\|", "").count("|") == 13
