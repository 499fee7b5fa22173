"""What the parity data does not reach: drawing, low precision, start states, targets, the optimiser."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.imagination import Behaviour, behaviour_starts, imagine
from synora.algorithms.dreamer.import_official import convert_name
from synora.algorithms.dreamer.optim import build_optimizer
from synora.algorithms.dreamer.rssm import State
from synora.algorithms.dreamer.world_model import ReplayBatch, WorldModel

TINY_CONTINUOUS = {
    "deter_size": 16, "stoch_size": 4, "class_size": 4, "hidden_size": 16, "cnn_depth": 2, "units": 16, "horizon": 5,
}  # fmt: skip
CONFIGS = {
    "v1": DreamerV1Config.compose(preset="tiny"),
    "v1-discrete": DreamerV1Config.compose(
        preset="tiny", overrides={"action_distribution": "onehot", "predict_discount": True}
    ),
    "v2": DreamerV2Config.compose(preset="tiny"),
    "v2-both": DreamerV2Config.compose(preset="tiny", overrides={"actor_gradient": "both"}),
    "v2-continuous": DreamerV2Config.compose(preset="dmc_vision", overrides=TINY_CONTINUOUS),
}


def batch_of(config: DreamerConfig, steps: int = 4, batch: int = 3) -> ReplayBatch:
    image = torch.randint(256, (steps, batch, config.image_channels, 64, 64), dtype=torch.uint8)
    flags = torch.zeros(steps, batch)
    return ReplayBatch(image, torch.rand(steps, batch, 2), torch.randn(steps, batch), flags, flags)


def losses(config: DreamerConfig, seed: int) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(0)
    world, behaviour, batch = WorldModel(config, 2), Behaviour(config, 2), batch_of(config)
    out = world(batch, generator=generator)
    start, terminal = behaviour_starts(config, out.observed.state, batch.is_terminal)
    imagined = behaviour(world, start, terminal, generator=generator)
    out.loss.backward()
    imagined.loss.backward()
    for module in (world, behaviour):
        assert all(torch.isfinite(p.grad).all() for p in module.parameters() if p.grad is not None)
    assert all(p.grad is not None and p.grad.any() for p in behaviour.actor.parameters() if p.dim() > 1)
    return [out.loss.item(), imagined.loss.item()]


@pytest.mark.parametrize("name", CONFIGS)
def test_draws_come_from_the_generator_alone(name: str) -> None:
    assert losses(CONFIGS[name], 1) == losses(CONFIGS[name], 1)
    assert losses(CONFIGS[name], 1) != losses(CONFIGS[name], 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CONFIGS)
def test_autocast_keeps_losses_in_float32_and_close(name: str, dtype: torch.dtype) -> None:
    exact = losses(CONFIGS[name], 1)
    with torch.autocast("cpu", dtype):
        low = losses(CONFIGS[name], 1)
    assert low[0] == pytest.approx(exact[0], rel=0.02)


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_observing_in_two_parts_equals_observing_at_once(name: str) -> None:
    config = CONFIGS[name]
    rssm = WorldModel(config, 2).rssm
    embed, action, first = torch.randn(5, 3, 32 * config.cnn_depth), torch.rand(5, 3, 2), torch.zeros(5, 3)
    first[3, 1] = 1
    noise = rssm.draw_noise((5, 3), embed.device, None)
    whole = rssm.observe(embed, action, first, noise=noise).state
    head = rssm.observe(embed[:2], action[:2], first[:2], noise=noise[:2]).state
    carried = State(head.stoch[-1], head.deter[-1])
    tail = rssm.observe(embed[2:], action[2:], first[2:], carried, noise=noise[2:]).state
    torch.testing.assert_close(torch.cat([head.deter, tail.deter]), whole.deter)
    # A reset forgets what came before.
    fresh = rssm.observe(embed[3:, 1:2], torch.zeros(2, 1, 2).index_copy(0, torch.tensor([1]), action[4:, 1:2]),
                         noise=noise[3:, 1:2]).state  # fmt: skip
    torch.testing.assert_close(fresh.deter[:, 0], whole.deter[3:, 1])


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_unrolled_imagination_equals_single_steps(name: str) -> None:
    config = CONFIGS[name]
    world, behaviour = WorldModel(config, 2), Behaviour(config, 2)
    noise = world.rssm.draw_noise((3, 4), torch.device("cpu"), None)
    rollout = imagine(world, behaviour.actor, world.rssm.initial(4), 3, through_dynamics=True, state_noise=noise)
    state = world.rssm.initial(4)
    for action, draw in zip(rollout.actions, noise, strict=True):
        state, _ = world.rssm.imagine_step(state, action, draw)
    torch.testing.assert_close(state.features, rollout.features[-1])


def test_v1_with_a_continuation_head_drops_the_last_step() -> None:
    states = State(torch.zeros(4, 3, 2), torch.zeros(4, 3, 5))
    assert len(behaviour_starts(CONFIGS["v1"], states)[0].deter) == 12
    assert len(behaviour_starts(CONFIGS["v1-discrete"], states)[0].deter) == 9
    start, terminal = behaviour_starts(CONFIGS["v2"], states, torch.zeros(4, 3))
    assert len(start.deter) == 12 and terminal is not None and len(terminal) == 12
    with pytest.raises(ValueError, match="at least 2 steps"):
        behaviour_starts(CONFIGS["v1-discrete"], State(states.stoch[:1], states.deter[:1]))


def test_v2_needs_terminal_flags() -> None:
    config = CONFIGS["v2"]
    world = WorldModel(config, 2)
    with pytest.raises(ValueError, match="terminal flags"):
        Behaviour(config, 2)(world, world.rssm.initial(2))


def test_target_critic_is_a_copy_that_waits() -> None:
    behaviour = Behaviour(CONFIGS["v2"], 2)
    target = behaviour.target_critic
    assert target is not None and not any(p.requires_grad for p in target.parameters())
    x = torch.randn(3, CONFIGS["v2"].feature_size)
    assert torch.equal(behaviour.critic(x), target(x))
    with torch.no_grad():
        behaviour.critic.layers[0].weight.add_(1)
    assert not torch.equal(behaviour.critic(x), target(x))
    behaviour.update_target()
    assert torch.equal(behaviour.critic(x), target(x))


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_actions_are_valid(name: str) -> None:
    actor = Behaviour(CONFIGS[name], 2).actor
    action = actor.greedy(actor.policy(actor(torch.randn(5, CONFIGS[name].feature_size))))
    assert action.shape == (5, 2) and (action.abs() <= 1).all()
    if "onehot" in CONFIGS[name].model_dump().values():
        assert torch.equal(action.sum(-1), torch.ones(5))


def test_weight_decay_shrinks_by_its_own_size() -> None:
    config = DreamerV2Config(weight_decay=0.1)
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    optimizer = build_optimizer(config, [(layer, 1e-3)])
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), before * 0.9)


def test_unknown_official_keys_are_named() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        convert_name("nonsense.weight", CONFIGS["v2"])
