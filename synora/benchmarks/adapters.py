"""Adapters: what the returns benchmark knows of an agent. Nothing here loads torch until a checkpoint is read.

An adapter needs two methods, `load_checkpoint(path)` and `evaluate(num_episodes, render=False)`, which returns
`{"episode_returns": [...]}`. `Adapter` says what else one may have, `AgentAdapter` serves every agent that plays
through `synora.envs.rollout`. Other packages register theirs under the entry-point group `synora.adapters`.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from synora.benchmarks.settings import NUM_ENVS
from synora.core.config import Config
from synora.core.errors import SynoraError, UsageError
from synora.core.registry import Registry
from synora.envs.factory import make_env, resolve_env
from synora.envs.interface import Discrete, Env, Observation, episode_seed
from synora.envs.protocol import named_protocol
from synora.envs.rollout import Agent, Game, RandomAgent, evaluation, evaluation_envs, play_games

ADAPTERS = Registry(
    "agent",
    {
        "dreamerv1": "synora.benchmarks.adapters:DreamerV1Adapter",
        "dreamerv2": "synora.benchmarks.adapters:DreamerV2Adapter",
        "random": "synora.benchmarks.adapters:RandomAdapter",
    },
    group="synora.adapters",
)
REPORT_SECONDS = 1.0


class Adapter(ABC):
    """One agent in one environment, for one evaluation seed.

    Args:
        env_spec: `game`, `backend`, `protocol`, and `options` of the dummy environment.
        seed: decides the games and the draws of the policy.
        device: "auto", "cpu", "cuda" or "cuda:N".
        preset: the sizes that the agent must have; None: those of the checkpoint.
        num_envs: environments side by side.

    Attributes:
        name: what the agent is called in reports.
        needs_checkpoint: whether a benchmark without a checkpoint is an error. None: one may be given.
        own_environments: `game` need not be an environment of synora; the result then has no protocol.
        report: called with a short text while the games are played.
    """

    name: ClassVar[str] = ""
    needs_checkpoint: ClassVar[bool | None] = True
    own_environments: ClassVar[bool] = False

    def __init__(
        self,
        *,
        env_spec: Mapping[str, Any],
        seed: int = 0,
        device: str = "auto",
        preset: str | None = None,
        num_envs: int = NUM_ENVS,
    ) -> None:
        self.env_spec, self.seed, self.device, self.preset, self.num_envs = env_spec, seed, device, preset, num_envs
        self.report: Callable[[str], None] = lambda text: None

    @abstractmethod
    def load_checkpoint(self, path: str) -> None:
        """Load the agent.

        Raises:
            UsageError: a checkpoint of another agent or for another environment.
            FileError: not a whole checkpoint.
        """

    @abstractmethod
    def evaluate(self, num_episodes: int, render: bool = False) -> dict[str, Any]:
        """Play whole games and return what they brought.

        Args:
            num_episodes: how many.
            render: return pictures too.

        Returns:
            `episode_returns`, a number a game, None where it failed; optional, in the same order: `episode_lengths`
            (agent steps), `episode_frames` (emulator frames), `episode_seeds`, `episodes` (mappings; `error` says why
            a game failed); with `render` also `frames`, one (T, H, W, 3) uint8 array a game.
        """

    def preflight(self, checkpoint: str | None) -> None:
        """Find out whether `evaluate` can work, without playing; errors as `load_checkpoint`."""
        if checkpoint is not None:
            self.load_checkpoint(checkpoint)

    def preflight_training(self, config: Config) -> None:
        """Find out whether an agent can be trained with this configuration.

        Raises:
            UsageError: it does not fit the environment.
        """
        return

    def trained_protocol(self) -> str | None:
        """Return the rules that the checkpoint read last was trained under, by name; None: no others than usual."""
        return None

    def checkpoint_digest(self) -> str | None:
        """Return a digest of the content of the checkpoint read last; None: unknown, results are never used again."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return what the result says of the agent: `train_seed`, `checkpoint` and `device`, each optional."""
        return {}


class AgentAdapter(Adapter):
    """The adapter of an agent that plays through `synora.envs.rollout`; subclasses say where the agent comes from."""

    _agent: Agent | None = None

    def evaluate(self, num_episodes: int, render: bool = False) -> dict[str, Any]:
        """Play the games `episode_seed(seed, 0)`, `episode_seed(seed, 1)`, …; see `Adapter.evaluate`.

        Raises:
            UsageError: the number of games is not at least 1.
            SynoraError: no checkpoint was loaded, or the environment cannot be made.
        """
        if isinstance(num_episodes, bool) or not isinstance(num_episodes, int) or num_episodes < 1:
            raise UsageError(f"num_episodes {num_episodes!r} is not a whole number of at least 1.")
        agent = self.agent()
        seeds = [episode_seed(self.seed, index) for index in range(num_episodes)]
        make = partial(
            evaluation_envs, num_envs=min(self.num_envs, num_episodes), local=render, **self._env_arguments()
        )
        pictures: list[list[Observation]] = [[] for _ in seeds]
        progress = _Progress(num_episodes, self.report)
        games = play_games(
            make,
            agent,
            seeds,
            generator=self.generator(),
            on_game=progress.game,
            on_step=progress.step,
            on_frame=(lambda index, picture: pictures[index].append(picture)) if render else None,
        )
        found = evaluation(games)
        if render:
            found["frames"] = [np.stack(shown) if shown else np.zeros((0, 0, 0, 3), np.uint8) for shown in pictures]
        return found

    def agent(self) -> Agent:
        """Return the agent that plays."""
        if self._agent is None:
            raise SynoraError(f"the adapter of {self.name} has no agent yet; call load_checkpoint(path) first.")
        return self._agent

    def generator(self) -> Any:
        """Return what the agent draws from."""
        return None

    def env(self) -> Env:
        """Make one environment, to look at its shapes."""
        return make_env(**{"env_id" if key == "game" else key: value for key, value in self._env_arguments().items()})

    def _env_arguments(self) -> dict[str, Any]:
        return {key: value for key, value in self.env_spec.items() if value is not None}


class RandomAdapter(AgentAdapter):
    """Uniformly random actions: the floor that every score is compared with. Its draws belong to the game."""

    name = "random"
    needs_checkpoint = False

    def load_checkpoint(self, path: str) -> None:
        """Refuse: there is nothing to load.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"agent random takes no checkpoint (got {path!r}).")

    def preflight(self, checkpoint: str | None) -> None:
        """Refuse a checkpoint and a preset, which would have no effect, and an environment that cannot be made."""
        if checkpoint is not None:
            self.load_checkpoint(checkpoint)
        if self.preset is not None:
            raise UsageError(f"agent random has no presets (got {self.preset!r}).")
        self.env().close()

    def agent(self) -> Agent:
        """Return the agent, made for the environment's actions."""
        if self._agent is None:
            with self.env() as env:
                self._agent = RandomAgent(env.action_space, self.seed)
        return self._agent


class DreamerAdapter(AgentAdapter):
    """A Dreamer agent from a checkpoint of `synora train`."""

    # What decides the acting networks; the channels and the kind of actions are fitted to the environment.
    SIZES = ("deter_size", "stoch_size", "class_size", "hidden_size", "cnn_depth", "units", "actor_layers")

    _trained_protocol: str | None = None
    _digest: str | None = None

    def load_checkpoint(self, path: str) -> None:
        """Load the newest checkpoint of a run folder, a checkpoint folder or an exported file; see `Adapter`."""
        self._load(path, self.device)

    def preflight(self, checkpoint: str | None) -> None:
        """Read the whole checkpoint, on the CPU, and compare it with the environment and the preset."""
        if self.preset is not None:
            self._config_class().preset_values(self.preset)
        if checkpoint is not None:
            self._load(checkpoint, "cpu")
            self._agent = None

    def preflight_training(self, config: Config) -> None:
        """Fit the configuration to the environment, as the trainer will; see `Adapter`."""
        from synora.algorithms.dreamer.trainer import check_schedule, fit_to_env

        check_schedule(config)  # type: ignore[arg-type]
        with self.env() as env:
            fit_to_env(config, env)  # type: ignore[arg-type]

    def trained_protocol(self) -> str | None:
        """Return the configured protocol, where it was one of this environment's backend."""
        return self._trained_protocol

    def checkpoint_digest(self) -> str | None:
        """Return the sha256 that the result has too."""
        return self._digest

    def generator(self) -> Any:
        """Return the torch generator of this evaluation seed."""
        return self._loaded().generator(self.seed)

    def facts(self) -> dict[str, Any]:
        """Return the training seed, the checkpoint's facts and the device's."""
        from synora.runtime.device import device_facts

        agent = self._loaded()
        manifest, config = agent.manifest, agent.config
        return {
            "train_seed": agent.train_seed,
            "checkpoint": {
                "step": manifest.step,
                "format_version": manifest.format_version,
                "synora": manifest.synora,
                "sha256": self._digest,
                "trained_on": {"game": config.game, "backend": config.env_backend, "protocol": config.protocol},
            },
            "device": device_facts(agent.device),
        }

    def _load(self, path: str, device: str) -> None:
        from synora.algorithms.dreamer.agent import DreamerAgent

        agent = DreamerAgent.from_checkpoint(path, device=device)
        if agent.spec.agent != self.name:
            raise UsageError(
                f"{agent.source} is a checkpoint of {agent.spec.agent}, not of {self.name}: "
                f"choose --agent {agent.spec.agent}, or another checkpoint."
            )
        config = agent.config
        _, rules = resolve_env(self.env_spec["game"], backend=self.env_spec.get("backend") or "auto")
        if config.protocol is not None and named_protocol(config.protocol).backend == rules.backend:
            self._trained_protocol = config.protocol
            if self.env_spec.get("protocol") is None:
                self.env_spec = {**self.env_spec, "protocol": config.protocol}
        self._require_environment(agent.spec, agent.source)
        if self.preset is not None:
            self._require_preset(self.preset, agent.config, agent.source)
        self._agent = agent
        self._digest = None if agent.source is None else _digest(agent.source)

    def _require_environment(self, spec: Any, source: Path | None) -> None:
        """Raise UsageError unless the networks take the environment's frames and give its actions."""
        with self.env() as env:
            height, width, channels = env.observation_shape
            space, name = env.action_space, env.env_id
        kind, count = ("discrete", space.n) if isinstance(space, Discrete) else ("continuous", space.shape[0])
        for verb, has, wanted in (
            ("takes frames of", _shape(spec.observation_shape), _shape([channels, height, width])),
            ("acts with", _actions(spec.action_kind, spec.action_count), _actions(kind, count)),
        ):
            if has != wanted:
                raise UsageError(f"{source} {verb} {has}, and {name} has {wanted}: it cannot play there.")

    def _require_preset(self, preset: str, config: Config, source: Path | None) -> None:
        wanted = self._config_class().compose(preset=preset)
        for size in self.SIZES:
            if size in type(config).model_fields and getattr(config, size) != getattr(wanted, size):
                raise UsageError(
                    f"{source} was not trained with preset {preset!r}: its {size} is {getattr(config, size)}, not "
                    f"{getattr(wanted, size)}. Leave --preset out; the checkpoint knows its sizes."
                )

    def _config_class(self) -> type[Config]:
        from synora.algorithms.dreamer.config import VERSIONS

        return VERSIONS[self.name]

    def _loaded(self) -> Any:
        return self.agent()


class DreamerV1Adapter(DreamerAdapter):
    """DreamerV1."""

    name = "dreamerv1"


class DreamerV2Adapter(DreamerAdapter):
    """DreamerV2."""

    name = "dreamerv2"


class _Progress:
    """Says how far the games are and how long the rest may take."""

    def __init__(self, total: int, report: Callable[[str], None]) -> None:
        self._total, self._report = total, report
        self._done = 0
        self._started = self._said = time.monotonic()
        self._report(f"episode 1 of {total}")

    def game(self, game: Game) -> None:
        self._done += 1

    def step(self, steps: int) -> None:
        now = time.monotonic()
        if now - self._said < REPORT_SECONDS:
            return
        self._said, elapsed = now, now - self._started
        left = f", about {elapsed / self._done * (self._total - self._done):.0f} s left" if self._done else ""
        shown = min(self._done + 1, self._total)
        self._report(f"episode {shown} of {self._total}, {steps / elapsed:,.0f} steps/s{left}")


def _shape(values: list[int]) -> str:
    return " x ".join(map(str, values))


def _actions(kind: str, count: int) -> str:
    if kind == "discrete":
        return f"{count} discrete action{'s' * (count > 1)}"
    return f"continuous actions of {count} dimension{'s' * (count > 1)}"


def _digest(source: Path) -> str:
    """Return the sha256 of an exported file, or of a folder's manifest, which holds those of all its files."""
    with open(source / "manifest.json" if source.is_dir() else source, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
