"""Approximate nearest neighbours, off unless asked for: a graph finds candidates, exact search ranks them.

The graph (HNSW, by usearch) is kept in memory only, and catches up with the rows a step at each query. As
long as it lacks rows, queries are answered exactly; so are queries with a filter, for many results, and over
few rows. What is approximate is which rows are candidates: their scores and order are those of `nearest`. How
much is missed depends on the data: with vectors in clusters, as embeddings are, next to nothing; on vectors
without structure, most. `tests/benchmarks/bench_vector_search.py` measures it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import numpy as np

from toolkit.errors import InputError
from toolkit.local.vectors.float32 import Floats
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import Places, nearest
from toolkit.local.vectors.specs import Similarity

STEP: Final = 1000
"""Most rows that a query adds to the graph: a few tenths of a second."""

_CANDIDATES: Final = 64
_SPARE: Final = 4  # candidates for each result wanted
_STALE_SHARE: Final = 4  # the graph begins anew when more than one in so many of its rows is outdated
_LONGEST: Final = 1e15  # longer vectors overflow in the graph's single precision
_CONNECTIVITY: Final = 16
_EXPANSION: Final = 128


def check_approximate(above: int) -> None:
    """Whether approximate search can be had.

    Raises
    ------
    InputError
        When the number is not positive, or usearch is not installed.
    """
    if type(above) is not int or above < 1:
        raise InputError(
            "switching approximate search on",
            got=repr(above),
            expected="a number of vectors, at least 1",
            next_step="Leave it out for exact search.",
        )
    _usearch()


class ApproximateSearch:
    """Approximate search over the rows of one namespace, in place of `nearest`.

    Parameters
    ----------
    above : int
        Namespaces of at most this many rows are searched exactly.

    Raises
    ------
    InputError
        When usearch is not installed.

    Notes
    -----
    Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical
    Navigable Small World graphs", 2018.
    """

    def __init__(self, above: int) -> None:
        check_approximate(above)
        self._above = above
        self._begin_anew()

    def nearest(
        self,
        rows: NamespaceRows,
        query: Floats,
        top_k: int,
        similarity: Similarity,
        passing: Places | None = None,
    ) -> list[tuple[int, float]]:
        """The best rows and their scores, as `toolkit.local.vectors.search.nearest` gives them.

        Parameters
        ----------
        rows : NamespaceRows
            The same at each call.
        query : numpy.ndarray
            Shape (dimension,), float64, finite.
        top_k : int
            At most this many, at least 1.
        similarity : {"COSINE", "EUCLIDEAN", "DOT_PRODUCT"}
            The same at each call.
        passing : numpy.ndarray, optional
            Slots of the rows that may be in the answer. Default: all.

        Returns
        -------
        list of (slot, score)
        """
        wanted = max(_CANDIDATES, _SPARE * top_k)
        if passing is None and len(rows) > max(self._above, wanted) and self._usable(rows, query):
            self._catch_up(rows, similarity)
            if self._whole(rows):
                candidates = self._candidates(rows, query, wanted, similarity)
                if len(candidates) >= top_k:
                    passing = candidates
        return nearest(rows, query, top_k, similarity, passing)

    def _usable(self, rows: NamespaceRows, query: Floats) -> bool:
        return bool(0 < np.linalg.norm(query) < _LONGEST and rows.norms.max() < _LONGEST)

    def _begin_anew(self) -> None:
        self._graph: Any = None
        self._versions = np.zeros(0, dtype=np.int64)  # of the row that the graph has for a slot; 0: none
        # by the graph's own numbers: which slot was added, and in which version
        self._added_slots = np.zeros(0, dtype=np.int64)
        self._added_versions = np.zeros(0, dtype=np.int64)

    def _lacking(self, rows: NamespaceRows) -> Places:
        known = np.zeros(len(rows.versions), dtype=np.int64)
        known[: len(self._versions)] = self._versions
        return np.flatnonzero((rows.versions != known) & (rows.versions > 0))

    def _whole(self, rows: NamespaceRows) -> bool:
        return not len(self._lacking(rows))

    def _catch_up(self, rows: NamespaceRows, similarity: Similarity) -> None:
        outdated = len(self._added_slots) - len(rows)
        if outdated * _STALE_SHARE > len(self._added_slots):
            self._begin_anew()
        slots = self._lacking(rows)[:STEP]
        if not len(slots):
            return
        vectors = rows.matrix[slots]
        if similarity == "COSINE":  # of length 1, or 0 as they were: then the inner product is the cosine
            lengths = rows.norms[slots][:, None]
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
        numbers = np.arange(len(self._added_slots), len(self._added_slots) + len(slots), dtype=np.uint64)
        # one thread: the graph, and with it every answer, is the same each time
        self._graph.add(numbers, vectors.astype(np.float32), threads=1)
        versions = np.zeros(len(rows.versions), dtype=np.int64)
        versions[: len(self._versions)] = self._versions
        versions[slots] = rows.versions[slots]
        self._versions = versions
        self._added_slots = np.concatenate([self._added_slots, slots])
        self._added_versions = np.concatenate([self._added_versions, versions[slots]])

    def _candidates(self, rows: NamespaceRows, query: Floats, wanted: int, similarity: Similarity) -> Places:
        asked = query / np.linalg.norm(query) if similarity == "COSINE" else query
        numbers = self._graph.search(asked.astype(np.float32), wanted, threads=1).keys.astype(np.intp)
        slots = self._added_slots[numbers]
        current = slots < len(rows.versions)
        current[current] = rows.versions[slots[current]] == self._added_versions[numbers[current]]
        return np.unique(slots[current])


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
