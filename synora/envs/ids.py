"""Every spelling users write for an environment, resolved to one backend and one task.

An id names a task and nothing else: frame skip, sticky actions and all other rules come from the `Protocol`. Where
Gymnasium's id of the same spelling means other rules, the resolved id says so in its note.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from synora.core.errors import DependencyMissing, UsageError, closest, unknown_value

BACKENDS = ("ale", "bsuite", "gym")
# Needs a download that bsuite itself starts; see `bsuite.py`.
BSUITE_DATA = ("mnist", "mnist_noise", "mnist_scale")
_ATARI = re.compile(
    r"^(?:ale/)?(?P<game>[a-z0-9_ -]+?)(?P<kind>noframeskip|deterministic|-ram(?:noframeskip)?)?"
    r"(?:-v(?P<version>\d+))?$"
)
_GYM_PACKAGES = ("gymnasium.envs.classic_control", "gymnasium.envs.box2d")
# The emulator has the file of this game, but no support for it: loading it ends the process.
_UNSUPPORTED = ("joust",)
BSUITE_LINE = "bsuite tasks need bsuite: pip install 'synora[bsuite]'"


@dataclass(frozen=True)
class EnvId:
    """A resolved environment id.

    Attributes:
        backend: "ale", "bsuite", "gym" or "dummy".
        name: the canonical spelling ("Breakout", "catch/0", "Pendulum-v1").
        rom: the emulator's name of an Atari game, else "".
        note: one line where the spelling means something else elsewhere, else "".
        differs: the note is about rules that change returns, so that it must not pass silently.
    """

    backend: str
    name: str
    rom: str = ""
    note: str = ""
    differs: bool = False


def resolve(text: str, backend: str = "auto") -> EnvId:
    """Resolve any spelling of an environment.

    Args:
        text: as the user wrote it.
        backend: "auto", or the only backend to look in.

    Raises:
        UsageError: no environment has this name, with the closest one; or the backend does not exist.
        DependencyMissing: the backend it belongs to is not installed.
    """
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"environment {text!r} is empty; write a name such as Breakout, catch/0 or Pendulum-v1.")
    if backend not in ("auto", "dummy", *BACKENDS):
        match = closest(str(backend), ("auto", *BACKENDS))
        guess = f" Did you mean {match!r}?" if match else ""
        raise UsageError(f"unknown backend {backend!r}.{guess} Allowed: auto, {', '.join(BACKENDS)}.")
    name = text.strip()
    if backend == "dummy" or (backend == "auto" and re.match(r"^dummy(/|$)", name.lower())):
        return _dummy(name)
    if backend == "ale":
        found = _atari(name)
    elif backend == "bsuite":
        found = _bsuite(name)
    elif backend == "gym":
        found = _gym(name)
    elif re.match(r"^[a-z_]+/-?\d+$", name, re.IGNORECASE) and not name.lower().startswith("ale/"):
        found = _bsuite(name)
    else:
        found = _atari(name) or _gym(name)
    if found is None:
        raise _unknown(name, backend)
    return found


def list_names(backend: str) -> list[str]:
    """Return every environment of a backend that can be made, by canonical name.

    Raises:
        UsageError: the backend does not exist.
        DependencyMissing: its library is not installed.
    """
    if backend == "ale":
        return sorted(atari_games())
    if backend == "bsuite":
        return [name for name in bsuite_tasks() if name.split("/")[0] not in BSUITE_DATA]
    if backend == "gym":
        return sorted(gym_tasks())
    raise unknown_value("backend", backend, BACKENDS)


@cache
def atari_games() -> dict[str, str]:
    """Return canonical name -> rom name of every Atari game, without importing the emulator."""
    spec = importlib.util.find_spec("ale_py")
    if spec is None or not spec.submodule_search_locations:
        raise DependencyMissing("Atari games need ale-py: pip install ale-py")
    folder = Path(spec.submodule_search_locations[0]) / "roms"
    stems = sorted(path.stem for path in folder.glob("*.bin"))
    if not stems:
        raise DependencyMissing(f"ale-py has no games in {folder}: pip install --force-reinstall ale-py")
    return {stem.title().replace("_", ""): stem for stem in stems if stem not in _UNSUPPORTED}


@cache
def bsuite_tasks() -> dict[str, int]:
    """Return every task of the installed bsuite sweep and its number of episodes."""
    if importlib.util.find_spec("bsuite") is None:
        raise DependencyMissing(BSUITE_LINE)
    from bsuite import sweep

    return {str(name): int(sweep.EPISODES[name]) for name in sweep.SWEEP}


@cache
def gym_tasks() -> tuple[str, ...]:
    """Return the newest version of every classic-control and Box2D task of the installed Gymnasium."""
    newest: dict[str, str] = {}
    for name in _gym_versions():
        newest[name.rpartition("-v")[0]] = name  # versions come in ascending order
    return tuple(newest.values())


def _gym_versions() -> list[str]:
    import gymnasium

    found = [
        (spec.id.rpartition("-v")[0], spec.version or 0, spec.id)
        for spec in gymnasium.registry.values()
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith(_GYM_PACKAGES) and spec.namespace is None
    ]
    return [name for _, _, name in sorted(found)]


def _dummy(name: str) -> EnvId:
    kinds = {"dummy": "dummy", "dummy/discrete": "dummy", "dummy/continuous": "dummy/continuous"}
    if name.lower() not in kinds:
        raise UsageError(f"unknown dummy environment {name!r}. Allowed: {', '.join(kinds)}.")
    return EnvId("dummy", kinds[name.lower()])


def _atari(name: str) -> EnvId | None:
    match = _ATARI.match(name.lower())
    if match is None:
        return None
    games = {_plain(stem): (title, stem) for title, stem in atari_games().items()}
    found = games.get(_plain(match["game"]))
    if found is None:
        return None
    title, rom = found
    kind, version = match["kind"] or "", match["version"]
    if kind.startswith("-ram"):
        raise UsageError(
            f"environment {name!r} observes the emulator's memory; Synora's observations are images: {title}."
        )
    if version not in (None, "0", "4", "5") or (version == "5" and kind) or (kind and version is None):
        raise UsageError(
            f"environment {name!r}: {title} has no such version. Write {title}, {title}-v5 or "
            f"{title}NoFrameskip-v4; the protocol sets the rules."
        )
    note, differs = _atari_note(name, kind, version)
    return EnvId("ale", title, rom, note, differs)


def _atari_note(name: str, kind: str, version: str | None) -> tuple[str, bool]:
    here = "here the id only names the game and the protocol sets frame skip and sticky actions"
    if version == "5":
        return f"{name}: Gymnasium's id has sticky actions (0.25); {here} (ale-v5 has them).", False
    if version in ("0", "4") and not kind:
        return f"{name}: Gymnasium's id skips a random 2 to 4 frames, which is never done; {here}.", True
    if kind == "deterministic":
        return f"{name}: the Deterministic ids are gone from ale-py; {here}.", False
    if version == "0":
        return f"{name}: Gymnasium's -v0 ids have sticky actions (0.25); {here} (ale-v5 has them).", True
    return "", False


def _bsuite(name: str) -> EnvId | None:
    tasks = bsuite_tasks()
    wanted = name.lower().removeprefix("bsuite/").replace("-", "_")
    if wanted in tasks:
        return EnvId("bsuite", wanted)
    families = sorted({task.split("/")[0] for task in tasks})
    family = wanted.partition("/")[0]
    if family in families:
        count = sum(task.startswith(f"{family}/") for task in tasks)
        raise UsageError(
            f"unknown bsuite task {name!r}: {family} has {count} settings, {family}/0 to {family}/{count - 1}."
        )
    return None


def _gym(name: str) -> EnvId | None:
    versions = _gym_versions()
    wanted = name.lower()
    exact = {task.lower(): task for task in versions}
    if wanted in exact:
        return EnvId("gym", exact[wanted])
    newest = {task.rpartition("-v")[0].lower(): task for task in gym_tasks()}
    base = re.sub(r"-v\d+$", "", wanted)
    if base in newest:
        if base == wanted:
            return EnvId("gym", newest[base])
        raise UsageError(
            f"environment {name!r} does not exist in the installed Gymnasium. Did you mean {newest[base]!r}?"
        )
    return None


def _unknown(name: str, backend: str) -> UsageError:
    known = {task: task for which in (BACKENDS if backend == "auto" else (backend,)) for task in _known(which)}
    stem = re.sub(r"(noframeskip|deterministic)?(-v\d+)?$", "", re.sub(r"^ale/", "", name, flags=re.I), flags=re.I)
    match = closest(name, known) or closest(stem, known)
    guess = f" Did you mean {match!r}?" if match else ""
    where = f"in backend {backend}" if backend != "auto" else "as an Atari game, bsuite task or Gymnasium pixel task"
    return UsageError(f"unknown environment {name!r} {where}.{guess} `synora envs list` shows all.")


def _known(backend: str) -> Iterable[str]:
    try:
        return list_names(backend)
    except DependencyMissing:
        return ()


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
