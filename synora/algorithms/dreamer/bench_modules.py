"""Modules whose forward pass is one unit of work of the compute sweep."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from synora.algorithms.dreamer.config import DreamerConfig
from synora.algorithms.dreamer.imagination import Behaviour
from synora.algorithms.dreamer.rssm import State, build_rssm
from synora.algorithms.dreamer.world_model import ReplayBatch, WorldModel
from synora.nn.blocks import glorot_uniform_


class ObserveStep(nn.Module):
    """The RSSM on a sequence of embeddings; returns features, posterior and prior statistics."""

    def __init__(self, config: DreamerConfig, action_size: int) -> None:
        super().__init__()
        self.rssm = build_rssm(config, action_size)
        self.apply(glorot_uniform_)

    def forward(self, embed: Tensor, action: Tensor, is_first: Tensor) -> tuple[Tensor, ...]:
        """(T, B, E), (T, B, A), (T, B) -> features (T, B, F) and the parameters of prior and posterior."""
        observed = self.rssm.observe(embed, action, is_first)
        prior, posterior = observed.prior, observed.posterior
        return observed.state.features, *prior.parameters, *posterior.parameters


class WorldModelStep(nn.Module):
    """The world model's total loss on a replay batch, from a zero state."""

    def __init__(self, config: DreamerConfig, action_size: int) -> None:
        super().__init__()
        self.world_model = WorldModel(config, action_size)

    def forward(self, image: Tensor, action: Tensor, reward: Tensor, is_terminal: Tensor, is_first: Tensor) -> Tensor:
        """Scalar float32 loss; shapes as in `ReplayBatch`."""
        loss: Tensor = self.world_model(ReplayBatch(image, action, reward, is_terminal, is_first)).loss
        return loss


class BehaviourStep(nn.Module):
    """Imagination from start states, actor loss plus critic loss; the world model is part of it but never trained."""

    def __init__(self, config: DreamerConfig, action_size: int) -> None:
        super().__init__()
        self.world_model = WorldModel(config, action_size)
        # The imagination needs neither frames nor gradients of the model.
        del self.world_model.encoder, self.world_model.decoder
        self.world_model.requires_grad_(False)
        self.behaviour = Behaviour(config, action_size)

    def forward(self, stoch: Tensor, deter: Tensor) -> Tensor:
        """(N, S) and (N, D) start states -> scalar float32 loss."""
        is_terminal = torch.zeros(len(deter), device=deter.device)
        loss: Tensor = self.behaviour(self.world_model, State(stoch, deter), is_terminal).loss
        return loss
