"""The files of a replay: one append-only stream in chunks, and how much room a full replay takes."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synora.core.errors import FileError, UsageError
from synora.core.machine import memory_limit_bytes
from synora.runtime.state import sync_folder

_CHUNK = re.compile(r"(frames|rows)-(\d{8,})\.bin")


@dataclass(frozen=True)
class ReplayLayout:
    """What a replay's files hold.

    Attributes:
        observation_shape: of one uint8 frame.
        action_shape: of one action.
        action_type: numpy's name of an action's type.
        streams: number of environments.
        rows_kept: newest rows kept of each.
        chunk_rows: rows a file holds.
    """

    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_type: str
    streams: int
    rows_kept: int
    chunk_rows: int

    @cached_property
    def frame_bytes(self) -> int:
        """Size of one frame."""
        return int(np.prod(self.observation_shape))

    @cached_property
    def row_type(self) -> np.dtype[Any]:
        """What is stored with one frame; little-endian wherever it was written."""
        kind = np.dtype(self.action_type).newbyteorder("<")
        flags = [(name, "u1") for name in ("is_first", "is_terminal", "is_last")]
        return np.dtype([("step", "<i8"), ("reward", "<f4"), *flags, ("action", kind, self.action_shape)])

    def state(self) -> dict[str, Any]:
        """Return JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def resumed(self, saved: Mapping[str, Any]) -> ReplayLayout:
        """Return the layout to go on with after `saved`: the capacity may change, nothing else.

        Raises:
            FileError: another shape, type or number of streams; the message has both.
        """
        here = self.state()
        for key, value in here.items():
            if key not in saved or (key not in {"rows_kept", "chunk_rows"} and saved[key] != value):
                name = key.replace("_", " ")
                raise FileError(f"the replay was saved with {name} {saved.get(key)}, and this run has {value}.")
        return replace(self, chunk_rows=int(saved["chunk_rows"]))


def require_room(folder: Path, layout: ReplayLayout, say: Callable[[str], None]) -> None:
    """Say how large a full replay will be, and refuse one that cannot be.

    Raises:
        UsageError: its files exceed the free disk space, or what is held in memory the memory limit.
    """
    chunks = -(-layout.rows_kept // layout.chunk_rows) + 2  # one being written, one waiting for a checkpoint
    rows = layout.streams * chunks * layout.chunk_rows
    disk, memory = rows * (layout.frame_bytes + layout.row_type.itemsize), rows * layout.row_type.itemsize
    base = folder
    while not base.exists() and base != base.parent:
        base = base.parent
    present = sum(path.stat().st_size for path in folder.glob("stream-*/*.bin"))
    free, limit = shutil.disk_usage(base).free + present, memory_limit_bytes()
    frames = layout.streams * layout.rows_kept
    say(
        f"replay: {frames} frames take up to {_size(disk)} of disk ({_size(free)} free) and {_size(memory)} of memory "
        f"(limit {_size(limit)})"
    )
    advice = "Lower the capacity"
    if disk > free:
        raise UsageError(
            f"a replay of {frames} frames takes {_size(disk)} in {folder}, and {_size(free)} are free there. {advice}, "
            "or put the run on a larger disk."
        )
    held = memory + (disk if _is_in_memory(base) else 0)
    if held > limit:
        raise UsageError(
            f"a replay of {frames} frames takes {_size(held)} of memory, and this process may use {_size(limit)}. "
            f"{advice}{', or put the run on a disk (its folder is in memory)' if held > memory else ''}."
        )
    if disk > limit:
        say("replay: its frames exceed the memory, so drawing from it will wait for the disk")


class StreamFiles:
    """One environment's rows: appended, cut back to a cursor, and read.

    Args:
        folder: of this stream alone.
        layout: of the replay.

    Attributes:
        size: rows ever appended.
        first: oldest row that is kept.
        open_start: first row of the unfinished episode, None between episodes.
    """

    def __init__(self, folder: Path, layout: ReplayLayout) -> None:
        self.folder = folder
        self.layout = layout
        self.size = 0
        self.first = 0
        self.open_start: int | None = None
        self._committed_first = 0
        self._oldest_chunk = 0  # on disk
        self._oldest_held = 0  # in memory
        self._new_names = False
        self._rows: dict[int, NDArray[Any]] = {}
        self._maps: dict[int, NDArray[np.uint8]] = {}
        self._handles: tuple[int, int] | None = None
        self._bounds = np.zeros((2, 64), np.int64)  # first and last rows of complete episodes; grows
        self._episodes = slice(0, 0)  # the part of it that is in use

    def append(self, frame: NDArray[np.uint8], row: NDArray[Any]) -> None:
        """Append one frame (contiguous) and what goes with it.

        Raises:
            FileError: the disk is full or gone; the stream is as before.
        """
        chunk, at = divmod(self.size, self.layout.chunk_rows)
        try:
            if at == 0:
                self._start_chunk(chunk)
            handles = self._handles or self._open(chunk)
            _write(handles[0], frame.data, at * self.layout.frame_bytes)
            _write(handles[1], row.tobytes(), at * self.layout.row_type.itemsize)
        except OSError as error:
            raise FileError(f"cannot write the replay in {self.folder}: {error.strerror or error}.") from error
        self._rows[chunk][at] = row
        self._note(self.size, bool(row["is_first"]), bool(row["is_last"]) or bool(row["is_terminal"]))
        self.size += 1
        self._forget()

    def read(self, start: int, frames: NDArray[np.uint8], rows: NDArray[Any]) -> None:
        """Copy successive rows from `start` on into (T, ...) arrays.

        Raises:
            IndexError: some of them are not kept, or not yet written.
        """
        stop = start + len(rows)
        if not self.first <= start <= stop <= self.size:
            raise IndexError(f"rows {start}..{stop - 1} of {self.folder.name} are not in {self.first}..{self.size - 1}")
        done = 0
        while start < stop:
            chunk, at = divmod(start, self.layout.chunk_rows)
            count = min(stop - start, self.layout.chunk_rows - at)
            frames[done : done + count] = self._frames(chunk, at + count)[at : at + count]
            rows[done : done + count] = self._rows[chunk][at : at + count]
            start, done = start + count, done + count

    def episodes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return first and last rows of the complete episodes that end at a kept row, in order."""
        starts, ends = self._bounds[:, self._episodes]
        return starts, ends

    def commit(self) -> dict[str, Any]:
        """Put all rows on the disk and return their cursor: what `rewind` needs, and a checksum of the last row."""
        try:
            for handle in self._handles or ():
                os.fsync(handle)
            if self._new_names:
                for folder in (self.folder, self.folder.parent, self.folder.parent.parent):
                    sync_folder(folder)
                self._new_names = False
        except OSError as error:
            raise FileError(f"cannot write the replay in {self.folder}: {error.strerror or error}.") from error
        self._committed_first = self.first
        return {
            "size": self.size,
            "first": self.first,
            "open_start": self.open_start,
            "checksum": self._checksum(self.size),
        }

    def check(self, cursor: Mapping[str, Any]) -> None:
        """Raise FileError unless the files hold every row of `cursor`. Changes nothing."""
        size, first = cursor["size"], cursor["first"]
        for chunk in range(first // self.layout.chunk_rows, -(-size // self.layout.chunk_rows)):
            rows = min(self.layout.chunk_rows, size - chunk * self.layout.chunk_rows)
            for name, each in (("frames", self.layout.frame_bytes), ("rows", self.layout.row_type.itemsize)):
                path = self._path(name, chunk)
                found = path.stat().st_size if path.is_file() else 0
                if found < rows * each:
                    raise FileError(
                        f"{path} {'is truncated' if found else 'is missing'}: the checkpoint needs {rows * each} bytes "
                        f"of it, and there are {found}. The replay belongs to another state of the run."
                    )
        if self._checksum(size) != cursor["checksum"]:
            raise FileError(
                f"the replay in {self.folder} is not the checkpoint's: row {size - 1} differs from what was saved."
            )

    def rewind(self, cursor: Mapping[str, Any]) -> None:
        """Go to a cursor that was checked: cut off what follows it, read what goes with the frames."""
        width = self.layout.chunk_rows
        self.size = cursor["size"]
        self.first = self._committed_first = cursor["first"]
        self._oldest_chunk = self._oldest_held = self.first // width
        last, rest = divmod(self.size, width)
        for path in self.folder.glob("*.bin"):
            match = _CHUNK.fullmatch(path.name)
            if match and not self._oldest_chunk <= int(match[2]) < last + (rest > 0):
                path.unlink()
        for chunk in range(self._oldest_chunk, -(-self.size // width)):
            rows = min(width, self.size - chunk * width)
            if rows < width:
                os.truncate(self._path("frames", chunk), rows * self.layout.frame_bytes)
                os.truncate(self._path("rows", chunk), rows * self.layout.row_type.itemsize)
            stored = np.fromfile(self._path("rows", chunk), self.layout.row_type, count=rows)
            self._rows[chunk] = np.zeros(width, self.layout.row_type)
            self._rows[chunk][:rows] = stored
            starts, ends = stored["is_first"] != 0, (stored["is_last"] | stored["is_terminal"]) != 0
            turns = starts | ends
            turns[1:] |= ends[:-1]
            turns[0] = True
            for at in np.flatnonzero(turns).tolist():
                self._note(chunk * width + at, bool(starts[at]), bool(ends[at]))
        self.open_start = cursor["open_start"]  # may lie before what is kept
        self._forget()

    def delete_old(self) -> None:
        """Delete the files of chunks that no row of the last cursor needs."""
        while (self._oldest_chunk + 1) * self.layout.chunk_rows <= self._committed_first:
            for name in ("frames", "rows"):
                self._path(name, self._oldest_chunk).unlink(missing_ok=True)
            self._oldest_chunk += 1

    def close(self) -> None:
        """Close the files being written and the maps."""
        for handle in self._handles or ():
            os.close(handle)
        self._handles = None
        self._maps.clear()

    def _note(self, index: int, is_first: bool, is_last: bool) -> None:
        """Keep the table of complete episodes up to date with a row."""
        if is_first and self.open_start is not None:  # cut short, by a restart of its environment
            self._add_episode(self.open_start, index - 1)
            self.open_start = None
        if self.open_start is None:
            self.open_start = index
        if is_last:
            self._add_episode(self.open_start, index)
            self.open_start = None

    def _add_episode(self, start: int, end: int) -> None:
        if self._episodes.stop == self._bounds.shape[1]:
            used = self._bounds[:, self._episodes]
            self._bounds = np.concatenate([used, np.zeros((2, max(64, used.shape[1])), np.int64)], axis=1)
            self._episodes = slice(0, used.shape[1])
        self._bounds[:, self._episodes.stop] = start, end
        self._episodes = slice(self._episodes.start, self._episodes.stop + 1)

    def _forget(self) -> None:
        """Move `first` to the oldest row within the capacity; the files stay until the next commit."""
        self.first = max(self.first, self.size - self.layout.rows_kept)
        low, high = self._episodes.start, self._episodes.stop
        while low < high and self._bounds[1, low] < self.first:
            low += 1
        self._episodes = slice(low, high)
        while (self._oldest_held + 1) * self.layout.chunk_rows <= self.first:
            self._rows.pop(self._oldest_held, None)
            self._maps.pop(self._oldest_held, None)
            self._oldest_held += 1

    def _start_chunk(self, chunk: int) -> None:
        if self._handles is not None:
            for handle in self._handles:
                os.fsync(handle)
                os.close(handle)
            self._handles = None
        self.folder.mkdir(parents=True, exist_ok=True)
        if chunk == 0 and any(_CHUNK.fullmatch(path.name) for path in self.folder.iterdir()):
            raise FileError(
                f"{self.folder} holds rows already: continue from their checkpoint, or choose another folder."
            )
        self._rows[chunk] = np.zeros(self.layout.chunk_rows, self.layout.row_type)
        self._new_names = True

    def _open(self, chunk: int) -> tuple[int, int]:
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        frames = os.open(self._path("frames", chunk), flags, 0o666)
        self._handles = frames, os.open(self._path("rows", chunk), flags, 0o666)
        return self._handles

    def _frames(self, chunk: int, rows: int) -> NDArray[np.uint8]:
        """Return a chunk's frames through a memory map that covers at least `rows` of them."""
        known = self._maps.get(chunk)
        if known is None or len(known) < rows:
            written = min(self.layout.chunk_rows, self.size - chunk * self.layout.chunk_rows)
            shape = (written, *self.layout.observation_shape)
            known = np.memmap(self._path("frames", chunk), np.uint8, mode="r", shape=shape).view(np.ndarray)
            self._maps[chunk] = known
        return known

    def _checksum(self, size: int) -> int:
        """Return the CRC-32 of row `size - 1` and its frame, as they are on disk."""
        if size == 0:
            return 0
        chunk, at = divmod(size - 1, self.layout.chunk_rows)
        value = 0
        for name, each in (("frames", self.layout.frame_bytes), ("rows", self.layout.row_type.itemsize)):
            with open(self._path(name, chunk), "rb") as stream:
                stream.seek(at * each)
                value = zlib.crc32(stream.read(each), value)
        return value

    def _path(self, name: str, chunk: int) -> Path:
        return self.folder / f"{name}-{chunk:08d}.bin"


def _write(handle: int, content: Any, offset: int) -> None:
    """Write all of `content` at `offset`; a full disk raises here, where a write through a memory map would kill us."""
    view = memoryview(content).cast("B")
    while view:
        count = os.pwrite(handle, view, offset)
        view, offset = view[count:], offset + count


def _is_in_memory(folder: Path) -> bool:
    """Say whether a folder lies on a file system that is held in memory."""
    import psutil

    where, best = folder.resolve(), ""
    kind = ""
    for part in psutil.disk_partitions(all=True):
        if where.is_relative_to(part.mountpoint) and len(part.mountpoint) >= len(best):
            best, kind = part.mountpoint, part.fstype
    return kind in {"tmpfs", "ramfs"}


def _size(count: int) -> str:
    """Return bytes as text in GB or MB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
