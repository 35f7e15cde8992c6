"""Find the lowest score at which the precision of labelled hits is as promised."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import plain, whole, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.tables.vector_dtype import missing
from toolkit.vectors.label_tests import (
    LEAST_QUERIES,
    Queries,
    chance_of_matches,
    look_like_hits,
)

_Floats = npt.NDArray[np.float64]

_LABELS: Final = "true or false for each score"
_PERCENT: Final = 100
UNKNOWN_QUERIES: Final = (
    "The scores of the labels fall again and again, as the hits of several queries do. Hits of one query are"
    " often right or wrong together, so the promise may not hold. Pass the query of each label."
)
_STEPS: Final = 60  # thresholds that are tested, at most


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
    precision = checked_share("precision", precision)
    confidence = checked_share("confidence", confidence)
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


def checked_share(name: str, value: Any) -> float:
    """Return a share between 0 and 1. Raise InputError for other values, for example 90."""
    share = plain(value)
    if (
        isinstance(share, bool)
        or not isinstance(share, int | float)
        or not 0 < share < 1
    ):
        next_step = None
        if isinstance(share, int | float) and 1 < share < _PERCENT:
            next_step = f"For {share:g} %, pass {name}={share / _PERCENT:g}."
        raise wrong(name, value, "a share between 0 and 1", next_step)

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

    for position, label in enumerate(label_list):
        if not _is_label(label):
            raise wrong(f"labels at position {position:,}", label, _LABELS)

    return values, np.asarray(label_list, dtype=bool)


def _is_label(label: object) -> bool:
    return isinstance(label, bool | int | float) and label in (0, 1)
