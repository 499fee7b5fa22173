"""The `synora` command. Nothing here, nor anything it imports at start, imports torch."""

from synora.cli.app import main

__all__ = ["main"]
