"""The recurrent state-space model: Gaussian with a GRU (V1), categorical with a LayerNorm GRU (V2).

Observing a sequence keeps only what is sequential inside its loop: the projections of actions and embeddings are one
product for all steps before it, the prior is one product for all steps after it, and weight gradients are formed once
(`StepLinear`). Time comes first, batch second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synora.algorithms.dreamer.cells import GRUCell, NormGRUCell
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.nn.blocks import StepLinear, step_offset
from synora.nn.distributions import DiagonalGaussian, OneHotCategorical, gumbel, standard_normal

Latent = TypeVar("Latent", DiagonalGaussian, OneHotCategorical)


class State(NamedTuple):
    """A latent state.

    Attributes:
        stoch: (..., S) sample; V2: one-hot samples flattened variable by variable, (..., S*C).
        deter: (..., D) recurrent state, float32.
    """

    stoch: Tensor
    deter: Tensor

    @property
    def features(self) -> Tensor:
        """(..., F): `[stoch, deter]`, what every head reads."""
        return torch.cat(self, -1)

    def detach(self) -> State:
        """The same numbers without gradient."""
        return State(self.stoch.detach(), self.deter.detach())


class Observed(NamedTuple, Generic[Latent]):
    """What observing a sequence gives, every tensor (T, B, ...).

    Attributes:
        state: posterior samples and recurrent states.
        posterior: distribution of the sample given the frame.
        prior: distribution of the sample before seeing the frame.
    """

    state: State
    posterior: Latent
    prior: Latent


class RSSM(nn.Module, Generic[Latent]):
    """The part that does not depend on the kind of latent (Hafner et al. 2020, section 3; 2021, section 2.1).

    Args:
        config: sizes.
        action_size: A, number of actions or of action dimensions.
        stoch_size: size of a flattened sample.
        stats_size: size of the raw statistics of the sample.
    """

    cell: GRUCell | NormGRUCell

    def __init__(self, config: DreamerConfig, action_size: int, stoch_size: int, stats_size: int) -> None:
        super().__init__()
        deter, hidden, embed = config.deter_size, config.hidden_size, 32 * config.cnn_depth
        self.stoch_size, self.deter_size = stoch_size, deter
        self.input = nn.Linear(stoch_size + action_size, hidden)  # columns [stoch, action]
        self.prior_hidden = nn.Linear(deter, hidden)
        self.prior_output = nn.Linear(hidden, stats_size)
        self.posterior_hidden = nn.Linear(deter + embed, hidden)  # columns [deter, embed]
        self.posterior_output = nn.Linear(hidden, stats_size)

    def latent(self, stats: Tensor) -> Latent:
        """Turn raw statistics (..., stats_size) into a distribution."""
        raise NotImplementedError

    def draw_noise(self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
        """Noise for samples whose leading shape is `shape`."""
        raise NotImplementedError

    def sample(self, latent: Latent, noise: Tensor) -> Tensor:
        """Draw a flattened sample (..., stoch_size), float32."""
        raise NotImplementedError

    def initial(self, batch: int, device: torch.device | None = None) -> State:
        """The zero state every episode starts from; on the module's device unless one is given."""
        device = device or self.input.weight.device
        return State(
            torch.zeros(batch, self.stoch_size, device=device), torch.zeros(batch, self.deter_size, device=device)
        )

    def prior(self, deter: Tensor) -> Latent:
        """Distribution of the sample given the recurrent state (..., D) alone."""
        return self.latent(self.prior_output(F.elu(self.prior_hidden(deter))))

    def advance(self, state: State, action: Tensor) -> Tensor:
        """One recurrent step without a sample: (B, D) from a state and the action (B, A) taken in it."""
        # Products with the two blocks of columns are added, so no concatenation is written to memory.
        weight, size = self.input.weight, self.stoch_size
        x = F.linear(action, weight[:, size:], self.input.bias) + F.linear(state.stoch, weight[:, :size])
        return self.cell(F.elu(x), state.deter)

    def imagine_step(
        self, state: State, action: Tensor, noise: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> tuple[State, Latent]:
        """One prior step.

        Args:
            state: (B, ...).
            action: (B, A) action taken in `state`.
            noise: (B, S) standard normal (V1) or (B, S, C) Gumbel (V2) draws of the sample.
            generator: where the noise comes from when it is not given.

        Returns:
            The next state and the prior it was drawn from.
        """
        deter = self.advance(state, action)
        prior = self.prior(deter)
        if noise is None:
            noise = self.draw_noise(tuple(deter.shape[:-1]), deter.device, generator)
        return State(self.sample(prior, noise), deter), prior

    def unroll(self, steps: int, batch: int) -> Callable[[int, State, Tensor, Tensor], State]:
        """`imagine_step` as a function of (t, state, action, noise), for a loop over t = 0..steps-1.

        Inside the loop every product adds to a bias laid out before it, and weights are cast for autocast once.
        """
        size = self.stoch_size
        weight = self.input.weight
        into = StepLinear(step_offset(self.input.bias, steps, batch), weight[:, :size], weight[:, size:])
        advance = self.cell.unroll(steps, batch)
        hidden, output = (
            StepLinear(step_offset(layer.bias, steps, batch), layer.weight)
            for layer in (self.prior_hidden, self.prior_output)
        )

        def step(t: int, state: State, action: Tensor, noise: Tensor) -> State:
            deter = advance(t, F.elu(into(t, state.stoch, action)), state.deter)
            prior = self.latent(output(t, F.elu(hidden(t, deter))))
            return State(self.sample(prior, noise), deter)

        return step

    def observe(
        self,
        embed: Tensor,
        action: Tensor,
        is_first: Tensor | None = None,
        state: State | None = None,
        *,
        noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Observed[Latent]:
        """Infer the posterior states of a sequence.

        Args:
            embed: (T, B, E) frame embeddings.
            action: (T, B, A) action that LED to each frame.
            is_first: (T, B) nonzero where a frame starts an episode: the previous state and action are zeroed there.
                None: no frame does.
            state: the state before frame 0, (B, ...); None: zeros.
            noise: (T, B, S) standard normal (V1) or (T, B, S, C) Gumbel (V2) draws of the posterior samples.
            generator: where the noise comes from when it is not given.
        """
        steps, batch = embed.shape[:2]
        stoch, deter = self.initial(batch, embed.device) if state is None else state
        keep: tuple[Tensor, ...] | None = None
        if is_first is not None:
            mask = 1 - is_first.to(deter.dtype).unsqueeze(-1)
            action, keep = action * mask, mask.unbind(0)
        if noise is None:
            noise = self.draw_noise((steps, batch), embed.device, generator)
        noises = noise.unbind(0)
        split, out = self.deter_size, self.posterior_output
        w_in, w_post = self.input.weight, self.posterior_hidden.weight
        into = StepLinear(F.linear(action, w_in[:, self.stoch_size :], self.input.bias), w_in[:, : self.stoch_size])
        advance = self.cell.unroll(steps, batch)
        hidden = StepLinear(F.linear(embed, w_post[:, split:], self.posterior_hidden.bias), w_post[:, :split])
        output = StepLinear(step_offset(out.bias, steps, batch), out.weight)
        stats, stochs, deters = [], [], []
        for t in range(steps):
            if keep is not None:
                stoch, deter = stoch * keep[t], deter * keep[t]
            deter = advance(t, F.elu(into(t, stoch)), deter)
            raw = output(t, F.elu(hidden(t, deter)))
            stoch = self.sample(self.latent(raw), noises[t])
            stats.append(raw)
            stochs.append(stoch)
            deters.append(deter)
        states = State(torch.stack(stochs), torch.stack(deters))
        return Observed(states, self.latent(torch.stack(stats)), self.prior(states.deter))


class GaussianRSSM(RSSM[DiagonalGaussian]):
    """V1: diagonal Gaussian samples, plain GRU (Hafner et al. 2020, appendix A)."""

    def __init__(self, config: DreamerV1Config, action_size: int) -> None:
        super().__init__(config, action_size, config.stoch_size, 2 * config.stoch_size)
        self.min_std = config.min_std
        self.cell = GRUCell(config.hidden_size, config.deter_size)

    def latent(self, stats: Tensor) -> DiagonalGaussian:
        """Split (..., 2S) into means and raw spreads; the spread is `softplus(raw) + min_std`."""
        mean, raw = stats.float().chunk(2, -1)
        return DiagonalGaussian(mean, F.softplus(raw) + self.min_std)

    def draw_noise(self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
        """Standard normal (*shape, S)."""
        return standard_normal(torch.empty(*shape, self.stoch_size, device=device), generator)

    def sample(self, latent: DiagonalGaussian, noise: Tensor) -> Tensor:
        """`mean + std * noise`."""
        return latent.sample(noise)


class CategoricalRSSM(RSSM[OneHotCategorical]):
    """V2: S categorical variables of C classes with straight-through gradients (Hafner et al. 2021, section 2.1)."""

    def __init__(self, config: DreamerV2Config, action_size: int) -> None:
        flat = config.stoch_size * config.class_size
        super().__init__(config, action_size, flat, flat)
        self.variables = (config.stoch_size, config.class_size)
        self.cell = NormGRUCell(config.hidden_size, config.deter_size, config.layer_norm_eps)

    def latent(self, stats: Tensor) -> OneHotCategorical:
        """Read (..., S*C) as logits (..., S, C); raw probabilities, no uniform mixing."""
        return OneHotCategorical(stats.unflatten(-1, self.variables), event_dims=1)

    def draw_noise(self, shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
        """Standard Gumbel (*shape, S, C)."""
        return gumbel(torch.empty(*shape, *self.variables, device=device), generator)

    def sample(self, latent: OneHotCategorical, noise: Tensor) -> Tensor:
        """Flattened one-hot samples with straight-through gradients."""
        return latent.sample(noise).flatten(-2)


def build_rssm(config: DreamerConfig, action_size: int) -> GaussianRSSM | CategoricalRSSM:
    """The RSSM that belongs to the configuration's version."""
    if isinstance(config, DreamerV1Config):
        return GaussianRSSM(config, action_size)
    assert isinstance(config, DreamerV2Config)
    return CategoricalRSSM(config, action_size)
