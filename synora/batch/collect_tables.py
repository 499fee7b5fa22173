"""The tables of collected results, as plain data that `synora.core.tables` writes in any format. Torch-free.

Bold marks the best of a row (or column) at printed precision, and only where the figures are over the same games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from synora.benchmarks.scores import reference_scores
from synora.core.tables import Cell, Column, Table, best

Row = Mapping[str, Any]

STATISTICS = {
    "mean": "mean",
    "median": "median",
    "iqm": "IQM",
    "optimality_gap": "optimality gap",
    "superhuman": "superhuman games",
}
_LOWER = frozenset({"optimality_gap"})
_MOST_ROWS = 50
_NOTHING = "-"
_NOT_DEFINED = "N/A"
_INTERVALS = (
    "[low, high] is the 95% interval of the stratified bootstrap over training runs; without two runs there is none."
)
# By definition of the score. A human is not counted among the superhuman.
_BOUNDS = {
    "mean": ("0.000", "1.000"),
    "median": ("0.000", "1.000"),
    "iqm": ("0.000", "1.000"),
    "optimality_gap": ("1.000", "0.000"),
    "superhuman": ("0", _NOT_DEFINED),
}


def all_tables(collected: Row) -> dict[str, Table]:
    """Return title -> table, for those that have a row."""
    cells, found = collected["returns"]["cells"], collected["returns"]["aggregates"]
    tables: dict[str, Table] = {}
    if cells:
        tables["Returns"] = returns_table(cells)
    if found:
        tables["Aggregates over Atari 100k"] = aggregates_table(found)
        tables["Atari 100k"] = atari_table(collected)
    if collected["compute"]:
        tables["Compute"] = compute_table(collected["compute"])
    if collected["training"]:
        tables["Training"] = _listing(
            collected["training"], ("agent", "game", "train_seed", "status", "step", "job_id")
        )
    if collected["failures"]:
        tables["Failed and skipped"] = _listing(
            collected["failures"], ("kind", "name", "status", "attempt", "message", "file")
        )
    if collected["missing"]:
        tables["Missing"] = _listing(collected["missing"], ("kind", "name", "job_id"))
    if collected["files"]["problems"]:
        tables["Files in doubt"] = _listing(collected["files"]["problems"], ("file", "problem", "detail"))
    return tables


def returns_table(cells: Sequence[Row]) -> Table:
    """Return mean returns by game (rows) and agent (columns)."""
    agents, names = agent_columns(cells)
    by_key = {(agent_key(cell), (cell["game"], str(cell["backend"]))): cell for cell in cells}
    rows = []
    notes = ["Mean return over training runs.", _INTERVALS]
    for game in sorted({(cell["game"], str(cell["backend"])) for cell in cells}):
        here = [by_key.get((agent, game)) for agent in agents]
        decimals = 1 if game[1] == "ale" else 2
        same_rules = len({cell["fingerprint"] for cell in here if cell is not None and cell["mean"] is not None}) == 1
        bold = _bold([cell["mean"] if cell else None for cell in here], decimals, usable=same_rules)
        rows.append([game[0], *(_returns_cell(cell, decimals, mark) for cell, mark in zip(here, bold, strict=True))])
    reasons = sorted({f"{c['agent']}, {c['game']}: {c['reason']}" for c in cells if c["mean"] is None and c["reason"]})
    notes += _first(reasons)
    if len({cell["fingerprint"] for cell in cells if cell["backend"] == "ale"}) > 1:
        notes.append("Columns under different protocols are not comparable; no best is marked between them.")
    columns = [Column("game", "left"), *(Column(name) for name in names)]
    return Table.of(columns, rows, caption="Returns by agent and game.", label="tab:returns", notes=tuple(notes))


def aggregates_table(found: Sequence[Row]) -> Table:
    """Return the aggregates, one row an agent and protocol."""
    _, names = agent_columns(found)
    comparable = len({tuple(row["games"]) for row in found}) == 1 and len({row["fingerprint"] for row in found}) == 1
    comparable = comparable and all(row["complete"] for row in found)
    columns: list[list[Cell]] = []
    for name in STATISTICS:
        decimals = 0 if name == "superhuman" else 3
        values = [row["estimates"][name]["value"] for row in found]
        marks = _bold(values, decimals, usable=comparable, lower=name in _LOWER)
        estimates = [row["estimates"][name] for row in found]
        columns.append([Cell(_estimate(one, decimals), mark) for one, mark in zip(estimates, marks, strict=True)])
    rows = [
        [name, row["protocol"] or _NOTHING, _games(row), _runs(row["runs"]), *(column[index] for column in columns)]
        for index, (name, row) in enumerate(zip(names, found, strict=True))
    ]
    notes = ["Human-normalised scores. Lower is better for the optimality gap, higher for the others.", _INTERVALS]
    notes += [f"{name}: {row['coverage']}." for name, row in zip(names, found, strict=True) if not row["complete"]]
    reasons = {f"{name}: {row['estimates']['mean']['reason']}" for name, row in zip(names, found, strict=True)}
    notes += _first(sorted(reason for reason in reasons if not reason.endswith(": None")))
    headers = [Column(text, "left") for text in ("agent", "protocol")] + [Column(text) for text in ("games", "runs")]
    headers += [Column(text) for text in STATISTICS.values()]
    return Table.of(headers, rows, caption="Aggregates over Atari 100k.", label="tab:aggregates", notes=tuple(notes))


def atari_table(collected: Row) -> Table:
    """Return the table of the Atari 100k papers: games as rows, then the aggregates; published agents beside ours."""
    reference, found = reference_scores(), collected["returns"]["aggregates"]
    published = collected["published"]
    agents, names = agent_columns(found)
    cells = {(agent_key(cell), cell["game"]): cell for cell in collected["returns"]["cells"]}
    games = sorted({game for row in found for game in row["games"]})
    rows: list[list[Cell | str | None]] = []
    for game in games:
        ours = [cells.get((agent, game), {}).get("mean") for agent in agents]
        values = [*(row["scores"].get(game) for row in published), *ours]
        scores = [Cell(_number(v, 1), mark) for v, mark in zip(values, _bold(values, 1), strict=True)]
        rows.append([game, _number(reference[game].random, 1), _number(reference[game].human, 1), *scores])
    whole = [len(games) == len(reference) and row["complete"] and len(row["games"]) == len(games) for row in found]
    for name, title in STATISTICS.items():
        rows.append([title, *_BOUNDS[name], *_summaries(name, published, found, all(whole))])
    notes = ["Mean raw scores; aggregates are of human-normalised scores. Lower is better for the optimality gap."]
    for label, row, complete in zip(names, found, whole, strict=True):
        if len(row["games"]) < len(reference):
            notes.append(
                f"{label}: aggregates over {_games(row)} {_noun(row)}, not the {len(reference)} of Atari 100k."
            )
        if not complete and not row["complete"]:
            notes.append(f"{label}: {row['coverage']}.")
    notes += _published_notes(published, len(games) < len(reference))
    columns = [Column("game", "left"), Column("Random"), Column("Human")]
    columns += [Column(text) for text in (*(row["label"] for row in published), *names)]
    return Table.of(
        columns, rows, rules=(len(games),), caption="Atari 100k.", label="tab:atari100k", notes=tuple(notes)
    )


def compute_table(rows: Sequence[Row]) -> Table:
    """Return one row a measured mode; rows of other hardware, precision or threads stand apart."""
    texts = []
    for row in rows[:_MOST_ROWS]:
        device = " ".join(filter(None, (row["device"], f"({row['device_name']})" if row["device_name"] else None)))
        host = row["host_hash"] or _NOTHING
        memory = None if row["memory_bytes"] is None else row["memory_bytes"] / 2**20
        speed = None if row["items_per_second"] is None else f"{row['items_per_second']:.4g} {row['unit']}/s"
        flops = None if row["flops"] is None else f"{row['flops'] / 1e9:.4g}"
        state = row["reason"] or ("noisy" if row["noisy"] else "")
        texts.append(
            [
                *(_text(row[key]) for key in ("model", "mode", "preset", "dtype")),
                *(device, host[:8], _text(row["threads"]), _text(row["parameters"])),
                *(
                    _significant(row["median_ms"]),
                    _significant(row["R"]),
                    speed,
                    flops,
                    _number(memory, 0),
                    row["status"],
                    state,
                ),
            ]
        )
    left = ("model", "mode", "preset", "dtype", "device", "host")
    right = ("threads", "parameters", "median ms", "R", "throughput", "GFLOPs", "memory MiB")
    columns = [*(Column(text, "left") for text in left), *(Column(text) for text in right)]
    columns += [Column("status", "left"), Column("note", "left")]
    notes = ["R: the time as a multiple of a 2048-cube float32 product in the same process.", *_rest(rows)]
    return Table.of(columns, texts, caption="Compute cost.", label="tab:compute", notes=tuple(notes))


def _listing(rows: Sequence[Row], keys: Sequence[str]) -> Table:
    texts = [[_text(row[key]) for key in keys] for row in rows[:_MOST_ROWS]]
    numbers = ("train_seed", "step", "attempt")
    columns = [Column(key.replace("_", " "), "right" if key in numbers else "left") for key in keys]
    return Table.of(columns, texts, notes=tuple(_rest(rows)))


def agent_columns(rows: Sequence[Row]) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return the keys and names of agents; where an agent has several protocols, the names say which."""
    keys = sorted({agent_key(row) for row in rows}, key=lambda key: [str(part or "") for part in key])
    agents = [key[0] for key in keys]
    names = []
    for agent, protocol, fingerprint in keys:
        rules = f" ({protocol or 'unknown rules'} {str(fingerprint or '')[:8]}".rstrip() + ")"
        names.append(agent + rules if agents.count(agent) > 1 else agent)
    return keys, names


def agent_key(row: Row) -> tuple[Any, ...]:
    """Return what tells the columns of tables apart: agent, protocol and fingerprint."""
    return row["agent"], row["protocol"], row["fingerprint"]


def _returns_cell(cell: Row | None, decimals: int, bold: bool) -> Cell:
    if cell is None:
        return Cell(_NOTHING)
    missing = f" ({cell['n']} of {cell['expected']})"
    if cell["mean"] is None:
        return Cell(_NOTHING + missing)
    interval = "" if cell["low"] is None else f" [{cell['low']:.{decimals}f}, {cell['high']:.{decimals}f}]"
    count = missing if cell["n"] < cell["expected"] else f" (n={cell['n']})"
    return Cell(f"{cell['mean']:.{decimals}f}{interval}{count}", bold)


def _summaries(name: str, published: Sequence[Row], found: Sequence[Row], whole: bool) -> list[Cell]:
    """Return one aggregate of the published agents, as printed, and of ours."""
    figures = [row["figures"].get(name) for row in published]
    values = [figure["value"] if figure else None for figure in figures]
    texts = [_printed(figure, name) if figure else _NOT_DEFINED for figure in figures]
    decimals = 0 if name == "superhuman" else 3
    for row in found:
        values.append(row["estimates"][name]["value"])
        text = _number(values[-1], decimals)
        few = values[-1] is not None and not whole
        texts.append(f"{text} ({_games(row)} {_noun(row)})" if few else text)
    marks = _bold(values, decimals, usable=whole, lower=name in _LOWER)
    return [Cell(text, mark) for text, mark in zip(texts, marks, strict=True)]


def _printed(figure: Row, name: str) -> str:
    text = (
        str(figure["text"])
        if name == "superhuman" or not str(figure["text"]).endswith("%")
        else f"{figure['value']:.3g}"
    )
    return text if figure["follows"] else f"{text}*"


def _published_notes(published: Sequence[Row], subset: bool) -> list[str]:
    notes = []
    if published:
        notes.append("Published: " + "; ".join(f"{row['label']}: {row['citation']}" for row in published) + ".")
        if subset:
            notes.append("Aggregates of published agents are as printed, over 26 games.")
    if any(not figure["follows"] for row in published for figure in row["figures"].values()):
        notes.append("* does not follow from the scores of the same source.")
    over_games = [row["label"] for row in published if row["iqm_over"] == "games"]
    if over_games:
        notes.append(f"IQM over the games' averages, not over runs: {', '.join(over_games)}.")
    return notes


def _noun(row: Row) -> str:
    return "game" if len(row["games"]) == 1 else "games"


def _games(row: Row) -> str:
    expected, found = len(row["games"]), row["games_with_scores"]
    return str(found) if found == expected else f"{found} of {expected}"


def _runs(counts: Sequence[int]) -> str:
    return str(counts[0]) if counts[0] == counts[1] else f"{counts[0]} to {counts[1]}"


def _estimate(one: Row, decimals: int) -> str:
    if one["value"] is None:
        return _NOT_DEFINED
    interval = "" if one["low"] is None else f" [{one['low']:.{decimals}f}, {one['high']:.{decimals}f}]"
    return f"{one['value']:.{decimals}f}{interval}"


def _bold(values: Sequence[float | None], decimals: int, *, usable: bool = True, lower: bool = False) -> list[bool]:
    """Return which values are the best; none where there is nothing to compare with."""
    if not usable or sum(value is not None for value in values) < 2:
        return [False] * len(values)
    return best(values, decimals, lower_is_better=lower)


def _first(lines: Sequence[str], most: int = 10) -> list[str]:
    return [*lines[:most], *([f"And {len(lines) - most} more."] if len(lines) > most else [])]


def _rest(rows: Sequence[Row]) -> list[str]:
    more = len(rows) - _MOST_ROWS
    return [f"And {more} more rows in collected.csv."] if more > 0 else []


def _number(value: float | None, decimals: int) -> str:
    return _NOTHING if value is None else f"{value:.{decimals}f}"


def _significant(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.4g}"


def _text(value: Any) -> str:
    return _NOTHING if value is None else str(value)
