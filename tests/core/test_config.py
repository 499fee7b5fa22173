"""The config layer: layering, strictness, one-line errors, and files that try to do harm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field, model_validator

from synora.core.config import Config
from synora.core.errors import ConfigError

AWKWARD_TEXTS = (
    *("1e5", "1e-4", "-1E5", ".5e3", "yes", "null", "~", "", "12", "0x1f", "1_0e2", "2026-01-02", "<<"),
    *("a: b # c", "two\nlines\n", " spaces ", "é\u2028\t\x07", "'\""),
)


class Net(Config):
    """A config with presets, one field of each type."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 8, "sizes": (1, 2)},
        "small": {"width": 16, "lr": 0.5},
    }

    width: int = Field(default=4, ge=1, le=64)
    lr: float = Field(default=1e-3, gt=0)
    name: str = "net"
    sizes: tuple[int, ...] = (3,)
    clip: float | None = 1.0
    flag: bool = False


class Named(Net):
    """A config that records the preset it was built from."""

    preset: str | None = None


class Outer(Config):
    """A config inside a config."""

    inner: Net = Net()
    depth: int = 1


class Ordered(Config):
    """A config whose fields constrain each other."""

    low: int = 0
    high: int = 5

    @model_validator(mode="after")
    def _ordered(self) -> Ordered:
        if self.low > self.high:
            raise ValueError("low is above\nhigh")
        return self


def yaml_file(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(call: Any, *args: Any, **kwargs: Any) -> str:
    """Call, expect one line of ConfigError with exit code 2, and return the line."""
    with pytest.raises(ConfigError) as caught:
        call(*args, **kwargs)
    line = str(caught.value)
    assert caught.value.exit_code == 2
    assert line
    assert "\n" not in line
    return line


# ---- layers


def test_later_layers_win(tmp_path: Path) -> None:
    file = yaml_file(tmp_path, "width: 32\nname: file\n")
    assert Net.compose().width == 4
    assert Net.compose(preset="small").width == 16
    composed = Net.compose(preset="small", file=file, overrides=["name=line"])
    assert (composed.width, composed.lr, composed.name, composed.sizes) == (16, 0.5, "line", (3,))


def test_a_preset_the_file_names_is_what_the_file_starts_from(tmp_path: Path) -> None:
    file = yaml_file(tmp_path, "preset: small\nwidth: 32\n")
    composed = Net.compose(file=file, overrides=["name=line"])
    assert (composed.width, composed.lr, composed.name, composed.sizes) == (32, 0.5, "line", (3,))


@pytest.mark.parametrize(
    ("in_file", "argument", "override", "expected"),
    [
        ("tiny", None, None, "tiny"),
        ("tiny", "small", None, "small"),
        (None, "small", "tiny", "tiny"),
        ("small", "small", "tiny", "tiny"),
        ("small", None, "null", None),
        (None, None, None, None),
    ],
)
def test_the_preset_named_last_is_the_one_applied(
    tmp_path: Path, in_file: str | None, argument: str | None, override: str | None, expected: str | None
) -> None:
    file = yaml_file(tmp_path, f"preset: {in_file}\n" if in_file else "")
    overrides = [f"preset={override}"] if override else []
    width = {"tiny": 8, "small": 16, None: 4}[expected]
    assert Net.compose(file=file, preset=argument, overrides=overrides).width == width
    named = Named.compose(file=file, preset=argument, overrides=overrides)
    assert (named.width, named.preset) == (width, expected)


def test_values_of_the_preset_that_lost_do_not_leak(tmp_path: Path) -> None:
    file = yaml_file(tmp_path, "preset: small\n")
    assert Net.compose(file=file, preset="tiny").lr == 1e-3


def test_overrides_may_be_a_mapping_and_the_last_of_two_wins() -> None:
    assert Net.compose(overrides={"width": 9, "sizes": (7, 8)}).sizes == (7, 8)
    assert Net.compose(overrides=["width=3", " width =5"]).width == 5
    assert Net.compose(overrides={"name": Path("a/b")}).name == "a/b"
    assert Outer.compose(overrides={"inner": Net(width=9)}).inner.width == 9


def test_configs_share_nothing(tmp_path: Path) -> None:
    Net.compose(preset="tiny").width = 60
    Outer.compose().inner.width = 60
    assert Net.compose(preset="tiny").width == 8
    assert Outer.compose().inner.width == 4


# ---- values


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("lr=1e-4", "lr", 1e-4),
        ("lr=1E+2", "lr", 100.0),
        ("lr=2.5e-3", "lr", 0.0025),
        ("lr=.5e1", "lr", 5.0),
        ("lr=3", "lr", 3.0),
        ("clip=null", "clip", None),
        ("clip=", "clip", None),
        ("clip=~", "clip", None),
        ("flag=true", "flag", True),
        ("sizes=[1, 2]", "sizes", (1, 2)),
        ("sizes=[]", "sizes", ()),
        ("name=a=b", "name", "a=b"),
        ("name='1e-4'", "name", "1e-4"),
        ("name=2026-01-02", "name", "2026-01-02"),
        ("name=1e-4x", "name", "1e-4x"),
    ],
)
def test_override_values_are_yaml(text: str, field: str, value: Any) -> None:
    found = getattr(Net.compose(overrides=[text]), field)
    assert found == value
    assert type(found) is type(value)


def test_a_list_becomes_a_tuple_in_files_and_nested_configs_too(tmp_path: Path) -> None:
    assert Net.compose(file=yaml_file(tmp_path, "sizes: [4, 5]\nlr: 1e-4\n")).sizes == (4, 5)
    assert Outer.compose(file=yaml_file(tmp_path, "inner: {sizes: [4, 5]}\n")).inner.sizes == (4, 5)
    assert Net.compose(preset="tiny").sizes == (1, 2)


@pytest.mark.parametrize("empty", ["", "# only a comment\n", "---\n"])
def test_an_empty_file_changes_nothing(tmp_path: Path, empty: str) -> None:
    assert Net.compose(file=yaml_file(tmp_path, empty)) == Net()


# ---- refusals


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("widht=3", ["unknown field 'widht'", "Did you mean 'width'?"]),
        ("zzzzzz=3", ["unknown field 'zzzzzz'", "Allowed: width, lr"]),
        ("preset=tny", ["unknown preset 'tny'", "Did you mean 'tiny'?", "Allowed: tiny, small"]),
        ("preset=[tiny]", ["unknown preset ['tiny']"]),
        ("preset=5", ["unknown preset 5"]),
        ("width=wide", ["'width'", "'wide'", "integer"]),
        ("width=2.0", ["'width'", "2.0"]),
        ("width=true", ["'width'", "True"]),
        ("width=null", ["'width'", "None"]),
        ("width='3'", ["'width'", "'3'"]),
        ("lr=true", ["'lr'", "True"]),
        ("flag=1", ["'flag'", "1"]),
        ("name=no", ["'name'", "False"]),
        ("sizes=3", ["'sizes'"]),
        ("sizes=[1, x]", ["'sizes.1'", "'x'"]),
        ("width=0", ["'width'", "greater than or equal to 1", "got 0"]),
        ("width=65", ["'width'", "less than or equal to 64"]),
        ("lr=0", ["'lr'", "greater than 0"]),
        ("lr=.nan", ["'lr'", "finite"]),
        ("lr=.inf", ["'lr'", "finite"]),
        ("lr=-.inf", ["'lr'"]),
        ("clip=1e999", ["'clip'", "finite"]),
        ("width", ["'width'", "key=value"]),
        ("=3", ["'=3'", "key=value"]),
        (" =3", ["key=value"]),
        ("sizes=[1, 2", ["sizes=[1, 2", "not valid YAML"]),
        ("name=2026-99-99", ["not valid YAML"]),
        ("width=!!int wide", ["not valid YAML"]),
        ("name=!!timestamp soon", ["not valid YAML"]),
        ("width=" + "1" * 5000, ["not valid YAML"]),
        ("name=a\0b", ["not valid YAML"]),
        ("sizes=" + "[" * 1000, ["not valid YAML"]),
        ("sizes=&a [*a]", ["aliases"]),
        ("name=!!set {a, b}", ["set"]),
        ("name={2026-01-02: 3}", ["keys"]),
        ("name=!!python/object/apply:os.getpid []", ["not valid YAML"]),
    ],
)
def test_a_bad_override_is_one_line(override: str, parts: list[str]) -> None:
    line = refused(Net.compose, overrides=[override])
    for part in parts:
        assert part in line


def test_every_problem_is_named_once() -> None:
    line = refused(Net.compose, overrides=["width=0", "lr=x", "nme=y"])
    for field in ("'width'", "'lr'", "'nme'"):
        assert line.count(field) == 1
    assert line.count("Net") == 1


def test_a_nested_problem_names_its_path_and_the_nested_fields() -> None:
    line = refused(Outer.compose, overrides={"inner": {"widht": 3, "lr": -1}})
    assert "unknown field 'inner.widht'. Did you mean 'width'?" in line
    assert "'inner.lr'" in line


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("- 1\n- 2\n", "mapping"),
        ("3\n", "mapping"),
        ("1: 2\n", "mapping"),
        ("width: [1\n", "not valid YAML"),
        ("width: 3\n  lr: 2\n", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("width: 3\n\tlr: 2\n", "not valid YAML"),
        ("widht: 3\n", "Did you mean 'width'?"),
        ("preset: smal\n", "Did you mean 'small'?"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: str, part: str) -> None:
    assert part in refused(Net.compose, file=yaml_file(tmp_path, content))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "gone.yaml" in refused(Net.compose, file=tmp_path / "gone.yaml")
    assert str(tmp_path) in refused(Net.compose, file=tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\x89PNG\xff\xfe\x00")
    assert "binary.yaml" in refused(Net.compose, file=binary)


@pytest.mark.parametrize(
    "content",
    [
        "name: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.PosixPath ['{marker}']]\n",
        "name: !!python/object/apply:os.system ['touch {marker}']\n",
        "name: !!python/object/new:subprocess.Popen [['touch', '{marker}']]\n",
        "!!python/object/apply:os.system ['touch {marker}']\n",
    ],
)
def test_a_file_cannot_execute_code(tmp_path: Path, content: str) -> None:
    marker = tmp_path / "marker"
    refused(Net.compose, file=yaml_file(tmp_path, content.format(marker=marker)))
    assert not marker.exists()


@pytest.mark.parametrize("kwargs", [{"width": 0}, {"width": "3"}, {"widht": 3}, {"lr": float("nan")}])
def test_the_constructor_is_as_strict(kwargs: dict[str, Any]) -> None:
    assert next(iter(kwargs)) in refused(Net, **kwargs)


# ---- assignment


def test_fields_can_be_assigned() -> None:
    config = Net()
    config.width = 64
    config.lr = 1
    config.sizes = (9, 9)
    assert (config.width, config.lr, config.sizes) == (64, 1.0, (9, 9))


@pytest.mark.parametrize(
    ("field", "value"),
    [("width", 65), ("width", "5"), ("width", True), ("lr", float("nan")), ("lr", float("inf")), ("widht", 5)],
)
def test_a_bad_assignment_is_refused_and_changes_nothing(field: str, value: object) -> None:
    config = Net()
    assert field in refused(setattr, config, field, value)
    assert config == Net()
    assert config.model_fields_set == set()


def test_an_assignment_that_breaks_a_rule_between_fields_is_taken_back() -> None:
    config = Ordered(low=2)
    assert "low is above high" in refused(setattr, config, "low", 9)
    assert (config.low, config.high) == (2, 5)
    config.high = 3  # and the config is still usable
    assert config == Ordered(low=2, high=3)


# ---- written down and read back


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"width": 9, "lr": 1e-7, "sizes": (), "clip": None, "flag": True},
        {"lr": 1e22, "sizes": (1, -2, 3)},
        {"lr": 0.1 + 0.2},
        *({"name": text} for text in AWKWARD_TEXTS),
    ],
)
def test_yaml_reads_back_to_an_equal_config(tmp_path: Path, values: dict[str, Any]) -> None:
    config = Net(**values)
    assert Net.compose(file=yaml_file(tmp_path, config.to_yaml())) == config


def test_yaml_of_presets_and_nested_configs_reads_back(tmp_path: Path) -> None:
    named = Named.compose(preset="tiny", overrides=["width=9"])
    named.lr = 0.25
    assert Named.compose(file=yaml_file(tmp_path, named.to_yaml())) == named
    outer = Outer(inner=Net.compose(preset="tiny"), depth=3)
    assert Outer.compose(file=yaml_file(tmp_path, outer.to_yaml())) == outer
