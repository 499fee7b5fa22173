"""The sweep's reports: JSON with everything, CSV with a row a case and mode, Markdown and LaTeX tables. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.core.files import write_json, write_text
from synora.core.result import Result
from synora.core.tables import Column, Table, csv_text, escape_markdown, to_latex, to_markdown, to_text

REPORT_NAME = "model_benchmarks"
MODES = ("forward", "forward_backward", "train_step")

# CSV columns after the job's own: header -> path into one mode of the result's body.
_MODE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    **{
        key: ("timing", key)
        for key in (
            "median_ms",
            "p10_ms",
            "p90_ms",
            "p99_ms",
            "min_ms",
            "mean_ms",
            "iqr_ms",
            "n",
            "noisy",
            "first_call_ms",
            "warmup_calls",
            "warmup_stable",
            "wall_ms",
        )
    },
    "R": ("R",),
    "items_per_second": ("items_per_second",),
    "flops": ("flops",),
    "macs": ("macs",),
    "flops_lower_bound": ("flops_lower_bound",),
    "achieved_flops_per_second": ("achieved_flops_per_second",),
    "ceiling_share": ("ceiling_share",),
    "peak_rss_bytes": ("memory", "peak_rss_bytes"),
    "cuda_peak_allocated_bytes": ("memory", "cuda_peak_allocated_bytes"),
    "cuda_peak_reserved_bytes": ("memory", "cuda_peak_reserved_bytes"),
    "cuda_process_bytes": ("memory", "cuda_process_bytes"),
}
_PARAM_COLUMNS = (
    "preset",
    "batch_size",
    "seq_len",
    "image_size",
    "device",
    "dtype",
    "tf32",
    "compile",
    "threads",
    "warmup",
    "iters",
)
_BODY_COLUMNS = ("family", "unit", "items_per_call", "parameters", "trainable_parameters")

_COLUMNS = (
    Column("model", "left"),
    Column("status", "left"),
    *map(Column, ("params", "fwd ms", "fwd+bwd ms", "step ms", "R", "throughput", "GFLOPs", "% peak", "mem MiB")),
    Column("note", "left"),
)


def csv_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return one flat row a case and mode; a case without a body gets one row with its status and reason."""
    rows = []
    for result in results:
        base: dict[str, Any] = {
            "model": result.job.name,
            "status": result.status,
            "reason": result.error.message if result.error else None,
        }
        base |= {name: result.job.params.get(name) for name in _PARAM_COLUMNS}
        body: Mapping[str, Any] = result.body or {}
        base |= {name: body.get(name) for name in _BODY_COLUMNS}
        base["device_name"] = result.provenance.device.get("name")
        base["host_hash"] = result.provenance.machine.get("host_hash")
        modes: Mapping[str, Any] = body.get("modes", {})
        for mode in modes or [None]:
            values = modes.get(mode, {}) if mode else {}
            rows.append(base | {"mode": mode} | {name: _at(values, path) for name, path in _MODE_COLUMNS.items()})
    return rows


def table_rows(results: Iterable[Result]) -> list[list[str]]:
    """Return one short row a case, as texts, for the terminal, Markdown and LaTeX."""
    return [_table_row(result) for result in results]


def as_text(results: Iterable[Result]) -> str:
    """Return the table for a terminal."""
    return to_text(Table.of(_COLUMNS, table_rows(results)))


def as_markdown(results: Sequence[Result], metadata: Mapping[str, Any]) -> str:
    """Return a Markdown page: what ran where, the table, how to read it, and why cases failed."""
    facts = "\n".join(
        f"- {name}: {escape_markdown(_plain(value))}" for name, value in metadata.items() if not isinstance(value, dict)
    )
    table = to_markdown(Table.of(_COLUMNS, table_rows(results)))
    failed = [r for r in results if r.error is not None]
    reasons = "".join(
        f"- {escape_markdown(f'{r.job.name} {r.status}: {r.error.message}')}\n" for r in failed if r.error is not None
    )
    failures = f"\n## Not measured\n\n{reasons}" if failed else ""
    return f"# Compute benchmarks\n\n{facts}\n\n{table}\n{_LEGEND}\n{failures}"


def as_latex(results: Iterable[Result]) -> str:
    """Return a booktabs table."""
    return to_latex(Table.of(_COLUMNS, table_rows(results)))


def as_csv(results: Iterable[Result]) -> str:
    """Return the rows of `csv_rows` as CSV; empty cells where a figure does not apply."""
    rows = csv_rows(results)
    return csv_text(rows, None if rows else ("model", "status"))


def write_reports(
    folder: Path, results: Sequence[Result], metadata: Mapping[str, Any], *, complete: bool
) -> list[Path]:
    """Write `model_benchmarks.{json,csv,md,tex}`, each atomically, and return their paths.

    Args:
        folder: where.
        results: what is known so far, in plan order.
        metadata: facts of the run.
        complete: False while cases are still to come; recorded in the JSON and the Markdown.

    Raises:
        FileError: a file cannot be written.
    """
    facts = {"complete": complete, **metadata}
    report = {
        "schema_version": 1,
        "kind": "compute",
        "metadata": facts,
        "results": [result.model_dump(mode="json") for result in results],
    }
    return [
        write_json(folder / f"{REPORT_NAME}.json", report),
        write_text(folder / f"{REPORT_NAME}.csv", as_csv(results)),
        write_text(folder / f"{REPORT_NAME}.md", as_markdown(results, facts)),
        write_text(folder / f"{REPORT_NAME}.tex", as_latex(results)),
    ]


_LEGEND = """\
Times are medians in milliseconds of a forward pass without gradients (fwd), of forward and backward (fwd+bwd), and of
the whole training step with clipping and optimiser (step). The columns after them belong to the last mode that was
measured. R is that time as a multiple of one 2048-cube float32 product timed in the same process. GFLOPs count products
only, a multiply-add as two; `>=` marks a lower bound. % peak is the share of a matrix-product ceiling measured in the
same process. Memory is CUDA memory allocated, or on the CPU the peak resident set above the process's baseline.
`noisy`: the interquartile range is above 10 % of the median."""


def _table_row(result: Result) -> list[str]:
    modes: Mapping[str, Any] = (result.body or {}).get("modes", {})  # type: ignore[assignment]
    if result.body is None or not modes:
        note = result.error.message if result.error else ""
        return [result.job.name, result.status, *[""] * 9, note if len(note) <= 60 else note[:57] + "..."]
    last = modes[[name for name in MODES if name in modes][-1]]
    memory = last["memory"]
    peak = memory["cuda_peak_allocated_bytes"] or memory["peak_rss_bytes"]
    bound = ">=" if last["flops_lower_bound"] else ""
    notes = [f"{name} noisy" for name in MODES if name in modes and modes[name]["timing"]["noisy"]]
    calibration: Any = result.body["calibration"]
    if calibration["flops_per_second"] < 0.5 * 2 * 2048**3 / (calibration["reference_ms"] / 1e3):
        notes.append(f"{calibration['dtype']} is emulated here")
    return [
        result.job.name,
        result.status,
        f"{result.body['parameters']:,}",
        *(f"{modes[name]['timing']['median_ms']:.4g}" if name in modes else "" for name in MODES),
        f"{last['R']:.3g}",
        f"{last['items_per_second']:,.0f} {result.body['unit']}/s",
        f"{bound}{last['flops'] / 1e9:.4g}",
        "" if last["ceiling_share"] is None else f"{100 * last['ceiling_share']:.1f}",
        f"{peak / 2**20:,.0f}",
        ", ".join(notes),
    ]


def _at(values: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = values
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
