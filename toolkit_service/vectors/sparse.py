"""Sparse vectors: the stored form, and the inverted index that finds the nearest rows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_INDEX: Final = 2**31 - 1
"""Largest number of a dimension: the largest signed 32-bit integer."""

_INDEX: Final = np.dtype("<i4")
_VALUE: Final = np.dtype("<f4")
_SMALL: Final = 20_000  # postings that the small set may always have
# the small set is merged when it is larger than this fraction of the large set
_SHARE: Final = 16
_SMALLEST: Final = float(np.finfo(np.float32).smallest_normal)


def rounded(scores: Floats) -> Floats:
    """Round scores to float32, so that scores which responses write alike are equal.

    Scores that are too large or too small for float32 keep the order that they have in float64.
    """
    with np.errstate(over="ignore", under="ignore"):
        single = scores.astype(np.float32).astype(np.float64)
    usual = np.isfinite(single) & (np.abs(single) >= _SMALLEST)
    return np.where(usual, single, scores)


class SparseArray(NamedTuple):
    """The dimensions and values of a sparse vector. If a dimension is repeated, the sum counts."""

    indices: NDArray[np.int64]
    """Shape (n,), from 0 to `MAX_INDEX`, in the order of the request."""
    values: Floats
    """Shape (n,), rounded to single precision."""

    def to_bytes(self) -> bytes:
        """Return the indices, followed by the values in single precision."""
        return (
            self.indices.astype(_INDEX).tobytes() + self.values.astype(_VALUE).tobytes()
        )

    @classmethod
    def from_bytes(cls, stored: bytes) -> SparseArray:
        """Read the vector that `to_bytes` wrote."""
        count = len(stored) // (_INDEX.itemsize + _VALUE.itemsize)
        return cls(
            np.frombuffer(stored, _INDEX, count).astype(np.int64),
            np.frombuffer(stored, _VALUE, count, offset=count * _INDEX.itemsize).astype(
                np.float64
            ),
        )


class _Postings(NamedTuple):
    """Postings sorted by dimension. The postings of ``terms[k]`` are at ``starts[k]`` to ``starts[k + 1]``.

    For example, two rows with the vectors {7: 0.5} and {3: 1.0, 7: 2.0} are stored as::

        terms   3  7
        starts  0  1  3
        rows    1  0    1
        values  1.0  0.5  2.0
    """

    terms: NDArray[np.int64]
    starts: NDArray[np.intp]
    rows: NDArray[np.int64]
    values: NDArray[np.float32]

    @classmethod
    def sorted(
        cls,
        dimensions: NDArray[np.int64],
        rows: NDArray[np.int64],
        values: NDArray[np.float32],
    ) -> _Postings:
        """Sort postings that are given as dimension, row and value."""
        order = np.argsort(dimensions, kind="stable")
        ordered = dimensions[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))  # no dimension is -1

        return cls(
            ordered[starts], np.append(starts, len(order)), rows[order], values[order]
        )

    def dimensions(self) -> NDArray[np.int64]:
        """Return the dimension of each posting."""
        return np.repeat(self.terms, np.diff(self.starts))

    def of(
        self, terms: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.intp]]:
        """Return the postings of several dimensions: row, value, and index of the dimension in `terms`."""
        positions = np.searchsorted(self.terms, terms)
        known = np.flatnonzero(positions < len(self.terms))
        known = known[self.terms[positions[known]] == terms[known]]
        firsts = self.starts[positions[known]]
        counts = self.starts[positions[known] + 1] - firsts
        # the n-th posting of a dimension is n after the first
        # For example, with firsts 10, 40 and counts 2, 3: before is 0, 2, and the postings are 10, 11, 40,
        # 41, 42.
        before = np.cumsum(counts) - counts
        postings = np.arange(counts.sum()) + np.repeat(firsts - before, counts)

        return self.rows[postings], self.values[postings], np.repeat(known, counts)


_EMPTY: Final = _Postings.sorted(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
)


class InvertedRows:
    """The sparse vectors of a namespace by dimension, for inner products (an inverted index).

    Rows are numbered in the order of insertion; numbers of removed or replaced rows are not reused. Postings
    (dimension, row, value) are sorted by dimension in flat arrays. New postings are added to a small set,
    which is merged into a large set when it grows: sorting the large set for each row would be slow.
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
        """Add a row, or replace the row with this id."""
        if row_id in self._numbers:
            self.remove(row_id)
        number = len(self._ids)
        if number == len(self._alive):
            # np.resize fills the new half with copies of the old one; each `put` overwrites one of them
            self._sequence = np.resize(self._sequence, 2 * number)
            self._alive = np.resize(self._alive, 2 * number)

        self._numbers[row_id] = number
        self._ids.append(row_id)
        self._sequence[number] = sequence
        self._alive[number] = True
        self._pending.append((number, vector))
        if len(set(vector.indices.tolist())) < len(vector.indices):
            self._repeats = True

    def remove(self, row_id: str) -> None:
        """Remove a row."""
        self._alive[self._numbers.pop(row_id)] = False

    def nearest(
        self,
        query: SparseArray,
        top_k: int,
        *,
        idf: bool = False,
        passing: NDArray[np.int64] | None = None,
    ) -> list[tuple[str, float]]:
        """Return ids and inner products of the best rows that share a dimension with the query, best first.

        Rows with equal float32 scores are in the order of insertion. If `passing` is given, only rows with
        these sequence numbers can be returned.

        With `idf`, a dimension that n of all N rows have is weighted by log((N - n + 0.5) / (n + 0.5) + 1).
        The 1, which the public SDK documents and tests, keeps the weight positive.
        """
        self._add_pending()
        sets = [postings.of(query.indices) for postings in (self._large, self._small)]
        rows, values, terms = (
            np.concatenate(arrays) for arrays in zip(*sets, strict=True)
        )
        alive = self._alive[rows]
        rows, values, terms = rows[alive], values[alive], terms[alive]
        weights = query.values
        if idf:
            weights = weights * self._idf(terms, rows, len(weights))

        # The inner product of a row is the sum over its postings. Rows whose products add up to 0 match as
        # well.
        sums = np.bincount(
            rows, weights[terms] * values.astype(np.float64), minlength=len(self._ids)
        )
        matching = np.flatnonzero(np.bincount(rows, minlength=len(self._ids)))
        if passing is not None:
            matching = matching[np.isin(self._sequence[matching], passing)]
        # without rows, bincount returns integers
        scores = rounded(sums[matching].astype(np.float64))

        if len(matching) > top_k:
            # all rows that are equal to the last place stay, because the order of insertion decides between
            # them
            rank = len(scores) - top_k
            is_best = scores >= np.partition(scores, rank)[rank]
            matching, scores = matching[is_best], scores[is_best]

        order = np.lexsort((self._sequence[matching], -scores))[:top_k]
        best = zip(matching[order].tolist(), scores[order].tolist(), strict=True)
        return [(self._ids[number], score) for number, score in best]

    def _idf(
        self, terms: NDArray[np.intp], rows: NDArray[np.int64], count: int
    ) -> Floats:
        if self._repeats:
            # a row counts once, even if the vector names the dimension several times
            terms = np.unique(np.stack([terms, rows]), axis=1)[0]

        row_counts = np.bincount(terms, minlength=count)
        weights: Floats = np.log(
            (len(self) - row_counts + 0.5) / (row_counts + 0.5) + 1
        )
        return weights

    def _add_pending(self) -> None:
        """Add new postings to the small set, or merge all into the large set if the small set grows."""
        if not self._pending:
            return

        large, small = self._large, self._small
        numbers, vectors = zip(*self._pending, strict=True)
        counts = [len(vector.indices) for vector in vectors]
        dimensions = np.concatenate(
            [small.dimensions(), *(vector.indices for vector in vectors)]
        )
        rows = np.concatenate(
            [small.rows, np.repeat(np.array(numbers, dtype=np.int64), counts)]
        )
        values = np.concatenate(
            [small.values, *(vector.values.astype(np.float32) for vector in vectors)]
        )
        self._pending.clear()
        if len(rows) <= max(_SMALL, len(large.rows) // _SHARE):
            self._small = _Postings.sorted(dimensions, rows, values)
            return

        self._merge(
            np.concatenate([large.dimensions(), dimensions]),
            np.concatenate([large.rows, rows]),
            np.concatenate([large.values, values]),
        )

    def _merge(
        self,
        dimensions: NDArray[np.int64],
        rows: NDArray[np.int64],
        values: NDArray[np.float32],
    ) -> None:
        """Make the large set of all postings, without dead rows, and number the rows anew."""
        alive = self._alive[: len(self._ids)]
        # If the rows 0 and 2 of three are alive, cumsum - 1 gives 0, 0, 1: row 2 becomes row 1. The number of
        # row 1 is not used, because its postings are dropped.
        remaining, renumbered = alive[rows], np.cumsum(alive) - 1
        self._large = _Postings.sorted(
            dimensions[remaining], renumbered[rows[remaining]], values[remaining]
        )
        self._small = _EMPTY

        if not alive.all():
            self._sequence[: len(self)] = self._sequence[: len(alive)][alive]
            self._ids = list(compress(self._ids, alive.tolist()))
            self._numbers = {row_id: number for number, row_id in enumerate(self._ids)}
            self._alive[: len(self._ids)] = True
