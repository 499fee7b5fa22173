"""Name and layout of the reference implementations' weights in terms of ours.

V1 keys are those of juliusfrost/dreamer-pytorch, V2 keys those of Eclectic-Sheep/sheeprl, the torch ports the authors'
numbers were checked with; TensorFlow weights moved to those layouts come in the same way. Two matrices have their
column blocks swapped: ours follow the authors' order (V1 `[stoch, action]`, V2 `[x, state]`), the ports' do not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config

_V1_RULES = (
    (r"observation_encoder\.convolutions\.", "world_model.encoder.layers."),
    (r"observation_decoder\.linear\.", "world_model.decoder.linear."),
    (r"observation_decoder\.decoder\.0\.", "world_model.decoder.first."),
    (r"observation_decoder\.decoder\.(\d+)\.", "world_model.decoder.layers.<-1>."),
    (r"(?:representation\._transition_model|transition)\._rnn_input_model\.0\.", "world_model.rssm.input."),
    (r"(?:representation\._transition_model|transition)\._cell\.(weight|bias)_ih", r"world_model.rssm.cell.input.\1"),
    (r"(?:representation\._transition_model|transition)\._cell\.(weight|bias)_hh", r"world_model.rssm.cell.state.\1"),
    (
        r"(?:representation\._transition_model|transition)\._stochastic_prior_model\.0\.",
        "world_model.rssm.prior_hidden.",
    ),
    (
        r"(?:representation\._transition_model|transition)\._stochastic_prior_model\.2\.",
        "world_model.rssm.prior_output.",
    ),
    (r"representation\._stochastic_posterior_model\.0\.", "world_model.rssm.posterior_hidden."),
    (r"representation\._stochastic_posterior_model\.2\.", "world_model.rssm.posterior_output."),
    (r"reward_model\.model\.", "world_model.reward.layers."),
    (r"pcont\.model\.", "world_model.discount.layers."),
    (r"value_model\.model\.", "critic.layers."),
    (r"action_decoder\.feedforward_model\.", "actor.mlp.layers."),
)
_V2_RULES = (
    (r"world_model\.encoder\.cnn_encoder\.model\.0\._model\.", "world_model.encoder.layers."),
    (r"world_model\.observation_model\.cnn_decoder\.model\.0\.", "world_model.decoder.linear."),
    (r"world_model\.observation_model\.cnn_decoder\.model\.2\._model\.0\.", "world_model.decoder.first."),
    (r"world_model\.observation_model\.cnn_decoder\.model\.2\._model\.(\d+)\.", "world_model.decoder.layers.<-1>."),
    (r"world_model\.rssm\.recurrent_model\.mlp\._model\.0\.", "world_model.rssm.input."),
    (r"world_model\.rssm\.recurrent_model\.rnn\.linear\.", "world_model.rssm.cell.linear."),
    (r"world_model\.rssm\.recurrent_model\.rnn\.layer_norm\.", "world_model.rssm.cell.norm."),
    (r"world_model\.rssm\.transition_model\._model\.0\.", "world_model.rssm.prior_hidden."),
    (r"world_model\.rssm\.transition_model\._model\.2\.", "world_model.rssm.prior_output."),
    (r"world_model\.rssm\.representation_model\._model\.0\.", "world_model.rssm.posterior_hidden."),
    (r"world_model\.rssm\.representation_model\._model\.2\.", "world_model.rssm.posterior_output."),
    (r"world_model\.reward_model\._model\.", "world_model.reward.layers."),
    (r"world_model\.continue_model\._model\.", "world_model.discount.layers."),
    (r"critic\._model\.", "critic.layers."),
    (r"target_critic\._model\.", "target_critic.layers."),
    (r"actor\.model\._model\.", "actor.mlp.layers."),
    (r"actor\.mlp_heads\.0\.", "actor.mlp.layers.<head>."),
)


def convert_name(key: str, config: DreamerConfig) -> str:
    """Translate one state key; the result starts with `world_model.`, `actor.`, `critic.` or `target_critic.`.

    Raises:
        KeyError: the key belongs to no known part.
    """
    for pattern, replacement in _V1_RULES if isinstance(config, DreamerV1Config) else _V2_RULES:
        match = re.match(pattern, key)
        if match is None:
            continue
        if "<-1>" in replacement:
            # Ours counts the decoder's layers from the activation behind the first transposed convolution.
            replacement = replacement.replace("<-1>", str(int(match.group(1)) - 1))
        replacement = replacement.replace("<head>", str(2 * config.actor_layers))
        return match.expand(replacement) + key[match.end() :]
    raise KeyError(f"no Dreamer part is called {key!r}.")


def convert(state: Mapping[str, Tensor], config: DreamerConfig) -> dict[str, Tensor]:
    """Translate a state_dict, or any part of one; gradients of parameters translate the same way.

    Args:
        state: tensors by the port's names.
        config: the configuration they belong to (its version and sizes).

    Returns:
        Tensors by our names, prefixed with the component they belong to.

    Raises:
        KeyError: a key belongs to no known part. The V1 port's aliases under `rollout.` are skipped.
    """
    out: dict[str, Tensor] = {}
    for key, value in state.items():
        if key.startswith("rollout."):
            continue
        name = convert_name(key, config)
        if name == "world_model.rssm.input.weight" and isinstance(config, DreamerV1Config):
            actions = value.shape[1] - config.stoch_size
            value = torch.cat([value[:, actions:], value[:, :actions]], 1)
        elif name == "world_model.rssm.cell.linear.weight":
            value = torch.cat([value[:, config.deter_size :], value[:, : config.deter_size]], 1)
        out[name] = value
    return out
