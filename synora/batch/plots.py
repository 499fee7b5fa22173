"""Plots of collected results, as PNG, PDF or SVG. Needs matplotlib (extra `plot`); torch-free.

The same mapping gives the same bytes: no dates, no random names, and no state that other plots share. Names are printed
literally, whatever they hold.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from synora.batch.collect_tables import STATISTICS, agent_columns, agent_key
from synora.core.errors import DependencyMissing, SynoraError, UsageError, unknown_value
from synora.core.files import write_bytes
from synora.core.latex_text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
# Okabe and Ito (2008): told apart by colour-blind readers, too. Yellow, which is faint on white, comes last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DPI = 150
_MOST_PANELS = 60
_MOST_LABELS = 40
_TAUS = 201
_STYLE: Any = {
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "synora",
    "svg.fonttype": "none",
}

Collected = Mapping[str, Any]
Row = Mapping[str, Any]


def draw_all(
    collected: Collected, folder: str | os.PathLike[str], formats: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """Draw every plot that the results have data for and write it as `folder/NAME.FORMAT`.

    Names: `aggregates` (mean, median, IQM, optimality gap with intervals), `performance_profile`, `atari_games`
    (human-normalised scores by game), `returns` (raw returns by game), `learning_curves`, `compute` (latency against
    memory). A plot of an earlier call that this one has no data for is removed.

    Args:
        collected: what `synora.batch.collect.collect_folders` returns, or `collected.json`.
        folder: where; made if it is not there.
        formats: of "png", "pdf", "svg".

    Returns:
        The paths, sorted by plot as listed above, then by format as given.

    Raises:
        UsageError: a format is none of these.
        DependencyMissing: there is no matplotlib.
        FileError: a file cannot be written.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown_value("format of plots", name, FORMATS)
    if not formats:
        raise UsageError(f"no format of plots: give some of {', '.join(FORMATS)}.")
    written = []
    for name, draw in PLOTS.items():
        contents = render(draw, collected, formats)
        for extension in FORMATS:
            path = Path(folder) / f"{name}.{extension}"
            if contents is not None and extension in formats:
                written.append(write_bytes(path, contents[extension]))
            elif contents is None:
                path.unlink(missing_ok=True)  # it would look like a part of this report
    order = [f"{name}.{extension}" for name in PLOTS for extension in formats]
    return sorted(written, key=lambda path: order.index(path.name))


def render(
    draw: Callable[[Collected], Figure | None], collected: Collected, formats: Sequence[str]
) -> dict[str, bytes] | None:
    """Return format -> content of one plot; None where there is nothing to draw."""
    with _style():
        figure = draw(collected)
        return None if figure is None else {extension: _bytes(figure, extension) for extension in formats}


def plot_aggregates(collected: Collected) -> Figure | None:
    """Draw mean, median, IQM and optimality gap of human-normalised scores, with intervals, one row an agent.

    Published agents are hollow: their figures are as printed, over 26 games.
    """
    found = collected["returns"]["aggregates"]
    rows = [(name, row["estimates"], False) for name, row in _named(found)] + [
        (f"{row['label']}, published", row["figures"], True) for row in collected["published"]
    ]
    statistics = [name for name in STATISTICS if name != "superhuman"]
    rows = [row for row in rows if any((row[1].get(name) or {}).get("value") is not None for name in statistics)]
    if not found or not rows:
        return None
    figure = _figure(3.0 * len(statistics), 1.2 + 0.3 * len(rows))
    panels = figure.subplots(1, len(statistics), sharey=True)
    for axes, name in zip(panels, statistics, strict=True):
        for place, (_, estimates, published) in enumerate(rows):
            one = estimates.get(name) or {}
            if one.get("value") is None:
                continue
            colour = COLOURS[place % len(COLOURS)]
            _interval(axes, one, place, colour)
            axes.plot(one["value"], place, "o", color=colour, markerfacecolor="none" if published else colour)
        axes.set_title(STATISTICS[name])
        axes.set_xlabel("lower is better" if name == "optimality_gap" else "human-normalised score")
    _rows(panels[0], [name for name, _, _ in rows])
    _note(figure, _games_note(found))
    return figure


def plot_performance_profile(collected: Collected) -> Figure | None:
    """Draw the share of runs above each human-normalised score, with pointwise 95% intervals.

    The run-score distribution of Agarwal et al. (2021), section 4.2; one line an agent, over its games of Atari 100k.
    """
    from synora.benchmarks.bootstrap import bootstrap_profile_ci
    from synora.benchmarks.point_estimates import run_score_profile
    from synora.benchmarks.score_matrix import stack_runs

    found = collected["returns"]["aggregates"]
    matrices = []
    for name, row in _named(found):
        scores = {game: values for game, values in row["scores"].items() if values}
        # In strict mode an agent with a hole has no figures, and no line either.
        if scores and row["estimates"]["iqm"]["value"] is not None:
            matrices.append((name, *stack_runs(scores)))
    if not matrices:
        return None
    top = max(1.0, max(float(np.nanmax(matrix)) for _, matrix, _ in matrices))
    low = min(0.0, min(float(np.nanmin(matrix)) for _, matrix, _ in matrices))
    taus = np.linspace(low, top * 1.02, _TAUS)
    figure = _figure(6, 4)
    axes = figure.subplots()
    for index, (name, matrix, games) in enumerate(matrices):
        colour = COLOURS[index % len(COLOURS)]
        profile = run_score_profile(matrix, taus, missing="available", tasks=games)
        axes.plot(taus, profile, color=colour, label=_text(name), drawstyle="steps-post", linestyle=_line(index))
        band = bootstrap_profile_ci(matrix, taus, missing="available", tasks=games)
        if band.lower is not None and band.upper is not None:
            axes.fill_between(taus, band.lower, band.upper, color=colour, alpha=0.2, linewidth=0, step="post")
    axes.set(
        xlabel="human-normalised score \u03c4", ylabel="share of runs with a score above \u03c4", ylim=(-0.02, 1.02)
    )
    axes.axvline(1.0, color="grey", linestyle=":", linewidth=1)
    axes.legend()
    _note(figure, _games_note(found))
    return figure


def plot_atari_games(collected: Collected) -> Figure | None:
    """Draw human-normalised scores by game: a bar an agent, its runs as dots, published agents hatched."""
    found = collected["returns"]["aggregates"]
    columns: list[tuple[str, dict[str, float], Mapping[str, Sequence[float]]]] = []
    hns = {
        (agent_key(cell), cell["game"]): cell["hns"]
        for cell in collected["returns"]["cells"]
        if cell["hns"] is not None
    }
    for name, row in _named(found):
        means = {game: hns[agent_key(row), game] for game in row["games"] if (agent_key(row), game) in hns}
        columns.append((name, means, row["scores"]))
    games = sorted({game for _, means, _ in columns for game in means})
    if not games:
        return None
    own = len(columns)
    for row in collected["published"]:
        columns.append((f"{row['label']}, published", _normalised(row["scores"], games), {}))
    figure = _figure(7, 1.4 + 0.16 * len(games) * (len(columns) + 0.6))
    axes = figure.subplots()
    height = 0.8 / len(columns)
    for index, (name, means, runs) in enumerate(columns):
        places = [line + (index + 0.5) * height - 0.4 for line, game in enumerate(games) if game in means]
        colour = COLOURS[index % len(COLOURS)]
        style: dict[str, Any] = (
            {"color": colour} if index < own else {"edgecolor": colour, "color": "none", "hatch": "///"}
        )
        axes.barh(places, [means[game] for game in games if game in means], height * 0.9, label=_text(name), **style)
        for line, game in enumerate(games):
            place = line + (index + 0.5) * height - 0.4
            values = runs.get(game, ())
            axes.plot(values, [place] * len(values), ".", color="black", markersize=3)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.axvline(1, color="grey", linestyle=":", linewidth=1)
    axes.set_xscale("symlog", linthresh=1)
    _plain_ticks(axes.xaxis)
    axes.set_xlabel("human-normalised score (0: random, 1: human; logarithmic beyond 1)")
    _rows(axes, games)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(3, len(columns)))
    return figure


def plot_returns(collected: Collected) -> Figure | None:
    """Draw raw returns: a panel a game, a mark with its interval an agent, its runs as small dots."""
    cells = [cell for cell in collected["returns"]["cells"] if cell["mean"] is not None]
    if not cells:
        return None
    keys, names = agent_columns(cells)
    games: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for cell in cells:
        games[cell["game"], str(cell["backend"])].append(cell)
    shown = sorted(games)[:_MOST_PANELS]
    figure, panels = _panels(len(shown), height=1.0 + 0.22 * len(keys))
    for axes, game in zip(panels, shown, strict=True):
        for cell in games[game]:
            place = keys.index(agent_key(cell))
            colour = COLOURS[place % len(COLOURS)]
            _interval(axes, cell, place, colour)
            runs = [run["mean"] for run in cell["runs"] if run["mean"] is not None]
            axes.plot(runs, [place] * len(runs), "|", color=colour, markersize=8)
            axes.plot(cell["mean"], place, MARKERS[place % len(MARKERS)], color=colour)
        axes.set_title(_text(game[0]))
        _rows(axes, names)
    more = len(games) - len(shown)
    _note(figure, "return; mark: mean over training runs, bar: 95% interval" + (f"; {more} more games" if more else ""))
    return figure


def plot_learning_curves(collected: Collected) -> Figure | None:
    """Draw scores over training: a panel a game, a line a training run, a colour an agent."""
    games: dict[str, list[Row]] = defaultdict(list)
    for row in collected["training"]:
        if row.get("curve"):
            games[str(row["game"] or "")].append(row)
    if not games:
        return None
    agents = sorted({str(row["agent"]) for rows in games.values() for row in rows})
    shown = sorted(games)[:_MOST_PANELS]
    figure, panels = _panels(len(shown), height=2.4)
    for axes, game in zip(panels, shown, strict=True):
        known = set()
        for row in games[game]:
            index = agents.index(str(row["agent"]))
            steps, scores = zip(*row["curve"], strict=True)
            label = None if index in known else _text(agents[index])
            known.add(index)
            axes.plot(
                steps,
                scores,
                color=COLOURS[index % len(COLOURS)],
                linestyle=_line(index),
                marker="." if len(steps) < 30 else None,
                linewidth=1,
                label=label,
            )
        axes.set_title(_text(game))
        axes.set_xlabel("agent steps")
        axes.legend(fontsize=7)
    panels[0].set_ylabel("return")
    _note(figure, "a line a training run")
    return figure


def plot_compute(collected: Collected) -> Figure | None:
    """Draw latency against memory, both logarithmic: a colour a model, a mark a mode; a panel a device."""
    rows = [
        row
        for row in collected["compute"]
        if row["status"] == "ok" and (row["median_ms"] or 0) > 0 and (row["memory_bytes"] or 0) > 0
    ]
    if not rows:
        return None
    devices: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        devices[str(row["device_name"] or row["device"]), str(row["host_hash"] or "")[:8]].append(row)
    models = sorted({str(row["model"]) for row in rows})
    modes = sorted({str(row["mode"]) for row in rows})
    shown = sorted(devices)[:_MOST_PANELS]
    figure, panels = _panels(len(shown), width=6, height=4.5, most=2)
    for axes, device in zip(panels, shown, strict=True):
        for row in devices[device]:
            index = models.index(str(row["model"]))
            marker = MARKERS[modes.index(str(row["mode"])) % len(MARKERS)]
            axes.plot(
                row["memory_bytes"] / 2**20,
                row["median_ms"],
                marker,
                color=COLOURS[index % len(COLOURS)],
                markerfacecolor="none" if row["noisy"] else None,
            )
        if len(devices[device]) <= _MOST_LABELS:
            for row in devices[device]:
                place = (row["memory_bytes"] / 2**20, row["median_ms"])
                text = f"{row['model']} {row['dtype'] or ''}".strip()
                axes.annotate(_text(text), place, xytext=(4, 3), textcoords="offset points", fontsize=6)
        axes.set(xscale="log", yscale="log", xlabel="peak memory, MiB", ylabel="median latency, ms")
        _plain_ticks(axes.xaxis)
        _plain_ticks(axes.yaxis)
        axes.set_title(_text(" ".join(filter(None, device))))
        for number, mode in enumerate(modes):
            axes.plot([], [], MARKERS[number % len(MARKERS)], color="grey", label=_text(mode))
        axes.legend()
    _note(figure, "hollow: noisy (interquartile range above 10% of the median)")
    return figure


PLOTS: Mapping[str, Callable[[Collected], Any]] = {
    "aggregates": plot_aggregates,
    "performance_profile": plot_performance_profile,
    "atari_games": plot_atari_games,
    "returns": plot_returns,
    "learning_curves": plot_learning_curves,
    "compute": plot_compute,
}
TITLES = {
    "aggregates": "Aggregates over Atari 100k",
    "performance_profile": "Performance profile over Atari 100k",
    "atari_games": "Human-normalised scores by game",
    "returns": "Returns by game",
    "learning_curves": "Learning curves",
    "compute": "Latency against memory",
}


@contextmanager
def _style() -> Iterator[None]:
    """Set our style for the time of a plot, and leave the user's as it was."""
    try:
        import matplotlib
    except ImportError as error:
        raise DependencyMissing("plots need matplotlib: pip install 'synora[plot]'") from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # Of a character that no font has, a box is drawn.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _panels(count: int, *, width: float = 3.2, height: float, most: int = 4) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many panels, the first left above."""
    columns = min(most, count)
    rows = math.ceil(count / columns)
    figure = _figure(max(5.0, width * columns), 0.4 + height * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, panels[:count]


def _bytes(figure: Figure, extension: str) -> bytes:
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "svg": {"Date": None, "Creator": None},
    }
    stream = io.BytesIO()
    try:
        figure.savefig(stream, format=extension, dpi=_DPI, metadata=metadata[extension])
    except (ValueError, RuntimeError, OverflowError) as error:
        raise SynoraError(f"matplotlib cannot draw a plot as {extension}: {error}") from error
    return stream.getvalue()


def _interval(axes: Axes, one: Row, place: int, colour: str) -> None:
    """Draw the interval of a figure, if it has one, as a bar along its row."""
    if one.get("low") is not None:
        axes.plot([one["low"], one["high"]], [place, place], color=colour, linewidth=5, alpha=0.4)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a plot, the first above."""
    axes.set_yticks(range(len(names)), [_text(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _plain_ticks(axis: Axis) -> None:
    """Write plain numbers at a logarithmic axis; its own are mathematics, which we switch off for the sake of names."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = sorted(axis.get_view_interval())
    few = low > 0 and high / low < 20  # one power of ten or two: the marks between have numbers, too
    axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}") if few else NullFormatter())


def _note(figure: Figure, text: str) -> None:
    figure.supxlabel(text, fontsize=7, color="dimgrey")


def _games_note(found: Sequence[Row]) -> str:
    counts = sorted({row["games_with_scores"] for row in found})
    games = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{games} of 26 games; bars: 95% intervals of the stratified bootstrap over training runs"


def _normalised(scores: Mapping[str, float], games: Sequence[str]) -> dict[str, float]:
    from synora.benchmarks.scores import human_normalised_score

    values = {game: human_normalised_score(game, scores[game], "ale").value for game in games if game in scores}
    return {game: value for game, value in values.items() if value is not None}


def _text(text: str) -> str:
    """Return a name as one line that legends take; they leave out names that begin with an underscore."""
    plain = one_line(text)
    plain = plain if len(plain) <= 60 else plain[:57] + "..."
    return "\u200b" + plain if plain.startswith("_") else plain


def _line(index: int) -> str:
    return ("-", "--", "-.", ":")[index // len(COLOURS) % 4]


def _named(found: Sequence[Row]) -> list[tuple[str, Row]]:
    return list(zip(agent_columns(found)[1], found, strict=True))
