from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from synora.nn.distributions import (
    DiagonalGaussian,
    OneHotCategorical,
    TanhNormal,
    TruncatedNormal,
    balanced_kl_loss,
    unit_normal_log_prob,
)


def test_gaussian_matches_torch() -> None:
    a, b = (DiagonalGaussian(torch.randn(4, 3), torch.rand(4, 3) + 0.1) for _ in range(2))
    want = kl_divergence(Normal(a.mean, a.std), Normal(b.mean, b.std)).sum(-1)
    torch.testing.assert_close(a.kl(b), want)
    torch.testing.assert_close(a.entropy(), Normal(a.mean, a.std).entropy().sum(-1))


def test_unit_normal_keeps_its_constant() -> None:
    mean, x = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    want = Normal(mean, 1).log_prob(x)
    torch.testing.assert_close(unit_normal_log_prob(mean, x), want)
    torch.testing.assert_close(unit_normal_log_prob(mean, x, event_dims=3), want.sum((1, 2, 3)))


def test_categorical_draws_with_its_probabilities_and_straight_through_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.tensor([0.0, 1.0, 2.0]).expand(20_000, 3).clone().requires_grad_()
    policy = OneHotCategorical(logits)
    sample = policy.sample(generator=generator)
    assert torch.equal(sample.sum(-1), torch.ones(20_000))
    torch.testing.assert_close(sample.mean(0), policy.probs[0], atol=0.01, rtol=0)
    weight = torch.randn(3)
    (got,) = torch.autograd.grad((sample * weight).sum(), logits, retain_graph=True)
    (want,) = torch.autograd.grad((policy.probs * weight).sum(), logits)
    torch.testing.assert_close(got, want)


def test_balance_moves_gradient_not_value() -> None:
    post, prior = torch.randn(5, 2, 3, requires_grad=True), torch.randn(5, 2, 3, requires_grad=True)
    norms = []
    for balance in (0.5, 0.8):
        loss = balanced_kl_loss(OneHotCategorical(post, 1), OneHotCategorical(prior, 1), balance=balance, free_nats=0.0)
        norms.append((loss.detach(), torch.autograd.grad(loss, prior)[0]))
    torch.testing.assert_close(norms[0][0], norms[1][0])
    torch.testing.assert_close(norms[0][1] * 0.8 / 0.5, norms[1][1])


def test_tanh_normal_is_finite_where_it_saturates() -> None:
    policy = TanhNormal(torch.full((2, 1), 5.0, requires_grad=True), torch.full((2, 1), 5.0))
    action = policy.sample(torch.tensor([[3.0], [-3.0]]))
    assert action[0].item() == 1.0
    log_prob = policy.log_prob(action)
    log_prob.sum().backward()
    assert torch.isfinite(log_prob).all()


def test_truncated_normal_density_integrates_to_one_and_entropy_fits() -> None:
    policy = TruncatedNormal(torch.tensor([[0.6], [-0.97]]).double().float(), torch.tensor([[0.3], [1.1]]))
    x = torch.linspace(-1, 1, 20_001)[:, None, None].expand(-1, 2, 1)
    log_density = policy.log_prob(x)
    density = log_density.exp()
    grid = x[:, :, 0]
    torch.testing.assert_close(torch.trapezoid(density, grid, dim=0), torch.ones(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        torch.trapezoid(-density * log_density, grid, dim=0), policy.entropy(), atol=1e-3, rtol=0
    )
    torch.testing.assert_close(torch.trapezoid(density * grid, grid, dim=0), policy.mean[:, 0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("pathwise", [False, True])
def test_truncated_normal_stays_inside_for_extreme_draws(pathwise: bool) -> None:
    loc = torch.tensor([[-0.99], [0.0], [0.99]], requires_grad=True)
    std = torch.full((3, 1), 0.1, requires_grad=True)
    for noise in (0.0, 1e-7, 0.5, 1 - 2**-24):
        action = TruncatedNormal(loc, std).sample(torch.full((3, 1), noise), pathwise=pathwise)
        assert (action.abs() < 1).all()
        grads = torch.autograd.grad(action.sum(), [loc, std], allow_unused=True)
        assert all(g is None or torch.isfinite(g).all() for g in grads)


def test_location_scale_gradient_is_the_authors() -> None:
    loc, std = torch.tensor([[0.9]], requires_grad=True), torch.tensor([[0.5]], requires_grad=True)
    action = TruncatedNormal(loc, std).sample(torch.tensor([[0.7]]))
    d_loc, d_std = torch.autograd.grad(action.sum(), [loc, std])
    assert d_loc.item() == 1.0
    torch.testing.assert_close(d_std, ((action - loc) / std).detach())
