"""Parameter counts at the authors' full sizes, and the presets."""

from __future__ import annotations

import pytest
from torch import nn

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.imagination import Behaviour
from synora.algorithms.dreamer.networks import ScalarHead
from synora.algorithms.dreamer.world_model import WorldModel
from synora.core.errors import ConfigError

# encoder, RSSM, cell, decoder, reward, continuation (None: off), world model, actor, critic
COUNTS = {
    ("v1", "paper", 6): (690_144, 557_920, 241_200, 3_795_555, 253_201, None, 5_296_820, 578_412, 413_601),
    ("v2", "paper", 18): (
        1_549_776, 5_664_848, 2_165_400, 10_497_553, 1_131_601, 1_131_601, 19_975_379, 1_138_418, 1_131_601,
    ),
    ("v2", "paper", 6): (
        1_549_776, 5_657_648, 2_165_400, 10_497_553, 1_131_601, 1_131_601, 19_968_179, 1_133_606, 1_131_601,
    ),
    ("v2", "dmc_vision", 6): (1_551_312, 1_247_248, 241_800, 9_886_611, 971_601, None, 13_656_772, 976_012, 971_601),
}  # fmt: skip


def count(module: nn.Module | None) -> int | None:
    return None if module is None else sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("version", "preset", "actions"), COUNTS)
def test_parameter_counts_are_the_authors(version: str, preset: str, actions: int) -> None:
    config = (DreamerV1Config if version == "v1" else DreamerV2Config).compose(preset=preset)
    world, behaviour = WorldModel(config, actions), Behaviour(config, actions)
    parts = (
        world.encoder, world.rssm, world.rssm.cell, world.decoder, world.reward, world.discount, world,
        behaviour.actor, behaviour.critic,
    )  # fmt: skip
    assert tuple(count(part) for part in parts) == COUNTS[version, preset, actions]
    assert count(behaviour.target_critic) == (count(behaviour.critic) if version == "v2" else None)


def test_v1_continuation_head_has_the_authors_size() -> None:
    config = DreamerV1Config()
    assert count(ScalarHead(config.feature_size, config.units, config.discount_layers)) == 413_601


@pytest.mark.parametrize("cls", [DreamerV1Config, DreamerV2Config])
def test_paper_is_the_defaults_and_presets_grow(cls: type[DreamerConfig]) -> None:
    assert cls.compose(preset="paper") == cls()
    sizes = []
    for preset in ("tiny", "small", "medium", "large"):
        config = cls.compose(preset=preset)
        sizes.append(count(WorldModel(config, 6)) or 0)
        assert config.compose(overrides=config.model_dump()) == config
    assert sizes == sorted(set(sizes))


def test_bad_values_are_named() -> None:
    with pytest.raises(ConfigError, match="horizon"):
        DreamerV1Config(horizon=1)
    with pytest.raises(ConfigError, match="Did you mean 'tiny'"):
        DreamerV2Config.compose(preset="tinny")
