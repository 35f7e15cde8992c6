"""Draw rows at random by their number, so that every engine and every order of parts draws the same rows.

Each row has a random number that depends on the seed and the number of the row alone: the finalizer of
SplitMix64 (Steele, Lea and Flood, 2014), which pandas uses to hash integers. The rows with the smallest
random numbers are a random sample. A worker of Dask therefore knows which rows of a partition are drawn,
without the other partitions.

For example, 3 of 10 rows are drawn with the limit that is the 4th smallest of 10 random numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

Draws = npt.NDArray[np.uint64]

_GOLDEN: Final = 0x9E3779B97F4A7C15  # the increment of SplitMix64 between streams
_ALL: Final = np.uint64((1 << 64) - 1)


def row_draws(rows: npt.NDArray[np.integer], seed: int) -> Draws:
    """Return a random number for each row.

    >>> row_draws(np.array([0, 1]), 7)[1] == row_draws(np.array([1]), 7)[0]
    np.True_
    """
    stream = np.uint64(seed * _GOLDEN % (1 << 64))
    draws: Draws = pd.util.hash_array(rows.astype(np.uint64) + stream)
    return draws


def draw_limit(rows: int, sample: int, seed: int) -> np.uint64:
    """Return the limit below which the random numbers of `sample` rows are; all are if the rows are fewer."""
    if rows <= sample:
        return _ALL

    draws = row_draws(np.arange(rows), seed)
    draws.partition(sample)
    return np.uint64(draws[sample])
