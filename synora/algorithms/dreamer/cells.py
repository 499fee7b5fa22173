"""The recurrent cells: a plain GRU (V1) and a LayerNorm GRU (V2). Gates are computed and states kept in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synora.nn.blocks import StepLinear, step_offset


class Gates(NamedTuple):
    """Gates of one step, each (B, D)."""

    reset: Tensor
    candidate: Tensor
    update: Tensor


class GRUCell(nn.Module):
    """Plain GRU whose update gate keeps the OLD state; the reset gate multiplies the projected state (`reset_after`).

    Weights are stacked in the order reset, update, candidate, with a bias on either side.
    """

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 3 * size)
        self.state = nn.Linear(size, 3 * size)

    def reset_parameters(self) -> None:
        """Keras' initialisation: Glorot-uniform input weights, orthogonal recurrent weights, zero biases."""
        nn.init.xavier_uniform_(self.input.weight)
        nn.init.orthogonal_(self.state.weight)
        nn.init.zeros_(self.input.bias)
        nn.init.zeros_(self.state.bias)

    @staticmethod
    def gates(from_input: Tensor, from_state: Tensor) -> Gates:
        """Gates from the two projections (B, 3D)."""
        from_input, from_state = from_input.float(), from_state.float()
        size = from_input.shape[-1] // 3
        reset, update = torch.sigmoid(from_input[..., : 2 * size] + from_state[..., : 2 * size]).chunk(2, -1)
        candidate = torch.tanh(torch.addcmul(from_input[..., 2 * size :], reset, from_state[..., 2 * size :]))
        return Gates(reset, candidate, update)

    @staticmethod
    def next(gates: Gates, state: Tensor) -> Tensor:
        """`(1 - update) * candidate + update * state`."""
        return torch.lerp(gates.candidate, state, gates.update)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """(B, inputs), (B, D) -> (B, D) float32."""
        return self.next(self.gates(self.input(x), self.state(state)), state)

    def unroll(self, steps: int, batch: int) -> Callable[[int, Tensor, Tensor], Tensor]:
        """The same step as a function of (t, x, state), for a loop over t = 0..steps-1."""
        from_input = StepLinear(step_offset(self.input.bias, steps, batch), self.input.weight)
        from_state = StepLinear(step_offset(self.state.bias, steps, batch), self.state.weight)

        def advance(step: int, x: Tensor, state: Tensor) -> Tensor:
            return self.next(self.gates(from_input(step, x), from_state(step, state)), state)

        return advance


class NormGRUCell(nn.Module):
    """GRU with one LayerNorm over all gates; its update gate keeps the NEW candidate and starts nearly closed.

    One linear layer on `[x, state]`, LayerNorm over the 3D entries jointly, then thirds in the order reset, candidate,
    update.
    """

    UPDATE_BIAS = -1.0

    def __init__(self, inputs: int, size: int, eps: float) -> None:
        super().__init__()
        self.inputs = inputs
        self.linear = nn.Linear(inputs + size, 3 * size)  # columns [x, state]
        self.norm = nn.LayerNorm(3 * size, eps=eps)

    def reset_parameters(self) -> None:
        """Keras' initialisation: Glorot-uniform weights, zero biases, identity LayerNorm."""
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.norm.reset_parameters()

    def project(self, x: Tensor, state: Tensor) -> Tensor:
        """The linear layer alone: (B, 3D)."""
        weight = self.linear.weight
        return F.linear(x, weight[:, : self.inputs], self.linear.bias) + F.linear(state, weight[:, self.inputs :])

    def normalise(self, projected: Tensor) -> Tensor:
        """LayerNorm in float32: (B, 3D)."""
        return F.layer_norm(
            projected.float(),
            self.norm.normalized_shape,
            self.norm.weight.float(),
            self.norm.bias.float(),
            self.norm.eps,
        )

    def gates(self, normalised: Tensor) -> Gates:
        """Gates from the normalised projection (B, 3D)."""
        reset, candidate, update = normalised.chunk(3, -1)
        reset = torch.sigmoid(reset)
        return Gates(reset, torch.tanh(reset * candidate), torch.sigmoid(update + self.UPDATE_BIAS))

    @staticmethod
    def next(gates: Gates, state: Tensor) -> Tensor:
        """`update * candidate + (1 - update) * state`."""
        return torch.lerp(state, gates.candidate, gates.update)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """(B, inputs), (B, D) -> (B, D) float32."""
        return self.next(self.gates(self.normalise(self.project(x, state))), state)

    def unroll(self, steps: int, batch: int) -> Callable[[int, Tensor, Tensor], Tensor]:
        """The same step as a function of (t, x, state), for a loop over t = 0..steps-1."""
        weight = self.linear.weight
        project = StepLinear(
            step_offset(self.linear.bias, steps, batch), weight[:, : self.inputs], weight[:, self.inputs :]
        )

        def advance(step: int, x: Tensor, state: Tensor) -> Tensor:
            return self.next(self.gates(self.normalise(project(step, x, state))), state)

        return advance
