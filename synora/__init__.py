"""Synora: train, benchmark and measure world-model reinforcement-learning agents.

The names below are imported when they are first used: `import synora` loads neither torch nor anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from synora.configs.dreamer_config import DreamerConfig as DreamerConfig
    from synora.configs.dreamer_config import DreamerV1Config as DreamerV1Config
    from synora.configs.dreamer_config import DreamerV2Config as DreamerV2Config
    from synora.envs.factory import make_env as make_env
    from synora.envs.factory import make_vector_env as make_vector_env
    from synora.models.dreamer import DreamerAgent as DreamerAgent

__version__ = "0.1.0"

_HOMES = {
    "DreamerAgent": "synora.models.dreamer",
    "DreamerConfig": "synora.configs.dreamer_config",
    "DreamerV1Config": "synora.configs.dreamer_config",
    "DreamerV2Config": "synora.configs.dreamer_config",
    "make_env": "synora.envs.factory",
    "make_vector_env": "synora.envs.factory",
}
__all__ = [
    "DreamerAgent",
    "DreamerConfig",
    "DreamerV1Config",
    "DreamerV2Config",
    "__version__",
    "make_env",
    "make_vector_env",
]


if not TYPE_CHECKING:  # type checkers see the imports above, and complain about any other name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # the next access does not come here
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
