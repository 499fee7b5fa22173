"""`python -m synora.benchmarks.cli …`: the command `synora benchmark …` under its older name."""

from __future__ import annotations

import sys

from synora.cli.app import main as synora


def main() -> int:
    """Run `synora benchmark` with this program's arguments and return its exit code."""
    return synora(["benchmark", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
