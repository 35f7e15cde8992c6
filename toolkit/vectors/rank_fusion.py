"""Fuse several rankings of one query into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import choice, whole, wrong
from toolkit.vectors.retrieval import are_pairs, id_lists

_Floats = npt.NDArray[np.float64]


def fuse(
    legs: Sequence[Sequence[Any]],
    *,
    method: Literal["RRF", "DBSF"] = "RRF",
    k: int = 60,
) -> pd.DataFrame:
    """Fuse several rankings of the same query into one.

    Parameters
    ----------
    legs : sequence of rankings or frames
        Rankings, best first: ids, pairs of id and score, or a frame of the hits of one query with `id` and
        `score`. ``DBSF`` needs scores.
    method : {"RRF", "DBSF"}
        Reciprocal rank fusion (Cormack et al., 2009) sums ``1 / (k + rank)``; the first rank is 1.
        Distribution-based score fusion sums scores that are scaled in each leg, so that three standard
        deviations below the mean are 0 and three above it are 1. If all scores are equal, they are 0.5.
    k : int
        The constant of ``RRF``, at least 1.

    Returns
    -------
    pandas.DataFrame
        One row per id, the best first; ids with equal scores are in the order of their first appearance:
        `rank` (Int64), `id` (as passed), `score` (float64), and for each leg `rank_1`, `rank_2`, … (Int64,
        missing if the leg does not have the id).

    Raises
    ------
    InputError
        If a leg is not a ranking, has an id twice, is a frame without `id` or of several queries, or has no
        finite scores for ``DBSF``.

    Examples
    --------
    >>> fuse([["a", "b"], ["b", "c"]])[["id", "rank_1", "rank_2"]]
      id  rank_1  rank_2
    0  b       2       1
    1  a       1    <NA>
    2  c    <NA>       2
    """
    method = choice("method", method, ("RRF", "DBSF"))
    k = whole("k", k)
    rankings = [_leg(leg, method) for leg in id_lists("legs", legs)]
    scores: dict[Any, float] = defaultdict(float)

    ranks: list[dict[Any, int]] = []
    for keys, leg_scores in rankings:
        leg_ranks = range(1, len(keys) + 1)
        ranks.append(dict(zip(keys, leg_ranks, strict=True)))
        parts = [1 / (k + rank) for rank in leg_ranks]
        if method == "DBSF":
            parts = _scaled(leg_scores).tolist()
        for key, part in zip(keys, parts, strict=True):
            scores[key] += part

    ordered = sorted(scores, key=lambda key: -scores[key])
    are_strings = all(isinstance(key, str) for key in ordered)
    columns: dict[str, Any] = {
        "rank": pd.Series(range(1, len(ordered) + 1), dtype="Int64"),
        "id": pd.Series(ordered, dtype="str" if are_strings else "object"),
        "score": pd.Series([scores[key] for key in ordered], dtype="float64"),
    }

    for number, leg_rank in enumerate(ranks, 1):
        columns[f"rank_{number}"] = pd.Series(
            [leg_rank.get(key) for key in ordered], dtype="Int64"
        )

    return pd.DataFrame(columns)


def _leg(leg: list[Any], method: str) -> tuple[list[Any], _Floats]:
    """Return the ids and scores of one ranking; scores are NaN if it has only ids."""
    keys = leg
    scores: list[Any] = [np.nan] * len(leg)
    if are_pairs(leg):
        keys, scores = [key for key, _ in leg], [score for _, score in leg]
    try:
        values = np.array(list(map(float, scores)))
        distinct = len(set(keys))
    except (TypeError, ValueError, OverflowError):
        raise wrong("legs", leg[:5], "ids, or pairs of id and score") from None

    if distinct != len(keys):
        raise wrong("legs", leg[:5], "each id once in a leg")
    if method == "DBSF" and not np.isfinite(values).all():
        raise wrong("legs", leg[:5], "pairs of id and score, as DBSF compares scores")

    return keys, values


def _scaled(values: _Floats) -> _Floats:
    """Return scores scaled by the mean and three standard deviations; outliers are outside 0 to 1."""
    # equal scores deviate by rounding errors at most, which would decide everything
    if not values.size or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return np.full(values.size, 0.5)

    spread = 3 * float(values.std())
    return np.asarray(
        (values - (values.mean() - spread)) / (2 * spread), dtype=np.float64
    )
