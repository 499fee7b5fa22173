"""What an adapter returned, read with suspicion."""

import math
from typing import Any

import numpy as np
import pytest

from synora.benchmarks.episodes import read_evaluation, summary
from synora.core.errors import SynoraError


def test_returns_alone_are_enough() -> None:
    episodes = read_evaluation({"episode_returns": [1, np.float32(2.5), np.int64(3)]}, 3)
    assert [episode["return"] for episode in episodes] == [1.0, 2.5, 3.0]
    assert {type(episode["return"]) for episode in episodes} == {float}
    assert {episode["status"] for episode in episodes} == {"ok"}
    assert episodes[0]["length"] is None and episodes[0]["seed"] is None
    assert read_evaluation({"episode_returns": np.array([1.0, 2.0])}, 2)[1]["return"] == 2.0


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf, np.float64("nan")])
def test_what_is_no_number_is_a_failed_episode(bad: Any) -> None:
    episodes = read_evaluation({"episode_returns": [1.0, bad], "episodes": [{}, {"error": "the\ngame froze"}]}, 2)
    assert (episodes[1]["status"], episodes[1]["return"], episodes[1]["error"]) == ("failed", None, "the game froze")
    figures = summary(episodes)
    assert [figures[name] for name in ("mean", "std", "median", "min", "max")] == [None] * 5
    assert figures["episodes_failed"] == 1
    assert figures["reason"] == "1 of 2 episodes failed; the first: the game froze"
    assert "no return" in read_evaluation({"episode_returns": [bad]}, 1)[0]["error"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1.0, 2.0],
        {},
        {"episode_returns": None},
        {"episode_returns": "12"},
        {"episode_returns": 3.0},
        {"episode_returns": [1.0]},
        {"episode_returns": [1.0, 2.0, 3.0]},
        {"episode_returns": [1.0, "2"]},
        {"episode_returns": [1.0, True]},
        {"episode_returns": [1.0, [2.0]]},
        {"episode_returns": {0: 1.0, 1: 2.0}},
        {"episode_returns": {1.0, 2.0}},
        {"episode_returns": np.ones((2, 1))},
        {"episode_returns": [1.0, 2.0], "episode_lengths": [3]},
        {"episode_returns": [1.0, 2.0], "episode_lengths": [3, -5]},
        {"episode_returns": [1.0, 2.0], "episode_lengths": [3, "4"]},
        {"episode_returns": [1.0, 2.0], "episode_seeds": {1, 2}},
        {"episode_returns": [1.0, 2.0], "episodes": [{}, {"error": "failed, and yet a number"}]},
    ],
)
def test_what_is_not_an_evaluation_of_two_episodes(value: Any) -> None:
    with pytest.raises(SynoraError):
        read_evaluation(value, 2)


def test_figures() -> None:
    figures = summary(read_evaluation({"episode_returns": [1.0, 2.0, 6.0]}, 3))
    assert (figures["mean"], figures["median"], figures["min"], figures["max"]) == (3.0, 2.0, 1.0, 6.0)
    assert figures["std"] == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert (figures["episodes_failed"], figures["reason"]) == (0, None)
    one = summary(read_evaluation({"episode_returns": [1.0]}, 1))
    assert (one["mean"], one["std"], one["reason"]) == (1.0, None, "one episode has no spread")
