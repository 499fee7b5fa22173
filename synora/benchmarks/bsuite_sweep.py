"""bsuite's 23 experiments and their 468 tasks, and the sweeps they make up.

They are those of Osband et al., "Behaviour Suite for Reinforcement Learning", ICLR 2020 (arXiv:1908.03568), in bsuite
0.3.6. The table is written out here so that logs can be scored where bsuite is not installed; a test holds it against
bsuite's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from synora.core.errors import DependencyMissing, UsageError, unknown_value
from synora.envs.ids import BSUITE_DATA

TAGS = ("basic", "noise", "scale", "memory", "exploration", "generalization", "credit_assignment")
ALL = "all"
TESTING = "testing"  # bsuite's name for the first task of every experiment without added noise or scale


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        name: as in its tasks' names ("catch" of "catch/0").
        settings: number of its tasks.
        episodes: after which a task is finished, NUM_EPISODES of bsuite.
        tags: the first one is its type.
        repeats: tasks in a row that share the value which the experiment sweeps.
    """

    name: str
    settings: int
    episodes: int
    tags: tuple[str, ...]
    repeats: int = 1

    @property
    def rule(self) -> str:
        """The experiment whose score it uses within each value of added noise or scale."""
        return re.sub(r"_(noise|scale)$", "", self.name)

    @property
    def ids(self) -> tuple[str, ...]:
        """Its tasks in order."""
        return tuple(f"{self.name}/{index}" for index in range(self.settings))


EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment("bandit", 20, 10_000, ("basic",)),
        Experiment("bandit_noise", 20, 10_000, ("noise",), 4),
        Experiment("bandit_scale", 20, 10_000, ("scale",), 4),
        Experiment("cartpole", 20, 1_000, ("basic", "credit_assignment", "generalization")),
        Experiment("cartpole_noise", 20, 1_000, ("noise", "generalization"), 4),
        Experiment("cartpole_scale", 20, 1_000, ("scale", "generalization"), 4),
        Experiment("cartpole_swingup", 20, 1_000, ("exploration", "generalization")),
        Experiment("catch", 20, 10_000, ("basic", "credit_assignment")),
        Experiment("catch_noise", 20, 10_000, ("noise", "credit_assignment"), 4),
        Experiment("catch_scale", 20, 10_000, ("scale", "credit_assignment"), 4),
        Experiment("deep_sea", 21, 10_000, ("exploration",)),
        Experiment("deep_sea_stochastic", 21, 10_000, ("exploration", "noise")),
        Experiment("discounting_chain", 20, 1_000, ("credit_assignment",)),
        Experiment("memory_len", 23, 10_000, ("memory",)),
        Experiment("memory_size", 17, 10_000, ("memory",)),
        Experiment("mnist", 20, 10_000, ("basic", "generalization")),
        Experiment("mnist_noise", 20, 10_000, ("noise", "generalization"), 4),
        Experiment("mnist_scale", 20, 10_000, ("scale", "generalization"), 4),
        Experiment("mountain_car", 20, 1_000, ("basic", "generalization")),
        Experiment("mountain_car_noise", 20, 1_000, ("noise", "generalization"), 4),
        Experiment("mountain_car_scale", 20, 1_000, ("scale", "generalization"), 4),
        Experiment("umbrella_distract", 23, 10_000, ("credit_assignment", "noise")),
        Experiment("umbrella_length", 23, 10_000, ("credit_assignment", "noise")),
    )
}


@dataclass(frozen=True)
class Sweep:
    """The tasks that a sweep's name stands for on this machine.

    Attributes:
        name: as bsuite writes it.
        ids: the tasks.
        left_out: experiments whose data is not on this machine.
        reason: why they are left out, and what to do; None when there are none.
    """

    name: str
    ids: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    reason: str | None = None


def sweep(name: str) -> Sweep:
    """Return the tasks of a sweep.

    Args:
        name: of an experiment ("catch") or a tag ("memory"); "testing" for bsuite's subset of 13 tasks; "all".

    Raises:
        UsageError: there is no such sweep.
        DependencyMissing: all of its tasks need data that is not on this machine.
    """
    wanted = name.strip().lower().replace("-", "_")
    ids = _ids(wanted)
    if ids is None:
        allowed = (*EXPERIMENTS, *TAGS, TESTING, ALL)
        raise unknown_value("bsuite sweep", name, allowed, hint="One task alone is --game catch/0.")
    families = dict.fromkeys(task.partition("/")[0] for task in ids)
    absent = {name: line for name in families if name in BSUITE_DATA and (line := _lacks_data(f"{name}/0"))}
    present = tuple(task for task in ids if task.partition("/")[0] not in absent)
    reason = next(iter(absent.values()), None)
    if not present:
        raise DependencyMissing(str(reason))
    return Sweep(wanted, present, tuple(absent), reason)


def split_id(task: str) -> tuple[Experiment, int]:
    """Return the experiment of a task and the task's place in it.

    Raises:
        UsageError: bsuite has no such task.
    """
    name, _, index = task.partition("/")
    if name not in EXPERIMENTS:
        raise unknown_value("bsuite experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", index) or int(index) >= experiment.settings:
        raise UsageError(
            f"unknown bsuite task {task!r}: {name} has {experiment.settings} settings, {name}/0 to "
            f"{name}/{experiment.settings - 1}."
        )
    return experiment, int(index)


def task_ranges(tasks: Sequence[str]) -> str:
    """Return "catch/3 to catch/19" for tasks that follow each other in their experiment."""
    runs: list[list[str]] = []
    for task in tasks:
        if runs and _follows(task, runs[-1][-1]):
            runs[-1].append(task)
        else:
            runs.append([task])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _follows(task: str, before: str) -> bool:
    (experiment, place), (other, earlier) = split_id(task), split_id(before)
    return experiment is other and place == earlier + 1


def _ids(name: str) -> tuple[str, ...] | None:
    if name == ALL:
        chosen = list(EXPERIMENTS.values())
    elif name in TAGS:
        chosen = [one for one in EXPERIMENTS.values() if name in one.tags]
    elif name in EXPERIMENTS:
        chosen = [EXPERIMENTS[name]]
    elif name == TESTING:
        return tuple(f"{one.name}/0" for one in EXPERIMENTS.values() if one.rule == one.name)
    else:
        return None
    return tuple(task for one in chosen for task in one.ids)


def _lacks_data(task: str) -> str | None:
    """Return the line that says which data of a task is not there, None when all is."""
    from synora.envs.bsuite import require_mnist

    try:
        require_mnist(task)
    except DependencyMissing as missing:
        return str(missing)
    return None
