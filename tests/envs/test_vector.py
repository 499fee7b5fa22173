"""Vector environments: equal to single ones, no invented transitions, errors that surface, no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import psutil
import pytest

from synora.core.errors import DependencyMissing, SynoraError, UsageError
from synora.envs.factory import make_env, make_vector_env
from synora.envs.interface import episode_seed
from synora.envs.pool import WorkerError
from synora.envs.protocol import named_protocol


def children() -> list[psutil.Process]:
    """Return the worker processes of this test process."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and any("synora.envs.worker" in part for part in child.cmdline())
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("name", "steps"), [("Breakout", 120), ("catch/0", 30), ("Pendulum-v1", 15), ("dummy", 40)])
def test_single_and_vector_give_the_same(name: str, steps: int, workers: int) -> None:
    train = name == "Breakout"  # lost lives end episodes: games go on across resets
    with make_vector_env(name, 3, seed=4, workers=workers, train=train) as vector:
        singles = [make_env(name, seed=0, train=train) for _ in range(3)]
        first = vector.reset()
        for index, env in enumerate(singles):
            np.testing.assert_array_equal(first[index], env.reset(episode_seed(4, index))[0])
        rng = np.random.default_rng(1)
        ended = 0
        for _ in range(steps):
            if name == "Pendulum-v1":
                actions: Any = rng.uniform(-1, 1, (3, 1)).astype(np.float32)
            else:
                actions = rng.integers(0, singles[0].action_space.n, 3)  # type: ignore[union-attr]
            got = vector.step(actions)
            for index, env in enumerate(singles):
                one = env.step(actions[index])
                np.testing.assert_array_equal(got.observations[index], one.observation)
                assert (got.rewards[index], got.terminated[index], got.truncated[index]) == one[1:4]
                for field in ("life_lost", "game_over", "episode_frames"):
                    assert getattr(got, field)[index] == one.info[field]
                assert got.raw_rewards[index] == one.info["raw_reward"]
            if got.done.any():
                ended += 1
                observations = vector.reset(got.done)
                for index in np.flatnonzero(got.done):
                    over = bool(got.game_over[index])
                    seed = episode_seed(4, int(vector.games[index])) if over else None
                    np.testing.assert_array_equal(observations[index], singles[index].reset(seed)[0])
        assert ended or name == "Pendulum-v1"


@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_game_k_has_its_own_seed_whatever_the_number_of_environments(num_envs: int) -> None:
    seen: dict[int, int] = {}
    with make_vector_env("dummy", num_envs, seed=11, workers=0, options={"length": 2}) as vector:
        done = None
        while len(seen) < 10:
            observations = vector.reset(done)
            for index in range(num_envs):
                seen[int(vector.games[index])] = int(observations[index, 0, 1, 0])
            vector.step(np.zeros(num_envs, np.int64))
            done = vector.step(np.zeros(num_envs, np.int64)).done
    assert {k: seen[k] for k in range(10)} == {k: episode_seed(11, k) % 256 for k in range(10)}
    assert len({episode_seed(seed, k) for seed in range(20) for k in range(50)}) == 1000


def test_no_transition_is_invented_at_an_episode_end() -> None:
    """The counting environment tells which step a frame belongs to: every stored pair must be one step apart."""
    with make_vector_env("dummy", 3, seed=0, workers=2, options={"length": 4}) as vector:
        before = vector.reset()
        steps = 0
        for turn in range(12):
            got = vector.step(np.full(3, turn % 3))
            for index in range(3):
                assert got.observations[index, 0, 0, 0] == before[index, 0, 0, 0] + 1
                assert got.rewards[index] == got.observations[index, 0, 0, 0]
                assert got.done[index] == (got.observations[index, 0, 0, 0] == 4)
                steps += 1
            before = vector.reset(got.done) if got.done.any() else got.observations
        assert steps == 36 and list(vector.games) == [9, 10, 11]


def test_an_ended_environment_must_be_reset_or_left_out() -> None:
    with make_vector_env("dummy", 2, workers=2, options={"length": 3}) as vector:
        with pytest.raises(SynoraError, match="no episode is running in environments 0, 1"):
            vector.step([0, 0])
        vector.reset()
        vector.step([0, 0])
        vector.step([1, 9], mask=[True, False])  # what is left out is not looked at
        last = vector.step([0, 0])
        assert list(last.terminated) == [True, False]
        with pytest.raises(SynoraError, match="environments 0;"):
            vector.step([0, 0])
        alone = vector.step([0, 2], mask=[False, True])
        assert list(alone.stepped) == [False, True] and list(alone.rewards) == [0.0, 3.0]
        assert not alone.terminated[0] and alone.observations[0, 0, 0, 0] == 3
        assert alone.observations[1, 0, 2, 0] == 2, "the action reached the right environment"
        assert not vector.running.any()
        fixed = vector.reset([False, True], seeds=[77])
        assert fixed[1, 0, 1, 0] == 77 and vector.games[1] == -1


def test_results_are_the_callers_own() -> None:
    with make_vector_env("dummy", 2, workers=1) as vector:
        first = vector.reset()
        kept = first.copy()
        second = vector.step([0, 0])
        np.testing.assert_array_equal(first, kept)
        frames = second.episode_frames.copy()
        vector.step([0, 0])
        np.testing.assert_array_equal(second.episode_frames, frames)


@pytest.mark.parametrize(
    ("actions", "words"),
    [([0, 3], "0 to 2"), ([0, -1], "0 to 2"), ([0.0, 1.0], "whole numbers"), ([0], "shape"), ([[0, 0]], "shape")],
)
def test_wrong_actions_are_refused_before_any_environment_moves(actions: Any, words: str) -> None:
    with make_vector_env("dummy", 2, workers=0) as vector:
        vector.reset()
        with pytest.raises(UsageError, match=words):
            vector.step(actions)
        assert list(vector.step([0, 0]).rewards) == [1.0, 1.0]


def test_wrong_masks_counts_and_continuous_actions() -> None:
    with make_vector_env("dummy/continuous", 2, workers=1) as vector:
        with pytest.raises(UsageError, match="mask must be 2"):
            vector.reset([0, 1])
        with pytest.raises(UsageError, match="3 seeds for 2"):
            vector.reset(seeds=[1, 2, 3])
        with pytest.raises(UsageError, match="seed -1"):
            vector.reset(seeds=[1, -1])
        vector.reset()
        with pytest.raises(UsageError, match="finite"):
            vector.step([[0.0, float("nan")], [0.0, 0.0]])
        assert vector.step([[5.0, 0.0], [-1.0, 0.0]]).observations[:, 0, 2, 0].tolist() == [255, 0]
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(UsageError, match="num_envs"):
            make_vector_env("dummy", wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="workers"):
        make_vector_env("dummy", 1, workers=-1)
    with pytest.raises(UsageError, match="Did you mean 'Breakout'"):
        make_vector_env("Brekout", 2)


def test_a_workers_exception_surfaces_with_its_traceback_and_leaves_no_process() -> None:
    vector = make_vector_env("dummy", 3, workers=2, options={"fail_at": 2})
    assert len(children()) == 2
    vector.reset()
    vector.step([0, 0, 0])
    start = time.monotonic()
    with pytest.raises(
        WorkerError, match="worker of environments 0 to 1 failed: RuntimeError: dummy failure"
    ) as caught:
        vector.step([0, 0, 0])
    assert time.monotonic() - start < 5
    assert "\n" not in str(caught.value)
    assert "dummy.py" in caught.value.remote_traceback and "in _advance" in str(caught.value.__cause__)
    assert not children()
    with pytest.raises(SynoraError, match="closed"):
        vector.reset()
    vector.close()


def test_a_killed_worker_is_an_error_not_a_hang() -> None:
    with make_vector_env("dummy", 2, workers=2) as vector:
        vector.reset()
        children()[0].kill()
        with pytest.raises(WorkerError, match="signal 9"):
            for _ in range(5):
                vector.step([0, 0])
    assert not children()


def test_an_environment_that_cannot_be_made_is_the_callers_error() -> None:
    if not os.path.exists("/tmp/mnist"):
        with pytest.raises(DependencyMissing, match="MNIST"):
            make_vector_env("mnist/0", 2, workers=1)
    with pytest.raises(UsageError, match="between 1 and 160"):
        make_vector_env("Pong", 1, protocol=named_protocol("atari-100k").replace(size=200), workers=1)
    with pytest.raises(UsageError, match="options"):
        make_vector_env("catch/0", 1, options={"length": 1}, workers=1)
    assert not children()


def test_workers_leave_when_the_vector_is_collected() -> None:
    vector = make_vector_env("dummy", 2, workers=2)
    vector.reset()
    assert len(children()) == 2
    del vector
    assert not children()


ORPHANS = """
import sys, time, psutil
from synora.envs.factory import make_vector_env
vector = make_vector_env("dummy", 2, workers=2)
vector.reset()
print(*[child.pid for child in psutil.Process().children()], flush=True)
while True:
    vector.step([0, 0])
    vector.reset()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_parent(how: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.send_signal(how)
    parent.wait(10)
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def test_workers_ignore_signals_meant_for_the_parent() -> None:
    with make_vector_env("dummy", 2, workers=2) as vector:
        vector.reset()
        for child in children():
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
                child.send_signal(name)
        assert list(vector.step([0, 0]).rewards) == [1.0, 1.0]


def test_facts_come_from_every_environment() -> None:
    with make_vector_env("catch/0", 3, workers=2) as vector:
        vector.reset()
        assert vector.facts() == [{"bsuite_info": {"total_regret": 0.0}, "game_info": {"total_regret": 0.0}}] * 3
