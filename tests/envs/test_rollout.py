"""Playing whole games: every game that is asked for counts, and a failure is never a score."""

import math
from typing import Any

import numpy as np
import pytest

from synora.core.errors import UsageError
from synora.envs.factory import make_vector_env
from synora.envs.interface import Box, Discrete, episode_seed
from synora.envs.rollout import Game, RandomAgent, evaluation, evaluation_envs, play_games
from synora.testing.mocking_classes import MockAgent, MockEnv, MockVectorEnv

SEEDS = [11, 22, 33, 44, 55]


def envs(count: int, **settings: Any) -> Any:
    return lambda: MockVectorEnv(count, lambda: MockEnv(**settings))


def by_seed(seed: int, step: int) -> float:
    return float(seed)


def test_every_game_is_played_once_and_counted_in_order() -> None:
    made: list[MockVectorEnv] = []

    def make() -> MockVectorEnv:
        made.append(MockVectorEnv(2, lambda: MockEnv(length=3, reward=by_seed)))
        return made[-1]

    seen: list[int] = []
    steps: list[int] = []
    games = play_games(make, MockAgent(), SEEDS, on_game=lambda game: seen.append(game.index), on_step=steps.append)
    assert [(g.index, g.seed, g.status, g.score, g.length, g.frames) for g in games] == [
        (index, seed, "ok", 3.0 * seed, 3, 3) for index, seed in enumerate(SEEDS)
    ]
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert len(made) == 1 and made[0].closed
    # Nothing beyond the games that were asked for: the row without a next game is not stepped.
    assert steps[-1] == sum(len(env.actions) for env in made[0].envs) == 15


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_scores_do_not_depend_on_how_many_run_side_by_side(count: int) -> None:
    def play(seeds: list[int], width: int) -> list[Game]:
        agent = RandomAgent(Discrete(3), seed=7)
        return play_games(lambda: make_vector_env("catch/0", width, workers=0), agent, seeds)

    seeds = [episode_seed(3, index) for index in range(7)]
    assert play(seeds, count) == play(seeds, 4)


def test_short_games_are_not_favoured() -> None:
    """The usual mistake: of games side by side, the first n to end are the short ones."""

    class Lengths(MockEnv):
        def _start(self, seed: int) -> Any:
            self._length = 2 if seed % 2 else 20
            return super()._start(seed)

    games = play_games(lambda: MockVectorEnv(4, Lengths), MockAgent(), [0, 1, 2, 3, 4, 5])
    assert [game.length for game in games] == [20, 2, 20, 2, 20, 2]


def test_a_game_that_raises_is_failed_and_the_rest_goes_on() -> None:
    games = play_games(envs(1, fails=lambda seed: seed in (22, 44)), MockAgent(), SEEDS)
    assert [game.status for game in games] == ["ok", "failed", "ok", "failed", "ok"]
    assert [game.score for game in games] == [5.0, None, 5.0, None, 5.0]
    assert games[1].error == "RuntimeError: the game with seed 22 fails, as it was told to"
    assert games[1].length == 4


def test_games_in_progress_beside_a_failure_are_failed_too() -> None:
    games = play_games(envs(2, fails=lambda seed: seed == 11), MockAgent(), SEEDS)
    assert [game.status for game in games] == ["failed", "failed", "ok", "ok", "ok"]
    assert "in one of 2 games side by side" in (games[0].error or "")


def test_when_nothing_works_the_remaining_games_are_not_tried() -> None:
    games = play_games(envs(1, fails=lambda seed: True), MockAgent(), SEEDS)
    assert [game.score for game in games] == [None] * 5
    assert [(game.error or "").startswith("not started: RuntimeError") for game in games] == [False] * 3 + [True] * 2


def test_an_agent_that_raises_fails_its_games() -> None:
    def acts(call: int) -> None:
        if call == 7:
            raise ValueError("no more\nideas")

    games = play_games(envs(1), MockAgent(acts=acts), SEEDS)
    assert [game.status for game in games] == ["ok", "failed", "ok", "ok", "ok"]
    assert games[1].error == "ValueError: no more ideas"


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_fails_its_game_alone(reward: float) -> None:
    games = play_games(
        envs(2, reward=lambda seed, step: reward if seed == 22 and step == 3 else 1.0), MockAgent(), SEEDS
    )
    assert [game.status for game in games] == ["ok", "failed", "ok", "ok", "ok"]
    assert games[1].error == f"the environment's reward is {reward}"


def test_a_sum_that_overflows_is_a_failure() -> None:
    (game,) = play_games(envs(1, reward=lambda seed, step: 1e308), MockAgent(), [1])
    assert (game.status, game.score) == ("failed", None)


@pytest.mark.parametrize(("space", "bad"), [(Discrete(3), 3), (Box((-1.0,), (1.0,)), math.nan)])
def test_an_action_outside_the_space_fails_its_game_alone(space: Any, bad: float) -> None:
    class Sometimes(MockAgent):
        def act(self, *arguments: Any, **named: Any) -> Any:
            actions, state = super().act(*arguments, **named)
            if self.calls == 2:
                actions[1] = bad
            return actions, state

    games = play_games(envs(2, space=space), Sometimes(space), SEEDS)
    assert [game.status for game in games] == ["ok", "failed", "ok", "ok", "ok"]
    assert "not in the action space" in (games[1].error or "")


def test_the_first_failure_to_make_environments_is_the_callers() -> None:
    with pytest.raises(UsageError, match="Breakoutt"):
        play_games(lambda: make_vector_env("Breakoutt", 2), MockAgent(), SEEDS)


def test_a_later_failure_to_make_environments_fails_the_remaining_games() -> None:
    calls = []

    def make() -> MockVectorEnv:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("no memory")
        return MockVectorEnv(1, lambda: MockEnv(fails=lambda seed: seed == 22))

    games = play_games(make, MockAgent(), SEEDS)
    assert [game.status for game in games] == ["ok", "failed", "failed", "failed", "failed"]
    assert games[3].error == "not started: OSError: no memory"


def test_an_interruption_ends_everything_and_closes_the_environments() -> None:
    made = MockVectorEnv(2)

    def acts(call: int) -> None:
        if call == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_games(lambda: made, MockAgent(acts=acts), SEEDS)
    assert made.closed


def test_the_callers_own_errors_are_no_failed_games() -> None:
    def on_game(game: Game) -> None:
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        play_games(envs(1), MockAgent(), SEEDS, on_game=on_game)


def test_whole_games_need_an_evaluation_protocol() -> None:
    with pytest.raises(UsageError, match="lost lives"):
        play_games(lambda: make_vector_env("Breakout", 1, train=True, workers=0), RandomAgent(Discrete(4)), [1])


def test_a_failing_worker_is_a_failed_game() -> None:
    """Through real worker processes: the dummy environment that raises at step 3."""
    agent = RandomAgent(Discrete(3))
    games = play_games(lambda: make_vector_env("dummy", 2, workers=1, options={"fail_at": 3}), agent, SEEDS)
    assert {game.status for game in games} == {"failed"}
    assert "dummy failure at step 3" in (games[0].error or "")


def test_pictures_on_request() -> None:
    shown: dict[int, list[Any]] = {0: [], 1: []}
    play_games(envs(2), MockAgent(), [1, 2], on_frame=lambda index, picture: shown[index].append(picture[0, 0, 0]))
    assert shown == {0: [0, 1, 2, 3, 4, 5], 1: [0, 1, 2, 3, 4, 5]}
    with pytest.raises(UsageError, match="workers=0"):
        play_games(lambda: make_vector_env("dummy", 1, workers=1), MockAgent(), [1], on_frame=lambda i, p: None)


def test_the_evaluation_is_what_adapters_return() -> None:
    found = evaluation(play_games(envs(2, fails=lambda seed: seed == 33), MockAgent(), [11, 22, 33]))
    assert found["episode_returns"] == [5.0, 5.0, None]
    assert found["episode_seeds"] == [11, 22, 33]
    assert found["episodes"][2]["error"].startswith("RuntimeError")


def test_continuous_random_actions_stay_in_the_space() -> None:
    agent = RandomAgent(Box((-2.0, 0.0), (2.0, 1.0)))
    agent.initial(3)
    actions, _ = agent.act(np.zeros((3, 4, 4, 3), np.uint8), np.ones(3, bool), None)
    assert actions.shape == (3, 2) and actions.dtype == np.float32
    assert (np.abs(actions[:, 0]) <= 2).all() and ((actions[:, 1] >= 0) & (actions[:, 1] <= 1)).all()


def test_cheap_environments_are_evaluated_in_this_process() -> None:
    with evaluation_envs("catch/0", 2) as vector:
        assert vector.render(0).shape[-1] == 3


def test_episode_seeds_are_distinct() -> None:
    seeds = {episode_seed(seed, index) for seed in range(20) for index in range(200)}
    assert len(seeds) == 4000
