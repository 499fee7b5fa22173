"""A run that is killed again and again, and one that is not; a program of its own for `test_kill.py` and for hunting.

    python tests/algorithms/dreamer/killed_runs.py FOLDER '{"agent": "dreamerv2", "kills": 20, "seed": 0, "config": {}}'

It trains FOLDER/whole to the end, then FOLDER/killed with `kills` ends by SIGKILL or SIGTERM, and prints a JSON line of
what happened. Every attempt is a fork of this process, which has loaded everything and computed nothing: an attempt
costs no start of an interpreter. Half of the kills come at the n-th of the events below (so that many hit a save), the
others after a random time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bsuite  # noqa: F401 -- loaded here, once, and not in every attempt
import gymnasium  # noqa: F401
import numpy as np
import pygame  # noqa: F401
import torch._dynamo  # noqa: F401 -- optimisers load it

from synora.algorithms.dreamer import trainer
from synora.algorithms.dreamer.config import VERSIONS, DreamerConfig
from synora.runtime import checkpoint
from synora.runtime.metrics_log import MetricsLog

KILLED = ("75", "SIGKILL", "SIGTERM")  # a SIGTERM is fatal until the run has its handler
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)


def die_at(count: int, sign: int) -> None:
    """Send this process a signal at the `count`-th event: a step of the work, or of a save, or a row of metrics."""
    left = [count]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), sign)
            return call(*args, **kwargs)

        return wrapped

    for owner, name in (
        (trainer.DreamerTrainer, "collect"),
        (trainer.DreamerTrainer, "update"),
        (trainer.DreamerTrainer, "evaluate"),
        (trainer.DreamerTrainer, "committed"),
        (checkpoint, "save_checkpoint"),
        (checkpoint, "prune"),
        (MetricsLog, "append"),
        (os, "fsync"),
        (os, "replace"),
        (os, "rename"),
    ):
        setattr(owner, name, counted(getattr(owner, name)))


def start(config: DreamerConfig, folder: Path, prepare: Callable[[], None] | None = None) -> int:
    """Run an attempt in a fork; return its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if prepare is not None:
            prepare()
        code = trainer.train_dreamer(config, folder).exit_code
    except BaseException:  # noqa: BLE001 -- this is a fork: nothing above may see it
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def wait(child: int) -> str:
    """Return how an attempt ended: "0", "75", or the name of the signal that killed it."""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else str(code)


def main(folder: Path, order: dict[str, Any]) -> None:
    """Do both runs; see the module's docstring."""
    folder.mkdir(parents=True, exist_ok=True)
    config = VERSIONS[order["agent"]].compose(preset="tiny", overrides=order["config"])
    began = time.monotonic()
    ends = [wait(start(config, folder / "whole"))]
    whole = time.monotonic() - began
    rng = np.random.default_rng(order["seed"])
    killed = 0
    for _ in range(4 * order["kills"]):
        if killed == order["kills"] or ends[-1] not in {"0", *KILLED} or (killed and ends[-1] == "0"):
            break
        sign = SIGNALS[rng.integers(len(SIGNALS))]
        if rng.random() < 0.5:
            count = int(rng.integers(1, order.get("events", 200)))
            child = start(config, folder / "killed", lambda count=count, sign=sign: die_at(count, sign))
        else:
            child = start(config, folder / "killed")
            time.sleep(rng.uniform(0.02, order.get("longest", 0.5) * whole))
            os.kill(child, sign)
        ends.append(wait(child))
        killed += ends[-1] in KILLED
    if ends[-1] != "0":
        ends.append(wait(start(config, folder / "killed")))
    print(json.dumps({"ends": ends, "kills": killed, "seconds": round(whole, 2)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
