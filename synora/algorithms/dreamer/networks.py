"""The convolutional encoder and decoder that both versions share (Hafner et al. 2020, appendix A)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config
from synora.nn.blocks import MLP


def scale_images(images: Tensor) -> Tensor:
    """Map frames with values 0..255 (uint8 or floating point, any shape) to float32 in [-0.5, 0.5]."""
    return images.float().div(255).sub_(0.5)


def _activation(config: DreamerConfig) -> nn.Module:
    # In place: the layer before needs its output no more, and these tensors are the largest there are.
    return nn.ReLU(inplace=True) if isinstance(config, DreamerV1Config) else nn.ELU(inplace=True)


def _convolution_layout(images: Tensor) -> Tensor:
    """Lay frames out as the device's convolutions like them.

    Channels-last is what tensor cores and low-precision CPU kernels read without reordering; float32 on a CPU is
    faster in the plain layout.
    """
    if images.is_cuda or torch.is_autocast_enabled(images.device.type):
        return images.contiguous(memory_format=torch.channels_last)
    return images


class Encoder(nn.Module):
    """Four unpadded convolutions (kernel 4, stride 2): 64 -> 31 -> 14 -> 6 -> 2. V1 uses ReLU, V2 ELU."""

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        depth = config.cnn_depth
        widths = [config.image_channels, depth, 2 * depth, 4 * depth, 8 * depth]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv2d(inputs, outputs, 4, stride=2), _activation(config)]
        self.layers = nn.Sequential(*layers)
        self.embed_size = 32 * depth

    def forward(self, images: Tensor) -> Tensor:
        """Embed scaled frames.

        Args:
            images: (..., C, 64, 64) floating point in [-0.5, 0.5].

        Returns:
            (..., 32 * cnn_depth), flattened in C,H,W order.
        """
        frames = _convolution_layout(images.flatten(0, -4))
        return self.layers(frames).flatten(1).unflatten(0, images.shape[:-3])


class Decoder(nn.Module):
    """A linear layer and four unpadded transposed convolutions: 1 -> 5 -> 13 -> 30 -> 64; means of unit Normals."""

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        depth = config.cnn_depth
        self.linear = nn.Linear(config.feature_size, 32 * depth)
        self.first = nn.ConvTranspose2d(32 * depth, 4 * depth, 5, stride=2)
        self.layers = nn.Sequential(
            _activation(config),
            nn.ConvTranspose2d(4 * depth, 2 * depth, 5, stride=2),
            _activation(config),
            nn.ConvTranspose2d(2 * depth, depth, 6, stride=2),
            _activation(config),
            nn.ConvTranspose2d(depth, config.image_channels, 6, stride=2),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Predict scaled frames.

        Args:
            features: (..., F).

        Returns:
            (..., C, 64, 64) means; no output non-linearity.
        """
        hidden = self.linear(features.flatten(0, -2))
        # On a 1x1 input a transposed convolution is one matrix product.
        weight, bias = self.first.weight, self.first.bias
        assert bias is not None
        hidden = F.linear(hidden, weight.flatten(1).t(), bias.repeat_interleave(weight[0, 0].numel()))
        hidden = _convolution_layout(hidden.unflatten(1, weight.shape[1:]))
        return self.layers(hidden).unflatten(0, features.shape[:-1])


class ScalarHead(MLP):
    """An ELU MLP with one output: reward and value means, continuation logits."""

    def __init__(self, inputs: int, units: int, hidden_layers: int) -> None:
        super().__init__(inputs, units, hidden_layers, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., F) -> (...) float32."""
        return super().forward(x).squeeze(-1).float()


def build_critic(config: DreamerConfig) -> ScalarHead:
    """The value network: the mean of a unit Normal over returns."""
    return ScalarHead(config.feature_size, config.units, config.critic_layers)
