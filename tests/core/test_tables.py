"""Tables: what is printed is what is in the cells, in every format."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from synora.core.latex_text import escape_latex
from synora.core.tables import (
    Cell,
    Column,
    Table,
    best,
    csv_text,
    escape_markdown,
    to_html,
    to_latex,
    to_markdown,
    to_text,
)

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference"
# Texts that end rows, leave cells or run commands where they are not escaped.
NASTY = (
    "kung_fu_master",
    "R&D 100% #1 $5 a^b {x} ~50",
    r"a\b \input{/etc/passwd}",
    "a|b *x* `y` <b>z</b> [t](u)",
    "[2em] starred",
    "*starred",
    "two\nlines\r\nand\ttabs\x00\x1b[31m\u2028",
    "±0.5 \u22121 ≤ 2 µs Ångström naïve Łódź ß … “q” ½ 漢字 \U0001f600 e\u0301 \ud800",
    "--flag -0.5 1-2 a--b",
    "=cmd|' /C calc'!A0",
    'a,b;"c"',
    "?` !` fi ffi",
    "",
)


def nasty_table(**more: Any) -> Table:
    rows = [[Cell(text, bold=index % 2 == 0), "1.5", text] for index, text in enumerate(NASTY)]
    return Table.of([Column("name_%", "left"), "IRIS & co", "|x|"], rows, **more)


def test_escapes_are_the_reference_ones_or_stricter() -> None:
    path = REFERENCE / "reporting" / "escapes.json"
    if not path.exists():
        pytest.skip("no ../shared")
    for case in json.loads(path.read_text()):
        latex = re.sub(r"[<>|±]", lambda m: escape_latex(m[0]), case["latex"])
        assert escape_latex(case["text"]) == latex
        markdown = re.sub(r"(?<!\\)[<*]", r"\\\g<0>", case["markdown_cell"])
        assert escape_markdown(case["text"]) == markdown


def test_best_of_a_row_is_decided_as_printed() -> None:
    assert best([1.04, 1.01, 0.9, None, math.nan], 1) == [True, True, False, False, False]
    assert best([0.5, 0.25], 2, lower_is_better=True) == [False, True]
    assert best([-0.001, 0.001], 1) == [True, True]
    assert best([None, math.nan], 1) == [False, False]
    assert best([], 1) == []


def test_best_is_what_papers_print_bold() -> None:
    path = REFERENCE / "reporting" / "best_per_row.json"
    if not path.exists():
        pytest.skip("no ../shared")
    expected = json.loads(path.read_text())
    rows = list(csv.DictReader((REFERENCE / "atari100k" / "published_scores.csv").open()))
    checked = 0
    for row in expected["rows"]:
        if "game" not in row:
            continue
        printed = {
            one["agent"]: float(one["score"])
            for one in rows
            if one["source"] == "diamond24-t1" and one["game"] == row["game"] and one["agent"] in expected["agents"]
        }
        agents = [agent for agent in expected["agents"] if agent in printed]
        found = best([printed[agent] for agent in agents], 1)
        assert [agent for agent, won in zip(agents, found, strict=True) if won] == row["best"], row["game"]
        checked += 1
    assert checked == 26


def test_markdown_keeps_columns_and_shows_texts_literally() -> None:
    lines = to_markdown(nasty_table(notes=("a | *note*",))).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == len(NASTY) + 2
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table} == {4}
    assert r"a\|b \*x\* \`y\` \<b>z\</b> [t]\(u)" in table[5]
    assert lines[-1] == r"a \| \*note\*"


def test_bold_and_rules() -> None:
    table = Table.of([Column("game", "left"), "A"], [["Pong", Cell("1.0", bold=True)], ["mean", None]], rules=(1,))
    assert (
        to_markdown(table) == "| game   |       A |\n|:-------|--------:|\n| Pong   | **1.0** |\n| mean   |         |\n"
    )
    assert to_text(table).splitlines() == ["game      A", "------  ---", "Pong    1.0", "------  ---", "mean"]
    latex = to_latex(table)
    assert r"Pong & \textbf{1.0} \\" + "\n\\midrule\nmean &  \\\\" in latex
    assert r"\begin{table}" not in latex
    page = to_html(table)
    assert "<strong>1.0</strong>" in page and page.count('<tr class="rule">') == 1


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells, the table has 2 columns"):
        Table.of(["a", "b"], [["only one"]])


def test_latex_compiles_and_prints_every_text(compile_latex: Callable[[str], str]) -> None:
    table = nasty_table(rules=(1, 3), caption="100% of R&D_1", label="tab:a b_c", notes=("a_note & more", "[second]"))
    printed = compile_latex(to_latex(table))
    for text in ("kung_fu_master", "R&D 100% #1 $5", r"\input{/etc/passwd}", "<b>z</b>", "[2em] starred", "*starred"):
        assert text in printed
    assert "[U+6F22]" in printed and "[U+1F600]" in printed
    assert "--flag" in printed and "?`" in printed
    assert "100% of R&D_1" in printed and "[second]" in printed


def test_an_empty_table_compiles(compile_latex: Callable[[str], str]) -> None:
    assert "alone" in compile_latex(to_latex(Table.of(["alone"], [])))


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.tags[-1] in ("td", "strong"):
            self.cells[-1] += data


def test_html_holds_no_tag_of_a_cell() -> None:
    parser = _Texts()
    parser.feed(to_html(nasty_table(caption="<script>alert(1)</script>")))
    assert set(parser.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "strong", "p"}
    assert html.unescape("".join(parser.cells)).count("<b>z</b>") == 2


def test_csv_is_read_back_and_runs_no_formula() -> None:
    rows = [
        {"name": text, "score": -1.5, "none": None} for text in ("=1+1", "@x", "\uff1d1", " +a", "-2.5", 'a\nb,"c"')
    ]
    found = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert [row["name"] for row in found] == ["'=1+1", "'@x", "'\uff1d1", "' +a", "-2.5", 'a\nb,"c"']
    assert {row["score"] for row in found} == {"-1.5"} and {row["none"] for row in found} == {""}
    assert csv_text([], ("a", "b")) == "a,b\n"
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        csv_text([{"a": 1}, {"a": 1, "b": 2}])
