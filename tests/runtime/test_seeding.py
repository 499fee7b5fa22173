"""Random streams: independent, repeatable, restorable, and nobody else's."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from synora.core.errors import FileError, UsageError
from synora.runtime.seeding import Streams
from synora.runtime.state import flatten, unflatten


def draws(streams: Streams) -> list[Any]:
    return [
        streams.rng("replay").random(3).tolist(),
        streams.rng("explore").integers(0, 100, 3).tolist(),
        torch.rand(3, generator=streams.generator("noise")).tolist(),
    ]


def test_streams_depend_on_seed_and_name_alone() -> None:
    one, two = Streams(5), Streams(5)
    for _ in range(10):
        two.rng("another").random()
        torch.rand(1, generator=two.generator("another"))
    assert draws(one) == draws(two)
    everything = [str(value) for value in (*draws(Streams(5)), *draws(Streams(6)))]
    assert len(set(everything)) == len(everything)
    assert Streams(5).rng("noise").random() != Streams(5).rng("replay").random()


def test_streams_are_the_same_in_every_version() -> None:
    """Recorded: a change here changes every result made with a seed."""
    streams = Streams(0)
    assert streams.seed_for("episode", 0) == 1027307870
    assert streams.rng("replay").integers(0, 1000, 4).tolist() == [625, 639, 276, 603]


def test_seeds_of_episodes_differ() -> None:
    streams = Streams(0)
    seeds = [streams.seed_for("episode", index) for index in range(2000)]
    assert len(set(seeds)) == 2000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert streams.seed_for("episode", 1) == Streams(0).seed_for("episode", 1) != Streams(1).seed_for("episode", 1)
    assert streams.seed_for("a", "b") != streams.seed_for("ab")


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, None])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(UsageError, match="whole number"):
        Streams(seed)


def test_a_saved_state_goes_on_exactly() -> None:
    streams = Streams(1)
    draws(streams)
    tensors, plain = flatten(streams.state_dict())
    state = unflatten(tensors, json.loads(json.dumps(plain)))

    def later(streams: Streams) -> list[Any]:
        late = streams.rng("late").random(), torch.rand(1, generator=streams.generator("late")).item()
        return [draws(streams), late, draws(streams)]

    expected = later(streams)
    for other in (Streams(1), streams):  # a new process, and one that has drawn too much
        other.load_state_dict(state)
        assert later(other) == expected


def test_generators_handed_out_stay_the_same_objects() -> None:
    streams = Streams(1)
    rng, generator = streams.rng("a"), streams.generator("b")
    state = streams.state_dict()
    expected = rng.random(), torch.rand(1, generator=generator).item()
    streams.load_state_dict(state)
    assert streams.rng("a") is rng and streams.generator("b") is generator
    assert (rng.random(), torch.rand(1, generator=generator).item()) == expected


def test_a_state_that_nobody_used_yet_is_not_lost() -> None:
    streams = Streams(1)
    torch.rand(1, generator=streams.generator("noise"))
    passed_on = Streams(1)
    passed_on.load_state_dict(streams.state_dict())
    last = Streams(1)
    last.load_state_dict(passed_on.state_dict())
    assert torch.rand(1, generator=last.generator("noise")) == torch.rand(1, generator=streams.generator("noise"))


def test_a_state_of_an_absent_device_is_kept() -> None:
    state = Streams(1).state_dict()
    state["torch"]["noise@cuda"] = torch.zeros(16, dtype=torch.uint8)
    streams = Streams(1)
    streams.load_state_dict(state)
    streams.generator("noise")
    assert set(streams.state_dict()["torch"]) == {"noise@cuda", "noise@cpu"}


def test_another_seed_s_state_is_refused() -> None:
    with pytest.raises(FileError, match="that of seed 1, and this run has seed 2"):
        Streams(2).load_state_dict(Streams(1).state_dict())
    with pytest.raises(FileError, match="not numpy, seed and torch"):
        Streams(2).load_state_dict({"seed": 2})


def test_global_generators_are_touched_inside_the_block_only() -> None:
    torch.manual_seed(11)
    np.random.seed(11)
    before = torch.get_rng_state()
    streams = Streams(4)
    draws(streams)
    assert torch.equal(torch.get_rng_state(), before)
    with streams.as_global("init"):
        first = torch.nn.Linear(3, 3).weight.detach()
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ZeroDivisionError), streams.as_global("init"):
        second = torch.nn.Linear(3, 3).weight.detach()
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first, second), "the stream goes on"
    again = Streams(4)
    with again.as_global("init"):
        assert torch.equal(torch.nn.Linear(3, 3).weight.detach(), first)
        assert torch.equal(torch.nn.Linear(3, 3).weight.detach(), second)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_streams() -> None:
    streams = Streams(4)
    before = torch.cuda.get_rng_state()
    with streams.as_global("init", "cuda"):
        first = torch.rand(3, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), before)
    state = streams.state_dict()
    expected = torch.rand(3, device="cuda", generator=streams.generator("noise", "cuda:0"))
    other = Streams(4)
    other.load_state_dict(state)
    assert torch.equal(torch.rand(3, device="cuda", generator=other.generator("noise", "cuda")), expected)
    with Streams(4).as_global("init", "cuda"):
        assert torch.equal(torch.rand(3, device="cuda"), first)
