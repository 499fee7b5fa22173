"""Which agents can be trained, by name; nothing here imports torch."""

from __future__ import annotations

from synora.core.registry import Registry

# Other packages add agents through these entry-point groups: a `Config` class, and a function
# `train(config, folder) -> synora.runtime.loop.Outcome`.
CONFIGS = Registry(
    "agent",
    {
        "dreamerv1": "synora.algorithms.dreamer.config:DreamerV1Config",
        "dreamerv2": "synora.algorithms.dreamer.config:DreamerV2Config",
    },
    group="synora.agent_configs",
)
TRAINERS = Registry(
    "agent",
    {
        "dreamerv1": "synora.algorithms.dreamer.trainer:train_dreamer",
        "dreamerv2": "synora.algorithms.dreamer.trainer:train_dreamer",
    },
    group="synora.agent_trainers",
)
