"""Replay against a naive one that keeps everything in lists, on random episodes."""

import collections
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from synora.core.errors import FileError, SynoraError, UsageError
from synora.runtime import replay_files
from synora.runtime.replay import Replay, Sequences

SHAPE = (2, 3)
FIELDS = Sequences._fields


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what is synced instead of waiting for a busy disk; only a power failure would tell."""
    names: list[str] = []

    def record(handle: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name if Path("/proc/self/fd").exists() else "?")

    monkeypatch.setattr(os, "fsync", record)
    return names


class Naive:
    """What a replay means, without files: one list of rows a stream."""

    def __init__(self, capacity: int, streams: int) -> None:
        self.kept = capacity // streams
        self.rows: list[list[dict[str, Any]]] = [[] for _ in range(streams)]

    def add(self, stream: int, row: dict[str, Any]) -> None:
        if row["is_first"]:
            row = {**row, "action": np.zeros_like(row["action"]), "reward": 0.0}
        self.rows[stream].append(row)

    def first(self, stream: int) -> int:
        return max(0, len(self.rows[stream]) - self.kept)

    def windows(self, length: int) -> list[tuple[int, int]]:
        return [
            (stream, start)
            for stream, rows in enumerate(self.rows)
            for start in range(self.first(stream), len(rows) - length + 1)
        ]

    def episodes(self) -> list[tuple[int, int, int]]:
        found = []
        for stream, rows in enumerate(self.rows):
            start = None
            for index, row in enumerate(rows):
                if row["is_first"] and start is not None:
                    found.append((stream, start, index - 1))
                    start = None
                start = index if start is None else start
                if row["is_last"] or row["is_terminal"]:
                    found.append((stream, start, index))
                    start = None
        return [
            (stream, max(start, self.first(stream)), end) for stream, start, end in found if end >= self.first(stream)
        ]

    def window(self, stream: int, start: int, length: int) -> dict[str, np.ndarray]:
        rows = self.rows[stream][start : start + length]
        return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in FIELDS}


def make(folder: Path, capacity: int = 60, streams: int = 2, chunk_rows: int = 7, **other: Any) -> Replay:
    settings: dict[str, Any] = {"observation_shape": SHAPE, "action_shape": (3,), "say": lambda line: None, **other}
    return Replay(folder, capacity=capacity, streams=streams, chunk_rows=chunk_rows, **settings)


class Source:
    """Random episodes of 1 to 12 frames; every frame and row is different."""

    def __init__(self, seed: int, streams: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.left = [0] * streams
        self.step = 0

    def feed(self, count: int, replay: Replay | None, naive: Naive | None) -> None:
        for _ in range(count):
            streams = [index for index in range(len(self.left)) if self.rng.random() < 0.8] or [0]
            self.step += len(streams)
            rows = [self.row(stream) for stream in streams]
            if naive is not None:
                for stream, row in zip(streams, rows, strict=True):
                    naive.add(stream, row)
            if replay is not None:
                columns = {name: np.stack([row[name] for row in rows]) for name in FIELDS if name != "step"}
                replay.add(**columns, step=self.step, streams=streams)

    def row(self, stream: int) -> dict[str, Any]:
        first = self.left[stream] == 0
        if first:
            self.left[stream] = int(self.rng.integers(1, 13))
        self.left[stream] -= 1
        kind = self.rng.random()  # ends: for good, by a time limit, or without a mark, by a restart
        return {
            "image": self.rng.integers(0, 256, SHAPE, dtype=np.uint8),
            "action": self.rng.random(3).astype(np.float32),
            "reward": np.float32(self.rng.normal()),
            "is_first": first,
            "is_last": self.left[stream] == 0 and kind < 0.8,
            "is_terminal": self.left[stream] == 0 and kind < 0.4,
            "step": self.step,
        }


def pair(folder: Path, rows: int, *, seed: int = 0, **settings: Any) -> tuple[Replay, Naive, Source]:
    replay = make(folder, **settings)
    naive = Naive(settings.get("capacity", 60), settings.get("streams", 2))
    source = Source(seed, settings.get("streams", 2))
    source.feed(rows, replay, naive)
    return replay, naive, source


def assert_equal(batch: Sequences, naive: Naive, places: list[tuple[int, int]]) -> None:
    length = batch.image.shape[0]
    for index, (stream, start) in enumerate(places):
        wanted = naive.window(stream, start, length)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(batch, name)[:, index], wanted[name], err_msg=name)


def place_of(batch: Sequences, naive: Naive) -> list[tuple[int, int]]:
    """Find where each sequence of a batch comes from, by its first frame's content."""
    where = {
        (row["image"].tobytes(), row["step"]): (stream, index)
        for stream, rows in enumerate(naive.rows)
        for index, row in enumerate(rows)
    }
    return [where[batch.image[0, b].tobytes(), int(batch.step[0, b])] for b in range(batch.image.shape[1])]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("streams", [1, 3])
def test_every_window_is_what_was_added(tmp_path: Path, seed: int, streams: int) -> None:
    """While it grows, past its capacity, at chunk borders, and after it was opened anew."""
    replay, naive, source = pair(tmp_path, 0, seed=seed, streams=streams)
    for _ in range(6):
        source.feed(13, replay, naive)
        for length in (1, 5, 17):
            places = naive.windows(length)
            assert replay.can_sample(length) is bool(places)
            if places:
                streams_, starts = np.array(places).T
                assert_equal(replay.gather(streams_, starts, length), naive, places)
        assert [tuple(row) for row in replay.episodes().tolist()] == naive.episodes()
        assert len(replay) == sum(len(rows) - naive.first(stream) for stream, rows in enumerate(naive.rows))
    state = json.loads(json.dumps(replay.state_dict()))
    again = make(tmp_path, streams=streams)
    again.load_state_dict(state)
    places = naive.windows(9)
    assert_equal(again.gather(*np.array(places).T, 9), naive, places)
    assert again.episodes().tolist() == replay.episodes().tolist()
    assert again.step == source.step


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_draws_have_the_promised_chances(tmp_path: Path, within: bool, ends: bool) -> None:
    replay, naive, _ = pair(tmp_path, 60, seed=3)
    length, count = 4, 40_000
    batch = replay.sample(count, length, np.random.default_rng(0), within_episodes=within, prioritize_ends=ends)
    places = place_of(batch, naive)
    assert_equal(batch._replace(**{name: getattr(batch, name)[:, :50] for name in FIELDS}), naive, places[:50])
    chances: collections.Counter[tuple[int, int]] = collections.Counter()
    if within:
        episodes = [(s, a, b) for s, a, b in naive.episodes() if b - a + 1 >= length]
        for stream, start, end in episodes:
            size = end - start + 1
            total = size - length + 1 + (length if ends else 0)
            for place in range(start, end - length + 2):
                bonus = length if ends and place == end - length + 1 else 0
                chances[stream, place] += (1 + bonus) / total / len(episodes)  # type: ignore[assignment]
    else:
        windows = naive.windows(length)
        last = [(s, b - length + 1) for s, _, b in naive.episodes() if (s, b - length + 1) in windows]
        for place in windows:
            chances[place] += 1
        for place in last if ends else []:
            chances[place] += length
    total = sum(chances.values())
    counts = collections.Counter(places)
    assert set(counts) <= set(chances)
    error = sum(
        (counts[place] - count * chance / total) ** 2 / (count * chance / total) for place, chance in chances.items()
    )
    assert len(chances) > 15
    assert error < len(chances) + 5 * (2 * len(chances)) ** 0.5, "chi-squared, five standard deviations"
    if within:
        assert not batch.is_first[1:].any(), "no sequence holds frames of two episodes"


def test_draws_come_from_the_generator_alone(tmp_path: Path) -> None:
    replay, _, _ = pair(tmp_path, 60)
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    one, two = (replay.sample(8, 5, np.random.default_rng(7), prioritize_ends=True) for _ in range(2))
    assert all(np.array_equal(left, right) for left, right in zip(one, two, strict=True))
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]


def test_shapes_and_types(tmp_path: Path) -> None:
    replay, _, _ = pair(tmp_path, 40)
    batch = replay.sample(4, 5, np.random.default_rng(0))
    kinds = {name: (value.shape, value.dtype.str[1:]) for name, value in batch._asdict().items()}
    assert kinds == {
        "image": ((5, 4, 2, 3), "u1"),
        "action": ((5, 4, 3), "f4"),
        "reward": ((5, 4), "f4"),
        "is_terminal": ((5, 4), "f4"),
        "is_first": ((5, 4), "f4"),
        "is_last": ((5, 4), "f4"),
        "step": ((5, 4), "i8"),
    }
    assert all(value.flags.c_contiguous for value in batch)
    tensors = batch.tensors()
    assert tensors["image"].dtype == torch.uint8 and torch.equal(tensors["reward"], torch.from_numpy(batch.reward))
    numbers = Replay(tmp_path / "n", capacity=9, observation_shape=(1,), action_type="int64", say=lambda line: None)
    flags = {"is_first": [False], "is_terminal": [False], "is_last": [False]}
    numbers.add(image=np.ones((1, 1), np.uint8), action=np.array([17]), reward=[0.5], step=1, **flags)  # type: ignore[arg-type]
    assert numbers.sample(1, 1, np.random.default_rng(0)).action.tolist() == [[17]]


@pytest.mark.parametrize("rows", [0, 3, 7, 14, 33, 90])
@pytest.mark.parametrize("more", [1, 25, 70])
def test_rows_after_the_checkpoint_are_cut_off(tmp_path: Path, rows: int, more: int) -> None:
    """A killed writer, then a resumed one: the same files' content as if nothing had happened."""
    whole, naive, source = pair(tmp_path / "whole", rows, seed=rows)
    other, _, again = pair(tmp_path / "killed", rows, seed=rows)
    whole.state_dict()
    whole.committed()
    state = other.state_dict()
    if more % 2:  # killed between the commit and what follows it
        other.committed()
    stray = Source(99, 2)
    stray.step = again.step
    stray.feed(more, other, None)
    resumed = make(tmp_path / "killed")
    resumed.load_state_dict(json.loads(json.dumps(state)))
    for _ in range(3):
        source.feed(20, whole, naive)
        again.feed(20, resumed, None)
        draws = [replay.sample(16, 6, np.random.default_rng(1), prioritize_ends=True) for replay in (whole, resumed)]
        assert all(np.array_equal(left, right) for left, right in zip(*draws, strict=True))
        assert resumed.episodes().tolist() == whole.episodes().tolist()
        assert resumed.state_dict() == whole.state_dict()
        for replay in (whole, resumed):
            replay.committed()
    contents = [
        {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.bin"))}
        for folder in (tmp_path / "whole", tmp_path / "killed")
    ]
    assert contents[0] == contents[1]


def test_a_cursor_is_on_the_disk_when_it_is_returned(tmp_path: Path, synced: list[str]) -> None:
    replay = make(tmp_path, streams=1)
    for step in range(10):
        add_plain(replay, step)
    assert synced == ["frames-00000000.bin", "rows-00000000.bin"], "a chunk that is complete"
    replay.state_dict()
    assert synced[2:4] == ["frames-00000001.bin", "rows-00000001.bin"]
    assert synced[4] == "stream-000", "and the names of the new files"
    del synced[:]
    add_plain(replay, 10)
    replay.state_dict()
    assert synced == ["frames-00000001.bin", "rows-00000001.bin"]


def test_old_chunks_wait_for_the_next_commit(tmp_path: Path) -> None:
    replay, naive, source = pair(tmp_path, 40, streams=1, capacity=20)
    state = replay.state_dict()
    replay.committed()
    names = sorted(path.name for path in tmp_path.rglob("frames-*"))
    assert names[0] == f"frames-{naive.first(0) // 7:08d}.bin"
    source.feed(60, replay, naive)
    assert set(names) <= {path.name for path in tmp_path.rglob("frames-*")}, "a kill now needs them"
    replay.state_dict()
    assert set(names) <= {path.name for path in tmp_path.rglob("frames-*")}, "saved, and not yet committed"
    replay.committed()
    left = sorted(path.name for path in tmp_path.rglob("frames-*"))
    assert left[0] == f"frames-{naive.first(0) // 7:08d}.bin"
    assert len(left) <= -(-20 // 7) + 1
    later = replay.state_dict()
    source.feed(60, replay, naive)
    replay.committed()
    make(tmp_path, streams=1, capacity=20).load_state_dict(later)
    with pytest.raises(FileError, match="is missing"):
        make(tmp_path, streams=1, capacity=20).load_state_dict(state)


def test_the_capacity_may_change(tmp_path: Path) -> None:
    replay, naive, source = pair(tmp_path, 60)
    state = replay.state_dict()
    for capacity in (20, 600):
        again = make(tmp_path, capacity=capacity)
        again.load_state_dict(state)
        assert len(again) == min(capacity, len(replay))
    source.feed(30, again, naive)
    naive.kept = 300
    assert len(again) == len(replay) + sum(map(len, naive.rows)) - sum(item["size"] for item in state["streams"])


def test_the_unfinished_episode(tmp_path: Path) -> None:
    replay, naive, source = pair(tmp_path, 60, streams=1)
    lengths = set()
    for _ in range(30):
        source.feed(1, replay, naive)
        ended = naive.episodes()[-1][2] + 1
        batch = replay.unfinished(0)
        assert batch.image.shape[:2] == (len(naive.rows[0]) - ended, 1)
        assert_equal(batch, naive, [(0, ended)] if len(batch.image) else [])
        lengths.add(len(batch.image))
    assert 0 in lengths and max(lengths) > 3
    small = Replay(tmp_path / "small", capacity=4, observation_shape=(1,), chunk_rows=2, say=lambda line: None)
    for step in range(10):  # such that the oldest row that is kept starts a file
        add_plain(small, step, first=step == 0)
    with pytest.raises(SynoraError, match="longer than the replay's capacity"):
        small.unfinished(0)
    small.load_state_dict(small.state_dict())
    with pytest.raises(SynoraError, match="longer than the replay's capacity"):
        small.unfinished(0)


def test_an_episode_whose_first_frame_has_no_mark(tmp_path: Path) -> None:
    replay = make(tmp_path, streams=1, chunk_rows=100)
    for step in range(12):
        add_plain(replay, step, is_last=np.array([step in {3, 8}]))
    again = make(tmp_path, streams=1)
    again.load_state_dict(replay.state_dict())
    for each in (replay, again):
        assert each.episodes().tolist() == [[0, 0, 3], [0, 4, 8]]
        assert each.unfinished(0).image.shape[0] == 3


def add_plain(replay: Replay, step: int, *, first: bool = False, **other: Any) -> None:
    row: dict[str, Any] = {
        "image": np.zeros((1, *replay.layout.observation_shape), np.uint8),
        "action": np.zeros((1, *replay.layout.action_shape)),
        "reward": np.zeros(1),
        "is_first": np.array([first]),
        "is_terminal": np.zeros(1, bool),
        "is_last": np.zeros(1, bool),
        "step": step,
    }
    replay.add(**{**row, **other})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image": np.zeros((1, *SHAPE), np.float32)}, r"image is float32 .*, not uint8"),
        ({"image": np.zeros((1, 3, 2), np.uint8)}, r"not uint8 \(1, 2, 3\)"),
        ({"image": np.zeros(SHAPE, np.uint8)}, r"not uint8 \(1, 2, 3\)"),
        ({"action": np.zeros(3)}, r"action has shape \(3,\), not \(1, 3\)"),
        ({"reward": np.zeros((1, 1))}, r"reward has shape \(1, 1\), not \(1,\)"),
        ({"is_last": False}, r"is_last has shape \(\), not \(1,\)"),
        ({"reward": np.array([np.nan])}, "not finite"),
        ({"action": np.full((1, 3), np.inf)}, "not finite"),
        ({"step": 4}, "step 4 is before step 5"),
    ],
)
def test_wrong_rows_are_refused_whole(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    replay = make(tmp_path, streams=1)
    add_plain(replay, 5)
    with pytest.raises(ValueError, match=message):
        add_plain(replay, wrong.pop("step", 6), **wrong)
    assert len(replay) == 1


def test_too_little_is_an_error(tmp_path: Path) -> None:
    replay = make(tmp_path, streams=1)
    rng = np.random.default_rng(0)
    with pytest.raises(SynoraError, match="no stream of the replay holds 1 frames yet"):
        replay.sample(1, 1, rng)
    for step in range(5):
        add_plain(replay, step, first=step == 0)
    assert replay.can_sample(5) and not replay.can_sample(6) and not replay.can_sample(5, within_episodes=True)
    with pytest.raises(SynoraError, match="no complete episode of 3 frames"):
        replay.sample(1, 3, rng, within_episodes=True)
    with pytest.raises(IndexError, match=r"rows 3\.\.6"):
        replay.gather(np.array([0]), np.array([3]), 4)
    with pytest.raises(IndexError):
        replay.gather(np.array([0]), np.array([-1]), 1)


def test_another_state_s_files_are_refused(tmp_path: Path) -> None:
    replay, _, _ = pair(tmp_path / "a", 30)
    state = replay.state_dict()
    replay.close()
    pair(tmp_path / "b", 30, seed=1)
    with pytest.raises(FileError, match="is not the checkpoint's"):
        make(tmp_path / "b").load_state_dict(state)
    with pytest.raises(FileError, match="is missing: the checkpoint needs"):
        make(tmp_path / "c").load_state_dict(state)
    for name, value, message in (
        ("streams", 1, "streams 2, and this run has 1"),
        ("observation_shape", (3, 3), r"observation shape \[2, 3\], and this run has \[3, 3\]"),
        ("action_shape", (2,), r"action shape \[3\], and this run has \[2\]"),
        ("action_type", "int64", "action type float32, and this run has int64"),
    ):
        with pytest.raises(FileError, match=message):
            make(tmp_path / "a", **{name: value}).load_state_dict(state)
    newest = max((tmp_path / "a" / "stream-001").glob("rows-*"))
    os.truncate(newest, newest.stat().st_size - 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.bin")}
    with pytest.raises(FileError, match="is truncated"):
        make(tmp_path / "a").load_state_dict(state)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.bin")}, "a refusal changes nothing"


def test_rows_that_nobody_loaded_are_not_overwritten(tmp_path: Path) -> None:
    pair(tmp_path, 5)
    with pytest.raises(FileError, match="holds rows already"):
        pair(tmp_path, 5)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay, naive, source = pair(tmp_path, 20)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FileError, match=r"cannot write the replay in .*: No space left"):
        source.feed(1, replay, None)
    monkeypatch.undo()
    places = naive.windows(3)
    assert_equal(replay.gather(*np.array(places).T, 3), naive, places)


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, offset: real(handle, data[:5], offset))
    replay, naive, _ = pair(tmp_path, 30)
    places = naive.windows(3)
    assert_equal(replay.gather(*np.array(places).T, 3), naive, places)


def test_the_size_is_said_and_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"observation_shape": (3, 64, 64), "action_shape": (6,), "say": None}
    make(tmp_path / "new" / "run", 100_000, 1, 1000, **settings)
    line = capsys.readouterr().err
    assert line.startswith("replay: 100000 frames take up to 1.26 GB of disk (")
    with pytest.raises(UsageError, match=r"takes \d+\.\d+ GB in .*, and .* are free there. Lower the capacity"):
        make(tmp_path / "big", 10**12, 1, 10**9, **settings)
    monkeypatch.setattr(replay_files, "memory_limit_bytes", lambda: 10**6)
    with pytest.raises(
        UsageError, match=r"takes \d.* of memory, and this process may use 1.0 MB. Lower the capacity.$"
    ):
        make(tmp_path / "big", 100_000, 1, 1000, **settings)
    monkeypatch.setattr(replay_files, "memory_limit_bytes", lambda: 10**8)
    capsys.readouterr()
    make(tmp_path / "big", 100_000, 1, 1000, **settings)
    assert "drawing from it will wait for the disk" in capsys.readouterr().err
    monkeypatch.setattr(replay_files, "_is_in_memory", lambda folder: True)
    with pytest.raises(UsageError, match="its folder is in memory"):
        make(tmp_path / "big", 100_000, 1, 1000, **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_memory_is_recognised(tmp_path: Path) -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    assert replay_files._is_in_memory(Path("/dev/shm"))


def test_few_files_are_open(tmp_path: Path) -> None:
    """Maps keep their files open, so a large replay must consist of few."""
    for capacity, streams in ((2_000_000, 1), (2_000_000, 64), (100_000, 16), (1000, 4)):
        layout = Replay(
            tmp_path, capacity=capacity, observation_shape=(1,), streams=streams, say=lambda line: None
        ).layout
        assert streams * (-(-layout.rows_kept // layout.chunk_rows) + 2) <= 400


def test_tensors_that_enter_products_are_aligned(tmp_path: Path) -> None:
    """The last bits of MKL's products depend on the address of their inputs; numpy's are anywhere."""
    replay, _, _ = pair(tmp_path, 12)
    drawn = replay.sample(3, 2, np.random.default_rng(0))
    values = np.zeros(drawn.action.size + 1, drawn.action.dtype)[1:].reshape(drawn.action.shape)
    tensors = drawn._replace(action=values).tensors()
    assert [tensors[name].data_ptr() % 64 for name in ("action", "reward", "is_first")] == [0, 0, 0]
