"""The answer to one query, as ids and scores: text embedded, each side ranked, two sides fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from toolkit.local.vectors.filtering import FilterBudget
from toolkit.local.vectors.fusion import DEPTH, Ranking, fuse
from toolkit.local.vectors.inverted import InvertedRows
from toolkit.local.vectors.models import Models
from toolkit.local.vectors.queries import Query
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import Search, nearest
from toolkit.local.vectors.specs import IndexSpec


def with_vectors(queries: Sequence[Query], spec: IndexSpec, models: Models) -> list[Query]:
    """The queries with vectors in place of text: on a hybrid index those that a query's mode asks for."""
    unused = {"DENSE": "SPARSE", "SPARSE": "DENSE"} if spec.kind == "hybrid" else {}
    of_text = [(query, query.question) for query in queries if isinstance(query.question, str)]
    for_dense = [text for query, text in of_text if unused.get(query.mode) != "DENSE"]
    for_sparse = [text for query, text in of_text if unused.get(query.mode) != "SPARSE"]
    dense = iter(models.embed_dense(for_dense, spec.dimension) if for_dense else ())
    sparse = iter(models.embed_sparse(for_sparse, question=True) if for_sparse else ())
    asked = []
    for query in queries:
        if not isinstance(query.question, str):
            asked.append(query)
            continue
        vector = None if unused.get(query.mode) == "DENSE" else next(dense)
        question = None if vector is None else vector.astype(np.float64)
        other = None if unused.get(query.mode) == "SPARSE" else next(sparse)
        asked.append(replace(query, question=question, sparse=other))
    return asked


def asks_both(query: Query) -> bool:
    """Whether a query has both vectors, so that two rankings are fused."""
    return query.question is not None and query.sparse is not None


def ranked(
    query: Query,
    spec: IndexSpec,
    rows: NamespaceRows,
    inverted: Callable[[], InvertedRows],
    *,
    search: Search = nearest,
    budget: FilterBudget | None = None,
) -> Ranking:
    """The best rows of a namespace: of one side where the query has one vector, fused where it has both.

    Parameters
    ----------
    query : Query
        With vectors, not with text.
    spec : IndexSpec
    rows : NamespaceRows
    inverted : callable
        Gives the namespace's sparse vectors; only called when they are asked for.
    search : callable
        How dense vectors are searched: `nearest`, or something with the same arguments.
    budget : FilterBudget, optional
        For the query's filter.

    Returns
    -------
    list of (id, score)
        Best first: the ``query.top_k`` best, or, where two rankings are fused, all that they name.
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
