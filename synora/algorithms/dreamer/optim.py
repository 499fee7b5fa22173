"""The authors' optimiser: Keras' Adam with a weight decay that does not depend on the step size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from synora.algorithms.dreamer.config import DreamerConfig


class KerasAdam(torch.optim.AdamW):
    """Adam as Keras defines it: epsilon is added outside the bias correction.

    Update t moves a parameter by `lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)`. torch's own rule divides by
    `sqrt(v / (1 - b2^t)) + eps`, which is the same with an epsilon of `eps / sqrt(1 - b2^t)`: giving that to torch's
    fused kernel costs nothing. Before that, AdamW multiplies each parameter by `1 - lr * weight_decay`.

    Args:
        params: parameters or groups of them, as for AdamW.
        eps: Keras' epsilon.
    """

    def __init__(self, params: Any, *, eps: float) -> None:
        super().__init__(params, eps=eps, fused=True)
        # The fused kernel can skip an update whose gradients overflowed without telling the host, which counts updates
        # here. So GradScaler is to decide itself whether to call `step`.
        self._step_supports_amp_scaling = False
        self._eps, self._updates = eps, 0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do one update."""
        self._updates += 1
        for group in self.param_groups:
            group["eps"] = self._eps / math.sqrt(1 - group["betas"][1] ** self._updates)
        loss: float | None = super().step(closure)
        for group in self.param_groups:
            group["eps"] = self._eps
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the moments and the number of updates; step sizes, epsilon and weight decay stay those of this object.

        So a run that is continued with another step size really gets it.
        """
        kept = [{name: value for name, value in group.items() if name != "params"} for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, values in zip(self.param_groups, kept, strict=True):
            group.update(values)
        counts = [int(entry["step"]) for entry in self.state.values()]
        self._updates = max(counts, default=0)


def build_optimizer(config: DreamerConfig, groups: Iterable[tuple[nn.Module, float]]) -> KerasAdam:
    """Keras' Adam over the trainable parameters of modules, one parameter group and step size each.

    The authors multiply every parameter by `1 - weight_decay` before Adam's step. AdamW multiplies by
    `1 - lr * weight_decay` at the same place, so dividing the decay by the step size gives the same numbers.

    Args:
        config: `adam_eps` and `weight_decay`.
        groups: pairs of a module and its step size.
    """
    return KerasAdam(
        [
            {
                "params": [p for p in module.parameters() if p.requires_grad],
                "lr": lr,
                "weight_decay": config.weight_decay / lr,
            }
            for module, lr in groups
        ],
        eps=config.adam_eps,
    )
