"""Gymnasium's classic control and Box2D tasks as rendered 64x64 images; needs no display."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from synora.core.errors import DependencyMissing, SynoraError
from synora.envs.interface import Box, Discrete, Env, Observation, Space, Transition
from synora.envs.protocol import Protocol
from synora.envs.resize import resize_area

_NEEDS = {
    "box2d": "Box2D tasks need Box2D and pygame: pip install 'synora[box2d]'",
    "classic_control": "rendering classic control needs pygame: pip install 'synora[play]'",
}


class GymPixelsEnv(Env):
    """One Gymnasium task, observed as a picture, resized by area averaging.

    The picture is the task's own observation where that is an RGB image (CarRacing's 96x96), else what it renders. One
    agent step is `protocol.frame_skip` task steps with
    the same action, rewards summed. Continuous actions are [-1, 1] for each number when `protocol.scale_actions`,
    whatever the task's own range. The task's own step limit truncates (`protocol.max_frames` replaces it).

    Args:
        name: the task's Gymnasium id.
        protocol: a `gym` protocol.
        seed: base seed of the games.

    Raises:
        DependencyMissing: what draws or simulates the task is not installed.
    """

    def __init__(self, name: str, protocol: Protocol, *, seed: int = 0) -> None:
        self._task = _make(name, protocol.max_frames)
        self._range, space = _action_space(name, self._task.action_space, protocol)
        own = self._task.observation_space
        self._sees_pixels = own.dtype == np.uint8 and len(own.shape) == 3 and own.shape[2] == 3
        meanings = [str(index) for index in range(space.n if isinstance(space, Discrete) else space.shape[0])]
        super().__init__(
            env_id=name,
            protocol=protocol,
            channels=1 if protocol.grayscale else 3,
            action_space=space,
            action_meanings=meanings,
            seed=seed,
        )

    def _start(self, seed: int) -> Observation:
        own, _ = self._task.reset(seed=seed)
        self.episode_frames = 0
        return self._observe(own)

    def _advance(self, action: Any) -> Transition:
        if self._range is not None:
            low, high = self._range
            action = low + (action + np.float32(1.0)) / np.float32(2.0) * (high - low)
        own, total, terminated, truncated = None, 0.0, False, False
        for _ in range(self.protocol.frame_skip):
            own, reward, terminated, truncated, _ = self._task.step(action)
            total += float(reward)
            self.episode_frames += 1
            if terminated or truncated:
                break
        return Transition(self._observe(own), total, bool(terminated), bool(truncated))

    def _observe(self, own: Any) -> Observation:
        image = resize_area(own if self._sees_pixels else self.render(), self.protocol.size)
        if self.protocol.grayscale:
            # Rec. 601 luma, as OpenCV and PIL convert RGB to gray.
            image = np.rint(image @ np.array([0.299, 0.587, 0.114]))[..., None].astype(np.uint8)
        return image

    def render(self) -> Observation:
        """Return the task's picture, (H, W, 3) uint8."""
        picture = self._task.render()
        if not isinstance(picture, np.ndarray):
            raise SynoraError(f"{self.env_id} drew no picture (got {type(picture).__name__}).")
        return picture.astype(np.uint8, copy=False)

    def close(self) -> None:
        """Free the simulator and its drawing surface."""
        super().close()
        self._task.close()


def _make(name: str, max_frames: int | None) -> Any:
    import gymnasium

    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        # No window can open here, and SDL would complain about it on stderr.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    entry = str(gymnasium.spec(name).entry_point)
    needs = _NEEDS["box2d" if ".box2d." in entry else "classic_control"]
    limit = {} if max_frames is None else {"max_episode_steps": max_frames}
    try:
        # The environment checker only warns, at the price of extra calls.
        task = gymnasium.make(name, render_mode="rgb_array", disable_env_checker=True, **limit)
        import pygame  # noqa: F401  (drawing imports it late; say what is missing before an episode starts)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise DependencyMissing(f"{name}: {needs}") from error
    return task


def _action_space(name: str, space: Any, protocol: Protocol) -> tuple[Any, Space]:
    """Return the (low, high) arrays that [-1, 1] is stretched to, or None, and our space."""
    import gymnasium

    if isinstance(space, gymnasium.spaces.Discrete) and space.start == 0:
        return None, Discrete(int(space.n))
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1 or not space.is_bounded():
        raise SynoraError(f"{name}: action space {space} is neither discrete nor a bounded vector.")
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    if not protocol.scale_actions:
        return None, Box(tuple(low.tolist()), tuple(high.tolist()))
    count = len(low)
    return (low, high), Box((-1.0,) * count, (1.0,) * count)
