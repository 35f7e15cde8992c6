"""Dense search, exact by one matrix product or approximate by a graph, and fusion of two rankings.

Scores are as publicly documented: COSINE (1 + cos) / 2, EUCLIDEAN 1 / (1 + squared distance), DOT_PRODUCT
(1 + dot) / 2. The cosine of a vector of length 0 counts as 0.

The formulas of fusion are documented as well. Three details are not, and are assumptions: the number of
results per side (`DEPTH`), that the deviation is the deviation of the whole list, and that scores which are
all the same become 0.5 each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from toolkit.base.errors import InputError
from toolkit_service.vectors.bodies import Fusion, IndexQuery, Mode
from toolkit_service.vectors.rows import NamespaceRows
from toolkit_service.vectors.sparse import Floats, rounded
from toolkit_service.vectors.specs import IndexSpec, Models, Similarity

Positions = NDArray[np.intp]
Search = Callable[
    [NamespaceRows, Floats, int, Similarity, Positions | None], list[tuple[int, float]]
]
"""The signature of `nearest`."""

STEP: Final = 1000
"""Most rows that one query adds to the graph, which takes a few tenths of a second."""

_UNIT: Final = 2.0**-24  # relative rounding error of single precision
_TINY: Final = 2.0**-125  # bound of the underflow of a product, with a margin
# closeness within this, relative to 1 + |closeness|, may be the same float32 score
_EQUAL: Final = 2.0**-22
# rows per product in double precision, which fit the cache of a processor
_CHUNK: Final = 4096
_BLOCK: Final = 128  # numbers per maximum: 100,000 numbers become 781
# a row in double precision costs about six times as much as in the product
_FEW: Final = 6
# constants of approximate search
_CANDIDATES: Final = 64  # fewest candidates of a query
_SPARE: Final = 4  # candidates per requested result
# the graph is rebuilt when more than a quarter of the rows in it are outdated
_STALE_SHARE: Final = 4
_LONGEST: Final = 1e15  # longer vectors overflow in single precision
_CONNECTIVITY: Final = 16  # neighbours per row, the usual choice for HNSW
EXPANSION: Final = 128
"""Rows that a search of the graph examines, by default."""
_SWITCHING_ON: Final = "switching approximate search on"


def nearest(
    rows: NamespaceRows,
    query: Floats,
    top_k: int,
    similarity: Similarity,
    passing: Positions | None = None,
) -> list[tuple[int, float]]:
    """Return positions and scores of the `top_k` best rows, best first.

    Rows with equal float32 scores are in the order of insertion. If `passing` is given, only rows at these
    positions can be returned.

    The search has two steps, and the result is that of a plain search in double precision:

    1. One product in single precision computes the closeness of all rows. The rounding error is bounded.
    2. Each row that can still be among the best, given the bound, is computed again in double precision.
       For example, if the tenth best of 100,000 rows is at least 0.8, rows below 0.79 need no second look.

    If a filter leaves few rows, the first step is omitted.
    """
    positions = _positions_to_rank(rows, query, top_k, similarity, passing)
    starts = range(0, max(1, len(positions)), _CHUNK)
    chunks = (positions[start : start + _CHUNK] for start in starts)
    closeness = np.concatenate(
        [_closeness(rows, query, similarity, chunk) for chunk in chunks]
    )
    scores = rounded(_score(closeness, similarity))
    order = np.lexsort((rows.sequence[positions], -scores))[:top_k]

    return [*zip(positions[order].tolist(), scores[order].tolist(), strict=True)]


def _positions_to_rank(
    rows: NamespaceRows,
    query: Floats,
    top_k: int,
    similarity: Similarity,
    passing: Positions | None,
) -> Positions:
    """Return the positions of the rows that are computed in double precision."""
    if passing is None:
        if len(rows) <= top_k:
            return np.arange(len(rows))
        return _candidates(rows, query, top_k, similarity, slice(None))

    if len(passing) <= max(top_k, len(rows) // _FEW):
        return passing

    return _candidates(rows, query, top_k, similarity, passing)


def _candidates(
    rows: NamespaceRows,
    query: Floats,
    top_k: int,
    similarity: Similarity,
    positions: Positions | slice,
) -> Positions:
    """Return the rows that can be among the best, given the bound on the rounding error of the product."""
    lower, upper = _bounds(rows, query, similarity, positions)
    # in two steps: partitioning 100,000 numbers is slower than computing them
    possible = np.flatnonzero(upper >= _reached(_block_maxima(lower, top_k), top_k))
    possible = possible[upper[possible] >= _reached(lower[possible], top_k)]
    if isinstance(positions, slice):
        # all rows were candidates: the index of a row is the position
        return possible

    return positions[possible]


def _bounds(
    rows: NamespaceRows,
    query: Floats,
    similarity: Similarity,
    positions: Positions | slice,
) -> tuple[Floats, Floats]:
    """Return a lower and an upper bound of the closeness of each row."""
    dimension = len(query)
    length = float(np.linalg.norm(query))
    direction = query / length if length else query

    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = (rows.matrix @ direction.astype(np.float32))[positions].astype(
            np.float64
        )
        norms = rows.norms[positions]
        # the error of the sum (per dimension), and of casting the direction, with a margin
        error = (1.02 * (dimension + 4) * _UNIT) * norms + dimension * _TINY

        if similarity == "COSINE":
            inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
            closeness, error = product * inverse, error * inverse
        elif similarity == "DOT_PRODUCT":
            closeness, error = product * length, error * length
        else:
            # -|a - b|² = 2 a·b - |a|² - |b|²
            squares = norms**2 + length**2
            closeness = 2 * length * product - squares
            error = 2 * length * error + 1e-14 * squares

        lower, upper = closeness - error, closeness + error
        # if the product overflowed, nothing is known about the row
        unknown = ~np.isfinite(lower) | ~np.isfinite(upper)
        lower[unknown], upper[unknown] = -np.inf, np.inf

    return lower, upper


def _block_maxima(numbers: Floats, top_k: int) -> Floats:
    """Return the largest number per block, or all numbers if there would be too few blocks.

    At least k numbers reach the k-th largest maximum, so the maxima give a lower bound of the k-th largest
    number. They are fewer, and quicker to partition.
    """
    blocks = len(numbers) // _BLOCK
    if blocks <= top_k:
        return numbers

    maxima: Floats = numbers[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return maxima


def _reached(numbers: Floats, top_k: int) -> float:
    """Return the `top_k`-th largest number, minus the difference that equal float32 scores can hide."""
    rank = len(numbers) - top_k
    reached = float(np.partition(numbers, rank)[rank])
    return reached - _EQUAL * (1 + abs(reached))


def _closeness(
    rows: NamespaceRows, query: Floats, similarity: Similarity, positions: Positions
) -> Floats:
    """Return cosine, dot product or negative squared distance, in double precision."""
    vectors = rows.matrix[positions].astype(np.float64)
    if similarity == "EUCLIDEAN":
        difference = vectors - query
        distances: Floats = np.einsum("ij,ij->i", difference, difference)
        return -distances

    # einsum adds each row in the same order, so that equal vectors are equally close at every position
    products: Floats = np.einsum("ij,j->i", vectors, query)
    if similarity == "DOT_PRODUCT":
        return products

    lengths = rows.norms[positions] * np.linalg.norm(query)
    cosines: Floats = np.divide(
        products, lengths, out=np.zeros_like(products), where=lengths > 0
    )
    return cosines.clip(-1.0, 1.0)


def _score(closeness: Floats, similarity: Similarity) -> Floats:
    if similarity == "EUCLIDEAN":
        return 1 / (1 - closeness)
    return (1 + closeness) / 2


class ApproximateSearch:
    """Approximate search over the rows of one namespace, with the same arguments at each call.

    The graph (HNSW, by usearch) exists in memory only. Each query adds at most `STEP` missing rows. Search is
    exact until the graph has all rows, with a filter, for many results, and over at most `above` rows.

    The graph only selects candidates, which `nearest` ranks exactly. On vectors in clusters, such as
    embeddings, almost nothing is missed; on random vectors, most is. See
    `tests/benchmarks/bench_vector_search.py` for measurements.

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
        """Return the nearest rows like the function `nearest`."""
        candidate_count = self._candidate_count(top_k)
        is_large = len(rows) > max(self._above, candidate_count)
        if passing is None and is_large and _usable(rows, query):
            self._catch_up(rows, similarity)
            if self.is_complete(rows):
                candidates = self._candidates(rows, query, candidate_count, similarity)
                # too few, if most of the graph is outdated: search all rows
                passing = candidates if len(candidates) >= top_k else None

        return nearest(rows, query, top_k, similarity, passing)

    def is_complete(self, rows: NamespaceRows) -> bool:
        """Return True if the graph has all of these rows. Until then, searches are exact."""
        return bool((rows.versions <= self._latest).all())

    def _candidate_count(self, top_k: int) -> int:
        if self._expansion < EXPANSION:
            # the user prefers speed to accuracy: no spare candidates
            return max(self._expansion, top_k)
        return max(_CANDIDATES, _SPARE * top_k)

    def _clear(self) -> None:
        self._graph: Any = None
        self._latest = 0  # version of the row that was added last: rows are added in the order of versions
        # per number in the graph: the position and the version of the row when it was added
        self._positions = np.zeros(0, dtype=np.intp)
        self._versions = np.zeros(0, dtype=np.int64)

    def _catch_up(self, rows: NamespaceRows, similarity: Similarity) -> None:
        """Add missing rows to the graph, at most `STEP`."""
        outdated = len(self._positions) - len(rows)
        if outdated * _STALE_SHARE > len(self._positions):
            self._clear()
        missing = np.flatnonzero(rows.versions > self._latest)
        missing = missing[np.argsort(rows.versions[missing])][:STEP]
        if not len(missing):
            return

        vectors = rows.matrix[missing]
        if similarity == "COSINE":
            # scaled to length 1 (or still 0): the inner product is then the cosine
            lengths = rows.norms[missing][:, None]
            vectors = np.divide(
                vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0
            )

        if self._graph is None:
            self._graph = self._new_graph(vectors.shape[1], similarity)
        numbers = np.arange(
            len(self._positions), len(self._positions) + len(missing), dtype=np.uint64
        )
        # one thread: the graph, and with it every result, is the same each time
        self._graph.add(numbers, vectors.astype(np.float32), threads=1)
        self._positions = np.concatenate([self._positions, missing])
        self._versions = np.concatenate([self._versions, rows.versions[missing]])
        self._latest = int(self._versions[-1])

    def _new_graph(self, dimension: int, similarity: Similarity) -> Any:
        return _usearch().Index(
            ndim=dimension,
            metric="l2sq" if similarity == "EUCLIDEAN" else "ip",
            # vectors of length 1 need less precision
            dtype="f16" if similarity == "COSINE" else "f32",
            connectivity=_CONNECTIVITY,
            expansion_add=self._expansion,
            expansion_search=self._expansion,
        )

    def _candidates(
        self, rows: NamespaceRows, query: Floats, count: int, similarity: Similarity
    ) -> Positions:
        """Search the graph, and return the positions of rows that are not outdated."""
        if similarity == "COSINE":
            query = query / np.linalg.norm(query)
        numbers = self._graph.search(
            query.astype(np.float32), count, threads=1
        ).keys.astype(np.intp)
        numbers = numbers[self._positions[numbers] < len(rows)]
        positions = self._positions[numbers]

        return np.unique(positions[rows.versions[positions] == self._versions[numbers]])


def _usable(rows: NamespaceRows, query: Floats) -> bool:
    return bool(0 < np.linalg.norm(query) < _LONGEST and rows.norms.max() < _LONGEST)


def check_approximate(above: int) -> None:
    """Raise InputError if the number is not positive or usearch is not installed."""
    if type(above) is not int or above < 1:
        raise InputError(
            _SWITCHING_ON,
            got=repr(above),
            expected="a number of vectors, at least 1",
            next_step="Omit it for exact search.",
        )

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
"""Results of each side that are fused, or `top_k` if that is more.

It does not depend on smaller `top_k`, so that the first hits do not depend on the number of hits.
"""

_RRF_CONSTANT: Final = 60  # the choice of the authors of reciprocal rank fusion
# scores within three standard deviations of the mean become 0 to 1
_DEVIATIONS: Final = 3
_ROUNDING: Final = 1e-12  # relative difference of scores that only differ by rounding


def with_vectors(
    queries: Sequence[IndexQuery], spec: IndexSpec, models: Models
) -> list[IndexQuery]:
    """Return the queries with vectors in place of text.

    On a hybrid index, the mode of a query tells whether it gets a dense vector, a sparse vector or both.
    """
    texts = {
        at: query.question
        for at, query in enumerate(queries)
        if isinstance(query.question, str)
    }

    def embedded(
        side: Mode, embed: Callable[[list[str]], Iterable[Any]]
    ) -> dict[int, Any]:
        selected = texts
        if spec.kind == "hybrid":
            selected = {
                at: text
                for at, text in texts.items()
                if queries[at].mode in {side, "HYBRID"}
            }

        if not selected:
            return {}

        # one batch: a call of a model may be slow
        return dict(zip(selected, embed([*selected.values()]), strict=True))

    dense = embedded("DENSE", partial(models.embed_dense, dimension=spec.dimension))
    sparse = embedded("SPARSE", partial(models.embed_sparse, question=True))
    embedded_queries = list(queries)

    for at in texts:
        embedded_queries[at] = replace(
            queries[at], question=dense.get(at), sparse=sparse.get(at)
        )

    return embedded_queries


def fuse(
    rankings: Iterable[Ranking],
    algorithm: Fusion,
    *,
    rank_start: int,
    inserted: Callable[[list[str]], Any],
) -> Ranking:
    """Return each id once with the sum of the parts from the rankings, best first.

    RRF (reciprocal rank fusion) gives 1 / (rank + 60), with ranks that begin with `rank_start`. DBSF
    (distribution-based score fusion) gives (s - (mean - 3 deviations)) / (6 deviations). For example, with
    RRF an id that is first in both rankings has the score 2/61.

    `inserted` returns the order of insertion of ids, which orders equal float32 scores.
    """
    fused: dict[str, float] = {}
    for ranking in rankings:
        if algorithm == "RRF":
            ranks = range(rank_start, rank_start + len(ranking))
            parts = [1 / (rank + _RRF_CONSTANT) for rank in ranks]
        else:
            parts = _normalised(ranking)

        for (row_id, _), part in zip(ranking, parts, strict=True):
            fused[row_id] = fused.get(row_id, 0.0) + part

    ids, scores = [*fused], rounded(np.array([*fused.values()], dtype=np.float64))
    order = np.lexsort((inserted(ids), -scores))

    return [
        (ids[index], score)
        for index, score in zip(order.tolist(), scores[order].tolist(), strict=True)
    ]


def _normalised(ranking: Ranking) -> list[float]:
    if not ranking:
        return []

    scores = np.array([score for _, score in ranking])
    # equal scores deviate by rounding errors at most: dividing by that deviation would make noise decisive
    if np.ptp(scores) <= _ROUNDING * np.abs(scores).max():
        return list(repeat(0.5, len(ranking)))

    spread = _DEVIATIONS * float(scores.std())
    normalised: list[float] = (
        (scores - (scores.mean() - spread)) / (2 * spread)
    ).tolist()
    return normalised
