"""Configurations of DreamerV1 and DreamerV2; the defaults are the values the authors released.

V1: danijar/dreamer (DeepMind Control from pixels). V2: danijar/dreamerv2 (Atari). Nothing here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from synora.core.config import Config


class DreamerConfig(Config):
    """What both versions share. Sizes are counts, rates are per update.

    It is the type to accept. Making one (`DreamerConfig(game="Pong")`, `DreamerConfig.compose(…)`) gives a
    `DreamerV2Config`, the newer agent; write `DreamerV1Config` for the other.

    Attributes:
        image_size: height and width of the frames; the convolutions are unpadded and fit 64 only.
        image_channels: 3 for RGB, 1 for grey.
        deter_size: width of the recurrent (deterministic) state.
        stoch_size: number of stochastic variables.
        hidden_size: width of the RSSM's dense layers.
        cnn_depth: width of the first convolution; the others are multiples of it.
        units: width of every MLP head.
        reward_layers: hidden layers of the reward head; likewise `discount_layers`, `critic_layers`, `actor_layers`.
        predict_discount: learn a continuation head, trained on `discount * (1 - terminal)` and used as the discount.
        discount_scale: weight of its loss.
        kl_scale: weight of the divergence.
        free_nats: the divergence's mean is clipped from below here.
        reward_transform: applied to environment rewards before they become targets.
        discount: discount factor; `lambda_` mixes the returns; `horizon` counts imagined steps.
        batch_size: sequences in a training batch, of `seq_len` steps each.
        model_lr: Adam step size of the world model; likewise `actor_lr`, `critic_lr`.
        adam_eps: Adam's epsilon.
        weight_decay: every parameter is multiplied by `1 - weight_decay` at each update, whatever the step size.
        grad_clip: global gradient norm of each of the three optimisers.
        prefill_steps: environment interactions with random actions before training.
        pretrain_updates: updates right after the prefill.
        train_every: agent steps between training phases, each of `updates_per_train` updates.
        replay_capacity: agent steps kept.
        exploration_noise: spread of the Normal added to continuous actions when collecting (clipped to [-1, 1]).
        precision: "float32", or autocast to "bfloat16" or "float16" (the authors: float16).
        game: environment, in any spelling `synora.envs` knows; `env_backend` and `protocol` as there. How many frames
            an action lasts is the protocol's `frame_skip` (the authors: 4 on Atari, 2 on DeepMind Control).
        total_steps: agent steps of the whole run, the prefill included.
        num_envs: environments that collect side by side; divides `prefill_steps`, `train_every` and `total_steps`.
        env_workers: processes that step them, in training and evaluation; 0: none but this one; None: one a usable CPU
            for Atari and Gymnasium with several environments, else none. Results do not depend on it.
        seed: of every random stream of the run.
        compile: hand the convolutions, heads and the actor to torch's compiler; needs a C++ compiler (CPU) or Triton.
        device: "auto", "cpu", "cuda" or "cuda:N".
        log_every: agent steps between metric rows; likewise `eval_every` (0: never) and `save_every` (0: by time only).
        eval_episodes: games of an evaluation.
        save_minutes: wall-clock minutes between checkpoints.
        keep_last: newest checkpoints kept, beside the best.
        tensorboard: also write the metrics as TensorBoard event files, to `tensorboard/` in the run's folder.
        wandb: Weights & Biases project that also gets the metrics; None: no such thing. Offline without an API key.
    """

    image_size: Literal[64] = 64
    image_channels: int = Field(default=3, ge=1, le=16)
    deter_size: int = Field(default=200, ge=1, le=65_536)
    stoch_size: int = Field(default=30, ge=1, le=65_536)
    hidden_size: int = Field(default=200, ge=1, le=65_536)
    cnn_depth: int = Field(default=32, ge=1, le=65_536)
    units: int = Field(default=400, ge=1, le=65_536)
    reward_layers: int = Field(default=2, ge=0, le=100)
    discount_layers: int = Field(default=3, ge=0, le=100)
    critic_layers: int = Field(default=3, ge=0, le=100)
    actor_layers: int = Field(default=4, ge=0, le=100)
    predict_discount: bool = False
    discount_scale: float = Field(default=10.0, ge=0)
    kl_scale: float = Field(default=1.0, ge=0)
    free_nats: float = Field(default=3.0, ge=0)
    reward_transform: Literal["none", "tanh"] = "none"
    discount: float = Field(default=0.99, ge=0, le=1)
    lambda_: float = Field(default=0.95, ge=0, le=1)
    horizon: int = Field(default=15, ge=2, le=10_000)
    batch_size: int = Field(default=50, ge=1, le=65_536)
    seq_len: int = Field(default=50, ge=1, le=65_536)
    model_lr: float = Field(default=6e-4, gt=0)
    actor_lr: float = Field(default=8e-5, gt=0)
    critic_lr: float = Field(default=8e-5, gt=0)
    adam_eps: float = Field(default=1e-7, gt=0)
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    grad_clip: float = Field(default=100.0, gt=0)
    prefill_steps: int = Field(default=2500, ge=0)
    pretrain_updates: int = Field(default=100, ge=0)
    train_every: int = Field(default=500, ge=1)
    updates_per_train: int = Field(default=100, ge=1)
    replay_capacity: int = Field(default=1_000_000, ge=1)
    exploration_noise: float = Field(default=0.3, ge=0)
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    game: str = "Pendulum-v1"
    env_backend: str = "auto"
    protocol: str | None = None
    total_steps: int = Field(default=500_000, ge=1)
    num_envs: int = Field(default=1, ge=1, le=1024)
    env_workers: int | None = Field(default=None, ge=0)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    device: str = "auto"
    compile: bool = False
    log_every: int = Field(default=1000, ge=1)
    eval_every: int = Field(default=10_000, ge=0)
    eval_episodes: int = Field(default=10, ge=1)
    save_every: int = Field(default=0, ge=0)
    save_minutes: float = Field(default=10.0, ge=0)
    keep_last: int = Field(default=2, ge=1)
    tensorboard: bool = False
    wandb: str | None = Field(default=None, min_length=1)

    def __new__(cls, **values: Any) -> Self:  # noqa: D102
        return super().__new__(DreamerV2Config if cls is DreamerConfig else cls)  # type: ignore[return-value]

    @classmethod
    def compose(
        cls,
        *,
        file: str | os.PathLike[str] | None = None,
        preset: str | None = None,
        overrides: Iterable[str] | Mapping[str, Any] = (),
    ) -> Self:
        """As `Config.compose`; of `DreamerConfig` itself, a `DreamerV2Config`."""
        made: Any = DreamerV2Config if cls is DreamerConfig else super()
        composed: Self = made.compose(file=file, preset=preset, overrides=overrides)
        return composed

    @property
    def feature_size(self) -> int:
        """Size of the feature `[stochastic, deterministic]` that every head reads."""
        raise NotImplementedError


class DreamerV1Config(DreamerConfig):
    """DreamerV1 (Hafner et al. 2020, appendix A); defaults are the DeepMind Control values of danijar/dreamer.

    Preset `discrete` holds the paper's changes for Atari and DeepMind Lab.

    Attributes:
        min_std: added to the softplus of every Gaussian of the RSSM.
        action_distribution: "tanh_normal" for continuous actions, "onehot" for discrete ones.
        actor_mean_scale: the mean is `scale * tanh(raw / scale)`.
        actor_init_std: spread that a raw output of 0 gives.
        actor_min_std: added to the softplus of the raw spread.
        mode_samples: draws of which the evaluation policy takes the most likely.
        epsilon: chance of a uniformly random discrete action when collecting, at the first update (the paper: 0.4).
        epsilon_final: the chance it falls to (the paper: 0.1); None: it stays as it is.
        epsilon_decay_updates: gradient updates (of the world model) over which it falls linearly.
    """

    min_std: float = Field(default=0.1, gt=0)
    action_distribution: Literal["tanh_normal", "onehot"] = "tanh_normal"
    actor_mean_scale: float = Field(default=5.0, gt=0)
    actor_init_std: float = Field(default=5.0, gt=0)
    actor_min_std: float = Field(default=1e-4, gt=0)
    mode_samples: int = Field(default=100, ge=1)
    epsilon: float = Field(default=0.0, ge=0, le=1)
    epsilon_final: float | None = Field(default=None, ge=0, le=1)
    epsilon_decay_updates: int = Field(default=200_000, ge=1)

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "deter_size": 16, "stoch_size": 4, "hidden_size": 16, "cnn_depth": 2, "units": 16,
            "horizon": 5, "batch_size": 4, "seq_len": 8, "prefill_steps": 100, "pretrain_updates": 2,
            "train_every": 20, "updates_per_train": 1, "replay_capacity": 10_000,
        },
        "small": {
            "deter_size": 100, "stoch_size": 16, "hidden_size": 100, "cnn_depth": 16, "units": 200, "batch_size": 16,
        },
        "medium": {"cnn_depth": 24, "units": 300, "batch_size": 32},
        "large": {"deter_size": 400, "stoch_size": 48, "hidden_size": 400, "cnn_depth": 48, "units": 600},
        "paper": {
            "image_channels": 3, "deter_size": 200, "stoch_size": 30, "hidden_size": 200, "cnn_depth": 32, "units": 400,
            "reward_layers": 2, "discount_layers": 3, "critic_layers": 3, "actor_layers": 4,
            "predict_discount": False, "discount_scale": 10.0, "kl_scale": 1.0, "free_nats": 3.0,
            "reward_transform": "none", "discount": 0.99, "lambda_": 0.95, "horizon": 15,
            "batch_size": 50, "seq_len": 50, "model_lr": 6e-4, "actor_lr": 8e-5, "critic_lr": 8e-5,
            "adam_eps": 1e-7, "weight_decay": 0.0, "grad_clip": 100.0, "prefill_steps": 2500, "pretrain_updates": 100,
            "train_every": 500, "updates_per_train": 100, "exploration_noise": 0.3,
            "min_std": 0.1, "action_distribution": "tanh_normal", "actor_mean_scale": 5.0, "actor_init_std": 5.0,
            "actor_min_std": 1e-4, "mode_samples": 100,
        },
        "discrete": {
            "predict_discount": True, "discount_scale": 10.0, "kl_scale": 0.1, "reward_transform": "tanh",
            "horizon": 10, "epsilon": 0.4, "epsilon_final": 0.1, "epsilon_decay_updates": 200_000,
            "action_distribution": "onehot",
        },
    }  # fmt: skip

    @property
    def feature_size(self) -> int:
        """`stoch_size + deter_size`."""
        return self.stoch_size + self.deter_size

    def epsilon_at(self, updates: int) -> float:
        """Return the chance of a random discrete action after so many gradient updates."""
        if self.epsilon_final is None:
            return self.epsilon
        share = min(1.0, updates / self.epsilon_decay_updates)
        return self.epsilon + (self.epsilon_final - self.epsilon) * share


class DreamerV2Config(DreamerConfig):
    """DreamerV2 (Hafner et al. 2021, appendix); defaults are the Atari values of danijar/dreamerv2.

    Preset `dmc_vision` holds the authors' continuous-control values.

    Attributes:
        class_size: classes of each of the `stoch_size` categorical variables.
        layer_norm_eps: epsilon of the recurrent cell's LayerNorm (Keras' default, not torch's).
        kl_balance: share of the divergence's gradient that trains the prior.
        kl_average_first: clip the mean divergence at `free_nats`; False clips each entry, then averages.
        action_distribution: "onehot" for discrete actions, "truncated_normal" for continuous ones.
        actor_init_std: added to the raw spread; `actor_min_std` to the squashed one.
        actor_gradient: "reinforce" (score function), "dynamics" (through the model), or "both".
        actor_grad_mix: weight of the dynamics part in "both".
        actor_entropy: weight of the policy entropy.
        pathwise_actions: truncated-Normal samples with their true derivative, not the authors' location-scale one.
        target_update_every: updates between copies of the critic into the target critic.
        prioritize_ends: replay draws sequences that reach an episode's end more often.
    """

    image_channels: int = Field(default=1, ge=1, le=16)
    deter_size: int = Field(default=600, ge=1, le=65_536)
    stoch_size: int = Field(default=32, ge=1, le=65_536)
    class_size: int = Field(default=32, ge=2, le=65_536)
    hidden_size: int = Field(default=600, ge=1, le=65_536)
    cnn_depth: int = Field(default=48, ge=1, le=65_536)
    layer_norm_eps: float = Field(default=1e-3, gt=0)
    reward_layers: int = Field(default=4, ge=0, le=100)
    discount_layers: int = Field(default=4, ge=0, le=100)
    critic_layers: int = Field(default=4, ge=0, le=100)
    predict_discount: bool = True
    discount_scale: float = Field(default=5.0, ge=0)
    kl_scale: float = Field(default=0.1, ge=0)
    free_nats: float = Field(default=0.0, ge=0)
    kl_balance: float = Field(default=0.8, ge=0, le=1)
    kl_average_first: bool = True
    reward_transform: Literal["none", "tanh"] = "tanh"
    discount: float = Field(default=0.999, ge=0, le=1)
    batch_size: int = Field(default=16, ge=1, le=65_536)
    model_lr: float = Field(default=2e-4, gt=0)
    actor_lr: float = Field(default=4e-5, gt=0)
    critic_lr: float = Field(default=1e-4, gt=0)
    adam_eps: float = Field(default=1e-5, gt=0)
    weight_decay: float = Field(default=1e-6, ge=0, lt=1)
    prefill_steps: int = Field(default=50_000, ge=0)
    pretrain_updates: int = Field(default=1, ge=0)
    train_every: int = Field(default=16, ge=1)
    updates_per_train: int = Field(default=1, ge=1)
    replay_capacity: int = Field(default=2_000_000, ge=1)
    exploration_noise: float = Field(default=0.0, ge=0)
    action_distribution: Literal["onehot", "truncated_normal"] = "onehot"
    actor_init_std: float = 0.0
    actor_min_std: float = Field(default=0.1, gt=0)
    actor_gradient: Literal["reinforce", "dynamics", "both"] = "reinforce"
    actor_grad_mix: float = Field(default=0.1, ge=0, le=1)
    actor_entropy: float = Field(default=1e-3, ge=0)
    pathwise_actions: bool = False
    target_update_every: int = Field(default=100, ge=1)
    prioritize_ends: bool = True
    game: str = "Pong"
    total_steps: int = Field(default=50_000_000, ge=1)

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "deter_size": 16, "stoch_size": 4, "class_size": 4, "hidden_size": 16, "cnn_depth": 2, "units": 16,
            "horizon": 5, "batch_size": 4, "seq_len": 8, "prefill_steps": 100, "replay_capacity": 10_000,
        },
        "small": {
            "deter_size": 200, "stoch_size": 16, "class_size": 16, "hidden_size": 200, "cnn_depth": 24, "units": 200,
        },
        "medium": {
            "deter_size": 400, "stoch_size": 24, "class_size": 24, "hidden_size": 400, "cnn_depth": 32, "units": 300,
        },
        "large": {"deter_size": 1024, "hidden_size": 1024, "cnn_depth": 64, "units": 640},
        "paper": {
            "image_channels": 1, "deter_size": 600, "stoch_size": 32, "class_size": 32, "hidden_size": 600,
            "cnn_depth": 48, "units": 400, "layer_norm_eps": 1e-3,
            "reward_layers": 4, "discount_layers": 4, "critic_layers": 4, "actor_layers": 4,
            "predict_discount": True, "discount_scale": 5.0, "kl_scale": 0.1, "free_nats": 0.0, "kl_balance": 0.8,
            "kl_average_first": True, "reward_transform": "tanh", "discount": 0.999, "lambda_": 0.95, "horizon": 15,
            "batch_size": 16, "seq_len": 50, "model_lr": 2e-4, "actor_lr": 4e-5, "critic_lr": 1e-4, "adam_eps": 1e-5,
            "weight_decay": 1e-6, "grad_clip": 100.0, "prefill_steps": 50_000, "pretrain_updates": 1,
            "train_every": 16, "updates_per_train": 1, "replay_capacity": 2_000_000,
            "exploration_noise": 0.0, "action_distribution": "onehot", "actor_init_std": 0.0, "actor_min_std": 0.1,
            "actor_gradient": "reinforce", "actor_grad_mix": 0.1, "actor_entropy": 1e-3, "target_update_every": 100,
            "prioritize_ends": True,
        },
        "dmc_vision": {
            "image_channels": 3, "deter_size": 200, "hidden_size": 200, "predict_discount": False, "kl_scale": 1.0,
            "free_nats": 1.0, "reward_transform": "none", "discount": 0.99, "model_lr": 3e-4, "actor_lr": 8e-5,
            "critic_lr": 8e-5, "prefill_steps": 1000, "pretrain_updates": 100, "train_every": 5,
            "action_distribution": "truncated_normal", "actor_gradient": "dynamics", "actor_entropy": 1e-4,
            "prioritize_ends": False,
        },
    }  # fmt: skip

    @property
    def feature_size(self) -> int:
        """`stoch_size * class_size + deter_size`."""
        return self.stoch_size * self.class_size + self.deter_size


VERSIONS: Mapping[str, type[DreamerV1Config] | type[DreamerV2Config]] = {
    "dreamerv1": DreamerV1Config,
    "dreamerv2": DreamerV2Config,
}
