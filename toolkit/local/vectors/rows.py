"""The rows of one namespace in memory: ids, vectors, order of insertion; metadata filters within a budget."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolkit.filters.conditions import Condition, parse_path, resolve
from toolkit.filters.metadata import And, Comparison, Membership, MetadataFilter, Or
from toolkit.local.api import ApiError, invalid
from toolkit.local.vectors.sparse import Floats

T = TypeVar("T")
Mask = NDArray[np.bool_]

FILTER_SECONDS: Final = 3.0  # of processor time that the filters of one request may take
MAX_COLUMNS: Final = 32  # fields that are kept as columns between filters
_CLOCK_INTERVAL: Final = 0.01  # seconds between reads of the CPU clock, each a system call
_BATCH: Final = 16  # values between reads of any clock; one value costs milliseconds at most
_MAX_RESULTS: Final = 8  # conditions whose results a column keeps
_STALE_FROM: Final = 1024


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

    def check(self) -> None:
        """Raise as `spending` does, looking at the processor's clock every 10 ms only."""
        if time.monotonic() > self._due:
            self._check_limits()

    def each(self, values: Sequence[T]) -> Iterator[T]:
        """The values, with a `check` now and then."""
        return chain.from_iterable(self._batches(values))

    def _batches(self, values: Sequence[T]) -> Iterator[Sequence[T]]:
        for start in range(0, len(values), _BATCH):
            yield values[start : start + _BATCH]
            self.check()

    def _check_limits(self) -> None:
        if self._ended or not self._wanted():
            raise ApiError(
                503, "the request was abandoned; the caller disconnected or the service is stopping"
            )
        if self._spent + time.thread_time() - self._since > self._seconds:
            got = f"more than {self._seconds:g} s of processor time, which is the limit"
            raise invalid("filter takes too long", got, "fewer or simpler conditions", status=422)
        self._due = time.monotonic() + _CLOCK_INTERVAL


class FieldColumns:
    """The fields that filters look at, as columns of distinct values.

    A condition depends on nothing but the value in its field, so it is evaluated once for each distinct
    value, and its results are kept for the next filter.
    """

    def __init__(self) -> None:
        self._columns: dict[str, _FieldColumn] = {}

    def __len__(self) -> int:
        return len(self._columns)

    def passes(
        self, chosen: MetadataFilter, read_metadata: Callable[[], Sequence[Any]], budget: FilterBudget
    ) -> Mask:
        """Which rows pass, as `MetadataFilter.matches` tells for each."""
        fields = chosen.fields()
        metadata = () if self._columns.keys() >= set(fields) else read_metadata()
        with budget.spending():
            for field in fields:  # the most recently used columns are last
                column = self._columns.pop(field, None) or _FieldColumn(field, metadata, budget)
                self._columns[field] = column
            passing = self._passes(chosen, budget)
        for field in list(self._columns)[:-MAX_COLUMNS]:
            del self._columns[field]
        return passing

    def put(self, position: int, metadata: Any) -> None:
        """Set the metadata of a row, which may be the next new one."""
        for field, column in list(self._columns.items()):
            column.put(position, metadata)
            if column.stale:
                del self._columns[field]

    def move(self, last: int, position: int) -> None:
        """Move the last row to another position, and drop its own."""
        for column in self._columns.values():
            column.move(last, position)

    def _passes(self, chosen: MetadataFilter, budget: FilterBudget) -> Mask:
        if isinstance(chosen, And | Or):
            combine = np.logical_and if isinstance(chosen, And) else np.logical_or
            passes = self._passes(chosen.parts[0], budget)
            for part in chosen.parts[1:]:
                combine(passes, self._passes(part, budget), out=passes)
            return passes
        if not isinstance(chosen, Condition):
            raise TypeError(f"{type(chosen).__name__} is neither a group nor a condition")
        budget.check()
        return self._columns[chosen.field].passes(chosen, budget)


class _FieldColumn:
    """One field of all rows: the distinct values, and for each row the number of its value."""

    def __init__(self, field: str, metadata: Sequence[Any], budget: FilterBudget) -> None:
        self._path = parse_path(field)
        self._values: list[Any] = []
        # containers by their JSON; no condition distinguishes values of equal keys
        self._codes_by_value: dict[Hashable, int] = {}
        self._results: OrderedDict[Condition, Mask] = OrderedDict()
        self._ordered: dict[Any, tuple[int, list[int]]] = {}
        self._rows = len(metadata)
        self._codes = np.fromiter(map(self._code, budget.each(metadata)), dtype=np.int32, count=self._rows)

    @property
    def stale(self) -> bool:
        """Whether most of its values no longer occur."""
        return len(self._values) > 2 * self._rows + _STALE_FROM

    def put(self, position: int, metadata: Any) -> None:
        """Set the value of a row, which may be the next new one."""
        self._rows = max(self._rows, position + 1)
        self._codes = enlarged(self._codes, self._rows)
        self._codes[position] = self._code(metadata)

    def move(self, last: int, position: int) -> None:
        """Move the value of the last row to another position."""
        self._codes[position] = self._codes[last]
        self._rows = last

    def passes(self, condition: Condition, budget: FilterBudget) -> Mask:
        """Which rows pass. Values that came since the condition was last evaluated are evaluated now."""
        results = self._results.pop(condition, None)
        if results is None:
            results = self._first_results(condition)
        if new := self._values[len(results) :]:
            more = np.fromiter(map(condition.accepts, budget.each(new)), dtype=np.bool_, count=len(new))
            results = np.concatenate([results, more])
        self._results[condition] = results
        if len(self._results) > _MAX_RESULTS:
            self._results.popitem(last=False)
        passing: Mask = results[self._codes[: self._rows]]
        return passing

    def _first_results(self, condition: Condition) -> Mask:
        """The results for all values if few evaluations determine them, as of comparisons; else for none."""
        results = np.zeros(len(self._values), dtype=np.bool_)
        equal: Sequence[Any] = ()
        if isinstance(condition, Membership) and not condition.negated:
            equal = condition.values
        elif isinstance(condition, Comparison) and condition.op == "=":
            equal = (condition.value,)
        elif isinstance(condition, Comparison) and condition.op != "!=":
            # among ordered values, those that pass are the first or the last
            codes = self._in_order(str if isinstance(condition.value, str) else (int, float))
            last = condition.op.startswith(">")
            index = bisect_left(codes, True, key=lambda code: condition.accepts(self._values[code]) is last)
            results[codes[index:] if last else codes[:index]] = True
        else:
            return results[:0]
        results[[self._codes_by_value[value] for value in equal if value in self._codes_by_value]] = True
        return results

    def _in_order(self, kind: type | tuple[type, ...]) -> list[int]:
        """The codes of the numbers or of the texts, ascending by value."""
        known, codes = self._ordered.get(kind, (0, []))
        if known != len(self._values):
            codes = [code for code, value in enumerate(self._values) if isinstance(value, kind)]
            codes.sort(key=self._values.__getitem__)
            self._ordered[kind] = len(self._values), codes
        return codes

    def _code(self, metadata: Any) -> int:
        value = resolve(metadata, self._path)
        key = ("json", json.dumps(value)) if isinstance(value, dict | list | tuple) else value
        code = self._codes_by_value.setdefault(key, len(self._values))
        if code == len(self._values):
            self._values.append(value)
        return code


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
