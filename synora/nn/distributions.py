"""Distributions over stacked parameters, with the noise as an argument wherever something is drawn.

All mathematics runs in float32 whatever the precision of the network that produced the parameters, so every class is
safe under bf16 and fp16 autocast. Samples take either explicit noise or a `torch.Generator`, else the device's default
generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)
# The largest float32 below 1: what the authors' 0.99999997 rounds to. atanh of it is 8.664.
_TANH_LIMIT = 1 - 2**-24
_SMALLEST = torch.finfo(torch.float32).tiny
# The truncated Normal's samples stay this far inside the borders, as in the authors' code.
_BORDER = 1e-6


def standard_normal(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw float32 standard-normal noise of the shape and device of `like`."""
    return torch.randn(like.shape, device=like.device, generator=generator)


def gumbel(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw float32 standard Gumbel noise of the shape and device of `like`."""
    # Uniforms and two vectorised logarithms: on a CPU several times faster than `exponential_`.
    uniform = torch.rand(like.shape, device=like.device, generator=generator)
    return uniform.clamp_(min=_SMALLEST).log_().neg_().log_().neg_()


def unit_normal_log_prob(mean: Tensor, target: Tensor, event_dims: int = 0) -> Tensor:
    """Log density of unit-variance Normals, the constant kept.

    Args:
        mean: (..., *event) predicted means.
        target: the same shape.
        event_dims: how many trailing dimensions are summed.

    Returns:
        (...) float32.
    """
    squared = (target.float() - mean.float()).square()
    if event_dims == 0:
        return -0.5 * squared - 0.5 * LOG_2PI
    entries = math.prod(squared.shape[-event_dims:])
    return -0.5 * squared.flatten(-event_dims).sum(-1) - 0.5 * LOG_2PI * entries


def bernoulli_log_prob(logit: Tensor, target: Tensor) -> Tensor:
    """`t log p + (1 - t) log(1 - p)` elementwise; `target` may be any number in [0, 1] (a soft target). Float32."""
    return -F.binary_cross_entropy_with_logits(logit.float(), target.float(), reduction="none")


def straight_through(hard: Tensor, probs: Tensor) -> Tensor:
    """The value of `hard` with the gradient of `probs` (Hafner et al. 2021, section 2.1, algorithm 1)."""
    return hard + (probs - probs.detach())


class DiagonalGaussian:
    """Independent Normals over the last axis.

    Args:
        mean: (..., S).
        std: (..., S), positive.
    """

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.mean = mean.float()
        self.std = std.float()

    def sample(self, noise: Tensor | None = None, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw (..., S) with reparameterised gradients; `noise` is standard normal of that shape."""
        noise = standard_normal(self.mean, generator) if noise is None else noise
        return torch.addcmul(self.mean, self.std, noise)

    def entropy(self) -> Tensor:
        """Entropy summed over the last axis: (...)."""
        return (self.std.log() + 0.5 * (1 + LOG_2PI)).sum(-1)

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """KL(self || other) summed over the last axis: (...)."""
        ratio = (self.std / other.std).square()
        distance = ((self.mean - other.mean) / other.std).square()
        return 0.5 * (ratio + distance - 1 - ratio.log()).sum(-1)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors that define the distribution."""
        return self.mean, self.std

    def detach(self) -> DiagonalGaussian:
        """The same distribution without gradient."""
        return DiagonalGaussian(self.mean.detach(), self.std.detach())


class OneHotCategorical:
    """Categorical distributions whose values are one-hot vectors, with straight-through gradients.

    Args:
        logits: (..., C), any offset; leading axes are independent variables.
        event_dims: how many axes left of the classes are one event: log-probabilities, entropies and divergences are
            summed over them (0 for an action, 1 for a latent state of S variables).
    """

    def __init__(self, logits: Tensor, event_dims: int = 0) -> None:
        self.logits = logits.float()
        self.event_dims = event_dims

    @property
    def log_probs(self) -> Tensor:
        """Normalised log-probabilities, (..., C)."""
        return F.log_softmax(self.logits, -1)

    @property
    def probs(self) -> Tensor:
        """Probabilities, (..., C)."""
        return F.softmax(self.logits, -1)

    def sample_index(self, noise: Tensor | None = None, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw the class by the Gumbel argmax: (...) int64; `noise` is standard Gumbel of the shape of the logits."""
        noise = gumbel(self.logits, generator) if noise is None else noise
        return (self.logits.detach() + noise).argmax(-1)

    def sample(self, noise: Tensor | None = None, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw (..., C) one-hot float32 with the gradient of the probabilities."""
        hard = self.one_hot(self.sample_index(noise, generator=generator))
        return straight_through(hard, self.probs) if self.logits.requires_grad else hard

    def one_hot(self, index: Tensor) -> Tensor:
        """(..., C) float32 one-hot of (...) class indices."""
        return torch.zeros_like(self.logits, requires_grad=False).scatter_(-1, index.unsqueeze(-1), 1.0)

    @property
    def mode(self) -> Tensor:
        """The most likely class as a one-hot vector, (..., C)."""
        return self.one_hot(self.logits.argmax(-1))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability of one-hot `value`; differentiable in `value` too."""
        return self._sum_events((self.log_probs * value).sum(-1))

    def entropy(self) -> Tensor:
        """Exact entropy."""
        log_probs = self.log_probs
        return -self._sum_events((log_probs.exp() * log_probs).sum(-1))

    def kl(self, other: OneHotCategorical) -> Tensor:
        """KL(self || other)."""
        log_probs = self.log_probs
        return self._sum_events((log_probs.exp() * (log_probs - other.log_probs)).sum(-1))

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors that define the distribution."""
        return (self.logits,)

    def detach(self) -> OneHotCategorical:
        """The same distribution without gradient."""
        return OneHotCategorical(self.logits.detach(), self.event_dims)

    def _sum_events(self, value: Tensor) -> Tensor:
        return value.flatten(-self.event_dims).sum(-1) if self.event_dims else value


@dataclass(frozen=True)
class TanhSample:
    """A squashed sample and what it was before the squashing, both (..., A)."""

    action: Tensor
    pre_tanh: Tensor


class TanhNormal:
    """tanh of independent Normals (Hafner et al. 2020, appendix A): values in [-1, 1], summed over the last axis.

    In float32 the tanh of a wide Normal saturates at exactly +-1. The authors' code then reads the density at the
    inverse of the border clipped to +-0.99999997, i.e. at +-8.664; that is what `log_prob` does. `log_prob_pre_tanh`
    takes the remembered value instead, which stays exact.

    Args:
        mean: (..., A) mean before the squashing.
        std: (..., A), positive.
    """

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        self.base = DiagonalGaussian(mean, std)

    def sample(self, noise: Tensor | None = None, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw (..., A) in [-1, 1] with reparameterised gradients; `noise` is standard normal of that shape."""
        return torch.tanh(self.base.sample(noise, generator=generator))

    def sample_with_inverse(
        self, noise: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> TanhSample:
        """As `sample`, keeping the value before the tanh."""
        pre_tanh = self.base.sample(noise, generator=generator)
        return TanhSample(torch.tanh(pre_tanh), pre_tanh)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density (...) of actions in [-1, 1], the inverse clipped at the borders."""
        return self.log_prob_pre_tanh(torch.atanh(action.float().clamp(-_TANH_LIMIT, _TANH_LIMIT)))

    def log_prob_pre_tanh(self, pre_tanh: Tensor) -> Tensor:
        """Log density (...) of `tanh(pre_tanh)`."""
        x = pre_tanh.float()
        normal = -0.5 * ((x - self.base.mean) / self.base.std).square() - self.base.std.log() - 0.5 * LOG_2PI
        # log(1 - tanh(x)^2), written so that neither large nor small x cancels.
        log_slope = 2 * (math.log(2) - x - F.softplus(-2 * x))
        return (normal - log_slope).sum(-1)

    def entropy(self, noise: Tensor) -> Tensor:
        """Estimate the entropy (...) as minus the mean log density of the samples that `noise` (K, ..., A) gives."""
        return -self.log_prob(self.sample(noise)).mean(0)

    def mode(
        self, noise: Tensor | None = None, *, samples: int = 100, generator: torch.Generator | None = None
    ) -> Tensor:
        """The most likely of `samples` draws, chosen for each row on its own: (..., A).

        `noise` is (K, ..., A) standard normal and replaces the drawing.
        """
        if noise is None:
            noise = standard_normal(self.base.mean.expand(samples, *self.base.mean.shape), generator)
        action = self.sample(noise)
        return action.gather(0, self.best(action)[None, ..., None].expand(1, *action.shape[1:]))[0]

    def best(self, actions: Tensor) -> Tensor:
        """Index (...) of the most likely of (K, ..., A) actions."""
        return self.log_prob(actions).argmax(0)


class TruncatedNormal:
    """Independent Normals truncated to [-1, 1] and renormalised, summed over the last axis (Hafner et al. 2021, app.).

    Args:
        loc: (..., A) location of the untruncated Normal, in [-1, 1].
        std: (..., A) its scale, positive.
    """

    def __init__(self, loc: Tensor, std: Tensor) -> None:
        self.loc = loc.float()
        self.std = std.float()
        self._low = (-1 - self.loc) / self.std
        self._high = (1 - self.loc) / self.std
        self._cdf_low = torch.special.ndtr(self._low)
        self._mass = torch.special.ndtr(self._high) - self._cdf_low

    def sample(
        self, noise: Tensor | None = None, *, generator: torch.Generator | None = None, pathwise: bool = False
    ) -> Tensor:
        """Draw (..., A) strictly inside [-1, 1] by the inverse CDF; `noise` is uniform on [0, 1) of that shape.

        Args:
            noise: replaces the drawing.
            generator: where the noise comes from otherwise.
            pathwise: False: the gradient of `loc + std * constant` (d/dloc = 1, d/dstd = (a - loc)/std), what the
                authors' TensorFlow op computes. True: the derivative of the inverse CDF at a fixed uniform, which is
                much smaller near the borders.
        """
        if noise is None:
            noise = torch.rand(self.loc.shape, device=self.loc.device, generator=generator)
        probability = torch.addcmul(self._cdf_low, noise, self._mass).clamp(1e-30, _TANH_LIMIT)
        standard = torch.special.ndtri(probability if pathwise else probability.detach())
        action = torch.addcmul(self.loc, self.std, standard)
        inside = action.detach().clamp(-1 + _BORDER, 1 - _BORDER)
        return inside + (action - action.detach())

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density (...) of actions in [-1, 1]."""
        standard = (action.float() - self.loc) / self.std
        return (-0.5 * standard.square() - 0.5 * LOG_2PI - self.std.log() - self._mass.log()).sum(-1)

    def entropy(self) -> Tensor:
        """Exact entropy (...)."""
        edges = self._low * _standard_density(self._low) - self._high * _standard_density(self._high)
        return (0.5 * (1 + LOG_2PI) + (self.std * self._mass).log() + 0.5 * edges / self._mass).sum(-1)

    @property
    def mean(self) -> Tensor:
        """Mean of the truncated Normal, (..., A)."""
        return self.loc - self.std * (_standard_density(self._high) - _standard_density(self._low)) / self._mass

    @property
    def mode(self) -> Tensor:
        """The most likely value: `loc`, which lies inside the borders."""
        return self.loc


def _standard_density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x.square() - 0.5 * LOG_2PI)


def free_nats_loss(kl: Tensor, free_nats: float, *, average_first: bool = True) -> Tensor:
    """Clip a divergence from below, so that small ones carry no gradient.

    Args:
        kl: (...) divergences.
        free_nats: the threshold, >= 0.
        average_first: clip the mean (the authors' default) instead of averaging clipped entries.

    Returns:
        Scalar float32.
    """
    return kl.mean().clamp(min=free_nats) if average_first else kl.clamp(min=free_nats).mean()


def balanced_kl_loss(
    posterior: OneHotCategorical,
    prior: OneHotCategorical,
    *,
    balance: float,
    free_nats: float,
    average_first: bool = True,
) -> Tensor:
    """KL balancing (Hafner et al. 2021, section 2.1, algorithm 2).

    `balance` weighs the term that trains the prior (posterior detached), `1 - balance` the one that trains the
    posterior. The value does not depend on it, only the gradients do.
    """
    train_prior = free_nats_loss(posterior.detach().kl(prior), free_nats, average_first=average_first)
    train_posterior = free_nats_loss(posterior.kl(prior.detach()), free_nats, average_first=average_first)
    return balance * train_prior + (1 - balance) * train_posterior
