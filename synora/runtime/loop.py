"""The training loop: when to train, evaluate, save and stop, for every algorithm.

A run is a folder. The same command starts it, continues it after a kill, and does nothing once it is finished:

    config.yaml      the composed configuration, as of the last start
    checkpoints/     see `synora.runtime.checkpoint`
    replay/          the algorithm's, see `synora.runtime.replay`
    metrics.jsonl    one row a line, the same bytes whether the run was interrupted or not
    timing.jsonl     clock times and speed of every attempt
    changes.jsonl    configuration values that were changed when the run was continued
    debug/           the state in which a loss was not finite
    finished.json    the run is complete
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from synora.core.config import Config
from synora.core.errors import EXIT_OK, EXIT_PREEMPTED, FileError, SynoraError, UsageError
from synora.core.files import lease, require_writable_folder, write_json, write_text
from synora.runtime import checkpoint as checkpoints
from synora.runtime.checkpoint import CHECKPOINTS, AgentSpec
from synora.runtime.metrics_log import MetricsLog, SafeSinks, Sink
from synora.runtime.progress import TrainingProgress
from synora.runtime.run_folder import drop_uncommitted, find_changes, finished_marker, record_changes, require_ours
from synora.runtime.schedule import Action, LoopSettings, LoopState, Round, Schedule, current_round, next_action
from synora.runtime.seeding import Streams
from synora.runtime.signals import StopSignals

Metrics = Mapping[str, float | torch.Tensor]


class Algorithm(Protocol):
    """What an algorithm gives to the loop. `state_dict` holds everything that later steps depend on, except `streams`.

    Attributes:
        spec: goes into checkpoints, and is compared when one is loaded.
    """

    spec: AgentSpec

    def collect(self, steps: int) -> Metrics:
        """Take exactly `steps` environment interactions into replay; return metrics, such as finished episodes'."""

    def update(self, phase: str) -> Metrics:
        """Do one gradient update; return its losses and gradient norms (numbers or 0-dim tensors), all finite."""

    def evaluate(self) -> Metrics:
        """Return metrics of the present policy; `score`, higher is better, chooses the best checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state by part; part "agent" is what acting needs. See `synora.runtime.state`."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take a state back and refuse one with other parts; `restore_state` does."""

    def committed(self) -> None:
        """Learn that the last `state_dict` is in a committed checkpoint (`Replay.committed`)."""

    def close(self) -> None:
        """Release environments and files. Called once, after errors too."""


class NonFiniteError(SynoraError):
    """A loss or gradient is NaN or infinite; training must not go on."""


@dataclass(frozen=True)
class RunContext:
    """What an algorithm is built with.

    Attributes:
        folder: of the run.
        replay_folder: for its replay; empty unless the run is continued.
        streams: its random streams; saved and restored by the loop.
        resumed: a checkpoint will be loaded after the construction.
        say: prints one line for the user.
    """

    folder: Path
    replay_folder: Path
    streams: Streams
    resumed: bool
    say: Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended; a failure is an exception instead.

    Attributes:
        status: "finished", now or earlier, or "preempted": saved on request and to be started again.
        step: environment interactions so far.
        checkpoint: the newest checkpoint.
        message: one line for the user.
    """

    status: Literal["finished", "preempted"]
    step: int
    checkpoint: Path | None
    message: str

    @property
    def exit_code(self) -> int:
        """Exit status of the process: 0 finished, 75 to be started again."""
        return EXIT_OK if self.status == "finished" else EXIT_PREEMPTED


@dataclass(frozen=True)
class RunPlan:
    """Everything about a run that is not the algorithm.

    Attributes:
        folder: of the run, created when missing.
        seed: of every random stream; a run keeps its seed.
        config: saved with the run.
        frozen: fields of `config` (dotted names below the top) that may not change when the run is continued: those
            that decide the architecture, the environment or the seed.
        schedule: the rounds.
        settings: the intervals.
        sinks: name -> function that starts a dashboard, given the step at which the run goes on.
        clock: monotonic seconds.
    """

    folder: Path
    seed: int
    config: Config
    frozen: Collection[str]
    schedule: Schedule
    settings: LoopSettings
    sinks: Mapping[str, Callable[[int], Sink]] | None = None
    clock: Callable[[], float] = time.monotonic


def require_finite(values: Mapping[str, float | torch.Tensor]) -> dict[str, float]:
    """Return named scalars as floats; one transfer for all tensors of a device.

    Call it with the losses and gradient norms before the optimiser steps, so that the debug checkpoint holds weights
    that are still good.

    Raises:
        NonFiniteError: one is NaN or infinite; the message names it.
    """
    by_device: dict[torch.device, dict[str, torch.Tensor]] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            by_device.setdefault(value.device, {})[name] = value.detach().double().reshape(())
    read: dict[str, float] = {}
    for tensors in by_device.values():
        read.update(zip(tensors, torch.stack(list(tensors.values())).tolist(), strict=True))
    found = {name: read[name] if name in read else float(value) for name, value in values.items()}
    bad = [f"{name} is {value}" for name, value in found.items() if not math.isfinite(value)]
    if bad:
        raise NonFiniteError(", ".join(bad))
    return found


def train(plan: RunPlan, build: Callable[[RunContext], Algorithm]) -> Outcome:
    """Start a run, or continue it where its newest checkpoint stands.

    Args:
        plan: the run.
        build: constructs the algorithm; not called when the run is finished.

    Raises:
        UsageError: the folder cannot be written, or a frozen field of the configuration was changed.
        FileError: a checkpoint, replay or metrics file is damaged; or another process runs this run.
        NonFiniteError: a loss or gradient; the state is in `debug/`.
    """
    config = plan.config.model_dump(mode="json")
    if unknown := sorted(name for name in plan.frozen if name.split(".")[0] not in config):
        raise ValueError(f"frozen names no field of {type(plan.config).__name__}: {', '.join(unknown)}")
    existed = plan.folder.exists()
    try:
        return _train(plan, build, config)
    except UsageError:
        if not existed and checkpoints.latest(plan.folder / CHECKPOINTS) is None:
            shutil.rmtree(plan.folder, ignore_errors=True)  # bad usage leaves nothing behind
        raise


def _train(plan: RunPlan, build: Callable[[RunContext], Algorithm], config: Mapping[str, Any]) -> Outcome:
    """Do what `train` says; `config` is the plan's, as JSON values."""
    require_ours(plan.folder)
    folder = require_writable_folder(plan.folder)
    with lease(folder / "run", what=f"run {folder}"), StopSignals() as signals:
        progress = TrainingProgress(plan.schedule.rounds, clock=plan.clock)
        newest = checkpoints.latest(folder / CHECKPOINTS)
        changes = []
        if newest is not None:
            changes = find_changes(folder, checkpoints.read_manifest(newest), config, plan.frozen)
        marker = finished_marker(folder)
        if marker is not None and plan.schedule.round(marker["round"], marker["step"]) is None:
            message = f"run {folder} is finished at step {marker['step']}: nothing to do"
            progress.say(message)
            return Outcome("finished", marker["step"], newest, message)
        if newest is None and marker is not None:
            raise FileError(f"run {folder} finished at step {marker['step']} and has no checkpoint to continue from.")
        checkpoints.clean(folder / CHECKPOINTS)
        if newest is None:
            drop_uncommitted(folder)
        streams = Streams(plan.seed)
        algorithm = build(RunContext(folder, folder / "replay", streams, newest is not None, progress.say))
        try:
            return _Loop(plan, folder, algorithm, streams, signals, progress).run(newest, changes)
        finally:
            algorithm.close()


class _Loop:
    """One attempt at a run."""

    def __init__(
        self,
        plan: RunPlan,
        folder: Path,
        algorithm: Algorithm,
        streams: Streams,
        signals: StopSignals,
        progress: TrainingProgress,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.algorithm = algorithm
        self.streams = streams
        self.signals = signals
        self.progress = progress
        self.state = LoopState()
        self.saved: Path | None = None
        self.dirty = True
        self.sinks = SafeSinks({})
        self.started = self.last_save = plan.clock()
        self.first_step = self.first_update = 0
        self.log = MetricsLog(folder / "metrics.jsonl")
        self.timing = MetricsLog(folder / "timing.jsonl")

    def run(self, newest: Path | None, changes: Sequence[Mapping[str, str | int]]) -> Outcome:
        """Go on from a checkpoint, its configuration changed, or from the beginning, to the end or to a stop."""
        try:
            if newest is not None:
                self._resume(newest)
            # Not before: a run that cannot be continued has not been changed.
            record_changes(self.folder, changes, self.progress.say)
            write_text(self.folder / "config.yaml", self.plan.config.to_yaml())
            self.started = self.last_save = self.plan.clock()
            self.first_step, self.first_update = self.state.step, self.state.updates
            makers = {name: partial(make, self.state.step) for name, make in (self.plan.sinks or {}).items()}
            self.sinks = SafeSinks(makers, self.progress.say)
            with self.progress:
                return self._run()
        except NonFiniteError as error:
            raise NonFiniteError(self._debug(error)) from error
        finally:
            self.sinks.close()
            self.log.close()
            self.timing.close()

    def _run(self) -> Outcome:
        plan, state = self.plan, self.state
        while True:
            this = current_round(state, plan.schedule)
            self.progress.advance(state.round, step=state.step)
            action = next_action(
                state,
                this,
                plan.settings,
                dirty=self.dirty,
                stop=self.signals.requested is not None,
                seconds_since_save=plan.clock() - self.last_save,
            )
            if action in {Action.COLLECT, Action.UPDATE} and this is not None:
                self._work(action, this)
            elif action is Action.LOG:
                self._log_row("train", state.means())
                state.sums.clear()
                state.logged = state.progress(plan.settings.unit)
            elif action is Action.EVALUATE:
                self._evaluate()
            elif action is Action.SAVE:
                self._save()
            elif action is Action.STOP:
                message = f"{self.signals.requested}: stopped at step {state.step}; the same command continues"
                self.progress.say(message)
                return Outcome("preempted", state.step, self.saved, message)
            else:
                return self._finish()

    def _work(self, action: Action, this: Round) -> None:
        state = self.state
        self.dirty = True
        if action is Action.COLLECT:
            steps = min(self.plan.settings.collect_slice, this.collect - state.collected)
            metrics = require_finite(self.algorithm.collect(steps))
            state.collected, state.step = state.collected + steps, state.step + steps
        else:
            metrics = require_finite(self.algorithm.update(this.updates[state.phase][0]))
            state.done, state.updates = state.done + 1, state.updates + 1
        state.fresh, state.score, state.best_unsaved = False, None, False
        state.add(metrics)

    def _evaluate(self) -> None:
        state = self.state
        metrics = require_finite(self.algorithm.evaluate())
        self.dirty = True
        state.fresh, state.score = True, metrics.get("score")
        state.evaluated = state.progress(self.plan.settings.unit)
        if state.score is not None and (state.best is None or state.score > state.best):
            state.best, state.best_unsaved = state.score, self.plan.settings.keep_best
        self._log_row("eval", metrics)

    def _log_row(self, kind: str, metrics: Mapping[str, float]) -> None:
        state = self.state
        self.dirty = True
        row: dict[str, Any] = {"kind": kind, "step": state.step, "updates": state.updates}
        row.update({f"{kind}/{name}": value for name, value in sorted(metrics.items())})
        self.log.append(row)
        elapsed = self.plan.clock() - self.started
        speed = {
            "seconds": round(elapsed, 3),
            "steps_per_second": round((state.step - self.first_step) / max(elapsed, 1e-9), 3),
            "updates_per_second": round((state.updates - self.first_update) / max(elapsed, 1e-9), 3),
        }
        self.timing.append({"step": state.step, "updates": state.updates, **speed})
        self.sinks.write({**row, **{f"time/{name}": value for name, value in speed.items()}}, state.step)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items())[:4])
        self.progress.show(f"step {state.step}: {shown or 'no metrics yet'}", force=kind == "eval")

    def _save(self) -> None:
        state, settings = self.state, self.plan.settings
        state.saved, state.best_unsaved = state.progress(settings.unit), False
        self.saved = self._write(self.folder / CHECKPOINTS, score=state.score if state.fresh else None)
        self.dirty, self.last_save = False, self.plan.clock()
        self.algorithm.committed()
        checkpoints.prune(self.folder / CHECKPOINTS, keep_last=settings.keep_last, keep_best=settings.keep_best)

    def _write(self, folder: Path, *, score: float | None = None, note: str | None = None) -> Path:
        parts = self.algorithm.state_dict()
        if clash := sorted({"loop", "streams"} & set(parts)):
            raise ValueError(f"the loop saves {', '.join(clash)}; the algorithm must not")
        loop = {"counters": self.state.state_dict(), "metrics": self.log.state_dict()}
        return checkpoints.save_checkpoint(
            folder,
            spec=self.algorithm.spec,
            config=self.plan.config.model_dump(mode="json"),
            step=self.state.step,
            state={**parts, "streams": self.streams.state_dict(), "loop": loop},
            score=score,
            note=note,
        )

    def _resume(self, newest: Path) -> None:
        saved = checkpoints.load_checkpoint(newest, spec=self.algorithm.spec)
        state = dict(saved.state)
        if missing := sorted({"loop", "streams"} - set(state)):
            raise FileError(f"{saved.path} cannot be continued from: it has no {', '.join(missing)}.")
        loop = state.pop("loop")
        self.streams.load_state_dict(state.pop("streams"))
        self.algorithm.load_state_dict(state)
        self.state = LoopState.from_state(loop["counters"])
        self.log.load_state_dict(loop["metrics"])
        self.saved, self.dirty = saved.path, False
        self.progress.start_at(self.state.round)
        self.progress.say(f"continuing at step {self.state.step} from {saved.path.name}")

    def _finish(self) -> Outcome:
        name = self.saved.name if self.saved else None
        marker = {"step": self.state.step, "round": self.state.round, "checkpoint": name}
        write_json(self.folder / "finished.json", marker)
        message = f"finished at step {self.state.step}"
        self.progress.say(message)
        return Outcome("finished", self.state.step, self.saved, message)

    def _debug(self, error: NonFiniteError) -> str:
        """Save the state for a post-mortem and return the message for the user."""
        where = f"training stopped at step {self.state.step}, update {self.state.updates}: {error}."
        debug = self.folder / "debug"
        try:
            shutil.rmtree(debug, ignore_errors=True)  # of an earlier attempt
            path = self._write(debug, note=where)
        except (SynoraError, ValueError, TypeError) as failure:
            return f"{where} The state could not be saved: {failure}"
        return f"{where} The state is in {path}; lower the learning rate or use precision=float32, and start again."
