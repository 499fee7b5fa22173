"""What the compute sweep measures: one `BenchCase` a model or component, and the `Scale` it is built at.

This module does not import torch: cases are listed and planned on machines that never load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    Inputs = torch.Tensor | tuple[Any, ...] | dict[str, Any]


SIZE_FIELDS = ("batch_size", "seq_len", "image_size")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes a case is built at, all resolved: no field is left to the builder's taste.

    Attributes:
        preset: "tiny", "small" or "paper"; builders use it to choose width and depth.
        batch_size: sequences (or images) in a batch.
        seq_len: time steps in a sequence; cases without a time axis ignore it.
        image_size: height and width of square frames, in pixels.
    """

    preset: str
    batch_size: int
    seq_len: int
    image_size: int


@dataclass(frozen=True, kw_only=True)
class BenchCase:
    """One model, or one part of it, that the sweep builds from synthetic tensors and measures.

    A case needs a name, a family and two functions. `build` returns the module; `inputs` returns what it is called
    with: a tensor, a tuple of positional arguments or a dict of keyword arguments, made on the CPU (the harness moves
    module and inputs to the device, and seeds torch before calling either).

    Attributes:
        name: unique, lower case with dashes, as users type it after `--models`.
        family: the group `--family` selects.
        build: `build(scale) -> nn.Module`.
        inputs: `inputs(scale) -> Tensor | tuple | dict`.
        description: one line for `--list`.
        heavy: part of the tier that only `--all` (or naming the case) runs.
        paper_sizes: values of `batch_size`, `seq_len`, `image_size` at preset `paper`: the model's own defaults.
        image_sizes: the image sizes the architecture accepts; None for any.
        items: `items(scale) -> int`, how many `unit`s one call processes (for throughput); default: the batch size.
        unit: what throughput counts ("frames", "imagined steps").
        loss: `loss(output) -> scalar Tensor` for the backward pass; default: the output itself when it is a scalar,
            otherwise the mean square of every floating-point tensor in it.
        optimizer: `optimizer(module) -> torch.optim.Optimizer` for the full training step; default: Adam.
        clip_norm: gradients of each parameter group are clipped to this global norm in the full step; None: no clip.
        trains: False for a case that has no training step (it is then measured forward only).
    """

    name: str
    family: str
    build: Callable[[Scale], nn.Module]
    inputs: Callable[[Scale], Inputs]
    description: str = ""
    heavy: bool = False
    paper_sizes: Mapping[str, int] = field(default_factory=dict)
    image_sizes: tuple[int, ...] | None = None
    items: Callable[[Scale], int] = lambda scale: scale.batch_size
    unit: str = "samples"
    loss: Callable[[Any], torch.Tensor] | None = None
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    clip_norm: float | None = None
    trains: bool = True
