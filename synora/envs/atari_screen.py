"""Atari screens to observations: the maximum of two screens and the resize, only where something changed.

The emulator's own picture is a byte of colour index a pixel; turning it into RGB costs as much as half a frame of
emulation. Here the indices are kept: one table holds, for every pair of colours, their maximum with the three channels
packed side by side into one whole number, so that one lookup does maximum and colours, and one weighted sum resizes all
channels. The numbers are float64, for their speed; all of them are whole and below 2**53, so that nothing is rounded
before the last division. Rows that equal those of the step before are kept from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from synora.envs import resize

Screen = npt.NDArray[np.uint8]


class Palette:
    """The emulator's colours by index, learned from the screens themselves.

    Attributes:
        colours: (256, C) uint8; a colour not seen yet is 0.
        known: the indices seen so far.
        count: how often something was learned.
    """

    def __init__(self, channels: int) -> None:
        self.colours = np.zeros((256, channels), np.uint8)
        self.known = b""
        self.count = 0

    def learn(self, ale: Any, screen: Screen) -> None:
        """Take the colours of the emulator's current screen, whose indices are `screen`."""
        rendered = ale.getScreenRGB() if self.colours.shape[1] == 3 else ale.getScreenGrayscale()
        self.colours[screen] = rendered.reshape(*screen.shape, -1)
        self.known = bytes({*self.known, *np.unique(screen).tolist()})
        self.count += 1


class Slot:
    """One kept screen of colour indices, and the one before it."""

    def __init__(self, ale: Any, palette: Palette, height: int, width: int) -> None:
        self._ale, self._palette = ale, palette
        self.screen: Screen = np.zeros((height, width), np.uint8)
        self.previous: Screen = np.zeros((height, width), np.uint8)
        # Screens are compared eight pixels, one word, at a time: the width is 160 for every game.
        self._words, self._previous_words = self.screen.view(np.uint64).ravel(), self.previous.view(np.uint64).ravel()
        self._row = np.repeat(np.arange(height), width // 8)

    def capture(self, dirty: npt.NDArray[np.bool_]) -> None:
        """Store the emulator's current screen; mark in `dirty` (height,) the rows that changed."""
        self.screen, self.previous = self.previous, self.screen
        self._words, self._previous_words = self._previous_words, self._words
        self._ale.getScreen(self.screen)
        changed = (self._words != self._previous_words).nonzero()[0]
        dirty[self._row[changed]] = True
        if self._words[changed].tobytes().translate(None, self._palette.known):
            self._palette.learn(self._ale, self.screen)

    def copy_from(self, other: Slot) -> None:
        """Hold what the other slot holds."""
        np.copyto(self.screen, other.screen)


class PooledScreens:
    """Maximum of two screens at full size, then area resize (`max_pool` before-resize, or off)."""

    def __init__(self, ale: Any, *, size: int, channels: int, pool: bool) -> None:
        height, width = ale.getScreenDims()
        self._palette = Palette(channels)
        self._older, self._newer = (Slot(ale, self._palette, height, width) for _ in range(2))
        self._pool, self._size, self._channels = pool, size, channels
        rows, columns = resize.area_taps(height, size), resize.area_taps(width, size)
        total = rows.total * columns.total
        self._rounded = resize.round_quotient(np.arange(255 * total + 1), total)
        # Channels that share a number; at sizes with huge weights each has its own. The highest is stored less 128,
        # which saves the bit that makes three channels of 64x64 fit.
        self._bits, self._offset = (255 * total).bit_length(), 128 * total
        together = (channels - 1) * self._bits + self._offset.bit_length() <= 53
        self._packs = [range(channels)] if together else [range(channel, channel + 1) for channel in range(channels)]
        self._tables = [np.zeros(1 << 16) for _ in self._packs]
        self._table_colours = -1
        # Source rows already resized along their width, one array a pack.
        self._narrow = [np.zeros((height, size)) for _ in self._packs]
        self._dirty = np.ones(height, np.bool_)
        self._columns = list(zip(columns.index.T.copy(), columns.weight.T.astype(np.float64), strict=True))
        self._rows, self._row_weights = rows.index, rows.weight.astype(np.float64)[:, None, :]
        uses = [np.flatnonzero(((rows.index == row) & (rows.weight > 0)).any(axis=1)) for row in range(height)]
        self._first_use, self._last_use = (np.array([use[end] for use in uses]) for end in (0, -1))
        self._observation = np.zeros((size, size, channels), np.uint8)

    def capture(self, age: int) -> None:
        """Store the current screen as the older (1) or newer (0) of the step's two."""
        if self._pool or age == 0:
            (self._older if age else self._newer).capture(self._dirty)

    def restart(self) -> Screen:
        """Forget the last game: the current screen alone is the observation."""
        self.capture(0)
        self._older.copy_from(self._newer)
        self._dirty[:] = True
        return self.observe()

    def latest(self) -> Screen:
        """Return the last observation again."""
        return self._observation.copy()

    def observe(self) -> Screen:
        """Return the observation (size, size, C) of the two stored screens."""
        sources = self._dirty.nonzero()[0]
        if sources.size:
            self._dirty[:] = False
            self._narrow_rows(sources)
            stale = np.zeros(self._size, np.bool_)
            # A source row is never longer than an output row, so it feeds one of them, or two neighbours.
            stale[self._first_use[sources]] = True
            stale[self._last_use[sources]] = True
            self._combine_rows(stale.nonzero()[0])
        return self._observation.copy()

    def observe_end(self) -> Screen:
        """Return what the authors' buffers hold when a game ends on the last frame of a step.

        The frame that ended the game was not stored, so the newer buffer still holds the maximum of the step before.
        """
        if not self._pool:
            return self.latest()
        before = np.maximum(self._colours(self._older.previous), self._colours(self._newer.screen))
        return resize.resize_area(np.maximum(before, self._colours(self._older.screen)), self._size)

    def full(self) -> Screen:
        """Return the maximum of the two stored screens at full size, (210, 160, C) uint8."""
        newer = self._colours(self._newer.screen)
        return np.maximum(newer, self._colours(self._older.screen)) if self._pool else newer

    def _colours(self, screen: Screen) -> Screen:
        return self._palette.colours[screen]

    def _narrow_rows(self, sources: npt.NDArray[np.int64]) -> None:
        """Pool, colour and resize along the width the given source rows."""
        if self._table_colours != self._palette.count:
            self._fill_tables()
        pairs = self._newer.screen.take(sources, axis=0).astype(np.uint16)
        older = (self._older if self._pool else self._newer).screen.take(sources, axis=0).astype(np.uint16)
        older <<= 8
        pairs |= older
        for table, narrow in zip(self._tables, self._narrow, strict=True):
            words = table.take(pairs, mode="wrap")
            sums = np.zeros((len(sources), self._size))
            for index, weight in self._columns:  # one tap after the other: long runs are what numpy is fast at
                part = words.take(index, axis=1)
                part *= weight
                sums += part
            narrow[sources] = sums

    def _combine_rows(self, targets: npt.NDArray[np.int64]) -> None:
        """Sum up the given rows of the observation from the narrowed source rows."""
        rows, weights = self._rows.take(targets, axis=0), self._row_weights.take(targets, axis=0)
        result = np.empty((len(targets), self._size, self._channels), np.uint8)
        for narrow, channels in zip(self._narrow, self._packs, strict=True):
            sums = np.matmul(weights, narrow.take(rows, axis=0))[:, 0].astype(np.int64)
            for channel in channels[:-1]:
                result[:, :, channel] = self._rounded.take(sums & ((1 << self._bits) - 1))
                sums >>= self._bits
            sums += self._offset
            result[:, :, channels[-1]] = self._rounded.take(sums)
        self._observation[targets] = result

    def _fill_tables(self) -> None:
        colours = self._palette.colours.astype(np.int64)
        highest = np.maximum(colours[:, None], colours[None, :]).reshape(1 << 16, -1)
        for table, channels in zip(self._tables, self._packs, strict=True):
            words = sum(highest[:, channel] << (place * self._bits) for place, channel in enumerate(channels))
            table[:] = words - (128 << ((len(channels) - 1) * self._bits))
        self._table_colours = self._palette.count


class ResizedScreens:
    """Each screen resized by itself with PIL's bilinear rule, then the maximum (`max_pool` after-resize)."""

    def __init__(self, ale: Any, *, size: int, channels: int) -> None:
        height, width = ale.getScreenDims()
        self._palette = Palette(channels)
        self._slots = [Slot(ale, self._palette, height, width) for _ in range(2)]
        self._columns, self._rows = resize.bilinear_taps(width, size), resize.bilinear_taps(height, size)
        self._used = self._rows.weight > 0
        self._narrow = [np.zeros((height, size, channels), np.uint8) for _ in range(2)]
        self._small = [np.zeros((size, size, channels), np.uint8) for _ in range(2)]

    def capture(self, age: int) -> None:
        """Store and resize the current screen as the older (1) or newer (0) of the step's two."""
        dirty = np.zeros(len(self._narrow[age]), np.bool_)
        self._slots[age].capture(dirty)
        self._update(age, np.flatnonzero(dirty))

    def restart(self) -> Screen:
        """Forget the last game: the current screen alone is the observation."""
        self.capture(0)
        self._update(0, np.arange(len(self._narrow[0])))
        self._slots[1].copy_from(self._slots[0])
        np.copyto(self._narrow[1], self._narrow[0])
        np.copyto(self._small[1], self._small[0])
        return self.observe()

    def latest(self) -> Screen:
        """Return the maximum of the two resized screens as they are, also when a game has ended."""
        return self.observe()

    def observe(self) -> Screen:
        """Return the observation (size, size, C) of the two stored screens."""
        return np.maximum(self._small[0], self._small[1])

    def observe_end(self) -> Screen:
        """Return the observation of a step on whose last frame the game ended: that frame's screen counts too."""
        return self.observe()

    def full(self) -> Screen:
        """Return the newer screen at full size, (210, 160, C) uint8."""
        return self._palette.colours[self._slots[0].screen]

    def _update(self, age: int, changed: npt.NDArray[np.int64]) -> None:
        if not changed.size:
            return
        pixels = self._palette.colours[self._slots[age].screen[changed]]
        self._narrow[age][changed] = resize.round_pil(resize.weigh(pixels, self._columns, 1, np.int32))
        dirty = np.zeros(len(self._narrow[age]), np.bool_)
        dirty[changed] = True
        rows = np.flatnonzero((dirty[self._rows.index] & self._used).any(axis=1))
        taps = resize.Taps(self._rows.index[rows], self._rows.weight[rows], self._rows.total)
        self._small[age][rows] = resize.round_pil(resize.weigh(self._narrow[age], taps, 0, np.int32))
