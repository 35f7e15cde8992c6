"""The rows of one namespace in memory: ids, vectors, order of insertion; metadata filters within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolkit.filters.conditions import MetadataFilter
from toolkit.local.api import ApiError, invalid
from toolkit.local.vectors.sparse import Floats

T = TypeVar("T")

FILTER_SECONDS: Final = 3.0  # of processor time that the filters of one request may take
_CLOCK_INTERVAL: Final = 0.01  # seconds between reads of the CPU clock, each a system call


class FilterBudget:
    """What one request may spend on metadata filters: processor time, the same on a busy machine.

    `wanted` returns whether the caller is still connected; it is called from the thread that evaluates.
    """

    def __init__(self, seconds: float = FILTER_SECONDS, *, wanted: Callable[[], bool] = lambda: True) -> None:
        self._seconds = seconds
        self._wanted = wanted
        self._ended = False
        self._spent = 0.0
        self._since = 0.0
        self._due = 0.0

    def end(self) -> None:
        """Stop the evaluation. May be called from another thread."""
        self._ended = True

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count what this thread does inside: 422 when the time is used up, 503 when the caller has left."""
        self._since = time.thread_time()
        try:
            self._check_limits()
            yield
        finally:
            self._spent += time.thread_time() - self._since

    def each(self, values: Iterable[T]) -> Iterator[T]:
        """The values; raises as `spending` does, looking at the processor's clock every 10 ms only."""
        for value in values:
            if time.monotonic() > self._due:
                self._check_limits()
            yield value

    def _check_limits(self) -> None:
        if self._ended or not self._wanted():
            raise ApiError(
                503, "the request was abandoned; the caller disconnected or the service is stopping"
            )
        if self._spent + time.thread_time() - self._since > self._seconds:
            got = f"more than {self._seconds:g} s of processor time, which is the limit"
            raise invalid("filter takes too long", got, "fewer or simpler conditions", status=422)
        self._due = time.monotonic() + _CLOCK_INTERVAL


def enlarged(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The array, or a copy at least twice as large, with space for at least so many rows."""
    if rows <= len(array):
        return array
    larger = np.empty((max(rows, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


_CHUNK: Final = 4096
_decode: Final = msgspec.json.Decoder().decode


class NamespaceRows:
    """The rows of a namespace, by position: a removed row's position is taken by the last row."""

    def __init__(self, dimension: int, read_metadata: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self.ids: list[str] = []
        self._positions: dict[str, int] = {}
        self._matrix = np.empty((0, dimension), dtype=np.float32)
        self._norms = np.empty(0, dtype=np.float64)
        self._sequence = np.empty(0, dtype=np.int64)
        self._versions = np.empty(0, dtype=np.int64)
        self._changes = 0
        self._read_metadata = read_metadata
        self._passing: tuple[Any, NDArray[np.intp]] = None, np.empty(0, np.intp)  # of the last filter

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
        state = (chosen, self._changes, len(self))
        if self._passing[0] != state:
            metadata: list[Any] = [None] * len(self)
            for row_id, text in self._read_metadata():
                metadata[self._positions[row_id]] = _decode(text)
            budget = budget or FilterBudget()
            with budget.spending():
                matches = [chosen.matches(values) for values in budget.each(metadata)]
            self._passing = state, np.flatnonzero(matches)
        return self._passing[1]

    def put(self, ids: Sequence[str], sequence: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Add rows, or replace those with the same ids."""
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


def _lengths(vectors: NDArray[np.float32]) -> Floats:
    lengths = np.empty(len(vectors))
    for start in range(0, len(vectors), _CHUNK):
        chunk = vectors[start : start + _CHUNK].astype(np.float64)
        lengths[start : start + _CHUNK] = np.sqrt(np.einsum("ij,ij->i", chunk, chunk))
    return lengths
