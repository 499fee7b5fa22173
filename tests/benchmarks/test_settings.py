"""Seeds as users write them, and jobs made of them."""

import pytest

from synora.benchmarks.settings import ReturnsParams, check_seeds, make_jobs, parse_seeds
from synora.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1", [0]),
        ("3", [0, 1, 2]),
        ("0,1", [0, 1]),
        ("3,", [3]),
        ("7,2", [7, 2]),
        (" 0 , 5 ", [0, 5]),
        ("0,1,", [0, 1]),
    ],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["a", "-1", "0,,1", "0", "", ",", "1.5", "0,-2", "1,b", "3,3", "1_0", "99999999", "0x3", "1;2", "٣"]
)
def test_what_is_no_list_of_seeds(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_seeds(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seeds", [[], [True], [-1], [1.5], [2**63], [1, 1], ["0"]])
def test_seeds_from_python(seeds: list[int]) -> None:
    with pytest.raises(UsageError):
        check_seeds(seeds)


def test_a_job_is_one_seed_and_its_content_is_its_identity() -> None:
    env = {"game": "catch/0", "backend": None}
    jobs = make_jobs("random", env, [0, 4], episodes=2)
    assert [job.params["eval_seed"] for job in jobs] == [0, 4]
    assert [job.name for job in jobs] == ["random catch/0 seed 0", "random catch/0 seed 4"]
    assert len({job.job_id for job in jobs}) == 2
    assert jobs == make_jobs("random", env, [0, 4], episodes=2)
    assert ReturnsParams(**jobs[0].params).num_envs == 2  # never more environments than games
    assert make_jobs("random", env, [0], episodes=50)[0].params["num_envs"] == 4


@pytest.mark.parametrize(
    ("env", "common", "words"),
    [
        ({}, {}, "game"),
        ({"game": 3}, {}, "game"),
        ({"game": "catch/0", "gmae": 1}, {}, "'gmae'"),
        ({"game": "catch/0"}, {"episodes": 0}, "episodes"),
        ({"game": "catch/0"}, {"episodes": True}, "episodes"),
        ({"game": "catch/0"}, {"num_envs": 0}, "num_envs"),
        ({"game": "catch/0"}, {"device": "gpu"}, "gpu"),
        ({"game": "catch/0"}, {"nonsense": 1}, "nonsense"),
        ({"game": "catch/0"}, {"extra": {"net": object()}}, "extra"),
    ],
)
def test_what_no_job_may_hold(env: dict, common: dict, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_jobs("random", env, [0], **common)
    assert words in str(caught.value)
