"""Job specs: ids that never move, plain data only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from synora.core.job import JobSpec

PARAMS: dict[str, Any] = {"b": [1, 2.5, None, True, {"z": "é", "a": -0.0}], "a": {"y": 1, "x": 2}, "text": "漢"}
JOB = JobSpec(kind="compute", name="RSSM / 50 x 50", params=PARAMS)
JOB_ID = "rssm-50-x-50-26ad83bc61"

PRINT_ID = f"""
from synora.core.job import JobSpec
params = {dict(reversed(PARAMS.items()))!r}
print(JobSpec(kind="compute", name="RSSM / 50 x 50", params=params).job_id)
"""


def test_the_id_is_pinned() -> None:
    assert JOB.job_id == JOB_ID


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_id_is_the_same_in_every_process_and_in_any_key_order(hash_seed: str) -> None:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": "C"}
    run = subprocess.run([sys.executable, "-c", PRINT_ID], env=env, capture_output=True, text=True, check=True)
    assert run.stdout == JOB_ID + "\n"


def test_other_work_has_another_id() -> None:
    values: list[Any] = [1, 1.5, True, "1", None, [], {}, [[]]]
    variants = [
        JobSpec(kind="compute", name="a"),
        JobSpec(kind="train", name="a"),
        JobSpec(kind="compute", name="b"),
        JobSpec(kind="compute", name="A"),
        *(JobSpec(kind="compute", name="a", params={"x": value}) for value in values),
        JobSpec(kind="compute", name="a", params={"y": 1}),
        JobSpec(kind="compute", name="a", params={"x": 1, "y": 1}),
    ]
    assert len({job.job_id for job in variants}) == len(variants)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Dreamer-v2 RSSM", "dreamer-v2-rssm"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\nb\0c", "a-b-c"),
        ("漢字", "compute"),
        ("--", "compute"),
        ("x" * 120, "x" * 60),
    ],
)
def test_the_id_is_a_safe_file_name(name: str, slug: str) -> None:
    job_id = JobSpec(kind="compute", name=name).job_id
    assert re.fullmatch(rf"{slug}-[0-9a-f]{{10}}", job_id)


def test_a_spec_survives_json() -> None:
    again = JobSpec.model_validate_json(JOB.model_dump_json())
    assert again == JOB
    assert again.job_id == JOB_ID
    assert [type(value) for value in again.params["b"]] == [int, float, type(None), bool, dict]  # type: ignore[union-attr]


def test_a_spec_is_frozen_and_apart_from_what_it_was_made_of() -> None:
    with pytest.raises(ValidationError):
        JOB.name = "other"
    with pytest.raises(ValidationError):
        JOB.params = {}
    params: dict[str, Any] = {"list": [1], "dict": {"a": 1}}
    job = JobSpec(kind="train", name="a", params=params)
    before = job.job_id
    params["list"].append(2)
    params["dict"]["a"] = 2
    params["new"] = 1
    assert job.job_id == before


@pytest.mark.parametrize(
    "value",
    [
        print,
        lambda: 0,
        object(),
        float("nan"),
        float("inf"),
        {"deep": [float("-inf")]},
        (1, 2),
        {1, 2},
        b"bytes",
        {1: 2},
        1j,
        np.zeros(2),
        np.int64(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_json_may_be_a_parameter(value: Any) -> None:
    with pytest.raises(ValidationError):
        JobSpec(kind="compute", name="a", params={"x": value})


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "other", "name": "a"},
        {"kind": "train"},
        {"kind": "train", "name": ""},
        {"kind": "train", "name": "x" * 121},
        {"kind": "train", "name": 3},
        {"kind": "train", "name": "a", "extra": 1},
        {"kind": "train", "name": "a", "params": [1]},
    ],
)
def test_a_spec_is_strict(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JobSpec(**fields)
