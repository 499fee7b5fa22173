"""Parity cases: numbers of the authors' code (outside the repository) and a few of our own (committed)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent
PARITY_DIR = Path(os.environ.get("SYNORA_PARITY_DIR") or HERE.parents[2] / "shared" / "parity")
GOLDEN_DIR = HERE / "golden"
STORED = ("out.", "grad.", "scalar.")


class Case:
    """One stored case: inputs, weights and the numbers they must give.

    Every stored output, gradient and scalar must be checked once, or excused by name with a reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        self.meta: dict[str, Any] = json.loads(path.read_text())
        self.config: dict[str, Any] = self.meta["config"]
        self.tensors = load_file(path.with_suffix(".safetensors"))
        self.stored = {k: v for k, v in self.tensors.items() if k.startswith(STORED)}
        for name, value in self.meta["scalars"].items():
            self.stored[f"scalar.{name}"] = torch.tensor(value, dtype=torch.float64)
        self.checked: set[str] = set()
        self.failures: list[str] = []

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The weights by their stored names."""
        return {k.removeprefix("state."): v for k, v in self.tensors.items() if k.startswith("state.")}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[f"in.{name}"]

    def has(self, name: str) -> bool:
        """Whether a number is stored."""
        return name in self.stored

    def scalars(self, prefix: str) -> list[str]:
        """Names of the stored scalars that begin with `prefix`."""
        return [k.removeprefix("scalar.") for k in self.stored if k.startswith(f"scalar.{prefix}")]

    def grads(self, group: str) -> list[str]:
        """Names, below `grad.` and the group, of the stored gradients of one group."""
        prefix = f"grad.{group}." if group else "grad."
        return [k.removeprefix(prefix) for k in self.stored if k.startswith(prefix)]

    def check(self, name: str, got: Any, laid_out: torch.Tensor | None = None) -> None:
        """Compare one number, if it is stored, by the file's own tolerance.

        `laid_out` is the stored number moved to the layout of `got`.
        """
        if name not in self.stored:
            return
        self.checked.add(name)
        want = (self.stored[name] if laid_out is None else laid_out).double()
        value = torch.as_tensor(got).detach().double()
        if value.numel() == want.numel() and want.dim() != value.dim():
            value = value.reshape(want.shape)  # a trailing axis of one, or none
        if value.shape != want.shape:
            self.failures.append(f"{name}: shape {tuple(value.shape)}, stored {tuple(want.shape)}")
            return
        allowed = self.meta["tolerance"]["atol"] + self.meta["tolerance"]["rtol"] * want.abs()
        excess = (value - want).abs() / allowed
        if not bool((excess <= 1).all()):
            self.failures.append(f"{name}: off by up to {float(excess.max()):.2f} times the tolerance")

    def finish(self, excused: dict[str, str]) -> None:
        """Fail on any number that is off or was not looked at."""
        left = sorted(k for k in self.stored if k not in self.checked and not any(part in k for part in excused))
        assert not self.failures, f"{self.name}: " + "; ".join(self.failures)
        assert not left, f"{self.name}: stored but never checked: {', '.join(left)}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "parity(model): run once for every stored case of a model, as argument `case`")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("parity")
    if marker is None:
        return
    model = marker.args[0]
    folder = PARITY_DIR / model
    paths = sorted(folder.glob("*.json")) + sorted((GOLDEN_DIR / model).glob("*.json"))
    params = [pytest.param(path, id=f"{path.stem}{'-golden' if GOLDEN_DIR in path.parents else ''}") for path in paths]
    if not folder.is_dir():
        reason = f"no parity data at {folder} (set SYNORA_PARITY_DIR)"
        params.append(pytest.param(None, id="authors", marks=pytest.mark.skip(reason=reason)))
    metafunc.parametrize("case", params, indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The case a test is parametrised with."""
    return Case(request.param)
