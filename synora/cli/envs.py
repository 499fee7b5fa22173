"""`synora envs`: what environments there are, and the rules they run under."""

from __future__ import annotations

import json

from synora.core.errors import EXIT_OK, DependencyMissing, UsageError


def list_envs(backend: str | None = None) -> int:
    """Print every environment that can be made, one a line.

    Args:
        backend: "ale", "bsuite" or "gym"; None for all that are installed, each name after its backend.

    Raises:
        UsageError: the backend does not exist.
        DependencyMissing: its library is not installed.
    """
    from synora.envs.ids import BACKENDS, list_names

    if backend is not None and backend != "auto":
        print("\n".join(list_names(backend)))
        return EXIT_OK
    for each in BACKENDS:
        try:
            names = list_names(each)
        except DependencyMissing as error:
            print(f"{each:<7} ({error})")
            continue
        print("\n".join(f"{each:<7} {name}" for name in names))
    return EXIT_OK


def describe(name: str, *, train: bool = False, json_output: bool = False) -> int:
    """Print the rules of a protocol, or of an environment under its default protocol.

    Args:
        name: a protocol ("atari-100k", "gym-pixels,frame_skip=2") or any spelling of an environment.
        train: the training variant.
        json_output: one JSON object instead of lines.

    Raises:
        UsageError: neither a protocol nor an environment has this name.
    """
    from synora.envs.factory import resolve_env
    from synora.envs.protocol import about, named_protocol, protocol_names

    facts: dict[str, str | int] = {}
    if name.split(",")[0] in protocol_names():
        protocol = named_protocol(name, train=train)
    else:
        try:
            resolved, protocol = resolve_env(name, train=train)
        except UsageError as error:
            raise UsageError(f"{error} Protocols: {', '.join(protocol_names())}.") from None
        facts = {"environment": resolved.name, "backend": resolved.backend}
        if resolved.note:
            facts["note"] = resolved.note
        if resolved.backend == "bsuite":
            from synora.envs.ids import bsuite_tasks

            facts["bsuite_num_episodes"] = bsuite_tasks()[resolved.name]
    if json_output:
        print(json.dumps({**facts, "protocol": protocol.describe()}, indent=2))
        return EXIT_OK
    for key, value in facts.items():
        print(f"{key}: {value}")
    print(protocol.describe_text())
    print(f"  ({about(protocol.name)})")
    return EXIT_OK
