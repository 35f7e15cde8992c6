"""Measure the results of a vector index: recall, thresholds with a guaranteed precision, fused rankings."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import choice, plain, whole, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.tables.frames import checked_frame, pandas_frame
from toolkit.tables.vector_dtype import missing
from toolkit.vectors.label_tests import (
    LEAST_QUERIES,
    Queries,
    chance_of_matches,
    look_like_hits,
)

_Floats = npt.NDArray[np.float64]

_DRAWS: Final = 4000
# weight of a query with full recall, and of one with none: both are possible
_PRIOR: Final = 0.5
_TIE: Final = 1e-9  # relative difference of scores that count as equal
_LABELS: Final = "true or false for each score"
UNKNOWN_QUERIES: Final = (
    "The scores of the labels fall again and again, as the hits of several queries do. Hits of one query are"
    " often right or wrong together, so the promise may not hold. Pass the query of each label."
)
_STEPS: Final = 60  # thresholds that are tested, at most


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
    hits, neighbours = _lists("found", found, scored=False), _lists("exact", exact)
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


def _lists(name: str, value: Any, *, scored: bool = True) -> list[list[Any]]:
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


def _are_pairs(items: list[Any]) -> bool:
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
    neighbours = _nearest(exact, k, tie) if _are_pairs(exact) else set(exact[:k])
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


@dataclass(frozen=True, repr=False)
class Threshold:
    """A score above which matches have the requested precision.

    Attributes
    ----------
    value : float or None
        The threshold, or None if no threshold can be guaranteed.
    why : str
        The labels that the threshold is based on, or the reason why it is missing.
    """

    value: float | None
    why: str

    def __repr__(self) -> str:
        if self.value is None:
            return f"no threshold: {self.why}"
        return f"score ≥ {self.value:.4g}: {self.why}"


def threshold_for_precision(
    scores: Sequence[float] | _Floats | pd.Series,
    labels: Sequence[bool] | npt.NDArray[Any] | pd.Series,
    *,
    precision: float,
    confidence: float = 0.95,
    queries: Sequence[Any] | npt.NDArray[Any] | pd.Series | None = None,
    seed: int = 0,
) -> Threshold:
    """Find the lowest score above which a share of the hits are matches, with a guarantee.

    1. Half of the labels is used to order the thresholds, the safest first.
    2. The other half tests them in this order, until one fails.

    The last threshold that passed has the requested precision with the given confidence, although many are
    tried. For example, with ``precision=0.9`` and ``confidence=0.95``, at most one of 20 samples of labels
    leads to a threshold with a lower precision.

    Parameters
    ----------
    scores : sequence of float
        Of pairs or hits; higher is better.
    labels : sequence of bool
        Whether each is a match.
    precision : float
        The required share of matches at and above the threshold, between 0 and 1.
    confidence : float
        The least share of samples of labels for which the guarantee is true, between 0 and 1.
    queries : sequence, optional
        The query of each label, if the labels are hits of queries. Hits of one query are often right or wrong
        together: whole queries are split, and the test is one for clustered samples. A missing query is a
        query of its own.
    seed : int
        For the random split.

    Returns
    -------
    Threshold
        `.value`, or None if no threshold can be guaranteed, and `.why`.

    Raises
    ------
    InputError
        If scores and labels differ in number, a score is not finite, a label is neither true nor false, or a
        share is not between 0 and 1.

    Notes
    -----
    Each test is the exact binomial one, as in the interval of Clopper and Pearson (1934), in a fixed sequence
    (Maurer, Hothorn and Lehmacher, 1995). With queries, it uses the effective number of labels of Korn and
    Graubard (1998). Without queries, labels must be drawn independently; scores that fall again and again,
    like the hits of several queries, raise a warning.

    Warns
    -----
    UnexpectedResultWarning
        If the labels look like hits of queries, and `queries` is missing.

    Examples
    --------
    >>> scores, labels = [0.9] * 80 + [0.2] * 80, [True] * 80 + [False] * 80
    >>> threshold_for_precision(scores, labels, precision=0.9).value
    0.9
    """
    if queries is None and look_like_hits(_labelled(scores, labels)[0]):
        warnings.warn(UNKNOWN_QUERIES, UnexpectedResultWarning, stacklevel=2)
    return find_threshold(
        scores,
        labels,
        precision=precision,
        confidence=confidence,
        queries=queries,
        seed=seed,
    )


def find_threshold(
    scores: Any,
    labels: Any,
    *,
    precision: float,
    confidence: float,
    queries: Any,
    seed: int,
) -> Threshold:
    """Return the lowest score with a guaranteed precision, see `threshold_for_precision`."""
    precision = _share("precision", precision)
    confidence = _share("confidence", confidence)
    values, right = _labelled(scores, labels)
    most_error = 1 - confidence
    # if all of n labels are matches, the chance of that at a lower precision is below precision ** n
    needed = next(number for number in count(1) if precision**number <= most_error)
    groups = _query_numbers(queries, values.size)
    rng = np.random.default_rng([whole("seed", seed, least=0), 1])
    if groups is None:
        orders = rng.permutation(values.size) < values.size // 2
    else:
        number = int(groups.max(initial=-1)) + 1
        if number < LEAST_QUERIES:
            hits = f"the labels are hits of {number} queries"
            if number == 1:
                hits = "all labels are hits of one query"
            return Threshold(None, f"{hits}, and {LEAST_QUERIES} are needed at least")
        orders = (rng.permutation(number) < number // 2)[groups]
    if np.count_nonzero(right[~orders]) < needed:
        labelled = f"{int(right.sum())} matches are labelled"
        return Threshold(
            None, f"{labelled}, and {2 * needed} or so are needed at least"
        )

    def chance(half: npt.NDArray[np.bool_], threshold: float) -> float:
        return chance_of_matches(
            values[half],
            right[half],
            threshold,
            precision,
            queries=None if groups is None else groups[half],
            error=most_error,
        )

    passed = None
    for threshold in _ordered_thresholds(values[orders], partial(chance, orders)):
        # Fixed-sequence testing: thresholds are tested in an order that the other half of the labels chose,
        # and the first one that fails ends the tests. So no correction for many tests is needed.
        if chance(~orders, threshold) > most_error:
            break
        passed = float(threshold)
    tested, matches = values[~orders], right[~orders]
    guarantee = f"{_percent(precision)} with {_percent(confidence)} confidence"
    if passed is None:
        return Threshold(None, f"no score has a precision of {guarantee}")
    is_above = tested >= passed
    above, correct = int(is_above.sum()), int(matches[is_above].sum())
    of_queries = ""
    if groups is not None:
        of_queries = f" of {len(np.unique(groups[~orders][is_above])):,} queries"
    share = f"{correct:,} of {above:,} labelled scores{of_queries} are matches"
    share += ", in the half that did not choose it"
    return Threshold(passed, f"{share}: at least {guarantee}")


def _ordered_thresholds(values: _Floats, chance: Callable[[float], float]) -> _Floats:
    """Return the thresholds to test: the safest first, then the lower ones in order."""
    candidates = np.unique(
        np.quantile(values, np.linspace(0, 1, _STEPS), method="higher")
    )[::-1]
    return candidates[int(np.argmin(list(map(chance, candidates)))) :]


def _query_numbers(queries: Any, labels: int) -> Queries | None:
    """Return the query of each label as a number; a missing query is one of its own."""
    if queries is None:
        return None
    is_list = isinstance(queries, Iterable) and not isinstance(queries, str | bytes)
    names = list(map(plain, queries)) if is_list else []
    if not is_list or len(names) != labels:
        raise wrong("queries", queries, f"one query for each of the {labels} scores")
    numbers: dict[Any, int] = {}
    try:
        found = [
            numbers.setdefault(("label", at) if missing(name) else name, len(numbers))
            for at, name in enumerate(names)
        ]
    except TypeError:
        raise wrong("queries", queries, "numbers or names of queries") from None
    return np.array(found, dtype=np.intp)


def _percent(share: float) -> str:
    """Return a share as it was passed: 99.5 % is not 100 %."""
    return f"{share * 100:.4g} %"


def _share(name: str, value: Any) -> float:
    share = plain(value)
    if (
        isinstance(share, bool)
        or not isinstance(share, int | float)
        or not 0 < share < 1
    ):
        raise wrong(name, value, "a share between 0 and 1")
    return share


def _labelled(scores: Any, labels: Any) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    """Return scores and labels as arrays of one length."""
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise wrong("scores", scores, "numbers") from None
    if values.ndim != 1 or not np.isfinite(values).all():
        raise wrong("scores", scores, "finite numbers in one dimension")
    is_list = isinstance(labels, Iterable) and not isinstance(labels, str | bytes)
    label_list = list(map(plain, labels)) if is_list else []
    if not is_list or len(label_list) != values.size:
        raise wrong("labels", labels, f"one label for each of the {values.size} scores")
    if unlabelled := sum(map(missing, label_list)):
        got = f"{unlabelled:,} of {values.size:,} scores without a label"
        next_step = (
            "Leave out hits that are not judged: frame.dropna(subset=['match'])."
        )
        raise InputError(
            "reading labels", got=got, expected=_LABELS, next_step=next_step
        )
    if not all(map(_is_label, label_list)):
        raise wrong("labels", labels, _LABELS)
    return values, np.asarray(label_list, dtype=bool)


def _is_label(label: object) -> bool:
    return isinstance(label, bool | int | float) and label in (0, 1)


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
    rankings = [_leg(leg, method) for leg in _lists("legs", legs)]
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
    if _are_pairs(leg):
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
