"""Handing modules to torch's compiler, in place: parameters keep their names, so checkpoints stay the same."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from synora.core.errors import DependencyMissing

BACKEND = "inductor"


def compile_modules(modules: Iterable[nn.Module], device: torch.device) -> None:
    """Compile the calls of modules; the code is generated at the first call with each shape.

    Shapes are never made dynamic: what is generated then depends on the shape alone and not on which shapes came
    before, so that a resumed run computes what an uninterrupted one does.

    Args:
        modules: compiled one by one; the loops around them stay as they are.
        device: where they live.

    Raises:
        DependencyMissing: this machine cannot compile for the device; the message says why.
    """
    try:
        torch.compile(_probe, backend=BACKEND, dynamic=False)(torch.ones(2, device=device))
    except Exception as error:  # a compiler, Python's headers, Triton or a cache folder may be missing
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        needed = "Triton and a C compiler" if device.type == "cuda" else "a C++ compiler"
        raise DependencyMissing(
            f"compile=true needs {needed} that torch can use ({reason.strip()[:200]}); install it or leave compile off."
        ) from error
    for module in modules:
        module.compile(backend=BACKEND, dynamic=False)


def _probe(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1
