"""`DreamerConfig` as a user calls it."""

import pytest

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.core.errors import ConfigError


def test_dreamer_config_makes_the_newer_agents() -> None:
    config = DreamerConfig(game="Pong", class_size=8)
    assert isinstance(config, DreamerV2Config)
    assert type(DreamerConfig.compose(preset="tiny")) is DreamerV2Config
    assert type(DreamerV1Config(game="Pong").model_copy(deep=True)) is DreamerV1Config
    assert type(DreamerV1Config.compose(preset="tiny")) is DreamerV1Config
    with pytest.raises(ConfigError, match="Did you mean 'class_size'"):
        DreamerConfig(clas_size=3)
