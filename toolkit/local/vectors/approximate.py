"""Approximate nearest neighbours, off unless asked for: a graph finds candidates, exact search ranks them.

The graph (HNSW, by usearch) is kept in memory only, and catches up with the rows a step at each query.
Until it has all rows, search is exact; so it is with a filter, for many results, and over few rows. Only
which rows are candidates is approximate: their scores and order are those of `nearest`. How much is missed
depends on the data: with vectors in clusters, as embeddings are, next to nothing; on vectors without
structure, most. `tests/benchmarks/bench_vector_search.py` measures it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import numpy as np

from toolkit.errors import InputError
from toolkit.local.vectors.float32 import Floats
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import Positions, nearest
from toolkit.local.vectors.specs import Similarity

STEP: Final = 1000
"""Most rows that a query adds to the graph: a few tenths of a second."""

_CANDIDATES: Final = 64
_SPARE: Final = 4  # candidates for each result wanted
_STALE_SHARE: Final = 4  # the graph is rebuilt when more than one in so many of its rows is outdated
_LONGEST: Final = 1e15  # longer vectors overflow in the graph's single precision
_CONNECTIVITY: Final = 16
_EXPANSION: Final = 128


def check_approximate(above: int) -> None:
    """Raise InputError unless the number is positive and usearch is installed."""
    if type(above) is not int or above < 1:
        raise InputError(
            "switching approximate search on",
            got=repr(above),
            expected="a number of vectors, at least 1",
            next_step="Leave it out for exact search.",
        )
    _usearch()


class ApproximateSearch:
    """Approximate search over the rows of one namespace, exact while there are at most `above` rows.

    Notes
    -----
    Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical
    Navigable Small World graphs", 2018.
    """

    def __init__(self, above: int) -> None:
        check_approximate(above)
        self._above = above
        self._clear()

    def nearest(
        self,
        rows: NamespaceRows,
        query: Floats,
        top_k: int,
        similarity: Similarity,
        passing: Positions | None = None,
    ) -> list[tuple[int, float]]:
        """As `toolkit.local.vectors.search.nearest`, for the same rows and similarity at each call."""
        wanted = max(_CANDIDATES, _SPARE * top_k)
        if passing is None and len(rows) > max(self._above, wanted) and _usable(rows, query):
            self._catch_up(rows, similarity)
            if self._is_complete(rows):
                candidates = self._candidates(rows, query, wanted, similarity)
                if len(candidates) >= top_k:
                    passing = candidates
        return nearest(rows, query, top_k, similarity, passing)

    def _clear(self) -> None:
        self._graph: Any = None
        self._latest = 0  # version of the row that was added last: rows are added in the order of versions
        # by the graph's own numbers: position and version when it was added
        self._positions = np.zeros(0, dtype=np.intp)
        self._versions = np.zeros(0, dtype=np.int64)

    def _is_complete(self, rows: NamespaceRows) -> bool:
        return bool((rows.versions <= self._latest).all())

    def _catch_up(self, rows: NamespaceRows, similarity: Similarity) -> None:
        if (len(self._positions) - len(rows)) * _STALE_SHARE > len(self._positions):
            self._clear()
        missing = np.flatnonzero(rows.versions > self._latest)
        missing = missing[np.argsort(rows.versions[missing])][:STEP]
        if not len(missing):
            return
        vectors = rows.matrix[missing]
        if similarity == "COSINE":  # of length 1, or 0 as they were: then the inner product is the cosine
            lengths = rows.norms[missing][:, None]
            vectors = np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0)
        if self._graph is None:
            self._graph = _usearch().Index(
                ndim=vectors.shape[1],
                metric="l2sq" if similarity == "EUCLIDEAN" else "ip",
                dtype="f16" if similarity == "COSINE" else "f32",
                connectivity=_CONNECTIVITY,
                expansion_add=_EXPANSION,
                expansion_search=_EXPANSION,
            )
        numbers = np.arange(len(self._positions), len(self._positions) + len(missing), dtype=np.uint64)
        # one thread: the graph, and with it every result, is the same each time
        self._graph.add(numbers, vectors.astype(np.float32), threads=1)
        self._positions = np.concatenate([self._positions, missing])
        self._versions = np.concatenate([self._versions, rows.versions[missing]])
        self._latest = int(self._versions[-1])

    def _candidates(
        self, rows: NamespaceRows, query: Floats, wanted: int, similarity: Similarity
    ) -> Positions:
        asked = query / np.linalg.norm(query) if similarity == "COSINE" else query
        numbers = self._graph.search(asked.astype(np.float32), wanted, threads=1).keys.astype(np.intp)
        numbers = numbers[self._positions[numbers] < len(rows)]
        positions = self._positions[numbers]
        return np.unique(positions[rows.versions[positions] == self._versions[numbers]])


def _usable(rows: NamespaceRows, query: Floats) -> bool:
    return bool(0 < np.linalg.norm(query) < _LONGEST and rows.norms.max() < _LONGEST)


def _usearch() -> Any:
    try:
        return import_module("usearch.index")
    except ImportError:
        raise InputError(
            "switching approximate search on",
            got="no usearch in this environment",
            expected="the package usearch",
            next_step="Install it (pip install usearch), or leave approximate search off.",
        ) from None
