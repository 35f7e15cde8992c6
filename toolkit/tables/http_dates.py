"""Read HTTP dates, for example ``Thu, 01 Jan 2026 00:00:00 GMT``, as times.

Most dates have the usual format. They are converted together by Arrow, each distinct date once. The others,
for example dates with a numeric zone, are parsed one by one.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.times import http_date_ms
from toolkit.tables.column_values import unix_ms
from toolkit.tables.schemas import TIME

_EPOCH: Final = pa.scalar(0, pa.timestamp("ms"))
_MONTHS: Final = pa.array(
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
)
_MONTH_NUMBERS: Final = pa.array([f"{number:02}" for number in range(1, 13)])
# The usual format of HTTP dates. Other formats are parsed one by one.
_USUAL_DATE: Final = (
    r"\A[A-Z][a-z]{2}, [0-3][0-9] [A-Z][a-z]{2} [1-9][0-9]{3}"
    r" [0-2][0-9]:[0-5][0-9]:[0-5][0-9] GMT\z"
)


def http_dates(column: pa.Array) -> pa.Array:
    """Return a column of HTTP dates as times, null if a date cannot be read (see `http_date_ms`).

    >>> http_dates(pa.array(["Thu, 01 Jan 2026 00:00:00 GMT", "soon"])).cast(pa.int64()).to_pylist()
    [1767225600000, None]
    """
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    times = pa.nulls(len(distinct), TIME)
    usual = pc.match_substring_regex(distinct, _USUAL_DATE)
    if usual.true_count:
        times = pc.replace_with_mask(times, usual, _usual_dates(distinct.filter(usual)))

    missing = times.is_null()
    if missing.true_count:
        others = [
            unix_ms(http_date_ms(text)) for text in distinct.filter(missing).to_pylist()
        ]
        times = pc.replace_with_mask(times, missing, pa.array(others, TIME))

    return times.take(encoded.indices)


def _usual_dates(dates: pa.Array) -> pa.Array:
    """Return dates of the usual format as times, null for days that do not exist. The weekday is ignored."""
    day = pc.utf8_slice_codeunits(dates, 5, 7)
    month = _MONTH_NUMBERS.take(
        pc.index_in(pc.utf8_slice_codeunits(dates, 8, 11), _MONTHS)
    )
    year, time = (
        pc.utf8_slice_codeunits(dates, 12, 16),
        pc.utf8_slice_codeunits(dates, 17, 25),
    )
    iso = pc.binary_join_element_wise(year, month, day, time, "-")
    times = pc.strptime(iso, format="%Y-%m-%d-%H:%M:%S", unit="ms", error_is_null=True)
    # strptime reads 31 June as 1 July
    exists = pc.and_(
        pc.equal(pc.day(times), day.cast(pa.int64())), pc.greater_equal(times, _EPOCH)
    )

    return pc.if_else(exists, times, None).cast(TIME)
