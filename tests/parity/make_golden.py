"""Write the committed cases under golden/dreamer: our own numbers at very small sizes, laid out like the parity data.

They are what a lone clone can check; the authors' numbers are outside the repository. Run from the repository root when
a number is meant to change:  python tests/parity/make_golden.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import conftest  # noqa: E402
import test_dreamer  # noqa: E402

V1 = {
    "action_size": 2, "stoch_size": 3, "deter_size": 5, "cnn_depth": 1, "num_units": 6, "discount": 0.99,
    "discount_lambda": 0.95, "free_nats": 0.01, "kl_scale": 1.0, "pcont_scale": 10.0,
}  # fmt: skip
V2 = {
    "action_size": 3, "stoch": 2, "discrete": 4, "deter": 5, "hidden": 6, "cnn_depth": 1, "units": 6, "layers": 2,
    "discount": 0.99, "discount_lambda": 0.95, "kl_balance": 0.8, "kl_free": 0.0, "kl_scale": 0.1,
    "discount_scale": 5.0, "actor_ent": 0.001, "actor_grad_mix": 0.1, "layer_norm_eps": 0.001, "pred_discount": True,
    "continuous": False, "channels": 1,
}  # fmt: skip
CONTINUOUS = V2 | {"pred_discount": False, "continuous": True, "actor_min_std": 0.1, "actor_init_std": 0.0}
STEPS, BATCH, HORIZON = 2, 2, 4


class Recorder(conftest.Case):
    """A case that stores what it is asked to check."""

    def __init__(self, name: str, config: dict[str, Any], inputs: dict[str, torch.Tensor]) -> None:
        self.name, self.config, self.meta = name, config, {"own_names": True}
        self.tensors = {f"in.{k}": v for k, v in inputs.items()}
        self.stored, self.checked = {}, set()
        self.wanted: list[str] = []

    def has(self, name: str) -> bool:
        return True

    def grads(self, group: str) -> list[str]:
        keep = {"actor": "actor.", "value": "critic.", "critic": "critic."}.get(group.split("_")[0], "")
        keep = "actor." if group.startswith(("reinforce", "dynamics")) else keep
        return [n for n in self.wanted if n.startswith(keep)]

    def check(self, name: str, got: Any, laid_out: torch.Tensor | None = None) -> None:
        self.stored[name] = torch.as_tensor(got).detach().clone()


def gumbel(*shape: int) -> torch.Tensor:
    return -torch.log(-torch.log(torch.rand(*shape).clamp(1e-6, 1 - 1e-6)))


def inputs_of(name: str) -> dict[str, torch.Tensor]:
    version, channels = name[:2], 3 if name.startswith("v1") else 1
    c: dict[str, Any] = V1 if version == "v1" else V2
    classes = (BATCH, V2["stoch"], V2["discrete"])
    if "world_model" in name:
        common = {
            "image": torch.randint(256, (STEPS, BATCH, channels, 64, 64), dtype=torch.uint8),
            "action": torch.randn(STEPS, BATCH, c["action_size"]).tanh(),
        }
        if version == "v1":
            draws = {"reward": torch.randn(STEPS, BATCH, 1), "discount": torch.tensor([[[1.0], [1.0]], [[0.0], [1.0]]])}
            return common | draws | {"eps_post": torch.randn(STEPS, BATCH, c["stoch_size"])}
        flags = {"terminal": torch.tensor([[0.0, 0.0], [1.0, 0.0]]), "is_first": torch.tensor([[1.0, 0.0], [0.0, 1.0]])}
        draws = {"raw_reward": torch.randn(STEPS, BATCH)} | {
            k: gumbel(STEPS, *classes) for k in ("gumbel_post", "gumbel_prior")
        }
        return common | flags | draws
    actions = (HORIZON, BATCH, c["action_size"])
    if version == "v1":
        start = {"start_stoch": torch.randn(BATCH, 3), "start_deter": torch.randn(BATCH, 5).tanh()}
        return start | {"action_eps": torch.randn(actions), "prior_eps": torch.randn(HORIZON, BATCH, 3)}
    hard = torch.nn.functional.one_hot(torch.randint(V2["discrete"], classes[:-1]), V2["discrete"]).float()
    noise = {"uniform_action": torch.rand(actions), "gumbel_action": gumbel(*actions)}
    chosen = "uniform_action" if "trunc" in name else "gumbel_action"
    return {
        "start_stoch": hard, "start_deter": torch.randn(BATCH, 5).tanh(), "terminal": torch.tensor([0.0, 1.0]),
        chosen: noise[chosen], "gumbel_prior": gumbel(HORIZON, *classes),
    }  # fmt: skip


def record(name: str, config: dict[str, Any], seed: int) -> None:
    torch.manual_seed(seed)
    check, make_config, extra = test_dreamer.CHECKS[name]
    assert make_config is not None
    case = Recorder(name, config, inputs_of(name))
    models = test_dreamer.Models(case, make_config(config, **extra))
    unused = ("encoder", "decoder") if "behaviour" in name else ("actor", "critic", "target_critic")
    kept = {n: p for n, p in models.named() if not any(part in n.split(".")[:2] for part in unused)}
    with torch.no_grad():
        for parameter in kept.values():
            parameter.add_(0.1 * torch.randn_like(parameter))
    # The decoder's largest matrix is left out to keep the files small; the gradient norm covers it.
    case.wanted = [n for n, p in kept.items() if p.requires_grad and ".decoder.first" not in n]
    state = {f"state.{n}": p.detach().clone() for n, p in kept.items()}
    check(case, models)
    scalars = {k.removeprefix("scalar."): float(v) for k, v in case.stored.items() if k.startswith("scalar.")}
    tensors = {k: v.contiguous() for k, v in case.stored.items() if not k.startswith("scalar.")}
    folder = HERE / "golden" / "dreamer"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(case.tensors | state | tensors, folder / f"{name}.safetensors")
    meta = {
        "source": "synora, this repository: numbers of our own code, to notice a change", "own_names": True,
        "config": config, "tolerance": {"rtol": 1e-4, "atol": 1e-4 if "world_model" in name else 1e-5},
        "scalars": scalars,
    }  # fmt: skip
    (folder / f"{name}.safetensors").chmod(0o644)
    (folder / f"{name}.json").write_text(json.dumps(meta, indent=1) + "\n")


if __name__ == "__main__":
    record("v1_world_model_loss", V1, 1)
    record("v1_behaviour", V1, 2)
    record("v2_world_model_loss", V2, 3)
    record("v2_behaviour_onehot", V2, 4)
    record("v2_behaviour_trunc_normal", CONTINUOUS, 5)
