"""The rows of one namespace in memory: a contiguous matrix beside ids and metadata, in no order."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_FIRST_CAPACITY: Final = 16


class NamespaceRows:
    """Rows in slots 0 to n - 1. Room grows by doubling, and a removed row's slot goes to the last row.

    So putting and removing take constant time on average, and the matrix never has holes.

    Parameters
    ----------
    dimension : int
    """

    def __init__(self, dimension: int) -> None:
        self.ids: list[str] = []
        self.metadata: list[Any] = []
        self._slots: dict[str, int] = {}
        self._matrix = np.empty((_FIRST_CAPACITY, dimension), dtype=np.float32)
        self._norms = np.empty(_FIRST_CAPACITY, dtype=np.float64)
        self._sequence = np.empty(_FIRST_CAPACITY, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, row_id: object) -> bool:
        return row_id in self._slots

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The vectors, shape (n, dimension); a view that the next change may outdate."""
        return self._matrix[: len(self)]

    @property
    def norms(self) -> NDArray[np.float64]:
        """The vectors' Euclidean lengths."""
        return self._norms[: len(self)]

    @property
    def sequence(self) -> NDArray[np.int64]:
        """The rows' sequence numbers: in which order they were first put."""
        return self._sequence[: len(self)]

    def put(self, row_id: str, sequence: int, vector: NDArray[np.float32], metadata: Any) -> None:
        """Add a row, or replace the one with this id."""
        slot = self._slots.get(row_id)
        if slot is None:
            slot = len(self)
            if slot == len(self._norms):
                self._grow()
            self._slots[row_id] = slot
            self.ids.append(row_id)
            self.metadata.append(metadata)
        self.metadata[slot] = metadata
        self._matrix[slot] = vector
        self._norms[slot] = np.linalg.norm(vector.astype(np.float64))
        self._sequence[slot] = sequence

    def remove(self, row_id: str) -> None:
        """Take a row out; the last row moves into its slot."""
        slot = self._slots.pop(row_id)
        last = len(self) - 1
        if slot != last:
            moved = self.ids[last]
            self._slots[moved] = slot
            self.ids[slot] = moved
            self.metadata[slot] = self.metadata[last]
            self._matrix[slot] = self._matrix[last]
            self._norms[slot] = self._norms[last]
            self._sequence[slot] = self._sequence[last]
        self.ids.pop()
        self.metadata.pop()

    def _grow(self) -> None:
        capacity = 2 * len(self._norms)
        self._matrix = _enlarged(self._matrix, capacity)
        self._norms = _enlarged(self._norms, capacity)
        self._sequence = _enlarged(self._sequence, capacity)


def _enlarged(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    larger = np.empty((capacity, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
