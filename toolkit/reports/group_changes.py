"""Decide once how each group changed. The headline, "What changed", JSON and short form count these rows.

Two analyses each know a part. `periods.py` knows which groups are new, because it knows when each group was
first seen. `compare_failures` has one row per group in either period, but is quicker to call a group new.
These rules combine them:

1. A group is new if `periods.py` lists it, whatever the comparison calls it.
2. Other groups that only the later period has are "missing before": they are known, but did not occur in the
   earlier period.
3. All other changes are as in the comparison.

If a sample was compared, `estimated_changes` scales the counts to all failures.

As a result, the number of rows with "new" equals the number of new groups in the headline, and every compared
group is counted exactly once.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd

from toolkit.failures.changed_rates import CHANGES
from toolkit.failures.comparing import FailureComparison
from toolkit.reports.periods import Trend


def grown_groups(comparison: FailureComparison, new: list[str] | None) -> list[str]:
    """Return the ids of groups whose rate is clearly higher."""
    frame = comparison.frame
    is_grown = (frame["change"] == "growing") & ~frame["group"].isin(new or [])
    return frame["group"][is_grown].tolist()


def changes_of_groups(
    comparison: FailureComparison | None, trend: Trend, groups: pd.DataFrame
) -> pd.DataFrame | None:
    """Return the rows of a comparison with the final kind of change, the most urgent first.

    Without an earlier rate, only new groups are returned; without a comparison, None.
    """
    if comparison is None:
        return None

    frame = comparison.frame
    new = trend.new or []

    late = groups[groups["group"].isin(set(new) - set(frame["group"]))]
    if len(late):
        # first seen in this period, although they failed earlier: the comparison has no row for them
        rows = late[["group", "title"]].assign(
            before=0, after=0, expected=0.0, confidence=np.nan, change="new"
        )
        frame = pd.concat(
            [rows.reindex(columns=frame.columns).astype(frame.dtypes.to_dict()), frame]
        )

    kinds = frame["change"].mask(frame["change"] == "new", "missing before")
    frame = frame.assign(change=kinds.mask(frame["group"].isin(new), "new"))
    if trend.usual is None:
        frame = frame[frame["change"] == "new"]
    order = frame["change"].map({change: place for place, change in enumerate(CHANGES)})

    return frame.iloc[np.argsort(order.to_numpy(), kind="stable")].reset_index(
        drop=True
    )


def estimate(count: float, scale: float) -> int:
    """Scale a count of the sample to all failures, rounded to three digits.

    >>> estimate(1234, 1), estimate(1234, 10)
    (1234, 12300)
    """
    if scale == 1:
        return round(count)
    return round(float(f"{count * scale:.3g}"))


def estimated_changes(
    changes: pd.DataFrame,
    groups: pd.DataFrame,
    within: tuple[datetime, datetime],
    *,
    before: float,
    after: float,
) -> pd.DataFrame:
    """Return changes of a sample with numbers of all failures, and a column `is_estimate`.

    `before` and `after` are the numbers of failures per failure of the samples. The counts of `groups` are
    counts of all failures. So a group that failed only `within` the period is not estimated. For example, a
    new error with 3 failures may have none in the sample.
    """
    start, end = within
    is_inside = (groups["first_at"] > start) & (groups["last_at"] <= end)
    known = groups[is_inside].set_index("group")["count"]
    exact = changes["group"].map(known)
    estimated = changes["after"].map(lambda count: estimate(count, after))

    return changes.assign(
        before=changes["before"].map(lambda count: estimate(count, before)),
        after=exact.fillna(estimated).astype(changes["after"].dtype),
        expected=changes["expected"] * after,
        is_estimate=exact.isna(),
    ).astype({"before": changes["before"].dtype})


def counts_by_change(changes: pd.DataFrame) -> dict[str, int]:
    """Return the number of groups per kind of change, including zeros."""
    sizes = changes["change"].value_counts()
    return {change: int(sizes.get(change, 0)) for change in CHANGES}
