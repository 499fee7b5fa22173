"""Synora: train, benchmark and measure world-model reinforcement-learning agents."""

__version__ = "0.1.0"
