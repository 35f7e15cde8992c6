"""Measure the recall of a vector index, and differences between two indexes, with intervals over queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import whole, wrong
from toolkit.base.errors import InputError
from toolkit.tables.frames import checked_frame, pandas_frame

_Floats = npt.NDArray[np.float64]

_DRAWS: Final = 4000
# weight of a query with full recall, and of one with none: both are possible
_PRIOR: Final = 0.5
_TIE: Final = 1e-9  # relative difference of scores that count as equal


@dataclass(frozen=True, repr=False)
class Recall:
    """The share of the exact nearest neighbours that were found.

    Attributes
    ----------
    per_query : list of float
        One per query, 0 to 1; NaN if nothing can be found.
    mean, low, high : float
        The mean over queries and the 95 % interval; NaN without queries.
    k : int
        Number of neighbours that were compared.
    """

    per_query: list[float]
    mean: float
    low: float
    high: float
    k: int

    def __repr__(self) -> str:
        mean = f"recall@{self.k} {self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"
        return f"{mean} over {len(self.per_query):,} queries"


def recall(
    found: Iterable[Any], exact: Iterable[Any], *, k: int = 10, seed: int = 0
) -> Recall:
    """Compare the hits of an index with the exact nearest neighbours.

    The interval is over queries. Hits of one query are often right or wrong together, so that an interval
    over pooled hits is too narrow.

    Parameters
    ----------
    found : iterable of sequences or frames
        For each query, the ids of the hits, best first; or a frame of the hits of one query, as `query`
        returns it. The column `id` is read in the order of the rows.
    exact : iterable of sequences or frames
        For each query, the ids of the nearest neighbours, best first; or pairs of id and score. Pass more
        than `k` pairs if scores are equal: a hit as good as the `k`-th exact neighbour counts. In a frame,
        `id` and, if it exists, `score` are read.
    k : int
        Number of neighbours to compare, at least 1.
    seed : int
        For the bootstrap.

    Returns
    -------
    Recall

    Raises
    ------
    InputError
        If `found` and `exact` have different numbers of queries, their elements are neither lists nor frames
        with the column `id`, or a frame has hits of several queries.

    Notes
    -----
    The interval is a Bayesian bootstrap (Rubin, 1981) of the mean over queries. Its prior is half a query
    with full recall and half a query with none, so that it has a width when all are alike.

    Examples
    --------
    >>> recall([["a", "b"], ["c", "x"]], [["a", "b"], ["c", "d"]], k=2).per_query
    [1.0, 0.5]
    """
    k, seed = whole("k", k), whole("seed", seed, least=0)
    hits, neighbours = id_lists("found", found, scored=False), id_lists("exact", exact)
    if len(hits) != len(neighbours):
        raise wrong(
            "found",
            found,
            f"as many queries as exact has ({len(neighbours)}, not {len(hits)})",
        )

    try:
        per_query = [
            recalled(*lists, k) for lists in zip(hits, neighbours, strict=True)
        ]
    except (
        TypeError,
        ValueError,
        OverflowError,
    ):
        # an id without a hash, or a score that is no number
        raise wrong(
            "exact", exact, "ids, or pairs of id and score, and in found ids"
        ) from None

    return mean_recall(per_query, k=k, seed=seed)


def mean_recall(
    per_query: list[float], *, k: int, seed: int = 0, error: float = 0.05
) -> Recall:
    """Return the mean of the recalls and the interval over queries. Unknown recalls (NaN) are ignored.

    `error` is the share of intervals that may miss the true mean.
    """
    values = np.array([value for value in per_query if value == value])  # noqa: PLR0124 - not NaN
    if not values.size:
        return Recall(per_query, float("nan"), float("nan"), float("nan"), k)

    low, high = _interval(values, seed, error=error)
    mean = float(values.mean())
    return Recall(per_query, mean, min(low, mean), max(high, mean), k)


def id_lists(name: str, value: Any, *, scored: bool = True) -> list[list[Any]]:
    """Return the ids per query, or pairs of id and score, from lists or from a frame of hits."""
    expected = "for each query a list of ids, or a frame of its hits"
    if pandas_frame(value) is not None:
        raise wrong(
            name, value, expected, "Pass [part for _, part in hits.groupby('query')]."
        )

    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong(name, value, expected)

    items, lists = list(value), []
    for item in items:
        frame = pandas_frame(item)
        if frame is not None:
            lists.append(_ids(name, frame, with_scores=scored))
        elif isinstance(item, Iterable) and not isinstance(item, str | bytes):
            lists.append(list(item))
        else:
            raise wrong(name, items, expected)

    return lists


def _ids(name: str, hits: pd.DataFrame, *, with_scores: bool) -> list[Any]:
    """Return the ids of the hits of one query, as pairs with scores if they are wanted and exist."""
    hits = checked_frame(name, hits, "id", distinct=True)
    queries = hits["query"].nunique() if "query" in hits else 1
    if queries > 1:
        raise InputError(
            f"reading {name}",
            got=f"a frame with the hits of {queries:,} queries",
            expected="a frame of one query",
            next_step="Pass [part for _, part in hits.groupby('query')].",
        )

    ids = hits["id"].tolist()
    if not with_scores or "score" not in hits:
        return ids

    return list(zip(ids, hits["score"].tolist(), strict=True))


def are_pairs(items: list[Any]) -> bool:
    """Return whether all items are pairs of an id and a score."""
    return bool(items) and all(map(_is_pair, items))


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2  # noqa: PLR2004 - a pair


def recalled(
    returned: list[Any], exact: list[Any], k: int, *, tie: float = _TIE
) -> float:
    """Return the recall of one query; NaN if nothing can be found.

    For example, 9 of the 10 nearest neighbours give 0.9. `tie` is the relative difference of scores that
    count as equal.
    """
    findable = min(k, len(exact))
    if not findable:
        return float("nan")

    neighbours = _nearest(exact, k, tie) if are_pairs(exact) else set(exact[:k])
    return min(findable, len(neighbours.intersection(returned[:k]))) / findable


def _nearest(pairs: list[Any], k: int, tie: float) -> set[Any]:
    """Return the ids of the `k` best scores, and of scores that are equal to the last of them."""
    # For example, with scores a 0.9, b 0.8, c 0.8 and k = 2, both b and c are right in second place.
    ordered = sorted((float(score) for _, score in pairs), reverse=True)
    last = ordered[min(k, len(ordered)) - 1]
    least = last - tie * max(1.0, abs(last))

    return {key for key, score in pairs if float(score) >= least}


def paired_difference(
    first: _Floats, second: _Floats, *, seed: int = 0
) -> tuple[float, float, float]:
    """Return the mean of first minus second over queries, with the 95 % interval. Values are in -1 to 1."""
    values = first - second
    if not values.size:
        return float("nan"), float("nan"), float("nan")

    mean = float(values.mean())
    low, high = _interval(values, seed, least=-1.0)
    return mean, min(low, mean), max(high, mean)


def _interval(
    values: _Floats, seed: int, *, least: float = 0.0, error: float = 0.05
) -> tuple[float, float]:
    """Return the interval of a mean by a Bayesian bootstrap: weights from a Dirichlet distribution."""
    # independent of data that were made with the same seed
    rng = np.random.default_rng([seed, 1])
    # Rubin's Bayesian bootstrap: each draw weights the queries by Dirichlet(1, …, 1), which is a
    # vector of gamma variables divided by their sum. Two queries of weight 1/2 are added, one
    # with the least possible value and one with the greatest. Without them, 10 queries with full
    # recall would have the interval [1, 1].
    known = np.append(values, [least, 1.0])
    shape = np.append(np.ones(values.size), [_PRIOR, _PRIOR])
    means = np.empty(_DRAWS)
    for start in range(0, _DRAWS, 500):
        weights = rng.standard_gamma(shape, (min(500, _DRAWS - start), known.size))
        means[start : start + weights.shape[0]] = weights @ known / weights.sum(axis=1)

    low, high = np.quantile(means, [error / 2, 1 - error / 2])
    return float(low), float(high)
