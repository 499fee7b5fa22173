from __future__ import annotations

import pytest
import torch

from synora.nn.returns import discount_weights, lambda_returns


def naive(reward, value, discount, lambda_):
    returns = [value[-1]]
    for t in reversed(range(len(reward) - 1)):
        returns.insert(0, reward[t] + discount[t] * ((1 - lambda_) * value[t + 1] + lambda_ * returns[0]))
    return torch.stack(returns[:-1])


@pytest.mark.parametrize("steps", [2, 7])
@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_returns_follow_the_recursion(steps: int, lambda_: float) -> None:
    reward, value, discount = torch.randn(steps, 3), torch.randn(steps, 3), torch.rand(steps, 3)
    torch.testing.assert_close(
        lambda_returns(reward, value, discount, lambda_), naive(reward, value, discount, lambda_)
    )


def test_a_terminal_state_cuts_the_future_off() -> None:
    reward, value, discount = torch.ones(4, 1), torch.full((4, 1), 100.0), torch.tensor([[1.0], [0.0], [1.0], [1.0]])
    assert lambda_returns(reward, value, discount, 1.0)[:, 0].tolist() == [2.0, 1.0, 101.0]
    assert discount_weights(discount)[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_low_precision_is_widened_and_double_kept() -> None:
    half = torch.ones(3, 2, dtype=torch.bfloat16)
    assert lambda_returns(half, half, half, 0.9).dtype == torch.float32
    assert lambda_returns(half.double(), half.double(), half.double(), 0.9).dtype == torch.float64


def test_weights_carry_no_gradient() -> None:
    assert not discount_weights(torch.rand(3, 2, requires_grad=True)).requires_grad


def test_wrong_shapes_are_refused() -> None:
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="one shape"):
        lambda_returns(x, x[:2], x, 0.9)
    with pytest.raises(ValueError, match="two states"):
        lambda_returns(x[:1], x[:1], x[:1], 0.9)
