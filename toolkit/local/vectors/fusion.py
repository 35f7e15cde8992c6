"""One ranking out of two: what a hybrid index does with its dense and its sparse results.

Publicly documented are the formulas. Not documented, and assumed here: how many results of each side are
fused (`DEPTH`), that the deviation is that of the whole list rather than of a sample, and that scores which
are all the same are each in the middle, 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

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
    rankings: Sequence[Ranking], algorithm: Fusion, *, rank_start: int, inserted: Callable[[str], int]
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
        The position of an id in the order of insertion.

    Returns
    -------
    list of (id, score)
        Equal scores, as float32, in the order of insertion.

    Examples
    --------
    >>> fuse([[("a", 0.9), ("b", 0.8)], [("b", 7.5)]], "RRF", rank_start=1, inserted=ord)
    [('b', 0.0325...), ('a', 0.0163...)]
    """
    fused: dict[str, float] = {}
    for ranking in rankings:
        parts = _reciprocal(ranking, rank_start) if algorithm == "RRF" else _normalised(ranking)
        for (row_id, _), part in zip(ranking, parts, strict=True):
            fused[row_id] = fused.get(row_id, 0.0) + part
    scores = rounded(np.array([*fused.values()])).tolist()
    ranking = list(zip(fused, scores, strict=True))
    return sorted(ranking, key=lambda item: (-item[1], inserted(item[0])))


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
