"""Registries: names mapped to `"module:attribute"` texts, imported only when asked for.

Planning and submitting run on login nodes without torch, so a registry never imports what it lists until `load`.
Other packages add entries through an entry-point group, without an edit here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from synora.core.errors import SynoraError, UsageError, unknown_value


class Registry:
    """A closed set of names of one kind, loaded late.

    Args:
        kind: what a name stands for, used in error messages ("agent", "job kind").
        entries: name -> "module:attribute".
        group: entry-point group that third-party packages may add names through; None for none.
    """

    def __init__(self, kind: str, entries: Mapping[str, str], *, group: str | None = None) -> None:
        self.kind = kind
        self._entries = dict(entries)
        self._group = group

    def names(self) -> list[str]:
        """Return every known name, sorted, without importing anything they stand for."""
        return sorted(self._all())

    def load(self, name: str) -> Any:
        """Import and return what `name` stands for.

        Raises:
            UsageError: the name is unknown (with the closest match).
            SynoraError: the module or attribute behind it cannot be imported.
        """
        target = self._all().get(name)
        if target is None:
            raise unknown_value(self.kind, name, self.names())
        module_name, _, attribute = target.partition(":")
        try:
            return getattr(importlib.import_module(module_name), attribute)
        except (Exception, SystemExit) as error:  # a missing CUDA library is an OSError, a broken file a SyntaxError, …
            detail = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(".")
            raise SynoraError(f"{self.kind} {name!r} ({target}) cannot be loaded: {detail}.") from error

    def _all(self) -> dict[str, str]:
        """Return built-in and entry-point entries; two packages claiming one name is an error."""
        merged = dict(self._entries)
        if self._group is not None:
            for point in entry_points(group=self._group):
                if merged.get(point.name, point.value) != point.value:
                    raise UsageError(
                        f"{self.kind} {point.name!r} is claimed by both {merged[point.name]} and {point.value}; "
                        f"uninstall one of the packages that register it in {self._group!r}."
                    )
                merged[point.name] = point.value
        return merged
