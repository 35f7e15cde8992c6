"""Sparse vectors: how they are stored, and the inverted index that finds the nearest; scores in float32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_INDEX: Final = 2**31 - 1
"""Largest number of a dimension: the largest signed 32-bit integer."""

_INDEX: Final = np.dtype("<i4")
_VALUE: Final = np.dtype("<f4")
_SMALL: Final = 20_000
_SHARE: Final = 16  # the small set is merged at this fraction of the large one
_SMALLEST: Final = float(np.finfo(np.float32).smallest_normal)


def rounded(scores: Floats) -> Floats:
    """Scores as float32 has them, so that scores that are written alike are equal.

    Scores that are too large or too small for float32 keep the order they have in float64.
    """
    with np.errstate(over="ignore", under="ignore"):
        single = scores.astype(np.float32).astype(np.float64)
    usual = np.isfinite(single) & (np.abs(single) >= _SMALLEST)
    return np.where(usual, single, scores)


class SparseArray(NamedTuple):
    """The dimensions of a sparse vector, and its values there; of a repeated dimension the sum counts."""

    indices: NDArray[np.int64]
    """Shape (n,), from 0 to `MAX_INDEX`, in the order in which they were given."""
    values: Floats
    """Shape (n,), rounded to single precision."""

    def to_bytes(self) -> bytes:
        """The indices, then the values in single precision."""
        return self.indices.astype(_INDEX).tobytes() + self.values.astype(_VALUE).tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes) -> SparseArray:
        """The vector that `to_bytes` wrote."""
        count = len(stored) // (_INDEX.itemsize + _VALUE.itemsize)
        return cls(
            np.frombuffer(stored, _INDEX, count).astype(np.int64),
            np.frombuffer(stored, _VALUE, count, offset=count * _INDEX.itemsize).astype(np.float64),
        )


class _Postings(NamedTuple):
    """Postings sorted by dimension: those of ``terms[k]`` are from ``starts[k]`` to ``starts[k + 1]``."""

    terms: NDArray[np.int64]
    starts: NDArray[np.intp]
    rows: NDArray[np.int64]
    values: NDArray[np.float32]

    @classmethod
    def sorted(
        cls, dimensions: NDArray[np.int64], rows: NDArray[np.int64], values: NDArray[np.float32]
    ) -> _Postings:
        order = np.argsort(dimensions, kind="stable")
        ordered = dimensions[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))  # no dimension is -1
        return cls(ordered[starts], np.append(starts, len(order)), rows[order], values[order])

    def dimensions(self) -> NDArray[np.int64]:
        """The dimension of each posting."""
        return np.repeat(self.terms, np.diff(self.starts))

    def of(self, terms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.intp]]:
        """Rows and values of some dimensions' postings, and the number of the dimension that each one has."""
        positions = np.searchsorted(self.terms, terms)
        known = np.flatnonzero(positions < len(self.terms))
        known = known[self.terms[positions[known]] == terms[known]]
        firsts = self.starts[positions[known]]
        counts = self.starts[positions[known] + 1] - firsts
        # the n-th posting of a dimension is n after its first
        before = np.cumsum(counts) - counts
        postings = np.arange(counts.sum()) + np.repeat(firsts - before, counts)
        return self.rows[postings], self.values[postings], np.repeat(known, counts)


_EMPTY: Final = _Postings.sorted(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


class InvertedRows:
    """The sparse vectors of a namespace by dimension, for inner products.

    Rows are numbered in order of insertion; numbers of removed or replaced rows are not reused.
    Postings (dimension, row, value) are sorted by dimension in flat arrays: a large set, and a small one of
    what was added since, which is merged into the large one as it grows.
    """

    def __init__(self, rows: Iterable[tuple[int, str, SparseArray]] = ()) -> None:
        self._numbers: dict[str, int] = {}
        self._ids: list[str] = []
        self._sequence = np.empty(16, dtype=np.int64)
        self._alive = np.zeros(16, dtype=np.bool_)
        self._large = self._small = _EMPTY
        self._pending: list[tuple[int, SparseArray]] = []
        self._repeats = False  # whether any vector names a dimension twice
        for sequence, row_id, vector in rows:
            self.put(sequence, row_id, vector)

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, sequence: int, row_id: str, vector: SparseArray) -> None:
        """Add a row, or replace the one with this id."""
        if row_id in self._numbers:
            self.remove(row_id)
        number = len(self._ids)
        if number == len(self._alive):
            self._sequence, self._alive = (
                np.resize(self._sequence, 2 * number),
                np.resize(self._alive, 2 * number),
            )
        self._numbers[row_id] = number
        self._ids.append(row_id)
        self._sequence[number] = sequence
        self._alive[number] = True
        self._pending.append((number, vector))
        self._repeats = self._repeats or len(set(vector.indices.tolist())) < len(vector.indices)

    def remove(self, row_id: str) -> None:
        """Remove a row."""
        self._alive[self._numbers.pop(row_id)] = False

    def nearest(
        self, query: SparseArray, top_k: int, *, idf: bool = False, passing: NDArray[np.int64] | None = None
    ) -> list[tuple[str, float]]:
        """Ids and inner products of the best rows that share a dimension with the query, best first.

        Equal float32 scores are in the order of insertion. With `idf` each dimension is weighted by
        log((N - n + 0.5) / (n + 0.5) + 1), where n of all N rows of the namespace have it; the 1, which the
        public SDK documents and tests, keeps it positive. `passing` are the sequence numbers of the rows that
        may be returned (None: all).
        """
        self._add_pending()
        sets = [postings.of(query.indices) for postings in (self._large, self._small)]
        rows, values, terms = (np.concatenate(arrays) for arrays in zip(*sets, strict=True))
        alive = self._alive[rows]
        rows, values, terms = rows[alive], values[alive], terms[alive]
        weights = query.values * self._idf(terms, rows, len(query.values)) if idf else query.values
        sums = np.bincount(rows, weights[terms] * values.astype(np.float64), minlength=len(self._ids))
        matching = np.flatnonzero(np.bincount(rows, minlength=len(self._ids)))
        if passing is not None:
            matching = matching[np.isin(self._sequence[matching], passing)]
        scores = rounded(sums[matching].astype(np.float64))  # of nothing, bincount counts in integers
        if len(matching) > top_k:
            best = scores >= np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
            matching, scores = matching[best], scores[best]
        order = np.lexsort((self._sequence[matching], -scores))[:top_k]
        chosen = zip(matching[order].tolist(), scores[order].tolist(), strict=True)
        return [(self._ids[number], score) for number, score in chosen]

    def _idf(self, terms: NDArray[np.intp], rows: NDArray[np.int64], count: int) -> Floats:
        if self._repeats:  # a row has a dimension once, however often it names it
            terms = np.unique(np.stack([terms, rows]), axis=1)[0]
        having = np.bincount(terms, minlength=count)
        weights: Floats = np.log((len(self) - having + 0.5) / (having + 0.5) + 1)
        return weights

    def _add_pending(self) -> None:
        """Add new postings to the small set, or all to the large one, without dead rows, as they grow."""
        if not self._pending:
            return
        large, small = self._large, self._small
        numbers, vectors = zip(*self._pending, strict=True)
        counts = [len(vector.indices) for vector in vectors]
        dimensions = np.concatenate([small.dimensions(), *(vector.indices for vector in vectors)])
        rows = np.concatenate([small.rows, np.repeat(np.array(numbers, dtype=np.int64), counts)])
        values = np.concatenate([small.values, *(vector.values.astype(np.float32) for vector in vectors)])
        self._pending.clear()
        if len(rows) <= max(_SMALL, len(large.rows) // _SHARE):
            self._small = _Postings.sorted(dimensions, rows, values)
            return
        dimensions = np.concatenate([large.dimensions(), dimensions])
        rows, values = np.concatenate([large.rows, rows]), np.concatenate([large.values, values])
        alive = self._alive[: len(self._ids)]
        remaining, renumbered = alive[rows], np.cumsum(alive) - 1
        self._large = _Postings.sorted(dimensions[remaining], renumbered[rows[remaining]], values[remaining])
        self._small = _EMPTY
        if not alive.all():
            self._sequence[: len(self)] = self._sequence[: len(alive)][alive]
            self._ids = [row_id for row_id, lives in zip(self._ids, alive.tolist(), strict=True) if lives]
            self._numbers = {row_id: number for number, row_id in enumerate(self._ids)}
            self._alive[: len(self._ids)] = True
