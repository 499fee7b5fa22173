"""Image resizing in exact integers: OpenCV's area rule and PIL's bilinear rule, without either library.

Both rules are separable: output row i is a weighted sum of a few source rows, output column j of a few source columns.
A `Taps` holds those few indices and integer weights for one axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synora.core.errors import UsageError

# PIL keeps its weights as integers of this many fractional bits, and rounds to a byte after each of its two passes.
_PIL_BITS = 22


@dataclass(frozen=True)
class Taps:
    """Which source positions each output position is made of.

    Attributes:
        index: (target, K) int64 source positions, padded with a valid position of weight 0.
        weight: (target, K) int64, every row summing to (about) `total`.
        total: what the weights of one output position sum to.
    """

    index: npt.NDArray[np.int64]
    weight: npt.NDArray[np.int64]
    total: int


def area_taps(source: int, target: int) -> Taps:
    """Return the taps of area averaging: each output covers `source / target` positions, ends in fractions.

    With source/target = p/q in lowest terms, every position is q units long and every output p units, so that all
    weights are whole numbers and nothing is rounded before the last division.
    """
    _check_sizes(source, target)
    divisor = math.gcd(source, target)
    span, unit = source // divisor, target // divisor
    first = np.arange(target) * span // unit
    last = ((np.arange(target) + 1) * span - 1) // unit
    index = first[:, None] + np.arange(int((last - first).max()) + 1)
    start, end = index * unit, (index + 1) * unit
    low = (np.arange(target) * span)[:, None]
    weight = np.clip(np.minimum(end, low + span) - np.maximum(start, low), 0, None)
    return Taps(np.minimum(index, source - 1), weight, span)


def bilinear_taps(source: int, target: int) -> Taps:
    """Return the taps of PIL's `Image.BILINEAR` when shrinking: a triangle as wide as two output positions."""
    _check_sizes(source, target)
    scale = source / target
    centre = (np.arange(target) + 0.5) * scale
    first = np.maximum((centre - scale + 0.5).astype(np.int64), 0)
    stop = np.minimum((centre + scale + 0.5).astype(np.int64), source)
    index = first[:, None] + np.arange(int((stop - first).max()))
    triangle = np.clip(1.0 - np.abs((index - centre[:, None] + 0.5) / scale), 0.0, None)
    triangle = np.where(index < stop[:, None], triangle, 0.0)
    triangle /= triangle.sum(axis=1, keepdims=True)
    weight = np.floor(triangle * (1 << _PIL_BITS) + 0.5).astype(np.int64)
    return Taps(np.minimum(index, source - 1), weight, 1 << _PIL_BITS)


def weigh(values: npt.NDArray[Any], taps: Taps, axis: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the weighted sums along one axis, in `dtype` (which must hold them)."""
    shape = [1] * values.ndim
    shape[axis] = -1
    result = None
    for column in range(taps.index.shape[1]):
        part = np.take(values, taps.index[:, column], axis=axis).astype(dtype, copy=False)
        part = part * taps.weight[:, column].astype(dtype).reshape(shape)
        result = part if result is None else np.add(result, part, out=result)
    assert result is not None
    return result


def round_quotient(sums: npt.NDArray[Any], total: int) -> npt.NDArray[np.uint8]:
    """Divide whole sums by `total`, rounding half to even, as bytes.

    Float32 is exact here below 2**24: sums are whole, and a quotient that is no tie stays 1/(2 total) away from one.
    """
    exact = np.float32 if 255 * total < 1 << 24 else np.float64
    quotient: npt.NDArray[Any] = np.divide(sums, exact(total), dtype=exact, casting="unsafe")
    return np.rint(quotient, out=quotient).astype(np.uint8)


def resize_area(image: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Shrink an image (H, W, C) uint8 to (size, size, C) by area averaging: `cv2.INTER_AREA`, bit for bit."""
    rows, columns = area_taps(image.shape[0], size), area_taps(image.shape[1], size)
    # Rows come first as they are contiguous; sums that fit 16 bits take half the memory traffic.
    narrow = np.uint16 if 255 * rows.total < 1 << 16 else np.uint32
    sums = weigh(weigh(image, rows, 0, narrow), columns, 1, np.int64)
    return round_quotient(sums, rows.total * columns.total)


def round_pil(sums: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Turn PIL's fixed-point sums into bytes."""
    return np.clip((sums + (1 << (_PIL_BITS - 1))) >> _PIL_BITS, 0, 255).astype(np.uint8)


def resize_bilinear(image: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Shrink an image (H, W, C) uint8 to (size, size, C) as PIL's `Image.BILINEAR` does: columns, then rows."""
    columns, rows = bilinear_taps(image.shape[1], size), bilinear_taps(image.shape[0], size)
    return round_pil(weigh(round_pil(weigh(image, columns, 1, np.int64)), rows, 0, np.int64))


def _check_sizes(source: int, target: int) -> None:
    if not 1 <= target <= source:
        raise UsageError(f"cannot resize {source} pixels to {target}: the size must be between 1 and {source}.")
