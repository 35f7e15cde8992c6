"""Decide which groups of failures changed: their counts, the expected counts, and a test of two rates.

A group is growing if it failed more often per time than chance and its own bursts explain. For example, 10
failures in 7 days and 30 in the next day are growing; 30 failures in one batch are not, if earlier failures
also came in batches. `_confidence` has the formula.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.comparable_rows import Sides, when_failed
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
_MOST_BINS: Final = 2_000
_BUSY: Final = 8  # failures of a group, at least, to measure the bursts of that group
_HOUR: Final = 3_600_000  # milliseconds


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
    left = old[~old["id"].isin(later["id"])]
    added = later[~later["id"].isin(old["id"])]
    names = sorted({*old["group"], *later["group"]})
    all_rows = pd.concat([old, later]).drop_duplicates("id", keep="last")
    times = all_rows.groupby("group")["at"].agg(["min", "max"]).reindex(names)

    def sizes(rows: pd.DataFrame) -> NDArray[np.float64]:
        counts = rows["group"].value_counts().reindex(names, fill_value=0)
        return np.asarray(counts, dtype=np.float64)

    before, after = sizes(old), sizes(later)
    bursts = _bursts(all_rows, names)
    confidence = _confidence(
        sizes(added), sizes(left), before, after, sides.exposure, bursts
    )
    expected = before / sides.exposure

    if sides.growth:
        # a queue that only fills up does not grow: more must also be added per time
        rising = _confidence_of_added(sizes(added), before, sides.growth, bursts)
        confidence = np.where(
            after > before, np.minimum(confidence, rising), confidence
        )
        expected = before * (1 + sides.growth)

    has_changed = confidence >= _CONFIDENT
    is_more = after > before / sides.exposure
    is_absent_before = before == 0
    is_back = pd.Index(names).isin(earlier_groups)
    is_missing = _is_missing_before(sides, later_groups, names)
    # `select` takes the first condition that is true, so the order matters: a group that
    # was not there before is never "growing".
    change = np.select(
        [
            is_absent_before & is_back,
            is_absent_before & is_missing,
            is_absent_before,
            after == 0,
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
        added=("Int64", sizes(added)),
        left=("Int64", sizes(left)),
        expected=("float64", expected),
        confidence=("float64", confidence),
        **{
            name: ("Int64", sizes(left[left["outcome"].isin(values)]))
            for name, values in LEFT.items()
        },
        first_at=("datetime64[ms, UTC]", times["min"].to_numpy()),
        last_at=("datetime64[ms, UTC]", times["max"].to_numpy()),
    )


def _identified(part: pa.Table, groups: NDArray[np.object_]) -> pd.DataFrame:
    return pd.DataFrame(
        {"group": groups, "id": part["dlq_id"].to_pylist(), "at": when_failed(part)}
    )


def _is_missing_before(
    sides: Sides, later_groups: NDArray[np.object_], names: list[str]
) -> NDArray[np.bool_]:
    """Return which groups have a failure that the earlier frame should contain, by its time."""
    if sides.placed is None or not len(later_groups):
        return np.zeros(len(names), dtype=bool)

    first = (
        sides.placed.reset_index(drop=True).groupby(later_groups).min().reindex(names)
    )
    return np.asarray(first < sides.cut)


def _bursts(rows: pd.DataFrame, names: list[str]) -> NDArray[np.float64]:
    """Return the dispersion of each group: how many times more the counts vary than by chance.

    For example, failures that come in batches of five have a dispersion of about 5. A group with few failures
    gets the median of all groups.
    """
    dated = rows.dropna(subset="at")
    at = dated["at"].astype("int64").to_numpy()
    if not len(at):
        return np.ones(len(names))

    width = max(_HOUR, math.ceil((at.max() - at.min() + 1) / _MOST_BINS))
    bins = (at - at.min()) // width
    length = int(bins.max()) + 1

    by_group = {}
    for name, positions in dated.groupby("group").indices.items():
        if len(positions) >= _BUSY:
            counts = np.bincount(bins[positions], minlength=length).astype(np.float64)
            by_group[name] = dispersion(counts, np.ones(length))

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
    added: NDArray[np.float64], left: NDArray[np.float64], before: NDArray[np.float64],
    after: NDArray[np.float64], exposure: float, bursts: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """Return the confidence that a rate changed: a two-sided normal test of two Poisson rates.

    Only the added and the left entries vary, as entries on both sides are the same failures. `bursts` widens
    the deviation (quasi-Poisson), and 0.5 is the correction for continuity. For example, 10 before and 30
    after, with equal spans and no bursts: the deviation is sqrt(20 * 2) = 6.3, so z = (20 - 0.5) / 6.3 = 3.1,
    a confidence of 0.998.
    """
    usual = (added + left) / (1 + exposure)
    deviation = np.sqrt(bursts * np.maximum(usual, 1e-9) * (1 + 1 / exposure))
    z = np.maximum(np.abs(after - before / exposure) - 0.5, 0) / deviation

    return np.array([math.erf(score / math.sqrt(2)) for score in z])
