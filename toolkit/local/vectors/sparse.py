"""One sparse vector: a few numbered dimensions with their values, and how it lies in a file."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_INDEX: Final = 2**31 - 1
"""Largest number of a dimension: the largest signed 32-bit integer."""

_INDEX: Final = np.dtype("<i4")
_VALUE: Final = np.dtype("<f4")


class SparseVector(NamedTuple):
    """The dimensions that a vector holds, and its values there; a dimension named twice has their sum.

    Attributes
    ----------
    indices : numpy.ndarray
        Shape (n,), int64, from 0 to `MAX_INDEX`, in the order in which they were given.
    values : numpy.ndarray
        Shape (n,), float64, rounded to single precision.
    """

    indices: NDArray[np.int64]
    values: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """The indices, then the values in single precision.

        >>> vector = SparseVector(np.array([7, 2]), np.array([0.5, 1.0]))
        >>> SparseVector.from_bytes(vector.to_bytes())
        SparseVector(indices=array([7, 2]), values=array([0.5, 1. ]))
        """
        return self.indices.astype(_INDEX).tobytes() + self.values.astype(_VALUE).tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes) -> SparseVector:
        """The vector that `to_bytes` wrote."""
        count = len(stored) // (_INDEX.itemsize + _VALUE.itemsize)
        return cls(
            np.frombuffer(stored, _INDEX, count).astype(np.int64),
            np.frombuffer(stored, _VALUE, count, offset=count * _INDEX.itemsize).astype(np.float64),
        )
