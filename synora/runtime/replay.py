"""Replay on disk: uint8 frames and scalars in append-only files that are read through memory maps.

    replay/stream-000/frames-00000000.bin    frames of one chunk, one after the other
    replay/stream-000/rows-00000000.bin      what goes with each frame: step, action, reward, flags

A stream is one environment's steps in order. A checkpoint holds a cursor (`state_dict`): how many rows of each stream
belong to it. Rows written after it are cut off when the cursor is loaded, so a killed run goes on exactly where its
checkpoint stands; chunks that fell out of the capacity are deleted only once a newer checkpoint is committed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from synora.core.errors import FileError, SynoraError
from synora.runtime.replay_files import ReplayLayout, StreamFiles, require_room

ActionType = Literal["float32", "int64"]


class Sequences(NamedTuple):
    """Sequences from replay; time first, batch second. Frame t goes with the action and reward that LED to it.

    Attributes:
        image: (T, B, *observation_shape) uint8.
        action: (T, B, *action_shape) float32 or int64; zeros where a frame starts an episode.
        reward: (T, B) float32; 0 where a frame starts an episode.
        is_terminal: (T, B) float32, 1 where the frame ends an episode for good; a time limit does not.
        is_first: (T, B) float32, 1 where the frame starts an episode.
        is_last: (T, B) float32, 1 where the frame ends an episode, by a time limit too.
        step: (T, B) int64, environment interactions when the frame was stored.
    """

    image: NDArray[np.uint8]
    action: NDArray[Any]
    reward: NDArray[np.float32]
    is_terminal: NDArray[np.float32]
    is_first: NDArray[np.float32]
    is_last: NDArray[np.float32]
    step: NDArray[np.int64]

    def tensors(self, device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
        """Return every field as a tensor on `device`, by name; on the CPU the image shares the array's memory.

        The others are copies: numpy's arrays stand at any address, and with it the last bits of a matrix product change
        (MKL); torch's own tensors are aligned, so that a run computes the same every time.
        """
        found = {name: torch.from_numpy(value) for name, value in self._asdict().items()}
        copied = {name: value.clone() for name, value in found.items() if name != "image"}
        return {name: copied.get(name, value).to(device) for name, value in found.items()}


class Replay:
    """Steps of several environments, kept on disk up to a capacity and drawn as sequences.

    Args:
        folder: of this replay alone.
        capacity: newest frames kept, over all streams together; each stream keeps an equal share.
        observation_shape: of one frame, as the training code wants it: (C, H, W) needs no transposition later.
        action_shape: of one action; () for an action's number.
        action_type: "float32" (one-hot or continuous) or "int64".
        streams: environments that write in parallel.
        chunk_rows: frames a file holds; None: such that a full replay has few files.
        say: where the size estimate goes; None: stderr.

    Raises:
        UsageError: a full replay would not fit the disk or this process's memory limit.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        capacity: int,
        observation_shape: Sequence[int],
        action_shape: Sequence[int] = (),
        action_type: ActionType = "float32",
        streams: int = 1,
        chunk_rows: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if streams < 1 or capacity < streams:
            raise ValueError(f"a replay of {capacity} frames cannot serve {streams} streams")
        self.folder = Path(folder)
        self.step = 0
        share = capacity // streams
        self.layout = ReplayLayout(
            observation_shape=tuple(observation_shape),
            action_shape=tuple(action_shape),
            action_type=action_type,
            streams=streams,
            rows_kept=share,
            chunk_rows=chunk_rows or max(256, min(-(-capacity // 128), -(-share // 4))),
        )
        require_room(self.folder, self.layout, say or _to_stderr)
        self._streams = [StreamFiles(self.folder / f"stream-{index:03d}", self.layout) for index in range(streams)]

    def __len__(self) -> int:
        """Return the number of frames that can be drawn from."""
        return sum(stream.size - stream.first for stream in self._streams)

    def add(
        self,
        *,
        image: NDArray[np.uint8],
        action: NDArray[Any],
        reward: NDArray[Any],
        is_first: NDArray[Any],
        is_terminal: NDArray[Any],
        is_last: NDArray[Any],
        step: int,
        streams: Sequence[int] | None = None,
    ) -> None:
        """Append one frame to each stream.

        Args:
            image: (N, *observation_shape) uint8 in 0..255.
            action: (N, *action_shape) that led to the frame; stored as zeros where `is_first`, as is the reward.
            reward: (N,) that came with the frame, finite.
            is_first: (N,) the frame came from a reset.
            is_terminal: (N,) the episode ended for good with this frame.
            is_last: (N,) the episode ended with this frame, for good or by a time limit.
            step: environment interactions so far, never decreasing.
            streams: (N,) which streams the rows belong to; None: all, in order.

        Raises:
            ValueError: a shape, type or value that is not as described.
            FileError: the disk is full or gone. Go on from the last cursor: some streams may hold their row already.
        """
        layout, targets = self.layout, range(self.layout.streams) if streams is None else streams
        count = len(targets)
        if image.dtype != np.uint8 or image.shape != (count, *layout.observation_shape):
            shape = (count, *layout.observation_shape)
            raise ValueError(f"image is {image.dtype} {image.shape}, not uint8 {shape} with values 0..255")
        if step < self.step:
            raise ValueError(f"step {step} is before step {self.step}, which is stored already")
        rows = np.zeros(count, layout.row_type)
        for name, value in (
            ("action", action),
            ("reward", reward),
            ("is_first", is_first),
            ("is_terminal", is_terminal),
            ("is_last", is_last),
        ):
            value = np.asarray(value)
            if value.shape != rows[name].shape:
                raise ValueError(f"{name} has shape {value.shape}, not {rows[name].shape}")
            rows[name] = value
        if not (np.isfinite(rows["reward"]).all() and np.isfinite(rows["action"]).all()):
            raise ValueError(f"a reward or action is not finite at step {step}: {rows['reward']}, {rows['action']}")
        starts = rows["is_first"] != 0
        rows["action"][starts], rows["reward"][starts], rows["step"] = 0, 0, step
        image = np.ascontiguousarray(image)
        for index, target in enumerate(targets):
            self._streams[target].append(image[index], rows[index])
        self.step = step

    def can_sample(self, length: int, *, within_episodes: bool = False) -> bool:
        """Say whether there is a sequence of `length` frames; `within_episodes`: one complete episode that long."""
        if within_episodes:
            return bool(len(self._episodes(length)[0]))
        return any(stream.size - stream.first >= length for stream in self._streams)

    def sample(
        self,
        batch: int,
        length: int,
        rng: np.random.Generator,
        *,
        within_episodes: bool = False,
        prioritize_ends: bool = False,
    ) -> Sequences:
        """Draw sequences; the draws come from `rng` alone.

        By default every window of `length` successive frames of a stream is equally likely, windows that run into the
        next episode included: `is_first` marks where. The unfinished episodes count.

        Args:
            batch: B.
            length: T.
            rng: where the draws come from.
            within_episodes: draw a complete episode of at least T frames, each equally likely, and then a place in it
                (danijar/dreamer and dreamerv2): no sequence holds frames of two episodes.
            prioritize_ends: the window that ends with an episode's last frame gets T more chances (dreamerv2).

        Raises:
            SynoraError: nothing that long is stored.
        """
        draw = self._draw_within if within_episodes else self._draw
        streams, starts = draw(batch, length, rng, prioritize_ends)
        return self.gather(streams, starts, length)

    def gather(self, streams: NDArray[np.int64], starts: NDArray[np.int64], length: int) -> Sequences:
        """Read chosen sequences.

        Args:
            streams: (B,) which stream.
            starts: (B,) row of the first frame, counted from the stream's beginning; see `episodes`.
            length: T.

        Raises:
            IndexError: rows that are not kept, or not yet written.
        """
        shape = (length, len(starts))
        image = np.empty((*shape, *self.layout.observation_shape), np.uint8)
        rows = np.empty(shape, self.layout.row_type)
        for index, (stream, start) in enumerate(zip(streams.tolist(), starts.tolist(), strict=True)):
            self._streams[stream].read(start, image[:, index], rows[:, index])
        return Sequences(
            image=image,
            action=np.ascontiguousarray(rows["action"]),
            reward=np.ascontiguousarray(rows["reward"]),
            is_terminal=rows["is_terminal"].astype(np.float32),
            is_first=rows["is_first"].astype(np.float32),
            is_last=rows["is_last"].astype(np.float32),
            step=np.ascontiguousarray(rows["step"]),
        )

    def episodes(self) -> NDArray[np.int64]:
        """Return the complete episodes: (E, 3) stream, first row and last row, as far as they are kept."""
        found = [
            np.stack([np.full(len(ends), index), np.maximum(starts, stream.first), ends], axis=1)
            for index, stream in enumerate(self._streams)
            for starts, ends in [stream.episodes()]
        ]
        return np.concatenate(found).astype(np.int64)

    def unfinished(self, stream: int) -> Sequences:
        """Return the unfinished episode of a stream, B = 1, T = 0 when there is none.

        Its actions bring a deterministic environment, reset with the same seed, back to where the checkpoint left it.

        Raises:
            SynoraError: the episode is longer than what is kept.
        """
        files = self._streams[stream]
        start = files.size if files.open_start is None else files.open_start
        if start < files.first:
            raise SynoraError(f"the unfinished episode of stream {stream} is longer than the replay's capacity.")
        return self.gather(np.array([stream]), np.array([start]), files.size - start)

    def state_dict(self) -> dict[str, Any]:
        """Put everything on the disk and return the cursor: JSON values."""
        return {
            "step": self.step,
            "layout": self.layout.state(),
            "streams": [stream.commit() for stream in self._streams],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a cursor: rows after it are cut off, files of rows before its oldest are deleted.

        Raises:
            FileError: the files do not hold the rows of the cursor, or it is of another kind of replay.
        """
        if set(state) != {"step", "layout", "streams"}:
            raise FileError(f"the replay cursor holds {sorted(state)}, not layout, step and streams.")
        self.layout = self.layout.resumed(state["layout"])
        for stream in self._streams:
            stream.close()
        paths = [stream.folder for stream in self._streams]
        self._streams = [StreamFiles(path, self.layout) for path in paths]
        for stream, cursor in zip(self._streams, state["streams"], strict=True):
            stream.check(cursor)
        for stream, cursor in zip(self._streams, state["streams"], strict=True):
            stream.rewind(cursor)
        self.step = state["step"]

    def committed(self) -> None:
        """Say that the last `state_dict` is in a committed checkpoint: chunks that it does not need are deleted."""
        for stream in self._streams:
            stream.delete_old()

    def close(self) -> None:
        """Close the files."""
        for stream in self._streams:
            stream.close()

    def _draw(
        self, batch: int, length: int, rng: np.random.Generator, prioritize_ends: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw (streams, first rows) among all windows."""
        firsts = np.array([stream.first for stream in self._streams])
        sizes = np.array([stream.size for stream in self._streams])
        bounds = np.cumsum(np.maximum(sizes - firsts - length + 1, 0))
        total = int(bounds[-1])
        if total == 0 or length < 1:
            raise SynoraError(f"no stream of the replay holds {length} frames yet; it has {len(self)} in all.")
        ends = self._ends(length) if prioritize_ends else np.empty((0, 2), np.int64)
        draws = rng.integers(0, total + length * len(ends), size=batch)
        streams = np.searchsorted(bounds, np.minimum(draws, total - 1), side="right")
        starts = firsts[streams] + draws - np.where(streams > 0, bounds[streams - 1], 0)
        extra = draws >= total
        chosen = ends[(draws[extra] - total) // length]
        streams[extra], starts[extra] = chosen[:, 0], chosen[:, 1] - length + 1
        return streams, starts

    def _ends(self, length: int) -> NDArray[np.int64]:
        """Return (stream, last row) of the episodes whose last `length` rows of the stream are kept."""
        ends = [(stream.episodes()[1], stream.first + length - 1) for stream in self._streams]
        kept = [values[np.searchsorted(values, least) :] for values, least in ends]
        owners = np.repeat(np.arange(len(kept)), [len(values) for values in kept])
        return np.stack([owners, np.concatenate(kept)], axis=1)

    def _episodes(self, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return streams, first rows and sizes of the complete episodes of at least `length` kept rows."""
        streams, starts, ends = self.episodes().T
        sizes = ends - starts + 1
        fits = sizes >= length
        return streams[fits], starts[fits], sizes[fits]

    def _draw_within(
        self, batch: int, length: int, rng: np.random.Generator, prioritize_ends: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw (streams, first rows) inside complete episodes."""
        streams, starts, sizes = self._episodes(length)
        if len(streams) == 0 or length < 1:
            raise SynoraError(
                f"no complete episode of {length} frames is stored yet ({len(self.episodes())} shorter ones): "
                "collect more, or draw sequences across episodes."
            )
        chosen = rng.integers(0, len(streams), size=batch)
        places = sizes[chosen] - length + 1
        offsets = rng.integers(0, places + (length if prioritize_ends else 0))
        return streams[chosen], starts[chosen] + np.minimum(offsets, places - 1)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
