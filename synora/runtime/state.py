"""The state of a run as a tree: gathered from declared parts, split into tensors and JSON, and put back exactly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from synora.core.errors import FileError


class Stateful(Protocol):
    """Modules, optimisers, replay, random streams: whatever can be saved as one part of a state."""

    def state_dict(self) -> Any:
        """Return tensors, arrays and plain values in dicts, lists and tuples."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Take a state back."""


def gather_state(parts: Mapping[str, Stateful]) -> dict[str, Any]:
    """Return the state of every declared part, by name."""
    return {name: part.state_dict() for name, part in parts.items()}


def restore_state(parts: Mapping[str, Stateful], state: Mapping[str, Any]) -> None:
    """Load a state into the declared parts.

    Raises:
        FileError: the state holds other parts than those declared, or one does not fit.
    """
    if set(parts) != set(state):
        missing, extra = sorted(set(parts) - set(state)), sorted(set(state) - set(parts))
        raise FileError(f"the saved state has other parts than this trainer: missing {missing}, unknown {extra}.")
    for name, part in parts.items():
        try:
            part.load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise FileError(f"part {name!r} of the saved state does not fit: {' '.join(str(error).split())}") from error


def sync_folder(folder: Path) -> None:
    """Put a folder's list of names on the disk."""
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def flatten(tree: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """Split a state into tensors by path and a JSON value that says where they belong; `unflatten` puts it together.

    Dicts (keys: text or whole numbers), lists, tuples, tensors, numpy arrays, numbers (NaN and infinity included),
    texts, booleans and None come back equal and of the same type; ordered and other mappings come back as dicts.
    Tensors are copied to the CPU.

    Raises:
        TypeError: anything else; the message has its path.
    """
    tensors: dict[str, torch.Tensor] = {}
    return tensors, _flatten(tree, "", tensors)


def unflatten(tensors: Mapping[str, torch.Tensor], plain: Any) -> Any:
    """Reverse `flatten`. Raises KeyError for a missing tensor, ValueError for a value that `flatten` never writes."""
    if isinstance(plain, list):
        return [unflatten(tensors, item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    mark = next(iter(plain), "")
    if not mark.startswith("$"):
        return {key: unflatten(tensors, item) for key, item in plain.items()}
    if mark == "$tensor":
        tensor = tensors[plain[mark]]
        return tensor.contiguous(memory_format=torch.channels_last) if plain.get("channels_last") else tensor
    if mark == "$array":
        return tensors[plain[mark]].numpy()
    if mark == "$tuple":
        return tuple(unflatten(tensors, item) for item in plain[mark])
    if mark == "$float":
        return float(plain[mark])
    if mark == "$items":
        return {key: unflatten(tensors, item) for key, item in plain[mark]}
    raise ValueError(f"unknown mark {mark!r}")


def _flatten(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        # A layout that is not kept would slow convolutions down and confuse fused optimisers after a resume.
        last = value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
        # A copy: the state must not change while it is written, and safetensors refuses tensors that share memory.
        tensors[path] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        return {"$tensor": path, "channels_last": True} if last else {"$tensor": path}
    if isinstance(value, np.ndarray):
        tensors[path] = torch.from_numpy(np.array(value, order="C", copy=True))
        return {"$array": path}
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else {"$float": repr(float(value))}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        items = [_flatten(item, f"{path}/{index}", tensors) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        keys = list(value)
        if bad := [key for key in keys if isinstance(key, bool) or not isinstance(key, (str, int))]:
            raise TypeError(f"state{path and ' at '}{path}: a key must be a text or a whole number, not {bad[0]!r}")
        names = [str(key).replace("%", "%25").replace("/", "%2F").replace("#", "%23") for key in keys]
        below = [f"{path}/{name}" if path else name for name in names]
        if any(isinstance(key, int) or key.startswith("$") for key in keys):
            # Numbers and texts of the same digits need different paths.
            below = [f"{name}#" if isinstance(key, int) else name for key, name in zip(keys, below, strict=True)]
            rows = zip(keys, below, strict=True)
            return {"$items": [[key, _flatten(value[key], name, tensors)] for key, name in rows]}
        return {key: _flatten(value[key], name, tensors) for key, name in zip(keys, below, strict=True)}
    raise TypeError(f"state at {path or 'its root'} holds a {type(value).__name__}, which a checkpoint cannot store")
