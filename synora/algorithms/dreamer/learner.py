"""One gradient update of a Dreamer agent: world model, actor and critic, in the order of each version's authors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.imagination import Behaviour, BehaviourOutput, behaviour_starts
from synora.algorithms.dreamer.optim import build_optimizer
from synora.algorithms.dreamer.world_model import ReplayBatch, WorldModel, WorldModelOutput
from synora.core.errors import UsageError
from synora.runtime.compilation import compile_modules
from synora.runtime.device import autocast_context
from synora.runtime.loop import require_finite
from synora.runtime.state import gather_state, restore_state

_AUTOCAST = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class Learner:
    """The networks, their three optimisers, and the update.

    V1 computes all three losses with the weights of before the update; V2 updates the world model first and imagines
    with the new weights from the posteriors of before (Hafner et al. 2020, algorithm 1; 2021, section 2).

    Args:
        config: sizes, loss scales, step sizes, precision.
        action_size: A, number of actions or of action dimensions.
        device: where the networks live.

    Raises:
        UsageError: float16 on a CPU, which has no loss scaling there.
        DependencyMissing: `compile` on a machine without a compiler.
    """

    def __init__(self, config: DreamerConfig, action_size: int, device: torch.device) -> None:
        if config.precision == "float16" and device.type != "cuda":
            raise UsageError("precision=float16 needs a CUDA device; use bfloat16 or float32.")
        self.config, self.device = config, device
        self.world_model = WorldModel(config, action_size).to(device)
        self.behaviour = Behaviour(config, action_size).to(device)
        self.updates = 0
        self._optimizers: dict[str, tuple[torch.optim.Optimizer, nn.Module]] = {
            name: (build_optimizer(config, [(module, lr)]), module)
            for name, module, lr in (
                ("model", self.world_model, config.model_lr),
                ("actor", self.behaviour.actor, config.actor_lr),
                ("critic", self.behaviour.critic, config.critic_lr),
            )
        }
        if config.compile:
            compile_modules(self._compiled(), device)
        self._scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")

    def update(self, batch: ReplayBatch, generator: torch.Generator | None = None) -> dict[str, float]:
        """Do one update.

        Args:
            batch: on the learner's device; every sequence starts from the zero state.
            generator: where the draws of posteriors, actions and imagined states come from.

        Returns:
            Losses, gradient norms before clipping, and means of what was imagined.

        Raises:
            NonFiniteError: a loss or gradient norm is NaN or infinite; no parameter of that optimiser was changed.
        """
        v1 = isinstance(self.config, DreamerV1Config)
        with self._autocast():
            model: WorldModelOutput = self.world_model(batch, generator=generator)
            behaviour = self._imagine(model, batch, generator) if v1 else None
        metrics = self._step({"model": model.loss})
        if behaviour is None:
            with self._autocast():
                behaviour = self._imagine(model, batch, generator)
        metrics |= self._step({"actor": behaviour.actor_loss, "critic": behaviour.critic_loss})
        self._scaler.update()
        if isinstance(self.config, DreamerV2Config) and self.updates % self.config.target_update_every == 0:
            self.behaviour.update_target()
        self.updates += 1
        shown = {**{f"{name}_loss": value for name, value in model.terms.items()}, "kl": model.kl.mean()}
        shown |= {f"imagined_{name}": value.mean() for name, value in behaviour.tensors.items()}
        return metrics | require_finite(shown)

    def state_dict(self) -> dict[str, Any]:
        """Return the networks, the optimisers and the counters, by part."""
        return {**gather_state(self._parts()), "counters": {"updates": self.updates}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned.

        Raises:
            FileError: other parts, or shapes that do not fit.
        """
        rest = dict(state)
        counters = rest.pop("counters", {})
        restore_state(self._parts(), rest)
        self.updates = int(counters["updates"])

    def _parts(self) -> dict[str, Any]:
        optimizers = {f"{name}_optimizer": optimizer for name, (optimizer, _) in self._optimizers.items()}
        return {
            "world_model": self.world_model,
            "behaviour": self.behaviour,
            **optimizers,
            "scaler": self._scaler,
        }

    def _compiled(self) -> list[nn.Module]:
        """What gains from the compiler. The recurrent loops would take it minutes and stay as they are."""
        world, behaviour = self.world_model, self.behaviour
        found = (world.encoder, world.decoder, world.reward, world.discount, behaviour.actor, behaviour.critic)
        return [module for module in (*found, behaviour.target_critic) if module is not None]

    def _autocast(self) -> Any:
        return autocast_context(self.device, _AUTOCAST[self.config.precision])

    def _imagine(
        self, model: WorldModelOutput, batch: ReplayBatch, generator: torch.Generator | None
    ) -> BehaviourOutput:
        start, is_terminal = behaviour_starts(self.config, model.observed.state, batch.is_terminal)
        out: BehaviourOutput = self.behaviour(self.world_model, start, is_terminal, generator=generator)
        return out

    def _step(self, losses: Mapping[str, Tensor]) -> dict[str, float]:
        """Back-propagate the named losses, clip, check and step their optimisers; return losses and norms."""
        chosen = {name: self._optimizers[name] for name in losses}
        for optimizer, _ in chosen.values():
            optimizer.zero_grad(set_to_none=True)
        # Each loss reaches its own network only, so one backward pass serves them all.
        self._scaler.scale(torch.stack(list(losses.values())).sum()).backward()
        found: dict[str, Tensor] = {f"{name}_objective": loss for name, loss in losses.items()}
        for name, (optimizer, module) in chosen.items():
            self._scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(module.parameters(), self.config.grad_clip)
            # Loss scaling skips a step whose gradients overflow, and lowers the scale: no reason to stop.
            found[f"{name}_grad_norm"] = norm.nan_to_num(posinf=0.0) if self._scaler.is_enabled() else norm
        metrics = require_finite(found)
        for optimizer, _ in chosen.values():
            self._scaler.step(optimizer)
        return metrics
