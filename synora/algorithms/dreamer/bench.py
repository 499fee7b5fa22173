"""Cases of the compute sweep: DreamerV1 and DreamerV2, whole and in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synora.algorithms.dreamer.config import VERSIONS, DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.compute.case import BenchCase, Scale

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# DeepMind Control tasks have up to 6 action dimensions in the authors' table; Atari's full set is 18 actions.
ACTION_SIZE = {"dreamerv1": 6, "dreamerv2": 18}


def _config(version: str, scale: Scale) -> DreamerConfig:
    return VERSIONS[version].compose(
        preset=scale.preset, overrides={"batch_size": scale.batch_size, "seq_len": scale.seq_len}
    )


def _start_steps(config: DreamerConfig) -> int:
    """Time steps of each sequence the imagination starts from."""
    dropped = isinstance(config, DreamerV1Config) and config.predict_discount
    return config.seq_len - 1 if dropped else config.seq_len


def _build(version: str, part: str, scale: Scale) -> nn.Module:
    from synora.algorithms.dreamer import bench_modules, networks

    config, actions = _config(version, scale), ACTION_SIZE[version]
    if part == "encoder":
        return networks.Encoder(config)
    if part == "decoder":
        return networks.Decoder(config)
    if part == "rssm":
        return bench_modules.ObserveStep(config, actions)
    if part == "world-model":
        return bench_modules.WorldModelStep(config, actions)
    return bench_modules.BehaviourStep(config, actions)


def _actions(version: str, *shape: int) -> Tensor:
    import torch
    import torch.nn.functional as F

    size = ACTION_SIZE[version]
    if VERSIONS[version] is DreamerV2Config:
        return F.one_hot(torch.randint(size, shape), size).float()
    return torch.rand(*shape, size) * 2 - 1


def _inputs(version: str, part: str, scale: Scale) -> tuple[Tensor, ...]:
    import torch

    config = _config(version, scale)
    steps, batch = scale.seq_len, scale.batch_size
    frame = (config.image_channels, scale.image_size, scale.image_size)
    if part == "encoder":
        return (torch.rand(steps * batch, *frame) - 0.5,)
    if part == "decoder":
        return (torch.randn(steps * batch, config.feature_size),)
    if part == "behaviour":
        starts = _start_steps(config) * batch
        if starts == 0:
            raise ValueError(f"{version}-behaviour drops the last step of each sequence: seq_len must be at least 2.")
        return torch.zeros(starts, config.feature_size - config.deter_size), torch.randn(
            starts, config.deter_size
        ).tanh()
    is_first = torch.zeros(steps, batch)
    is_first[0] = 1
    if part == "rssm":
        return torch.randn(steps, batch, 32 * config.cnn_depth), _actions(version, steps, batch), is_first
    image = torch.randint(256, (steps, batch, *frame), dtype=torch.uint8)
    zeros = torch.zeros(steps, batch)
    return image, _actions(version, steps, batch), torch.randn(steps, batch), zeros, is_first


def _optimizer(version: str, part: str, module: nn.Module) -> torch.optim.Optimizer:
    from synora.algorithms.dreamer import bench_modules, optim

    config = VERSIONS[version]()
    if isinstance(module, bench_modules.BehaviourStep):
        behaviour = module.behaviour
        return optim.build_optimizer(config, [(behaviour.actor, config.actor_lr), (behaviour.critic, config.critic_lr)])
    return optim.build_optimizer(config, [(module, config.model_lr)])


_PARTS = {
    "encoder": "convolutional encoder, batch x length frames",
    "decoder": "transposed-convolution decoder, batch x length frames",
    "rssm": "recurrent state-space model observing a batch of sequences",
    "world-model": "world-model loss on a replay batch: encoder, RSSM, decoder, heads",
    "behaviour": "imagination, actor loss and critic loss from batch x length start states",
}


def _case(version: str, part: str) -> BenchCase:
    paper = VERSIONS[version].compose(preset="paper")

    def frames(scale: Scale) -> int:
        return scale.batch_size * scale.seq_len

    def imagined(scale: Scale) -> int:
        config = _config(version, scale)
        return _start_steps(config) * scale.batch_size * config.horizon

    return BenchCase(
        name=f"{version}-{part}",
        family="dreamer",
        build=lambda scale: _build(version, part, scale),
        inputs=lambda scale: _inputs(version, part, scale),
        description=f"{version.replace('dreamerv', 'DreamerV')} {_PARTS[part]}",
        paper_sizes={"batch_size": paper.batch_size, "seq_len": paper.seq_len, "image_size": paper.image_size},
        image_sizes=(64,),
        items=imagined if part == "behaviour" else frames,
        unit="imagined steps" if part == "behaviour" else "frames",
        optimizer=lambda module: _optimizer(version, part, module),
        clip_norm=paper.grad_clip,
    )


CASES: tuple[BenchCase, ...] = tuple(_case(version, part) for version in VERSIONS for part in _PARTS)
