"""DreamerV1 and DreamerV2: `DreamerAgent.from_checkpoint("runs/…")` acts; training starts with `synora train`."""

from synora.algorithms.dreamer.agent import DreamerAgent
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config

__all__ = ["DreamerAgent", "DreamerConfig", "DreamerV1Config", "DreamerV2Config"]
