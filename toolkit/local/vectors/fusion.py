"""One ranking out of two: what a hybrid index does with its dense and its sparse results.

Publicly documented are the formulas. Not documented, and assumed here: how many results of each side are
fused (`DEPTH`), that the deviation is that of the whole list rather than of a sample, and that scores which
are all the same are each in the middle, 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from toolkit.local.vectors.float32 import rounded

Fusion = Literal["RRF", "DBSF"]
Ranking = list[tuple[str, float]]

DEPTH: Final = 1000
"""Results of each side that are fused, or as many as are asked for when that is more.

So that the best of a query do not change with how many more are asked for.
"""

_RRF_CONSTANT: Final = 60
_DEVIATIONS: Final = 3
_ROUNDING: Final = 1e-12


def fuse(
    rankings: Sequence[Ranking],
    algorithm: Fusion,
    *,
    rank_start: int,
    inserted: Callable[[list[str]], Any],
) -> Ranking:
    """Each id once, with the sum of its parts in the rankings, best first.

    Parameters
    ----------
    rankings : sequence of list of (id, score)
        Each best first.
    algorithm : {"RRF", "DBSF"}
        Reciprocal rank fusion: 1 / (rank + 60). Distribution-based score fusion:
        (s - (mean - 3 deviations)) / (6 deviations).
    rank_start : {0, 1}
        The rank of the best, for RRF.
    inserted : callable
        Takes ids; returns their positions in the order of insertion, an array-like of int.

    Returns
    -------
    list of (id, score)
        Equal scores, as float32, in the order of insertion.

    Examples
    --------
    >>> rankings = [[("a", 0.9), ("b", 0.8)], [("b", 7.5)]]
    >>> fuse(rankings, "RRF", rank_start=1, inserted=lambda ids: [*map(ord, ids)])
    [('b', 0.0325...), ('a', 0.0163...)]
    """
    fused: dict[str, float] = {}
    for ranking in rankings:
        parts = _reciprocal(ranking, rank_start) if algorithm == "RRF" else _normalised(ranking)
        for (row_id, _), part in zip(ranking, parts, strict=True):
            fused[row_id] = fused.get(row_id, 0.0) + part
    ids, scores = [*fused], rounded(np.array([*fused.values()], dtype=np.float64))
    order = np.lexsort((inserted(ids), -scores))
    return [(ids[place], score) for place, score in zip(order.tolist(), scores[order].tolist(), strict=True)]


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
