"""Plots and the page of collected results."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from PIL import Image

from synora.batch.collect import collect_folders
from synora.batch.html_report import write_html_report
from synora.batch.plots import PLOTS, draw_all
from synora.cli import main
from synora.core.errors import UsageError

NASTY = "_a<script>alert(1)</script>$\\frac{ %&#漢\n"


@pytest.fixture
def collected(results: Any) -> dict[str, Any]:
    """Results with everything that can be drawn, under names that break careless plots."""
    for agent, better in (("iris", 0.0), (NASTY, 5.0)):
        for game, low in (("Pong", -15.0), ("Breakout", 2.0)):
            for seed in range(3):
                results.returns(agent, game, [low + seed + better], train_seed=seed)
        results.train(agent)
    results.compute("encoder")
    results.compute(NASTY, median_ms=9.0)
    return collect_folders([results.folder], published=["IRIS"])


def test_every_plot_is_drawn_in_every_format(collected: dict[str, Any], tmp_path: Path) -> None:
    paths = draw_all(collected, tmp_path / "plots", ("svg", "png", "pdf"))
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in PLOTS for kind in ("svg", "png", "pdf")]
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
                colours = picture.convert("RGB").getcolors(2**24)
            assert colours is not None and len(colours) > 10, path  # not an empty page
        elif path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF")
        else:
            text = path.read_text()
            assert "<script" not in text and "mathdefault" not in text
    profile = (tmp_path / "plots" / "performance_profile.svg").read_text()
    assert "iris" in profile and "&lt;script&gt;" in profile and r"$\frac{" in profile


def test_same_bytes_and_no_trace_in_matplotlib(collected: dict[str, Any], tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    first = [path.read_bytes() for path in draw_all(collected, tmp_path / "a", ("png", "pdf", "svg"))]
    with matplotlib.rc_context({"font.size": 30, "text.usetex": True}):
        second = [path.read_bytes() for path in draw_all(collected, tmp_path / "b", ("png", "pdf", "svg"))]
    assert first == second
    assert dict(matplotlib.rcParams) == before


def test_plots_without_data_are_not_drawn_and_earlier_ones_go(
    collected: dict[str, Any], results: Any, tmp_path: Path
) -> None:
    draw_all(collected, tmp_path / "plots")
    for path in (results.folder / "jobs").iterdir():
        path.unlink()
    results.returns("mine", "catch/0", [1.0], backend="bsuite", rules="bsuite-pixels", train_seed=None)
    draw_all(collect_folders([results.folder]), tmp_path / "plots")
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["returns.pdf", "returns.png"]


def test_the_json_file_can_be_drawn(collected: dict[str, Any], tmp_path: Path) -> None:
    stored = json.loads(json.dumps(collected))
    assert [p.read_bytes() for p in draw_all(stored, tmp_path / "a", ["png"])] == [
        p.read_bytes() for p in draw_all(collected, tmp_path / "b", ["png"])
    ]


@pytest.mark.parametrize("formats", [["gif"], []])
def test_unknown_formats(collected: dict[str, Any], tmp_path: Path, formats: list[str]) -> None:
    with pytest.raises(UsageError, match="png"):
        draw_all(collected, tmp_path / "plots", formats)
    assert not (tmp_path / "plots").exists()


def test_one_failed_game_and_missing_cells_can_be_drawn(results: Any, tmp_path: Path) -> None:
    results.returns("a", "Pong", [None])
    results.returns("a", "Breakout", [1.0])
    results.returns("b", "Pong", [-21.0])
    results.compute("broken", status="failed")
    names = {path.stem for path in draw_all(collect_folders([results.folder]), tmp_path / "plots", ["png"])}
    assert names == {"aggregates", "performance_profile", "atari_games", "returns"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.links += [str(found[name]) for name in ("src", "href") if name in found]
        self.ids += [str(found["id"])] if "id" in found else []


def test_the_page_holds_everything_and_loads_nothing(collected: dict[str, Any], tmp_path: Path) -> None:
    paths = write_html_report(collected, tmp_path)
    assert paths[-1] == tmp_path / "report.html" and (tmp_path / "plots" / "compute.pdf") in paths
    page = _Page()
    page.feed(paths[-1].read_text(encoding="utf-8"))
    assert page.tags.count("img") == len(PLOTS) and "script" not in page.tags
    assert page.tags.count("table") == 5
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} == set(page.ids)
    assert write_html_report(collected, tmp_path / "again")[-1].read_bytes() == paths[-1].read_bytes()


def test_chromium_shows_the_page(collected: dict[str, Any], tmp_path: Path, require_tool: Callable[..., str]) -> None:
    page = write_html_report(collected, tmp_path)[-1]
    browser = require_tool("chromium", "chromium-browser", "google-chrome")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [browser, *options, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Latency against memory" in done.stdout and done.stdout.count("<img") == len(PLOTS)
    assert re.search(r"<td>iris\s*</td>", done.stdout) and "<script" not in done.stdout
    shot = tmp_path / "page.png"
    command = [browser, *options, f"--screenshot={shot}", "--window-size=1200,3000", page.as_uri()]
    subprocess.run(command, capture_output=True, check=True, timeout=120)
    with Image.open(shot) as picture:
        colours = picture.convert("RGB").getcolors(2**24)
    assert colours is not None and len(colours) > 100  # the plots are shown


def test_collect_writes_the_page(results: Any) -> None:
    results.returns("iris", "Pong", [1.0])
    assert main(["collect", str(results.folder)]) == 0
    assert (results.folder / "report.html").exists() and (results.folder / "plots" / "returns.pdf").exists()
