"""The reports of collected results: JSON with everything, tidy CSV, Markdown and LaTeX tables. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from synora.batch.collect_tables import aggregates_table, all_tables, returns_table
from synora.batch.collected import KIND, SCHEMA_VERSION, has_results
from synora.core.errors import FileError, SynoraError
from synora.core.files import read_json, write_json, write_text
from synora.core.tables import csv_text, to_latex, to_markdown, to_text

NAME = "collected"
CSV_COLUMNS = (
    "kind",
    "agent",
    "game",
    "backend",
    "protocol",
    "fingerprint",
    "run",
    "train_seed",
    "metric",
    "value",
    "std",
    "low",
    "high",
    "n",
    "of",
    "unit",
    "preset",
    "dtype",
    "device",
    "device_name",
    "host_hash",
    "threads",
    "mode",
    "status",
    "job_id",
    "file",
    "detail",
)
_CSV_BLOCK = 10_000
_COMPUTE_FIGURES = {
    "median_ms": "ms",
    "R": None,
    "items_per_second": "1/s",
    "parameters": None,
    "flops": None,
    "memory_bytes": "bytes",
}

Collected = Mapping[str, Any]


def write_reports(collected: Collected, folder: Path) -> list[Path]:
    """Write the four reports, the JSON last: where it is, the others are too.

    Raises:
        FileError: a file cannot be written.
        SynoraError: no job succeeded, and the folder's earlier report must not be lost to an empty one.
    """
    base = folder / NAME
    if not has_results(collected) and _is_worth_keeping(base.with_suffix(".json")):
        raise SynoraError(
            f"no job succeeded ({counts(collected)}); the earlier report in {folder} has results and was kept. "
            "Choose another folder with --out-dir."
        )
    return [
        write_text(base.with_suffix(".csv"), as_csv(collected)),
        write_text(base.with_suffix(".md"), as_markdown(collected)),
        write_text(base.with_suffix(".tex"), as_latex(collected)),
        write_json(base.with_suffix(".json"), collected),
    ]


def counts(collected: Collected) -> str:
    """Return one line: how many results count, of how many planned jobs, and what is wrong."""
    files, planned = collected["files"], collected["planned"]
    failed = [row for row in collected["failures"] if row["status"] not in ("ok", "skipped")]
    partly = [row for row in collected["failures"] if row["status"] == "ok"]
    skipped = [row for row in collected["failures"] if row["status"] == "skipped"]
    parts = ["1 result counts" if files["counted"] == 1 else f"{files['counted']} results count"]
    if planned is not None:
        parts.append(f"{planned - len(collected['missing'])} of {planned} planned jobs have one")
    for rows, word in ((failed, "failed"), (partly, "with failed games"), (skipped, "skipped")):
        if rows:
            parts.append(f"{len(rows)} {word}")
    if files["problems"]:
        parts.append(f"{len(files['problems'])} file{'s' * (len(files['problems']) != 1)} in doubt")
    return ", ".join(parts)


def as_text(collected: Collected) -> str:
    """Return what the terminal shows: the aggregates, or else the returns, or else only the line of counts."""
    returns = collected["returns"]
    lines = [f"{counts(collected)}."]
    if returns["aggregates"]:
        lines.insert(0, to_text(aggregates_table(returns["aggregates"])) + "\n")
    elif returns["cells"]:
        lines.insert(0, to_text(returns_table(returns["cells"])) + "\n")
    return "\n".join(lines)


def as_markdown(collected: Collected) -> str:
    """Return the Markdown page."""
    parts = ["# Collected results", f"{counts(collected)}."]
    parts += [f"## {title}\n\n{to_markdown(table).strip()}" for title, table in all_tables(collected).items()]
    if collected["notes"]:
        from synora.core.tables import escape_markdown

        parts.append("## Notes\n\n" + "\n".join(f"- {escape_markdown(note)}" for note in collected["notes"]))
    return "\n\n".join(parts) + "\n"


def as_latex(collected: Collected) -> str:
    """Return the tables one after another (packages: booktabs)."""
    parts = [f"% {title}\n{to_latex(table).strip()}" for title, table in all_tables(collected).items()]
    return "\n\n".join(parts) + "\n"


def as_csv(collected: Collected) -> str:
    """Return one row a figure."""
    rows, parts = csv_rows(collected), [csv_text([], CSV_COLUMNS)]
    while block := list(islice(rows, _CSV_BLOCK)):  # all rows at once would need more memory than everything else
        parts.append(csv_text(block, CSV_COLUMNS).partition("\n")[2])
    return "".join(parts)


def csv_rows(collected: Collected) -> Iterator[dict[str, Any]]:
    """Yield the tidy rows; `kind` says what a row is about, and columns that do not apply are left out."""
    for cell in collected["returns"]["cells"]:
        key = {name: cell[name] for name in ("agent", "game", "backend", "protocol", "fingerprint")}
        for run in cell["runs"]:
            own = {name: run[name] for name in ("run", "train_seed", "std")}
            more = {"value": run["mean"], "n": run["episodes"], "detail": run["reason"]}
            yield {"kind": "run", **key, **own, "metric": "return", **more}
        figures = {name: cell[name] for name in ("std", "low", "high", "n")} | {"of": cell["expected"]}
        yield {"kind": "returns", **key, "metric": "return", "value": cell["mean"], **figures, "detail": cell["reason"]}
        score = {"value": cell["hns"], "n": cell["n"], "of": cell["expected"], "detail": cell["hns_reason"]}
        yield {"kind": "returns", **key, "metric": "hns", **score}
    for row in collected["returns"]["aggregates"]:
        key = {name: row[name] for name in ("agent", "protocol", "fingerprint")}
        for metric, one in row["estimates"].items():
            figures = {name: one[name] for name in ("value", "low", "high")}
            games = {"n": row["games_with_scores"], "of": len(row["games"])}
            yield {"kind": "aggregate", **key, "metric": metric, **figures, **games, "detail": one["reason"]}
    for row in collected["published"]:
        key = {"kind": "published", "agent": row["label"], "detail": row["citation"]}
        for game, score in row["scores"].items():
            yield {**key, "game": game, "metric": "return", "value": score}
        for metric, figure in row["figures"].items():
            yield {**key, "metric": metric, "value": figure["value"]}
    yield from _compute_rows(collected)
    yield from _job_rows(collected)


def _compute_rows(collected: Collected) -> Iterator[dict[str, Any]]:
    same = ("preset", "dtype", "device", "device_name", "host_hash", "threads", "mode", "status", "job_id")
    for row in collected["compute"]:
        base = {"kind": "compute", "agent": row["model"], **{name: row[name] for name in same}, "detail": row["reason"]}
        if row["mode"] is None:
            yield base
            continue
        for metric, unit in _COMPUTE_FIGURES.items():
            unit = f"{row['unit']}/s" if metric == "items_per_second" else unit
            yield {**base, "metric": metric, "value": row[metric], "unit": unit}


def _job_rows(collected: Collected) -> Iterator[dict[str, Any]]:
    for row in collected["training"]:
        same = {name: row[name] for name in ("agent", "game", "train_seed", "status", "job_id")}
        yield {"kind": "training", **same, "metric": "step", "value": row["step"], "detail": row["checkpoint"]}
    for row in collected["failures"]:
        same = {name: row[name] for name in ("status", "job_id", "file")}
        yield {"kind": "failure", "metric": row["type"], "agent": row["name"], **same, "detail": row["message"]}
    for row in collected["missing"]:
        yield {
            "kind": "missing",
            "agent": row["name"],
            "status": "missing",
            "job_id": row["job_id"],
            "detail": row["kind"],
        }
    for row in collected["files"]["problems"]:
        yield {"kind": "problem", "status": row["problem"], "file": row["file"], "detail": row["detail"]}


def _is_worth_keeping(path: Path) -> bool:
    """Return whether an earlier report has results; one that we cannot read is not ours to judge, and kept."""
    if not path.exists():
        return False
    try:
        earlier = read_json(path)
        if not isinstance(earlier, dict) or (earlier.get("kind"), earlier.get("schema_version")) != (
            KIND,
            SCHEMA_VERSION,
        ):
            return True
        return has_results(earlier)
    except (FileError, KeyError, TypeError):
        return True
