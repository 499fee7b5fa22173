"""Imagined rollouts and the actor and critic losses on them (Hafner et al. 2020, section 3; 2021, section 2.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from synora.algorithms.dreamer.actor import Actor, Policy, build_actor
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.networks import ScalarHead, build_critic
from synora.algorithms.dreamer.rssm import State
from synora.algorithms.dreamer.world_model import WorldModel
from synora.nn.blocks import frozen, glorot_uniform_
from synora.nn.distributions import OneHotCategorical, TruncatedNormal, unit_normal_log_prob
from synora.nn.returns import discount_weights, lambda_returns


class Rollout(NamedTuple):
    """H imagined steps; row 0 of the states is the start state.

    Attributes:
        states: (H+1, N, ...).
        features: (H+1, N, F).
        actions: (H, N, A); action h is taken in state h.
        policy: (H, N, ...) raw policy parameters at states 0..H-1, with gradient to the actor alone.
    """

    states: State
    features: Tensor
    actions: Tensor
    policy: Tensor


class BehaviourOutput(NamedTuple):
    """Both losses and what they were made of; the tensors by name are (time, N) float32.

    Attributes:
        loss: `actor_loss + critic_loss`: each reaches its own network only, so one backward pass serves both.
        actor_loss: scalar.
        critic_loss: scalar.
        tensors: "reward", "value", "discount", "returns", "weights"; V2 also "entropy", "advantage", "log_prob".
    """

    loss: Tensor
    actor_loss: Tensor
    critic_loss: Tensor
    tensors: dict[str, Tensor]


def imagine(
    world_model: WorldModel,
    actor: Actor,
    start: State,
    horizon: int,
    *,
    through_dynamics: bool,
    action_noise: Tensor | None = None,
    state_noise: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Rollout:
    """Roll the policy out in the prior from start states.

    The policy reads detached features at every step, so gradients reach the actor at the step an action is drawn and
    flow on through the dynamics, never through the policy's input. The world model gets none.

    Args:
        world_model: only its RSSM is used.
        actor: the policy.
        start: (N, ...) start states; no gradient flows into them.
        horizon: H >= 1.
        through_dynamics: record the gradient of states and actions with respect to the actor. False: only the policy
            parameters carry one.
        action_noise: (H, N, A) draws of the actions: normal, Gumbel or uniform, as the policy needs.
        state_noise: (H, N, ...) draws of the states, as `RSSM.imagine_step` needs.
        generator: where the noise comes from when it is not given.
    """
    rssm = world_model.rssm
    shape, device = (horizon, start.deter.shape[0]), start.deter.device
    if action_noise is None:
        action_noise = actor.draw_noise(shape, device, generator)
    if state_noise is None:
        state_noise = rssm.draw_noise(shape, device, generator)
    state = start.detach()
    states, features, actions, policies = [state], [state.features], [], []
    with frozen(rssm):
        advance = rssm.unroll(*shape)
        for step in range(horizon):
            raw = actor(features[-1].detach())
            with torch.set_grad_enabled(through_dynamics and torch.is_grad_enabled()):
                action = actor.sample(actor.policy(raw), action_noise[step])
                if not through_dynamics:
                    action = action.detach()
                state = advance(step, state, action, state_noise[step])
                states.append(state)
                features.append(state.features)
            actions.append(action)
            policies.append(raw)
    stacked = State(torch.stack([s.stoch for s in states]), torch.stack([s.deter for s in states]))
    return Rollout(stacked, torch.stack(features), torch.stack(actions), torch.stack(policies))


class Behaviour(nn.Module):
    """Actor, critic and (V2) target critic, learned in imagination.

    Args:
        config: a `DreamerV1Config` or `DreamerV2Config`.
        action_size: A, number of actions or of action dimensions.
    """

    def __init__(self, config: DreamerConfig, action_size: int) -> None:
        super().__init__()
        self.config = config
        self.actor = build_actor(config, action_size)
        self.critic = build_critic(config)
        self.apply(glorot_uniform_)
        self.target_critic: ScalarHead | None = None
        if isinstance(config, DreamerV2Config):
            self.target_critic = build_critic(config)
            self.target_critic.requires_grad_(False)
            self.update_target()

    @torch.no_grad()
    def update_target(self) -> None:
        """Copy the critic into the target critic (V2: before the first update and then every 100)."""
        if self.target_critic is not None:
            self.target_critic.load_state_dict(self.critic.state_dict())

    def forward(
        self,
        world_model: WorldModel,
        start: State,
        is_terminal: Tensor | None = None,
        *,
        action_noise: Tensor | None = None,
        state_noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> BehaviourOutput:
        """Imagine `config.horizon` steps from the start states and return both losses.

        Args:
            world_model: used with its parameters frozen.
            start: (N, ...) posterior states; with a continuation head V1 expects the last step of every sequence to be
                left out (`behaviour_starts` does that).
            is_terminal: (N,) flags of the start states; V2 needs them, V1 ignores them.
            action_noise: see `imagine`.
            state_noise: see `imagine`.
            generator: see `imagine`.

        Raises:
            ValueError: `is_terminal` is missing for V2.
        """
        config = self.config
        through = not (isinstance(config, DreamerV2Config) and config.actor_gradient == "reinforce")
        rollout = imagine(
            world_model,
            self.actor,
            start,
            config.horizon,
            through_dynamics=through,
            action_noise=action_noise,
            state_noise=state_noise,
            generator=generator,
        )
        if isinstance(config, DreamerV1Config):
            return self.losses_v1(world_model, rollout.features[1:])
        if is_terminal is None:
            raise ValueError("DreamerV2 needs the terminal flags of the start states.")
        # The last imagined action is not part of the actor loss: its return would be the bootstrap alone.
        policy = self.actor.policy(rollout.policy[:-1])
        return self.losses_v2(world_model, rollout.features, rollout.actions[:-1], policy, is_terminal)

    def losses_v1(self, world_model: WorldModel, features: Tensor) -> BehaviourOutput:
        """V1 (Hafner et al. 2020, eq. 7 and 8): analytic gradients through the model, no entropy bonus, no baseline.

        Args:
            world_model: reward and continuation heads.
            features: (H, N, F) of the imagined states, the start state excluded; H >= 2.
        """
        with frozen(world_model, self.critic):
            reward = world_model.reward(features)
            discount = world_model.predict_discount(features)
            value = self.critic(features)
            returns = lambda_returns(reward, value, discount, self.config.lambda_)
            weights = discount_weights(discount)[:-1]
            actor_loss = -(weights * returns).mean()
        critic_loss = self._critic_loss(features, returns, weights)
        tensors = {"reward": reward, "value": value, "discount": discount, "returns": returns, "weights": weights}
        return BehaviourOutput(actor_loss + critic_loss, actor_loss, critic_loss, _detached(tensors))

    def losses_v2(
        self, world_model: WorldModel, features: Tensor, actions: Tensor, policy: Policy, is_terminal: Tensor
    ) -> BehaviourOutput:
        """V2 (Hafner et al. 2021, eq. 5 and 6): the target critic is both bootstrap and baseline.

        Args:
            world_model: reward and continuation heads.
            features: (H+1, N, F), row 0 the start states; H >= 2.
            actions: (H-1, N, A) taken in states 0..H-2.
            policy: distribution of those actions, from detached features.
            is_terminal: (N,) flags of the start states.
        """
        config = self.config
        assert isinstance(config, DreamerV2Config) and self.target_critic is not None
        assert isinstance(policy, OneHotCategorical | TruncatedNormal)
        with frozen(world_model):
            reward = world_model.reward(features)
            # Row 0 is a replayed state: its flag is known and replaces the prediction.
            first = world_model.discount_target(is_terminal).unsqueeze(0)
            discount = torch.cat([first, world_model.predict_discount(features[1:])])
            value = self.target_critic(features)
            returns = lambda_returns(reward, value, discount, config.lambda_)
            weights = discount_weights(discount)
        tensors = {"reward": reward, "value": value, "discount": discount, "returns": returns, "weights": weights}
        tensors["advantage"] = (returns[1:] - value[:-2]).detach()
        tensors["entropy"] = policy.entropy()
        objective = returns[1:]
        if config.actor_gradient != "dynamics":
            # The authors cut the action's own gradient in "reinforce" only.
            taken = actions.detach() if config.actor_gradient == "reinforce" else actions
            tensors["log_prob"] = policy.log_prob(taken)
            objective = tensors["log_prob"] * tensors["advantage"]
        if config.actor_gradient == "both":
            objective = config.actor_grad_mix * returns[1:] + (1 - config.actor_grad_mix) * objective
        actor_loss = -(weights[:-2] * (objective + config.actor_entropy * tensors["entropy"])).mean()
        critic_loss = self._critic_loss(features, returns, weights[:-1])
        return BehaviourOutput(actor_loss + critic_loss, actor_loss, critic_loss, _detached(tensors))

    def _critic_loss(self, features: Tensor, returns: Tensor, weights: Tensor) -> Tensor:
        """Weighted negative log density of the returns; trains the critic alone."""
        log_prob = unit_normal_log_prob(self.critic(features[:-1].detach()), returns.detach())
        return -(weights * log_prob).mean()


def behaviour_starts(
    config: DreamerConfig, states: State, is_terminal: Tensor | None = None
) -> tuple[State, Tensor | None]:
    """Flatten posterior states (T, B, ...) and their terminal flags (T, B) into start states (N, ...), detached.

    V1 with a continuation head leaves out the last step of each sequence; V2 keeps all and relies on the weights.

    Raises:
        ValueError: nothing would be left (V1 with a continuation head, T = 1).
    """
    steps = states.deter.shape[0]
    if isinstance(config, DreamerV1Config) and config.predict_discount:
        if steps < 2:
            raise ValueError("DreamerV1 with a continuation head needs sequences of at least 2 steps to imagine from.")
        steps -= 1
    start = State(states.stoch[:steps].flatten(0, 1).detach(), states.deter[:steps].flatten(0, 1).detach())
    return start, None if is_terminal is None else is_terminal[:steps].flatten()


def _detached(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in tensors.items()}
