"""Checkpoints: exact, whole or absent, and refused with one line when they are not what is needed."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from synora.core.errors import FileError
from synora.runtime import checkpoint as module
from synora.runtime.checkpoint import (
    AgentSpec,
    clean,
    export_checkpoint,
    latest,
    list_checkpoints,
    load_checkpoint,
    prune,
    read_manifest,
    save_checkpoint,
)
from synora.runtime.state import flatten, gather_state, restore_state, unflatten

SPEC = AgentSpec(agent="toy", observation_shape=[3, 8, 8], action_count=4)


def save(folder: Path, step: int = 1, **other: Any) -> Path:
    state = other.pop("state", {"agent": {"weight": torch.arange(6.0).view(2, 3)}, "counters": {"seen": step}})
    return save_checkpoint(folder, spec=SPEC, config={"lr": 0.1}, step=step, state=state, **other)


def through_json(tree: Any) -> Any:
    tensors, plain = flatten(tree)
    return unflatten(tensors, json.loads(json.dumps(plain, allow_nan=False)))


def equal(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.stride() == right.stride() and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return bool(left == right or (left != left and right != right))


# State ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tree",
    [
        {"a": 1, "b": [True, None, "text", 2.5, -0.0], "c": ()},
        {0: {"x": 1}, 1: {"y": (1, (2.0, [3]))}},
        {1: "number", "1": "text", "1#": 0, "a/b": {"c": 1}, "a": {"b": {"c": 2}}},
        {"$tensor": "not one", "$": {"$items": []}},
        {"huge": 2**200, "nan": float("nan"), "low": float("-inf"), "tiny": 5e-324, "third": 1 / 3},
        {"scalar": torch.tensor(3), "empty": torch.zeros(0, 4), "bf16": torch.ones(2, dtype=torch.bfloat16)},
        {"flags": torch.tensor([True, False]), "bytes": torch.arange(5, dtype=torch.uint8), "c": torch.ones(2) * 1j},
        {1: torch.zeros(1), "1": torch.ones(1), "1#": torch.ones(1) * 2, "a/b": torch.ones(1) * 3},
        {"last": torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)},
        {"array": np.arange(6, dtype=np.int64).reshape(2, 3), "scalar": np.array(2.0), "none": np.zeros((0, 2))},
        [torch.rand(2), (torch.rand(3),)],
        torch.rand(2),
    ],
)
def test_a_tree_comes_back_exactly(tree: Any) -> None:
    assert equal(through_json(tree), tree)


def test_paths_never_collide() -> None:
    tree = {"a": {"b": torch.zeros(1), "b/c": torch.ones(1), "b%2Fc": torch.ones(1) * 2}, "a/b": torch.ones(1) * 3}
    tree["a"][0], tree["a"]["0"], tree["a"]["0#"] = torch.ones(1) * 4, torch.ones(1) * 5, torch.ones(1) * 6
    assert len(flatten(tree)[0]) == 7
    assert equal(through_json(tree), tree)


@pytest.mark.parametrize("bad", [object(), {1, 2}, b"x", np.int64(3), {"deep": [{"er": lambda: 0}]}, {(1, 2): 3}])
def test_what_cannot_be_stored_is_named(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"state at part"):
        flatten({"part": bad})


def test_a_state_is_a_snapshot() -> None:
    weight = torch.zeros(3)
    tensors, _ = flatten({"a": weight, "view": weight[1:], "same": weight})
    weight += 1
    assert all(not value.any() for value in tensors.values())


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimiser_goes_on_exactly(tmp_path: Path, fused: bool) -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
        groups = [{"params": net[0].parameters(), "lr": 1e-2}, {"params": net[3].parameters(), "weight_decay": 0.3}]
        optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=fused, betas=(0.8, 0.95))
        return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, seed: int) -> None:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        net(torch.randn(4, 3, 8, 8)).square().sum().backward()
        optimizer.step()
        scheduler.step()

    first = build()
    for seed in range(3):
        step(*first, seed)
    names = ("agent", "optimizer", "scheduler")
    path = save(tmp_path, state=gather_state(dict(zip(names, first, strict=True))))
    second = build()
    restore_state(dict(zip(names, second, strict=True)), load_checkpoint(path).state)
    assert equal(dict(second[0].state_dict()), dict(first[0].state_dict()))
    assert equal(second[1].state_dict(), first[1].state_dict())
    for seed in range(3, 6):
        step(*first, seed)
        step(*second, seed)
    assert equal(dict(second[0].state_dict()), dict(first[0].state_dict()))
    assert equal(second[1].state_dict(), first[1].state_dict())


def test_tied_weights_are_saved(tmp_path: Path) -> None:
    net = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    net[1].weight = net[0].weight
    loaded = load_checkpoint(save(tmp_path, state={"agent": net.state_dict()})).state["agent"]
    assert torch.equal(loaded["0.weight"], net[0].weight) and torch.equal(loaded["1.weight"], net[0].weight)


def test_declared_parts_are_saved_parts() -> None:
    net = nn.Linear(2, 2)
    state = gather_state({"agent": net})
    with pytest.raises(FileError, match=r"missing \['critic'\], unknown \[\]"):
        restore_state({"agent": net, "critic": net}, state)
    with pytest.raises(FileError, match=r"missing \[\], unknown \['agent'\]"):
        restore_state({}, state)
    with pytest.raises(FileError, match=r"part 'agent' of the saved state does not fit: .*size mismatch") as caught:
        restore_state({"agent": nn.Linear(3, 2)}, state)
    assert "\n" not in str(caught.value)


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    path = save(tmp_path, 12, score=1.5, note="why")
    assert path.name == "step-000000012"
    assert sorted(item.name for item in path.iterdir()) == ["agent.safetensors", "manifest.json", "state.json"]
    loaded = load_checkpoint(path, spec=SPEC)
    assert equal(loaded.state, {"agent": {"weight": torch.arange(6.0).view(2, 3)}, "counters": {"seen": 12}})
    manifest = loaded.manifest
    assert (manifest.step, manifest.score, manifest.note, manifest.config) == (12, 1.5, "why", {"lr": 0.1})
    assert manifest.spec == SPEC
    assert load_checkpoint(path, parts=["counters"]).state == {"counters": {"seen": 12}}


def test_run_folders_stand_for_their_newest_checkpoint(tmp_path: Path) -> None:
    for step in (2, 10, 9):
        save(tmp_path / "checkpoints", step)
    again = save(tmp_path / "checkpoints", 10)
    assert again.name == "step-000000010-1", "a step saved twice: the second is the later one"
    for _ in range(9):
        save(tmp_path / "checkpoints", 10)
    assert [path.name for path in list_checkpoints(tmp_path / "checkpoints")][-2:] == [
        "step-000000010-9",
        "step-000000010-10",
    ]
    newest = latest(tmp_path / "checkpoints")
    assert newest is not None and newest.name == "step-000000010-10"
    assert load_checkpoint(tmp_path).path == load_checkpoint(tmp_path / "checkpoints").path == newest
    assert latest(tmp_path / "nothing") is None
    assert list_checkpoints(tmp_path) == []


def test_a_checkpoint_can_be_moved_and_names_no_path(tmp_path: Path) -> None:
    path = save(tmp_path / "old")
    for item in path.iterdir():
        assert str(tmp_path).encode() not in item.read_bytes()
    moved = shutil.copytree(path, tmp_path / "elsewhere" / "renamed")
    assert load_checkpoint(moved).state["counters"] == {"seen": 1}


def test_commit_is_the_last_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is synced before the one rename; what fails before it leaves no trace and no half checkpoint."""
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def recorded(handle: int) -> None:
        order.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{handle}")).split(".")[0])
        fsync(handle)

    def renaming(source: Any, target: Any) -> None:
        order.append("rename")
        rename(source, target)

    if Path("/proc/self/fd").exists():
        monkeypatch.setattr(os, "fsync", recorded)
        monkeypatch.setattr(os, "rename", renaming)
        save(tmp_path / "a")
        assert order == ["sync state", "sync agent", "sync manifest", "sync ", "rename", "sync a"]
        monkeypatch.undo()

    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "rename", "mkdir"):
        save(tmp_path / name, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            with pytest.raises(FileError, match="No space left on device"):
                save(tmp_path / name, 2)
        assert [path.name for path in (tmp_path / name).iterdir()] == ["step-000000001"]


def test_stale_folders_are_cleaned_and_nothing_else(tmp_path: Path) -> None:
    kept = save(tmp_path)
    (tmp_path / ".step-000000002.77-abcd.tmp").mkdir()
    (tmp_path / ".step-000000002.77-abcd.tmp" / "agent.safetensors").write_bytes(b"half")
    (tmp_path / ".mine").mkdir()
    (tmp_path / "notes.tmp").write_text("x")
    assert latest(tmp_path) == kept
    assert [path.name for path in clean(tmp_path)] == [".step-000000002.77-abcd.tmp"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine", "notes.tmp", kept.name]
    assert clean(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("scores", "last", "best", "kept"),
    [
        ([None, None, None, None], 2, True, [3, 4]),
        ([1.0, 5.0, 2.0, 0.0], 1, True, [2, 4]),
        ([1.0, 5.0, 5.0, 0.0], 1, True, [3, 4]),
        ([1.0, 5.0, 2.0, 0.0], 1, False, [4]),
        ([None, -5.0, None, None], 1, True, [2, 4]),
        ([1.0, 2.0, 3.0, 4.0], 0, True, [4]),
        ([1.0, 2.0, 3.0, 4.0], 9, True, [1, 2, 3, 4]),
    ],
)
def test_prune(tmp_path: Path, scores: list[float | None], last: int, best: bool, kept: list[int]) -> None:
    for step, score in enumerate(scores, 1):
        save(tmp_path, step, score=score)
    gone = prune(tmp_path, keep_last=last, keep_best=best)
    assert [read_manifest(path).step for path in list_checkpoints(tmp_path)] == kept
    assert len(gone) == 4 - len(kept)
    assert len(list(tmp_path.iterdir())) == len(kept)


def test_prune_leaves_alone_what_it_cannot_read(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "step-000000001" / "manifest.json").write_text("{")
    prune(tmp_path, keep_last=1)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000000001", "step-000000003"]


def test_a_killed_deletion_leaves_no_half_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save(tmp_path, step)
    asked: list[str] = []
    monkeypatch.setattr(module.shutil, "rmtree", lambda path, **_: asked.append(Path(path).name))
    prune(tmp_path, keep_last=1)
    monkeypatch.undo()
    assert len(asked) == 1 and asked[0].startswith(".step-000000001."), "only what readers do not see any more"
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000000002"]
    assert len(clean(tmp_path)) == 1


# Refusals -------------------------------------------------------------------------------------------------------------


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        value = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps(change(value)))

    return apply


def cut(name: str) -> Callable[[Path], None]:
    return lambda path: os.truncate(path / name, (path / name).stat().st_size // 2)


def flip(name: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        content = bytearray((path / name).read_bytes())
        content[-1] ^= 1
        (path / name).write_bytes(bytes(content))

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut("agent.safetensors"), r"agent.safetensors is truncated or altered: \d+ bytes, \d+ were saved"),
        (flip("agent.safetensors"), r"agent.safetensors is damaged: .*sha256"),
        (cut("state.json"), r"state.json is truncated"),
        (flip("state.json"), r"state.json is damaged"),
        (cut("manifest.json"), r"manifest.json is not valid JSON"),
        (lambda path: (path / "manifest.json").unlink(), r"is not a synora checkpoint: it has no manifest.json"),
        (lambda path: (path / "agent.safetensors").unlink(), r"cannot read agent.safetensors: No such file"),
        (edit("manifest.json", lambda value: {**value, "format_version": 99, "synora": "9.9"}),
         r"was written by synora 9.9 in checkpoint format 99; this synora .* reads up to format 1"),
        (edit("manifest.json", lambda value: {**value, "step": -1}), r"manifest that is not valid: step"),
        (edit("manifest.json", lambda value: {**value, "more": 1}), r"manifest that is not valid: more"),
        (edit("manifest.json", lambda value: []), r"its manifest has no format version"),
        (edit("manifest.json", lambda value: {**value, "files": {}}), r"its manifest does not list state.json"),
    ],
)  # fmt: skip
def test_damage_is_found(tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    path = save(tmp_path)
    damage(path)
    with pytest.raises(FileError, match=message) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"agent": "iris"}, "for agent toy, and iris is needed"),
        ({"observation_shape": [1, 8, 8]}, r"for observation shape \[3, 8, 8\], and \[1, 8, 8\] is needed"),
        ({"action_count": 18}, "for action count 4, and 18 is needed"),
        ({"action_kind": "continuous"}, "for action kind discrete, and continuous is needed"),
    ],
)
def test_another_agent_s_checkpoint_is_refused(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    path = save(tmp_path)
    file = export_checkpoint(path, tmp_path / "agent.safetensors")
    for source in (path, file):
        with pytest.raises(FileError, match=message):
            load_checkpoint(source, spec=SPEC.model_copy(update=other))


class Bomb:
    """Pickles to a call that writes a marker file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("kind", ["torch", "torch-legacy", "pickle", "pickle-0", "numpy"])
@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_code_in_a_file_is_not_run(tmp_path: Path, kind: str, name: str) -> None:
    marker, file = tmp_path / "marker", tmp_path / name
    if kind.startswith("torch"):
        torch.save({"state": Bomb(marker)}, file, _use_new_zipfile_serialization=kind == "torch")
    elif kind == "numpy":
        with open(file, "wb") as stream:
            np.save(stream, np.array([Bomb(marker)], dtype=object), allow_pickle=True)
    else:
        file.write_bytes(pickle.dumps(Bomb(marker), protocol=0 if kind == "pickle-0" else 5))
    inside = save(tmp_path / "run")
    shutil.copy(file, inside / "agent.safetensors")
    for source in (file, inside):
        with pytest.raises(FileError, match=str(source.name)) as caught:
            load_checkpoint(source)
        assert "\n" not in str(caught.value)
    assert not marker.exists()
    # Even when the manifest says that the pickle is what was saved.
    content = json.loads((inside / "manifest.json").read_text())
    content["files"]["agent.safetensors"] = module._entry(inside / "agent.safetensors").model_dump()
    (inside / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match="not a whole safetensors file"):
        load_checkpoint(inside)
    assert not marker.exists()
    if kind == "torch" and file.suffix == ".pt":
        torch.load(file, weights_only=False)
        assert marker.exists(), "the bomb must be live"


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "nothing.safetensors").write_bytes(b"")
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    for name, message in (
        ("missing", "does not exist"),
        ("empty", "holds no synora checkpoint"),
        ("text.txt", "not a whole safetensors file"),
        ("nothing.safetensors", "not a whole safetensors file"),
        ("foreign.safetensors", "but not from `export_checkpoint`"),
    ):
        with pytest.raises(FileError, match=message) as caught:
            load_checkpoint(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileError, match=r"has no part critic; it has agent, counters"):
        load_checkpoint(save(tmp_path), parts=["critic"])
    with pytest.raises(ValueError, match="letters"):
        save(tmp_path, 5, state={"../agent": {}})


def test_a_manifest_reads_no_file_outside(tmp_path: Path) -> None:
    path = save(tmp_path)
    edit("state.json", lambda value: {**value, "../../secret": 1})(path)
    content = json.loads((path / "manifest.json").read_text())
    content["files"]["state.json"] = module._entry(path / "state.json").model_dump()
    content["files"]["../../secret.safetensors"] = content["files"]["agent.safetensors"]
    (path / "manifest.json").write_text(json.dumps(content))
    assert load_checkpoint(path).state["../../secret"] == 1, "a value, and no file was looked for"


def test_one_file_exports(tmp_path: Path) -> None:
    path = save(tmp_path / "run", 3, state={"agent": {"w": torch.rand(2, 2)}, "optimizer": {"m": torch.rand(9)}})
    file = export_checkpoint(path, tmp_path / "out" / "agent.safetensors")
    assert [item.name for item in file.parent.iterdir()] == [file.name]
    loaded = load_checkpoint(file, spec=SPEC)
    assert equal(loaded.state, {"agent": load_checkpoint(path).state["agent"]})
    assert loaded.manifest.step == 3
    os.truncate(file, file.stat().st_size - 4)
    with pytest.raises(FileError, match="not a whole safetensors file"):
        load_checkpoint(file)


def test_loaded_tensors_are_aligned(tmp_path: Path) -> None:
    """MKL's products differ in their last bits with the address of their inputs: a resumed run would drift."""
    parts = {"agent": {f"w{size}": torch.randn(size) for size in (1, 3, 5, 8, 13)}, "flag": {"x": torch.ones(1) > 0}}
    loaded = load_checkpoint(save(tmp_path, state=parts)).state
    found = [*loaded["agent"].values(), loaded["flag"]["x"]]
    assert [value.data_ptr() % 64 for value in found] == [0] * len(found)
