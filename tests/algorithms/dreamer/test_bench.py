"""The sweep's cases build, run and train at the tiny preset, and say how much they process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from synora.algorithms.dreamer.bench import CASES
from synora.algorithms.dreamer.bench_modules import BehaviourStep
from synora.compute.case import BenchCase, Scale


@pytest.mark.parametrize("sizes", [(2, 3), (1, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_full_step_changes_every_trained_parameter(case: BenchCase, sizes: tuple[int, int]) -> None:
    torch.manual_seed(0)
    scale = Scale(preset="tiny", batch_size=sizes[0], seq_len=sizes[1], image_size=64)
    module = case.build(scale)
    inputs = case.inputs(scale)
    assert isinstance(inputs, tuple)
    before = {k: v.clone() for k, v in module.named_parameters() if v.requires_grad}
    assert case.optimizer is not None
    optimizer = case.optimizer(module)
    out = module(*inputs)
    flat = out if isinstance(out, tuple) else (out,)
    loss = out if isinstance(out, torch.Tensor) and out.dim() == 0 else sum(x.float().square().mean() for x in flat)
    assert isinstance(loss, torch.Tensor) and torch.isfinite(loss)
    loss.backward()
    optimizer.step()
    if sizes == (2, 3):
        unchanged = [k for k, v in module.named_parameters() if k in before and torch.equal(v, before[k])]
        # A divergence below the free nats of V1 trains nothing, so the prior alone may stay where it was.
        allowed = ("prior_hidden", "prior_output") if case.name == "dreamerv1-world-model" else ()
        assert not [k for k in unchanged if k.endswith("weight") and not any(part in k for part in allowed)]
    frames = sizes[0] * sizes[1]
    assert case.items(scale) == (frames * 5 if case.name.endswith("behaviour") else frames)


def test_behaviour_trains_actor_and_critic_only() -> None:
    for case in CASES:
        scale = Scale(preset="tiny", batch_size=2, seq_len=2, image_size=64)
        module = case.build(scale)
        if isinstance(module, BehaviourStep):
            module(*case.inputs(scale)).backward()
            assert all(p.grad is None for p in module.world_model.parameters())
            assert case.optimizer is not None and len(case.optimizer(module).param_groups) == 2


def test_paper_sizes_are_the_authors() -> None:
    sizes = {case.name: dict(case.paper_sizes) for case in CASES}
    assert len(sizes) == 10
    assert sizes["dreamerv1-world-model"] == {"batch_size": 50, "seq_len": 50, "image_size": 64}
    assert sizes["dreamerv2-behaviour"] == {"batch_size": 16, "seq_len": 50, "image_size": 64}


def test_listing_does_not_load_torch() -> None:
    code = "import sys, synora.algorithms.dreamer.bench, synora.algorithms.dreamer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
