"""Fake jobs that need no torch: `params["do"]` names what the job does. Importing this makes them kind "compute"."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synora.batch import execute
from synora.core.errors import JobSkipped, UsageError
from synora.core.registry import Registry

HANDLERS = Registry("job kind", {"compute": "synora_fake_jobs:run"})
execute.HANDLERS = HANDLERS

Report = Callable[[str], None]


def run(params: dict[str, Any], report: Report) -> tuple[Any, dict[str, Any]]:
    """Do what the params say; a body is deterministic unless the job is there to show times."""
    report(f"about to {params['do']}")
    if "pid_file" in params:
        temporary = Path(params["pid_file"] + ".tmp")
        temporary.write_text(str(os.getpid()))
        temporary.replace(params["pid_file"])
    return ACTIONS[params["do"]](params, report), {"name": "fake"}


def work(params: dict[str, Any], report: Report) -> object:
    return {"square": params["x"] ** 2, "nothing": None, "text": "é"}


def raise_error(params: dict[str, Any], report: Report) -> object:
    raise ValueError("the model\nis wrong")


def raise_usage(params: dict[str, Any], report: Report) -> object:
    raise UsageError("unknown env 'Pnog'.")


def raise_half_character(params: dict[str, Any], report: Report) -> object:
    raise OSError("no such file: \udcff.bin")


def skip(params: dict[str, Any], report: Report) -> object:
    raise JobSkipped("does not\napply here")


def run_out_of_memory(params: dict[str, Any], report: Report) -> object:
    raise MemoryError


def return_nan(params: dict[str, Any], report: Report) -> object:
    return {"median": [1.0, float("nan")]}


def return_object(params: dict[str, Any], report: Report) -> object:
    return {"module": sys}


def return_none(params: dict[str, Any], report: Report) -> object:
    return None


def exit_politely(params: dict[str, Any], report: Report) -> object:
    sys.exit(params["code"])


def exit_at_once(params: dict[str, Any], report: Report) -> object:
    print("last words")
    os._exit(params["code"])


def segfault(params: dict[str, Any], report: Report) -> object:
    ctypes.string_at(0)
    return {}


def signal_itself(params: dict[str, Any], report: Report) -> object:
    os.kill(os.getpid(), params["signal"])
    time.sleep(60)
    return {}


def hang(params: dict[str, Any], report: Report) -> object:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(60)
    return {}


def start_grandchild(params: dict[str, Any], report: Report) -> object:
    """Leave the pid of a process of one's own in a file, then end as `then` says."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(params["grandchild_file"]).write_text(str(child.pid))
    return ACTIONS[params["then"]](params, report)


def grow(params: dict[str, Any], report: Report) -> object:
    report("growing")
    chunks: list[bytes] = []
    while len(chunks) < 40:  # 1 GiB at most, should nobody stop it
        chunks.append(b"x" * 2**25)
        time.sleep(0.02)
    time.sleep(60)
    return {}


def print_a_lot(params: dict[str, Any], report: Report) -> object:
    for number in range(2000):
        print(f"line {number} " + "x" * 100)
        print(f"warning {number}", file=sys.stderr)
    os.write(1, b"raw stdout\n")
    os.write(2, b"raw stderr\n")
    subprocess.run(["sh", "-c", "echo from a program; echo complaint >&2"], check=True)
    return {}


def report_forever(params: dict[str, Any], report: Report) -> object:
    while True:
        report("reporting")


def report_often(params: dict[str, Any], report: Report) -> object:
    for number in range(200):
        report(f"phase {number}")
    return {}


def take_a_moment(params: dict[str, Any], report: Report) -> object:
    began = time.monotonic()
    time.sleep(params["seconds"])
    return {"began": began, "ended": time.monotonic()}


def describe_itself(params: dict[str, Any], report: Report) -> object:
    return {"pid": os.getpid(), "session": os.getsid(0), "stdin": sys.stdin.read(), "torch": "torch" in sys.modules}


def close_every_descriptor(params: dict[str, Any], report: Report) -> object:
    os.closerange(3, 256)
    time.sleep(60)
    return {}


ACTIONS: dict[str, Callable[[dict[str, Any], Report], object]] = {
    "work": work,
    "raise": raise_error,
    "raise usage": raise_usage,
    "raise half character": raise_half_character,
    "skip": skip,
    "run out of memory": run_out_of_memory,
    "return nan": return_nan,
    "return object": return_object,
    "return none": return_none,
    "exit politely": exit_politely,
    "exit at once": exit_at_once,
    "segfault": segfault,
    "signal itself": signal_itself,
    "hang": hang,
    "start grandchild": start_grandchild,
    "grow": grow,
    "print a lot": print_a_lot,
    "report forever": report_forever,
    "report often": report_often,
    "take a moment": take_a_moment,
    "describe itself": describe_itself,
    "close every descriptor": close_every_descriptor,
}
