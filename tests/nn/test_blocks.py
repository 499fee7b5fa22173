from __future__ import annotations

import pytest
import torch
from torch import nn

from synora.nn.blocks import MLP, StepLinear, frozen, step_offset


def unroll(z_of, steps: int, x: torch.Tensor) -> torch.Tensor:
    outs = []
    for t in range(steps):
        x = torch.tanh(z_of(t, x, x.square()))
        outs.append(x)
    return torch.stack(outs)


def test_step_linear_gives_autograds_numbers_and_gradients() -> None:
    torch.manual_seed(0)
    steps, batch, size = 4, 3, 5
    layer, second = nn.Linear(size, size), nn.Linear(size, size, bias=False)
    start = torch.randn(batch, size, requires_grad=True)
    plain = unroll(lambda t, x, y: layer(x) + second(y), steps, start)
    cell = StepLinear(step_offset(layer.bias, steps, batch), layer.weight, second.weight)
    ours = unroll(lambda t, x, y: cell(t, x, y), steps, start)
    torch.testing.assert_close(ours, plain)
    leaves = [layer.weight, layer.bias, second.weight, start]
    target = torch.randn_like(plain)
    for got, want in zip(
        torch.autograd.grad((ours * target).sum(), leaves),
        torch.autograd.grad((plain * target).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(got, want)


def test_step_linear_leaves_frozen_weights_alone() -> None:
    layer = nn.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)
    with frozen(layer):
        out = StepLinear(step_offset(layer.bias, 1, 2), layer.weight)(0, x)
    out.sum().backward()
    assert layer.weight.grad is None and layer.bias.grad is None and x.grad is not None
    assert layer.weight.requires_grad


def test_frozen_restores_after_an_error_and_keeps_frozen_what_was() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    with pytest.raises(RuntimeError), frozen(layer, None):
        raise RuntimeError
    assert layer.weight.requires_grad and not layer.bias.requires_grad


def test_mlp_ends_linear() -> None:
    mlp = MLP(3, 4, 2, 5)
    assert [type(m).__name__ for m in mlp.layers] == ["Linear", "ELU", "Linear", "ELU", "Linear"]
    assert mlp(torch.zeros(2, 7, 3)).shape == (2, 7, 5)
