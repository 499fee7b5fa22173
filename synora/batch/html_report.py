"""One page with every table and plot of collected results, in one file. Needs matplotlib; torch-free."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.batch.collect_report import counts
from synora.batch.collect_tables import all_tables
from synora.batch.plots import TITLES, draw_all
from synora.core.files import write_text
from synora.core.latex_text import one_line
from synora.core.tables import to_html

NAME = "report.html"
PLOTS_FOLDER = "plots"
# The page loads nothing and runs nothing, whatever a name in it says.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; } nav a { margin-right: 1rem; }
.scroll { overflow-x: auto; } img { max-width: 100%; height: auto; }
table { border-collapse: collapse; border-top: 2px solid; border-bottom: 2px solid; font-size: 13px; }
caption { text-align: left; padding-bottom: .3rem; }
th, td { text-align: left; padding: .2rem .7rem; } thead th { border-bottom: 1px solid; }
.num { text-align: right; font-variant-numeric: tabular-nums; } .rule td { border-top: 1px solid; }
.note { color: #57606a; font-size: 13px; margin: .3rem 0; }
@media (prefers-color-scheme: dark) { body { background: #14171a; color: #e6e6e6; } a { color: #7ab7ff; }
img { background: #fff; } .note { color: #a0a8b0; } }"""


def write_html_report(
    collected: Mapping[str, Any], folder: str | os.PathLike[str], formats: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """Write the plots to `folder/plots/` and then `folder/report.html`, which holds all of them and every table.

    Args:
        collected: what `synora.batch.collect.collect_folders` returns, or `collected.json`.
        folder: where; made if it is not there.
        formats: of the plots in the folder; "png" is always among them.

    Returns:
        The paths, the page last.

    Raises:
        DependencyMissing: there is no matplotlib.
        FileError: a file cannot be written.
    """
    base = Path(folder)
    plots = draw_all(collected, base / PLOTS_FOLDER, list(dict.fromkeys(("png", *formats))))
    pictures = {path.stem: path.read_bytes() for path in plots if path.suffix == ".png"}
    return [*plots, write_text(base / NAME, as_html(collected, pictures))]


def as_html(collected: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    """Return the page.

    Args:
        collected: as `write_html_report`.
        pictures: name of the plot -> PNG.
    """
    tables = {title: to_html(table) for title, table in all_tables(collected).items()}
    plots = {TITLES[name]: _picture(TITLES[name], content) for name, content in pictures.items()}
    sections = [("Plots", "\n".join(plots.values()))] if plots else []
    sections += [(title, f'<div class="scroll">\n{table}</div>') for title, table in tables.items()]
    if collected["notes"]:
        items = "\n".join(f"<li>{_plain(note)}</li>" for note in collected["notes"])
        sections.append(("Notes", f"<ul>\n{items}\n</ul>"))
    links = "\n".join(f'<a href="#{_anchor(title)}">{title}</a>' for title, _ in sections)
    body = "\n".join(f'<h2 id="{_anchor(title)}">{title}</h2>\n{content}' for title, content in sections)
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Collected results</title>
<style>
{_STYLE}
</style>
</head>
<body>
<h1>Collected results</h1>
<p>{_plain(counts(collected))}.</p>
<nav>
{links}
</nav>
{body}
</body>
</html>
"""


def _picture(title: str, content: bytes) -> str:
    data = base64.b64encode(content).decode()
    return f'<h3>{title}</h3>\n<img alt="{title}" src="data:image/png;base64,{data}">'


def _plain(text: str) -> str:
    return html.escape(one_line(text))


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
