"""Atari games straight on the emulator, with the authors' preprocessing.

With protocol `atari-100k` the rewards, ends, life losses and observations equal DIAMOND's wrapper on
`<Game>NoFrameskip-v4` bit for bit, at more speed: colour conversion and resizing happen only where a screen changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from synora.core.errors import DependencyMissing, SynoraError
from synora.envs.atari_screen import PooledScreens, ResizedScreens
from synora.envs.interface import Discrete, Env, Observation, Transition
from synora.envs.protocol import Protocol


class AtariEnv(Env):
    """One Atari game.

    Infos add `lives`. A lost life is flagged when the lives fall below a remembered count: with `life_loss` "end" or
    "ignore" that count is set at a game's start and only ever lowered (DIAMOND), with "end-noop" it follows every agent
    step and the last life does not count (IRIS).

    Args:
        game: canonical name, for messages and results.
        rom: the emulator's name of the game, in snake_case.
        protocol: an `ale` protocol.
        seed: base seed of the games.
    """

    def __init__(self, game: str, rom: str, protocol: Protocol, *, seed: int = 0) -> None:
        try:
            import ale_py
            from ale_py import roms
        except ImportError as error:
            raise DependencyMissing(f"Atari games need ale-py ({error}): pip install ale-py") from error
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale = ale_py.ALEInterface()
        path = roms.get_rom_path(rom)
        if path is None:
            raise SynoraError(f"{game}: the installed ale-py has no cartridge {rom!r}.")
        self._rom = path
        ale.setFloat("repeat_action_probability", protocol.sticky_prob)
        ale.setInt("max_num_frames_per_episode", protocol.max_frames or 0)
        # Each environment needs its screen only in memory, and its actions once a frame: the skip is ours.
        ale.setInt("frame_skip", 1)
        ale.loadROM(self._rom)
        # A few games keep something over a reset, so every seeded game starts from the state after loading; restoring
        # it equals loading again, which takes 0.2 s, but for the emulator's generator, which only sticky actions use.
        self._loaded = None if protocol.sticky_prob else ale.cloneSystemState()
        codes = ale.getMinimalActionSet() if protocol.action_set == "minimal" else ale.getLegalActionSet()
        self._codes, self._noop = list(codes), ale_py.Action.NOOP
        super().__init__(
            env_id=game,
            protocol=protocol,
            channels=1 if protocol.grayscale else 3,
            action_space=Discrete(len(self._codes)),
            action_meanings=[code.name for code in self._codes],
            seed=seed,
        )
        self._stale_ends = protocol.max_pool != "after-resize"
        self._screens: PooledScreens | ResizedScreens
        if self._stale_ends and protocol.interpolation == "area":
            pool = protocol.max_pool == "before-resize"
            self._screens = PooledScreens(ale, size=protocol.size, channels=self.observation_shape[2], pool=pool)
        else:
            self._screens = ResizedScreens(ale, size=protocol.size, channels=self.observation_shape[2])
        self._generator = np.random.default_rng(0)
        self._lives = 0

    def _start(self, seed: int) -> Observation:
        self._load(seed)
        return self._begin(seed)

    def restart(self) -> Observation:
        """Start a game without a seed, the generators going on, as the authors' loops do after the first reset."""
        observation = self._begin(None)
        self._running, self._between_lives = True, False
        return observation

    def _load(self, seed: int) -> None:
        """Seed the no-op generator and the emulator as ale-py's own environment does, the game as freshly loaded."""
        numpy_seed, emulator_seed = np.random.SeedSequence(seed).generate_state(n_words=2)
        self._generator = np.random.default_rng(int(numpy_seed))
        if self._loaded is not None:
            self._ale.restoreSystemState(self._loaded)
            return
        self._ale.setInt("random_seed", int(emulator_seed.astype(np.int32)))
        self._ale.loadROM(self._rom)

    def _begin(self, seed: int | None) -> Observation:
        self._ale.reset_game()
        if self.protocol.noop_max:
            for _ in range(int(self._generator.integers(1, self.protocol.noop_max + 1))):
                self._ale.act(self._noop)
                if self._ale.game_over():
                    if seed is not None:
                        self._load(seed)
                    self._ale.reset_game()
        self._lives = self._ale.lives()
        self.episode_frames = self._ale.getEpisodeFrameNumber()
        return self._screens.restart()

    def _advance(self, action: int) -> Transition:
        return self._press(self._codes[action])

    def _press(self, code: Any) -> Transition:
        ale, screens, skip = self._ale, self._screens, self.protocol.frame_skip
        reward, lost, over = 0.0, False, False
        frame = 0
        while frame < skip and not over:
            frame += 1
            reward += ale.act(code)
            lives = ale.lives()
            if lives < self._lives:
                lost, self._lives = True, lives
            over = ale.game_over()
            # The area pipelines do not store the frame that ends a game; IRIS's does.
            if frame >= skip - 1 and not (over and self._stale_ends):
                screens.capture(skip - frame)
        self.episode_frames = ale.getEpisodeFrameNumber()
        if not over:
            observation = screens.observe()
        else:
            observation = screens.observe_end() if frame == skip > 1 else screens.latest()
        if self.protocol.life_loss == "end-noop":
            lost = lost and self._lives > 0
            self._lives = ale.lives()
        if not over:
            return Transition(observation, reward, terminated=False, truncated=False, life_lost=lost)
        terminated, truncated = ale.game_over(with_truncation=False), ale.game_truncated()
        return Transition(observation, reward, terminated, truncated, lost)

    def _resume(self) -> Transition:
        if self.protocol.life_loss == "end-noop":
            return self._press(self._noop)._replace(life_lost=False)
        return Transition(self._screens.latest(), 0.0, terminated=False, truncated=False)

    def facts(self) -> dict[str, Any]:
        """Return what every info adds: `lives`."""
        return {"lives": self._ale.lives()}

    def render(self) -> Observation:
        """Return the screen of the observation, (210, 160, 3) uint8 for most games."""
        full = self._screens.full()
        return np.repeat(full, 3, axis=2) if full.shape[2] == 1 else full

    def full_screen(self) -> Observation:
        """Return what was resized into the last observation: (210, 160, C) uint8, the maximum where frames pool."""
        return self._screens.full()
