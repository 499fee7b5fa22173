"""What the fork server imports once, so that every case starts with it loaded. Must not touch CUDA or start threads."""

from __future__ import annotations

import gc

gc.disable()  # imports make no garbage worth looking for; switched on again below

# ruff: noqa: E402
import numpy.ma  # noqa: F401 - np.percentile imports it at its first call
import torch
import torch.utils.flop_counter

import synora.algorithms.dreamer.bench_modules
import synora.compute.measure  # noqa: F401
from synora.compute.catalog import builtin_cases


def _without_dynamo() -> None:
    """Keep the first optimiser from importing torch's compiler, which takes longer than torch itself.

    Optimiser methods are wrapped so that the compiler never traces into them; without `torch.compile` there is nothing
    to keep out, so the wrapper is told that its function needs no wrapping. With `--compile` the compiler is imported
    all the same and does not look at the optimiser, which runs outside the compiled module. Where torch changes this
    detail, the marker has no effect and the import merely happens.
    """
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        wrapped = getattr(getattr(torch.optim.Optimizer, name, None), "__wrapped__", None)
        if wrapped is not None and not hasattr(wrapped, "__dynamo_disable"):
            wrapped.__dynamo_disable = wrapped


_without_dynamo()
builtin_cases()
gc.enable()
