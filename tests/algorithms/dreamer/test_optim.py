"""The optimiser: Keras' rule against a NumPy reference, checkpoints, changed step sizes, loss scaling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from synora.algorithms.dreamer.config import DreamerV2Config
from synora.algorithms.dreamer.optim import KerasAdam, build_optimizer
from synora.runtime.state import flatten, unflatten


def gradients(steps: int) -> list[torch.Tensor]:
    """Gradients near the size of epsilon, where the two rules differ most."""
    generator = torch.Generator().manual_seed(0)
    return [1e-5 * torch.randn(3, 4, generator=generator) for _ in range(steps)]


def run(optimizer: torch.optim.Optimizer, weight: torch.Tensor, grads: list[torch.Tensor]) -> None:
    for grad in grads:
        weight.grad = grad.clone()
        optimizer.step()


@pytest.mark.parametrize("decay", [0.0, 1e-3])
def test_updates_are_those_of_keras(decay: float) -> None:
    config = DreamerV2Config(adam_eps=1e-5, weight_decay=decay)
    layer = nn.Linear(4, 3, bias=False)
    w = layer.weight.detach().double().numpy().copy()
    lr, b1, b2, m, v = 2e-4, 0.9, 0.999, np.zeros((3, 4)), np.zeros((3, 4))
    optimizer = build_optimizer(config, [(layer, lr)])
    for t, grad in enumerate(gradients(40), 1):
        g = grad.double().numpy()
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        w = w * (1 - decay) - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + config.adam_eps)
        run(optimizer, layer.weight, [grad])
        np.testing.assert_allclose(layer.weight.detach().numpy(), w, rtol=2e-6, atol=2e-7)
    # torch's own rule goes elsewhere: the test would see it.
    plain = nn.Linear(4, 3, bias=False)
    plain.load_state_dict(layer.state_dict())
    other = torch.optim.AdamW(plain.parameters(), lr=lr, eps=config.adam_eps, weight_decay=0)
    fresh = build_optimizer(DreamerV2Config(weight_decay=0.0), [(layer, lr)])
    run(other, plain.weight, gradients(5))
    run(fresh, layer.weight, gradients(5))
    assert (plain.weight - layer.weight).abs().max() > 1e-4


def test_a_loaded_optimiser_goes_on_as_the_saved_one() -> None:
    config = DreamerV2Config()
    layer = nn.Linear(4, 3, bias=False)
    optimizer = build_optimizer(config, [(layer, 1e-3)])
    run(optimizer, layer.weight, gradients(3))
    tensors, plain = flatten(optimizer.state_dict())
    copy = nn.Linear(4, 3, bias=False)
    copy.load_state_dict(layer.state_dict())
    loaded = build_optimizer(config, [(copy, 1e-3)])
    loaded.load_state_dict(unflatten(tensors, plain))
    run(optimizer, layer.weight, gradients(4))
    run(loaded, copy.weight, gradients(4))
    assert torch.equal(layer.weight, copy.weight)
    assert optimizer.param_groups[0]["eps"] == config.adam_eps


def test_another_step_size_takes_effect_when_a_run_is_continued() -> None:
    layer = nn.Linear(4, 3, bias=False)
    optimizer = build_optimizer(DreamerV2Config(), [(layer, 1e-3)])
    run(optimizer, layer.weight, gradients(1))
    changed = build_optimizer(DreamerV2Config(adam_eps=1e-6, weight_decay=0.5), [(layer, 1e-2)])
    changed.load_state_dict(optimizer.state_dict())
    group = changed.param_groups[0]
    assert (group["lr"], group["eps"], group["weight_decay"]) == (1e-2, 1e-6, 50.0)


def test_a_skipped_update_does_not_count() -> None:
    """With loss scaling an overflow skips the update; Keras' t must not go on."""
    layer, twin = nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)
    twin.load_state_dict(layer.state_dict())
    optimizers = [KerasAdam(module.parameters(), eps=1e-5) for module in (layer, twin)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**6)
    overflow = torch.full((3, 4), torch.inf)
    for grad in (overflow, overflow, *gradients(3)):
        layer.weight.grad = grad.clone() * scaler.get_scale()
        scaler.scale(torch.ones(()))
        scaler.step(optimizers[0])
        scaler.update()
    run(optimizers[1], twin.weight, gradients(3))
    torch.testing.assert_close(layer.weight, twin.weight, rtol=1e-6, atol=1e-9)
