"""The world model and its loss (Hafner et al. 2020, eq. 10 with pixel reconstruction; 2021, eq. 2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV2Config
from synora.algorithms.dreamer.networks import Decoder, Encoder, ScalarHead, scale_images
from synora.algorithms.dreamer.rssm import Observed, State, build_rssm
from synora.nn.blocks import glorot_uniform_
from synora.nn.distributions import (
    DiagonalGaussian,
    OneHotCategorical,
    balanced_kl_loss,
    bernoulli_log_prob,
    free_nats_loss,
    unit_normal_log_prob,
)


class ReplayBatch(NamedTuple):
    """Sequences from replay; time first, batch second.

    Frame t goes with the action and the reward that LED to it.

    Attributes:
        image: (T, B, C, 64, 64) raw frames, uint8 or floating point with values 0..255.
        action: (T, B, A) floating point; one-hot for discrete actions.
        reward: (T, B) environment rewards.
        is_terminal: (T, B) 1 where the frame ends an episode for good; a time limit does not.
        is_first: (T, B) 1 where the frame starts an episode; None: no reset inside the sequences.
    """

    image: Tensor
    action: Tensor
    reward: Tensor
    is_terminal: Tensor
    is_first: Tensor | None = None


class WorldModelOutput(NamedTuple):
    """The loss and what it was made of.

    Attributes:
        loss: scalar float32, the weighted total.
        terms: unweighted scalar losses by name: "image", "reward", "kl", and "discount" with a continuation head.
        log_probs: (T, B) log densities by name: "image", "reward", "discount".
        kl: (T, B) divergence of the posterior from the prior.
        observed: states and distributions; `observed.state.detach()` starts the imagination.
        embed: (T, B, E) frame embeddings.
    """

    loss: Tensor
    terms: dict[str, Tensor]
    log_probs: dict[str, Tensor]
    kl: Tensor
    observed: Observed[DiagonalGaussian] | Observed[OneHotCategorical]
    embed: Tensor


class WorldModel(nn.Module):
    """Encoder, RSSM, decoder, reward head and, if the configuration asks for it, continuation head.

    Args:
        config: a `DreamerV1Config` or `DreamerV2Config`.
        action_size: A, number of actions or of action dimensions.
    """

    def __init__(self, config: DreamerConfig, action_size: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.rssm = build_rssm(config, action_size)
        self.decoder = Decoder(config)
        self.reward = ScalarHead(config.feature_size, config.units, config.reward_layers)
        self.discount: ScalarHead | None = None
        if config.predict_discount:
            self.discount = ScalarHead(config.feature_size, config.units, config.discount_layers)
        self.apply(glorot_uniform_)
        self.rssm.cell.reset_parameters()

    def reward_target(self, reward: Tensor) -> Tensor:
        """Environment rewards as the reward head learns them."""
        return torch.tanh(reward.float()) if self.config.reward_transform == "tanh" else reward.float()

    def discount_target(self, is_terminal: Tensor) -> Tensor:
        """`discount * (1 - terminal)`: what the continuation head learns, and the discount of replayed states."""
        return self.config.discount * (1 - is_terminal.float())

    def predict_discount(self, features: Tensor) -> Tensor:
        """Discounts (...) of states with features (..., F): the head's mean, or the constant without a head."""
        if self.discount is None:
            return torch.full(features.shape[:-1], self.config.discount, device=features.device)
        return torch.sigmoid(self.discount(features))

    def kl_loss(self, observed: Observed[DiagonalGaussian] | Observed[OneHotCategorical]) -> Tensor:
        """Scalar divergence loss with free nats: plain for V1, balanced for V2; not yet scaled."""
        config = self.config
        if isinstance(config, DreamerV2Config):
            assert isinstance(observed.posterior, OneHotCategorical)
            assert isinstance(observed.prior, OneHotCategorical)
            return balanced_kl_loss(
                observed.posterior,
                observed.prior,
                balance=config.kl_balance,
                free_nats=config.free_nats,
                average_first=config.kl_average_first,
            )
        return free_nats_loss(divergence(observed), config.free_nats)

    def forward(
        self,
        batch: ReplayBatch,
        state: State | None = None,
        *,
        noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> WorldModelOutput:
        """Loss of a replay batch.

        Args:
            batch: sequences of one length.
            state: state before the first frames, (B, ...); None: zeros.
            noise: draws of the posterior samples, see `RSSM.observe`.
            generator: where they come from when not given.
        """
        config = self.config
        images = scale_images(batch.image)
        embed = self.encoder(images)
        observed = self.rssm.observe(embed, batch.action, batch.is_first, state, noise=noise, generator=generator)
        features = observed.state.features
        log_probs = {
            "image": unit_normal_log_prob(self.decoder(features), images, event_dims=3),
            "reward": unit_normal_log_prob(self.reward(features), self.reward_target(batch.reward)),
        }
        if self.discount is not None:
            target = self.discount_target(batch.is_terminal)
            log_probs["discount"] = bernoulli_log_prob(self.discount(features), target)
        terms = {name: -value.mean() for name, value in log_probs.items()}
        terms["kl"] = self.kl_loss(observed)
        loss = config.kl_scale * terms["kl"] + terms["image"] + terms["reward"]
        if "discount" in terms:
            loss = loss + config.discount_scale * terms["discount"]
        with torch.no_grad():
            kl = divergence(observed)
        return WorldModelOutput(loss, terms, log_probs, kl, observed, embed)


def divergence(observed: Observed[DiagonalGaussian] | Observed[OneHotCategorical]) -> Tensor:
    """KL(posterior || prior) of every step: (T, B)."""
    posterior, prior = observed.posterior, observed.prior
    if isinstance(posterior, DiagonalGaussian):
        assert isinstance(prior, DiagonalGaussian)
        return posterior.kl(prior)
    assert isinstance(prior, OneHotCategorical)
    return posterior.kl(prior)
