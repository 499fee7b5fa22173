"""`python -m synora` is the same as `synora`."""

import sys

from synora.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
