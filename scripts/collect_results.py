#!/usr/bin/env python3
"""Put the results of many jobs into one set of tables. `synora collect` is the same thing.

python scripts/collect_results.py results/atari100k --strict
"""

import sys
from pathlib import Path

try:
    import synora  # noqa: F401
except ModuleNotFoundError:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from synora.cli import main

if __name__ == "__main__":
    sys.exit(main(["collect", *sys.argv[1:]]))
