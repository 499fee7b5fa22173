"""The Dreamer configurations; importing them does not import torch."""

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config

__all__ = ["DreamerConfig", "DreamerV1Config", "DreamerV2Config"]
