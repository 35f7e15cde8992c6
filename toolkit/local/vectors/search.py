"""Dense search, exact by one matrix product or approximate by a graph, and fusion of two rankings.

Scores as publicly documented: COSINE (1 + cos) / 2, EUCLIDEAN 1 / (1 + squared distance), DOT_PRODUCT
(1 + dot) / 2. The cosine of a vector of length 0 is taken as 0. The formulas of fusion are documented, too;
not how many results of each side are fused (`DEPTH`), that the deviation is that of the whole list, and that
scores which are all the same are each 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError
from toolkit.local.vectors.bodies import Fusion, IndexQuery, Mode
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.sparse import Floats, rounded
from toolkit.local.vectors.specs import IndexSpec, Models, Similarity

Positions = NDArray[np.intp]
Search = Callable[[NamespaceRows, Floats, int, Similarity, Positions | None], list[tuple[int, float]]]
"""The signature of `nearest`."""

STEP: Final = 1000
"""Most rows that a query adds to the graph: a few tenths of a second."""

_UNIT: Final = 2.0**-24  # relative rounding error of single precision
_TINY: Final = 2.0**-125  # bound of the underflow of a product, with a margin
_EQUAL: Final = 2.0**-22  # closeness within this, relative to 1 + |closeness|, may be the same float32 score
_CHUNK: Final = 4096
_BLOCK: Final = 128
_FEW: Final = 6  # a row in double precision costs about this many times its part of the product
# of approximate search
_CANDIDATES: Final = 64
_SPARE: Final = 4  # candidates for each result wanted
_STALE_SHARE: Final = 4  # the graph is rebuilt when more than one in so many of its rows is outdated
_LONGEST: Final = 1e15  # longer vectors overflow in the graph's single precision
_CONNECTIVITY: Final = 16
EXPANSION: Final = 128
_SWITCHING_ON: Final = "switching approximate search on"


def nearest(
    rows: NamespaceRows, query: Floats, top_k: int, similarity: Similarity, passing: Positions | None = None
) -> list[tuple[int, float]]:
    """Positions and scores of the `top_k` best rows, best first; equal float32 scores in order of insertion.

    `passing` are the positions of the rows that may be returned (None: all). One product in single precision
    computes each row's closeness with a bounded rounding error. Every row that could still be among
    the best is computed again in double precision, so the result is that of a plain double-precision search.
    Where a filter leaves few rows, they are computed in double precision directly.
    """
    if passing is None and len(rows) > top_k:
        chosen = _candidates(rows, query, top_k, similarity, slice(None))
    elif passing is not None and len(passing) > max(top_k, len(rows) // _FEW):
        chosen = _candidates(rows, query, top_k, similarity, passing)
    else:
        chosen = np.arange(len(rows)) if passing is None else passing
    chunks = (chosen[start : start + _CHUNK] for start in range(0, max(1, len(chosen)), _CHUNK))
    closeness = np.concatenate([_closeness(rows, query, similarity, chunk) for chunk in chunks])
    scores = rounded(1 / (1 - closeness) if similarity == "EUCLIDEAN" else (1 + closeness) / 2)
    order = np.lexsort((rows.sequence[chosen], -scores))[:top_k]
    return [*zip(chosen[order].tolist(), scores[order].tolist(), strict=True)]


def _candidates(
    rows: NamespaceRows, query: Floats, top_k: int, similarity: Similarity, positions: Positions | slice
) -> Positions:
    """The rows that can be among the best, given the bound on the product's rounding error."""
    dimension = len(query)
    length = float(np.linalg.norm(query))
    direction = query / length if length else query
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = (rows.matrix @ direction.astype(np.float32))[positions].astype(np.float64)
        norms = rows.norms[positions]
        # the sum's error (dimension), and that of casting the direction, with some to spare
        error = (1.02 * (dimension + 4) * _UNIT) * norms + dimension * _TINY
        if similarity == "COSINE":
            inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
            value, error = product * inverse, error * inverse
        elif similarity == "DOT_PRODUCT":
            value, error = product * length, error * length
        else:
            squares = norms**2 + length**2
            value, error = 2 * length * product - squares, 2 * length * error + 1e-14 * squares
        lower, upper = value - error, value + error
        # where the product overflowed nothing is known
        unknown = ~np.isfinite(lower) | ~np.isfinite(upper)
        lower[unknown], upper[unknown] = -np.inf, np.inf
    # twice: partitioning 100,000 numbers is slower than all of the above
    possible = np.flatnonzero(upper >= _reached(_block_maxima(lower, top_k), top_k))
    possible = possible[upper[possible] >= _reached(lower[possible], top_k)]
    return possible if isinstance(positions, slice) else positions[possible]


def _block_maxima(values: Floats, top_k: int) -> Floats:
    """The largest of each block of values; all of them if that would be too few."""
    blocks = len(values) // _BLOCK
    if blocks <= top_k:
        return values
    maxima: Floats = values[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return maxima


def _reached(values: Floats, top_k: int) -> float:
    """The number that the `top_k` largest reach, less what equal float32 scores can hide."""
    reached = float(np.partition(values, len(values) - top_k)[len(values) - top_k])
    return reached - _EQUAL * (1 + abs(reached))


def _closeness(rows: NamespaceRows, query: Floats, similarity: Similarity, positions: Positions) -> Floats:
    """Cosine, dot product or negative squared distance, in double precision."""
    vectors = rows.matrix[positions].astype(np.float64)
    if similarity == "EUCLIDEAN":
        difference = vectors - query
        distances: Floats = np.einsum("ij,ij->i", difference, difference)
        return -distances
    # row by row the same sum, so that equal vectors are equally close at every position
    products: Floats = np.einsum("ij,j->i", vectors, query)
    if similarity == "DOT_PRODUCT":
        return products
    lengths = rows.norms[positions] * np.linalg.norm(query)
    cosines: Floats = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return cosines.clip(-1.0, 1.0)


class ApproximateSearch:
    """Approximate search over the rows of one namespace, with the same arguments at each call.

    The graph (HNSW, by usearch) is in memory only, and catches up with the rows a step at each query. Until
    it has all rows, search is exact; so it is with a filter, for many results, and over at most `above` rows.
    Only which rows are candidates is approximate: `nearest` ranks them. On vectors in clusters, as embeddings
    are, next to nothing is missed; on vectors without structure, most.
    `tests/benchmarks/bench_vector_search.py` measures it.

    Notes
    -----
    Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical
    Navigable Small World graphs", 2018.
    """

    def __init__(self, above: int, expansion: int = EXPANSION) -> None:
        self._above, self._expansion = above, expansion
        self._clear()

    def nearest(
        self,
        rows: NamespaceRows,
        query: Floats,
        top_k: int,
        similarity: Similarity,
        passing: Positions | None = None,
    ) -> list[tuple[int, float]]:
        """As the function `nearest`, for the same rows and similarity at each call."""
        poor = self._expansion < EXPANSION  # on purpose: no spare candidates either
        wanted = max(self._expansion, top_k) if poor else max(_CANDIDATES, _SPARE * top_k)
        if passing is None and len(rows) > max(self._above, wanted) and _usable(rows, query):
            self._catch_up(rows, similarity)
            if self.is_complete(rows):
                candidates = self._candidates(rows, query, wanted, similarity)
                passing = candidates if len(candidates) >= top_k else None
        return nearest(rows, query, top_k, similarity, passing)

    def is_complete(self, rows: NamespaceRows) -> bool:
        """Whether the graph has all of these rows; until then, searches are exact."""
        return bool((rows.versions <= self._latest).all())

    def _clear(self) -> None:
        self._graph: Any = None
        self._latest = 0  # version of the row that was added last: rows are added in the order of versions
        # by the graph's own numbers: position and version when it was added
        self._positions = np.zeros(0, dtype=np.intp)
        self._versions = np.zeros(0, dtype=np.int64)

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
                expansion_add=self._expansion,
                expansion_search=self._expansion,
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
        unit = query / np.linalg.norm(query) if similarity == "COSINE" else query
        numbers = self._graph.search(unit.astype(np.float32), wanted, threads=1).keys.astype(np.intp)
        numbers = numbers[self._positions[numbers] < len(rows)]
        positions = self._positions[numbers]
        return np.unique(positions[rows.versions[positions] == self._versions[numbers]])


def _usable(rows: NamespaceRows, query: Floats) -> bool:
    return bool(0 < np.linalg.norm(query) < _LONGEST and rows.norms.max() < _LONGEST)


def check_approximate(above: int) -> None:
    """Raise InputError unless the number is positive and usearch is installed."""
    if type(above) is not int or above < 1:
        expected, next_step = "a number of vectors, at least 1", "Leave it out for exact search."
        raise InputError(_SWITCHING_ON, got=repr(above), expected=expected, next_step=next_step)
    _usearch()


def _usearch() -> Any:
    try:
        return import_module("usearch.index")
    except ImportError:
        raise InputError(
            _SWITCHING_ON,
            got="no usearch in this environment",
            expected="the package usearch",
            next_step="Install it (pip install usearch), or leave approximate search off.",
        ) from None


Ranking = list[tuple[str, float]]
"""Ids and scores, best first."""

DEPTH: Final = 1000
"""Results of each side that are fused, or `top_k` where that is more.

Independent of `top_k`, so that the first hits do not depend on the number of hits.
"""

_RRF_CONSTANT: Final = 60
_DEVIATIONS: Final = 3
_ROUNDING: Final = 1e-12


def with_vectors(queries: Sequence[IndexQuery], spec: IndexSpec, models: Models) -> list[IndexQuery]:
    """The queries with vectors in place of text: on a hybrid index those of the query's mode."""

    def embedded(side: Mode, embed: Callable[[list[str]], Iterable[Any]]) -> dict[int, Any]:
        texts = {
            at: query.question
            for at, query in enumerate(queries)
            if isinstance(query.question, str) and (spec.kind != "hybrid" or query.mode in {side, "HYBRID"})
        }
        # all texts in one batch: a call of a model may be slow
        return dict(zip(texts, embed([*texts.values()]), strict=True)) if texts else {}

    dense = embedded("DENSE", partial(models.embed_dense, dimension=spec.dimension))
    sparse = embedded("SPARSE", partial(models.embed_sparse, question=True))
    return [
        replace(query, question=dense.get(at), sparse=sparse.get(at))
        if isinstance(query.question, str)
        else query
        for at, query in enumerate(queries)
    ]


def fuse(
    rankings: Iterable[Ranking], algorithm: Fusion, *, rank_start: int, inserted: Callable[[list[str]], Any]
) -> Ranking:
    """Each id once, with the sum of its parts in the rankings, best first.

    RRF is reciprocal rank fusion, 1 / (rank + 60), ranks from `rank_start`; DBSF distribution-based score
    fusion, (s - (mean - 3 deviations)) / (6 deviations). `inserted` returns the order of insertion of some
    ids, in which equal float32 scores are.
    """
    fused: dict[str, float] = {}
    for ranking in rankings:
        ranks = range(rank_start, rank_start + len(ranking))
        parts = [1 / (rank + _RRF_CONSTANT) for rank in ranks] if algorithm == "RRF" else _normalised(ranking)
        for (row_id, _), part in zip(ranking, parts, strict=True):
            fused[row_id] = fused.get(row_id, 0.0) + part
    ids, scores = [*fused], rounded(np.array([*fused.values()], dtype=np.float64))
    order = np.lexsort((inserted(ids), -scores))
    return [(ids[index], score) for index, score in zip(order.tolist(), scores[order].tolist(), strict=True)]


def _normalised(ranking: Ranking) -> list[float]:
    if not ranking:
        return []
    scores = np.array([score for _, score in ranking])
    # scores that are all the same deviate by rounding errors at most, which would decide everything
    if np.ptp(scores) <= _ROUNDING * np.abs(scores).max():
        return [0.5] * len(ranking)
    spread = _DEVIATIONS * float(scores.std())
    normalised: list[float] = ((scores - (scores.mean() - spread)) / (2 * spread)).tolist()
    return normalised
