"""Single precision: scores rounded to it, and JSON with the shortest digits that read back to it.

Stored vectors and scores are float32. As a float64, 0.1 would be written 0.10000000149011612; it is written
0.1, as the public service does. Arrow writes the digits: exactly, many at a time, and without holding the
interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FLOAT32: Final = np.finfo(np.float32)
_SMALLEST: Final = float(_FLOAT32.smallest_normal)
_EXPONENT_FROM: Final = 1e10  # from here on Arrow writes whole numbers with an exponent


def rounded(scores: Floats) -> Floats:
    """Scores as float32 has them, so that scores that are written alike are equal.

    Scores that are too large or too small for float32 keep the order they have in float64.
    """
    with np.errstate(over="ignore", under="ignore"):
        single = scores.astype(np.float32).astype(np.float64)
    usual = np.isfinite(single) & (np.abs(single) >= _SMALLEST)
    return np.where(usual, single, scores)


def score_numbers(scores: Sequence[float]) -> list[float]:
    """Scores as they are written: float32, the largest finite number where they are larger.

    >>> score_numbers([1 / 3, 1e300])
    [0.33333334, 3.4028235e+38]
    """
    with np.errstate(under="ignore"):
        singles = np.clip(np.array(scores, dtype=np.float64), _FLOAT32.min, _FLOAT32.max).astype(np.float32)
    numbers: list[float] = pc.cast(_digits(singles), pa.float64()).to_pylist()
    return numbers


def json_arrays(arrays: Sequence[NDArray[np.float32]]) -> list[msgspec.Raw]:
    """Each array, finite and not empty, as JSON. Many at once are faster than one by one.

    >>> [bytes(one) for one in json_arrays([np.array([0.1, 1], dtype=np.float32)])]
    [b'[0.1,1.0]']
    """
    if not arrays:
        return []
    ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int32)
    rows = pa.ListArray.from_arrays(pa.array(ends), _digits(np.concatenate(arrays)))
    return [msgspec.Raw(f"[{row}]".encode()) for row in pc.binary_join(rows, ",").to_pylist()]


def _digits(singles: NDArray[np.float32]) -> pa.StringArray:
    texts = pc.cast(pa.array(singles), pa.string())
    whole = (singles == np.rint(singles)) & (np.abs(singles) < _EXPONENT_FROM)
    if whole.any():  # a reader that distinguishes 1 from 1.0 is to see a float
        mask = pa.array(whole)
        texts = pc.replace_with_mask(texts, mask, pc.binary_join_element_wise(texts.filter(mask), ".0", ""))
    return texts
