"""Compute the scores that queries of users reach in an index, next to pairs of stored rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import plain_list, texts, wrong
from toolkit.base.errors import InputError
from toolkit.loading.queries import query_text
from toolkit.service.settings import Service
from toolkit.vectors.exact_comparison import scores_at, scores_of
from toolkit.vectors.given_queries import queries_as_vectors
from toolkit.vectors.vector_batches import Matrix

_Floats = npt.NDArray[np.float64]

_TOP: Final = 1_000  # the most hits that a query can return
_AT_ONCE: Final = 10  # queries of 1,000 hits per request
_PAIRS: Final = 200_000
_ROWS: Final = 20_000  # rows that each query is compared with at most, to find the best
_MOST_QUERIES: Final = 1_000


@dataclass(frozen=True)
class PairScores:
    """Ascending scores of pairs: all of them, or only the highest of `total`."""

    scores: _Floats
    total: int
    best: _Floats | None = None
    """The score of the best hit of each query, if the pairs are of queries and rows."""

    @property
    def median(self) -> float:
        """Return the median score; NaN if only the highest scores are known."""
        if len(self.scores) < self.total:
            return math.nan
        return float(np.median(self.scores))

    def reached_by(self, share: float) -> float:
        """Return the score that a share of pairs reaches, or the lowest known one."""
        if len(self.scores) == self.total:
            return float(np.quantile(self.scores, 1 - share))

        rank = min(len(self.scores), max(1, round(share * self.total)))
        return float(self.scores[-rank])

    def share_from(self, least: npt.ArrayLike) -> _Floats:
        """Return the share of pairs at or above each score."""
        below = np.searchsorted(self.scores, least, side="left")
        return np.asarray((len(self.scores) - below) / self.total, dtype=np.float64)


def read_queries(queries: Any, service: Service | None, model: str) -> Any:
    """Return queries as a list of strings or as a matrix. Raise InputError for others."""
    if _are_texts(queries):
        listed = texts("queries", queries)
        if service is None or not model:
            raise wrong(
                "queries",
                queries,
                "vectors, because only an index with a model embeds text",
                "Embed the queries yourself, or pass the service of an index with a model.",
            )

        return listed[:_MOST_QUERIES]

    return _matrix(queries)


def _are_texts(queries: Any) -> bool:
    """Return whether queries are one string, or a sequence that begins with a string."""
    if isinstance(queries, str):
        return True

    listed = plain_list(queries)
    if isinstance(listed, pd.Series | pd.Index):
        listed = listed.tolist()
    return (
        isinstance(listed, list | tuple) and bool(listed) and isinstance(listed[0], str)
    )


def _matrix(queries: Any) -> Matrix:
    """Return the vectors of queries."""
    tables = queries_as_vectors(
        queries,
        doing="calibrating scores",
        expected="strings, or vectors: a matrix, or a frame with the column vector",
    )
    parts = [matrix for batch in tables for _, matrix in batch.dense]
    if not parts or len({part.shape[1] for part in parts}) > 1:
        raise wrong("queries", queries, "vectors of one dimension")

    matrix = np.concatenate(parts)
    if not np.isfinite(matrix).all():
        raise wrong("queries", queries, "finite numbers")

    return matrix[:_MOST_QUERIES]


def scores_of_vectors(
    queries: Matrix, rows: Matrix, similarity: str, seed: int
) -> PairScores:
    """Return the scores of random pairs of a query and a row, and the best of each query."""
    if queries.shape[1] != rows.shape[1]:
        raise InputError(
            "reading queries",
            got=f"vectors of {queries.shape[1]:,} numbers",
            expected=f"{rows.shape[1]:,} numbers, as in the index",
        )

    rng = np.random.default_rng([seed, 6])
    first = rng.integers(0, len(queries), _PAIRS)
    second = rng.integers(0, len(rows), _PAIRS)
    chance = np.sort(scores_at(queries, first, rows, second, similarity))
    best = np.full(len(queries), -np.inf)
    for start in range(0, len(rows), _ROWS):
        block = scores_of(queries, rows[start : start + _ROWS], similarity)
        best = np.maximum(best, block.max(axis=1))

    return PairScores(chance, len(chance), best.astype(np.float64))


def scores_of_texts(
    service: Service, queries: list[str], namespace: str, rows: int
) -> PairScores:
    """Return the highest scores of questions and rows, as the service returns them, and the best of each."""
    scores: list[_Floats] = []
    best: list[float] = []
    for start in range(0, len(queries), _AT_ONCE):
        hits = query_text(
            service,
            queries[start : start + _AT_ONCE],
            top_k=min(_TOP, rows),
            namespace=namespace,
        )
        scores.append(hits["score"].to_numpy(dtype=np.float64))
        best += hits.groupby("query")["score"].max().tolist()

    known = np.sort(np.concatenate(scores))
    return PairScores(known, max(len(known), rows * len(queries)), np.array(best))
