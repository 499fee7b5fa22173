"""bsuite drawings and scores, Gymnasium pixels, the dummy, and what every environment promises."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from synora.core.errors import DependencyMissing, SynoraError, UsageError
from synora.envs.bsuite import BsuiteEnv, Drawing
from synora.envs.factory import make_env
from synora.envs.ids import BSUITE_DATA, bsuite_tasks
from synora.envs.interface import Box, Discrete, Env, episode_seed
from synora.envs.protocol import named_protocol
from synora.envs.resize import resize_area

FAMILIES = sorted({task.split("/")[0] for task in bsuite_tasks()} - set(BSUITE_DATA))
EVERY_BACKEND = ["Pong", "catch/0", "CartPole-v1", "Pendulum-v1", "dummy"]


def bsuite_env(task: str, seed: int = 0) -> BsuiteEnv:
    env = make_env(task, seed=seed)
    assert isinstance(env, BsuiteEnv)
    return env


def some_action(env: Env, rng: np.random.Generator) -> Any:
    return env.action_space.sample(rng)


def trace(env: Env, seed: int, steps: int = 25) -> Iterator[bytes]:
    """Yield everything an agent sees of some steps."""
    rng = np.random.default_rng(0)
    yield env.reset(seed)[0].tobytes()
    for _ in range(steps):
        result = env.step(some_action(env, rng))
        yield result.observation.tobytes() + repr(result[1:4]).encode()
        if result.terminated or result.truncated:
            return


@pytest.mark.parametrize("name", EVERY_BACKEND)
def test_promises_of_every_environment(name: str) -> None:
    state = np.random.get_state()
    with make_env(name, seed=2) as env, make_env(name, seed=2) as other:
        observation, info = env.reset()
        assert observation.shape == env.observation_shape == (64, 64, 3) and observation.dtype == np.uint8
        assert info["seed"] == episode_seed(2, 0)
        kept = observation.copy()
        result = env.step(some_action(env, np.random.default_rng(0)))
        assert isinstance(result.reward, float) and type(result.terminated) is bool and type(result.truncated) is bool
        assert {"raw_reward", "life_lost", "game_over", "episode_frames"} <= result.info.keys()
        np.testing.assert_array_equal(observation, kept)
        count = env.action_space.n if isinstance(env.action_space, Discrete) else env.action_space.shape[0]
        assert len(env.action_meanings) == count
        render = env.render()
        assert render.ndim == 3 and render.shape[2] == 3 and render.dtype == np.uint8
        np.random.rand(5)  # other users of the global generator change nothing
        assert list(trace(env, 5)) == list(trace(other, 5))
        assert any(list(trace(other, seed)) != list(trace(env, 5)) for seed in range(6, 12)), "the seed changes nothing"
        env.reset(99)
        assert env.reset()[1]["seed"] == episode_seed(2, 1), "an explicit seed is not one of the numbered games"
    np.random.set_state(state)
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    with make_env(name, seed=1) as env:
        list(trace(env, 0))
    assert np.random.get_state()[1].tolist() == before, "the global generator was used"  # type: ignore[index, union-attr]


@pytest.mark.parametrize("name", EVERY_BACKEND)
def test_bad_input_is_one_line(name: str) -> None:
    with make_env(name) as env:
        with pytest.raises(SynoraError, match=r"call reset\(\)"):
            env.step(0 if isinstance(env.action_space, Discrete) else [0.0])
        for seed in (-1, 1.5, "a", True, 1 << 63):
            with pytest.raises(UsageError, match="seed"):
                env.reset(seed)  # type: ignore[arg-type]
        env.reset(0)
        discrete = isinstance(env.action_space, Discrete)
        for action in (-1, 99, 1.0, True, "a", None, [0, 1]) if discrete else ("a", None, [0.0, 1.0], [np.nan], 0.0):
            with pytest.raises(UsageError, match="action") as caught:
                env.step(action)  # type: ignore[arg-type]
            assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="seed -3"):
        make_env(name, seed=-3)


def test_spaces_draw_every_action_within_their_bounds() -> None:
    rng = np.random.default_rng(0)
    assert {Discrete(3).sample(rng) for _ in range(60)} == {0, 1, 2}
    drawn = np.stack([Box((-2.0, 0.0), (2.0, 1.0)).sample(rng) for _ in range(200)])
    assert drawn.dtype == np.float32
    assert (drawn.min(axis=0) >= [-2, 0]).all() and (drawn.max(axis=0) <= [2, 1]).all()
    assert (np.ptp(drawn, axis=0) > [3.6, 0.9]).all()


def test_the_protocol_tells_the_version_that_runs() -> None:
    old = named_protocol("atari-100k").replace(library="ale-py 0.1")
    with make_env("Pong", protocol=old) as env:
        assert env.protocol == named_protocol("atari-100k")


def test_the_families_of_bsuite_are_all_there() -> None:
    assert len(FAMILIES) == 20


@pytest.mark.parametrize("family", FAMILIES)
def test_bsuite_family(family: str) -> None:
    """Run whole games; different observations must give different images, equal ones equal images."""
    last = max(int(task.split("/")[1]) for task in bsuite_tasks() if task.startswith(f"{family}/"))
    for task in (f"{family}/0", f"{family}/{last}"):
        env = bsuite_env(task, seed=3)
        images: dict[bytes, bytes] = {}
        rng = np.random.default_rng(1)
        drawn = env._drawing.draw

        def record(values: np.ndarray, drawn: Any = drawn, images: dict[bytes, bytes] = images) -> np.ndarray:
            image = drawn(values)
            assert images.setdefault(values.tobytes(), image.tobytes()) == image.tobytes()
            return image

        env._drawing.draw = record  # type: ignore[method-assign]
        games = 1 if "mountain_car" in family else 3
        for _ in range(games):
            env.reset()
            for _ in range(1200):
                result = env.step(some_action(env, rng))
                if result.terminated or result.truncated:
                    break
            assert result.terminated
        assert len(set(images.values())) == len(images), f"{task}: two observations have one image"
        assert env.bsuite_num_episodes == bsuite_tasks()[task]
        row = env.score_row()
        assert row["episode"] == games and row["steps"] >= games
        assert set(row) - {"episode", "steps"} == set(result.info["bsuite_info"])


def test_bsuite_scores_equal_one_long_lived_task() -> None:
    """A fresh task each game adds up to what bsuite's own instance counts over the same games."""
    import bsuite
    from bsuite import sweep

    for task in ("bandit/3", "deep_sea/0", "discounting_chain/1", "mountain_car/0", "cartpole_swingup/4"):
        family = task.split("/")[0]
        settings = {key: value for key, value in sweep.SETTINGS[task].items() if key != "seed"}
        long_lived = bsuite.load(family, settings)
        env = bsuite_env(task)
        rng = np.random.default_rng(0)
        for _ in range(3):
            env.reset()
            long_lived.reset()
            ours = theirs = False
            while not (ours or theirs):
                action = some_action(env, rng)
                ours, theirs = env.step(action).terminated, long_lived.step(action).last()
        if family in ("bandit", "deep_sea", "discounting_chain"):  # nothing random within a game
            assert env.bsuite_info() == pytest.approx(long_lived.bsuite_info())
        assert env.bsuite_info().keys() == long_lived.bsuite_info().keys()


def test_bsuite_best_is_a_maximum_and_totals_are_sums() -> None:
    env = bsuite_env("cartpole/0", seed=1)
    rng = np.random.default_rng(0)
    returns = []
    for _ in range(4):
        env.reset()
        total, over = 0.0, False
        while not over:
            result = env.step(some_action(env, rng))
            total, over = total + result.reward, result.terminated
        returns.append(total)
    assert len(set(returns)) > 1
    assert env.bsuite_info() == {"raw_return": sum(returns), "best_episode": max(returns)}


def test_catch_looks_like_its_board_and_lasts_nine_steps() -> None:
    with make_env("catch/0", seed=0) as env:
        image, _ = env.reset(0)
        cells = image[: 10 * 6, : 5 * 12].reshape(10, 6, 5, 12, 3)
        board = cells.mean(axis=(1, 3, 4)) / 255
        assert set(np.unique(board)) == {0.0, 1.0} and board.sum() == 2 and board[9, 2] == 1 and board[0].sum() == 1
        steps = 0
        over = False
        while not over:
            steps += 1
            over = env.step(1).terminated
        assert steps == 9


def test_a_drawing_tells_close_numbers_apart_and_keeps_their_order() -> None:
    drawing = Drawing((1, 6), 64, unit=False)
    values = np.zeros((1, 6))
    sums = []
    for number in (-1e6, -3.0, -1.0, 0.0, 1e-4, 2e-4, 1.0, 1.0001, 3.0, 1e6):
        values[0, 2] = number
        image = drawing.draw(values)
        sums.append(int(image.sum()))
        np.testing.assert_array_equal(image[:20], drawing.draw(np.zeros((1, 6)))[:20])
    assert sums == sorted(sums) and len(set(sums)) == len(sums)
    with pytest.raises(UsageError, match="do not fit"):
        Drawing((70, 70), 64, unit=True, task="big/0")


@pytest.mark.skipif(os.path.exists("/tmp/mnist"), reason="MNIST files are in /tmp/mnist")
@pytest.mark.parametrize("task", ["mnist/0", "mnist_noise/3", "mnist_scale/1"])
def test_mnist_says_what_it_needs(task: str) -> None:
    with pytest.raises(DependencyMissing, match=r"train-images-idx3-ubyte\.gz.* into /tmp/mnist") as caught:
        make_env(task)
    assert "\n" not in str(caught.value)


def test_pendulum_actions_are_scaled_and_clipped() -> None:
    with make_env("Pendulum-v1") as env:
        assert env.action_space == Box((-1.0,), (1.0,))
    raw = named_protocol("gym-pixels").replace(scale_actions=False)
    with make_env("Pendulum-v1") as scaled, make_env("Pendulum-v1", protocol=raw) as plain:
        assert plain.action_space == Box((-2.0,), (2.0,))
        for ours, theirs in (([0.5], [1.0]), ([-1.0], [-2.0]), ([7.0], [2.0])):
            scaled.reset(3)
            plain.reset(3)
            assert scaled.step(ours).reward == plain.step(theirs).reward


def test_action_repeat_sums_rewards_and_time_limit_truncates() -> None:
    twice = named_protocol("gym-pixels").replace(frame_skip=2, max_frames=5)
    with make_env("Pendulum-v1") as once, make_env("Pendulum-v1", protocol=twice) as env:
        once.reset(1)
        env.reset(1)
        rewards = [once.step([0.2]) for _ in range(4)]
        for pair in range(2):
            result = env.step([0.2])
            assert result.reward == rewards[2 * pair].reward + rewards[2 * pair + 1].reward
            np.testing.assert_array_equal(result.observation, rewards[2 * pair + 1].observation)
        last = env.step([0.2])
        assert last.truncated and not last.terminated and last.info["episode_frames"] == 5


def test_gym_pixels_are_the_render_resized_and_gray_on_request() -> None:
    with make_env("CartPole-v1") as env:
        observation, _ = env.reset(0)
        picture = env.render()
        assert picture.shape == (400, 600, 3)
        np.testing.assert_array_equal(observation, resize_area(picture, 64))
        assert observation.min() < 100 < observation.max()
    with make_env("CartPole-v1", protocol=named_protocol("gym-pixels").replace(grayscale=True)) as env:
        assert env.reset(0)[0].shape == (64, 64, 1)


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is not None, reason="Box2D is installed")
def test_car_racing_says_what_it_needs() -> None:
    with pytest.raises(DependencyMissing, match=r"pip install 'synora\[box2d\]'"):
        make_env("CarRacing-v3")


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="needs Box2D: pip install 'synora[box2d]'")
def test_car_racing() -> None:
    with make_env("CarRacing-v3") as env:
        first, _ = env.reset(0)
        assert env.action_space == Box((-1.0,) * 3, (1.0,) * 3)
        for _ in range(60):
            result = env.step([0.0, 1.0, -1.0])
        assert (result.observation != first).any()
        assert not np.array_equal(result.observation, resize_area(env.render(), 64)), "its own picture, not the video's"


def test_the_dummy_counts() -> None:
    with make_env("dummy", options={"length": 3, "truncate": True, "life_every": 2}) as env:
        observation, _ = env.reset(300)
        assert (observation[0, 0, 0], observation[0, 1, 0]) == (0, 300 % 256)
        results = [env.step(action) for action in (2, 0, 1)]
        assert [result.observation[0, 0, 0] for result in results] == [1, 2, 3]
        assert [result.observation[0, 2, 0] for result in results] == [2, 0, 1]
        assert [result.info["life_lost"] for result in results] == [False, True, False]
        assert results[-1].truncated and not results[-1].terminated
    with make_env(
        "dummy",
        train=True,
        protocol=named_protocol("dummy", train=True).replace(life_loss="end"),
        options={"life_every": 4},
    ) as env:
        env.reset()
        assert [env.step(0).terminated for _ in range(4)] == [False, False, False, True]
        assert env.reset()[1]["seed"] is None
        assert env.step(0).info["episode_frames"] == 5
