"""Choose the failures that a panel shows: all of a frame in memory, the latest of a larger one.

A panel searches and sorts all rows that it has, so the number of rows is limited. Two passes find the latest:

1. The times and ids of all rows give the time and the id of the last row that is shown.
2. Only rows until this one are read with all columns.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.failures.partial_results import Counts, FirstRows
from toolkit.failures.selection import opened, receipt_of, select_timed
from toolkit.failures.signed_failures import present_ids
from toolkit.failures.sources import AnyFrame, reduce_together
from toolkit.tables.frame_parts import frame_parts
from toolkit.tables.frames import checked_frame, to_frame

MOST: Final = 100_000
"""Rows of a panel, which stays fluid. A hundred thousand failures are about 200 MB."""

_DOING: Final = "browsing failures"


class ShownFailures(NamedTuple):
    """The failures of a panel, and the number of failures that exist."""

    frame: pd.DataFrame
    total: int


def shown_failures(failures: AnyFrame, *, most: int = MOST) -> ShownFailures:
    """Return a frame in memory unchanged, and the latest failures of a snapshot or of another engine."""
    if frame_parts(failures) is None:
        frame = checked_frame("failures", failures, distinct=True)
        return ShownFailures(frame, len(frame))

    rows = opened(failures, doing=_DOING)
    timed = select_timed(rows, ["dlq_id"], doing=_DOING)
    latest = FirstRows((("when_", "descending"), ("dlq_id", "ascending")), most)
    counts, first = reduce_together([(timed, Counts(())), (timed, latest)])
    total = counts["count_"][0].as_py()
    chosen = select_timed(rows, rows.names, doing=_DOING)

    if total > most:
        last = first.slice(most - 1)
        step = partial(_until, last["when_"][0].as_py(), last["dlq_id"][0].as_py())
        chosen = chosen.then(step)

    table = chosen.table().select(list(rows.names))
    frame = to_frame(table, receipt_of(failures))
    if renamed := present_ids(failures):
        frame.attrs["renamed"] = renamed
    return ShownFailures(frame, total)


def _until(time: object, last_id: object, table: pa.Table) -> pa.Table:
    """Return the rows that are not older than a time. Of equal times, the smaller ids come first."""
    when, ids = table["when_"], table["dlq_id"]
    if time is None:
        # rows without a time are the last ones
        same = when.is_null()
        later = when.is_valid()
    else:
        limit = pa.scalar(time, when.type)
        same = pc.fill_null(pc.equal(when, limit), False)
        later = pc.fill_null(pc.greater(when, limit), False)

    if last_id is not None:
        same = pc.and_(same, pc.fill_null(pc.less_equal(ids, last_id), False))
    return table.filter(pc.or_(later, same))
