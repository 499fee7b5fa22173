"""Acting with a Dreamer agent: the recurrent state is updated with each frame, the policy reads it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from synora.algorithms.dreamer.actor import OneHotActor
from synora.algorithms.dreamer.config import VERSIONS, DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.imagination import Behaviour
from synora.algorithms.dreamer.networks import scale_images
from synora.algorithms.dreamer.rssm import State
from synora.algorithms.dreamer.world_model import WorldModel
from synora.core.errors import FileError, SynoraError, UsageError, unknown_value
from synora.envs.interface import episode_seed
from synora.envs.rollout import evaluation, evaluation_envs, play_games
from synora.runtime.checkpoint import load_checkpoint, save_checkpoint
from synora.runtime.device import resolve_device
from synora.runtime.manifest import AgentSpec, Manifest
from synora.runtime.seeding import Streams
from synora.runtime.state import gather_state, restore_state

if TYPE_CHECKING:
    from synora.runtime.loop import Outcome

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
        # A trainer with a schedule sets it before it acts.
        self.epsilon = config.epsilon if isinstance(config, DreamerV1Config) else 0.0

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
            (N, A) float32 actions, one-hot for discrete ones, and the new state. With "eval" a row is NaN where the
            networks' values are not finite.
        """
        device = state.latent.deter.device
        image = scale_images(torch.from_numpy(frames).to(device))
        first = torch.from_numpy(is_first.astype(np.float32)).to(device)
        observed = self._world_model.rssm.observe(
            self._world_model.encoder(image)[None], state.action[None], first[None], state.latent, generator=generator
        )
        latent = State(observed.state.stoch[0], observed.state.deter[0])
        raw = self._actor(latent.features)
        policy = self._actor.policy(raw)
        if mode == "eval":
            # The most likely of NaN logits is an action like any other: it must not become a return.
            undefined = ~torch.isfinite(raw).all(-1, keepdim=True)
            action = self._actor.greedy(policy, generator).masked_fill(undefined, torch.nan)
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
            if self.epsilon == 0:
                return action
            chance = torch.rand(len(action), 1, generator=generator, device=action.device)
            return torch.where(chance < self.epsilon, self._uniform(len(action), generator, action.device), action)
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


class PolicyAgent:
    """A `Policy` as `synora.envs.rollout.play_games` wants it: frames as environments give them, actions as they take.

    Args:
        policy: chooses the actions.
        mode: "eval", or "train" with its exploration.
    """

    def __init__(self, policy: Policy, mode: Mode = "eval") -> None:
        self.policy, self.mode = policy, mode

    def initial(self, count: int) -> PolicyState:
        """The state before the first frame of `count` environments."""
        return self.policy.initial(count)

    def act(
        self,
        observations: NDArray[np.uint8],
        is_first: NDArray[np.bool_],
        state: PolicyState,
        *,
        generator: torch.Generator,
    ) -> tuple[NDArray[Any], PolicyState]:
        """Choose actions.

        Args:
            observations: (N, H, W, C) uint8.
            is_first: (N,) bool.
            state: what `initial` or the last `act` returned.
            generator: on the networks' device.

        Returns:
            (N,) int64 for discrete actions, (N, A) float32 for continuous ones, and the new state.

        Raises:
            SynoraError: the networks' values are not finite, so that no action means anything.
        """
        frames = np.ascontiguousarray(observations.transpose(0, 3, 1, 2))
        actions, state = self.policy.act(frames, is_first, state, mode=self.mode, generator=generator)
        if not np.isfinite(actions).all():
            raise SynoraError("the agent's networks give values that are not finite (NaN or infinity).")
        return (actions.argmax(axis=1) if self.policy.discrete else actions), state


class DreamerAgent(PolicyAgent):
    """A DreamerV1 or DreamerV2 agent that acts: a fresh one, or one from a checkpoint.

    Args:
        config: a `DreamerV1Config` or `DreamerV2Config`; the action distribution is fitted to `spec`.
        spec: what it acts on.
        device: where the networks live.
        mode: "eval" takes the best action, "train" samples and explores.

    Attributes:
        config: of the run it was trained in.
        spec: the agent's name, and what it acts on.
        manifest: of the checkpoint; None for a fresh agent.
        source: the checkpoint's folder or file; None for a fresh agent.
        world_model, behaviour: the networks.

    Raises:
        UsageError: the configuration is not one of the agent that `spec` names, or no such device.
    """

    def __init__(
        self, config: DreamerConfig, spec: AgentSpec, *, device: str | torch.device = "auto", mode: Mode = "eval"
    ) -> None:
        if not isinstance(config, _config_of(spec.agent)):
            raise UsageError(f"{type(config).__name__} is not the configuration of {spec.agent}.")
        if spec.observation_shape != [config.image_channels, config.image_size, config.image_size]:
            raise UsageError(
                f"the observation shape {spec.observation_shape} is not that of the configuration: "
                f"{config.image_channels} channels of {config.image_size} x {config.image_size} pixels."
            )
        self.config = with_actions(config, spec.action_kind)
        self.spec = spec
        self.manifest: Manifest | None = None
        self.source: Path | None = None
        self.device = resolve_device(device) if isinstance(device, str) else device
        with Streams(config.seed).as_global("init", self.device):
            self.world_model = WorldModel(self.config, spec.action_count).to(self.device).eval()
            self.behaviour = Behaviour(self.config, spec.action_count).to(self.device).eval()
        super().__init__(Policy(self.config, self.world_model, self.behaviour), mode)

    @classmethod
    def from_checkpoint(
        cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto", mode: Mode = "eval"
    ) -> Self:
        """Load an agent.

        Args:
            path: a checkpoint folder, a run folder (its newest checkpoint), or an exported `.safetensors` file.
            device: where the networks shall live.
            mode: as for the constructor.

        Raises:
            UsageError: it is the checkpoint of another agent, or no such device.
            FileError: missing, damaged, from a newer synora, or not a checkpoint. Pickles are never opened.
        """
        saved = load_checkpoint(path, parts=["agent"])
        spec = saved.manifest.spec
        if spec.agent not in VERSIONS:
            raise UsageError(
                f"{saved.path} is a checkpoint of agent {spec.agent!r}, and {' or '.join(VERSIONS)} is needed here."
            )
        where = resolve_device(device) if isinstance(device, str) else device
        try:
            config = VERSIONS[spec.agent].compose(overrides=dict(saved.manifest.config))
            agent = cls(config, spec, device=where, mode=mode)
        except UsageError as error:
            raise FileError(f"{saved.path} has a configuration that this synora cannot read: {error}") from error
        parts = agent._parts()
        try:
            restore_state(parts, {name: saved.state["agent"][name] for name in parts})
        except (KeyError, TypeError, FileError) as error:
            raise FileError(f"{saved.path} does not hold the networks its manifest describes: {error}") from error
        agent.manifest, agent.source = saved.manifest, saved.path
        return agent

    def save(self, folder: str | os.PathLike[str], *, step: int = 0) -> Path:
        """Write the networks as a checkpoint that `from_checkpoint` reads and training cannot continue from.

        Raises:
            FileError: the folder cannot be written.
        """
        return save_checkpoint(
            folder,
            spec=self.spec,
            config=self.config.model_dump(mode="json"),
            step=step,
            state={"agent": gather_state(self._parts())},
        )

    def _parts(self) -> dict[str, Any]:
        return {"world_model": self.world_model, "behaviour": self.behaviour}

    @classmethod
    def train(cls, config: DreamerConfig, folder: str | os.PathLike[str]) -> Outcome:
        """Start, continue or leave alone the training run in `folder`; see `train_dreamer`."""
        from synora.algorithms.dreamer.trainer import train_dreamer

        return train_dreamer(config, Path(folder))

    @property
    def train_seed(self) -> int:
        """Seed of the run it was trained in."""
        return self.config.seed

    def evaluate(
        self,
        num_episodes: int,
        *,
        game: str | None = None,
        backend: str | None = None,
        protocol: str | None = None,
        seed: int = 0,
        num_envs: int = 4,
    ) -> dict[str, Any]:
        """Play whole games under the evaluation protocol.

        Args:
            num_episodes: how many, at least 1.
            game: environment; None for the one it was trained in, likewise `backend` and `protocol`.
            backend: as in `make_env`.
            protocol: as in `make_env`.
            seed: decides the games and the draws of the policy.
            num_envs: environments side by side. The draws depend on it, the games do not.

        Returns:
            `episode_returns` (None where a game failed), `episode_lengths` (agent steps), `episode_frames`,
            `episode_seeds`, and `episodes` with all of it and the errors.

        Raises:
            UsageError: an argument is not allowed, or the environment does not exist.
        """
        if isinstance(num_episodes, bool) or not isinstance(num_episodes, int) or num_episodes < 1:
            raise UsageError(f"num_episodes {num_episodes!r} is not a whole number of at least 1.")
        config = self.config
        make = partial(
            evaluation_envs,
            config.game if game is None else game,
            min(num_envs, num_episodes),
            backend=config.env_backend if backend is None else backend,
            protocol=config.protocol if protocol is None else protocol,
        )
        seeds = [episode_seed(seed, index) for index in range(num_episodes)]
        return evaluation(play_games(make, self, seeds, generator=self.generator(seed)))

    def generator(self, seed: int) -> torch.Generator:
        """Return the source of the policy's draws in an evaluation with this seed."""
        return Streams(seed).generator("eval-policy", self.device)


def _config_of(agent: str) -> type[DreamerConfig]:
    if agent not in VERSIONS:
        raise unknown_value("agent", agent, VERSIONS)
    return VERSIONS[agent]


def with_actions(config: DreamerConfig, kind: Literal["discrete", "continuous"]) -> DreamerConfig:
    """Return a copy of the configuration with the action distribution that the kind of actions needs."""
    fitted = config.model_copy(deep=True)
    assert isinstance(fitted, DreamerV1Config | DreamerV2Config)
    if kind == "discrete":
        fitted.action_distribution = "onehot"
    elif isinstance(fitted, DreamerV1Config):
        fitted.action_distribution = "tanh_normal"
    else:
        fitted.action_distribution = "truncated_normal"
    return fitted
