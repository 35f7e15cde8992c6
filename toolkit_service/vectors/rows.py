"""The rows of one namespace in memory: ids, vectors and order; and metadata filters within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolkit.filters.conditions import MetadataFilter
from toolkit_service.api import ApiError, invalid
from toolkit_service.vectors.sparse import Floats

T = TypeVar("T")

# of processor time that the filters of one request may take
FILTER_SECONDS: Final = 3.0
# seconds between reads of the CPU clock, each a system call
_CLOCK_INTERVAL: Final = 0.01


class FilterBudget:
    """Limit the processor time that one request spends on metadata filters.

    Processor time does not depend on how busy the machine is. `wanted` returns whether the caller is still
    connected. It is called from the thread that evaluates the filter.
    """

    def __init__(
        self,
        seconds: float = FILTER_SECONDS,
        *,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._seconds = seconds
        self._wanted = wanted
        self._ended = False
        self._spent = 0.0
        self._since = 0.0
        self._due = 0.0

    def end(self) -> None:
        """Stop the evaluation. It may be called from another thread."""
        self._ended = True

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the work of this thread in the block.

        Raise an `ApiError` with 422 if the time is used up, or with 503 if the caller has disconnected.
        """
        self._since = time.thread_time()
        try:
            self._check_limits()
            yield
        finally:
            self._spent += time.thread_time() - self._since

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and raise as `spending` does. The processor time is read every 10 ms only."""
        for item in items:
            if time.monotonic() > self._due:
                self._check_limits()
            yield item

    def _check_limits(self) -> None:
        if self._ended or not self._wanted():
            raise ApiError(
                503,
                "the request was abandoned; the caller disconnected or the service is stopping",
            )

        if self._spent + time.thread_time() - self._since > self._seconds:
            got = f"more than {self._seconds:g} s of processor time, which is the limit"
            raise invalid(
                "filter takes too long", got, "fewer or simpler conditions", status=422
            )

        self._due = time.monotonic() + _CLOCK_INTERVAL


def enlarged(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return the array if it has space for `rows` rows, otherwise a copy at least twice as large."""
    if rows <= len(array):
        return array

    larger = np.empty((max(rows, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


_CHUNK: Final = 4096  # rows in double precision at a time
_decode: Final = msgspec.json.Decoder().decode


class NamespaceRows:
    """The rows of a namespace, by position. If a row is removed, the last row moves to that position."""

    def __init__(
        self, dimension: int, read_metadata: Callable[[], Iterable[tuple[str, str]]]
    ) -> None:
        self.ids: list[str] = []
        self._positions: dict[str, int] = {}
        self._matrix = np.empty((0, dimension), dtype=np.float32)
        self._norms = np.empty(0, dtype=np.float64)
        self._sequence = np.empty(0, dtype=np.int64)
        self._versions = np.empty(0, dtype=np.int64)
        self._changes = 0
        self._read_metadata = read_metadata
        # the state and the result of the last filter: pages of one query filter the same rows
        self._passing: tuple[Any, NDArray[np.intp]] = None, np.empty(0, np.intp)

    def reserve(self, rows: int) -> None:
        """Allocate memory for a number of rows."""
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
        """Return the vectors by position, shape (rows, dimension). Later changes are visible in this view."""
        return self._matrix[: len(self)]

    @property
    def norms(self) -> Floats:
        """Return the Euclidean lengths of the vectors by position."""
        return self._norms[: len(self)]

    @property
    def sequence(self) -> NDArray[np.int64]:
        """Return the sequence numbers of the rows by position: the order of insertion."""
        return self._sequence[: len(self)]

    @property
    def versions(self) -> NDArray[np.int64]:
        """Return, by position, the number of the change that put the row there."""
        return self._versions[: len(self)]

    def inserted(self, row_ids: Iterable[str]) -> NDArray[np.int64]:
        """Return the sequence numbers of the rows with these ids."""
        return self._sequence[[self._positions[row_id] for row_id in row_ids]]

    def passing(
        self, metadata_filter: MetadataFilter, budget: FilterBudget | None = None
    ) -> NDArray[np.intp]:
        """Return the positions of the rows whose metadata matches a filter, ascending.

        Raise an `ApiError` if that takes longer than the budget.
        """
        # the length as well, because removing the last row is not counted in `_changes`
        state = (metadata_filter, self._changes, len(self))
        if self._passing[0] != state:
            # None for rows without metadata
            metadata: list[Any] = list(repeat(None, len(self)))
            for row_id, text in self._read_metadata():
                metadata[self._positions[row_id]] = _decode(text)

            budget = budget or FilterBudget()
            with budget.spending():
                matches = [
                    metadata_filter.matches(fields) for fields in budget.each(metadata)
                ]

            self._passing = state, np.flatnonzero(matches)

        return self._passing[1]

    def put(
        self, ids: Sequence[str], sequence: Sequence[int], vectors: NDArray[np.float32]
    ) -> None:
        """Add rows, or replace rows with the same ids."""
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
        self._versions[positions] = np.arange(
            self._changes + 1, self._changes + 1 + len(ids)
        )
        self._changes += len(ids)

    def remove(self, row_id: str) -> None:
        """Remove a row. The last row moves to the position of it."""
        position, last = self._positions.pop(row_id), len(self) - 1
        last_id = self.ids.pop()
        if position != last:
            self.ids[position] = last_id
            self._positions[last_id] = position
            for array in (self._matrix, self._norms, self._sequence):
                array[position] = array[last]
            self._changes += 1
            self._versions[position] = self._changes


def _lengths(vectors: NDArray[np.float32]) -> Floats:
    lengths = np.empty(len(vectors))
    for start in range(0, len(vectors), _CHUNK):
        chunk = vectors[start : start + _CHUNK].astype(np.float64)
        lengths[start : start + _CHUNK] = np.sqrt(np.einsum("ij,ij->i", chunk, chunk))

    return lengths
