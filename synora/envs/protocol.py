"""Protocols: the rules that make returns comparable, as frozen values with names and fingerprints.

Two results may stand in one table only if their fingerprints are equal. Every name has a training and an evaluation
variant; evaluation always means raw rewards and whole games.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from synora.core.config import Config, parse_overrides
from synora.core.errors import UsageError, unknown_value

# What a fingerprint stands for besides the fields: raised when the meaning of a field changes.
_MEANING = 1
_LIBRARIES = {"ale": "ale-py", "bsuite": "bsuite", "gym": "gymnasium", "dummy": ""}

# Fields beside the common ones (size, reward_clip) that a backend acts on.
_APPLIES = {
    "ale": ("sticky_prob", "noop_max", "max_pool", "grayscale", "life_loss", "max_frames", "frame_skip"),
    "bsuite": (),
    "gym": ("grayscale", "scale_actions", "max_frames", "frame_skip"),
    "dummy": ("life_loss",),
}
# Backend -> max_pool -> resize rules.
_RULES: dict[str, dict[str, tuple[str, ...]]] = {
    "ale": {"before-resize": ("area",), "off": ("area",), "after-resize": ("pil-bilinear",)},
    "gym": {"off": ("area",)},
    "bsuite": {"off": ("drawn",)},
    "dummy": {"off": ("drawn",)},
}

Backend = Literal["ale", "bsuite", "gym", "dummy"]


class Protocol(Config):
    """The rules one environment runs under; cannot be changed, only replaced (`replace(sticky_prob=0.25)`)."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(min_length=1, description="the named protocol this is or was made from")
    backend: Backend = Field(description="simulator")
    phase: Literal["train", "eval"] = Field(description="variant of the named protocol")
    library: str = Field(default="", description="simulator's library and version")
    frame_skip: int = Field(default=1, ge=1, le=100, description="simulator frames an agent step, same action, summed")
    max_pool: Literal["before-resize", "after-resize", "off"] = Field(
        default="off", description="elementwise maximum of the last two frames of a step"
    )
    size: int = Field(default=64, ge=1, le=1024, description="observation height and width in pixels")
    grayscale: bool = Field(default=False, description="one channel instead of RGB")
    interpolation: Literal["area", "pil-bilinear", "drawn"] = Field(
        default="area", description="resize rule: OpenCV's INTER_AREA, PIL's BILINEAR, or drawn at this size"
    )
    sticky_prob: float = Field(default=0.0, ge=0.0, le=1.0, description="chance a frame repeats the previous action")
    noop_max: int = Field(
        default=0, ge=0, le=1000, description="single no-op frames at a start, uniform from 1; 0: none"
    )
    life_loss: Literal["ignore", "end", "end-noop"] = Field(
        default="ignore",
        description="end: a lost life ends the episode, the next starts at its frame; end-noop: after a no-op step",
    )
    reward_clip: Literal["none", "sign"] = Field(default="none", description="what step() returns as the reward")
    action_set: Literal["minimal", "full"] = Field(default="minimal", description="buttons the game uses, or all 18")
    scale_actions: bool = Field(
        default=False, description="continuous actions are in [-1, 1] whatever the task's range"
    )
    max_frames: int | None = Field(
        default=None, ge=1, description="a game is cut after this many simulator frames; none: the task's own limit"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Protocol:
        if self.max_pool != "off" and self.frame_skip < 2:
            raise ValueError("max_pool needs a frame_skip of at least 2")
        if self.phase == "eval" and (self.life_loss != "ignore" or self.reward_clip != "none"):
            raise ValueError("evaluation means raw rewards and whole games: life_loss=ignore, reward_clip=none")
        allowed = _APPLIES[self.backend]
        for field in ("sticky_prob", "noop_max", "max_pool", "grayscale", "scale_actions", "life_loss", "max_frames"):
            if field not in allowed and getattr(self, field) != type(self).model_fields[field].default:
                raise ValueError(f"{field} does not apply to the {self.backend} backend")
        if "frame_skip" not in allowed and self.frame_skip != 1:
            raise ValueError(f"every step is one task step in the {self.backend} backend: frame_skip=1")
        if self.interpolation not in _RULES[self.backend].get(self.max_pool, ()):
            raise ValueError(
                f"interpolation {self.interpolation} does not go with max_pool {self.max_pool} in the {self.backend} "
                "backend (area goes with before-resize and off, pil-bilinear with after-resize)"
            )
        return self

    def replace(self, **changes: Any) -> Protocol:
        """Return a copy with some fields changed, validated again.

        Raises:
            ConfigError: unknown field, or a value that is not allowed.
        """
        return Protocol(**{**self.model_dump(), **changes})

    def train(self) -> Protocol:
        """Return the training variant; changes made with `replace` to other fields stay."""
        return self.replace(phase="train", **_NAMED.get(self.name, _Named()).train)

    def eval(self) -> Protocol:
        """Return the evaluation variant: raw rewards, whole games; changes made to other fields stay."""
        variant = _NAMED.get(self.name, _Named()).eval
        return self.replace(**{"phase": "eval", "life_loss": "ignore", "reward_clip": "none", **variant})

    def rules(self) -> dict[str, Any]:
        """Return the fields that decide what an agent sees: all but `name` and `phase`."""
        return self.model_dump(exclude={"name", "phase"})

    @property
    def fingerprint(self) -> str:
        """A digest of the rules, 16 hexadecimal digits; equal for equal rules, whatever their name."""
        text = json.dumps({"meaning": _MEANING, **self.rules()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """Return all fields and the fingerprint, ready for JSON."""
        return {**self.model_dump(), "fingerprint": self.fingerprint}

    def describe_text(self) -> str:
        """Return a line a field: value, then what the field means."""
        lines = [f"protocol {self.name} ({self.phase}), fingerprint {self.fingerprint}"]
        for field, info in type(self).model_fields.items():
            if field not in ("name", "phase"):
                value = getattr(self, field)
                lines.append(f"  {field:<14} {'-' if value in (None, '') else value!s:<15} {info.description}")
        return "\n".join(lines)


class _Named:
    """A named protocol: what its variants share, and what each adds."""

    def __init__(
        self,
        common: Mapping[str, Any] | None = None,
        *,
        train: Mapping[str, Any] | None = None,
        eval: Mapping[str, Any] | None = None,
        about: str = "",
    ) -> None:
        self.common, self.train, self.eval, self.about = dict(common or {}), dict(train or {}), dict(eval or {}), about


_ATARI = {"backend": "ale", "frame_skip": 4, "max_frames": 108_000}
_NAMED: dict[str, _Named] = {
    "atari-100k": _Named(
        {**_ATARI, "max_pool": "before-resize", "noop_max": 30},
        train={"life_loss": "end"},
        about="DIAMOND's: no sticky actions, 1 to 30 no-ops, maximum of two frames, then OpenCV's area resize",
    ),
    "iris-paper": _Named(
        {**_ATARI, "max_pool": "after-resize", "interpolation": "pil-bilinear"},
        train={"life_loss": "end-noop", "noop_max": 30, "max_frames": 20_000},
        eval={"noop_max": 1, "max_frames": 108_000},
        about="IRIS's: each frame resized by PIL's bilinear rule, then the maximum; one no-op in evaluation",
    ),
    "ale-v5": _Named(
        {**_ATARI, "max_pool": "before-resize", "sticky_prob": 0.25},
        about="sticky actions as in the ALE/<Game>-v5 ids (Machado et al. 2018); no no-op starts, lives ignored",
    ),
    "bsuite-pixels": _Named(
        {"backend": "bsuite", "interpolation": "drawn"},
        about="bsuite tasks, their compact observations drawn as images; every step one task step",
    ),
    "gym-pixels": _Named(
        {"backend": "gym", "scale_actions": True},
        about="Gymnasium's classic control and Box2D, rendered; continuous actions scaled to [-1, 1]",
    ),
    "dummy": _Named({"backend": "dummy", "interpolation": "drawn"}, about="the counting environment of the loop tests"),
}
DEFAULTS: Mapping[str, str] = {
    "ale": "atari-100k",
    "bsuite": "bsuite-pixels",
    "gym": "gym-pixels",
    "dummy": "dummy",
}


def protocol_names(backend: str | None = None) -> list[str]:
    """Return the named protocols, of one backend or all."""
    return [name for name, named in _NAMED.items() if backend in (None, named.common["backend"])]


def about(name: str) -> str:
    """Return what a named protocol stands for, in one line."""
    return _NAMED[name].about


def named_protocol(name: str, *, train: bool = False) -> Protocol:
    """Return a named protocol, with the version of the simulator that is installed.

    Args:
        name: one of `protocol_names()`, or one with changed rules: "gym-pixels,frame_skip=2".
        train: the training variant instead of the evaluation one.

    Raises:
        UsageError: no protocol has this name (with the closest match), or a rule or its value is not allowed.
    """
    base, *changes = str(name).split(",")
    if base not in _NAMED:
        raise unknown_value("protocol", base, _NAMED)
    named = _NAMED[base]
    phase = {"phase": "train", **named.train} if train else {"phase": "eval", **named.eval}
    protocol = Protocol(name=base, library=library_version(named.common["backend"]), **{**named.common, **phase})
    rules = parse_overrides(changes)
    if fixed := sorted({"name", "backend", "phase", "library"} & rules.keys()):
        raise UsageError(f"protocol {name!r}: {', '.join(fixed)} cannot be changed; rules such as frame_skip can.")
    return protocol.replace(**rules) if rules else protocol


def library_version(backend: str) -> str:
    """Return the backend's library and its installed version ("ale-py 0.12.1"), or the library with "none"."""
    library = _LIBRARIES[backend]
    if not library:
        return ""
    try:
        return f"{library} {metadata.version(library)}"
    except metadata.PackageNotFoundError:
        return f"{library} none"
