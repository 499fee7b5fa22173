"""Checkpoints: a folder of safetensors and JSON that appears whole, by one rename, or not at all.

    checkpoints/step-000001000/
        manifest.json        whose state this is, its step, and the sha256 of every other file
        state.json           the state's structure and every value in it that is not a tensor
        PART.safetensors     the tensors of one part of the state ("agent", "optimizer", "streams", ...)

No pickle is written or read, nothing in a checkpoint is executed, and it holds no path, so a folder can be moved.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from synora.core.errors import FileError
from synora.core.files import read_json
from synora.runtime.manifest import (
    HINT,
    MANIFEST,
    AgentSpec,
    FileEntry,
    Manifest,
    parse_manifest,
    read_manifest,
    require_spec,
)
from synora.runtime.state import flatten, sync_folder, unflatten

__all__ = [
    "CHECKPOINTS",
    "AgentSpec",
    "Checkpoint",
    "Manifest",
    "clean",
    "export_checkpoint",
    "latest",
    "list_checkpoints",
    "load_checkpoint",
    "prune",
    "read_manifest",
    "save_checkpoint",
]

STATE = "state.json"
CHECKPOINTS = "checkpoints"  # the folder of checkpoints in a run's folder
_NAME = re.compile(r"step-(\d{9,})(?:-(\d+))?")
_PART = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: its manifest and the state, by part; tensors are on the CPU."""

    path: Path
    manifest: Manifest
    state: dict[str, Any]


def save_checkpoint(
    folder: str | os.PathLike[str],
    *,
    spec: AgentSpec,
    config: Mapping[str, Any],
    step: int,
    state: Mapping[str, Any],
    score: float | None = None,
    note: str | None = None,
) -> Path:
    """Write a checkpoint and return its path; readers see it only when all of it is on disk.

    Args:
        folder: where the run's checkpoints are.
        spec: the agent and what it acts on.
        config: JSON values.
        step: environment interactions so far. A step saved twice gets a second folder, which is the later one.
        state: one entry a part; see `flatten` for what may be in it.
        score: evaluation result of exactly this state, higher is better.
        note: why it was written, when not on schedule.

    Raises:
        FileError: the folder cannot be written or the disk is full; earlier checkpoints are untouched.
        TypeError: the state holds something that is neither tensor, array nor plain value.
    """
    if bad := [name for name in state if not _PART.fullmatch(name)]:
        raise ValueError(f"parts of a state are named in letters, digits and underscores: {bad}")
    parent = Path(folder)
    tensors, plain = flatten(state)
    manifest = Manifest(spec=spec, config=dict(config), step=step, score=score, note=note)
    temporary = parent / f".step-{step:09d}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        temporary.mkdir(parents=True)
        files = {STATE: _write(temporary / STATE, json.dumps(plain, allow_nan=False).encode())}
        for name in state:
            part = {key: value for key, value in tensors.items() if key.split("/")[0] == name}
            if part:
                files[f"{name}.safetensors"] = _write_tensors(temporary / f"{name}.safetensors", part)
        text = manifest.model_copy(update={"files": files}).model_dump_json(indent=2)
        _write(temporary / MANIFEST, text.encode() + b"\n")
        sync_folder(temporary)
        target = _free_name(parent, step)
        os.rename(temporary, target)
        sync_folder(parent)
    except (OSError, safetensors.SafetensorError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        raise FileError(
            f"cannot write a checkpoint in {parent}: {reason}. Free space there; earlier checkpoints are whole."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # nothing is left of it after the rename
    return target


def list_checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the committed checkpoints in a folder, oldest first."""
    try:
        found = [path for path in Path(folder).iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=_order)


def latest(folder: str | os.PathLike[str]) -> Path | None:
    """Return the newest committed checkpoint in a folder, None when there is none."""
    found = list_checkpoints(folder)
    return found[-1] if found else None


def prune(folder: str | os.PathLike[str], *, keep_last: int, keep_best: bool = True) -> list[Path]:
    """Delete all checkpoints but the newest `keep_last` (at least 1) and, if asked, the best; return what was deleted.

    The best is the one with the highest score, the newer of equals. One whose manifest cannot be read is kept.
    """
    found = list_checkpoints(folder)
    scores: dict[Path, float] = {}
    unreadable = set()
    for path in found:
        try:
            score = read_manifest(path).score
        except FileError:
            unreadable.add(path)
        else:
            if score is not None:
                scores[path] = score
    keep = {*found[-max(1, keep_last) :], *unreadable}
    if keep_best and scores:
        keep.add(max(scores, key=lambda path: (scores[path], _order(path))))
    gone = [path for path in found if path not in keep]
    for path in gone:
        # Out of the readers' sight first: a deletion that is killed leaves no half checkpoint.
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        with contextlib.suppress(OSError):
            os.rename(path, hidden)
            shutil.rmtree(hidden, ignore_errors=True)
    return gone


def clean(folder: str | os.PathLike[str]) -> list[Path]:
    """Remove what killed writers left behind; call it only where no other process writes. Returns what was removed."""
    try:
        stale = [path for path in Path(folder).iterdir() if re.fullmatch(r"\.step-\d.*\.tmp", path.name)]
    except OSError:
        return []
    for path in stale:
        shutil.rmtree(path, ignore_errors=True)
    return stale


def load_checkpoint(
    path: str | os.PathLike[str], *, spec: AgentSpec | None = None, parts: Collection[str] | None = None
) -> Checkpoint:
    """Load a checkpoint, every byte of it checked.

    Args:
        path: a checkpoint folder, a run folder or folder of checkpoints (its newest), or a file from
            `export_checkpoint`.
        spec: what the loader needs; None: anything.
        parts: which parts to load; None: all.

    Raises:
        FileError: missing, truncated, altered, for another agent, observation shape or number of actions, from a newer
            synora, without a part that was asked for, or another kind of file. Pickles are never opened.
    """
    target = Path(path)
    if target.is_dir():
        return _load_folder(_checkpoint_in(target), spec, parts)
    if target.is_file():
        return _load_file(target, spec, parts)
    raise FileError(f"checkpoint {target} does not exist. {HINT}")


def export_checkpoint(
    path: str | os.PathLike[str], file: str | os.PathLike[str], *, parts: Collection[str] = ("agent",)
) -> Path:
    """Write chosen parts of a checkpoint as one safetensors file that `load_checkpoint` reads.

    Raises:
        FileError: as `load_checkpoint`, or the file cannot be written.
    """
    checkpoint = load_checkpoint(path, parts=parts)
    tensors, plain = flatten(checkpoint.state)
    about = checkpoint.manifest.model_copy(update={"files": {}}).model_dump_json()
    target = Path(file)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_tensors(temporary, tensors, {"synora": about, "state": json.dumps(plain, allow_nan=False)})
        os.replace(temporary, target)
    except (OSError, safetensors.SafetensorError) as error:
        raise FileError(f"cannot write {target}: {error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _write(path: Path, content: bytes) -> FileEntry:
    """Write a file to the disk, not only to the page cache, and return its entry for the manifest."""
    with open(path, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return FileEntry(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def _write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> FileEntry:
    safetensors.torch.save_file(tensors, path, metadata)
    with open(path, "rb+") as stream:
        os.fsync(stream.fileno())
    return _entry(path)


def _entry(path: Path) -> FileEntry:
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return FileEntry(sha256=digest.hexdigest(), bytes=stream.tell())


def _order(path: Path) -> tuple[int, int]:
    """Sort key of a checkpoint's name: the step, then which of that step."""
    match = _NAME.fullmatch(path.name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, 0)


def _free_name(folder: Path, step: int) -> Path:
    """Return the name after the last one that this step already has."""
    used = [order[1] for order in map(_order, list_checkpoints(folder)) if order[0] == step]
    return folder / (f"step-{step:09d}-{max(used) + 1}" if used else f"step-{step:09d}")


def _checkpoint_in(folder: Path) -> Path:
    """Return the checkpoint that a folder is or holds."""
    if (folder / MANIFEST).is_file() or _NAME.fullmatch(folder.name):
        return folder
    found = latest(folder / CHECKPOINTS) or latest(folder)
    if found is None:
        raise FileError(f"{folder} holds no synora checkpoint. {HINT}")
    return found


def _chosen(available: Collection[str], parts: Collection[str] | None, source: Path) -> list[str]:
    """Return the parts to load, in the checkpoint's order."""
    if missing := sorted(set(parts or ()) - set(available)):
        raise FileError(f"{source} has no part {', '.join(missing)}; it has {', '.join(available)}.")
    return [name for name in available if parts is None or name in parts]


def _load_folder(folder: Path, spec: AgentSpec | None, parts: Collection[str] | None) -> Checkpoint:
    manifest = read_manifest(folder)
    if spec is not None:
        require_spec(manifest, spec, folder)
    _verify(folder, STATE, manifest)
    plain = read_json(folder / STATE)
    if not isinstance(plain, dict):
        raise FileError(f"{folder / STATE} is not the state of a checkpoint.")
    tensors: dict[str, Tensor] = {}
    chosen = _chosen(plain, parts, folder)
    for name in chosen:
        file = f"{name}.safetensors"
        if file in manifest.files and _PART.fullmatch(name):
            _verify(folder, file, manifest)
            tensors.update(_read_tensors(folder / file)[0])
    return Checkpoint(folder, manifest, _assemble(tensors, plain, chosen, folder))


def _load_file(file: Path, spec: AgentSpec | None, parts: Collection[str] | None) -> Checkpoint:
    try:
        with open(file, "rb") as stream:
            start = stream.read(9)
    except OSError as error:
        raise FileError(f"cannot read {file}: {error.strerror or error}.") from error
    # Safetensors begin with a length of eight bytes, which may be any, and a brace.
    if start[8:] != b"{" and (start[:2] == b"PK" or start[:1] == b"\x80"):
        raise FileError(
            f"{file} is a pickle or an archive of one, which runs code when it is loaded; it was not opened. {HINT}"
        )
    tensors, metadata = _read_tensors(file)
    try:
        about, plain = json.loads(metadata["synora"]), json.loads(metadata["state"])
    except (KeyError, ValueError, RecursionError) as error:
        raise FileError(f"{file} holds tensors, but not from `export_checkpoint` of synora. {HINT}") from error
    if not isinstance(plain, dict):
        raise FileError(f"{file} is damaged: it says nothing of what its tensors are.")
    manifest = parse_manifest(about, file)
    if spec is not None:
        require_spec(manifest, spec, file)
    return Checkpoint(file, manifest, _assemble(tensors, plain, _chosen(plain, parts, file), file))


def _verify(folder: Path, name: str, manifest: Manifest) -> None:
    """Raise FileError unless a file is byte for byte the one that was saved."""
    path, wanted = folder / name, manifest.files.get(name)
    if wanted is None:
        raise FileError(f"{folder} is damaged: its manifest does not list {name}.")
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):  # reading a device or a pipe may never end
            raise FileError(f"{path} is not a file.")
        if info.st_size != wanted.bytes:
            raise FileError(f"{path} is truncated or altered: {info.st_size} bytes, {wanted.bytes} were saved.")
        found = _entry(path)
    except OSError as error:
        raise FileError(f"{folder} is damaged: cannot read {name}: {error.strerror or error}.") from error
    if found.sha256 != wanted.sha256:
        raise FileError(f"{path} is damaged: its content is not what was saved (sha256 differs).")


def _read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safetensors.safe_open(file, framework="pt") as stream:
            # Copies, because the file's tensors stand at any address: the last bits of a matrix product depend on
            # where its inputs stand, so that a state used as it was read would go on other than the saved one.
            return {key: stream.get_tensor(key).clone() for key in stream.keys()}, stream.metadata() or {}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{file} is not a whole safetensors file ({reason}). {HINT}") from error


def _assemble(tensors: dict[str, Tensor], plain: Any, chosen: list[str], source: Path) -> dict[str, Any]:
    try:
        return {name: unflatten(tensors, plain[name]) for name in chosen}
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:  # a RecursionError is one too
        raise FileError(f"{source} is damaged: its state does not fit its tensors ({error}).") from error
