"""`python -m synora.benchmarks.atari_100k …`: the command `synora atari-100k …` where the documents look for it."""

from __future__ import annotations

import sys

from synora.cli.app import main as synora


def main() -> int:
    """Run `synora atari-100k` with this program's arguments and return its exit code."""
    return synora(["atari-100k", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
