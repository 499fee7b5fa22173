"""The process behind a share of a vector environment; started by `vector.py`, never by hand.

It speaks in messages of a 4-byte length and that many bytes. It ends when its parent closes the pipe or is gone: the
pipe says so at once, and a look at the parent's id once a second also covers copies of the pipe in other processes.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import sys
import traceback
from typing import Any

from synora.core.errors import SynoraError
from synora.envs.backends import build
from synora.envs.chunk import Arrays, Chunk, action_size, arrays_in, describe_space
from synora.envs.ids import EnvId
from synora.envs.protocol import Protocol

RESET, STEP, FACTS, OK, ERROR = b"r", b"s", b"f", b"k", b"e"


def send(pipe: int, message: bytes) -> None:
    """Write one message; raises OSError when the reader is gone."""
    data = len(message).to_bytes(4, "little") + message
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int) -> bytes | None:
    """Read one message; None when the writer is gone.

    Question and answer alternate, so that nothing follows a message before it is answered: reading on is safe.
    """
    data, size = b"", 4
    while len(data) < size:
        part = os.read(pipe, 1 << 16)
        if not part:
            return None
        data += part
        if len(data) >= 4:
            size = 4 + int.from_bytes(data[:4], "little")
    return data[4:]


def main(arguments: list[str]) -> None:
    """Serve one parent until it is gone.

    Args:
        arguments: the pipes to read and to write, the shared memory's file, and the parent's process id.
    """
    commands, replies, memory, parent = map(int, arguments)
    # The parent decides when to stop: signals to the whole group (Ctrl-C, SLURM's warning) reach it too.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
    try:
        _serve(commands, replies, memory, parent)
    except OSError:  # the parent went away while we answered
        return


def _serve(commands: int, replies: int, memory: int, parent: int) -> None:
    chunk: Chunk | None = None
    arrays: Arrays | None = None
    while _parent_lives(commands, parent):
        message = receive(commands)
        if message is None:
            return
        try:
            if chunk is None:
                order = json.loads(message)
                chunk = _make(order)
                send(replies, OK + json.dumps(_greeting(chunk)).encode())
            elif arrays is None:
                order = json.loads(message)
                space = chunk.envs[0].action_space
                block = mmap.mmap(memory, order["bytes"])
                arrays = arrays_in(block, order["count"], chunk.envs[0].observation_shape, action_size(space))
                send(replies, OK)
            elif message == FACTS:
                send(replies, OK + json.dumps(chunk.facts()).encode())
            else:
                (chunk.step if message == STEP else chunk.reset)(arrays)
                send(replies, OK)
        except Exception as error:  # noqa: BLE001  (whatever it is, the parent raises it)
            send(replies, ERROR + json.dumps(_report(error)).encode())
            return


def _parent_lives(commands: int, parent: int) -> bool:
    while not select.select([commands], [], [], 1.0)[0]:
        if os.getppid() != parent:
            return False
    return True


def _make(order: dict[str, Any]) -> Chunk:
    resolved, rules = EnvId(**order["env"]), Protocol(**order["protocol"])
    envs = [build(resolved, rules, seed=0, options=order["options"]) for _ in range(order["count"])]
    return Chunk(envs, order["first"])


def _greeting(chunk: Chunk) -> dict[str, Any]:
    env = chunk.envs[0]
    return {
        "observation_shape": env.observation_shape,
        "action_space": describe_space(env.action_space),
        "action_meanings": env.action_meanings,
    }


def _report(error: Exception) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": str(error),
        "synora": isinstance(error, SynoraError),
        "traceback": "".join(traceback.format_exception(error)),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
