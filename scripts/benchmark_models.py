#!/usr/bin/env python3
"""Measure the cost of world models on synthetic tensors. `synora sweep` is the same thing.

Append your own model to CASES below: a builder that returns the module, and a function that makes its inputs.

    from torch import nn, randn

    CASES.append(
        BenchCase(
            name="my-encoder",
            family="mine",
            description="a linear layer",
            build=lambda scale: nn.Linear(512, 512),
            inputs=lambda scale: randn(scale.batch_size, 512),
        )
    )

Then: python scripts/benchmark_models.py --models my-encoder
"""

import sys
from pathlib import Path

try:
    import synora  # noqa: F401
except ModuleNotFoundError:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from synora.cli import main
from synora.compute.case import BenchCase
from synora.compute.catalog import builtin_cases

CASES: list[BenchCase] = builtin_cases()


if __name__ == "__main__":
    sys.exit(main(["sweep", "--cases", __file__, *sys.argv[1:]]))
