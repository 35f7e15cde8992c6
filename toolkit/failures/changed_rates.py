"""Decide which groups of failures changed: their counts, the expected counts, and a test of two rates.

A group is growing if it failed more often per time than chance and its own bursts explain. For example, 10
failures in 7 days and 30 in the next day are growing; 30 failures in one batch are not, if earlier failures
also came in batches. `earlier_rates.py` has the earlier rates and the formula.

If a group has no later failure, it is gone only if failures were expected. For example, with 3 failures in
119 hours none in the next hour is no news: the group is steady.

The more groups are compared, the more certain each change has to be (Bonferroni correction). For example,
with 10 groups a confidence of 0.9997 is needed instead of 0.997.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.comparable_rows import Sides, when_failed
from toolkit.failures.earlier_rates import EarlierRates, FirstOccasions, GroupRates
from toolkit.failures.outcome_names import LEFT
from toolkit.failures.selection import (
    typed_frame,
)
from toolkit.failures.usual_rates import dispersion

CHANGES: Final = (
    "new",
    "back again",
    "growing",
    "missing before",
    "shrinking",
    "gone",
    "steady",
)
"""Changes of a group, ordered by how much attention they need."""
_CONFIDENT: Final = 0.997  # three standard deviations
_NO_CHANCE: Final = (
    0.05  # no failure is evidence below this probability: about 3 were expected
)
_MOST_BINS: Final = 2_000
_LEAST_BINS: Final = 24  # to measure bursts
_FEW: Final = 10  # with more failures, the normal test of two rates is exact enough
_BUSY: Final = 8  # failures of a group, at least, to measure the bursts of that group
_HOUR: Final = 3_600_000  # milliseconds


@dataclass(frozen=True, kw_only=True)
class SideCounts:
    """Counts of the failures on both sides of a comparison, by group.

    Each frame has `group` and `count`: one row per failure, or one row per number of alike failures.
    """

    old: pd.DataFrame
    later: pd.DataFrame
    left: pd.DataFrame
    """Failures only on the earlier side, with their `outcome`."""
    added: pd.DataFrame
    """Failures only on the later side."""
    both: pd.DataFrame
    """Each failure once, with `first`, `last` and `bin`, the number of a bin of `bin_width`."""
    earlier_groups: Collection[str]
    """Groups of the history."""
    early_groups: Collection[str] = ()
    """Groups that the earlier side should contain, by the times of their later failures."""


def count_changes(sides: Sides, groups: NDArray[np.object_]) -> pd.DataFrame:
    """Return the counts and the change of each group; `groups` has the group of each row."""
    bounds = np.cumsum(
        [sides.earlier.num_rows, *(part.num_rows for part in sides.parts)]
    )
    earlier_groups, old_groups, later_groups = np.split(groups, bounds[:-1])
    old = (
        _identified(sides.parts[0], old_groups)
        .assign(outcome=sides.outcome)
        .drop_duplicates("id")
    )
    later = _identified(sides.parts[1], later_groups).drop_duplicates("id")
    both = _binned(
        pd.concat([old, later], ignore_index=True).drop_duplicates("id", keep="last")
    )
    counts = SideCounts(
        old=old,
        later=later,
        left=both[~both["id"].isin(later["id"])],
        added=both[~both["id"].isin(old["id"])],
        both=both,
        earlier_groups=earlier_groups,
        early_groups=_early_groups(sides, later_groups),
    )

    return changes_of(
        counts,
        sides.exposure,
        sides.growth,
        are_spans=sides.are_spans,
        exposure_since=sides.exposure_since,
    )


def changes_of(
    counts: SideCounts,
    exposure: float,
    growth: float = 0.0,
    *,
    are_spans: bool,
    exposure_since: Callable[[pd.Timestamp], float] | None = None,
) -> pd.DataFrame:
    """Return the counts and the change of each group, with the relation of the times as in `Sides`."""
    names = sorted({*counts.old["group"], *counts.later["group"]})
    by_group = counts.both.groupby("group")
    first_at = by_group["first"].min().reindex(names)
    last_at = by_group["last"].max().reindex(names)

    def sizes(rows: pd.DataFrame) -> NDArray[np.float64]:
        sums = rows.groupby("group")["count"].sum().reindex(names, fill_value=0)
        return np.asarray(sums, dtype=np.float64)

    before, after = sizes(counts.old), sizes(counts.later)
    added, left = sizes(counts.added), sizes(counts.left)
    bursts = _bursts(counts.both, names)
    first = None
    if exposure_since is not None:
        first = _first_occasions(counts.left, names, exposure_since)
    earlier = EarlierRates.of(before, exposure, first)
    is_more, is_less = after > earlier.most, after < earlier.least
    expected = earlier.expected(after)
    by_whole, by_first = (
        _confidence(rates, added, left - (before - rates.failures), after, bursts)
        for rates in (earlier.whole, earlier.since_first)
    )
    confidence = np.where(is_more | is_less, by_whole, 0.0)
    confidence = np.where(is_more, np.minimum(by_whole, by_first), confidence)

    if growth:
        # a queue that only fills up does not grow: more must also be added per time
        rising = _confidence_of_added(added, before, growth, bursts)
        confidence = np.where(
            after > before, np.minimum(confidence, rising), confidence
        )
        expected = before * (1 + growth)

    has_changed = confidence >= 1 - (1 - _CONFIDENT) / max(len(names), 1)
    is_gone = after == 0
    if are_spans:
        is_gone &= _chance_of_none(earlier.whole, bursts) < _NO_CHANCE
    is_absent_before = before == 0
    is_back = pd.Index(names).isin(list(counts.earlier_groups))
    is_missing = pd.Index(names).isin(list(counts.early_groups))
    # `select` takes the first condition that is true, so the order matters: a group that
    # was not there before is never "growing".
    change = np.select(
        [
            is_absent_before & is_back,
            is_absent_before & is_missing,
            is_absent_before,
            is_gone,
            has_changed & is_more,
            has_changed,
        ],
        ["back again", "missing before", "new", "gone", "growing", "shrinking"],
        "steady",
    )

    return typed_frame(
        group=("str", names),
        change=("str", change),
        before=("Int64", before),
        after=("Int64", after),
        added=("Int64", added),
        left=("Int64", left),
        expected=("float64", expected),
        confidence=("float64", confidence),
        **{
            name: ("Int64", sizes(counts.left[counts.left["outcome"].isin(values)]))
            for name, values in LEFT.items()
        },
        first_at=("datetime64[ms, UTC]", first_at.to_numpy()),
        last_at=("datetime64[ms, UTC]", last_at.to_numpy()),
    )


def _first_occasions(
    earlier: pd.DataFrame,
    names: list[str],
    exposure_since: Callable[[pd.Timestamp], float],
) -> FirstOccasions:
    """Return the first occasion of each group. Failures of one bin are one occasion."""
    bins = earlier["bin"]
    by_group = bins.groupby(earlier["group"])
    is_first = (bins == by_group.transform("min")).fillna(value=False)
    firsts = earlier[is_first].groupby("group")
    until = firsts["last"].max().reindex(names)
    # a group without any time in the earlier span has the rate of all of it
    exposures = np.full(len(names), np.inf)
    for group in np.flatnonzero(until.notna()):
        exposures[group] = exposure_since(until.iloc[group])

    return FirstOccasions(
        failures=firsts["count"]
        .sum()
        .reindex(names, fill_value=0)
        .to_numpy(np.float64),
        exposures=exposures,
        occasions=np.asarray(by_group.nunique().reindex(names, fill_value=0), np.int64),
    )


def _chance_of_none(
    rates: GroupRates, bursts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probability that no later failure occurs, if the rate did not change.

    Each failure, or batch of failures, is in the earlier time with the probability
    ``exposure / (1 + exposure)``. If many failures are known, this is ``exp(-expected)``.
    """
    chance: NDArray[np.float64] = (rates.exposures / (1 + rates.exposures)) ** (
        rates.failures / bursts
    )
    return chance


def _identified(part: pa.Table, groups: NDArray[np.object_]) -> pd.DataFrame:
    ids, at = part["dlq_id"].to_pylist(), when_failed(part)
    return pd.DataFrame({"group": groups, "id": ids, "at": at, "count": 1})


def _early_groups(sides: Sides, later_groups: NDArray[np.object_]) -> pd.Index:
    """Return the groups with a failure that the earlier frame should contain, by the time of it."""
    if sides.placed is None or not len(later_groups):
        return pd.Index([])

    first = sides.placed.reset_index(drop=True).groupby(later_groups).min()
    return first.index[first < sides.cut]


def bin_width(first: int, last: int) -> int:
    """Return the length of the bins of bursts between two times, all in milliseconds.

    >>> bin_width(0, 10_000_000_000)
    5000001
    """
    return max(_HOUR, math.ceil((last - first + 1) / _MOST_BINS))


def _binned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return failures with their `first` and `last` time and `bin`, which is missing without a time."""
    at = rows["at"].astype("int64")
    dated = at[rows["at"].notna()]
    bins = pd.Series(pd.NA, index=rows.index, dtype="Int64")
    if len(dated):
        first = int(dated.min())
        bins = ((dated - first) // bin_width(first, int(dated.max()))).reindex(
            rows.index
        )

    return rows.assign(first=rows["at"], last=rows["at"], bin=bins)


def _bursts(rows: pd.DataFrame, names: list[str]) -> NDArray[np.float64]:
    """Return the dispersion of each group: how many times more the counts vary than by chance.

    For example, failures that come in batches of five have a dispersion of about 5. It is measured since the
    group began, as the time before would look calm. A group with few failures gets the median of all groups.
    """
    dated = rows.dropna(subset="bin")
    if dated.empty:
        return np.ones(len(names))

    bins = dated["bin"].to_numpy(dtype=np.int64)
    numbers = dated["count"].to_numpy(dtype=np.float64)
    length = int(bins.max()) + 1

    by_group = {}
    for name, positions in dated.groupby("group").indices.items():
        if numbers[positions].sum() >= _BUSY:
            first = min(bins[positions].min(), max(length - _LEAST_BINS, 0))
            counts = np.bincount(
                bins[positions] - first, numbers[positions], length - first
            )
            by_group[name] = dispersion(counts.astype(np.float64), np.ones(len(counts)))

    typical = float(np.median(list(by_group.values()))) if by_group else 1.0
    return np.array([by_group.get(name, typical) for name in names])


def _confidence_of_added(
    added: NDArray[np.float64],
    before: NDArray[np.float64],
    growth: float,
    bursts: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the confidence that more was added per time than before, with a normal approximation.

    For example, 980 failures in 14 days and 70 more in one day: growth is 1/14, and 70 more are expected, so
    the confidence is 0.
    """
    expected = before * growth
    # failures in the length of the earlier span
    per_span = (before + added) / (1 + growth)
    deviation = np.sqrt(bursts * np.maximum(added + per_span * growth * growth, 1e-9))
    z = np.maximum(added - expected - 0.5, 0) / deviation

    return np.array([math.erf(score / math.sqrt(2)) for score in z])


def _confidence(
    rates: GroupRates, added: NDArray[np.float64], left: NDArray[np.float64],
    after: NDArray[np.float64], bursts: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """Return the confidence that a rate changed: a two-sided normal test of two Poisson rates.

    Only the added and the left entries vary, as entries on both sides are the same failures. For example, 3.1
    standard deviations have a confidence of 0.998.
    """
    deviations = rates.deviations_of(added, left, after, bursts)
    confidence = np.array([math.erf(score / math.sqrt(2)) for score in deviations])

    for group in np.flatnonzero((added < _FEW) & (after > rates.expected)):
        exact = _confidence_of_few(
            int(added[group]), int(left[group]), float(rates.exposures[group])
        )
        confidence[group] = min(confidence[group], exact)

    return confidence


def _confidence_of_few(added: int, left: int, exposure: float) -> float:
    """Return the confidence that a rate rose, by the exact test of two Poisson rates (Przyborowski, 1940).

    If the rate did not change, the probability that a failure is of the later time is 1 / (1 + exposure). The
    normal test is too sure if few failures are expected. For example, 2 failures in 119 hours and 1 in the
    next hour: one of three is in that hour with a probability of 2.5 %, so the confidence is 0.95, not
    0.998.

    >>> round(_confidence_of_few(1, 2, 119), 2), round(_confidence_of_few(5, 2, 119), 4)
    (0.95, 1.0)
    """
    size, chance = added + left, 1 / (1 + exposure)
    fewer = 0.0
    for number in range(added):
        log_ways = (
            math.lgamma(size + 1)
            - math.lgamma(number + 1)
            - math.lgamma(size - number + 1)
        )
        log_chance = number * math.log(chance) + (size - number) * math.log1p(-chance)
        fewer += math.exp(log_ways + log_chance)

    return max(1 - 2 * max(1 - fewer, 0.0), 0.0)
