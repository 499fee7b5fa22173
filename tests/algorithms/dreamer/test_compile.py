"""`compile=true` gives the same numbers under the same names, and says when it cannot work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.learner import Learner
from synora.algorithms.dreamer.world_model import ReplayBatch
from synora.core.errors import DependencyMissing
from synora.runtime import compilation

CPU = torch.device("cpu")


def learner(version: type[DreamerConfig], **changes: Any) -> Learner:
    torch.manual_seed(0)
    overrides = {"action_distribution": "onehot", "horizon": 3, **changes}
    return Learner(version.compose(preset="tiny", overrides=overrides), 3, CPU)


def update(one: Learner) -> dict[str, float]:
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(256, (4, 2, one.config.image_channels, 64, 64), dtype=torch.uint8, generator=generator)
    action = torch.eye(3)[torch.randint(3, (4, 2), generator=generator)]
    flags = torch.zeros(4, 2)
    return one.update(ReplayBatch(image, action, flags + 1, flags, flags), generator)


@pytest.mark.parametrize("version", [DreamerV1Config, DreamerV2Config])
def test_an_update_is_the_same_compiled_and_not(version: type[DreamerConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "BACKEND", "aot_eager")  # the same graphs, without waiting for a C++ compiler
    plain, compiled = learner(version), learner(version, compile=True)
    assert plain.world_model.state_dict().keys() == compiled.world_model.state_dict().keys()
    for _ in range(2):
        assert update(compiled) == pytest.approx(update(plain), rel=1e-4, abs=1e-6)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert before > 0
    update(compiled)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before, "every update compiles again"


def test_generated_code_gives_the_same_numbers() -> None:
    """One small part through the real compiler, forwards and backwards."""
    plain, compiled = learner(DreamerV2Config), learner(DreamerV2Config)
    compilation.compile_modules([compiled.behaviour.critic], CPU)
    x = torch.randn(5, plain.config.feature_size)
    for one in (plain, compiled):
        one.behaviour.critic(x).square().sum().backward()
    torch.testing.assert_close(compiled.behaviour.critic(x), plain.behaviour.critic(x), rtol=1e-4, atol=1e-6)
    for a, b in zip(plain.behaviour.critic.parameters(), compiled.behaviour.critic.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


def test_a_machine_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("\nno g++ here\nsecond line")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(DependencyMissing, match=r"compile=true needs a C\+\+ compiler .*\(no g\+\+ here\)"):
        learner(DreamerV2Config, compile=True)
