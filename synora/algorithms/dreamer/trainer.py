"""Training of DreamerV1 and DreamerV2 on an environment, as phases of the shared loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from synora.algorithms.dreamer.agent import Policy, PolicyAgent, PolicyState, with_actions
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.learner import Learner
from synora.algorithms.dreamer.rssm import State
from synora.algorithms.dreamer.world_model import ReplayBatch
from synora.core.errors import ConfigError, SynoraError
from synora.envs.collector import Collector, auto_workers
from synora.envs.factory import make_env, make_vector_env, resolve_env
from synora.envs.interface import Discrete, Env, episode_seed
from synora.envs.rollout import play_games
from synora.envs.vector import VectorEnv
from synora.runtime.device import resolve_device
from synora.runtime.loop import Outcome, RunContext, RunPlan, train
from synora.runtime.manifest import AgentSpec
from synora.runtime.metrics_log import Sink, TensorBoardSink, WandbSink
from synora.runtime.replay import Replay, Sequences
from synora.runtime.schedule import Interleaved, LoopSettings

EVAL_ENVS = 16
# What decides the networks, the environment or the random streams: a run keeps these.
FROZEN = (
    *("image_size", "image_channels", "deter_size", "stoch_size", "class_size", "hidden_size", "cnn_depth", "units"),
    *("reward_layers", "discount_layers", "critic_layers", "actor_layers", "predict_discount", "action_distribution"),
    *("layer_norm_eps", "game", "env_backend", "protocol", "num_envs", "seed", "seq_len"),
)


def train_dreamer(config: DreamerConfig, folder: Path) -> Outcome:
    """Start a run in `folder`, continue the one that is there, or do nothing when it is finished.

    Args:
        config: a `DreamerV1Config` or `DreamerV2Config`; its action distribution and channels are fitted to the game.
        folder: of the run.

    Raises:
        UsageError: a value does not fit the game, or a frozen one was changed.
    """
    check_schedule(config)
    with make_env(config.game, backend=config.env_backend, protocol=config.protocol, train=True) as env:
        config = fit_to_env(config, env)
    settings = LoopSettings(
        log_every=config.log_every,
        eval_every=config.eval_every,
        save_every=config.save_every,
        save_minutes=config.save_minutes,
        keep_last=config.keep_last,
        collect_slice=max(config.num_envs, 256 // config.num_envs * config.num_envs),
    )
    schedule = Interleaved(
        total_steps=config.total_steps,
        prefill=config.prefill_steps,
        pretrain=config.pretrain_updates,
        train_every=config.train_every,
        updates=config.updates_per_train,
    )
    frozen = [name for name in FROZEN if name in type(config).model_fields]  # V1 has no classes and no LayerNorm
    plan = RunPlan(folder, config.seed, config, frozen, schedule, settings, sinks=dashboards(config, folder))
    return train(plan, partial(DreamerTrainer, config))


def dashboards(config: DreamerConfig, folder: Path) -> dict[str, Callable[[int], Sink]]:
    """Return what starts each dashboard the configuration asks for; see `RunPlan.sinks`."""
    makers: dict[str, Callable[[int], Sink]] = {}
    if config.tensorboard:
        makers["tensorboard"] = lambda step: TensorBoardSink(folder / "tensorboard", first_step=step)
    if project := config.wandb:
        makers["wandb"] = lambda _: WandbSink(folder, project=project, config=config.model_dump(mode="json"))
    return makers


def check_schedule(config: DreamerConfig) -> None:
    """Check what no field can check alone, before anything is made.

    Raises:
        ConfigError: steps that do not divide among the environments, no steps after the prefill, or a replay that
            cannot hold, or will not have, one training sequence when it is first drawn from.
    """
    envs = config.num_envs
    for name in ("prefill_steps", "train_every", "total_steps"):
        if getattr(config, name) % envs:
            raise ConfigError(f"{name}={getattr(config, name)} is not a multiple of num_envs={envs}.")
    if config.total_steps < config.prefill_steps:
        raise ConfigError(
            f"total_steps={config.total_steps} is less than prefill_steps={config.prefill_steps}, which it includes: "
            "nothing would be learned."
        )
    first = config.prefill_steps + (0 if config.pretrain_updates else config.train_every)
    if min(first, config.total_steps) // envs + 1 < config.seq_len:  # each environment's first frame is a reset's
        raise ConfigError(
            f"prefill_steps={config.prefill_steps} gives each of {envs} environment(s) less than "
            f"seq_len={config.seq_len} frames before the first update. Raise prefill_steps to "
            f"{(config.seq_len - 1) * envs} or lower seq_len."
        )
    if config.replay_capacity // envs < config.seq_len:
        raise ConfigError(
            f"replay_capacity={config.replay_capacity} keeps less than seq_len={config.seq_len} frames of each of "
            f"{envs} environment(s). The least is {config.seq_len * envs}."
        )


def fit_to_env(config: DreamerConfig, env: Env) -> DreamerConfig:
    """Return a copy whose action distribution and image channels are those of the environment.

    Raises:
        ConfigError: the frames have another size.
    """
    height, width, channels = env.observation_shape
    if (height, width) != (config.image_size, config.image_size):
        raise ConfigError(f"{env.env_id} gives frames of {height} x {width}; Dreamer takes {config.image_size} pixels.")
    fitted = with_actions(config, "discrete" if isinstance(env.action_space, Discrete) else "continuous")
    fitted.image_channels = channels
    return fitted


class DreamerTrainer:
    """Collects with the current policy, learns from replay, evaluates whole games; see `synora.runtime.loop.Algorithm`.

    Args:
        config: fitted to the environment.
        context: folders and random streams of the run.
    """

    def __init__(self, config: DreamerConfig, context: RunContext) -> None:
        self._config, self._streams, self._say = config, context.streams, context.say
        self._device = resolve_device(config.device)
        envs = self._make_envs(config.num_envs, context.streams.seed_for("env"), train=True)
        discrete = isinstance(envs.action_space, Discrete)
        actions = envs.action_space.n if isinstance(envs.action_space, Discrete) else envs.action_space.shape[0]
        height, width, channels = envs.observation_shape
        self.spec = AgentSpec(
            agent="dreamerv1" if isinstance(config, DreamerV1Config) else "dreamerv2",
            observation_shape=[channels, height, width],
            action_count=actions,
            action_kind="discrete" if discrete else "continuous",
        )
        try:
            with context.streams.as_global("init", self._device):
                self.learner = Learner(config, actions, self._device)
            self._policy = Policy(config, self.learner.world_model, self.learner.behaviour)
            self._memory = self._policy.initial(config.num_envs)
            self.replay = Replay(
                context.replay_folder,
                capacity=min(config.replay_capacity, 2 * config.total_steps + config.num_envs),
                observation_shape=self.spec.observation_shape,
                action_shape=[actions],
                streams=config.num_envs,
                say=context.say,
            )
        except BaseException:
            envs.close()
            raise
        self.collector = Collector(envs, self.replay, [actions])

    def collect(self, steps: int) -> dict[str, float]:
        """Take `steps` interactions into replay; metrics are means over the games that ended."""
        return self.collector.collect(steps, self._act)

    def update(self, phase: str) -> dict[str, float]:
        """Do one update on a batch drawn from replay."""
        config = self._config
        drawn = self.replay.sample(
            config.batch_size,
            config.seq_len,
            self._streams.rng("replay"),
            prioritize_ends=isinstance(config, DreamerV2Config) and config.prioritize_ends,
        )
        return self.learner.update(self._batch(drawn), self._streams.generator("learner", self._device))

    def evaluate(self) -> dict[str, float]:
        """Play whole games under the evaluation protocol, the same ones every time.

        Returns:
            `score` and `score_std` (mean and spread of the returns) and `games` that were played to their end. When
            some failed, their number is `failed_games` and there is no score: a mean over the others would stand for
            other games.

        Raises:
            SynoraError: every game failed.
        """
        config, seed = self._config, self._streams.seed_for("eval")
        games = play_games(
            lambda: self._make_envs(min(config.eval_episodes, EVAL_ENVS), seed, train=False),
            PolicyAgent(self._policy),
            [episode_seed(seed, k) for k in range(config.eval_episodes)],
            generator=torch.Generator(self._device).manual_seed(self._streams.seed_for("eval-policy")),
        )
        scores = np.array([game.score for game in games if game.score is not None])
        failed = [game for game in games if game.status == "failed"]
        if failed:
            line = f"evaluation game {failed[0].index} (seed {failed[0].seed}) failed: {failed[0].error}"
            if not len(scores):
                raise SynoraError(f"every evaluation game failed; {line}")
            self._say(f"warning: {len(failed)} of {len(games)} evaluation games failed, so there is no score; {line}")
            return {"games": float(len(scores)), "failed_games": float(len(failed))}
        return {"score": float(scores.mean()), "score_std": float(scores.std()), "games": float(len(scores))}

    def state_dict(self) -> dict[str, Any]:
        """Return everything later steps depend on."""
        memory = {"stoch": self._memory.latent.stoch, "deter": self._memory.latent.deter, "action": self._memory.action}
        return {
            "agent": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "collector": self.collector.state_dict(),
            "memory": memory,
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go back to a checkpoint, the environments included."""
        self.learner.load_state_dict(state["agent"])
        self.replay.load_state_dict(state["replay"])
        self.collector.load_state_dict(state["collector"])
        memory = {name: value.to(self._device) for name, value in state["memory"].items()}
        self._memory = PolicyState(State(memory["stoch"], memory["deter"]), memory["action"])

    def committed(self) -> None:
        """Let replay delete what no checkpoint needs any more."""
        self.replay.committed()

    def close(self) -> None:
        """Close environments and files."""
        self.collector.close()
        self.replay.close()

    def _make_envs(self, count: int, seed: int, *, train: bool) -> VectorEnv:
        config = self._config
        _, rules = resolve_env(config.game, backend=config.env_backend, protocol=config.protocol, train=train)
        workers = auto_workers(rules.backend, count) if config.env_workers is None else config.env_workers
        return make_vector_env(
            config.game,
            count,
            backend=config.env_backend,
            protocol=config.protocol,
            seed=seed,
            train=train,
            workers=workers,
        )

    def _act(self, frames: NDArray[np.uint8], fresh: NDArray[np.bool_], step: int) -> NDArray[np.float32]:
        """Choose the training actions (N, A): random ones in the prefill, then the exploring policy's."""
        generator = self._streams.generator("policy", self._device)
        if step < self._config.prefill_steps:
            return self._policy.random(len(frames), generator, self._device)
        if isinstance(self._config, DreamerV1Config):
            self._policy.epsilon = self._config.epsilon_at(self.learner.updates)
        actions, self._memory = self._policy.act(frames, fresh, self._memory, mode="train", generator=generator)
        return actions

    def _batch(self, drawn: Sequences) -> ReplayBatch:
        tensors = drawn.tensors(self._device)
        is_first = tensors["is_first"].clone()
        # Every sequence starts from the zero state. So it does in the authors' code: dreamerv2 hands the last state of
        # a batch on to the next one, whose sequences its replay marks as beginning an episode, which drops that state.
        is_first[0] = 1
        return ReplayBatch(tensors["image"], tensors["action"], tensors["reward"], tensors["is_terminal"], is_first)
