"""The rows of one namespace in memory: ids and sequence numbers by slot, the rest when it is needed.

A row's slot is the place of its vector in the namespace's file. Slots of rows that went are holes until
another row gets them. Vectors stay in the file, which is mapped; their lengths, metadata and the columns that
filters look at are read when first asked for, so that opening a namespace takes little time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolkit.filters.metadata import MetadataFilter
from toolkit.local.vectors.budget import Budget
from toolkit.local.vectors.columns import FieldColumns
from toolkit.local.vectors.database import Held

_FIRST_CAPACITY: Final = 16
_CHUNK: Final = 4096
_decode: Final = msgspec.json.Decoder().decode


class NamespaceRows:
    """The rows of a namespace, in slots.

    Parameters
    ----------
    read_matrix : callable
        Takes a number of slots, and gives their vectors: shape (slots, dimension), float32.
    read_metadata : callable
        Gives slots and JSON texts of the rows that have metadata.
    held : Held, optional
        The rows that are there already.
    """

    def __init__(
        self,
        read_matrix: Callable[[int], NDArray[np.float32]],
        read_metadata: Callable[[], Iterable[tuple[int, str]]],
        held: Held | None = None,
    ) -> None:
        self._read_matrix = read_matrix
        self._read_metadata = read_metadata
        self.ids: list[str] = []
        """By slot; "" in a hole."""
        self._slots: dict[str, int] = {}
        self._sequence = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self._norms = np.zeros(_FIRST_CAPACITY, dtype=np.float64)
        self._versions = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self._measured = np.zeros(_FIRST_CAPACITY, dtype=np.int64)  # the versions that the lengths are of
        self._changes = 0
        self._changes_measured = 0
        self._metadata: list[Any] | None = None
        self._columns = FieldColumns()
        if held is not None and held.ids:
            self._fill(held)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, row_id: object) -> bool:
        return row_id in self._slots

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The vectors by slot, shape (slots, dimension), whatever lies in the holes; not to be kept."""
        return self._read_matrix(len(self.ids))

    @property
    def norms(self) -> NDArray[np.float64]:
        """The vectors' Euclidean lengths by slot."""
        if self._changes_measured < self._changes:
            self._measure()
        return self._norms[: len(self.ids)]

    @property
    def sequence(self) -> NDArray[np.int64]:
        """The rows' sequence numbers by slot: in which order they were first put; 0 in a hole."""
        return self._sequence[: len(self.ids)]

    @property
    def versions(self) -> NDArray[np.int64]:
        """By slot a number that is another one whenever a row is put; 0 in a hole."""
        return self._versions[: len(self.ids)]

    @property
    def metadata(self) -> list[Any]:
        """The rows' metadata by slot: JSON values, None where there is none."""
        if self._metadata is None:
            self._metadata = [None] * len(self.ids)
            for slot, text in self._read_metadata():
                self._metadata[slot] = _decode(text)
        return self._metadata

    def inserted(self, row_ids: list[str]) -> NDArray[np.int64]:
        """The sequence numbers of the rows with these ids."""
        return self._sequence[list(map(self._slots.__getitem__, row_ids))]

    def occupied(self) -> NDArray[np.intp] | None:
        """The slots that are no holes; None when there are no holes."""
        return None if len(self) == len(self.ids) else np.flatnonzero(self.sequence)

    def passing(self, chosen: MetadataFilter, budget: Budget | None = None) -> NDArray[np.intp]:
        """The slots of the rows whose metadata passes a filter, ascending; see `FieldColumns.passes`."""
        return np.flatnonzero(self._columns.passes(chosen, self.metadata, budget) & (self.sequence > 0))

    def put(self, row_id: str, sequence: int, slot: int, metadata: str | None) -> None:
        """Add a row, or give the one with this id another slot. `metadata` is JSON text."""
        before = self._slots.get(row_id)
        if before is not None and before != slot:
            self._empty(before)
        self._slots[row_id] = slot
        if slot >= len(self.ids):
            self._reach(slot + 1)
        self.ids[slot] = row_id
        self._sequence[slot] = sequence
        self._changes += 1
        self._versions[slot] = self._changes
        if self._metadata is not None:
            value = None if metadata is None else _decode(metadata)
            self._metadata[slot] = value
            self._columns.put(slot, value)

    def remove(self, row_id: str) -> None:
        """Take a row out."""
        self._empty(self._slots.pop(row_id))

    def _fill(self, held: Held) -> None:
        places = held.places
        self._reach(int(places.max()) + 1)
        slots = places.tolist()
        for slot, row_id in zip(slots, held.ids, strict=True):
            self.ids[slot] = row_id
        self._slots = dict(zip(held.ids, slots, strict=True))
        self._sequence[places] = held.sequences
        self._changes = 1
        self._versions[places] = self._changes

    def _empty(self, slot: int) -> None:
        self.ids[slot] = ""
        self._sequence[slot] = 0
        self._versions[slot] = 0
        self._norms[slot] = 0
        if self._metadata is not None:
            self._metadata[slot] = None
            self._columns.put(slot, None)

    def _reach(self, slots: int) -> None:
        """Make room for slots: arrays grow by doubling."""
        capacity = len(self._norms)
        while capacity < slots:
            capacity *= 2
        if capacity > len(self._norms):
            self._sequence = _enlarged(self._sequence, capacity)
            self._norms = _enlarged(self._norms, capacity)
            self._versions = _enlarged(self._versions, capacity)
            self._measured = _enlarged(self._measured, capacity)
        more = slots - len(self.ids)
        self.ids += [""] * more
        if self._metadata is not None:
            self._metadata += [None] * more

    def _measure(self) -> None:
        matrix = self.matrix
        measured = self._measured[: len(self.ids)]
        todo = np.flatnonzero((measured != self.versions) & (self.versions > 0))
        for start in range(0, len(todo), _CHUNK):
            slots = todo[start : start + _CHUNK]
            vectors = matrix[slots].astype(np.float64)
            self._norms[slots] = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        measured[todo] = self.versions[todo]
        self._changes_measured = self._changes


def _enlarged(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    larger = np.zeros(capacity, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
