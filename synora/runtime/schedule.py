"""When a run works, logs, evaluates, saves and stops: pure functions of its counters and an injected clock."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Protocol, Self

from pydantic import Field

from synora.core.config import Config
from synora.core.errors import FileError


class LoopSettings(Config):
    """How often the loop does what.

    Attributes:
        unit: what the three intervals count: the agent's environment steps, or rounds of the schedule.
        log_every: between metric rows.
        eval_every: between evaluations; 0: none, not at the end either.
        save_every: between checkpoints; 0: only the last one, new bests and by time.
        save_minutes: wall-clock minutes between checkpoints, whatever the steps; 0: never by time.
        keep_last: newest checkpoints kept.
        keep_best: keep the checkpoint with the best evaluation score too.
        collect_slice: most environment steps between two moments at which the run can be stopped.
    """

    unit: Literal["step", "round"] = "step"
    log_every: int = Field(default=1000, ge=1)
    eval_every: int = Field(default=0, ge=0)
    save_every: int = Field(default=0, ge=0)
    save_minutes: float = Field(default=10.0, ge=0)
    keep_last: int = Field(default=2, ge=1)
    keep_best: bool = True
    collect_slice: int = Field(default=256, ge=1)


@dataclass(frozen=True)
class Round:
    """One round of training: first interact, then update.

    Attributes:
        collect: environment steps.
        updates: (phase, number of updates) in order; the algorithm knows the phases.
    """

    collect: int
    updates: tuple[tuple[str, int], ...] = ()


class Schedule(Protocol):
    """What the rounds of a run are: a pure function of the counters."""

    @property
    def rounds(self) -> int:
        """Number of rounds of the whole run, for the progress display."""

    def round(self, index: int, step: int) -> Round | None:
        """Return round `index`, counted from 0, which starts after `step` environment steps; None: the run is over."""


@dataclass(frozen=True)
class Interleaved:
    """Prefill once, then a few steps and a few updates in turn (Dreamer).

    Attributes:
        total_steps: environment steps of the run, the prefill included.
        prefill: steps of round 0.
        pretrain: updates of round 0.
        train_every: steps of every other round; the last one has what is left.
        updates: updates of every other round.
        phase: name of the updates.
    """

    total_steps: int
    prefill: int
    pretrain: int
    train_every: int
    updates: int
    phase: str = "train"

    @property
    def rounds(self) -> int:
        """Round 0 and as many as the steps after the prefill need."""
        return 1 + max(0, -(-(self.total_steps - self.prefill) // self.train_every))

    def round(self, index: int, step: int) -> Round | None:
        """Return the prefill (index 0) or a round of training, None when all steps are done."""
        if step >= self.total_steps:
            return None
        collect, updates = (self.train_every, self.updates) if index else (self.prefill, self.pretrain)
        return Round(min(collect, self.total_steps - step), ((self.phase, updates),))


@dataclass
class LoopState:
    """Counters of a run; all of it is in every checkpoint.

    Attributes:
        round: index of the current round, which is the number of complete ones.
        collected: environment steps done in it.
        phase: index of its phase of updates, `done` updates of which are done.
        step: environment steps in all.
        updates: updates in all.
        logged: progress (in the settings' unit) at the last row; likewise `evaluated` and `saved`.
        best: highest evaluation score so far.
        fresh: nothing was done since the last evaluation, whose result is `score` (None when it gave none).
        best_unsaved: this state is the best and has no checkpoint yet.
        sums: metric -> [sum, number of values] since the last row.
    """

    round: int = 0
    collected: int = 0
    phase: int = 0
    done: int = 0
    step: int = 0
    updates: int = 0
    logged: int = 0
    evaluated: int = 0
    saved: int = 0
    best: float | None = None
    fresh: bool = False
    score: float | None = None
    best_unsaved: bool = False
    sums: dict[str, list[float]] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Reverse `state_dict`.

        Raises:
            FileError: other counters than this version's.
        """
        names = {item.name for item in fields(cls)}
        if set(state) != names:
            raise FileError(f"the loop's counters in the checkpoint are {sorted(state)}, not {sorted(names)}.")
        return cls(**state)

    @property
    def between_rounds(self) -> bool:
        """Whether the last round is complete and nothing of the next one is done."""
        return self.collected == 0 and self.phase == 0 and self.done == 0

    def progress(self, unit: str) -> int:
        """Return the run's progress in steps or rounds."""
        return self.step if unit == "step" else self.round

    def add(self, metrics: dict[str, float]) -> None:
        """Add values to the sums of the next row."""
        for name, value in metrics.items():
            entry = self.sums.setdefault(name, [0.0, 0])
            entry[0] += value
            entry[1] += 1

    def means(self) -> dict[str, float]:
        """Return the mean of every metric since the last row."""
        return {name: total / count for name, (total, count) in self.sums.items()}


class Action(enum.Enum):
    """What the loop does next."""

    COLLECT = "collect"
    UPDATE = "update"
    LOG = "log"
    EVALUATE = "evaluate"
    SAVE = "save"
    STOP = "stop"
    FINISH = "finish"


def crossed(progress: int, last: int, every: int) -> bool:
    """Say whether a multiple of `every` lies in (last, progress]; never for `every` 0."""
    return every > 0 and progress // every > last // every


def current_round(state: LoopState, schedule: Schedule) -> Round | None:
    """Return the round in which something is left to do, None when the run is over.

    Moves the counters of `state` past phases and rounds in which nothing is.
    """
    while (this := schedule.round(state.round, state.step - state.collected)) is not None:
        if state.collected < this.collect:
            return this
        while state.phase < len(this.updates) and state.done >= this.updates[state.phase][1]:
            state.phase, state.done = state.phase + 1, 0
        if state.phase < len(this.updates):
            return this
        state.round, state.collected, state.phase, state.done = state.round + 1, 0, 0, 0
    return None


def next_action(
    state: LoopState,
    this: Round | None,
    settings: LoopSettings,
    *,
    dirty: bool,
    stop: bool,
    seconds_since_save: float,
) -> Action:
    """Decide what comes next, from the counters alone: a resumed run decides as an uninterrupted one would.

    Args:
        state: the counters.
        this: the current round, None when the run is over.
        settings: the intervals.
        dirty: something happened since the last checkpoint.
        stop: somebody asked for a stop.
        seconds_since_save: on a monotonic clock; decides about saving only, which changes no result.
    """
    if stop:
        return Action.SAVE if dirty else Action.STOP
    progress = state.progress(settings.unit)
    if crossed(progress, state.logged, settings.log_every) or (this is None and state.sums):
        return Action.LOG
    # Only complete rounds are evaluated and saved on schedule: halfway through one the updates are still to come.
    complete = state.between_rounds
    last = this is None and settings.eval_every > 0 and not state.fresh
    if last or (complete and crossed(progress, state.evaluated, settings.eval_every)):
        return Action.EVALUATE
    by_time = settings.save_minutes > 0 and seconds_since_save >= 60 * settings.save_minutes
    on_schedule = complete and crossed(progress, state.saved, settings.save_every)
    if dirty and (this is None or state.best_unsaved or by_time or on_schedule):
        return Action.SAVE
    if this is None:
        return Action.FINISH
    return Action.COLLECT if state.collected < this.collect else Action.UPDATE
