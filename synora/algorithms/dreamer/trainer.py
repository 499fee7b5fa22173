"""Training of DreamerV1 and DreamerV2 on an environment, as phases of the shared loop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from synora.algorithms.dreamer.agent import Policy, PolicyState
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.lanes import Lane
from synora.algorithms.dreamer.learner import Learner
from synora.algorithms.dreamer.rssm import State
from synora.algorithms.dreamer.world_model import ReplayBatch
from synora.core.errors import ConfigError
from synora.envs.factory import make_env
from synora.envs.interface import Discrete, Env
from synora.runtime.device import resolve_device
from synora.runtime.loop import Outcome, RunContext, RunPlan, train
from synora.runtime.manifest import AgentSpec
from synora.runtime.replay import Replay, Sequences
from synora.runtime.schedule import Interleaved, LoopSettings

EVAL_LANES = 16
# What decides the networks, the environment or the random streams: a run keeps these.
FROZEN = (
    *("image_size", "image_channels", "deter_size", "stoch_size", "class_size", "hidden_size", "cnn_depth", "units"),
    *("reward_layers", "discount_layers", "critic_layers", "actor_layers", "predict_discount", "action_distribution"),
    *("layer_norm_eps", "game", "env_backend", "protocol", "action_repeat", "num_envs", "seed", "seq_len"),
)


def train_dreamer(config: DreamerConfig, folder: Path) -> Outcome:
    """Start a run in `folder`, continue the one that is there, or do nothing when it is finished.

    Args:
        config: a `DreamerV1Config` or `DreamerV2Config`; its action distribution and channels are fitted to the game.
        folder: of the run.

    Raises:
        UsageError: a value does not fit the game, or a frozen one was changed.
    """
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
    plan = RunPlan(folder, config.seed, config, frozen, schedule, settings)
    return train(plan, partial(DreamerTrainer, config))


def fit_to_env(config: DreamerConfig, env: Env) -> DreamerConfig:
    """Return a copy whose action distribution and image channels are those of the environment.

    Raises:
        ConfigError: the counts of steps do not divide among the environments, or the frames have another size.
    """
    height, width, channels = env.observation_shape
    if (height, width) != (config.image_size, config.image_size):
        raise ConfigError(f"{env.env_id} gives frames of {height} x {width}; Dreamer takes {config.image_size} pixels.")
    for name in ("prefill_steps", "train_every", "total_steps"):
        if getattr(config, name) % config.num_envs:
            raise ConfigError(f"{name}={getattr(config, name)} is not a multiple of num_envs={config.num_envs}.")
    fitted = config.model_copy(deep=True)
    fitted.image_channels = channels
    assert isinstance(fitted, DreamerV1Config | DreamerV2Config)
    if isinstance(env.action_space, Discrete):
        fitted.action_distribution = "onehot"
    elif isinstance(fitted, DreamerV1Config):
        fitted.action_distribution = "tanh_normal"
    else:
        fitted.action_distribution = "truncated_normal"
    return fitted


class DreamerTrainer:
    """Collects with the current policy, learns from replay, evaluates whole games; see `synora.runtime.loop.Algorithm`.

    Args:
        config: fitted to the environment.
        context: folders and random streams of the run.
    """

    def __init__(self, config: DreamerConfig, context: RunContext) -> None:
        self._config, self._streams = config, context.streams
        self._device = resolve_device(config.device)
        self._lanes = [
            Lane(self._make_env(context.streams.seed_for("env", i), train=True)) for i in range(config.num_envs)
        ]
        env = self._lanes[0].env
        discrete = isinstance(env.action_space, Discrete)
        actions = env.action_space.n if isinstance(env.action_space, Discrete) else env.action_space.shape[0]
        height, width, channels = env.observation_shape
        self.spec = AgentSpec(
            agent="dreamerv1" if isinstance(config, DreamerV1Config) else "dreamerv2",
            observation_shape=[channels, height, width],
            action_count=actions,
            action_kind="discrete" if discrete else "continuous",
        )
        with context.streams.as_global("init", self._device):
            self.learner = Learner(config, actions, self._device)
        self._policy = Policy(config, self.learner.world_model, self.learner.behaviour)
        self._memory = self._policy.initial(config.num_envs)
        self._fresh = np.zeros(config.num_envs, bool)
        self._step = 0
        self.replay = Replay(
            context.replay_folder,
            capacity=min(config.replay_capacity, 2 * config.total_steps + config.num_envs),
            observation_shape=self.spec.observation_shape,
            action_shape=[actions],
            streams=config.num_envs,
            say=context.say,
        )

    def collect(self, steps: int) -> dict[str, float]:
        """Take `steps` interactions into replay; metrics are means over the games that ended."""
        scores, lengths = [], []
        for _ in range(steps // len(self._lanes)):
            self._start_episodes()
            actions = self._act()
            results = [lane.step(action) for lane, action in zip(self._lanes, actions, strict=True)]
            self._step += len(self._lanes)
            self.replay.add(
                image=np.stack([lane.frame for lane in self._lanes]),
                action=actions,
                reward=np.array([result.reward for result in results]),
                is_first=np.zeros(len(results), bool),
                is_terminal=np.array([result.terminated for result in results]),
                is_last=np.array([lane.done for lane in self._lanes]),
                step=self._step,
            )
            ended = [lane for lane in self._lanes if lane.done and lane.game_over]
            scores += [lane.score for lane in ended]
            lengths += [lane.length for lane in ended]
        if not scores:
            return {}
        return {"return": float(np.mean(scores)), "game_length": float(np.mean(lengths))}

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
        """Play whole games under the evaluation protocol, the same ones every time; `score` is their mean return."""
        games = self._config.eval_episodes
        scores = np.array([score for score, _ in self._play(games)])
        return {"score": float(scores.mean()), "score_std": float(scores.std()), "games": float(games)}

    def state_dict(self) -> dict[str, Any]:
        """Return everything later steps depend on."""
        memory = {"stoch": self._memory.latent.stoch, "deter": self._memory.latent.deter, "action": self._memory.action}
        return {
            "agent": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "collector": {
                "lanes": [lane.state_dict() for lane in self._lanes],
                "memory": memory,
                "fresh": self._fresh,
                "step": self._step,
            },
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go back to a checkpoint, the environments included."""
        self.learner.load_state_dict(state["agent"])
        self.replay.load_state_dict(state["replay"])
        collector = state["collector"]
        for lane, saved in zip(self._lanes, collector["lanes"], strict=True):
            lane.load_state_dict(saved)
        memory = {name: value.to(self._device) for name, value in collector["memory"].items()}
        self._memory = PolicyState(State(memory["stoch"], memory["deter"]), memory["action"])
        self._fresh, self._step = np.array(collector["fresh"], bool), int(collector["step"])

    def committed(self) -> None:
        """Let replay delete what no checkpoint needs any more."""
        self.replay.committed()

    def close(self) -> None:
        """Close environments and files."""
        for lane in self._lanes:
            lane.env.close()
        self.replay.close()

    def _make_env(self, seed: int, *, train: bool) -> Env:
        config = self._config
        return make_env(config.game, backend=config.env_backend, protocol=config.protocol, seed=seed, train=train)

    def _start_episodes(self) -> None:
        """Reset the lanes whose episode is over; the first frame goes into replay as no interaction of its own."""
        for index, lane in enumerate(self._lanes):
            self._fresh[index] = lane.done
            if lane.done:
                frame = lane.reset()
                one = np.ones(1, bool)
                self.replay.add(
                    image=frame[None],
                    action=np.zeros((1, self.spec.action_count), np.float32),
                    reward=np.zeros(1),
                    is_first=one,
                    is_terminal=~one,
                    is_last=~one,
                    step=self._step,
                    streams=[index],
                )

    def _act(self) -> NDArray[np.float32]:
        generator = self._streams.generator("policy", self._device)
        if self._step < self._config.prefill_steps:
            return self._policy.random(len(self._lanes), generator, self._device)
        frames = np.stack([lane.frame for lane in self._lanes])
        actions, self._memory = self._policy.act(frames, self._fresh, self._memory, mode="train", generator=generator)
        return actions

    def _batch(self, drawn: Sequences) -> ReplayBatch:
        tensors = drawn.tensors(self._device)
        is_first = tensors["is_first"].clone()
        is_first[0] = 1  # every sequence starts from the zero state
        return ReplayBatch(tensors["image"], tensors["action"], tensors["reward"], tensors["is_terminal"], is_first)

    def _play(self, games: int) -> list[tuple[float, int]]:
        """Return score and length of evaluation games 0..games-1, played side by side."""
        generator = torch.Generator(self._device).manual_seed(self._streams.seed_for("eval-policy"))
        count = min(games, EVAL_LANES)
        lanes = [Lane(self._make_env(self._streams.seed_for("eval", i), train=False)) for i in range(count)]
        finished: list[tuple[float, int]] = []
        try:
            memory = self._policy.initial(count)
            while len(finished) < games:
                fresh = np.array([lane.done for lane in lanes])
                for lane in lanes:
                    if lane.done:
                        lane.reset()
                frames = np.stack([lane.frame for lane in lanes])
                actions, memory = self._policy.act(frames, fresh, memory, mode="eval", generator=generator)
                for lane, action in zip(lanes, actions, strict=True):
                    lane.step(action)
                finished += [(lane.score, lane.length) for lane in lanes if lane.done]
        finally:
            for lane in lanes:
                lane.env.close()
        return finished[:games]
