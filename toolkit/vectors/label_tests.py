"""Test by labels whether hits above a score have a precision, also if the labels are hits of few queries.

Hits of one query are often right or wrong together. For example, 1,000 labels of 100 queries are less
evidence than 1,000 labels of single hits: a test that ignores this promises too much.
"""

from __future__ import annotations

from math import exp, lgamma, log
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
Matches = npt.NDArray[np.bool_]
Queries = npt.NDArray[np.intp]

LEAST_QUERIES: Final = 20
"""Queries that are needed for a threshold: half of them test it."""

_TESTED_QUERIES: Final = 5  # with fewer, the variance between queries is not known
_RUN: Final = 4.0  # mean length of falling runs of scores; in random order it is 2
_RUNS: Final = 3


def chance_of_matches(
    values: _Floats,
    matches: Matches,
    threshold: float,
    precision: float,
    *,
    queries: Queries | None,
    error: float,
) -> float:
    """Return the chance of this many matches above a threshold, or more, at the given precision.

    With queries, the test is that of Korn and Graubard (1998) for clustered samples: the exact binomial test
    with the effective number of labels. `error` is the level of the test, for its correction.
    """
    is_above = values >= threshold
    labels, right = int(is_above.sum()), int(matches[is_above].sum())
    if queries is None or not labels:
        return binomial_tail(right, labels, precision)

    effective = _effective_labels(matches[is_above], queries[is_above], error)
    # rounded down, so that the test is on the safe side
    return binomial_tail(int(right / labels * effective + 1e-9), effective, precision)


def _effective_labels(matches: Matches, queries: Queries, error: float) -> int:
    """Return the number of independent labels that are as much evidence; 0 if there are too few queries."""
    labels = matches.size
    _, query = np.unique(queries, return_inverse=True)
    count = int(query.max()) + 1
    if count < _TESTED_QUERIES:
        return 0

    share = matches.mean()
    if share in {0.0, 1.0}:
        # without a difference, the variance between queries is not known: each counts once
        effective: float = count
    else:
        # The design effect is the variance of the share between queries (linearized, as for any ratio),
        # divided by the variance of as many independent labels.
        deviations = np.bincount(query, matches - share)
        between = count / (count - 1) * (deviations**2).sum() / labels**2
        independent = share * (1 - share) / labels
        effective = labels / max(1.0, between / independent)

    # few queries give an uncertain variance: the same correction as from a normal to a t distribution
    correction = _t_quantile(error, labels - 1) / _t_quantile(error, count - 1)
    return int(min(labels, effective * min(1.0, correction**2)))


def _t_quantile(error: float, freedom: int) -> float:
    """Return the upper quantile of Student's t distribution, by the expansion of Cornish and Fisher.

    For example, with 4 degrees of freedom and an error of 0.05 it is 2.12; the exact value is 2.13.
    """
    normal = NormalDist().inv_cdf(1 - error)
    first = (normal**3 + normal) / 4
    second = (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96

    return normal + first / freedom + second / freedom**2


def binomial_tail(successes: int, trials: int, share: float) -> float:
    """Return the chance of at least `successes` of `trials`, with logarithms against underflow.

    For example, 2 of 2 with a share of 0.9 have the chance 0.81.
    """
    if successes <= 0:
        return 1.0

    log_success, log_failure = log(share), log(1 - share)

    def log_chance(count: int) -> float:
        combinations = (
            lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
        )
        return combinations + count * log_success + (trials - count) * log_failure

    terms = [log_chance(count) for count in range(successes, trials + 1)]
    # The largest term is taken out of the sum (log-sum-exp), so that not all terms underflow to 0.
    largest = max(terms)

    return min(1.0, exp(largest) * sum(exp(term - largest) for term in terms))


def look_like_hits(scores: npt.NDArray[Any]) -> bool:
    """Return whether scores are in several runs that fall, as the hits of several queries are.

    >>> look_like_hits(np.array([0.9, 0.8, 0.7, 0.6, 0.95, 0.5, 0.4, 0.3, 0.9, 0.8, 0.6, 0.1]))
    True
    """
    runs = 1 + int((np.diff(scores) > 0).sum())
    return runs >= _RUNS and scores.size / runs >= _RUN
