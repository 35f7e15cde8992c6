"""HTTP dates as a column of times."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.tables.schemas import TIME
from toolkit.tables.text import http_date

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# What nearly every server sends; all else goes to the patient reader.
_FIXED: Final = (
    r"\A[A-Z][a-z]{2}, [0-3][0-9] [A-Z][a-z]{2} [1-9][0-9]{3} [0-2][0-9]:[0-5][0-9]:[0-5][0-9] GMT\z"
)
_WIDTH: Final = 29


def http_dates(column: pa.Array) -> pa.Array:
    """A column of HTTP dates as times; null where one cannot be read. The same as `http_date` of each.

    >>> http_dates(pa.array(["Thu, 01 Jan 2026 00:00:00 GMT", "soon"])).cast(pa.int64()).to_pylist()
    [1767225600000, None]
    """
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    found = pa.nulls(len(distinct), pa.int64())
    fixed = pc.match_substring_regex(distinct, _FIXED)
    if fixed.true_count:
        found = pc.replace_with_mask(found, fixed, _milliseconds(distinct.filter(fixed)))
    missing = found.is_null()
    if missing.true_count:
        others = [http_date(text) for text in distinct.filter(missing).to_pylist()]
        found = pc.replace_with_mask(found, missing, pa.array(others, pa.int64()))
    return found.cast(TIME).take(encoded.indices)


def _milliseconds(dates: pa.Array) -> pa.Array:
    """Unix milliseconds of dates that are all of the fixed form; null where it is no day since 1970."""
    characters = np.frombuffer(dates.buffers()[2], np.uint8, len(dates) * _WIDTH).reshape(-1, _WIDTH)
    digits = characters.astype(np.int64) - ord("0")

    def number(start: int, end: int) -> npt.NDArray[np.int64]:
        return digits[:, start:end] @ 10 ** np.arange(end - start - 1, -1, -1)

    names = np.ascontiguousarray(characters[:, 8:11]).view("S3").ravel()
    months = np.full(len(dates), -1)
    for place, name in enumerate(_MONTHS):
        months[names == name.encode()] = place
    first = ((number(12, 16) - 1970) * 12 + months).astype("datetime64[M]")
    days = first.astype("datetime64[D]") + (number(5, 7) - 1)
    seconds = ((days.astype(np.int64) * 24 + number(17, 19)) * 60 + number(20, 22)) * 60 + number(23, 25)
    there = (months >= 0) & (days.astype("datetime64[M]") == first) & (number(17, 19) < 24) & (seconds >= 0)  # noqa: PLR2004 - hours
    return pa.array(seconds * 1000, mask=~there)
