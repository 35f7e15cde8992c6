"""How good the results of a vector index are: recall, a threshold with a promise, fused rankings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import exp, lgamma, log
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.arguments import choice, plain, whole, wrong
from toolkit.errors import InputError
from toolkit.tables.frames import checked_frame, pandas_frame
from toolkit.tables.vector_dtype import missing

_Floats = npt.NDArray[np.float64]

_DRAWS: Final = 4000
_PRIOR: Final = 0.5  # of a query with all neighbours, and of one with none: neither is known to be impossible
_TIE: Final = 1e-9  # relative difference of scores that counts as none
_LABELS: Final = "true or false for each score"
_STEPS: Final = 60  # thresholds that are tested, at most


@dataclass(frozen=True, repr=False)
class Recall:
    """The share of the exact nearest neighbours that were found.

    Attributes
    ----------
    per_query : list of float
        One a query, 0 to 1; NaN where there is nothing to find.
    mean, low, high : float
        The mean over queries and its 95 % interval; NaN without queries.
    k : int
        How many neighbours were compared.
    """

    per_query: list[float]
    mean: float
    low: float
    high: float
    k: int

    def __repr__(self) -> str:
        mean = f"recall@{self.k} {self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"
        return f"{mean} over {len(self.per_query):,} queries"


def recall(found: Iterable[Any], exact: Iterable[Any], *, k: int = 10, seed: int = 0) -> Recall:
    """Compare what an index found with the exact nearest neighbours.

    The interval is over queries: hits of one query are right or wrong together, so that one over pooled hits
    is too narrow.

    Parameters
    ----------
    found : iterable of sequences or frames
        For each query, the ids found, best first; or a frame of the hits of one query, as `query` returns it,
        whose column `id` is taken as it stands.
    exact : iterable of sequences or frames
        For each query, the ids of the nearest neighbours, best first; or pairs of id and score, more than `k`
        where scores are equal: a result as good as the `k`-th exact one counts. Of a frame, `id` and, where
        it is there, `score`.
    k : int
        How many neighbours to compare, at least 1.
    seed : int
        For the bootstrap.

    Returns
    -------
    Recall

    Raises
    ------
    InputError
        When there are not as many queries in `found` as in `exact`, or their elements are no lists and no
        frames with the column `id`, or a frame has hits of several queries.

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
    given, wanted = _lists("found", found, scored=False), _lists("exact", exact)
    if len(given) != len(wanted):
        raise wrong("found", found, f"as many queries as exact has ({len(wanted)}, not {len(given)})")
    try:
        per_query = [recalled(ids, exact_ids, k) for ids, exact_ids in zip(given, wanted, strict=True)]
    except (TypeError, ValueError, OverflowError):  # what is no id, or no score
        raise wrong("exact", exact, "ids, or pairs of id and score, and in found ids") from None
    return mean_recall(per_query, k=k, seed=seed)


def mean_recall(per_query: list[float], *, k: int, seed: int = 0) -> Recall:
    """The mean of recalls that are known, NaN where one is not, with its interval over queries."""
    values = np.array([value for value in per_query if value == value])  # noqa: PLR0124 - not NaN
    if not values.size:
        return Recall(per_query, float("nan"), float("nan"), float("nan"), k)
    low, high = _interval(values, seed)
    mean = float(values.mean())
    return Recall(per_query, mean, min(low, mean), max(high, mean), k)


def _lists(name: str, value: Any, *, scored: bool = True) -> list[list[Any]]:
    expected = "for each query a list of ids, or a frame of its hits"
    if pandas_frame(value) is not None:
        raise wrong(name, value, expected, "Pass [part for _, part in hits.groupby('query')].")
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong(name, value, expected)
    listed = list(value)
    frames = [pandas_frame(item) for item in listed]
    for frame, item in zip(frames, listed, strict=True):
        if frame is None and (isinstance(item, str | bytes) or not isinstance(item, Iterable)):
            raise wrong(name, listed, expected)
    return [
        list(item) if frame is None else _ids(name, frame, scored)
        for frame, item in zip(frames, listed, strict=True)
    ]


def _ids(name: str, hits: pd.DataFrame, scored: bool) -> list[Any]:  # noqa: FBT001 - as it was passed
    """The ids of the hits of one query, with their scores where these are wanted and there."""
    hits = checked_frame(name, hits, "id", distinct=True)
    queries = hits["query"].nunique() if "query" in hits else 1
    if queries > 1:
        raise InputError(
            f"reading {name}",
            got=f"a frame with the hits of {queries:,} queries",
            expected="a frame of one query",
            next_step="Pass [part for _, part in hits.groupby('query')].",
        )
    keys = hits["id"].tolist()
    return list(zip(keys, hits["score"].tolist(), strict=True)) if scored and "score" in hits else keys


def _are_pairs(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, tuple | list) and len(item) == 2 for item in items)  # noqa: PLR2004


def recalled(returned: list[Any], exact: list[Any], k: int) -> float:
    """The recall of one query; NaN where there is nothing to find."""
    if _are_pairs(exact):
        ordered = sorted((float(score) for _, score in exact), reverse=True)
        last = ordered[min(k, len(ordered)) - 1]
        good = {key for key, score in exact if float(score) >= last - _TIE * max(1.0, abs(last))}
    else:
        good = set(exact[:k])
    wanted = min(k, len(exact))
    if not wanted:
        return float("nan")
    return min(wanted, len(good.intersection(returned[:k]))) / wanted


def paired_difference(first: _Floats, second: _Floats, *, seed: int = 0) -> tuple[float, float, float]:
    """The mean of first minus second over queries, each between -1 and 1, with its 95 % interval."""
    values = first - second
    if not values.size:
        return float("nan"), float("nan"), float("nan")
    mean = float(values.mean())
    low, high = _interval(values, seed, least=-1.0)
    return mean, min(low, mean), max(high, mean)


def _interval(values: _Floats, seed: int, *, least: float = 0.0) -> tuple[float, float]:
    rng = np.random.default_rng([seed, 1])  # another stream than that of data made with the same seed
    known = np.append(values, [least, 1.0])
    shape = np.append(np.ones(values.size), [_PRIOR, _PRIOR])
    means = np.empty(_DRAWS)
    for start in range(0, _DRAWS, 500):
        weights = rng.standard_gamma(shape, (min(500, _DRAWS - start), known.size))
        means[start : start + weights.shape[0]] = weights @ known / weights.sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True, repr=False)
class Threshold:
    """A score from which on matches are as precise as asked for.

    Attributes
    ----------
    value : float or None
        The threshold, or None where none can be promised.
    why : str
        Its basis, or the reason for its absence.
    """

    value: float | None
    why: str

    def __repr__(self) -> str:
        return f"{'no threshold' if self.value is None else f'score ≥ {self.value:.4g}'}: {self.why}"


def threshold_for_precision(
    scores: Sequence[float] | _Floats | pd.Series,
    labels: Sequence[bool] | npt.NDArray[Any] | pd.Series,
    *,
    precision: float,
    confidence: float = 0.95,
    seed: int = 0,
) -> Threshold:
    """Find the lowest score from which on a share of matches is right, with a promise.

    One half of the labels orders the thresholds; the other tests them, from the safest down, until one fails.
    So the promise holds although many are tried.

    Parameters
    ----------
    scores : sequence of float
        Of pairs or hits; higher is better.
    labels : sequence of bool
        Whether each is a match.
    precision : float
        The required share of matches at and above the threshold, between 0 and 1.
    confidence : float
        How often, at least, the promise holds over samples of labels like these, between 0 and 1.
    seed : int
        For the random split.

    Returns
    -------
    Threshold
        `.value`, or None where it abstains, and `.why`.

    Raises
    ------
    InputError
        When there are not as many labels as scores, a score is not finite, a label neither true nor
        false, or a share not between 0 and 1.

    Notes
    -----
    Each test is the exact binomial one, as in the interval of Clopper and Pearson (1934), in a fixed sequence
    (Maurer, Hothorn and Lehmacher, 1995).

    Examples
    --------
    >>> scores, labels = [0.9] * 80 + [0.2] * 80, [True] * 80 + [False] * 80
    >>> threshold_for_precision(scores, labels, precision=0.9).value
    0.9
    """
    precision = _share("precision", precision)
    confidence = _share("confidence", confidence)
    values, right = _labelled(scores, labels)
    chance = 1 - confidence
    needed = next(number for number in count(1) if precision**number <= chance)
    rng = np.random.default_rng([whole("seed", seed, least=0), 1])
    chosen = rng.permutation(values.size) < values.size // 2
    if np.count_nonzero(right[~chosen]) < needed:
        labelled = f"{int(right.sum())} matches are labelled"
        return Threshold(None, f"{labelled}, and {2 * needed} or so are needed at least")
    choosing, testing = (values[chosen], right[chosen]), (values[~chosen], right[~chosen])
    candidates = np.unique(np.quantile(choosing[0], np.linspace(0, 1, _STEPS), method="higher"))[::-1]
    chances = [_chance(*choosing, threshold, precision) for threshold in candidates]
    start = int(np.argmin(chances))
    passed, above, correct = None, 0, 0
    for threshold in candidates[start:]:
        if _chance(*testing, threshold, precision) > chance:
            break
        passed = float(threshold)
        kept = testing[0] >= threshold
        above, correct = int(kept.sum()), int(testing[1][kept].sum())
    promise = f"{_percent(precision)} with {_percent(confidence)} confidence"
    if passed is None:
        return Threshold(None, f"no score has a precision of {promise}")
    share = f"{correct:,} of {above:,} labelled scores are matches, in the half that did not choose it"
    return Threshold(passed, f"{share}: at least {promise}")


def _percent(share: float) -> str:
    """A share as it was given: 99.5 % is not 100 %."""
    return f"{share * 100:.4g} %"


def _share(name: str, value: Any) -> float:
    share = plain(value)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise wrong(name, value, "a share between 0 and 1")
    return share


def _labelled(scores: Any, labels: Any) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise wrong("scores", scores, "numbers") from None
    if values.ndim != 1 or not np.isfinite(values).all():
        raise wrong("scores", scores, "finite numbers in one dimension")
    listed = list(labels) if isinstance(labels, Iterable) and not isinstance(labels, str | bytes) else None
    if listed is None or len(listed) != values.size:
        raise wrong("labels", labels, f"one label for each of the {values.size} scores")
    listed = [plain(label) for label in listed]
    if absent := sum(map(missing, listed)):
        got = f"{absent:,} of {values.size:,} scores without a label"
        next_step = "Leave out what is not judged: frame.dropna(subset=['match'])."
        raise InputError("reading labels", got=got, expected=_LABELS, next_step=next_step)
    if not all(isinstance(label, bool | int | float) and label in (0, 1) for label in listed):
        raise wrong("labels", labels, _LABELS)
    return values, np.asarray(listed, dtype=bool)


def _chance(values: _Floats, right: npt.NDArray[np.bool_], threshold: float, precision: float) -> float:
    """The chance of as many matches at and above a threshold if only that share were right."""
    kept = values >= threshold
    return _binomial_tail(int(right[kept].sum()), int(kept.sum()), precision)


def _binomial_tail(successes: int, trials: int, share: float) -> float:
    """The chance of at least so many successes."""
    if successes <= 0:
        return 1.0
    first = log(share), log(1 - share)
    terms = [
        lgamma(trials + 1) - lgamma(n + 1) - lgamma(trials - n + 1) + n * first[0] + (trials - n) * first[1]
        for n in range(successes, trials + 1)
    ]
    largest = max(terms)
    return min(1.0, exp(largest) * sum(exp(term - largest) for term in terms))


def fuse(
    legs: Sequence[Sequence[Any]], *, method: Literal["RRF", "DBSF"] = "RRF", k: int = 60
) -> pd.DataFrame:
    """Fuse several rankings of the same query into one.

    Parameters
    ----------
    legs : sequence of rankings or frames
        Each best first, of ids, of pairs of id and score, or a frame of the hits of one query, whose `id` and
        `score` are taken as they stand; ``DBSF`` needs scores.
    method : {"RRF", "DBSF"}
        Reciprocal rank fusion (Cormack et al., 2009) sums ``1 / (k + rank)``, ranks counted from 1.
        Distribution-based score fusion sums scores scaled so that, in each leg, three standard deviations
        below the mean are 0 and three above it are 1; equal scores are 0.5.
    k : int
        The constant of ``RRF``, at least 1.

    Returns
    -------
    pandas.DataFrame
        One row an id, the best first and equal ones in the order of their first appearance: `rank`
        (Int64), `id` (as given), `score` (float64), and for each leg `rank_1`, `rank_2`, … (Int64,
        missing where it lacks the id).

    Raises
    ------
    InputError
        When a leg is no ranking, has an id twice, is a frame without `id` or of several queries, or has no
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
    ranked = [_leg(leg, method) for leg in _lists("legs", legs)]
    ranks = [{key: rank for rank, key in enumerate(keys, 1)} for keys, _ in ranked]
    scores: dict[Any, float] = defaultdict(float)
    for keys, values in ranked:
        brought = (
            _brought(values).tolist()
            if method == "DBSF"
            else [1 / (k + rank + 1) for rank in range(len(keys))]
        )
        for key, score in zip(keys, brought, strict=True):
            scores[key] += score
    ordered = sorted(scores, key=lambda key: -scores[key])
    columns: dict[str, Any] = {
        "rank": pd.Series(range(1, len(ordered) + 1), dtype="Int64"),
        "id": pd.Series(ordered, dtype="str" if all(isinstance(key, str) for key in ordered) else "object"),
        "score": pd.Series([scores[key] for key in ordered], dtype="float64"),
    }
    for number, places in enumerate(ranks):
        columns[f"rank_{number + 1}"] = pd.Series([places.get(key) for key in ordered], dtype="Int64")
    return pd.DataFrame(columns)


def _leg(leg: list[Any], method: str) -> tuple[list[Any], _Floats]:
    """Ids and scores of one ranking."""
    scored = _are_pairs(leg)
    keys = [item[0] for item in leg] if scored else leg
    try:
        values = np.array([float(item[1]) for item in leg] if scored else [np.nan] * len(leg))
        distinct = len(set(keys))
    except (TypeError, ValueError, OverflowError):
        raise wrong("legs", leg[:5], "ids, or pairs of id and score") from None
    if distinct != len(keys):
        raise wrong("legs", leg[:5], "each id once in a leg")
    if method == "DBSF" and not np.isfinite(values).all():
        raise wrong("legs", leg[:5], "pairs of id and score, as DBSF compares scores")
    return keys, values


def _brought(values: _Floats) -> _Floats:
    """Scores scaled by their mean and three standard deviations; outliers are outside 0 to 1."""
    # scores that are all the same deviate by rounding errors at most, which would decide everything
    if not values.size or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return np.full(values.size, 0.5)
    spread = 3 * float(values.std())
    return np.asarray((values - (values.mean() - spread)) / (2 * spread), dtype=np.float64)
