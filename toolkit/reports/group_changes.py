"""Decide once how each group changed. The headline, "What changed", JSON and short form count these rows.

Two analyses answer parts of it. `periods.py` knows which groups are new, by when they were first seen. The
comparison has a row per group in one of both periods, and calls more of them new or growing. The rules:

1. A group is new if `periods.py` lists it, whatever the comparison calls it.
2. Other groups that only the later period has were known before: "missing before".
3. A group is growing if it is in `Trend.grown`. Others that the comparison calls growing are steady.

So the number of rows with "new" is the number of new groups in the headline, and all kinds together are all
groups that are compared.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from toolkit.failures.comparing import CHANGES, FailureComparison
from toolkit.reports.periods import CONFIDENT, Trend


def grown_groups(comparison: FailureComparison, new: list[str] | None) -> list[str]:
    """Return the ids of groups whose rate is higher, surely though many groups are compared (Bonferroni)."""
    frame = comparison.frame
    sure = 1 - (1 - CONFIDENT) / max(len(frame), 1)
    is_grown = (frame["change"] == "growing") & (frame["confidence"] >= sure)
    return frame["group"][is_grown & ~frame["group"].isin(new or [])].tolist()


def changes_of_groups(
    comparison: FailureComparison | None, trend: Trend, groups: pd.DataFrame
) -> pd.DataFrame | None:
    """Return the rows of a comparison with the kind of change that counts, the most urgent first.

    Without a rate to compare with, only new groups are known. None if nothing is.
    """
    if comparison is None:
        return None
    frame = comparison.frame
    new = trend.new or []
    late = groups[groups["group"].isin(set(new) - set(frame["group"]))]
    if len(late):  # first seen in the period, though they failed before it
        rows = late[["group", "title"]].assign(
            before=0, after=0, expected=0.0, confidence=np.nan, change="new"
        )
        frame = pd.concat([rows.reindex(columns=frame.columns).astype(frame.dtypes.to_dict()), frame])
    kinds = frame["change"].mask(frame["change"] == "growing", "steady")
    kinds = kinds.mask(kinds == "new", "missing before")
    kinds = kinds.mask(frame["group"].isin(trend.grown), "growing")
    frame = frame.assign(change=kinds.mask(frame["group"].isin(new), "new"))
    if trend.usual is None:
        frame = frame[frame["change"] == "new"]
    order = frame["change"].map({change: place for place, change in enumerate(CHANGES)})
    return frame.iloc[np.argsort(order.to_numpy(), kind="stable")].reset_index(drop=True)


def counts_by_change(changes: pd.DataFrame) -> dict[str, int]:
    """Return how many groups changed how; every kind has a number."""
    sizes = changes["change"].value_counts()
    return {change: int(sizes.get(change, 0)) for change in CHANGES}
