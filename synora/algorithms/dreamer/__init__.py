"""DreamerV1 and DreamerV2.

Hafner et al. 2020, "Dream to Control: Learning Behaviors by Latent Imagination"; Hafner et al. 2021, "Mastering Atari
with Discrete World Models".

This package imports without torch: `config` and `bench` are torch-free at import time, the networks live in
`networks`, `rssm`, `actor`, `world_model` and `imagination`.
"""
