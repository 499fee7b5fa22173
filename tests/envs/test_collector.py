"""Collecting: what goes into replay, numbering of games, and coming back from a checkpoint exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synora.core.errors import FileError
from synora.envs.collector import Collector, auto_workers
from synora.envs.factory import make_vector_env
from synora.envs.interface import episode_seed
from synora.envs.lanes import Lanes
from synora.envs.protocol import named_protocol
from synora.envs.vector import VectorEnv

LIVES = named_protocol("dummy", train=True).replace(life_loss="end")


class Rows:
    """A replay that remembers what it is given."""

    def __init__(self, streams: int) -> None:
        self.streams: list[list[dict[str, Any]]] = [[] for _ in range(streams)]

    def add(self, *, step: int, streams: Any = None, **columns: Any) -> None:
        for row, stream in enumerate(range(len(self.streams)) if streams is None else streams):
            self.streams[stream].append({"step": step, **{name: value[row].copy() for name, value in columns.items()}})

    def equals(self, other: Rows, since: int = 0) -> bool:
        mine = [[row for row in stream if row["step"] >= since] for stream in self.streams]
        theirs = [[row for row in stream if row["step"] >= since] for stream in other.streams]
        return [len(one) for one in mine] == [len(one) for one in theirs] and all(
            np.array_equal(a[name], b[name])
            for one, two in zip(mine, theirs, strict=True)
            for a, b in zip(one, two, strict=True)
            for name in a
        )


class Scripted:
    """Actions that depend on the step alone, so that any collector acts alike."""

    def __init__(self, envs: VectorEnv) -> None:
        self.space, self.count = envs.action_space, envs.num_envs

    def __call__(self, frames: Any, fresh: Any, step: int) -> Any:
        rng = np.random.default_rng(step)
        drawn = [self.space.sample(rng) for _ in range(self.count)]
        return np.array(drawn, np.float32) if np.ndim(drawn[0]) else np.array(drawn)


def make(game: str, count: int = 3, workers: int = 0, **options: Any) -> VectorEnv:
    if game == "dummy":
        protocol = LIVES if options.get("life_every") else None
        return make_vector_env("dummy", count, seed=3, protocol=protocol, train=True, workers=workers, options=options)
    return make_vector_env(game, count, seed=3, train=True, workers=workers)


def collector(envs: VectorEnv) -> tuple[Collector, Rows, Scripted]:
    rows, space = Rows(envs.num_envs), envs.action_space
    return Collector(envs, rows, getattr(space, "shape", ())), rows, Scripted(envs)


def test_what_is_stored_happened() -> None:
    """The dummy's frames count its steps: every row of a stream is one step after the row before, or a first frame."""
    with make("dummy", 2, length=4) as envs:
        one, rows, policy = collector(envs)
        metrics = one.collect(20, policy)
    assert metrics == {"return": 10.0, "game_length": 4.0}
    assert [len(stream) for stream in rows.streams] == [13, 13]  # 10 steps, and the first frames of 3 games
    for lane, stream in enumerate(rows.streams):
        games = 0
        for before, row in zip([None, *stream], stream, strict=False):
            assert row["image"].shape == (3, 64, 64)
            if row["is_first"]:
                assert before is None or before["is_last"]
                assert row["image"][0, 0, 0] == 0 and row["action"] == 0 and row["reward"] == 0
                assert row["image"][0, 0, 1] == episode_seed(3, lane + 2 * games) % 256
                games += 1
            else:
                assert before is not None and not before["is_last"]
                assert row["image"][0, 0, 0] == before["image"][0, 0, 0] + 1 == row["reward"]
                assert row["image"][0, 0, 2] == row["action"]
                assert bool(row["is_terminal"]) == bool(row["is_last"]) == (row["reward"] == 4)


def test_games_are_numbered_in_the_order_of_starts_whatever_the_environments() -> None:
    for count in (1, 2, 4):
        with make("dummy", count, length=2) as envs:
            one, rows, policy = collector(envs)
            one.collect(8 * count, policy)
        firsts = [row for stream in rows.streams for row in stream if row["is_first"]]
        seeds = sorted(int(row["image"][0, 0, 1]) for row in firsts)
        assert seeds == sorted(episode_seed(3, k) % 256 for k in range(len(firsts)))


def test_lost_lives_end_episodes_and_not_games() -> None:
    with make("dummy", 1, length=7, life_every=3) as envs:
        one, rows, policy = collector(envs)
        metrics = one.collect(14, policy)
    assert metrics == {"return": 28.0, "game_length": 7.0}
    (stream,) = rows.streams
    assert [int(row["image"][0, 0, 0]) for row in stream if row["is_first"]] == [0, 3, 6, 0, 3, 6]
    assert [int(row["image"][0, 0, 0]) for row in stream if row["is_terminal"]] == [3, 6, 7, 3, 6, 7]


def test_one_hot_actions_reach_the_environment() -> None:
    with make("dummy", 2) as envs:
        rows = Rows(2)
        Collector(envs, rows, [3]).collect(2, lambda *_: np.eye(3, dtype=np.float32)[[2, 1]])
    assert [int(stream[-1]["image"][0, 0, 2]) for stream in rows.streams] == [2, 1]
    assert rows.streams[0][0]["action"].shape == (3,) and rows.streams[0][1]["action"].tolist() == [0, 0, 1]


GAMES = [
    ("dummy", {"length": 7, "life_every": 3}, 60),
    ("dummy", {"length": 5, "truncate": True}, 60),
    ("dummy", {"continuous": True, "length": 5}, 30),
    ("catch/0", {}, 60),
    ("Pendulum-v1", {}, 30),
    ("Breakout", {}, 240),  # lost lives, several games
]


def envs_of(game: str, options: dict[str, Any], workers: int) -> VectorEnv:
    if options.get("continuous"):
        return make_vector_env("dummy/continuous", 3, seed=3, train=True, workers=workers, options={"length": 5})
    return make(game, 3, workers, **options)


@pytest.mark.parametrize(("game", "options", "steps"), GAMES)
def test_a_loaded_collector_goes_on_as_the_saved_one(game: str, options: dict[str, Any], steps: int) -> None:
    """Also with another number of processes, and at every kind of moment."""
    with envs_of(game, options, 0) as envs:
        one, rows, policy = collector(envs)
        saved, metrics = [], []
        for _ in range(steps // 15):
            metrics.append(one.collect(15, policy))
            saved.append(one.state_dict())
    for place in {0, len(saved) // 2, len(saved) - 2}:
        with envs_of(game, options, place % 2 + 1) as envs:
            again, later, policy = collector(envs)
            again.load_state_dict(saved[place])
            found = [again.collect(15, policy) for _ in saved[place + 1 :]]
            assert found == metrics[place + 1 :]
            since = saved[place]["step"] + 1
            assert later.equals(rows, since)
            last, wanted = again.state_dict(), saved[-1]
    assert (last["next_game"], last["step"]) == (wanted["next_game"], wanted["step"])
    for mine, theirs in zip(last["lanes"], wanted["lanes"], strict=True):
        assert all(np.array_equal(mine[name], theirs[name]) for name in theirs)


def test_only_games_in_progress_are_kept() -> None:
    with make("dummy", 2, length=4) as envs:
        one, _, policy = collector(envs)
        one.collect(6, policy)
        assert [len(lane["actions"]) for lane in one.state_dict()["lanes"]] == [3, 3]
        one.collect(2, policy)
        state = one.state_dict()
    assert [(lane["idle"], len(lane["actions"])) for lane in state["lanes"]] == [(True, 0), (True, 0)]


@pytest.mark.parametrize("what", ["action", "frame", "life", "too long", "lanes"])
def test_a_game_that_does_not_come_back_is_named(what: str) -> None:
    with make("dummy", 2, length=9, life_every=3) as envs:
        one, _, policy = collector(envs)
        one.collect(10, policy)
        state = one.state_dict()
    lane = state["lanes"][1]
    if what == "action":
        lane["actions"][-1] = (lane["actions"][-1] + 1) % 3
    elif what == "frame":
        lane["frame"][0, 5, 5] ^= 1
    elif what == "life":
        lane["actions"] = np.delete(lane["actions"], 3)
    elif what == "too long":
        lane["actions"] = np.tile(lane["actions"], 3)
    else:
        state["lanes"] = state["lanes"][:1]
    with make("dummy", 2, length=9, life_every=3) as envs, pytest.raises(FileError, match=r"come back|environments"):
        Lanes(envs).load_state_dict(state)


def test_a_game_that_ends_between_two_lives_is_counted_and_the_next_is_numbered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from synora.envs.dummy import DummyEnv
    from synora.envs.interface import Transition

    def resume(self: DummyEnv) -> Transition:
        return Transition(self.render(), 0.0, terminated=self.episode_frames >= 4, truncated=False)

    monkeypatch.setattr(DummyEnv, "_resume", resume)
    with make("dummy", 2, length=9, life_every=2) as envs:
        one, rows, policy = collector(envs)
        assert one.collect(8, policy) == {}
        state = one.state_dict()
        assert one.collect(2, policy) == {"return": 10.0, "game_length": 4.0}
        assert list(envs.games) == [2, 3]
    starts = [int(row["image"][0, 0, 1]) for row in rows.streams[0] if row["is_first"] and row["image"][0, 0, 0] == 0]
    assert starts == [episode_seed(3, 0) % 256, episode_seed(3, 2) % 256]
    with make("dummy", 2, length=9, life_every=2) as envs:
        again, later, policy = collector(envs)
        again.load_state_dict(state)
        assert again.collect(2, policy) == {"return": 10.0, "game_length": 4.0}
        assert later.equals(rows, 9)


def test_a_failing_environment_stops_the_collecting() -> None:
    with make("dummy", 2, length=9, fail_at=3) as envs:
        one, _, policy = collector(envs)
        with pytest.raises(RuntimeError, match="dummy failure at step 3"):
            one.collect(8, policy)
    with make("dummy", 2) as envs:
        one, _, policy = collector(envs)
        with pytest.raises(ValueError, match="3 interactions cannot be shared by 2 environments"):
            one.collect(3, policy)


def test_processes_where_they_pay() -> None:
    assert auto_workers("ale", 4) is None and auto_workers("gym", 2) is None
    assert auto_workers("ale", 1) == auto_workers("bsuite", 8) == auto_workers("dummy", 8) == 0


def test_collecting_into_the_real_replay(tmp_path: Path) -> None:
    from synora.runtime.replay import Replay

    with make("dummy", 2, length=4) as envs:
        replay = Replay(tmp_path, capacity=100, observation_shape=(3, 64, 64), action_type="int64", streams=2)
        Collector(envs, replay).collect(8, Scripted(envs))
        assert len(replay) == 10 and replay.step == 8
        drawn = replay.sample(4, 5, np.random.default_rng(0), within_episodes=True)
        assert drawn.reward[:, 0].tolist() == [0, 1, 2, 3, 4] and drawn.is_last[-1].tolist() == [1] * 4
        replay.close()
