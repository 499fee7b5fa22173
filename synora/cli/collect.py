"""`synora collect`: put the results of many jobs together, print the aggregates, write the reports."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from synora.core.errors import EXIT_FAILED, EXIT_OK, DependencyMissing, SynoraError, UsageError, unknown_value

MODES = ("available", "strict")
_MOST_LINES = 20

Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Searched for jobs/*.json and plan.json; or result files.")
]
Plans = Annotated[
    list[Path] | None, typer.Option("--plan", metavar="FILE", help="A further plan whose jobs are expected; repeat it.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 if anything is missing, failed or in doubt.")]
AllowMixed = Annotated[
    bool, typer.Option("--allow-mixed-protocol", help="Keep results under different rules, in separate rows.")
]
Missing = Annotated[
    str,
    typer.Option("--missing", metavar="|".join(MODES), help="Figures from the runs there are, or none unless all are."),
]
Published = Annotated[
    list[str] | None,
    typer.Option(
        "--published",
        metavar="A,B|all|none",
        help="Agents from papers beside yours; default: IRIS and DIAMOND where a game of Atari 100k is there.",
    ),
]
OutDir = Annotated[
    Path | None,
    typer.Option("--out-dir", "--out_dir", help="Where collected.{json,csv,md,tex} go; default: the first DIR."),
]
Plots = Annotated[
    bool | None, typer.Option("--plots/--no-plots", help="Plots and report.html; default: if matplotlib is there.")
]


def collect(
    folders: Folders,
    plan: Plans = None,
    strict: Strict = False,
    allow_mixed_protocol: AllowMixed = False,
    missing: Missing = "available",
    published: Published = None,
    out_dir: OutDir = None,
    plots: Plots = None,
) -> int:
    """Put the results of many jobs into one set of tables.

    Exit codes: 0 done; 1 no job succeeded, rules are mixed, or --strict and something is missing, failed or in doubt;
    2 bad usage.
    """
    if missing not in MODES:
        raise unknown_value("value of --missing", missing, MODES)
    if plots and not _can_plot():
        raise DependencyMissing("--plots needs matplotlib: pip install 'synora[plot]'")
    target = out_dir if out_dir is not None else _default_out_dir(folders)
    from synora.core.files import require_writable_folder

    if target.exists():
        require_writable_folder(target)
    from synora.batch.collect import collect_folders, write_collected
    from synora.batch.collect_report import as_text
    from synora.batch.collected import has_results, is_complete

    collected = collect_folders(
        folders,
        plans=plan or (),
        mode="strict" if missing == "strict" else "available",
        allow_mixed_protocol=allow_mixed_protocol,
        published=_agents(published),
    )
    print(as_text(collected))
    _complain(collected)
    require_writable_folder(target)
    written = write_collected(collected, target)
    if not has_results(collected):
        raise SynoraError(f"no job succeeded; the failures are in {written[0].with_suffix('.md')}.")
    draw_report(collected, target, plots)
    print(f"\nReports: {target.resolve() / 'collected'}.{{json,csv,md,tex}}")
    if strict and not is_complete(collected):
        print("synora: error: --strict: something is missing, failed or in doubt; see above.", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _default_out_dir(folders: Sequence[Path]) -> Path:
    return folders[0] if not folders[0].is_file() else folders[0].parent


def _agents(texts: Sequence[str] | None) -> list[str] | None:
    """Return the published agents that `A,B` texts name; a comma in brackets belongs to a name."""
    if texts is None:
        return None
    names = [name.strip() for text in texts for name in re.split(r",(?![^(]*\))", text)]
    if not all(names):
        raise UsageError(f"--published {','.join(texts)!r} has an empty name: write A,B or all or none.")
    words = {name.lower() for name in names} & {"all", "none"}
    if words and len(names) > 1:
        raise UsageError(f"--published {','.join(texts)!r}: {sorted(words)[0]} stands alone.")
    return [] if words == {"none"} else names


def _can_plot() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw_report(collected: dict[str, Any], folder: Path, wanted: bool | None = None) -> None:
    """Write the plots and the page with everything on it, unless they are not wanted or cannot be drawn."""
    if wanted is False:
        return
    if not _can_plot():
        print("synora: note: no plots and no report.html: pip install 'synora[plot]'", file=sys.stderr)
        return
    from synora.batch.html_report import write_html_report

    write_html_report(collected, folder)


def _complain(collected: dict[str, Any]) -> None:
    """Print what is missing, failed or in doubt, and the notes."""
    lines = [
        f"{row['name']} {row['status']}: {row['message']}" for row in collected["failures"] if row["status"] != "ok"
    ]
    lines += [f"{row['name']}: {row['message']}" for row in collected["failures"] if row["status"] == "ok"]
    lines += [f"missing: {row['name']} ({row['kind']})" for row in collected["missing"]]
    lines += [f"{row['file']}: {row['problem']}: {row['detail']}" for row in collected["files"]["problems"]]
    lines += [f"note: {note}" for note in collected["notes"]]
    for line in lines[:_MOST_LINES]:
        print(f"synora: {line}", file=sys.stderr)
    if len(lines) > _MOST_LINES:
        print(f"synora: and {len(lines) - _MOST_LINES} more lines; see collected.md.", file=sys.stderr)
