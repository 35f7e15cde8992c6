"""Count both frames of a comparison where the rows are: on the workers of Dask, or in DuckDB.

Three small results arrive:

1. per frame, the number of failures and the first and last time;
2. per signature, frame and bin of time, the failures that are in one frame or in both (`id_join.py`);
3. the latest failures of each signature, which name the groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import pandas as pd
import pyarrow as pa

from toolkit.base.times import milliseconds
from toolkit.failures.changed_rates import bin_width
from toolkit.failures.comparable_rows import has_signatures
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups, groups_of_signatures
from toolkit.failures.id_join import IdJoin, in_numbers, in_queue_only
from toolkit.failures.outcomes import times_of_loads
from toolkit.failures.selection import opened, receipt_of, select_timed
from toolkit.failures.signed_failures import GROUPED, grouped_columns
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.failures.united_frames import SIDE, united
from toolkit.tables.schemas import GONE_AFTER, GONE_BEFORE
from toolkit.tables.signed_rows import SIGNATURE, are_signed

_DOING: Final = "comparing failures"
_JOINED: Final = ("dlq_id", SIGNATURE, GONE_AFTER, GONE_BEFORE)
_TIMES: Final = ("first_", "last_", "failed_")


@dataclass(frozen=True)
class CountedFrames:
    """Two frames with stored signatures, at least one of which is not in memory."""

    frames: tuple[AnyFrame, AnyFrame]
    rows: AnyFrame
    """The rows of both frames, with `side_`."""
    kept: timedelta | None
    """How long the queue keeps entries; None if unknown, so that no failure counts as expired."""
    now: datetime | None
    """When the second frame was loaded, if it is given."""

    @classmethod
    def of(
        cls, before: AnyFrame, after: AnyFrame, kept: timedelta | None, now: datetime | None
    ) -> CountedFrames | None:  # fmt: skip
        """Return the frames; None if both are in memory, or if rows have to be read to count them."""
        parts = [opened(frame, doing=_DOING) for frame in (before, after)]
        are_in_memory = all(part.check is None for part in parts)
        if are_in_memory or not all(map(has_signatures, parts)):
            return None

        times = ["failed_at", "created_at"]
        names = list(dict.fromkeys([*_JOINED, *times, *GROUPED]))
        rows = united([before, after], names, doing=_DOING)
        if rows is None:
            return None
        if isinstance(rows, SelectedRows) and rows.check is not None:
            # ids of rows in files are joined in this process
            rows.check([*_JOINED, *times], doing=_DOING)
        return cls((before, after), rows, kept, now)

    @cached_property
    def sides(self) -> pd.DataFrame:
        """Return `count_`, `first_` and `last_` per side, and by whether an id and `failed_at` exist."""
        counted = self._numbers().count(
            SIDE, "has_id_", "has_failed_", first_=("at_", "min"), last_=("at_", "max")
        )
        return _timed(counted)

    @property
    def have_ids(self) -> bool:
        """Return whether every failure has an id."""
        return bool(self.sides["has_id_"].all())

    @property
    def have_failed_at(self) -> bool:
        """Return whether every failure of the second frame has `failed_at`."""
        return bool(self.sides["has_failed_"][self.sides[SIDE] == 1].all())

    @property
    def first(self) -> list[pd.Timestamp]:
        """Return the time of the first failure of each side; missing if there is none."""
        return [pd.Timestamp(side["first_"].min()) for side in self._each_side()]

    @property
    def last(self) -> list[pd.Timestamp]:
        """Return the time of the last failure of each side; missing if there is none."""
        return [pd.Timestamp(side["last_"].max()) for side in self._each_side()]

    @property
    def span(self) -> tuple[pd.Timestamp, pd.Timestamp]:
        """Return the first and the last time of both sides."""
        return self.sides["first_"].min(), self.sides["last_"].max()

    def are_spans(self) -> bool:
        """Return whether both frames are spans of one history, as `comparable_rows.are_spans` decides it."""
        receipts = [receipt_of(frame) for frame in self.frames]
        if None not in receipts:
            return receipts[0] == receipts[1]

        is_after = self.first[1] > self.last[0]
        return bool(is_after) and not self._of_one_history["shared_"].any()

    def counts(self, *, is_one_history: bool) -> pd.DataFrame | None:
        """Return the counts of `IdJoin`; None if an id repeats in a frame or a signature is out of date."""
        counted = self._of_one_history if is_one_history else self._of_loads
        signatures = pa.chunked_array([pa.array(counted[SIGNATURE], pa.string())])
        if counted["repeated_"].any() or not are_signed(signatures):
            return None

        return counted

    @cached_property
    def _of_one_history(self) -> pd.DataFrame:
        return self._counts(is_one_history=True)

    @cached_property
    def _of_loads(self) -> pd.DataFrame:
        return self._counts(is_one_history=False)

    def _counts(self, *, is_one_history: bool) -> pd.DataFrame:
        """Return the counts with bins between the first and the last failure that counts."""
        counted = self._joined(self.span, is_one_history=is_one_history)
        # an entry may have another time in the second load, which counts
        both = counted[(counted[SIDE] == 1) | ~counted["shared_"]]
        span = both["first_"].min(), both["last_"].max()
        if pd.isna(span[0]) or span == self.span:
            return counted

        return self._joined(span, is_one_history=is_one_history)

    def early_groups(
        self, counts: pd.DataFrame, groups: dict[str, str], *, is_one_history: bool
    ) -> list[str]:
        """Return the groups with a failure that the first frame should contain, by the time of it."""
        name = "first_"
        has_receipts = None not in [receipt_of(frame) for frame in self.frames]
        if has_receipts and not is_one_history:
            # an entry that was created before the first load may have failed after it
            name = "failed_"
        later = counts[counts[SIDE] == 1]
        is_early = later[name] < self.last[0]

        return later[SIGNATURE][is_early].map(groups).tolist()

    def groups(
        self, rules: GroupRules, *, is_one_history: bool
    ) -> tuple[FailureGroups, dict[str, str]]:
        """Return the groups of the failures, and the group of each signature."""
        columns = [*grouped_columns(rules), SIGNATURE, GONE_BEFORE]
        rows = select_timed(self.rows, columns, doing=_DOING)
        if not is_one_history:
            rows = rows.then(in_queue_only)
        return groups_of_signatures(rows, rules, [GONE_BEFORE])

    def _numbers(self) -> SelectedRows:
        return select_timed(self.rows, [*_JOINED, SIDE], doing=_DOING).then(in_numbers)

    def _each_side(self) -> list[pd.DataFrame]:
        return [self.sides[self.sides[SIDE] == side] for side in (0, 1)]

    def _joined(
        self, span: tuple[pd.Timestamp, pd.Timestamp], *, is_one_history: bool
    ) -> pd.DataFrame:
        """Return the counts with bins of a span of time."""
        first, width = 0, 1
        if pd.notna(span[0]):
            first, last = map(milliseconds, span)
            width = bin_width(first, last)
        before, after = self.frames
        failed_before, failed_after = (pd.Series([time]) for time in self.last)
        loads = times_of_loads(before, after, failed_before, failed_after, self.now)
        start, end = (milliseconds(time) if pd.notna(time) else None for time in loads)

        join = IdJoin(
            first=first,
            width=width,
            kept=self.kept,
            is_one_history=is_one_history,
            start=start,
            end=end,
        )
        return _timed(self._numbers().reduce(join))


def _timed(counted: pa.Table) -> pd.DataFrame:
    """Return counts as pandas, with times."""
    for position, name in enumerate(counted.column_names):
        if name in _TIMES:
            times = counted[name].cast(pa.timestamp("ms", "UTC"))
            counted = counted.set_column(position, name, times)
    frame: pd.DataFrame = counted.to_pandas()

    return frame
