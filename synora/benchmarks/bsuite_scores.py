"""bsuite's scores of logged experiments, and their averages per tag.

The rules are those of Osband et al., "Behaviour Suite for Reinforcement Learning", ICLR 2020 (arXiv:1908.03568), as the
analysis code of bsuite 0.3.6 makes them precise. They are written anew because that code cannot score deep sea with
pandas 2 or later. Where it computes with NaN, because a row it needs is missing, the score here is None with a reason.

`bsuite_logs` has the logs, `bsuite_sweep` the experiments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from synora.benchmarks.bsuite_logs import Floats, Log, as_log
from synora.benchmarks.bsuite_sweep import EXPERIMENTS, TAGS, Experiment, split_id, task_ranges
from synora.core.errors import UsageError, unknown_value

# The logs of tasks that are scored together, by their place in the experiment.
_Logs = Mapping[int, Log]


@dataclass(frozen=True)
class ExperimentScore:
    """The score of one experiment.

    Attributes:
        experiment: its name.
        score: from 0 to 1; None where bsuite defines none.
        reason: why there is no score, else None.
        finished: every logged task has run its full number of episodes. As in bsuite, missing tasks do not count.
        episodes: the full number.
        num_settings: tasks of the experiment.
        missing: tasks without a log.
        unfinished: logged tasks -> their last logged episode, where it is below the full number.
    """

    experiment: str
    score: float | None
    reason: str | None
    finished: bool
    episodes: int
    num_settings: int
    missing: tuple[str, ...]
    unfinished: Mapping[str, int]

    @property
    def tags(self) -> tuple[str, ...]:
        """The experiment's tags, the first one being its type."""
        return EXPERIMENTS[self.experiment].tags

    @property
    def note(self) -> str | None:
        """One line on what the score lacks, None when it lacks nothing."""
        notes = []
        if self.reason:
            notes.append(f"no score: {self.reason}")
        if self.unfinished:
            task, last = min(self.unfinished.items(), key=lambda item: item[1])
            there = self.num_settings - len(self.missing)
            notes.append(
                f"partial: {len(self.unfinished)} of {there} logged settings have not run {self.episodes} episodes "
                f"({task} has {last})"
            )
        if self.missing:
            there = self.num_settings - len(self.missing)
            notes.append(f"{there} of {self.num_settings} settings (missing: {task_ranges(self.missing)})")
        return "; ".join(notes) or None


@dataclass(frozen=True)
class TagScore:
    """The plain mean over a tag's experiments that have a score.

    Attributes:
        tag: its name.
        score: None when no experiment of the tag has a score.
        finished: every experiment in the mean is finished.
        experiments: those in the mean.
        missing: the tag's other experiments.
    """

    tag: str
    score: float | None
    finished: bool
    experiments: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class BsuiteScores:
    """All scores of one agent, by experiment and by tag."""

    experiments: Mapping[str, ExperimentScore]
    tags: Mapping[str, TagScore]

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON values."""
        experiments = {
            name: {**asdict(one), "missing": list(one.missing), "tags": list(one.tags), "note": one.note}
            for name, one in self.experiments.items()
        }
        tags = {
            name: {**asdict(one), "experiments": list(one.experiments), "missing": list(one.missing)}
            for name, one in self.tags.items()
        }
        return {"experiments": experiments, "tags": tags}


def score_logs(logs: Mapping[str, Iterable[Mapping[str, Any]] | Mapping[str, Any]]) -> BsuiteScores:
    """Score all experiments of which there are logs.

    Args:
        logs: task ("catch/0") -> its rows, as `bsuite_logs.as_log` takes them (`read_logs(folder).tasks` are such).

    Raises:
        UsageError: no logs, or one that is none.
    """
    if not logs:
        raise UsageError("there are no bsuite logs to score.")
    found: dict[str, dict[str, Any]] = {}
    for task, rows in logs.items():
        found.setdefault(split_id(task)[0].name, {})[task] = rows
    scores = {name: score_experiment(name, found[name]) for name in EXPERIMENTS if name in found}
    return BsuiteScores(scores, tag_scores(scores.values()))


def score_experiment(name: str, logs: Mapping[str, Iterable[Mapping[str, Any]] | Mapping[str, Any]]) -> ExperimentScore:
    """Score one experiment.

    Args:
        name: of the experiment.
        logs: its tasks -> their rows, as in `score_logs`.

    Raises:
        UsageError: no such experiment, no logs, one that is none, or one of another experiment.
    """
    if name not in EXPERIMENTS:
        raise unknown_value("bsuite experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    by_place: dict[int, Log] = {}
    for task, rows in logs.items():
        other, place = split_id(task)
        if other is not experiment:
            raise UsageError(f"{task} is not a task of {name}.")
        by_place[place] = as_log(task, rows)
    if not by_place:
        raise UsageError(f"there are no logs of {name} to score.")
    by_place = dict(sorted(by_place.items()))
    score: float | None = None
    reason: str | None = None
    try:
        score = _score(experiment, by_place)
    except _NoScore as error:
        reason = str(error)
    last = {f"{name}/{place}": int(log["episode"][-1]) for place, log in by_place.items()}
    unfinished = {task: episode for task, episode in last.items() if episode < experiment.episodes}
    missing = tuple(task for task in experiment.ids if task not in last)
    return ExperimentScore(
        name, score, reason, not unfinished, experiment.episodes, experiment.settings, missing, unfinished
    )


def tag_scores(scores: Iterable[ExperimentScore]) -> dict[str, TagScore]:
    """Return the mean score of every tag; an experiment counts in each of its tags."""
    there = {one.experiment: one for one in scores if one.score is not None}
    tags = {}
    for tag in TAGS:
        names = [one.name for one in EXPERIMENTS.values() if tag in one.tags]
        counted = tuple(name for name in names if name in there)
        mean = float(np.mean([there[name].score for name in counted])) if counted else None
        finished = bool(counted) and all(there[name].finished for name in counted)
        tags[tag] = TagScore(tag, mean, finished, counted, tuple(name for name in names if name not in there))
    return tags


class _NoScore(Exception):
    """bsuite's rule gives no number for these logs."""


def _score(experiment: Experiment, logs: _Logs) -> float:
    rule = _RULES[experiment.rule]
    if experiment.rule == experiment.name:
        return rule(logs, experiment.episodes)
    # Added noise or scale: the mean over its values, and that mean less one standard deviation, half each.
    groups: dict[int, dict[int, Log]] = {}
    for place, log in logs.items():
        groups.setdefault(place // experiment.repeats, {})[place] = log
    scores = [rule(group, experiment.episodes) for group in groups.values()]
    mean = np.mean(scores)
    return float(0.5 * (np.clip(mean, 0.0, 1.0) + np.clip(mean - np.std(scores), 0.0, 1.0)))


def _average_at_last(logs: Sequence[Log], figure: Callable[[Log], Floats], episodes: int) -> float:
    """Return the mean per episode of a figure at the last episode any log has; logs that are behind drop out."""
    last = min(max(log["episode"][-1] for log in logs), episodes)
    values = np.concatenate([figure(log)[log["episode"] == last] for log in logs])
    if not len(values):
        raise _NoScore(f"no row at episode {last:g}")
    return float(np.mean(values) / last)


def _regret_score(logs: Sequence[Log], figure: Callable[[Log], Floats], baseline: float, episodes: int) -> float:
    regret = _average_at_last(logs, figure, episodes)
    return float(np.clip((baseline - regret) / baseline, 0.0, 1.0))


def _until(log: Log, episodes: int) -> Log:
    return {name: values[log["episode"] <= episodes] for name, values in log.items()}


def _total_regret(log: Log) -> Floats:
    return log["total_regret"]


def _regret_rule(baseline: float) -> Callable[[_Logs, int], float]:
    return lambda logs, episodes: _regret_score(list(logs.values()), _total_regret, baseline, episodes)


def _balance(
    logs: Iterable[Log], figure: Callable[[Log], Floats], baseline: float, good: float, episodes: int
) -> float:
    """Half regret, half the share of tasks that ever had a good episode; later rows than the last count nowhere."""
    kept = [cut for log in logs if len((cut := _until(log, episodes))["episode"])]
    if not kept:
        raise _NoScore(f"no row up to episode {episodes}")
    solved = np.mean([log["best_episode"].max() > good for log in kept])
    return float(0.5 * (_regret_score(kept, figure, baseline, episodes) + solved))


def _cartpole(logs: _Logs, episodes: int) -> float:
    return _balance(logs.values(), lambda log: 1000.0 * log["episode"] - log["raw_return"], 1000.0, 500.0, episodes)


def _swingup(logs: _Logs, episodes: int) -> float:
    def regret(log: Log) -> Floats:
        return 700.0 * log["episode"] - log["total_return"]

    # Every task has its own height threshold.
    return float(np.mean([_balance([log], regret, 700.0, 100.0, episodes) for log in logs.values()]))


def _mountain_car(logs: _Logs, episodes: int) -> float:
    return _regret_score(list(logs.values()), lambda log: -100.0 * log["episode"] - log["raw_return"], 1000.0, episodes)


def _mnist(logs: _Logs, episodes: int) -> float:
    """Half regret, half the accuracy between the rows of the last tenth."""
    accuracies = []
    for log in logs.values():
        returns = 1.0 - np.diff(log["total_regret"]) / np.diff(log["episode"])
        accuracies.append((returns[log["episode"][1:] > 0.9 * episodes] + 1.0) / 2.0)
    late = np.concatenate(accuracies)
    if not len(late):
        raise _NoScore(f"no row after episode {0.9 * episodes:g}, where the accuracy is taken")
    return float(0.5 * (_regret_rule(1.8)(logs, episodes) + np.mean(late)))


def _deep_sea(bad_share: float, first_episode: int) -> Callable[[_Logs, int], float]:
    def rule(logs: _Logs, episodes: int) -> float:
        solved = []
        for place, log in logs.items():
            inside = (log["episode"] >= first_episode) & (log["episode"] <= episodes)
            if not inside.any():
                continue  # as in bsuite, a size without rows is not in the mean
            episode, bad = log["episode"][inside], log["total_bad_episodes"][inside]
            good = episode[bad / episode < bad_share]
            size = 10 + 2 * place
            solved.append(len(good) > 0 and bool(good[0] < 2.0**size + 100.0))
        if not solved:
            raise _NoScore(f"no row from episode {first_episode} to {episodes}")
        return float(np.mean(solved))

    return rule


def _discounting_chain(logs: _Logs, episodes: int) -> float:
    average = _average_at_last(list(logs.values()), lambda log: log["total_return"], episodes)
    return float(np.clip(1.0 - 10.0 * (1.1 - average), 0.0, 1.0))


def _share_below(figure: Callable[[Log], Floats], threshold: float) -> Callable[[_Logs, int], float]:
    """Share of tasks, each a group of its own, whose figure per episode at their last row is below a threshold."""
    return lambda logs, episodes: float(
        np.mean([_average_at_last([log], figure, episodes) < threshold for log in logs.values()])
    )


# A random agent remembers nothing and is perfect half of the time.
_memory = _share_below(lambda log: (log["episode"] - log["total_perfect"]) / 0.5, 0.75)
_umbrella = _share_below(_total_regret, 0.5)
_RULES: dict[str, Callable[[_Logs, int], float]] = {
    "bandit": _regret_rule(0.5),
    "cartpole": _cartpole,
    "cartpole_swingup": _swingup,
    "catch": _regret_rule(1.6),
    "deep_sea": _deep_sea(0.9, 1),
    "deep_sea_stochastic": _deep_sea(0.8, 100),
    "discounting_chain": _discounting_chain,
    "memory_len": _memory,
    "memory_size": _memory,
    "mnist": _mnist,
    "mountain_car": _mountain_car,
    "umbrella_distract": _umbrella,
    "umbrella_length": _umbrella,
}
