"""Atari preprocessing against the authors' traces, against independent arithmetic, and against PIL."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from synora.envs.atari import AtariEnv
from synora.envs.factory import make_env
from synora.envs.ids import atari_games, resolve
from synora.envs.interface import Env
from synora.envs.protocol import Protocol, named_protocol

PARITY = Path(os.environ.get("SYNORA_PARITY_DIR") or Path(__file__).parents[3] / "shared" / "parity") / "diamond"
TRACES = sorted(PARITY.glob("atari_*.json"))
GOLDEN = {  # our own, recorded once the authors' traces held; seed 123, actions of default_rng(11), every 60 steps
    "Pong": ([351843856, 4280383719, 2260328, 2089356262, 2149291121, 3248768984], -6.0, 1204),
    "Breakout": ([467363304, 60073907, 1779725930, 3664706009, 3789829660, 342174443], 2.0, 661),
}


def crc(image: np.ndarray) -> int:
    return zlib.crc32(image.tobytes())


def atari(name: str, protocol: Protocol, seed: int = 0) -> AtariEnv:
    env = make_env(name, protocol=protocol, seed=seed)
    assert isinstance(env, AtariEnv)
    return env


@pytest.mark.skipif(not TRACES, reason=f"no Atari traces in {PARITY} (set SYNORA_PARITY_DIR)")
@pytest.mark.parametrize("path", TRACES or [None], ids=lambda path: path.stem if path else "absent")
def test_authors_trace(path: Path) -> None:
    meta: dict[str, Any] = json.loads(path.read_text())
    stored = load_file(path.with_suffix(".safetensors"))
    config, scalars = meta["config"], meta["scalars"]
    protocol = named_protocol("atari-100k").replace(
        sticky_prob=scalars["repeat_action_probability"],
        noop_max=config["noop_max"],
        frame_skip=config["frame_skip"],
        size=config["screen_size"],
        action_set="full" if config["full_action_space"] else "minimal",
    )
    with atari(resolve(config["id"]).name, protocol) as env:
        assert list(env.action_meanings) == scalars["action_meanings"]
        replay(env, stored, scalars)
    if "out.obs_crc32_without_sticky" in stored:
        with atari(resolve(config["id"]).name, protocol.replace(sticky_prob=0.0)) as env:
            env.reset(int(stored["in.seed"].item()))
            for step, action in enumerate(stored["in.actions"]):
                result = env.step(int(action))
                assert crc(result.observation) == stored["out.obs_crc32_without_sticky"][step]
                assert result.reward == stored["out.reward_without_sticky"][step]


def replay(env: AtariEnv, stored: dict[str, np.ndarray], scalars: dict[str, Any]) -> None:
    """Run a trace and compare every stored output with it."""
    observation, info = env.reset(int(stored["in.seed"].item()))
    seen, full, resets, terminal = [observation], [], [(-1, observation, info["lives"], info["episode_frames"])], []
    frames_before = info["episode_frames"]
    for step, action in enumerate(stored["in.actions"]):
        result = env.step(int(action))
        info = result.info
        got = {
            "reward": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "life_loss": info["life_lost"],
            "end_train": result.terminated or info["life_lost"],
            "lives": info["lives"],
            "episode_frame_number": info["episode_frames"],
            "inner_frames": info["episode_frames"] - frames_before,
            "obs_crc32": crc(result.observation),
        }
        for name, value in got.items():
            if f"out.{name}" in stored:
                assert value == stored[f"out.{name}"][step], f"{name} at step {step}"
        over = result.terminated or result.truncated
        if not over:  # what the authors pooled when a game ends is checked through the observation
            assert crc(env.full_screen()) == stored["out.full_crc32"][step], f"full_crc32 at step {step}"
        seen.append(result.observation)
        full.append(result.observation)
        frames_before = info["episode_frames"]
        if over:
            terminal.append(result.observation)
            first = env.restart()
            seen.append(first)
            resets.append((step, first, env.facts()["lives"], env.episode_frames))
            frames_before = env.episode_frames
    for row, (step, first, lives, noops) in enumerate(resets):
        assert crc(first) == stored["out.reset_crc32"][row]
        assert (step, lives, noops) == tuple(
            stored[f"out.{name}"][row] for name in ("reset_after_step", "reset_lives", "reset_noops")
        )
        if "out.reset_obs" in stored:
            np.testing.assert_array_equal(first, stored["out.reset_obs"][row])
    assert len(resets) == len(stored["out.reset_crc32"])
    for row, image in enumerate(stored.get("out.terminal_obs", ())):
        np.testing.assert_array_equal(terminal[row], image)
    after = [seen[0], *full]
    for index, image in zip(stored.get("out.obs_every20_index", ()), stored.get("out.obs_every20", ()), strict=True):
        np.testing.assert_array_equal(after[index], image)
    if "sha256_all_observations" in scalars:
        assert hashlib.sha256(b"".join(s.tobytes() for s in seen)).hexdigest() == scalars["sha256_all_observations"]
    if "total_reward" in scalars:
        assert sum(stored["out.reward"]) == scalars["total_reward"]


@pytest.mark.parametrize("game", GOLDEN)
def test_own_golden(game: str) -> None:
    crcs, total, frames = GOLDEN[game]
    with make_env(game, seed=7) as env:
        got = [crc(env.reset(123)[0])]
        rng, reward = np.random.default_rng(11), 0.0
        for step in range(1, 301):
            result = env.step(int(rng.integers(env.action_space.n)))  # type: ignore[union-attr]
            reward += result.reward
            if step % 60 == 0:
                got.append(crc(result.observation))
            if result.terminated:
                env.reset(step)
        assert (got, reward, result.info["episode_frames"]) == (crcs, total, frames)


def test_incremental_frames_equal_whole_ones() -> None:
    """Only changed rows are recomputed; every observation must equal resizing the whole pooled screen afresh."""
    for game in ("Seaquest", "Freeway"):
        for channels in (3, 1):
            protocol = named_protocol("atari-100k").replace(grayscale=channels == 1, size=84 if channels == 1 else 64)
            with atari(game, protocol) as env:
                env.reset(1)
                rng = np.random.default_rng(0)
                for step in range(60):
                    result = env.step(int(rng.integers(env.action_space.n)))  # type: ignore[union-attr]
                    if step % 6 == 5:
                        whole = by_fractions(env.full_screen().astype(np.float32), protocol.size)
                        np.testing.assert_array_equal(result.observation, whole)


def by_fractions(image: np.ndarray, size: int) -> np.ndarray:
    """Area averaging the slow way: every pixel repeated `size` times along both axes, then plain block means."""
    total = image.shape[0] * image.shape[1]
    for axis in (0, 1):
        length = image.shape[axis]
        image = np.repeat(image, size, axis=axis)
        shape = [*image.shape[:axis], size, length, *image.shape[axis + 1 :]]
        image = image.reshape(shape).sum(axis=axis + 1)
    return np.rint(image / total).astype(np.uint8)


def test_iris_frames_equal_pil() -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow (extra plot)")
    import ale_py

    def small(screen: np.ndarray) -> np.ndarray:
        return np.asarray(image.fromarray(screen).resize((64, 64), image.Resampling.BILINEAR))

    protocol = named_protocol("iris-paper")
    with atari("Breakout", protocol) as env:
        observation, _ = env.reset(5)
        emulator = ale_py.ALEInterface()
        emulator.setFloat("repeat_action_probability", 0.0)
        emulator.loadROM(ale_py.roms.get_rom_path("breakout"))
        emulator.reset_game()
        emulator.act(ale_py.Action.NOOP)  # exactly one in evaluation
        np.testing.assert_array_equal(observation, small(emulator.getScreenRGB()))
        codes = emulator.getMinimalActionSet()
        rng = np.random.default_rng(2)
        for _ in range(80):
            action = int(rng.integers(4))
            screens = []
            for _ in range(4):
                emulator.act(codes[action])
                screens.append(small(emulator.getScreenRGB()))
            result = env.step(action)
            np.testing.assert_array_equal(result.observation, np.maximum(screens[2], screens[3]))
            if result.terminated:
                break


def play(env: Env, action: int, limit: int = 2000) -> list[dict[str, Any]]:
    """Step one action until the episode ends; return the infos."""
    infos = []
    for _ in range(limit):
        result = env.step(action)
        infos.append({**result.info, "result": result})
        if result.terminated or result.truncated:
            return infos
    raise AssertionError("the episode did not end")


@pytest.mark.parametrize("name", ["atari-100k", "iris-paper"])
def test_life_loss_ends_training_episodes_not_games(name: str) -> None:
    with make_env("Breakout", protocol=named_protocol(name, train=True), seed=1) as env:
        observation, info = env.reset()
        assert info["lives"] == 5
        game = info["seed"]
        lives = []
        for life in range(5):
            infos = play(env, 1)
            last = infos[-1]
            lives.append(last["lives"])
            assert last["result"].terminated
            assert last["game_over"] == (life == 4)
            assert last["life_lost"] == (life < 4 or name == "atari-100k"), "IRIS does not count the last life"
            frames = last["episode_frames"]
            observation, info = env.reset()
            if life < 4:
                assert info["seed"] is None, "the same game goes on"
                assert info["episode_frames"] == frames + (4 if name == "iris-paper" else 0)
                if name == "atari-100k":
                    np.testing.assert_array_equal(observation, last["result"].observation)
        assert lives == [4, 3, 2, 1, 0]
        assert info["seed"] not in (None, game) and info["lives"] == 5
    with make_env("Breakout", protocol=named_protocol(name), seed=1) as env:
        env.reset()
        infos = play(env, 1)
        assert sum(info["life_lost"] for info in infos) >= 4 and infos[-1]["game_over"], "evaluation: one whole game"


def test_one_step_is_four_frames_whatever_the_spelling() -> None:
    for spelling in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        with make_env(spelling) as env:
            _, info = env.reset(0)
            assert 1 <= info["episode_frames"] <= 30
            assert env.step(0).info["episode_frames"] == info["episode_frames"] + 4


def test_a_seeded_game_does_not_depend_on_the_games_before() -> None:
    """Beam Rider keeps state over the emulator's own reset; a seed must still mean one game."""

    def game(env: Env) -> list[int]:
        rng = np.random.default_rng(3)
        return [crc(env.step(int(rng.integers(env.action_space.n))).observation) for _ in range(25)]  # type: ignore[union-attr]

    protocol = named_protocol("atari-100k").replace(noop_max=0)
    for name, sticky in (("BeamRider", 0.0), ("Pong", 0.25)):
        with atari(name, protocol.replace(sticky_prob=sticky)) as env:
            env.reset(8)
            first = game(env)
            env.reset(9)
            game(env)
            env.reset(8)
            assert game(env) == first


def test_sticky_actions_follow_the_seed() -> None:
    def frames(seed: int) -> list[int]:
        with make_env("Pong", protocol="ale-v5") as env:
            env.reset(seed)
            return [crc(env.step(2 + step % 2).observation) for step in range(30)]

    assert frames(1) == frames(1) != frames(2)


def test_noop_starts_differ_between_seeds_and_can_be_off() -> None:
    with make_env("Pong") as env:
        counts = [env.reset(seed)[1]["episode_frames"] for seed in range(40)]
    assert min(counts) >= 1 and max(counts) <= 30 and len(set(counts)) > 10
    with make_env("Pong", protocol=named_protocol("atari-100k").replace(noop_max=0)) as env:
        assert env.reset(0)[1]["episode_frames"] == 0


def test_frame_limit_truncates() -> None:
    with make_env("Pong", protocol=named_protocol("atari-100k").replace(max_frames=50, noop_max=0)) as env:
        env.reset(0)
        infos = play(env, 0)
        assert infos[-1]["result"].truncated and not infos[-1]["result"].terminated
        assert infos[-1]["episode_frames"] == 50 and infos[-1]["game_over"]


def test_variants_of_the_rules() -> None:
    base = named_protocol("atari-100k")
    with make_env("Pong", protocol=base.replace(action_set="full")) as env:
        assert env.action_space.n == 18 and env.render().shape == (210, 160, 3)  # type: ignore[union-attr]
    with atari("Pong", base.replace(max_pool="off", noop_max=0)) as env, atari("Pong", base.replace(noop_max=0)) as two:
        env.reset(0)
        two.reset(0)
        differ = 0
        for step in range(60):
            last, most = env.step(step % 6).observation, two.step(step % 6).observation
            differ += not np.array_equal(last, most)
        assert differ and (most >= last).all(), "without pooling the last screen alone is seen"
    with make_env("Pong", protocol=base.replace(frame_skip=1, max_pool="off")) as env:
        _, info = env.reset(0)
        assert env.step(0).info["episode_frames"] == info["episode_frames"] + 1
    clipped = named_protocol("atari-100k", train=True).replace(reward_clip="sign")
    with make_env("Seaquest", protocol=clipped) as env:
        env.reset(0)
        rng = np.random.default_rng(0)
        rewards = []
        for _ in range(400):
            result = env.step(int(rng.integers(18)))
            rewards.append((result.reward, result.info["raw_reward"]))
            if result.terminated:
                env.reset()
        assert (1.0, 20.0) in rewards and {reward for reward, _ in rewards} <= {-1.0, 0.0, 1.0}


def test_every_listed_game_has_a_cartridge_and_joust_is_not_listed() -> None:
    from ale_py import roms

    games = atari_games()
    assert len(games) >= 60 and "Joust" not in games  # the emulator ends the process when asked to load it
    assert all(roms.get_rom_path(rom) is not None for rom in games.values())
