"""The config layer: typed, strict, assignable, composed from presets, a YAML file and overrides.

A config class declares its fields with types and bounds; `compose` layers YAML file < preset < `key=value` overrides,
later layers winning. A preset that the file itself names is what the file's own values start from, and gives way to one
named outside. Nothing here executes code that a file brings.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import PurePath
from typing import Any, ClassVar, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from synora.core.errors import ConfigError, closest

# Far above any configuration, far below what stalls the parser.
MAX_FILE_CHARACTERS = 1_000_000


class Config(BaseModel):
    """Base of every config: unknown fields and wrong types are errors, and fields can be assigned afterwards.

    Subclasses list their named sizes in `PRESETS`; `Sub.compose(preset="tiny", overrides=["seed=1"])` builds one.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, validate_assignment=True, validate_default=True, allow_inf_nan=False
    )

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explain(type(self), error) from None

    # Pydantic's own mark for an `__init__` that only passes its arguments on: without it, validation of a nested
    # config, or of JSON, goes through `__init__`, which loses JSON mode and the path to the field.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        before, fields_set = dict(self.__dict__), set(self.model_fields_set)
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            explained = _explain(type(self), error)
            # A validator of the whole model runs after the assignment: take it back.
            object.__setattr__(self, "__dict__", before)
            object.__setattr__(self, "__pydantic_fields_set__", fields_set)
            raise explained from None

    @classmethod
    def compose(
        cls,
        *,
        file: str | os.PathLike[str] | None = None,
        preset: str | None = None,
        overrides: Iterable[str] | Mapping[str, Any] = (),
    ) -> Self:
        """Build a config from layers.

        Args:
            file: a YAML mapping of field names; it may name a `preset` to start from.
            preset: a name in `PRESETS`; its values win over the file's.
            overrides: `key=value` texts (values parsed as YAML, so `1e-4`, `true`, `[1, 2]` work) or a mapping; a
                `preset` among them is taken instead of the argument.

        Raises:
            ConfigError: unknown key or preset, wrong type, value out of bounds, unreadable file. One line, with the
                closest match.
        """
        from_file = read_yaml_mapping(file) if file is not None else {}
        given = dict(overrides) if isinstance(overrides, Mapping) else parse_overrides(overrides)
        own = from_file.pop("preset", None)
        asked = preset is not None or "preset" in given
        chosen = given.pop("preset", preset) if asked else own
        sizes = {} if chosen is None else cls.preset_values(chosen)
        # A preset asked for outside comes after the file; one that the file names is what the file starts from.
        values = {**from_file, **sizes, **given} if asked else {**sizes, **from_file, **given}
        if chosen is not None and "preset" in cls.model_fields:
            values["preset"] = chosen
        try:
            # JSON mode stays strict, but takes a YAML list where the field is a tuple.
            content = json.dumps(values, default=_as_json)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{cls.__name__}: a value has no place in a config: {_one_line(error)}.") from error
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise _explain(cls, error) from None

    @classmethod
    def preset_values(cls, preset: str) -> Mapping[str, Any]:
        """Return the field values of a named preset.

        Raises:
            ConfigError: the preset does not exist.
        """
        if not isinstance(preset, str) or preset not in cls.PRESETS:
            match = closest(str(preset), cls.PRESETS)
            guess = f" Did you mean {match!r}?" if match else ""
            raise ConfigError(
                f"unknown preset {preset!r} for {cls.__name__}.{guess} Allowed: {', '.join(cls.PRESETS) or '(none)'}."
            )
        return cls.PRESETS[preset]

    def to_yaml(self) -> str:
        """Return the composed config as YAML that `compose(file=…)` reads back to an equal config."""
        return str(yaml.dump(self.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False))


def read_yaml_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a YAML file that holds one mapping; safe loading only.

    Raises:
        ConfigError: missing, unreadable, not YAML, or not a mapping.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(MAX_FILE_CHARACTERS + 1)
        if len(text) > MAX_FILE_CHARACTERS:
            raise ConfigError(f"config file {str(path)!r} is too large: more than {MAX_FILE_CHARACTERS} characters.")
        content = _load_yaml(text)
    except OSError as error:
        raise ConfigError(f"cannot read config file {str(path)!r}: {error.strerror or error}.") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"config file {str(path)!r} is not valid YAML: {_one_line(error)}.") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"config file {str(path)!r} must hold a mapping of field names to values.")
    return content


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Turn `key=value` texts into a mapping, values read as YAML scalars or lists.

    Raises:
        ConfigError: a text without `=`, with an empty key, or whose value is not YAML.
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, separator, raw = text.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"override {text!r} is not of the form key=value.")
        try:
            values[key.strip()] = _load_yaml(raw)
        except ValueError as error:
            raise ConfigError(f"override {text!r}: the value is not valid YAML: {_one_line(error)}.") from error
    return values


def _load_yaml(text: str) -> Any:
    """Return what YAML text holds; everything malformed text makes the loader raise becomes a ValueError."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _as_json(value: object) -> Any:
    """Turn the non-JSON values that YAML and callers of `compose` bring into JSON ones."""
    if isinstance(value, date):  # `name=2026-01-01` is a date to YAML and a text to its author
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} ({value!r})")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).removesuffix(".")


class _Loader(yaml.SafeLoader):
    """The safe loader, reading `1e-4` as a number (YAML 1.1 demands a dot there, which nobody writes).

    A key that stands twice is an error, and so is an alias: nine lines of them stand for gigabytes.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases."""
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.constructor.ConstructorError(None, None, "aliases (*name) are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(twice)} stands there twice")
        return dict(super().construct_mapping(node, deep=deep))


class _Dumper(yaml.SafeDumper):
    """The safe dumper, quoting the texts that `_Loader` would read as numbers."""


for _end in (_Loader, _Dumper):
    _end.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)[eE][-+]?[0-9]+$"),
        list("-+0123456789."),
    )


def _explain(cls: type[BaseModel], error: ValidationError) -> ConfigError:
    """Turn pydantic's report into one line that names the field, the value and what is allowed."""
    problems = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in item["loc"]) or cls.__name__
        if item["type"] in {"extra_forbidden", "no_such_attribute"}:
            fields = _fields_beside(cls, item["loc"])
            match = closest(str(item["loc"][-1]), fields)
            guess = f" Did you mean {match!r}?" if match else f" Allowed: {', '.join(fields)}."
            problems.append(f"unknown field {field!r}.{guess}")
        elif item["type"] == "missing":
            problems.append(f"field {field!r} is required.")
        else:
            problems.append(f"field {field!r}: {item['msg'].removeprefix('Value error, ')} (got {item['input']!r}).")
    return ConfigError(" ".join(f"{cls.__name__}: {' '.join(problems)}".split()))


def _fields_beside(cls: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the (nested) config that the last part of `path` was looked up in."""
    for part in path[:-1]:
        field = cls.model_fields.get(str(part))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return []
        cls = field.annotation
    return list(cls.model_fields)
