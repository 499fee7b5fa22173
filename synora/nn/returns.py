"""Lambda-returns with a discount per step, and the loss weights that go with them."""

from __future__ import annotations

import torch
from torch import Tensor


def lambda_returns(reward: Tensor, value: Tensor, discount: Tensor, lambda_: float) -> Tensor:
    """Mix n-step returns exponentially (Hafner et al. 2020, eq. 6; 2021, eq. 4), with a discount per step.

    `R_t = r_t + d_t * ((1 - lambda) * v_{t+1} + lambda * R_{t+1})` for t = 0..N-2, bootstrapped with
    `R_{N-1} = v_{N-1}`. The reward and the discount are read at state t itself, and `value[0]` is never used.

    Args:
        reward: (N, ...) floating point, N >= 2.
        value: the same shape.
        discount: the same shape, values in [0, 1]; gradients flow through it.
        lambda_: mixing weight in [0, 1]; 0 gives one-step targets, 1 Monte Carlo returns with a bootstrap.

    Returns:
        (N-1, ...) float32 (or wider) returns of the states 0..N-2.

    Raises:
        ValueError: shapes differ or fewer than two states are given.
    """
    if not reward.shape == value.shape == discount.shape:
        raise ValueError(
            f"reward, value and discount must have one shape, got {tuple(reward.shape)}, {tuple(value.shape)}, "
            f"{tuple(discount.shape)}."
        )
    if reward.shape[0] < 2:
        raise ValueError("lambda-returns need at least two states: the last one only bootstraps.")
    reward, value, discount = (x if x.dtype == torch.float64 else x.float() for x in (reward, value, discount))
    # Everything that does not depend on the recursion is done for all steps at once.
    one_step = torch.addcmul(reward[:-1], discount[:-1], value[1:], value=1 - lambda_).unbind(0)
    carry = (discount[:-1] * lambda_).unbind(0)
    current = value[-1]
    returns: list[Tensor] = []
    for step in range(len(one_step) - 1, -1, -1):
        current = torch.addcmul(one_step[step], carry[step], current)
        returns.append(current)
    return torch.stack(returns[::-1])


def discount_weights(discount: Tensor) -> Tensor:
    """Probability that each state is reached: the cumulative product of `[1, d_0, ..., d_{N-2}]`, without gradient.

    Shifted by one because `d_t` says whether state t+1 still belongs to the episode.

    Args:
        discount: (N, ...) values in [0, 1].

    Returns:
        (N, ...) float32 weights, the first row ones.
    """
    discount = discount.detach().float()
    return torch.cumprod(torch.cat([torch.ones_like(discount[:1]), discount[:-1]]), 0)
