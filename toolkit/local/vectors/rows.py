"""The rows of one namespace in memory, for searching: ids, vectors, order of insertion and fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolkit.filters.metadata import MetadataFilter
from toolkit.local.vectors.filtering import FieldColumns, FilterBudget, enlarged
from toolkit.local.vectors.float32 import Floats

_CHUNK: Final = 4096
_decode: Final = msgspec.json.Decoder().decode


class NamespaceRows:
    """The rows of a namespace, by position: a removed row's position is taken by the last row.

    `read_metadata` returns ids and JSON texts of all rows that have metadata; called when a field is first
    filtered.
    """

    def __init__(self, dimension: int, read_metadata: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self.ids: list[str] = []
        self._positions: dict[str, int] = {}
        self._matrix = np.empty((0, dimension), dtype=np.float32)
        self._norms = np.empty(0, dtype=np.float64)
        self._sequence = np.empty(0, dtype=np.int64)
        self._versions = np.empty(0, dtype=np.int64)
        self._changes = 0
        self._read_metadata = read_metadata
        self._columns = FieldColumns()

    def reserve(self, rows: int) -> None:
        """Allocate memory for so many rows."""
        self._matrix = enlarged(self._matrix, rows)
        self._norms = enlarged(self._norms, rows)
        self._sequence = enlarged(self._sequence, rows)
        self._versions = enlarged(self._versions, rows)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, row_id: object) -> bool:
        return row_id in self._positions

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The vectors by position, shape (rows, dimension). Later changes show in it."""
        return self._matrix[: len(self)]

    @property
    def norms(self) -> Floats:
        """The vectors' Euclidean lengths by position."""
        return self._norms[: len(self)]

    @property
    def sequence(self) -> NDArray[np.int64]:
        """The rows' sequence numbers by position: the order of insertion."""
        return self._sequence[: len(self)]

    @property
    def versions(self) -> NDArray[np.int64]:
        """By position the number of the change that put the row there."""
        return self._versions[: len(self)]

    def inserted(self, row_ids: Iterable[str]) -> NDArray[np.int64]:
        """The sequence numbers of the rows with these ids."""
        return self._sequence[[self._positions[row_id] for row_id in row_ids]]

    def passing(self, chosen: MetadataFilter, budget: FilterBudget | None = None) -> NDArray[np.intp]:
        """The positions of the rows whose metadata passes a filter, ascending; ApiError beyond the budget."""
        return np.flatnonzero(self._columns.passes(chosen, self._metadata, budget or FilterBudget()))

    def put(
        self,
        ids: Sequence[str],
        sequence: Sequence[int],
        vectors: NDArray[np.float32],
        metadata: Sequence[str | None] = (),
    ) -> None:
        """Add rows, or replace those with the same ids. `metadata` is JSON; needed after the first filter."""
        positions = []
        for row_id in ids:
            position = self._positions.setdefault(row_id, len(self.ids))
            if position == len(self.ids):
                self.ids.append(row_id)
            positions.append(position)
        self.reserve(len(self.ids))
        self._matrix[positions] = vectors
        self._norms[positions] = _lengths(vectors)
        self._sequence[positions] = sequence
        self._versions[positions] = np.arange(self._changes + 1, self._changes + 1 + len(ids))
        self._changes += len(ids)
        if self._columns:
            for position, text in zip(positions, metadata, strict=True):
                self._columns.put(position, None if text is None else _decode(text))

    def remove(self, row_id: str) -> None:
        """Remove a row; the last one moves to its position."""
        position, last = self._positions.pop(row_id), len(self) - 1
        reordered = self.ids.pop()
        if position != last:
            self.ids[position] = reordered
            self._positions[reordered] = position
            for array in (self._matrix, self._norms, self._sequence):
                array[position] = array[last]
            self._changes += 1
            self._versions[position] = self._changes
        self._columns.move(last, position)

    def _metadata(self) -> list[Any]:
        """The metadata by position: JSON values, None where there is none."""
        metadata: list[Any] = [None] * len(self)
        for row_id, text in self._read_metadata():
            metadata[self._positions[row_id]] = _decode(text)
        return metadata


def _lengths(vectors: NDArray[np.float32]) -> Floats:
    lengths = np.empty(len(vectors))
    for start in range(0, len(vectors), _CHUNK):
        chunk = vectors[start : start + _CHUNK].astype(np.float64)
        lengths[start : start + _CHUNK] = np.sqrt(np.einsum("ij,ij->i", chunk, chunk))
    return lengths
