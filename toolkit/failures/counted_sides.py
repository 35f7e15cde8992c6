"""Count both sides of a comparison where the rows are: in batches, in DuckDB, or on the workers of Dask.

A frame with stored signatures is divided at a time. Two small tables arrive:

1. per side, the number of failures and the first and last time, because bins of bursts depend on them;
2. per signature, side and bin, the number of failures and the first and last time.

For example, 3 million failures with 40 signatures in 30 days have at most 30,000 rows in the second table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.times import milliseconds
from toolkit.failures.changed_rates import SideCounts, bin_width
from toolkit.failures.expired_entries import with_expired
from toolkit.failures.gaps import Spans
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups, groups_of_signatures
from toolkit.failures.outcome_names import EXPIRED, UNKNOWN
from toolkit.failures.partial_results import DistinctValues, repeated_rows
from toolkit.failures.selection import (
    in_milliseconds,
    opened,
    select_timed,
    timed_only,
)
from toolkit.failures.signed_failures import grouped_columns
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.failures.sql_results import SqlStep
from toolkit.failures.time_sides import LAST_TIME, MILLISECONDS, sides_by_time
from toolkit.tables.schemas import GONE_AFTER, GONE_BEFORE
from toolkit.tables.signed_rows import SIGNATURE, are_signed

_DOING: Final = "comparing failures"
_MILLISECOND: Final = timedelta(milliseconds=1)

OLD, LATER, IN_GAP = range(3)
"""Numbers of the sides."""


@dataclass(frozen=True)
class DividedFrame:
    """A frame of any engine that is divided at a time, without failures in gaps of the history."""

    failures: AnyFrame
    start: datetime
    gaps: Spans
    kept: timedelta | None
    """How long the queue keeps entries; None if unknown, so that no failure counts as expired."""

    def has_unique_ids(self) -> bool:
        """Return whether no id occurs twice, so that no failure is on both sides."""
        rows = self._rows(["dlq_id"])
        if rows.has_unique_ids:
            return True
        return repeated_rows(rows.reduce(DistinctValues("dlq_id"))) == 0

    @cached_property
    def sides(self) -> pd.DataFrame:
        """Return `count_`, `first_` and `last_` per side; failures without a time have a missing side."""
        counted = self._rows([]).count(
            "side_", first_=("when_", "min"), last_=("when_", "max")
        )
        return _timed(counted).set_index("side_")

    @property
    def untimed(self) -> int:
        """Return the number of failures without a time."""
        sides = self.sides
        return int(sides["count_"][sides.index.isna()].sum())

    @property
    def first(self) -> pd.Timestamp:
        """Return the time of the first failure; missing if no failure is earlier than the division."""
        return pd.Timestamp(self.sides["first_"].reindex([OLD]).iloc[0])

    def groups(self, rules: GroupRules) -> tuple[FailureGroups, dict[str, str]]:
        """Return the groups of failures with a time, and the group of each signature."""
        rows = self._rows([*grouped_columns(rules), SIGNATURE])
        return groups_of_signatures(rows.then(timed_only), rules)

    def counts(self) -> pd.DataFrame | None:
        """Return the failures per signature, side and bin; None if a signature is missing or out of date."""
        compared = self.sides.reindex([OLD, LATER])
        first, last = compared["first_"].min(), compared["last_"].max()
        width = 1
        if pd.notna(first):
            width = bin_width(milliseconds(first), milliseconds(last))
        else:
            first = pd.Timestamp(0, tz="UTC")

        looks: list[str] = []
        names = opened(self.failures, doing=_DOING).names
        if self.kept is not None and {GONE_AFTER, GONE_BEFORE} <= set(names):
            looks = [GONE_AFTER, GONE_BEFORE]
        rows = self._rows([SIGNATURE, *looks]).then(timed_only)
        rows = rows.then(_binned(milliseconds(first), width))
        rows = rows.then(with_expired(self.kept if looks else None))
        counted = rows.count(
            SIGNATURE, "side_", "bin_", "expired_",
            first_=("when_", "min"), last_=("when_", "max"),
        )  # fmt: skip

        # without an id on both sides, each earlier failure has left
        alone = _timed(counted).assign(shared_=False)
        return alone if are_signed(counted[SIGNATURE]) else None

    def _rows(self, columns: list[str]) -> SelectedRows:
        rows = select_timed(self.failures, columns, doing=_DOING, name="before")
        return rows.then(_placed(self.start, self.gaps))


def side_counts(
    counted: pd.DataFrame, groups: dict[str, str], early_groups: Collection[str] = ()
) -> SideCounts:
    """Return the counts by group. An entry with `shared_` is on both sides; its later time counts."""
    outcome = counted["expired_"].map({True: EXPIRED, False: UNKNOWN})
    rows = pd.DataFrame(
        {
            "group": counted[SIGNATURE].map(groups),
            "count": counted["count_"],
            "outcome": outcome,
            "first": counted["first_"],
            "last": counted["last_"],
            "bin": counted["bin_"],
        }
    )
    is_old, is_later = counted["side_"] == OLD, counted["side_"] == LATER
    is_alone = ~counted["shared_"]
    left = rows[is_old & is_alone]

    return SideCounts(
        old=rows[is_old],
        later=rows[is_later],
        left=left,
        added=rows[is_later & is_alone],
        both=pd.concat([left, rows[is_later]]),
        earlier_groups=rows["group"][counted["side_"] == IN_GAP].tolist(),
        early_groups=early_groups,
    )


def _placed(start: datetime, gaps: Spans) -> SqlStep:
    """Return the step that adds `side_`, which is missing for failures without a time."""
    spans = [((_rounded_up(start), LAST_TIME), LATER)]
    for begin, end in gaps:
        spans.append(((_rounded_up(begin), _rounded_up(end)), IN_GAP))

    return sides_by_time(spans, OLD, MILLISECONDS)


def _rounded_up(time: datetime) -> int:
    """Return the first whole millisecond since 1970 that is not before a time."""
    passed = pd.Timestamp(time) - pd.Timestamp(0, tz="UTC")
    return -(-passed // _MILLISECOND)


def _binned(first: int, width: int) -> SqlStep:
    """Return the step that adds `bin_`, the number of the bin of each time."""
    return SqlStep(
        partial(_with_bin, first, width),
        f"(SELECT *, (epoch_ms(when_) - {first}) // {width} AS bin_ FROM {{rows}})",  # noqa: S608 - numbers only
    )


def _with_bin(first: int, width: int, table: pa.Table) -> pa.Table:
    return table.append_column(
        "bin_", pc.divide(pc.subtract(in_milliseconds(table), first), width)
    )


def _timed(counted: pa.Table) -> pd.DataFrame:
    """Return counts as pandas, with `first_` and `last_` in milliseconds."""
    frame: pd.DataFrame = counted.to_pandas()
    for name in ("first_", "last_"):
        times = pd.to_datetime(frame[name], utc=True)
        frame[name] = times.astype("datetime64[ms, UTC]")
    return frame
