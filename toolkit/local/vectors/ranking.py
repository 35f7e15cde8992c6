"""One query's ranking: text embedded, each side searched, and the two sides of a hybrid index fused.

The formulas of fusion are publicly documented. Not documented, and assumed here: how many results of each
side are fused (`DEPTH`), that the deviation is that of the whole list rather than of a sample, and that
scores which are all the same are each in the middle, 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from toolkit.local.vectors.bodies import Fusion, IndexQuery
from toolkit.local.vectors.filtering import FilterBudget
from toolkit.local.vectors.float32 import rounded
from toolkit.local.vectors.models import Models
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import Search, nearest
from toolkit.local.vectors.sparse import InvertedRows
from toolkit.local.vectors.specs import IndexSpec

Ranking = list[tuple[str, float]]
"""Ids and scores, best first."""

DEPTH: Final = 1000
"""Results of each side that are fused, or as many as are asked for when that is more.

Independent of `top_k`, so that the first hits do not depend on the number of hits.
"""

_RRF_CONSTANT: Final = 60
_DEVIATIONS: Final = 3
_ROUNDING: Final = 1e-12


def with_vectors(queries: Sequence[IndexQuery], spec: IndexSpec, models: Models) -> list[IndexQuery]:
    """The queries with vectors in place of text: on a hybrid index those that a query's mode asks for."""
    hybrid = spec.kind == "hybrid"
    of_text = [(query, query.question) for query in queries if isinstance(query.question, str)]
    for_dense = [text for query, text in of_text if not (hybrid and query.mode == "SPARSE")]
    for_sparse = [text for query, text in of_text if not (hybrid and query.mode == "DENSE")]
    # all texts in one batch: a call of a model may be slow
    dense = iter(models.embed_dense(for_dense, spec.dimension) if for_dense else ())
    sparse = iter(models.embed_sparse(for_sparse, question=True) if for_sparse else ())
    found = []
    for query in queries:
        if isinstance(query.question, str):
            vector = None if hybrid and query.mode == "SPARSE" else next(dense)
            other = None if hybrid and query.mode == "DENSE" else next(sparse)
            question = None if vector is None else vector.astype(np.float64)
            query = replace(query, question=question, sparse=other)  # noqa: PLW2901
        found.append(query)
    return found


def asks_both(query: IndexQuery) -> bool:
    """Whether a query has both vectors, so that two rankings are fused."""
    return query.question is not None and query.sparse is not None


def ranked(
    query: IndexQuery,
    spec: IndexSpec,
    rows: NamespaceRows,
    inverted: Callable[[], InvertedRows],
    *,
    search: Search = nearest,
    budget: FilterBudget | None = None,
) -> Ranking:
    """The ``query.top_k`` best rows of a namespace, or, where two rankings are fused, all that they name.

    The query has vectors, not text; `inverted` is called only for sparse vectors.
    """
    if not len(rows):
        return []
    passing = None if query.filter is None else rows.passing(query.filter, budget)
    top_k = max(query.top_k, DEPTH) if asks_both(query) else query.top_k
    rankings: list[Ranking] = []
    if isinstance(query.question, np.ndarray) and spec.similarity is not None:
        best = search(rows, query.question, top_k, spec.similarity, passing)
        rankings.append([(rows.ids[position], score) for position, score in best])
    if query.sparse is not None:
        chosen = None if passing is None else rows.sequence[passing]
        rankings.append(inverted().nearest(query.sparse, top_k, idf=query.idf, passing=chosen))
    if len(rankings) == 1:
        return rankings[0]
    return fuse(rankings, query.fusion, rank_start=spec.rank_start, inserted=rows.inserted)


def fuse(
    rankings: Iterable[Ranking],
    algorithm: Fusion,
    *,
    rank_start: int,
    inserted: Callable[[list[str]], Any],
) -> Ranking:
    """Each id once, with the sum of its parts in the rankings, best first.

    RRF is reciprocal rank fusion, 1 / (rank + 60), ranks from `rank_start`; DBSF distribution-based score
    fusion, (s - (mean - 3 deviations)) / (6 deviations). `inserted` returns the order of insertion of some
    ids, in which equal float32 scores are.
    """
    fused: dict[str, float] = {}
    for ranking in rankings:
        parts = _reciprocal(ranking, rank_start) if algorithm == "RRF" else _normalised(ranking)
        for (row_id, _), part in zip(ranking, parts, strict=True):
            fused[row_id] = fused.get(row_id, 0.0) + part
    ids, scores = [*fused], rounded(np.array([*fused.values()], dtype=np.float64))
    order = np.lexsort((inserted(ids), -scores))
    return [(ids[index], score) for index, score in zip(order.tolist(), scores[order].tolist(), strict=True)]


def _reciprocal(ranking: Ranking, rank_start: int) -> list[float]:
    return [1 / (rank + _RRF_CONSTANT) for rank in range(rank_start, rank_start + len(ranking))]


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
