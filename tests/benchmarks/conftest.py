"""Checkpoints of untrained Dreamer agents: whole and loadable, made in a moment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def dreamer(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a run folder with one checkpoint and returns it."""

    def make(
        agent: str = "dreamerv2", *, name: str = "", actions: int = 3, kind: str = "discrete", **values: Any
    ) -> Path:
        from synora.algorithms.dreamer.agent import DreamerAgent
        from synora.algorithms.dreamer.config import VERSIONS
        from synora.runtime.manifest import AgentSpec

        values = {"game": "catch/0", "image_channels": 3, **values}
        config = VERSIONS[agent].compose(preset="tiny", overrides=values)
        shape = [config.image_channels, 64, 64]
        spec = AgentSpec(agent=agent, observation_shape=shape, action_count=actions, action_kind=kind)  # type: ignore[arg-type]
        folder = tmp_path / "runs" / (name or agent)
        DreamerAgent(config, spec, device="cpu").save(folder / "checkpoints", step=123)
        return folder

    return make
