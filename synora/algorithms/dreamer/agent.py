"""Acting with a Dreamer agent: the recurrent state is updated with each frame, the policy reads it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from synora.algorithms.dreamer.actor import OneHotActor
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config
from synora.algorithms.dreamer.imagination import Behaviour
from synora.algorithms.dreamer.networks import scale_images
from synora.algorithms.dreamer.rssm import State
from synora.algorithms.dreamer.world_model import WorldModel

Mode = Literal["train", "eval"]


class PolicyState(NamedTuple):
    """What the policy remembers between frames.

    Attributes:
        latent: (N, ...) posterior of the last frame.
        action: (N, A) action taken after it.
    """

    latent: State
    action: Tensor


class Policy:
    """Chooses actions for a batch of environments.

    Args:
        config: exploration, the evaluation rule.
        world_model: encoder and RSSM.
        behaviour: the actor.
    """

    def __init__(self, config: DreamerConfig, world_model: WorldModel, behaviour: Behaviour) -> None:
        self._config, self._world_model, self._actor = config, world_model, behaviour.actor
        self.discrete = isinstance(self._actor, OneHotActor)

    def initial(self, count: int) -> PolicyState:
        """The state before the first frame of `count` environments."""
        latent = self._world_model.rssm.initial(count)
        return PolicyState(latent, torch.zeros(count, self._actor.action_size, device=latent.deter.device))

    @torch.no_grad()
    def act(
        self,
        frames: NDArray[np.uint8],
        is_first: NDArray[np.bool_],
        state: PolicyState,
        *,
        mode: Mode,
        generator: torch.Generator,
    ) -> tuple[NDArray[np.float32], PolicyState]:
        """Choose actions.

        Args:
            frames: (N, C, H, W) uint8.
            is_first: (N,) the frame starts an episode: what was remembered of that environment is dropped.
            state: what `act` or `initial` returned for these environments.
            mode: "train" samples and explores; "eval" takes V2's most likely action, V1's best of 100 draws.
            generator: where the draws come from, on the networks' device.

        Returns:
            (N, A) float32 actions, one-hot for discrete ones, and the new state.
        """
        device = state.latent.deter.device
        image = scale_images(torch.from_numpy(frames).to(device))
        first = torch.from_numpy(is_first.astype(np.float32)).to(device)
        observed = self._world_model.rssm.observe(
            self._world_model.encoder(image)[None], state.action[None], first[None], state.latent, generator=generator
        )
        latent = State(observed.state.stoch[0], observed.state.deter[0])
        policy = self._actor.policy(self._actor(latent.features))
        if mode == "eval":
            action = self._actor.greedy(policy, generator)
        else:
            noise = self._actor.draw_noise((len(frames),), device, generator)
            action = self._explore(self._actor.sample(policy, noise), generator)
        return action.float().cpu().numpy(), PolicyState(latent, action.float())

    def random(self, count: int, generator: torch.Generator, device: torch.device) -> NDArray[np.float32]:
        """Uniformly random actions (N, A) for the prefill."""
        return self._uniform(count, generator, device).cpu().numpy()

    def _explore(self, action: Tensor, generator: torch.Generator) -> Tensor:
        """Add the exploration of the authors' collection policy: Normal noise, or V1's epsilon for discrete actions."""
        config = self._config
        if self.discrete:
            epsilon = config.epsilon if isinstance(config, DreamerV1Config) else 0.0
            if epsilon == 0:
                return action
            chance = torch.rand(len(action), 1, generator=generator, device=action.device)
            return torch.where(chance < epsilon, self._uniform(len(action), generator, action.device), action)
        if config.exploration_noise == 0:
            return action
        noise = torch.randn(action.shape, generator=generator, device=action.device)
        return (action + config.exploration_noise * noise).clamp(-1, 1)

    def _uniform(self, count: int, generator: torch.Generator, device: torch.device) -> Tensor:
        size = self._actor.action_size
        if self.discrete:
            drawn = torch.randint(size, (count,), generator=generator, device=device)
            return torch.nn.functional.one_hot(drawn, size).float()
        return torch.rand(count, size, generator=generator, device=device) * 2 - 1
