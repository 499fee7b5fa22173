"""bsuite's scores: against bsuite's own numbers (outside the repository), its code, and a small worked example.

`bsuite_logs/` is made up, with figures that can be checked in the head; `WORKED` has what they give.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synora.benchmarks import bsuite_sweep
from synora.benchmarks.bsuite_logs import as_log, columns, is_logged, read_logs, rows_of_games
from synora.benchmarks.bsuite_scores import ExperimentScore, score_experiment, score_logs, tag_scores
from synora.benchmarks.bsuite_sweep import EXPERIMENTS, TAGS, split_id, sweep
from synora.core.errors import DependencyMissing, FileError, UsageError

HERE = Path(__file__).resolve().parent
OWN_LOGS = HERE / "bsuite_logs"
REFERENCE = Path(os.environ.get("SYNORA_REFERENCE_DIR") or HERE.parents[2] / "shared" / "reference") / "bsuite"
TOLERANCE = 1e-9
needs_reference = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason=f"no reference data at {REFERENCE} (set SYNORA_REFERENCE_DIR)"
)

# Experiment -> its score and whether it is finished.
WORKED = {
    "bandit": (0.8, True),  # regret 0.1 a game, of 0.5
    "cartpole": (0.75, False),  # half of 1 (the second task is behind), half of 1/2
    "cartpole_swingup": (0.375, False),  # (0.75 + 0) / 2
    "catch_noise": (0.6, True),  # 0.9 and 0.5: mean 0.7, deviation 0.2
    "deep_sea": (0.5, True),  # solved at 1,100 < 2**10 + 100; at 10,000 >= 2**12 + 100
    "deep_sea_stochastic": (1.0, False),  # the lucky first games do not count
    "discounting_chain": (0.5, True),  # 1.05 of 1.1
    "memory_len": (0.5, False),  # 0.6 and 0.8, threshold 0.75
    "memory_size": (0.0, True),  # exactly 0.75
    "mnist": (0.75, True),  # half of 0.5, half of 1
    "mountain_car": (0.8, True),  # 200 steps worse than 100, of 1,000
    "umbrella_distract": (0.0, True),  # exactly 0.5
    "umbrella_length": (1.0, True),
}
WORKED_TAGS = {
    "basic": (0.8 + 0.75 + 0.75 + 0.8) / 4,
    "noise": (0.6 + 1.0 + 0.0 + 1.0) / 4,
    "scale": None,
    "memory": 0.25,
    "exploration": (0.375 + 0.5 + 1.0) / 3,
    "generalization": (0.75 + 0.375 + 0.75 + 0.8) / 4,
    "credit_assignment": (0.75 + 0.6 + 0.5 + 0.0 + 1.0) / 5,
}


def reference_folders() -> list[Any]:
    folders = sorted(REFERENCE.glob("logs/*"))
    return [pytest.param(folder, id=folder.name) for folder in folders] or [
        pytest.param(None, marks=needs_reference, id="reference")
    ]


class TestReference:
    @pytest.mark.parametrize("folder", reference_folders())
    def test_scores_are_bsuites(self, folder: Path) -> None:
        expected = json.loads((REFERENCE / "expected_scores.json").read_text())[folder.name]
        got = score_logs(read_logs(folder).tasks)
        assert set(got.experiments) == set(expected["scores"])
        for name, want in expected["scores"].items():
            score = got.experiments[name]
            assert score.score == pytest.approx(want["score"], abs=TOLERANCE, rel=TOLERANCE), name
            assert score.finished == want["finished"], name
            assert (score.tags[0], list(score.tags)) == (want["type"], want["tags"])
        for tag, want in expected["tag_means"].items():
            expectation = None if want is None else pytest.approx(want, abs=TOLERANCE, rel=TOLERANCE)
            assert got.tags[tag].score == expectation, tag

    @needs_reference
    def test_experiments_are_bsuites(self) -> None:
        with (REFERENCE / "experiments.csv").open() as stream:
            rows = {row["experiment"]: row for row in csv.DictReader(stream)}
        assert list(EXPERIMENTS) == sorted(rows)
        for name, row in rows.items():
            one = EXPERIMENTS[name]
            assert (one.settings, one.episodes) == (int(row["settings"]), int(row["episodes"]))
            assert list(one.tags) == row["tags"].split(";")
        with (REFERENCE / "ids.csv").open() as stream:
            assert sorted(row["bsuite_id"] for row in csv.DictReader(stream)) == sorted(
                task for one in EXPERIMENTS.values() for task in one.ids
            )

    @needs_reference
    def test_published_tag_rows_follow_from_the_experiments(self) -> None:
        with (REFERENCE / "published_scores.csv").open() as stream:
            header, *rows = list(csv.reader(stream))
        agents = sorted({row[2] for row in rows})
        assert agents, header
        for agent in agents:
            printed = {row[1]: float(row[3]) for row in rows if row[2] == agent}
            tags = tag_scores(scored(name, printed[name]) for name in EXPERIMENTS)
            for tag in TAGS:
                assert tags[tag].score == pytest.approx(printed[tag], abs=0.0101), (agent, tag)  # both are rounded


class TestWorkedExample:
    def test_scores(self) -> None:
        got = score_logs(read_logs(OWN_LOGS).tasks)
        found = {name: (one.score, one.finished) for name, one in got.experiments.items()}
        assert found == {name: (pytest.approx(score), finished) for name, (score, finished) in WORKED.items()}
        for tag, score in WORKED_TAGS.items():
            assert got.tags[tag].score == (None if score is None else pytest.approx(score)), tag

    def test_what_is_missing_is_named(self) -> None:
        got = score_logs(read_logs(OWN_LOGS).tasks)
        cartpole = got.experiments["cartpole"]
        assert cartpole.unfinished == {"cartpole/1": 500}
        assert cartpole.note == (
            "partial: 1 of 2 logged settings have not run 1000 episodes (cartpole/1 has 500); 2 of 20 settings "
            "(missing: cartpole/2 to cartpole/19)"
        )
        assert "missing: catch_noise/2 to catch_noise/3, catch_noise/5 to" in str(got.experiments["catch_noise"].note)
        assert got.tags["memory"].experiments == ("memory_len", "memory_size")
        assert not got.tags["memory"].finished
        assert got.tags["scale"].experiments == ()
        assert "mountain_car_scale" in got.tags["scale"].missing

    def test_all_settings_finished_leave_no_note(self) -> None:
        rows = [{"episode": 1000, "total_return": 1100.0}]
        score = score_experiment("discounting_chain", {f"discounting_chain/{i}": rows for i in range(20)})
        assert (score.score, score.finished, score.missing, score.note) == (pytest.approx(1.0), True, (), None)

    def test_json(self) -> None:
        got = json.loads(json.dumps(score_logs(read_logs(OWN_LOGS).tasks).to_json(), allow_nan=False))
        assert got["experiments"]["bandit"]["tags"] == ["basic"]
        assert got["experiments"]["bandit"]["note"].startswith("1 of 20 settings")
        assert got["tags"]["scale"]["score"] is None

    def test_rows_in_another_order_and_whole_columns_give_the_same(self) -> None:
        logs = read_logs(OWN_LOGS).tasks
        turned = {
            task: [{name: values[row] for name, values in log.items()} for row in reversed(range(len(log["episode"])))]
            for task, log in reversed(logs.items())
        }
        assert score_logs(turned) == score_logs(logs)


class TestNoNumber:
    def test_mnist_needs_the_last_tenth(self) -> None:
        logs = {"mnist/0": [{"episode": 9000, "total_regret": 9000.0}]}
        score = score_experiment("mnist", logs)
        assert score.score is None
        assert score.note is not None and "no row after episode 9000" in score.note
        assert score_logs(logs).tags["basic"].score is None
        noisy = {"mnist_noise/0": [{"episode": 10, "total_regret": 9.0}]}
        assert score_experiment("mnist_noise", noisy).score is None

    def test_stochastic_deep_sea_before_episode_100(self) -> None:
        score = score_experiment("deep_sea_stochastic", {"deep_sea_stochastic/0": [row(99, total_bad_episodes=0)]})
        assert score.score is None
        assert not score.finished

    def test_a_run_beyond_the_end_without_a_row_at_the_end(self) -> None:
        score = score_experiment("catch", {"catch/0": [row(9000, total_regret=0), row(20000, total_regret=0)]})
        assert score.score is None
        assert score.reason == "no row at episode 10000"

    def test_later_rows_than_the_last_do_not_count(self) -> None:
        rows = [row(1000, raw_return=0, best_episode=0), row(2000, raw_return=1e6, best_episode=1001)]
        assert score_experiment("cartpole", {"cartpole/0": rows}).score == 0.0


class TestLogs:
    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ([], "no rows"),
            ([{"episode": 1}], "lacks total_regret"),
            ([row_ := {"episode": 1, "total_regret": 0}, row_], "episode 1 more than once"),
            ([{"episode": 1.5, "total_regret": 0}], "episode 1.5"),
            ([{"episode": 0, "total_regret": 0}], "episode 0"),
            ([{"episode": 1, "total_regret": float("nan")}], "missing or not finite"),
            ([{"episode": 1, "total_regret": None}], "missing or not finite"),
            ([{"episode": 1, "total_regret": "much"}], "no number"),
            ({"episode": [1, 2], "total_regret": [0]}, "different lengths"),
        ],
    )
    def test_bad_rows(self, rows: Any, words: str) -> None:
        with pytest.raises(UsageError, match=words) as caught:
            score_logs({"catch/3": rows})
        assert "catch/3" in str(caught.value)

    def test_bad_tasks(self) -> None:
        with pytest.raises(UsageError, match="Did you mean 'catch'"):
            score_logs({"cach/0": []})
        with pytest.raises(UsageError, match="catch/0 to catch/19"):
            score_logs({"catch/20": []})
        with pytest.raises(UsageError, match="no bsuite logs"):
            score_logs({})
        with pytest.raises(UsageError, match="bandit/0 is not a task of catch"):
            score_experiment("catch", {"bandit/0": []})
        with pytest.raises(UsageError, match="unknown bsuite experiment"):
            score_experiment("basic", {})

    def test_columns(self) -> None:
        assert columns(EXPERIMENTS["cartpole_noise"]) == ("episode", "raw_return", "best_episode")
        log = as_log("catch/0", [{"episode": 2, "total_regret": 1, "agent": "x"}, {"episode": 1, "total_regret": 0}])
        assert {name: values.tolist() for name, values in log.items()} == {"episode": [1, 2], "total_regret": [0, 1]}


class TestFiles:
    def test_other_files_are_named(self, tmp_path: Path) -> None:
        shutil.copy(OWN_LOGS / "bsuite_id_-_bandit-0.csv", tmp_path)
        (tmp_path / "notes.csv").write_text("a\n")
        (tmp_path / "notes.txt").write_text("a\n")
        logs = read_logs(tmp_path)
        assert (list(logs.tasks), logs.ignored) == (["bandit/0"], ("notes.csv",))

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("catch-0", b"", "empty"),
            ("catch-0", b"episode,total_regret\n", "no rows"),
            ("catch-0", b"episode,total_regret\n1,0\n2,1", "cut off"),
            ("catch-0", b"episode,total_regret\n1,0\n2\n", "line 3 has 1 values for 2 columns"),
            ("catch-0", b"episode,total_regret\n1,0\n2,\n", "line 3: total_regret is ''"),
            ("catch-0", b"episode,total_regret\n1,nan\n", "line 2: total_regret is 'nan'"),
            ("catch-0", b"episode,total_regret\n1,0\n1,0\n", "more than once"),
            ("catch-0", b"episode\n1\n", "lacks total_regret"),
            ("catch-0", b"\xff\xfe\x00\x01\n", "not a text file"),
            ("catch-0", b"episode,total_regret\n1,\x00\n", "total_regret is|NUL"),
            ("catch-20", b"episode,total_regret\n1,0\n", "catch/19"),
            ("catch-00", b"episode,total_regret\n1,0\n", "unknown bsuite task"),
            ("cach-0", b"episode,total_regret\n1,0\n", "Did you mean 'catch'"),
            ("catch", b"episode,total_regret\n1,0\n", "the name is not"),
        ],
    )
    def test_malformed_files(self, tmp_path: Path, name: str, content: bytes, words: str) -> None:
        path = tmp_path / f"bsuite_id_-_{name}.csv"
        path.write_bytes(content)
        with pytest.raises(FileError, match=words) as caught:
            read_logs(tmp_path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_byte_order_mark_carriage_returns_and_empty_lines(self, tmp_path: Path) -> None:
        (tmp_path / "bsuite_id_-_catch-0.csv").write_bytes(b"\xef\xbb\xbfepisode,total_regret\r\n1,0.5\r\n\r\n")
        assert read_logs(tmp_path).tasks["catch/0"]["total_regret"].tolist() == [0.5]

    def test_folders(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="no logs of bsuite"):
            read_logs(tmp_path)
        with pytest.raises(FileError, match="cannot be read"):
            read_logs(tmp_path / "nowhere")


class TestSweep:
    @pytest.fixture
    def data(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
        """Take the MNIST data away; what is returned puts it there."""
        monkeypatch.setattr("synora.envs.bsuite._MNIST_FOLDER", tmp_path)

        def put() -> None:
            for kind in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
                (tmp_path / f"{kind}-ubyte.gz").write_bytes(b"")

        return put

    def test_names(self, data: Callable[[], None]) -> None:
        assert sweep("catch").ids == tuple(f"catch/{i}" for i in range(20))
        assert len(sweep("memory").ids) == 40
        assert sweep("deep-sea").name == "deep_sea"

    def test_mnist_only_where_its_data_is(self, data: Callable[[], None]) -> None:
        all_but = sweep("all")
        assert (len(all_but.ids), all_but.left_out) == (408, ("mnist", "mnist_noise", "mnist_scale"))
        assert "put train-images" in str(all_but.reason)
        assert len(sweep("testing").ids) == 12
        with pytest.raises(DependencyMissing, match="MNIST"):
            sweep("mnist_noise")
        data()
        assert (len(sweep("all").ids), sweep("all").left_out, sweep("all").reason) == (468, (), None)
        assert len(sweep("mnist").ids) == 20

    def test_unknown(self) -> None:
        with pytest.raises(UsageError, match=r"unknown bsuite sweep 'cach'\. Did you mean 'catch'"):
            sweep("cach")

    def test_table_is_that_of_the_installed_bsuite(self, data: Callable[[], None]) -> None:
        theirs = pytest.importorskip("bsuite.sweep", reason="bsuite is not installed")
        data()
        assert sorted(sweep("all").ids) == sorted(theirs.SWEEP)
        assert sweep("testing").ids == theirs.TESTING
        for tag in TAGS:
            assert sorted(sweep(tag).ids) == sorted(theirs.TAGS[tag])
        for task in theirs.SWEEP:
            experiment, place = split_id(task)
            assert experiment.episodes == theirs.EPISODES[task]
            settings = theirs.SETTINGS[task]
            if "size" in settings:
                assert settings["size"] == 10 + 2 * place
            for swept in ("noise_scale", "reward_scale"):
                if swept in settings:
                    first = place - place % experiment.repeats
                    assert settings[swept] == theirs.SETTINGS[f"{experiment.name}/{first}"][swept]


class TestAgainstBsuite:
    """The installed bsuite, with the one method that pandas took from it put back."""

    def test_logging_rule(self) -> None:
        wrappers = pytest.importorskip("bsuite.utils.wrappers", reason="bsuite is not installed")
        assert [n for n in range(1, 20_001) if is_logged(n)] == [
            n for n in range(1, 20_001) if wrappers._logarithmic_logging(n)
        ]

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("seed", range(3))
    def test_random_logs(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        pd = pytest.importorskip("pandas", reason="pandas is not installed")
        analysis = pytest.importorskip("bsuite.experiments.summary_analysis", reason="bsuite is not installed")
        from bsuite.logging.logging_utils import join_metadata

        monkeypatch.setattr(pd.Series, "append", lambda one, other: pd.concat([one, other]), raising=False)
        logs = random_logs(np.random.default_rng(seed))
        frames = [pd.DataFrame(rows).assign(bsuite_id=task) for task, rows in logs.items()]
        theirs = analysis.bsuite_score(join_metadata(pd.concat(frames)))
        got = score_logs(logs)
        assert len(theirs) == len(got.experiments) == 23
        for _, want in theirs.iterrows():
            ours = got.experiments[want.bsuite_env]
            score = None if np.isnan(want.score) else pytest.approx(want.score, abs=TOLERANCE)
            assert (ours.score, ours.finished) == (score, want.finished), want.bsuite_env
        by_tag = analysis.ave_score_by_tag(theirs, None)
        for _, want in by_tag.iterrows():
            assert got.tags[want.tag].score == pytest.approx(want.score, abs=TOLERANCE), want.tag


class TestRowsOfGames:
    def test_sums_bests_and_the_rows_that_are_logged(self) -> None:
        games = [{"return": 1.0, "length": 2, "raw_return": 3.0, "best_episode": float(i % 7)} for i in range(13)]
        rows = list(rows_of_games(games))
        assert [row["episode"] for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
        assert rows[-1] == {
            "steps": 24,
            "episode": 12,
            "total_return": 12.0,
            "episode_len": 2,
            "episode_return": 1.0,
            "raw_return": 36.0,
            "best_episode": 6.0,
        }

    @pytest.mark.parametrize("task", ["catch/0", "deep_sea/0", "memory_len/1", "cartpole_swingup/19"])
    def test_one_environment_logs_the_same(self, task: str) -> None:
        pytest.importorskip("bsuite", reason="bsuite is not installed")
        from synora.envs.bsuite import BsuiteEnv
        from synora.envs.factory import make_env

        env = make_env(task, backend="bsuite", seed=3)
        assert isinstance(env, BsuiteEnv)
        rng, games, theirs = np.random.default_rng(0), [], []
        for _ in range(3):
            env.reset()
            score, length, over = 0.0, 0, False
            while not over:
                _, reward, terminated, truncated, _ = env.step(env.action_space.sample(rng))
                score, length, over = score + float(reward), length + 1, terminated or truncated
            games.append({"return": score, "length": length, **env._task.bsuite_info()})
            theirs.append(env.score_row())
        env.close()
        rows = list(rows_of_games(games))
        assert [{name: row[name] for name in own} for row, own in zip(rows, theirs, strict=True)] == [
            pytest.approx(own) for own in theirs
        ]
        assert set(columns(split_id(task)[0])) <= set(rows[0])
        assert score_logs({task: rows}).experiments[split_id(task)[0].name].finished is False


def test_no_torch_no_bsuite_no_pandas() -> None:
    code = (
        "import sys; from synora.benchmarks import bsuite_scores, bsuite_sweep; bsuite_sweep.sweep('catch'); "
        "print([name for name in ('torch', 'bsuite', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_experiment_has_columns_and_a_rule() -> None:
    from synora.benchmarks.bsuite_scores import _RULES

    assert {one.rule for one in EXPERIMENTS.values()} == set(_RULES)
    assert all(len(columns(one)) > 1 for one in EXPERIMENTS.values())
    assert bsuite_sweep.ALL == "all"


def row(episode: int, **figures: float) -> dict[str, float]:
    return {"episode": episode, **figures}


def scored(name: str, score: float) -> ExperimentScore:
    return ExperimentScore(name, score, None, True, 1000, 20, (), {})


def random_logs(rng: np.random.Generator) -> dict[str, list[dict[str, float]]]:
    """Logs of some tasks of every experiment, some of them behind, by players of every strength."""
    logs, logged = {}, list(filter(is_logged, range(1, 12_001)))
    for name, one in EXPERIMENTS.items():
        for place in rng.choice(one.settings, size=int(rng.integers(1, one.settings + 1)), replace=False):
            # mnist needs its last rows for a score in bsuite too.
            end = one.episodes if one.rule == "mnist" else int(one.episodes * rng.choice([0.05, 0.4, 1.0, 1.0, 1.2]))
            skill = rng.uniform(0, 1.2)
            rows: list[dict[str, float]] = []
            for episode in (episode for episode in logged if episode <= end):
                bad = max(0.0, 1.0 - skill * rng.uniform(0.6, 1.0))
                rows.append(
                    {
                        "episode": episode,
                        "total_return": episode * {"discounting_chain": 1.0 + 0.1 * skill}.get(name, 600 * skill),
                        "total_regret": episode * bad,
                        "raw_return": episode * (-1000 * bad if "mountain" in name else 1000 * skill),
                        "best_episode": 700.0 * skill,
                        "total_bad_episodes": float(round(episode * bad)),
                        "total_perfect": float(round(episode * (1 - bad / 2))),
                    }
                )
            logs[f"{name}/{place}"] = rows
    return logs
