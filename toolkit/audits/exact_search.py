"""The exact nearest neighbours of queries among vectors that are read in batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.audits.vector_rows import Matrix, VectorBatch
from toolkit.errors import UnexpectedResultWarning
from toolkit.tables.frame_filters import match_metadata

_Floats = npt.NDArray[np.float64]

_BLOCK: Final = 10_000

SIMILARITIES: Final = ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")


def scores_of(queries: Matrix, rows: Matrix, similarity: str) -> Matrix:
    """Scores of all pairs, scaled to 0..1 as the service does."""
    if similarity == "COSINE":
        queries, rows = _unit(queries), _unit(rows)
    with np.errstate(over="ignore", invalid="ignore"):  # what huge numbers exceed is as far as can be
        products: Matrix = queries @ rows.T
        if similarity == "EUCLIDEAN":
            squares = (queries**2).sum(axis=1)[:, None] + (rows**2).sum(axis=1) - 2 * products
            squares = np.nan_to_num(squares, copy=False, nan=np.inf, posinf=np.inf)
            return np.asarray(1 / (1 + np.maximum(squares, 0)), dtype=np.float32)
        return np.asarray((1 + products) / 2, dtype=np.float32)


def _unit(rows: Matrix) -> Matrix:
    """Rows of length 1; zero vectors stay. The lengths of huge ones do not fit into float32."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]
    return np.asarray(rows / np.maximum(lengths, 1e-30), dtype=np.float32)


def pair_scores(first: Matrix, second: Matrix, similarity: str) -> _Floats:
    """Scores of each row of one matrix and the same row of another."""
    parts = [
        _row_scores(
            first[start : start + _BLOCK].astype(np.float64),
            second[start : start + _BLOCK].astype(np.float64),  # squares of huge float32 would overflow
            similarity,
        )
        for start in range(0, len(first), _BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _row_scores(first: _Floats, second: _Floats, similarity: str) -> _Floats:
    products = np.einsum("ij,ij->i", first, second)
    if similarity == "EUCLIDEAN":
        return np.asarray(1 / (1 + ((first - second) ** 2).sum(axis=1)), dtype=np.float64)
    if similarity == "COSINE":
        products /= np.maximum(np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1), 1e-30)
    return np.asarray((1 + products) / 2, dtype=np.float64)


class ExactSearch:
    """The nearest rows to each of several queries of one namespace and filter, of all batches added.

    `own` are the ids that each query leaves out. `returned` are the ids that the service returned for each:
    their exact scores are kept, too, and `unknown` is left with those that no batch has.
    """

    def __init__(
        self,
        queries: Matrix,
        *,
        namespace: str,
        similarity: str,
        k: int,
        filter: str = "",  # noqa: A002 - the service's own name
        own: list[str] | None = None,
        returned: Sequence[Iterable[str]] = (),
    ) -> None:
        self.namespace, self.filter = namespace, filter
        self.rows = self.matched = 0
        self._returned: dict[str, list[int]] = {}
        for number, keys in enumerate(returned):
            for key in keys:
                self._returned.setdefault(key, []).append(number)
        self.unknown = set(self._returned)
        self._queries, self._similarity, self._size = queries, similarity, k
        self._own = {key: number for number, key in enumerate(own or ())}
        self._extra: list[dict[str, float]] = [{} for _ in queries]
        self._scores: Matrix = np.full((len(queries), 0), -np.inf, dtype=np.float32)
        self._ids: npt.NDArray[np.object_] = np.empty((len(queries), 0), dtype=object)

    def add(self, batch: VectorBatch) -> None:
        """Compare the queries with the rows of a batch."""
        inside = np.array([name == self.namespace for name in batch.namespaces], dtype=bool)
        if not inside.any():
            return
        self.rows += int(inside.sum())
        self.unknown.difference_update(batch.ids)
        if self.filter:
            metadata = pd.DataFrame({"metadata": pd.Series(batch.metadata, dtype="str")})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnexpectedResultWarning)  # a batch may have no match
                inside &= match_metadata(metadata, self.filter).to_numpy()
        self.matched += int(inside.sum())
        ids = np.array(batch.ids, dtype=object)
        for positions, matrix in batch.dense:
            kept = inside[positions] & np.isfinite(matrix).all(axis=1)
            if matrix.shape[1] == self._queries.shape[1] and kept.any():
                self._merge(ids[positions[kept]], matrix[kept])

    def _merge(self, ids: npt.NDArray[np.object_], matrix: Matrix) -> None:
        scores = scores_of(self._queries, matrix, self._similarity)
        for place, key in enumerate(ids):
            if key in self._own:
                scores[self._own[key], place] = -np.inf
            for number in self._returned.get(key, ()):
                self._extra[number][key] = float(scores[number, place])
        if len(ids) > self._size:
            top = np.argpartition(scores, len(ids) - self._size, axis=1)[:, len(ids) - self._size :]
            scores, nearest = np.take_along_axis(scores, top, axis=1), ids[top]
        else:
            nearest = np.broadcast_to(ids, scores.shape)
        scores = np.hstack([self._scores, scores])
        nearest = np.hstack([self._ids, nearest])
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self._size]
        self._scores = np.take_along_axis(scores, order, axis=1)
        self._ids = np.take_along_axis(nearest, order, axis=1)

    def nearest(self) -> list[list[tuple[str, float]]]:
        """For each query, ids and exact scores, best first: its nearest rows, and those returned for it."""
        rankings = []
        for ids, scores, extra in zip(self._ids, self._scores, self._extra, strict=True):
            all_scores = dict(zip(ids, scores.tolist(), strict=True)) | extra
            kept = [(key, score) for key, score in all_scores.items() if np.isfinite(score)]
            rankings.append(sorted(kept, key=lambda pair: -pair[1]))
        return rankings
