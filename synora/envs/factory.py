"""The only way to an environment: `make_env` for one, `make_vector_env` for several stepped together."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from synora.core.errors import UsageError
from synora.envs.backends import build
from synora.envs.ids import EnvId, resolve
from synora.envs.interface import Env, check_seed
from synora.envs.protocol import DEFAULTS, Protocol, library_version, named_protocol, protocol_names
from synora.envs.vector import VectorEnv


def make_env(
    env_id: str,
    *,
    backend: str = "auto",
    protocol: str | Protocol | None = None,
    seed: int = 0,
    train: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Env:
    """Make one environment.

    Args:
        env_id: any spelling ("Breakout-v5", "catch/0", "Pendulum-v1").
        backend: "auto", "ale", "bsuite" or "gym".
        protocol: a name, a `Protocol` (used as it is, but for the version of the library, which becomes the installed
            one), or None for the backend's default (`atari-100k`, `bsuite-pixels`, `gym-pixels`).
        seed: base seed; game k is seeded with `episode_seed(seed, k)`.
        train: the named protocol's training variant (with `atari-100k` a lost life ends an episode).
        options: constructor values of the dummy environment.

    Returns:
        The environment; call `reset()` first, `close()` at the end (or use it in a `with`).

    Raises:
        UsageError: unknown id, backend or protocol, or a protocol of another backend.
        DependencyMissing: a library or data set is missing; the message says how to get it.

    Warns:
        UserWarning: the id means rules in Gymnasium that change returns and do not apply here.
    """
    resolved, rules = resolve_env(env_id, backend=backend, protocol=protocol, train=train)
    if resolved.differs:
        warnings.warn(resolved.note, stacklevel=2)
    return build(resolved, rules, seed=seed, options=options)


def make_vector_env(
    env_id: str,
    num_envs: int,
    *,
    backend: str = "auto",
    protocol: str | Protocol | None = None,
    seed: int = 0,
    train: bool = False,
    workers: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> VectorEnv:
    """Make `num_envs` environments that are stepped together.

    Args:
        env_id: as in `make_env`.
        num_envs: how many, at least 1.
        backend: as in `make_env`.
        protocol: as in `make_env`.
        seed: base seed; game k of all environments together is seeded with `episode_seed(seed, k)`.
        train: as in `make_env`.
        workers: processes that step them, each a share of the environments; 0 steps them all in this process; None
            takes as many as this process may use CPUs, at most `num_envs`. Results do not depend on it.
        options: as in `make_env`.

    Raises:
        UsageError, DependencyMissing: as `make_env`, or a count that is not allowed.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise UsageError(f"num_envs {num_envs!r} is not a whole number of at least 1.")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
        raise UsageError(f"workers {workers!r} is not a whole number of at least 0.")
    resolved, rules = resolve_env(env_id, backend=backend, protocol=protocol, train=train)
    if resolved.differs:
        warnings.warn(resolved.note, stacklevel=2)
    return VectorEnv(resolved, rules, num_envs, seed=check_seed(seed), workers=workers, options=dict(options or {}))


def resolve_env(
    env_id: str, *, backend: str = "auto", protocol: str | Protocol | None = None, train: bool = False
) -> tuple[EnvId, Protocol]:
    """Return the task and the rules that `make_env` would use, without making anything: for checks before long work.

    Raises:
        UsageError: as `make_env`.
    """
    resolved = resolve(env_id, backend)
    if isinstance(protocol, Protocol):
        rules = protocol
    else:
        rules = named_protocol(DEFAULTS[resolved.backend] if protocol is None else protocol, train=train)
    if rules.backend != resolved.backend:
        raise UsageError(
            f"protocol {rules.name!r} is for the {rules.backend} backend, {resolved.name} is in {resolved.backend}; "
            f"its protocols: {', '.join(protocol_names(resolved.backend))}."
        )
    # A protocol read from a checkpoint may name another version: the rules must say what really runs.
    return resolved, rules.replace(library=library_version(rules.backend))
