"""Returns by agent, game and protocol: evaluations become training runs, and runs become cells. Torch-free.

A training run is a training seed and a checkpoint. The evaluation seeds of a run are averaged into its mean and never
count as runs. Nothing is averaged over different rules, different adapters of one name, or different checkpoints of one
training seed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from synora.batch.collect_read import Evaluation, Problem, Record, short_params
from synora.benchmarks import metrics
from synora.benchmarks.episodes import spread
from synora.core.errors import SynoraError
from synora.core.job import JobSpec

Mode = Literal["strict", "available"]
Task = tuple[str, str]  # agent, game

_ATARI = (None, "auto", "ale")
_NO_RUN = "no run has a mean"


@dataclass
class ReturnsFound:
    """The cells, and what is to be said of them."""

    cells: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Jobs:
    """What all known jobs, planned ones and those with a result, say should be there.

    Args:
        records: those that count.
        planned: job id -> spec.
    """

    def __init__(self, records: Sequence[Record], planned: Mapping[str, JobSpec]) -> None:
        self.names, self.mixed = _names(records)
        self._agents: dict[str, str] = {}
        self._games: dict[tuple[str, str], tuple[str, str | None]] = {}
        for record in records:
            if record.returns is not None:
                self._agents.setdefault(str(record.params.get("agent")), self.names[record.job_id])
                self._games[self._asked(record.params)] = (record.returns.game, record.returns.backend)
        self.checkpoints: dict[Task, set[str | None]] = defaultdict(set)
        self.eval_seeds: dict[tuple[Task, str | None], set[int]] = defaultdict(set)
        self.backends: dict[Task, str | None] = {}
        self.train_seeds: dict[Task, set[Any]] = defaultdict(set)
        for record in records:
            self._expect(record.kind, record.params, self.names.get(record.job_id))
        for job in planned.values():
            self._expect(job.kind, short_params(job), self.names.get(job.job_id))
        playing = {agent for agent, _ in self.checkpoints}
        self.train_seeds = {task: seeds for task, seeds in self.train_seeds.items() if task[0] in playing}

    def tasks(self) -> list[Task]:
        """Return every (agent, game) that somebody expects returns of."""
        return sorted({*self.checkpoints, *self.train_seeds})

    def runs(self, task: Task) -> int:
        """Return how many training runs are expected."""
        return max(len(self.checkpoints.get(task, ())), len(self.train_seeds.get(task, ())))

    def _expect(self, kind: str, params: Mapping[str, Any], name: str | None) -> None:
        if kind not in ("returns", "train") or not isinstance(params.get("game"), str):
            return
        agent = str(params.get("agent"))
        game, backend = self._game(params)
        task = (name or self._agents.get(agent, agent), game)
        self.backends[task] = backend
        if kind == "train":
            self.train_seeds[task].add(params.get("train_seed"))
            return
        checkpoint = params.get("checkpoint")
        self.checkpoints[task].add(checkpoint)
        self.eval_seeds[task, checkpoint].add(params.get("eval_seed", 0))

    def _game(self, params: Mapping[str, Any]) -> tuple[str, str | None]:
        """Return canonical name and backend of a job's game."""
        from synora.envs.ids import resolve

        key = self._asked(params)
        if key not in self._games:
            try:
                found = resolve(*key)
                self._games[key] = (found.name, found.backend)
            except SynoraError:
                self._games[key] = (key[0], params.get("backend"))
        return self._games[key]

    @staticmethod
    def _asked(params: Mapping[str, Any]) -> tuple[str, str]:
        return str(params.get("game")), str(params.get("backend") or "auto")


def returns_cells(records: Sequence[Record], jobs: Jobs, mode: Mode, allow_mixed_protocol: bool) -> ReturnsFound:
    """Return one cell an agent, game and protocol.

    Raises:
        SynoraError: one agent played one game under different rules, and that is not allowed.
    """
    found = ReturnsFound(notes=list(jobs.mixed))
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        one = record.returns
        if one is not None:
            groups[jobs.names[record.job_id], one.game, one.backend, one.protocol, one.fingerprint].append(record)
    _require_one_protocol(groups, found.notes, allow_mixed_protocol)
    rules: dict[str, set[tuple[Any, Any]]] = defaultdict(set)
    for (agent, game, backend, protocol, fingerprint), members in groups.items():
        runs, reason = _runs(members, jobs, (agent, game), mode, found.problems)
        if reason is not None:
            found.notes.append(f"{agent}, {game}: {reason}")
        key = {"agent": agent, "game": game, "backend": backend, "protocol": protocol, "fingerprint": fingerprint}
        found.cells.append(_cell(key, runs, jobs.runs((agent, game)), mode, reason))
        rules[agent].add((protocol, fingerprint))
    there = {(cell["agent"], cell["game"]) for cell in found.cells}
    for agent, game in jobs.tasks():
        if (agent, game) not in there:
            known = rules.get(agent, set())
            protocol, fingerprint = next(iter(known)) if len(known) == 1 else (None, None)
            key = {"agent": agent, "game": game, "backend": jobs.backends.get((agent, game))}
            key |= {"protocol": protocol, "fingerprint": fingerprint}
            found.cells.append(_cell(key, [], jobs.runs((agent, game)), mode, None))
    found.cells.sort(
        key=lambda cell: [str(cell[name] or "") for name in ("agent", "game", "backend", "protocol", "fingerprint")]
    )
    found.notes.sort()
    return found


def _names(records: Iterable[Record]) -> tuple[dict[str, str], list[str]]:
    """Return job id -> what its agent is called, and a line for each name that two adapters share."""
    adapters: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if record.returns is not None:
            adapters[record.returns.agent].add(record.returns.adapter or "unknown adapter")
    names, notes = {}, []
    for record in records:
        if record.returns is not None:
            agent = record.returns.agent
            several = len(adapters[agent]) > 1
            names[record.job_id] = f"{agent} [{record.returns.adapter or 'unknown adapter'}]" if several else agent
    for agent, classes in sorted(adapters.items()):
        if len(classes) > 1:
            told = ", ".join(sorted(classes))
            notes.append(f"agent name {agent} stands for {len(classes)} adapters ({told}): they are kept apart.")
    return names, notes


def _require_one_protocol(groups: Mapping[tuple[Any, ...], Sequence[Record]], notes: list[str], allowed: bool) -> None:
    rules: dict[Task, list[tuple[str, str]]] = defaultdict(list)
    for (agent, game, _, protocol, fingerprint), members in groups.items():
        text = f"{protocol or 'unknown rules'} (fingerprint {fingerprint})" if fingerprint else "unknown rules"
        rules[agent, game].append((text, min(record.file for record in members)))
    mixed = [(agent, game, sorted(told)) for (agent, game), told in sorted(rules.items()) if len(told) > 1]
    if not mixed:
        return
    if not allowed:
        agent, game, told = mixed[0]
        lines = "; ".join(f"{text} in {file}" for text, file in told)
        more = f" ({len(mixed) - 1} more games likewise)" if len(mixed) > 1 else ""
        raise SynoraError(
            f"{agent} played {game} under different rules: {lines}{more}. They are not averaged: collect them apart, "
            "or add --allow-mixed-protocol, which keeps them in separate rows. Nothing was written."
        )
    for agent, game, told in mixed:
        notes.append(
            f"{agent} played {game} under {len(told)} protocols, kept apart: {', '.join(text for text, _ in told)}."
        )


def _runs(
    members: Sequence[Record], jobs: Jobs, task: Task, mode: Mode, problems: list[Problem]
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the training runs of a cell, and why they cannot be averaged, if so."""
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in members:
        one = record.returns
        assert one is not None
        # A checkpoint that was moved is the same one where its digest is known.
        groups[one.train_seed, one.sha256 or one.checkpoint, one.step].append(record)
    ordered = sorted(groups.values(), key=lambda group: _run_order(group))
    seeds = [group[0].returns.train_seed for group in ordered if group[0].returns]
    named = None not in seeds and len(set(seeds)) == len(seeds)
    runs = []
    for index, group in enumerate(ordered):
        seeds_expected = set().union(
            *(jobs.eval_seeds.get((task, one.params.get("checkpoint")), set()) for one in group)
        )
        run = {"run": str(seeds[index]) if named else str(index)}
        runs.append(run | _run(_one_a_seed(group, problems), seeds_expected, mode))
    return runs, _conflict(runs)


def _run_order(group: Sequence[Record]) -> tuple[Any, ...]:
    paths = sorted((one.checkpoint or "", one.step or 0) for one in (record.returns for record in group) if one)
    first = group[0].returns
    seed = first.train_seed if first else None
    return (seed is None, seed or 0, paths)


def _one_a_seed(group: Sequence[Record], problems: list[Problem]) -> list[Evaluation]:
    """Return one evaluation an evaluation seed: the longest; others played the same games and would count twice."""
    best: dict[int, Record] = {}
    for record in sorted(group, key=lambda record: (-record.returns.episodes if record.returns else 0, record.job_id)):
        one = record.returns
        assert one is not None
        if one.eval_seed in best:
            other = best[one.eval_seed].file
            detail = (
                f"evaluation seed {one.eval_seed} of a run that {other} evaluates too, with as many episodes or more"
            )
            problems.append(Problem(record.file, "duplicate", f"{detail}; that one counts."))
        else:
            best[one.eval_seed] = record
    return [best[seed].returns for seed in sorted(best)]  # type: ignore[misc]


def _run(evaluations: Sequence[Evaluation], expected: set[int], mode: Mode) -> dict[str, Any]:
    """Return one training run: the mean of the means of its evaluation seeds."""
    means = [one.mean for one in evaluations if one.mean is not None]
    mean, reason = None, None
    failed = [one for one in evaluations if one.mean is None]
    lacking = sorted(expected - {one.eval_seed for one in evaluations})
    if failed:
        reason = failed[0].reason or "an episode failed"
    elif lacking:
        reason = f"{len(means)} of {len(means) + len(lacking)} evaluation seeds"
    if not failed and (mode == "available" or not lacking):
        mean = sum(means) / len(means)
    return {
        "train_seed": evaluations[0].train_seed,
        "checkpoint": min((one.checkpoint for one in evaluations if one.checkpoint is not None), default=None),
        "step": evaluations[0].step,
        "mean": mean,
        "std": spread(means) if mean is not None else None,
        "episodes": sum(one.episodes for one in evaluations),
        "episodes_failed": sum(one.episodes_failed for one in evaluations),
        "eval_seeds": [one.eval_seed for one in evaluations],
        "reason": reason,
    }


def _conflict(runs: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a line when two runs claim to be the same training run."""
    known: dict[Any, Mapping[str, Any]] = {}
    for run in runs:
        seed = run["train_seed"]
        key = ("path", run["checkpoint"]) if seed is None else ("seed", seed)
        if key in known:
            first, second = known[key], run
            who = f"training seed {seed}" if seed is not None else "one checkpoint path"
            return (
                f"{who} has two checkpoints, {first['checkpoint']} (step {first['step']}) and {second['checkpoint']} "
                f"(step {second['step']}): they are not averaged; collect them apart."
            )
        known[key] = run
    return None


def _cell(
    key: Mapping[str, Any], runs: list[dict[str, Any]], expected: int, mode: Mode, conflict: str | None
) -> dict[str, Any]:
    """Return the figures of one agent in one game under one protocol."""
    means = [run["mean"] for run in runs if run["mean"] is not None]
    expected = max(expected, len(runs))
    cell: dict[str, Any] = {**key, "runs": runs, **dict.fromkeys(("mean", "std", "low", "high"))}
    cell |= {"n": len(means), "expected": expected, "hns": None, "hns_reason": None, "reason": None}
    if conflict is not None:
        cell |= {"n": 0, "reason": conflict}
    elif not means:
        told = next((f": {run['reason']}" for run in runs if run["reason"]), "")
        cell["reason"] = f"{_NO_RUN}{told}" if runs else f"none of {expected} runs has a result"
    elif mode == "strict" and len(means) < expected:
        cell["reason"] = f"{len(means)} of {expected} runs"
    else:
        cell |= {"mean": sum(means) / len(means), "std": spread(means)}
        interval = metrics.bootstrap_ci(means, "mean")
        cell |= {"low": interval.lower, "high": interval.upper, "reason": interval.reason}
        if len(means) < expected:
            cell["reason"] = "; ".join(filter(None, (f"{len(means)} of {expected} runs", interval.reason)))
    score = normalised(key, cell["mean"])
    return cell | {"hns": score.value, "hns_reason": score.reason}


def normalised(cell: Mapping[str, Any], score: float | None) -> Any:
    """Return the human-normalised score of a cell's game, or why there is none."""
    from synora.benchmarks.scores import Normalised, human_normalised_score

    backend = cell["backend"]
    if backend not in _ATARI:
        return Normalised(None, f"{cell['game']} ({backend}) is no Atari game: it has no human and random score.")
    return human_normalised_score(cell["game"], score, backend or "auto")
