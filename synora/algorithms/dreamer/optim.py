"""The authors' optimiser: Adam with a weight decay that does not depend on the step size."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from synora.algorithms.dreamer.config import DreamerConfig


def build_optimizer(config: DreamerConfig, groups: Iterable[tuple[nn.Module, float]]) -> torch.optim.AdamW:
    """Adam over the trainable parameters of modules, one parameter group and step size each.

    The authors multiply every parameter by `1 - weight_decay` before Adam's step. AdamW multiplies by
    `1 - lr * weight_decay` at the same place, so dividing the decay by the step size gives the same numbers. Epsilon
    enters as in torch (inside the bias correction), which differs from Keras in the first updates only.

    Args:
        config: `adam_eps` and `weight_decay`.
        groups: pairs of a module and its step size.
    """
    return torch.optim.AdamW(
        [
            {
                "params": [p for p in module.parameters() if p.requires_grad],
                "lr": lr,
                "weight_decay": config.weight_decay / lr,
            }
            for module, lr in groups
        ],
        eps=config.adam_eps,
        fused=True,
    )
