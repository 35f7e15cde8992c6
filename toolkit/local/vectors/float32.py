"""Single precision: scores rounded to it, and the shortest digits that read back to the same number.

Stored vectors and scores are float32. As a float64, 0.1 would be written 0.10000000149011612; it is written
0.1, as the public service does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FLOAT32: Final = np.finfo(np.float32)
_SMALLEST: Final = float(_FLOAT32.smallest_normal)
_DIGITS: Final = range(6, 10)  # any six digits survive float32; nine always identify a float32
_POWERS: Final = 10.0 ** np.arange(23)  # the powers of ten that float64 holds exactly
_FAST: Final = (1e-13, 1e22)  # magnitudes that are scaled by those powers only
_BLOCK: Final = 1 << 15  # numbers whose temporary arrays fit the processor's cache


def rounded(scores: Floats) -> Floats:
    """Scores as float32 has them, so that scores that are written alike are equal.

    Scores that are too large or too small for float32 keep the order they have in float64.

    >>> rounded(np.array([0.9999999999, 1e300])).tolist()
    [1.0, 1e+300]
    """
    with np.errstate(over="ignore", under="ignore"):
        single = scores.astype(np.float32).astype(np.float64)
    usual = np.isfinite(single) & (np.abs(single) >= _SMALLEST)
    return np.where(usual, single, scores)


def to_float32(scores: Sequence[float]) -> NDArray[np.float32]:
    """Scores as they are written: float32, the largest finite number where they are larger."""
    with np.errstate(under="ignore"):
        return np.clip(scores, _FLOAT32.min, _FLOAT32.max).astype(np.float32)


def shortest_lists(arrays: Sequence[NDArray[np.float32]]) -> list[list[float]]:
    """Each array as a list of numbers whose `repr` is the shortest that reads back to the same float32.

    Parameters
    ----------
    arrays : sequence of numpy.ndarray
        One-dimensional, float32, finite. Many at once are converted faster than one by one.

    Examples
    --------
    >>> shortest_lists([np.array([0.1, 1.0], dtype=np.float32), np.array([16777216.0], dtype=np.float32)])
    [[0.1, 1.0], [16777216.0]]
    """
    if not arrays:
        return []
    singles = np.concatenate(arrays)
    digits = np.empty(len(singles))
    for start in range(0, len(singles), _BLOCK):
        digits[start : start + _BLOCK] = _shortest(singles[start : start + _BLOCK])
    ends = np.cumsum([len(array) for array in arrays]).tolist()
    return [digits[start:end].tolist() for start, end in zip([0, *ends], ends, strict=False)]


def _shortest(singles: NDArray[np.float32]) -> Floats:
    """The float64 nearest to the shortest decimal of each float32."""
    found: Floats = singles.astype(np.float64)
    magnitudes = np.abs(found)
    low, high = _FAST
    todo = np.flatnonzero((magnitudes >= low) & (magnitudes < high))
    exponents = np.floor(np.log10(magnitudes[todo])).astype(np.int64)
    values = found[todo]
    for digits in _DIGITS:
        # an integer of at most nine digits, multiplied or divided once by an exact power: rounded once
        shift = digits - 1 - exponents
        power = _POWERS[np.abs(shift)]
        up = shift >= 0
        decimal = np.rint(np.where(up, values * power, values / power))
        nearest = np.where(up, decimal / power, decimal * power)
        same = nearest.astype(np.float32) == values
        found[todo[same]] = nearest[same]
        left = ~same
        todo, exponents, values = todo[left], exponents[left], values[left]
        if not len(todo):
            break
    rest = np.concatenate(
        [todo, np.flatnonzero(((magnitudes < low) & (magnitudes > 0)) | (magnitudes >= high))]
    )
    found[rest] = [float(str(number)) for number in singles[rest]]
    return found
