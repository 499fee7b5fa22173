"""From a resolved id and its rules to the environment: the one place that knows the backends' classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synora.core.errors import UsageError
from synora.envs.ids import EnvId
from synora.envs.interface import Env, check_seed
from synora.envs.protocol import Protocol


def build(resolved: EnvId, rules: Protocol, *, seed: int, options: Mapping[str, Any] | None = None) -> Env:
    """Make the environment of a resolved id; the backend's library is imported here."""
    seed = check_seed(seed)
    if options and resolved.backend != "dummy":
        raise UsageError(f"options {', '.join(options)} apply to the dummy environment only, not to {resolved.name}.")
    if resolved.backend == "ale":
        from synora.envs.atari import AtariEnv

        return AtariEnv(resolved.name, resolved.rom, rules, seed=seed)
    if resolved.backend == "bsuite":
        from synora.envs.bsuite import BsuiteEnv

        return BsuiteEnv(resolved.name, rules, seed=seed)
    if resolved.backend == "gym":
        from synora.envs.pixels import GymPixelsEnv

        return GymPixelsEnv(resolved.name, rules, seed=seed)
    from synora.envs.dummy import DummyEnv

    return DummyEnv(rules, seed=seed, continuous=resolved.name.endswith("continuous"), **(options or {}))
