"""Registries: late loading, closest match, entry points, broken targets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from synora.core.errors import SynoraError, UsageError
from synora.core.registry import Registry

GROUP = "synora.test_registry"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path, whose modules are forgotten afterwards."""
    folder = tmp_path / "library"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("synora_fake_"):
            del sys.modules[name]


def install(library: Path, package: str, *lines: str) -> None:
    """Make `package` look installed, with entry points in the test's group."""
    info = library / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")


def test_nothing_is_imported_before_load(library: Path) -> None:
    (library / "synora_fake_late.py").write_text("THING = object()\n")
    registry = Registry("thing", {"late": "synora_fake_late:THING", "other": "synora_fake_missing:THING"})
    assert registry.names() == ["late", "other"]
    with pytest.raises(UsageError):
        registry.load("latte")
    assert "synora_fake_late" not in sys.modules
    thing = registry.load("late")
    assert thing is sys.modules["synora_fake_late"].THING


def test_an_unknown_name_gets_the_closest_match() -> None:
    registry = Registry("agent", {"iris": "a:b", "dreamer": "a:b"})
    with pytest.raises(UsageError, match=r"^unknown agent 'dreamr'\. Did you mean 'dreamer'\? Allowed: dreamer, iris"):
        registry.load("dreamr")


def test_entries_are_copied() -> None:
    entries = {"a": "json:loads"}
    registry = Registry("thing", entries)
    entries["b"] = "json:dumps"
    assert registry.names() == ["a"]


def test_another_package_adds_names(library: Path) -> None:
    (library / "synora_fake_plugin.py").write_text("def agent():\n    return 42\n")
    install(library, "plugin", "third = synora_fake_plugin:agent")
    registry = Registry("agent", {"own": "json:loads"}, group=GROUP)
    assert registry.names() == ["own", "third"]
    assert "synora_fake_plugin" not in sys.modules
    assert registry.load("third")() == 42
    assert Registry("agent", {"own": "json:loads"}).names() == ["own"]
    with pytest.raises(UsageError, match="Did you mean 'third'"):
        registry.load("thrid")


def test_two_packages_claiming_one_name_are_both_named(library: Path) -> None:
    install(library, "one", "agent = synora_fake_one:agent")
    install(library, "two", "agent = synora_fake_two:agent")
    with pytest.raises(UsageError, match=r"claimed by both synora_fake_\w+:agent and synora_fake_\w+:agent") as caught:
        Registry("agent", {}, group=GROUP).load("agent")
    assert GROUP in str(caught.value)


def test_a_package_cannot_replace_a_built_in_name(library: Path) -> None:
    install(library, "impostor", "own = synora_fake_impostor:loads")
    with pytest.raises(UsageError, match="claimed by both json:loads and synora_fake_impostor:loads"):
        Registry("agent", {"own": "json:loads"}, group=GROUP).names()


def test_saying_the_same_twice_is_no_conflict(library: Path) -> None:
    install(library, "one", "own = json:loads")
    install(library, "two", "own = json:loads")
    assert Registry("agent", {"own": "json:loads"}, group=GROUP).names() == ["own"]


@pytest.mark.parametrize(
    ("target", "content", "part"),
    [
        ("synora_fake_gone:x", None, "No module named 'synora_fake_gone'"),
        ("synora_fake_broken:x", "y = 1\n", "has no attribute 'x'"),
        ("synora_fake_broken:x", "import synora_fake_dependency\n", "synora_fake_dependency"),
        ("synora_fake_broken:x", "def (:\n", "SyntaxError"),
        ("synora_fake_broken:x", "raise OSError('libcudart.so.12: cannot\\nopen')\n", "libcudart.so.12: cannot open"),
        ("synora_fake_broken", "x = 1\n", "synora_fake_broken"),
        (":x", None, "Empty module name"),
    ],
)
def test_a_broken_target_is_one_line_that_names_it(library: Path, target: str, content: str | None, part: str) -> None:
    if content is not None:
        (library / "synora_fake_broken.py").write_text(content)
    with pytest.raises(SynoraError) as caught:
        Registry("agent", {"it": target}).load("it")
    line = str(caught.value)
    assert caught.value.exit_code == 1
    assert line.startswith(f"agent 'it' ({target}) cannot be loaded: ")
    assert part in line
    assert "\n" not in line
