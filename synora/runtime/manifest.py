"""The manifest of a checkpoint: whose state it is, and what its files must be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from synora import __version__
from synora.core.errors import FileError, first_problem
from synora.core.files import read_json

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
HINT = "Give a synora checkpoint folder, a run folder, or a .safetensors file that synora exported."


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class AgentSpec(_Record):
    """What a checkpoint must have in common with whoever loads it.

    Attributes:
        agent: registered name, such as "dreamerv2".
        observation_shape: of one frame as the agent takes it, such as [3, 64, 64].
        action_count: number of actions, or of action dimensions.
        action_kind: whether actions are chosen from a list or are vectors.
    """

    agent: str
    observation_shape: list[int]
    action_count: int = Field(ge=1)
    action_kind: Literal["discrete", "continuous"] = "discrete"


class FileEntry(_Record):
    """Size and sha256 of a file."""

    sha256: str
    bytes: int = Field(ge=0)


class Manifest(_Record):
    """What a checkpoint says of itself.

    Attributes:
        format_version: of the layout; a reader refuses versions above its own.
        synora: version that wrote it.
        spec: the agent and what it acts on.
        config: composed configuration of the run.
        step: environment interactions of the agent so far.
        score: result of an evaluation of exactly this state; None when it was not evaluated.
        note: why it was written, when not on schedule.
        files: every other file of the folder, its size and sha256.
    """

    format_version: int = FORMAT_VERSION
    synora: str = __version__
    spec: AgentSpec
    config: dict[str, JsonValue]
    step: int = Field(ge=0)
    score: float | None = None
    note: str | None = None
    files: dict[str, FileEntry] = Field(default_factory=dict)


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read the manifest of a checkpoint folder.

    Raises:
        FileError: missing, truncated, from a newer synora, or not a checkpoint; the message names the path.
    """
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise FileError(f"{folder} is not a synora checkpoint: it has no {MANIFEST}. {HINT}")
    return parse_manifest(read_json(folder / MANIFEST), folder)


def parse_manifest(value: Any, source: Path) -> Manifest:
    """Return the manifest that JSON values hold; errors as `read_manifest`, naming `source`."""
    if not isinstance(value, dict) or not isinstance(value.get("format_version"), int):
        raise FileError(f"{source} is not a synora checkpoint: its manifest has no format version. {HINT}")
    if value["format_version"] < 1:
        raise FileError(f"{source} has checkpoint format {value['format_version']}, and formats count from 1. {HINT}")
    if value["format_version"] > FORMAT_VERSION:
        raise FileError(
            f"{source} was written by synora {value.get('synora')} in checkpoint format {value['format_version']}; "
            f"this synora {__version__} reads up to format {FORMAT_VERSION}. Upgrade synora."
        )
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        raise FileError(f"{source} has a manifest that is not valid: {first_problem(error, 'manifest')}.") from error


def require_spec(manifest: Manifest, spec: AgentSpec, source: Path) -> None:
    """Raise FileError, naming both values, when a checkpoint is for another agent or environment."""
    for name, label in (
        ("agent", "agent"),
        ("observation_shape", "observation shape"),
        ("action_kind", "action kind"),
        ("action_count", "action count"),
    ):
        has, wanted = getattr(manifest.spec, name), getattr(spec, name)
        if has != wanted:
            raise FileError(f"{source} is a checkpoint for {label} {has}, and {wanted} is needed here.")
