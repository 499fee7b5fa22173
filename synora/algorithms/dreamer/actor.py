"""The policies: tanh-Normal (V1), one-hot categorical and truncated Normal (V2)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.nn.blocks import MLP
from synora.nn.distributions import OneHotCategorical, TanhNormal, TruncatedNormal, gumbel, standard_normal

Policy = TanhNormal | OneHotCategorical | TruncatedNormal


class Actor(nn.Module):
    """An ELU MLP on features; subclasses say what its output means.

    Args:
        config: sizes.
        action_size: A, number of actions or of action dimensions.
        outputs: size of the raw output.
    """

    def __init__(self, config: DreamerConfig, action_size: int, outputs: int) -> None:
        super().__init__()
        self.action_size = action_size
        self.mlp = MLP(config.feature_size, config.units, config.actor_layers, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """(..., F) features -> (..., outputs) raw parameters, which `policy` reads."""
        out: Tensor = self.mlp(features)
        return out

    def policy(self, raw: Tensor) -> Policy:
        """Distribution of the action given raw parameters."""
        raise NotImplementedError

    def draw_noise(self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
        """Noise (*shape, A) for actions whose leading shape is `shape`."""
        raise NotImplementedError

    def sample(self, policy: Policy, noise: Tensor) -> Tensor:
        """Draw actions (..., A) with the gradient the configuration asks for."""
        return policy.sample(noise)

    def greedy(self, policy: Policy, generator: torch.Generator | None = None) -> Tensor:
        """The action (..., A) taken when evaluating."""
        raise NotImplementedError


class TanhNormalActor(Actor):
    """V1, continuous actions: `mean = 5 tanh(raw/5)`, `std = softplus(raw + softplus^-1(5)) + 1e-4`."""

    def __init__(self, config: DreamerV1Config, action_size: int) -> None:
        super().__init__(config, action_size, 2 * action_size)
        self.mean_scale, self.min_std, self.mode_samples = (
            config.actor_mean_scale,
            config.actor_min_std,
            config.mode_samples,
        )
        self.raw_init_std = math.log(math.expm1(config.actor_init_std))

    def policy(self, raw: Tensor) -> TanhNormal:
        """Read (..., 2A) as means and raw spreads."""
        mean, spread = raw.float().chunk(2, -1)
        mean = self.mean_scale * torch.tanh(mean / self.mean_scale)
        return TanhNormal(mean, F.softplus(spread + self.raw_init_std) + self.min_std)

    def draw_noise(self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
        """Standard normal."""
        return standard_normal(torch.empty(*shape, self.action_size, device=device), generator)

    def greedy(self, policy: Policy, generator: torch.Generator | None = None) -> Tensor:
        """The most likely of `mode_samples` draws, per row."""
        assert isinstance(policy, TanhNormal)
        return policy.mode(samples=self.mode_samples, generator=generator)


class OneHotActor(Actor):
    """Discrete actions: one logit an action, straight-through samples."""

    def __init__(self, config: DreamerConfig, action_size: int) -> None:
        super().__init__(config, action_size, action_size)

    def policy(self, raw: Tensor) -> OneHotCategorical:
        """Read (..., A) as logits."""
        return OneHotCategorical(raw)

    def draw_noise(self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
        """Standard Gumbel."""
        return gumbel(torch.empty(*shape, self.action_size, device=device), generator)

    def greedy(self, policy: Policy, generator: torch.Generator | None = None) -> Tensor:
        """The most likely action."""
        assert isinstance(policy, OneHotCategorical)
        return policy.mode


class TruncatedNormalActor(Actor):
    """V2, continuous actions: `loc = tanh(raw)`, `std = 2 sigmoid((raw + init)/2) + 0.1`, truncated to [-1, 1]."""

    def __init__(self, config: DreamerV2Config, action_size: int) -> None:
        super().__init__(config, action_size, 2 * action_size)
        self.init_std, self.min_std, self.pathwise = (
            config.actor_init_std,
            config.actor_min_std,
            config.pathwise_actions,
        )

    def policy(self, raw: Tensor) -> TruncatedNormal:
        """Read (..., 2A) as raw locations and raw spreads."""
        loc, spread = raw.float().chunk(2, -1)
        return TruncatedNormal(torch.tanh(loc), 2 * torch.sigmoid((spread + self.init_std) / 2) + self.min_std)

    def draw_noise(self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
        """Uniform on [0, 1)."""
        return torch.rand(*shape, self.action_size, device=device, generator=generator)

    def sample(self, policy: Policy, noise: Tensor) -> Tensor:
        """Inverse-CDF samples, location-scale or pathwise gradient."""
        assert isinstance(policy, TruncatedNormal)
        return policy.sample(noise, pathwise=self.pathwise)

    def greedy(self, policy: Policy, generator: torch.Generator | None = None) -> Tensor:
        """The location."""
        assert isinstance(policy, TruncatedNormal)
        return policy.mode


def build_actor(config: DreamerConfig, action_size: int) -> Actor:
    """The actor the configuration's `action_distribution` asks for."""
    assert isinstance(config, DreamerV1Config | DreamerV2Config)
    if config.action_distribution == "onehot":
        return OneHotActor(config, action_size)
    if isinstance(config, DreamerV1Config):
        return TanhNormalActor(config, action_size)
    return TruncatedNormalActor(config, action_size)
