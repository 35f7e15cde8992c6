"""Name the destinations whose clock is off, from failures whose time had to be estimated."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from toolkit.failures.selection import opened, select
from toolkit.failures.sources import AnyFrame
from toolkit.tables.failure_times import ClockErrors
from toolkit.tables.receipt import ClockError
from toolkit.tables.schemas import FAILED_AT, STATED_FAILED_AT

_DOING: Final = "finding destinations whose clock is off"
_COLUMNS: Final = ("url", "workflow_url", FAILED_AT, "created_at", STATED_FAILED_AT)


def clock_errors(failures: AnyFrame) -> tuple[ClockError, ...]:
    """Return the destinations whose clock is off, and by how much.

    The time of a failure is the Date header of the destination's response. If it is more than five minutes
    before the creation of the message or after the load, it cannot be right. `failed_at` is then the creation
    time plus the default delays of the retries, and `stated_failed_at` is the time of the header. Not for
    clocks that are off by less than the bounds show: a clock that is one hour ahead is believed for a failure
    that was loaded two hours later.

    Parameters
    ----------
    failures : frame
        With the columns `url`, `workflow_url`, `failed_at`, `created_at`, `stated_failed_at`, as loaders
        return them. Frames without the last one, of older versions, have no estimated times.

    Returns
    -------
    tuple of ClockError
        With `destination` (host and port), `seconds_ahead` (negative if the clock is slow) and `rows`. The
        destination with the most failures comes first. Empty if all times are possible.

    Raises
    ------
    InputError
        If `failures` is not a frame, or a column is missing.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 11:00"], utc=True)
    >>> frame = pd.DataFrame({
    ...     "url": "https://app.example.com/pay", "workflow_url": None, "created_at": times,
    ...     "failed_at": times, "stated_failed_at": [times[0] + pd.Timedelta("5h"), None],
    ... })
    >>> [str(error) for error in clock_errors(frame)]
    ['the clock of app.example.com is 5 hours ahead']
    """
    if STATED_FAILED_AT not in opened(failures, doing=_DOING).names:
        return ()

    marked = select(failures, [STATED_FAILED_AT], doing=_DOING).then(_marked).count()
    if not marked["count_"][0].as_py():
        return ()

    # the other columns are read only if a time is marked
    errors = ClockErrors()
    for table in select(failures, _COLUMNS, doing=_DOING).then(_marked).map():
        errors.add(table)
    return tuple(ClockError(*error) for error in errors.by_destination)


def _marked(table: pa.Table) -> pa.Table:
    return table.filter(table[STATED_FAILED_AT].is_valid())
