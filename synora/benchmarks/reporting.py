"""Reports of the returns benchmark: JSON with everything, CSV with a row a seed, Markdown and LaTeX tables. Torch-free.

Every function reads the mapping that `build_report` makes and `benchmark_results.json` holds.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.benchmarks.episodes import STATISTICS, spread
from synora.core.files import write_json, write_text
from synora.core.result import Result
from synora.core.tables import Column, Table, csv_text, escape_markdown, to_latex, to_markdown, to_text

SCHEMA_VERSION = 1
REPORT_NAME = "benchmark_results"
COMBINED_NAME = "combined_benchmark_results"

Report = Mapping[str, Any]

_COLUMNS = (
    Column("agent", "left"),
    Column("environment", "left"),
    *map(Column, ("eval seed", "train seed", "episodes", "mean", "std", "median", "min", "max")),
)
_CSV_BODY = ("num_episodes", "episodes_failed", *STATISTICS, "num_envs", "device", "adapter")


def build_report(results: Sequence[Result], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of one agent in one environment.

    Args:
        results: one an evaluation seed.
        about: `agent`, `env`, `protocol` and `metadata`.

    Returns:
        JSON values: `schema_version`, `kind`, what `about` holds, `seeds` (the body of every result with its status,
        error and provenance) and `aggregate` (`per_seed_means` in the order of `seeds`, `mean`, `std`, …).
    """
    seeds = [_seed_record(result) for result in results]
    return {"schema_version": SCHEMA_VERSION, "kind": "returns", **about, "seeds": seeds, "aggregate": aggregate(seeds)}


def aggregate(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures over seeds: None, with a `reason`, as soon as one seed has no mean."""
    means = [seed["mean"] for seed in seeds]
    missing = [seed for seed in seeds if seed["mean"] is None]
    found: dict[str, Any] = {"per_seed_means": means, "mean": None, "std": None, "reason": None}
    if missing:
        found["reason"] = f"{len(missing)} of {len(seeds)} seeds have no mean; the first: {missing[0]['reason']}"
    else:
        found |= {"mean": statistics.fmean(means), "std": spread(means)}
        if len(means) == 1:
            found["reason"] = "one seed has no spread"
    return {
        **found,
        "num_seeds": len(seeds),
        "num_episodes": sum(seed["num_episodes"] for seed in seeds),
        "episodes_failed": sum(seed["episodes_failed"] for seed in seeds),
        "note": _note(seeds),
    }


def export_json(results: Report, path: str | os.PathLike[str]) -> Path:
    """Write the report as JSON, atomically; errors as `synora.core.files.write_json`."""
    return write_json(path, results)


def export_csv(results: Report, path: str | os.PathLike[str]) -> Path:
    """Write one row a seed as CSV, atomically; a figure that does not exist is an empty cell."""
    return write_text(path, csv_text(csv_rows(results)))


def export_markdown(results: Report, path: str | os.PathLike[str]) -> Path:
    """Write a Markdown page, atomically: what was played, the table, and what failed."""
    return write_text(path, as_markdown(results))


def export_latex(results: Report, path: str | os.PathLike[str]) -> Path:
    """Write a booktabs table, atomically."""
    return write_text(path, as_latex(results))


def write_reports(results: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write `benchmark_results.{json,csv,md,tex}` and return their paths.

    Raises:
        FileError: a file cannot be written.
    """
    base = Path(folder) / REPORT_NAME
    # The JSON last: where it is, the others are too.
    return [
        export_csv(results, base.with_suffix(".csv")),
        export_markdown(results, base.with_suffix(".md")),
        export_latex(results, base.with_suffix(".tex")),
        export_json(results, base.with_suffix(".json")),
    ]


def write_combined(reports: Mapping[str, Report], folder: str | os.PathLike[str]) -> list[Path]:
    """Write `combined_benchmark_results.{json,csv}` of several agents in one environment and return their paths.

    Args:
        reports: agent -> its report.
        folder: where.

    Raises:
        FileError: a file cannot be written.
    """
    first = next(iter(reports.values()))
    combined = {
        "schema_version": SCHEMA_VERSION,
        "kind": "returns-combined",
        "env": first["env"],
        "protocol": first["protocol"],
        "metadata": first["metadata"],
        "agents": {agent: {key: report[key] for key in ("aggregate", "seeds")} for agent, report in reports.items()},
    }
    base = Path(folder) / COMBINED_NAME
    rows = [row for report in reports.values() for row in csv_rows(report)]
    return [write_text(base.with_suffix(".csv"), csv_text(rows)), write_json(base.with_suffix(".json"), combined)]


def csv_rows(report: Report) -> list[dict[str, Any]]:
    """Return one flat row a seed."""
    protocol, rows = report["protocol"] or {}, []
    for seed in report["seeds"]:
        lengths = [episode["length"] for episode in seed["episodes"] if episode["length"] is not None]
        checkpoint = seed["checkpoint"] or {}
        rows.append(
            {
                "agent": report["agent"],
                "game": report["env"]["name"],
                "backend": report["env"]["backend"],
                "protocol": protocol.get("name"),
                "protocol_fingerprint": protocol.get("fingerprint"),
                "eval_seed": seed["eval_seed"],
                "train_seed": seed["train_seed"],
                "status": seed["status"],
                **{name: seed[name] for name in _CSV_BODY},
                "mean_length": statistics.fmean(lengths) if lengths else None,
                "checkpoint": checkpoint.get("path"),
                "checkpoint_step": checkpoint.get("step"),
                "wall_seconds": round(seed["provenance"]["wall_seconds"], 3),
                "reason": seed["reason"],
            }
        )
    return rows


def as_text(reports: Iterable[Report]) -> str:
    """Return the table for a terminal, of one agent or several."""
    return to_text(_table(reports))


def as_markdown(report: Report) -> str:
    """Return the Markdown page."""
    env, protocol, total = report["env"], report["protocol"] or {}, report["aggregate"]
    facts = {
        "agent": report["agent"],
        "environment": f"{env['name']} ({env['backend']}), asked for as {env['game']}",
        "protocol": f"{protocol.get('name')}, fingerprint {protocol.get('fingerprint')}" if protocol else "unknown",
        "checkpoint": ", ".join(_checkpoints(report["seeds"])) or "none",
        **report["metadata"],
    }
    lines = "\n".join(
        f"- {name}: {escape_markdown(_plain(value))}" for name, value in facts.items() if value is not None
    )
    notes = "".join(f"\n{text}\n" for text in (_LEGEND, total["note"]) if text)
    failed = "".join(f"- {escape_markdown(line)}\n" for line in failures(report))
    tail = f"\n## Failed\n\n{failed}" if failed else ""
    title = escape_markdown(f"Returns of {report['agent']} in {env['name']}")
    return f"# {title}\n\n{lines}\n\n{to_markdown(_table([report]))}{notes}{tail}"


def as_latex(report: Report) -> str:
    """Return the LaTeX table (package booktabs)."""
    return to_latex(_table([report]))


def failures(report: Report) -> list[str]:
    """Return a line for every seed and episode that failed."""
    lines = []
    for seed in report["seeds"]:
        if seed["status"] != "ok":
            lines.append(f"seed {seed['eval_seed']} {seed['status']}: {seed['reason']}")
        for episode in seed["episodes"]:
            if episode["status"] != "ok":
                lines.append(f"seed {seed['eval_seed']}, episode {episode['index']} failed: {episode['error']}")
    return lines


_LEGEND = """\
Returns are sums of raw rewards over whole games. Of a seed: over its episodes. `all`: over the means of the seeds. std
is the sample standard deviation (n - 1). A row in which an episode failed has no figures."""


def _seed_record(result: Result) -> dict[str, Any]:
    """Return what a result says of its seed, with the same keys whether it has a body or not."""
    params: Any = result.job.params
    empty: dict[str, Any] = {
        **{name: params[name] for name in ("eval_seed", "device", "preset", "num_envs")},
        **dict.fromkeys(("adapter", "train_seed", *STATISTICS)),
        "checkpoint": None if params["checkpoint"] is None else {"path": params["checkpoint"]},
        "num_episodes": params["episodes"],
        "episodes_failed": params["episodes"],
        "episode_returns": [None] * params["episodes"],
        "reason": result.error.message if result.error else None,
        "episodes": [],
    }
    body = {key: value for key, value in (result.body or {}).items() if key not in ("agent", "env", "protocol")}
    return {
        **empty,
        **body,
        "status": result.status,
        "error": result.error.model_dump(mode="json") if result.error else None,
        "job_id": result.job_id,
        "attempt": result.attempt,
        "provenance": result.provenance.model_dump(mode="json"),
    }


def _note(seeds: Sequence[Mapping[str, Any]]) -> str | None:
    """Say what the spread over seeds is not."""
    runs = {(seed["checkpoint"] or {}).get("path") for seed in seeds} - {None}
    if len(runs) > 1:
        return f"The {len(seeds)} seeds evaluate {len(runs)} training runs."
    if runs and len(seeds) > 1:
        return (
            f"All seeds evaluate one training run (train seed {seeds[0]['train_seed']}): the spread over seeds says "
            "how much the evaluation varies, not how much training does."
        )
    return None


def _table(reports: Iterable[Report]) -> Table:
    rows: list[list[str]] = []
    for report in reports:
        rows += [_row(report, seed) for seed in report["seeds"]]
        total = report["aggregate"]
        count = f"{total['num_episodes']}"
        if total["num_seeds"] > 1:
            figures = [_figure(total["mean"]), _figure(total["std"]), "", "", ""]
            rows.append([report["agent"], report["env"]["name"], "all", "", count, *figures])
    return Table.of(_COLUMNS, rows)


def _row(report: Report, seed: Mapping[str, Any]) -> list[str]:
    failed, count = seed["episodes_failed"], seed["num_episodes"]
    played = f"{count - failed} of {count}" if failed else str(count)
    train_seed = "" if seed["train_seed"] is None else str(seed["train_seed"])
    figures = [_figure(seed[name]) for name in STATISTICS]
    if failed or seed["status"] != "ok":
        figures[0] = "failed"
    return [report["agent"], report["env"]["name"], str(seed["eval_seed"]), train_seed, played, *figures]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _checkpoints(seeds: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [seed["checkpoint"] for seed in seeds if seed["checkpoint"]]
    texts = [f"{one['path']}" + (f" (step {one['step']:,})" if one.get("step") is not None else "") for one in found]
    return list(dict.fromkeys(texts))


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
