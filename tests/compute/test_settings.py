"""Choosing cases, resolving sizes and planning jobs, without torch."""

from collections.abc import Callable
from typing import Any

import pytest

from synora.compute.case import BenchCase
from synora.compute.catalog import builtin_cases, check_cases, load_cases, select_cases
from synora.compute.settings import make_jobs, presets
from synora.core.errors import UsageError


def case(name: str, **fields: Any) -> BenchCase:
    unused: Callable[..., Any] = lambda scale: None  # noqa: E731
    return BenchCase(**{"name": name, "family": "f", "build": unused, "inputs": unused, **fields})


CASES = [
    case("a"),
    case("b", family="g", image_sizes=(64,), paper_sizes={"batch_size": 50, "seq_len": 40, "image_size": 64}),
    case("c", family="g", heavy=True),
]
NOTHING = {"batch_size": None, "seq_len": None, "image_size": None}


def names(cases: list[BenchCase]) -> list[str]:
    return [one.name for one in cases]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, ["a", "b"]),
        ({"heavy": True}, ["a", "b", "c"]),
        ({"models": ["c"]}, ["c"]),
        ({"models": ["b", "a"]}, ["a", "b"]),
        ({"families": ["g"]}, ["b"]),
        ({"families": ["g"], "heavy": True}, ["b", "c"]),
        ({"families": ["g"], "models": ["a"]}, ["a", "b"]),
    ],
)
def test_selection(selection: dict[str, Any], expected: list[str]) -> None:
    assert names(select_cases(CASES, **selection)) == expected


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"models": ["dreamerv2-rsm"]}, "Did you mean 'dreamerv2-rssm'?"),
        ({"families": ["dreamr"]}, "Did you mean 'dreamer'?"),
    ],
)
def test_unknown_names_get_the_closest_match(selection: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match="unknown") as caught:
        select_cases(builtin_cases(), **selection)
    assert words in str(caught.value)


def test_a_family_with_only_heavy_cases_says_so() -> None:
    with pytest.raises(UsageError, match="--all"):
        select_cases([case("c", heavy=True)], families=["f"])


def test_presets_have_every_size() -> None:
    assert set(presets()) == {"tiny", "small", "paper"}
    for values in presets().values():
        assert set(values) == {"batch_size", "seq_len", "image_size", "warmup", "iters"}


def params(cases: list[BenchCase], **options: Any) -> list[dict[str, Any]]:
    options = {"preset": "tiny", "overrides": NOTHING, **options}
    return [dict(job.params) for job in make_jobs(cases, **options)]


def test_paper_takes_the_models_own_sizes_and_flags_win() -> None:
    assert [(p["batch_size"], p["seq_len"]) for p in params(CASES, preset="paper")][1] == (50, 40)
    changed = params(CASES, preset="paper", overrides={**NOTHING, "batch_size": 3})
    assert [(p["batch_size"], p["seq_len"]) for p in changed][1] == (3, 40)


def test_timing_flags_win_over_the_preset() -> None:
    assert {(p["warmup"], p["iters"]) for p in params(CASES, warmup=7, iters=9)} == {(7, 9)}
    tiny = presets()["tiny"]
    assert {(p["warmup"], p["iters"]) for p in params(CASES)} == {(tiny["warmup"], tiny["iters"])}


def test_an_image_size_that_fits_nothing_is_bad_usage() -> None:
    with pytest.raises(UsageError, match=r"--image-size 48 fits none.*Allowed: 64"):
        params([CASES[1]], overrides={**NOTHING, "image_size": 48})


def test_an_image_size_that_fits_some_is_planned_for_all() -> None:
    assert [p["image_size"] for p in params(CASES, overrides={**NOTHING, "image_size": 48})] == [48, 48, 48]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("preset", "tny", "unknown preset 'tny'. Did you mean 'tiny'?"),
        ("dtype", "fp8", "field 'dtype'"),
        ("iters", 0, "field 'iters'"),
        ("warmup", 0, "field 'warmup'"),
        ("threads", 0, "field 'threads'"),
        ("colour", "red", "unknown field 'colour'"),
    ],
)
def test_bad_values_are_refused_before_any_work(field: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        params(CASES, **{field: value})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_case_list_is_checked() -> None:
    with pytest.raises(UsageError, match=r"CASES\[1\] in .* is a str, expected a BenchCase"):
        check_cases([case("a"), "b"])
    with pytest.raises(UsageError, match="more than one case named a"):
        check_cases([case("a"), case("a")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "has no CASES list"),
        ("CASES = 'abc'", "has no CASES list"),
        ("CASES = [1]", "CASES[0] in"),
        ("import nosuchmodule", "cannot be imported: ModuleNotFoundError"),
        ("def f(:", "cannot be imported: SyntaxError"),
        ("import sys; sys.exit(0)", "cannot be imported: SystemExit"),
    ],
)
def test_a_broken_case_file_is_bad_usage(tmp_path: Any, text: str, words: str) -> None:
    path = tmp_path / "cases.py"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_cases(str(path))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "", "name must be lower-case"),
        ("name", "a,b", "name must be lower-case"),
        ("name", "x" * 400, "name must be lower-case"),
        ("family", "My Family", "family must be lower-case"),
        ("unit", None, "unit must be"),
        ("unit", "two\nlines", "unit must be"),
        ("build", None, "build must be a function"),
        ("optimizer", 3, "optimizer must be a function or None"),
        ("image_sizes", (), "image_sizes must be"),
        ("image_sizes", 64, "image_sizes must be"),
        ("paper_sizes", {"batchsize": 3}, "paper_sizes must map"),
        ("paper_sizes", {"batch_size": "3"}, "paper_sizes must map"),
        ("paper_sizes", None, "paper_sizes must map"),
        ("clip_norm", -1.0, "clip_norm must be"),
        ("trains", "no", "trains must be True or False"),
    ],
)
def test_a_case_with_nonsense_in_a_field_is_bad_usage(field: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_cases([case(**{"name": "fine", field: value})])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_list_says_so() -> None:
    with pytest.raises(UsageError, match="CASES is empty"):
        select_cases([])


def test_a_missing_case_file_is_bad_usage(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_cases(str(tmp_path / "nothing.py"))


def test_job_ids_do_not_depend_on_the_process() -> None:
    jobs = make_jobs([CASES[0]], preset="tiny", overrides=NOTHING)
    again = make_jobs([CASES[0]], preset="tiny", overrides=NOTHING)
    other = make_jobs([CASES[0]], preset="small", overrides=NOTHING)
    assert jobs[0].job_id == again[0].job_id != other[0].job_id
