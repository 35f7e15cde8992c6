"""Count the combinations of attribute values inside and outside of a window, where the rows are.

An explanation of a window adds up failures with equal attributes first. Engines count them instead:

    workflow  status  signature   side      count
    pay       500     no order    inside      240
    pay       500     no order    outside     810
    mail      503     disk full   outside   1,204

Fields of JSON are attributes of small frames only, so that rows of small frames are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.attribute_values import LABEL
from toolkit.failures.failure_attributes import (
    NAMED,
    FailureAttributes,
    rows_of_large_frame,
)
from toolkit.failures.gaps import Nanoseconds
from toolkit.failures.incident_times import Span, history_of
from toolkit.failures.selection import (
    opened,
    scanned,
    select_timed,
    timed_only,
    timestamps,
    with_minute,
)
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.failures.sql_results import SqlStep
from toolkit.failures.time_sides import NANOSECONDS, sides_by_time

_DOING: Final = "explaining a spike"
_ELSEWHERE, _INSIDE, _OUTSIDE = range(3)


@dataclass(frozen=True)
class CountedWindow:
    """Combinations of attribute values, each with the number of failures inside and outside of a window."""

    failures: FailureAttributes
    inside: NDArray[np.float64]
    outside: NDArray[np.float64]


@dataclass(frozen=True)
class CountedFailures:
    """The failures of a large frame that is not in memory. Their groups are stored."""

    frame: AnyFrame
    total: int

    @classmethod
    def of(cls, failures: AnyFrame) -> CountedFailures | None:
        """Return the failures; None if they are in memory, few, or have no stored groups."""
        frame = scanned(failures, doing=_DOING)
        total = rows_of_large_frame(frame, doing=_DOING)
        return None if total is None else cls(frame, total)

    def history(self, until: int | None, gaps: Nanoseconds) -> Span:
        """Return the start and the end of the history, from the first and last failure of each minute."""
        minutes = self._rows([]).then(with_minute)
        counted = minutes.count(
            "minute_", first_=("when_", "min"), last_=("when_", "max")
        ).sort_by("minute_")
        counts = counted["count_"].to_numpy()
        # each failure of a minute counts as the first one, except the last
        when = np.repeat(_nanoseconds(counted, "first_"), counts)
        when[np.cumsum(counts) - 1] = _nanoseconds(counted, "last_")
        history, end = history_of(when, until, gaps)
        kept = when[history]

        return (int(kept[0]) if kept.size else 0), end

    def window(self, inside: Span, usual: Span, gaps: Nanoseconds) -> CountedWindow:
        """Count the combinations inside of a span, and outside of it within the usual time."""
        names = opened(self.frame, doing=_DOING).names
        keys: list[str] = [name for name in (*NAMED, "labels", LABEL) if name in names]
        rows = self._rows(keys).then(_divided(inside, usual, gaps))
        table = rows.count(*keys, "side_", failed_at=("when_", "min"))
        # the time of a combination is that of the first failure, which orders them as it orders rows
        created = pa.nulls(table.num_rows, table["failed_at"].type)
        failures = FailureAttributes(
            table.append_column("created_at", created), doing=_DOING
        )
        order = failures.positions
        side, counts = (table[name].to_numpy()[order] for name in ("side_", "count_"))
        numbers = counts.astype(np.float64)

        return CountedWindow(
            failures, numbers * (side == _INSIDE), numbers * (side == _OUTSIDE)
        )

    def _rows(self, columns: list[str]) -> SelectedRows:
        return select_timed(self.frame, columns, doing=_DOING).then(timed_only)


def _nanoseconds(table: pa.Table, column: str) -> NDArray[np.int64]:
    times = timestamps(table, column).astype("datetime64[ns, UTC]").astype("int64")
    return np.asarray(times, dtype=np.int64)


def _divided(inside: Span, usual: Span, gaps: Nanoseconds) -> SqlStep:
    """Return the step that adds `side_`; failures in gaps of a snapshot do not count as usual."""
    in_gaps = [(gap, _ELSEWHERE) for gap in gaps]
    spans = [(inside, _INSIDE), *in_gaps, (usual, _OUTSIDE)]
    return sides_by_time(spans, _ELSEWHERE, NANOSECONDS)
