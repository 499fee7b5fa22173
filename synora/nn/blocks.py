"""Network blocks and gradient plumbing that several algorithms share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ELU between them; the last one is linear and has no activation.

    Args:
        inputs: size of the last axis of the input.
        units: width of the hidden layers.
        hidden_layers: how many of them.
        outputs: size of the last axis of the output.
    """

    def __init__(self, inputs: int, units: int, hidden_layers: int, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(hidden_layers):
            layers += [nn.Linear(inputs, units), nn.ELU(inplace=True)]
            inputs = units
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        out: Tensor = self.layers(x)
        return out


def glorot_uniform_(module: nn.Module) -> None:
    """Initialise as Keras does: Glorot-uniform weights and zero biases. For use with `module.apply`."""
    if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@contextmanager
def frozen(*modules: nn.Module | None) -> Iterator[None]:
    """Record no gradient towards the parameters of `modules` inside the block; gradients still flow through them.

    Whether an operation needs a weight gradient is decided when it is recorded, so the flags can be restored before
    `backward` runs.
    """
    held = [p for module in modules if module is not None for p in module.parameters() if p.requires_grad]
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


class StepLinear:
    """A linear layer inside a loop over time: `z_t = offset_t + sum_i x_it W_i^T`, its weight gradients formed once.

    Left to autograd, a loop of T small products forms and adds up T gradients as large as the weights; with few rows a
    step that traffic costs more than the arithmetic. Here the weights enter the loop detached, the loop's inputs are
    remembered, and the gradients of all `offset_t`, which equal those of all `z_t`, give the weight gradient in one
    product. The numbers are the ones autograd would give; only the order of summation differs.

    Args:
        offset: (T, B, N) what is known before the loop: bias, projected actions or embeddings.
        weights: (N, K_i) matrices.
    """

    def __init__(self, offset: Tensor, *weights: Tensor) -> None:
        self._inputs: list[list[Tensor]] = [[] for _ in weights]
        # The compiler cannot follow inputs that arrive after `apply`; it gets the plain products and fuses them itself.
        compiling = torch.compiler.is_compiling()
        self._collect = not compiling and torch.is_grad_enabled() and any(w.requires_grad for w in weights)
        if self._collect:
            offset = _CollectWeightGradient.apply(offset, self._inputs, *weights)
        self._offsets = offset.unbind(0)
        # Cast once: autocast does not remember casts of detached tensors.
        self._weights = [(w if compiling else w.detach()).to(offset.dtype).t() for w in weights]

    def __call__(self, step: int, *inputs: Tensor) -> Tensor:
        """(B, K_i) inputs of step `step` -> (B, N). Steps are taken once each, in order from 0."""
        out = self._offsets[step]
        for x, weight, seen in zip(inputs, self._weights, self._inputs, strict=True):
            if self._collect:
                seen.append(x.detach())
            out = torch.addmm(out, x.to(out.dtype), weight)
        return out


class _CollectWeightGradient(torch.autograd.Function):
    """Identity on the offsets; backward turns their gradient into those of the weights as well."""

    @staticmethod
    def forward(ctx: Any, offset: Tensor, inputs: list[list[Tensor]], *weights: Tensor) -> Tensor:
        ctx.inputs = inputs
        ctx.dtypes = [w.dtype for w in weights]
        return offset.view_as(offset)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows = grad.flatten(0, 1).t()
        gradients: list[Tensor | None] = []
        for index, (seen, dtype) in enumerate(zip(ctx.inputs, ctx.dtypes, strict=True)):
            needed = ctx.needs_input_grad[index + 2]
            gradients.append((rows @ torch.cat(seen).to(grad.dtype)).to(dtype) if needed else None)
        return grad, None, *gradients


def step_offset(bias: Tensor, steps: int, batch: int) -> Tensor:
    """A bias as the (steps, batch, N) offset of a `StepLinear`, in the precision autocast computes with."""
    kind = bias.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else bias.dtype
    return bias.to(dtype).expand(steps, batch, -1)
