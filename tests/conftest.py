"""Shared by all tests: quiet OpenMP, and a file of small cases as a user would append them to CASES."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# Before torch is imported anywhere: spinning OpenMP threads starve the other test workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

CASES = '''
import os, signal, sys, time

import torch
from torch import nn

from synora.compute.case import BenchCase


class Nan(nn.Module):
    def forward(self, x):
        return x * float("nan")


class NanGradient(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return (x * 0 + self.weight).sqrt().sum()


class Fixed(nn.Module):
    """Returns tensors in every kind of container."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, x, scale=1.0):
        y = self.linear(x) * scale
        return {"y": (y, [y * 2]), "index": y.argmax(-1)}


def image(scale):
    return torch.rand(scale.batch_size, 3, scale.image_size, scale.image_size)


def vector(scale):
    return torch.randn(scale.batch_size, 16)


def hog(scale):
    kept = []
    while True:
        kept.append(torch.ones(2**24))


def slow_forward():
    class Slow(nn.Linear):
        def forward(self, x):
            time.sleep(1000)
    return Slow(16, 4)


def mlp(scale):
    return nn.Sequential(nn.Linear(16, 32), nn.ELU(), nn.Linear(32, 4))


CASES = [
    BenchCase(name="mlp", family="good", description="two layers", build=mlp, inputs=vector, clip_norm=1.0),
    BenchCase(name="conv", family="good", build=lambda s: nn.Conv2d(3, 8, 3), inputs=image, image_sizes=(32, 64),
              items=lambda s: s.batch_size * 2, unit="frames", paper_sizes={"batch_size": 5, "image_size": 32}),
    BenchCase(name="nested", family="good", build=lambda s: Fixed(), inputs=lambda s: {"x": vector(s), "scale": 2.0}),
    BenchCase(name="frozen", family="good", build=mlp, inputs=vector, trains=False),
    BenchCase(name="big", family="large", heavy=True, build=lambda s: nn.Linear(16, 4), inputs=vector),
    BenchCase(name="nothing", family="bad", build=lambda s: None, inputs=vector),
    BenchCase(name="nan", family="bad", build=lambda s: Nan(), inputs=vector),
    BenchCase(name="nan-gradient", family="bad", build=lambda s: NanGradient(), inputs=vector),
    BenchCase(name="raises", family="bad", build=lambda s: 1 / 0, inputs=vector),
    BenchCase(name="wrong-inputs", family="bad", build=mlp, inputs=lambda s: "text"),
    BenchCase(name="no-floats", family="bad", build=lambda s: nn.Identity(), inputs=lambda s: torch.ones(2).long()),
    BenchCase(name="segfault", family="bad", build=lambda s: os.kill(os.getpid(), signal.SIGSEGV), inputs=vector),
    BenchCase(name="killed", family="bad", build=lambda s: os.kill(os.getpid(), signal.SIGKILL), inputs=vector),
    BenchCase(name="leaves", family="bad", build=lambda s: os._exit(7), inputs=vector),
    BenchCase(name="hangs", family="hanging", build=lambda s: slow_forward(), inputs=vector),
    BenchCase(name="hog", family="greedy", build=hog, inputs=vector),
]
'''


@pytest.fixture
def case_file(tmp_path: Path) -> Path:
    path = tmp_path / "my cases.py"
    path.write_text(CASES)
    return path


@pytest.fixture
def require_tool() -> Callable[..., str]:
    """Return the path of the first program there is; without any, CI fails and another machine skips the test."""

    def require(*names: str) -> str:
        for name in names:
            if found := shutil.which(name):
                return found
        if os.environ.get("CI"):
            pytest.fail(f"CI has no {names[0]}")
        pytest.skip(f"no {names[0]}")

    return require


@pytest.fixture
def compile_latex(tmp_path: Path, require_tool: Callable[..., str]) -> Callable[[str], str]:
    """Compile a document's body with pdflatex and return the printed text, its spaces and line breaks as one space."""
    pdflatex, pdftotext = require_tool("pdflatex"), require_tool("pdftotext")

    def compile_body(body: str) -> str:
        folder = tmp_path / "latex"
        folder.mkdir(exist_ok=True)
        # With the default fonts, too; in the text of those, an underscore is a drawn line.
        for fonts in ("", r"\usepackage[T1]{fontenc}\usepackage{lmodern}"):
            (folder / "page.tex").write_text(
                rf"\documentclass{{article}}{fonts}\usepackage{{booktabs}}"
                r"\usepackage[paperwidth=90cm,paperheight=90cm]{geometry}"
                rf"\begin{{document}}{body}\end{{document}}",
                encoding="utf-8",
            )
            command = [pdflatex, "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
            assert done.returncode == 0, done.stdout[-3000:]
        command = [pdftotext, "-layout", "page.pdf", "-"]
        text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout
        return re.sub(r"\s+", " ", text)

    return compile_body
