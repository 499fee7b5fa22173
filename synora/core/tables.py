"""Tables as text, Markdown, LaTeX (booktabs), HTML and CSV, whatever is in the names. Torch-free."""

from __future__ import annotations

import csv
import html
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from tabulate import SEPARATING_LINE, tabulate

from synora.core.latex_text import escape_latex, one_line

Align = Literal["left", "right"]


@dataclass(frozen=True)
class Column:
    """A column: its header, and how the cells are aligned (numbers right, names left)."""

    name: str
    align: Align = "right"


@dataclass(frozen=True)
class Cell:
    """A cell: its plain text, and whether it stands out, as the best of its row does."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    r"""A table, independent of how it is printed.

    Attributes:
        columns: headers.
        rows: as many cells each as there are columns.
        rules: indices of the rows that a rule goes above, e.g. the summaries.
        caption: plain text; None for a table without.
        label: of LaTeX's `\ref`.
        notes: plain lines below the table.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rules: tuple[int, ...] = ()
    caption: str | None = None
    label: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row has {len(row)} cells, the table has {len(self.columns)} columns: {row}")

    @classmethod
    def of(cls, columns: Iterable[Column | str], rows: Iterable[Iterable[Cell | str | None]], **more: Any) -> Self:
        """Return a table of texts: a plain `str` is a right-aligned column or a cell, None an empty cell.

        Args:
            columns: headers.
            rows: cells.
            **more: `rules`, `caption`, `label`, `notes`.
        """
        return cls(
            tuple(column if isinstance(column, Column) else Column(column) for column in columns),
            tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell or "") for cell in row) for row in rows),
            **more,
        )


def best(values: Sequence[float | None], decimals: int, *, lower_is_better: bool = False) -> list[bool]:
    """Return which values are the best as printed, all of them where there is a tie; None and NaN never are.

    Args:
        values: of one row.
        decimals: digits that are printed after the point.
        lower_is_better: of e.g. the optimality gap.
    """
    printed = [None if value is None or math.isnan(value) else float(f"{value:.{decimals}f}") for value in values]
    known = [value for value in printed if value is not None]
    if not known:
        return [False] * len(values)
    winner = min(known) if lower_is_better else max(known)
    return [value == winner for value in printed]


# Text and Markdown


def to_text(table: Table) -> str:
    """Return the table for a terminal, without caption, the notes below."""
    lines: list[Any] = []
    for index, row in enumerate(table.rows):
        if index in table.rules:
            lines.append(SEPARATING_LINE)
        lines.append([one_line(cell.text) for cell in row])
    return "\n".join([_tabulate(table, lines, [one_line(c.name) for c in table.columns], "simple"), *table.notes])


def to_markdown(table: Table) -> str:
    """Return the table in GitHub's Markdown, without caption, the notes below; ends with a line break."""
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    text = _tabulate(table, rows, [escape_markdown(column.name) for column in table.columns], "pipe")
    return "\n\n".join([text, *map(escape_markdown, table.notes)]) + "\n"


def escape_markdown(text: str) -> str:
    """Return plain text such that Markdown shows it literally, in a table's cell, too; line breaks become spaces."""
    text = re.sub(r"[\\|*<`]", r"\\\g<0>", one_line(text))
    return text.replace("](", "]\\(")


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    return f"**{text}**" if cell.bold and text else text


def _tabulate(table: Table, rows: Sequence[Any], headers: Sequence[str], style: str) -> str:
    align = [column.align for column in table.columns]
    return tabulate(rows, headers, tablefmt=style, disable_numparse=True, colalign=align, headersglobalalign=None)


# LaTeX


def to_latex(table: Table) -> str:
    r"""Return a booktabs `tabular`, in a `table` environment if it has a caption or a label; ends with a line break.

    It compiles with pdflatex (`\usepackage{booktabs}`) whatever the texts hold; of a character that standard fonts
    lack, the code point is printed.
    """
    body = []
    for index, row in enumerate(table.rows):
        if index in table.rules:
            body.append(r"\midrule")
        body.append(_latex_row([_latex_cell(cell) for cell in row]))
    lines = [
        rf"\begin{{tabular}}{{{''.join(column.align[0] for column in table.columns)}}}",
        r"\toprule",
        _latex_row([escape_latex(column.name) for column in table.columns]),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if table.notes:
        notes = (r"\\" + "\n").join(_guarded(escape_latex(note)) for note in table.notes)
        lines += ["", rf"\smallskip\begin{{minipage}}{{\linewidth}}\footnotesize {notes}", r"\end{minipage}"]
    if table.caption is None and table.label is None:
        return "\n".join(lines) + "\n"
    head = [r"\begin{table}", r"\centering"]
    if table.caption is not None:
        head.append(rf"\caption{{{escape_latex(table.caption)}}}")
    if table.label is not None:
        head.append(rf"\label{{{re.sub(r'[^A-Za-z0-9:.-]+', '-', table.label)}}}")
    return "\n".join([*head, *lines, r"\end{table}"]) + "\n"


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    return rf"\textbf{{{text}}}" if cell.bold and text else text


def _latex_row(cells: Sequence[str]) -> str:
    return _guarded(" & ".join(cells)) + r" \\"


def _guarded(text: str) -> str:
    r"""Return a line that the `\\` before it does not take for its option."""
    return "{}" + text if text.lstrip().startswith(("[", "*")) else text


# HTML


def to_html(table: Table) -> str:
    """Return a `<table>` with everything escaped, and a `<p class="note">` a note.

    Right-aligned cells have the class `num`, rows below a rule the class `rule`.
    """
    classes = [' class="num"' if column.align == "right" else "" for column in table.columns]
    pairs = list(zip(classes, table.columns, strict=True))
    head = "".join(f'<th scope="col"{name}>{html.escape(column.name)}</th>' for name, column in pairs)
    caption = "" if table.caption is None else f"<caption>{html.escape(table.caption)}</caption>\n"
    lines = [f"<table>\n{caption}<thead><tr>{head}</tr></thead>\n<tbody>"]
    for index, row in enumerate(table.rows):
        cells = "".join(f"<td{name}>{_html_cell(cell)}</td>" for name, cell in zip(classes, row, strict=True))
        rule = ' class="rule"' if index in table.rules else ""
        lines.append(f"<tr{rule}>{cells}</tr>")
    notes = (f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
    return "\n".join([*lines, "</tbody>\n</table>", *notes]) + "\n"


def _html_cell(cell: Cell) -> str:
    text = html.escape(cell.text)
    return f"<strong>{text}</strong>" if cell.bold and text else text


# CSV


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Return rows as CSV with a header; None and missing keys are empty cells.

    A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay as they are.

    Args:
        rows: column -> value.
        columns: header; None for the keys of the first row.

    Raises:
        ValueError: a row has a key that is no column.
    """
    if columns is None:
        columns = list(rows[0]) if rows else []
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=[_no_formula(name) for name in columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows({_no_formula(key): _no_formula(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def _no_formula(value: Any) -> Any:
    # Spreadsheets take full-width signs, too; NFKC makes them plain.
    if not isinstance(value, str) or not unicodedata.normalize("NFKC", value).lstrip().startswith(("=", "+", "-", "@")):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value
