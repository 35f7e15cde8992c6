"""Divide failures by spans of time where the rows are, in Arrow or in DuckDB.

The first span that contains a failure decides its side. For example, of a window and the time before it:

    spans      03:00 to 04:00 is 1, the week before is 2
    otherwise  0

    03:10 is 1, yesterday is 2, and 05:00 is 0
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.failures.incident_times import Span
from toolkit.failures.sql_results import SqlStep


class TimeUnit(NamedTuple):
    """Whole numbers since 1970, as Arrow and DuckDB compute them from `when_`."""

    arrow: pa.DataType
    sql: str


MILLISECONDS: Final = TimeUnit(pa.timestamp("ms", "UTC"), "epoch_ms(when_)")
NANOSECONDS: Final = TimeUnit(pa.timestamp("ns", "UTC"), "1000 * epoch_us(when_)")
LAST_TIME: Final = 2**63 - 1
"""The end of a span without an end."""


def sides_by_time(
    spans: Sequence[tuple[Span, int]], otherwise: int, unit: TimeUnit
) -> SqlStep:
    """Return the step that adds `side_`, an integer; it is missing for failures without a time.

    The end of a span is not a part of it.
    """
    cases = "".join(
        f" WHEN {unit.sql} >= {start} AND {unit.sql} < {end} THEN {side}"
        for (start, end), side in spans
    )
    side = f"CASE WHEN when_ IS NULL THEN NULL{cases} ELSE {otherwise} END"

    return SqlStep(
        partial(_with_side, tuple(spans), otherwise, unit.arrow),
        f"(SELECT *, CAST({side} AS BIGINT) AS side_ FROM {{rows}})",  # noqa: S608 - numbers only
    )


def _with_side(
    spans: Sequence[tuple[Span, int]],
    otherwise: int,
    unit: pa.DataType,
    table: pa.Table,
) -> pa.Table:
    when = table["when_"].cast(unit, safe=False).cast(pa.int64())
    side = pc.if_else(when.is_valid(), pa.scalar(otherwise, pa.int64()), None)
    # the first span is applied last, because it decides
    for (start, end), number in reversed(spans):
        is_within = pc.and_(pc.greater_equal(when, start), pc.less(when, end))
        side = pc.if_else(is_within, number, side)

    return table.append_column("side_", side)
