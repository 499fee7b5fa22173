"""Random streams: one seed a run, one independent generator a purpose, and no global generator touched.

A stream depends on the run's seed and its own name alone, so adding, removing or reordering draws of one purpose (more
evaluation episodes, another exploration noise) leaves every other stream as it was.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from synora.core.errors import FileError, UsageError


class Streams:
    """Named generators derived from one seed, with a state that a checkpoint can hold.

    Args:
        seed: the run's seed, 0 or greater.

    Raises:
        UsageError: the seed is not such a number.
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise UsageError(f"seed {seed!r} is not a whole number of 0 or more.")
        self.seed = seed
        self._numpy: dict[str, np.random.Generator] = {}
        self._torch: dict[str, torch.Generator] = {}
        # States of streams that nobody has asked for since they were loaded, perhaps of a device that is absent here.
        self._waiting: dict[str, torch.Tensor] = {}

    def seed_for(self, *names: str | int) -> int:
        """Return the seed in [0, 2**31) that belongs to `names`, such as `("episode", 17)`. Draws from no stream."""
        return int(self._sequence(*names).generate_state(1, np.uint32)[0] >> 1)

    def rng(self, name: str) -> np.random.Generator:
        """Return the numpy generator of a purpose; the same object at every call."""
        if name not in self._numpy:
            self._numpy[name] = np.random.Generator(np.random.PCG64(self._sequence(name)))
        return self._numpy[name]

    def generator(self, name: str, device: torch.device | str = "cpu") -> torch.Generator:
        """Return the torch generator of a purpose on a device; the same object at every call.

        Every kind of device has a stream of its own: a run continued on another kind starts that one from the seed.

        Raises:
            ValueError: the stream lives on another device of that kind.
        """
        wanted = _indexed(torch.device(device))
        key = f"{name}@{wanted.type}"
        if key not in self._torch:
            generator = torch.Generator(device=wanted)
            self._restart(key, generator)
            if key in self._waiting:
                generator.set_state(self._waiting.pop(key))
            self._torch[key] = generator
        if _indexed(self._torch[key].device) != wanted:
            raise ValueError(f"stream {name!r} lives on {self._torch[key].device}, not on {wanted}")
        return self._torch[key]

    @contextlib.contextmanager
    def as_global(self, name: str, device: torch.device | str = "cpu") -> Iterator[None]:
        """Let torch's global generator of `device` be this stream inside the block, and restore it afterwards.

        For code that takes no generator: initialisation (`with streams.as_global("init"): model = Model()`) and
        dropout. The stream goes on where the block left it.
        """
        stream = self.generator(name, device)
        shared = torch.default_generator
        if stream.device.type == "cuda":
            torch.cuda.init()
            shared = torch.cuda.default_generators[_indexed(stream.device).index or 0]
        before = shared.get_state()
        shared.set_state(stream.get_state())
        try:
            yield
        finally:
            stream.set_state(shared.get_state())
            shared.set_state(before)

    def state_dict(self) -> dict[str, Any]:
        """Return the seed and the state of every stream: JSON values, and uint8 tensors for torch's generators."""
        return {
            "seed": self.seed,
            "numpy": {name: generator.bit_generator.state for name, generator in sorted(self._numpy.items())},
            "torch": dict(
                sorted({**self._waiting, **{key: value.get_state() for key, value in self._torch.items()}}.items())
            ),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue every stream where `state` left it; generators handed out before stay the same objects.

        Raises:
            FileError: the state is another seed's, or not of this kind.
        """
        if set(state) != {"seed", "numpy", "torch"}:
            raise FileError(f"the random state holds {sorted(state)}, not numpy, seed and torch.")
        if state["seed"] != self.seed:
            raise FileError(
                f"the random state is that of seed {state['seed']}, and this run has seed {self.seed}: "
                "continue with the old seed, or start another run."
            )
        for name in {*self._numpy, *state["numpy"]}:
            fresh: Any = np.random.PCG64(self._sequence(name)).state
            self.rng(name).bit_generator.state = state["numpy"].get(name, fresh)
        for key, generator in self._torch.items():
            if key in state["torch"]:
                generator.set_state(state["torch"][key])
            else:  # the stream was first used after the state was taken
                self._restart(key, generator)
        self._waiting = {key: value for key, value in state["torch"].items() if key not in self._torch}

    def _restart(self, key: str, generator: torch.Generator) -> None:
        generator.manual_seed(int(self._sequence("torch", key).generate_state(1, np.uint64)[0] >> 1))

    def _sequence(self, *names: str | int) -> np.random.SeedSequence:
        digest = hashlib.sha256(repr(names).encode()).digest()
        return np.random.SeedSequence(self.seed, spawn_key=tuple(np.frombuffer(digest, "<u4").tolist()))


def _indexed(device: torch.device) -> torch.device:
    """Return the device with its index where it has one: "cuda" is torch's current device."""
    if device.type != "cuda":
        return torch.device(device.type)
    return torch.device("cuda", torch.cuda.current_device() if str(device) == "cuda" else device.index)
