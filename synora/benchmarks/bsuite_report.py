"""Reports of bsuite sweeps: scores by experiment and tag as JSON, CSV, Markdown and LaTeX. Torch-free.

Every function reads the mapping that `build_bsuite_report` makes and `bsuite_results.json` holds.
"""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from synora.benchmarks.bsuite_scores import BsuiteScores, ExperimentScore, TagScore, score_logs
from synora.benchmarks.bsuite_sweep import EXPERIMENTS, TAGS, Sweep, split_id
from synora.core.files import write_json, write_text
from synora.core.result import Result
from synora.core.tables import Column, Table, csv_text, to_latex, to_markdown, to_text

SCHEMA_VERSION = 1
REPORT_NAME = "bsuite_results"
PUBLISHED = "bsuite_published.csv"
CITATION = (
    'Hafner et al., "Mastering Diverse Domains through World Models", arXiv:2301.04104 (version of 2024), Table 13'
)
FROZEN = "frozen checkpoint"
FIXED = "policy that never learns"
UNKNOWN = "unknown"
MEANING = {
    FROZEN: "bsuite defines its scores over the whole learning run of an agent. These are the games of a frozen "
    "checkpoint, which learns nothing while it plays: they measure the trained policy and do not compare with "
    "published scores of bsuite.",
    FIXED: "This agent never learns, so that its games are what bsuite defines its scores over.",
    UNKNOWN: "bsuite defines its scores over the whole learning run of an agent; whether this one learns while it "
    "plays is known to its adapter only.",
}
_PARTIAL = "* partial: not every task of the experiment, or not its full number of episodes."
_OVERALL = "bsuite defines no score over all experiments."

Report = Mapping[str, Any]


def build_bsuite_report(sweep: Sweep, agents: Mapping[str, tuple[str, Sequence[Result]]]) -> dict[str, Any]:
    """Score the results of a sweep.

    Args:
        sweep: the tasks that were wanted.
        agents: agent -> what its games are (`FROZEN`, `FIXED` or `UNKNOWN`) and its results, one a task and seed.

    Returns:
        JSON values: `schema_version`, `kind`, `sweep`, `tasks`, `left_out` (`experiments`, `reason`), `published`
        (`citation`, and `scores`: agent -> experiment or tag -> score), and `agents`: a mapping each with `agent`,
        `setting` and `setting_note`, `protocol`, `device`, `checkpoints`, `seeds`, `experiments`, `tags`, `tasks` and
        `failures`. A score is the mean over the seeds, None with a `reason` where one has none; `per_seed` has them.
    """
    names = list(dict.fromkeys(split_id(task)[0].name for task in sweep.ids))
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "bsuite",
        "sweep": sweep.name,
        "tasks": len(sweep.ids),
        "left_out": {"experiments": list(sweep.left_out), "reason": sweep.reason},
        "overall": {"score": None, "reason": _OVERALL},
        "agents": [_agent(name, setting, results, names) for name, (setting, results) in agents.items()],
        "published": {"citation": CITATION, "scores": published_scores()},
    }


@cache
def published_scores() -> dict[str, dict[str, float]]:
    """Return agent -> experiment or tag -> score as printed, of agents that learned while they were scored."""
    text = files("synora.benchmarks").joinpath(PUBLISHED).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    agents = [column for column in rows[0] if column not in ("level", "name")]
    return {agent: {row["name"]: float(row[agent]) for row in rows} for agent in agents}


def write_bsuite_reports(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write `bsuite_results.{csv,md,tex,json}` and return their paths.

    Raises:
        FileError: a file cannot be written.
    """
    base = Path(folder) / REPORT_NAME
    # The JSON last: where it is, the others are too.
    return [
        write_text(base.with_suffix(".csv"), csv_text(csv_rows(report))),
        write_text(base.with_suffix(".md"), as_markdown(report)),
        write_text(base.with_suffix(".tex"), to_latex(_table(report, published=True))),
        write_json(base.with_suffix(".json"), report),
    ]


def as_text(report: Report) -> str:
    """Return the tables for a terminal."""
    return to_text(_table(report, published=False))


def as_markdown(report: Report) -> str:
    """Return the Markdown page: the scores beside published ones, what they are, and what is not there."""
    agents = report["agents"]
    parts = [f"# bsuite scores: sweep {report['sweep']}", *(_about(one) for one in agents)]
    parts.append(to_markdown(_table(report, published=True)).rstrip())
    if report["left_out"]["experiments"]:
        parts.append(f"Left out: {', '.join(report['left_out']['experiments'])}. {report['left_out']['reason']}")
    for one in agents:
        if len(one["seeds"]) > 1:
            parts.append(f"## {one['agent']} by seed\n\n{to_markdown(_seeds_table(one)).rstrip()}")
        notes = [f"- {row['experiment']}: {row['note']}" for row in one["experiments"] if row["note"]]
        if notes:
            parts.append(f"## What the scores of {one['agent']} lack\n\n" + "\n".join(notes))
        if one["failures"]:
            parts.append(f"## Failed tasks of {one['agent']}\n\n" + "\n".join(f"- {line}" for line in one["failures"]))
    return "\n\n".join(parts) + "\n"


def csv_rows(report: Report) -> list[dict[str, Any]]:
    """Return flat rows: for every agent, experiment and tag one a seed, and one with the mean (`seed` is "mean")."""
    rows = []
    for agent in report["agents"]:
        for level, name in (("experiment", "experiments"), ("tag", "tags")):
            for row in agent[name]:
                for one in (*row["per_seed"], {**row, "seed": "mean"}):
                    rows.append(
                        {
                            "agent": agent["agent"],
                            "setting": agent["setting"],
                            "level": level,
                            "name": row[level],
                            **{key: one.get(key) for key in ("seed", "score", "complete")},
                            "tasks": one.get("tasks"),
                            "tasks_of": row.get("tasks_of"),
                            "episodes": one.get("episodes"),
                            "episodes_of": row.get("episodes_of"),
                            "experiments": one.get("experiments"),
                            "experiments_of": row.get("experiments_of"),
                            "reason": one["reason"],
                        }
                    )
    return rows


def failed(report: Report) -> bool:
    """Return whether a task of any agent failed."""
    return any(agent["failures"] for agent in report["agents"])


def _agent(name: str, setting: str, results: Sequence[Result], experiments: Sequence[str]) -> dict[str, Any]:
    tasks = [_task(result) for result in results]
    seeds = list(dict.fromkeys(task["seed"] for task in tasks))
    logs: dict[int, dict[str, Any]] = {seed: {} for seed in seeds}
    for task, result in zip(tasks, results, strict=True):
        if task["status"] == "ok":
            logs[task["seed"]][task["task"]] = _body(result)["bsuite"]["rows"]
    scores = {seed: score_logs(found) if found else BsuiteScores({}, {}) for seed, found in logs.items()}
    bodies = [_body(result) for result in results if result.body]
    # A trained agent may have a checkpoint for every task.
    checkpoints = {one["path"]: one for body in bodies if (one := body["checkpoint"])}
    tags = [tag for tag in TAGS if any(tag in EXPERIMENTS[experiment].tags for experiment in experiments)]
    return {
        "agent": name,
        "setting": setting,
        "setting_note": MEANING[setting],
        "protocol": bodies[0]["protocol"] if bodies else None,
        "device": bodies[0]["device"] if bodies else None,
        "checkpoints": [{key: one.get(key) for key in ("path", "step", "sha256")} for one in checkpoints.values()],
        "seeds": seeds,
        "experiments": [_experiment(EXPERIMENTS[one].name, scores, logs) for one in experiments],
        "tags": [_tag(tag, scores) for tag in tags],
        "tasks": tasks,
        "failures": [f"{task['task']}, seed {task['seed']}: {task['reason']}" for task in tasks if task["reason"]],
    }


def _task(result: Result) -> dict[str, Any]:
    params: Any = result.job.params
    body = _body(result)
    found = body.get("bsuite") or {}
    reason = result.error.message if result.error else found.get("reason")
    if reason is None and not found.get("rows"):
        reason = "the result has no figures of bsuite"
    return {
        "task": str(params["game"]),
        "seed": int(params["eval_seed"]),
        "status": "ok" if reason is None else "failed",
        "episodes": params["episodes"],
        "episodes_of": split_id(params["game"])[0].episodes,
        "mean_return": body.get("mean"),
        "reason": reason,
        "job_id": result.job_id,
    }


def _experiment(name: str, scores: Mapping[int, BsuiteScores], logs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    experiment = EXPERIMENTS[name]
    per_seed = []
    for seed, found in scores.items():
        one = found.experiments.get(name)
        last = [int(rows[-1]["episode"]) for task, rows in logs[seed].items() if split_id(task)[0] is experiment]
        per_seed.append({"seed": seed, **_seed_score(one), "tasks": len(last), "episodes": min(last, default=0)})
    sets = {frozenset(task for task in logs[seed] if split_id(task)[0] is experiment) for seed in scores}
    score, reason = _mean(per_seed, "tasks" if len(sets) > 1 else None)
    notes = dict.fromkeys(one["note"] for one in per_seed if one["note"])
    return {
        "experiment": name,
        "tags": list(experiment.tags),
        "score": score,
        "reason": reason,
        "complete": all(one["complete"] for one in per_seed),
        "tasks": min(one["tasks"] for one in per_seed),
        "tasks_of": experiment.settings,
        "episodes": min(one["episodes"] for one in per_seed),
        "episodes_of": experiment.episodes,
        "note": " / ".join(notes) or None,
        "per_seed": per_seed,
    }


def _seed_score(one: ExperimentScore | None) -> dict[str, Any]:
    if one is None:
        return {"score": None, "reason": "every task of it failed", "complete": False, "note": None}
    complete = one.score is not None and one.finished and not one.missing
    return {"score": one.score, "reason": one.reason, "complete": complete, "note": one.note}


def _tag(tag: str, scores: Mapping[int, BsuiteScores]) -> dict[str, Any]:
    total = sum(tag in one.tags for one in EXPERIMENTS.values())
    per_seed: list[dict[str, Any]] = []
    sets, counts = set(), []
    for seed, found in scores.items():
        one = found.tags.get(tag) or TagScore(tag, None, False, (), ())
        sets.add(one.experiments)
        whole = bool(one.experiments) and not one.missing
        complete = whole and all(_seed_score(found.experiments[name])["complete"] for name in one.experiments)
        reason = None if one.score is not None else "none of its experiments has a score"
        counts.append(len(one.experiments))
        row = {"seed": seed, "score": one.score, "reason": reason, "complete": complete}
        per_seed.append({**row, "experiments": counts[-1]})
    score, reason = _mean(per_seed, "experiments" if len(sets) > 1 else None)
    return {
        "tag": tag,
        "score": score,
        "reason": reason,
        "complete": all(one["complete"] for one in per_seed),
        "experiments": min(counts),
        "experiments_of": total,
        "per_seed": per_seed,
    }


def _mean(per_seed: Sequence[Mapping[str, Any]], differ: str | None) -> tuple[float | None, str | None]:
    """Return the mean over seeds, or None and why there is none."""
    for one in per_seed:
        if one["score"] is None:
            return None, f"seed {one['seed']}: {one['reason']}" if len(per_seed) > 1 else one["reason"]
    if differ:
        return None, f"the seeds have scores of different {differ}"
    return statistics.fmean(one["score"] for one in per_seed), None


def _table(report: Report, *, published: bool) -> Table:
    """Return the table of all agents: the experiments, and below a rule the tags."""
    agents = report["agents"]
    others = report["published"]["scores"] if published else {}
    columns = [Column("experiment", "left"), Column("type", "left"), *(Column(one["agent"]) for one in agents)]
    if len(agents) == 1:
        columns += [Column("tasks"), Column("episodes")]
    columns += [Column(f"{name}, published") for name in others]
    rows: list[list[str]] = []
    for place, first in enumerate(agents[0]["experiments"]):
        counts = [f"{first['tasks']} of {first['tasks_of']}", f"{first['episodes']} of {first['episodes_of']}"]
        scores = [_score(one["experiments"][place]) for one in agents]
        rows.append(
            [first["experiment"], first["tags"][0], *scores, *(counts if len(agents) == 1 else [])]
            + [f"{table[first['experiment']]:.2f}" for table in others.values()]
        )
    rule = len(rows)
    for place, first in enumerate(agents[0]["tags"]):
        counts = [f"{first['experiments']} of {first['experiments_of']} experiments", ""]
        scores = [_score(one["tags"][place]) for one in agents]
        rows.append(
            [first["tag"], "tag", *scores, *(counts if len(agents) == 1 else [])]
            + [f"{table[first['tag']]:.2f}" for table in others.values()]
        )
    return Table.of(
        columns,
        rows,
        rules=(rule,),
        caption=f"bsuite scores, sweep {report['sweep']}" if published else None,
        label="tab:bsuite" if published else None,
        notes=tuple(_notes(report, published)),
    )


def _notes(report: Report, published: bool) -> Iterable[str]:
    agents = report["agents"]
    yield "Scores are from 0 to 1. A tag's is the mean over its experiments with a score. " + _OVERALL
    if any(not row["complete"] for one in agents for name in ("experiments", "tags") for row in one[name]):
        yield _PARTIAL
    for one in agents:
        yield f"{one['agent']}, {one['setting']}: {one['setting_note']}"
    if published:
        yield f"Published, of agents that learned while they were scored: {report['published']['citation']}."


def _seeds_table(agent: Mapping[str, Any]) -> Table:
    columns = [
        Column("experiment or tag", "left"),
        Column("mean"),
        *(Column(f"seed {seed}") for seed in agent["seeds"]),
    ]
    rows = [
        [row.get("experiment") or row["tag"], _score(row), *(_score(one) for one in row["per_seed"])]
        for row in (*agent["experiments"], *agent["tags"])
    ]
    return Table.of(columns, rows, rules=(len(agent["experiments"]),))


def _score(row: Mapping[str, Any]) -> str:
    if row["score"] is None:
        return "-"
    return f"{row['score']:.2f}" + ("" if row["complete"] else "*")


def _about(agent: Mapping[str, Any]) -> str:
    protocol = agent["protocol"] or {}
    facts = {
        "agent": f"{agent['agent']}, {agent['setting']}",
        "protocol": f"{protocol['name']}, fingerprint {protocol['fingerprint']}" if protocol else None,
        "device": agent["device"],
        "seeds": ", ".join(map(str, agent["seeds"])),
        "checkpoint": _checkpoints(agent["checkpoints"]),
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)


def _checkpoints(found: Sequence[Mapping[str, Any]]) -> str | None:
    if len(found) > 1:
        return f"{len(found)}, one a task and seed; the first is {found[0]['path']}"
    return f"{found[0]['path']} (step {found[0]['step']})" if found else None


def _body(result: Result) -> dict[str, Any]:
    return dict(result.body or {})
