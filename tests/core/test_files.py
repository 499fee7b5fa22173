"""Atomic files and leases, attacked: killed writers, full disks, folders that cannot be written, dead holders."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from synora.core import files
from synora.core.errors import FileError, UsageError
from synora.core.files import lease, read_json, require_writable_folder, write_bytes, write_json, write_text

WRITER = """
import sys
from synora.core.files import write_text
number = 0
while True:
    number += 1
    write_text(sys.argv[1], f'{{"number": {number}, "filler": "{"x" * 4_000_000}", "end": {number}}}')
"""

FULL_DISK = """
import resource, sys
from pathlib import Path
from synora.core.errors import FileError
from synora.core.files import write_json
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_json(sys.argv[1], ["x" * 1_000_000])
except FileError as error:
    print(error)
"""

HOLDER = """
import sys, time
from synora.core.files import lease
with lease(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def started(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script beside the test; it is gone when the block ends, however it ends."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- atomic writes


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folders" / "value.json"
    value = {"text": "é 漢 \u2028", "number": 0.1, "none": None, "list": [1, [2]]}
    assert write_json(path, value) == path
    assert read_json(path) == value
    assert "漢" in path.read_text(encoding="utf-8")
    assert write_text(str(path), "naïve") == path
    assert path.read_bytes() == "naïve".encode()
    assert write_bytes(path, b"\x00\xff").read_bytes() == b"\x00\xff"
    assert names(path.parent) == ["value.json"]


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    moments = random.Random(20240229)
    target = tmp_path / "value.json"
    numbers = set()
    for _ in range(20):
        with started(WRITER, target) as writer:
            deadline = time.monotonic() + 30
            while not target.exists():
                assert writer.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(moments.uniform(0, 0.05))
        value = json.loads(target.read_text())
        assert value["number"] == value["end"]
        numbers.add(value["number"])
        for name in names(tmp_path):
            assert name == "value.json" or (name.startswith(".value.json.") and name.endswith(".tmp"))
            (tmp_path / name).unlink()
    assert len(numbers) > 1  # the moments did differ


def test_two_writers_of_one_file_never_mix(tmp_path: Path) -> None:
    target = tmp_path / "value.json"
    with started(WRITER, target), started(WRITER, target):
        deadline = time.monotonic() + 30
        seen = 0
        while seen < 50:
            assert time.monotonic() < deadline
            if target.exists():
                value = json.loads(target.read_text())
                assert value["number"] == value["end"]
                seen += 1


def test_a_full_disk_is_one_line_and_the_old_file_stays(tmp_path: Path) -> None:
    target = tmp_path / "value.json"
    write_json(target, "old")
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(target)], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.count("\n") == 1
    assert run.stdout.startswith(f"cannot write {target}: File too large.")
    assert run.stderr == ""
    assert read_json(target) == "old"
    assert names(tmp_path) == ["value.json"]


@pytest.mark.parametrize("kind", ["below a file", "proc", "a folder", "long name"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    path = {
        "below a file": tmp_path / "file" / "value.json",
        "proc": Path("/proc/synora/value.json"),
        "a folder": tmp_path / "folder",
        "long name": tmp_path / ("x" * 254),
    }[kind]
    with pytest.raises(FileError) as caught:
        write_json(path, 1)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    assert names(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


def test_an_interrupted_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "value.json"
    write_json(target, "old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_json(target, "new")
    assert names(tmp_path) == ["value.json"]
    assert read_json(target) == "old"


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}, [-float("inf")]])
def test_numbers_json_does_not_have_are_refused(tmp_path: Path, value: object) -> None:
    write_json(tmp_path / "value.json", "old")
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json") == "old"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        path = write_json(tmp_path / "value.json", 1)
        assert os.umask(umask) == umask  # reading the umask has not changed it
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


# ---- reading


@pytest.mark.parametrize(
    "content",
    [b"", b'{"a": 1', b'{"a": 1}}', b"\xff\xfe", b"<html>", b"NaN", b'{"a": -Infinity}', b"[" * 100_000, b"1" * 5000],
    ids=["empty", "truncated", "too much", "binary", "html", "nan", "infinity", "deep", "long number"],
)
def test_what_is_not_whole_json_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path} is not valid JSON")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*gone\.json: No such file"):
        read_json(tmp_path / "gone.json")
    with pytest.raises(FileError, match="Is a directory"):
        read_json(tmp_path)


# ---- output folders


def test_a_writable_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    folder = require_writable_folder(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert names(folder) == []


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/synora"])
def test_a_folder_that_cannot_be_written_is_wrong_usage(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"is not writable.*Choose another with --there") as caught:
        require_writable_folder(tmp_path / path, flag="--there")
    assert str(tmp_path / path) in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- leases


def test_the_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    target = tmp_path / "jobs" / "value.json"
    with started(HOLDER, target) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        with pytest.raises(FileError, match=r"value\.json is being written by another live process"), lease(target):
            pytest.fail("two processes hold one lease")
        assert time.monotonic() - began < 2
        with lease(target.with_name("other.json")):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with lease(target):
        pass


def test_a_lease_is_released_at_the_end_and_after_an_error(tmp_path: Path) -> None:
    target = tmp_path / "value.json"
    with lease(target):
        pass
    with pytest.raises(RuntimeError, match="mine"), lease(target):
        raise RuntimeError("mine")
    with lease(target):
        write_json(target, 1)
    assert read_json(target) == 1


def test_one_process_cannot_hold_a_lease_twice(tmp_path: Path) -> None:
    with lease(tmp_path / "value.json"), pytest.raises(FileError), lease(tmp_path / "value.json"):
        pytest.fail("held twice")


def test_a_lease_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot lock") as caught, lease(tmp_path / "file" / "value.json"):
        pytest.fail("held")
    assert "\n" not in str(caught.value)


def test_files_module_needs_no_lock_library_to_write() -> None:
    """Writing works where the lock library is missing: it is imported by `lease` alone."""
    assert not hasattr(files, "FileLock")
