"""Find when each failure happened, and do not believe a clock that cannot be right.

The time of a failure is the Date header of the response, which the destination writes by its own clock. A
failure happens after its message was created and before it is loaded. A header outside of these bounds, by
more than `TOLERANCE`, is kept in ``stated_failed_at``, and ``failed_at`` is estimated instead: the creation
time plus the default delays of the retries that were made (as the request states, else all that were
allowed), at most the time of loading.

For example, a message was created at 10:00, is retried once, and its entry is loaded at 10:30. The header
states 15:00, so the failure is placed at 10:00:12: the first retry comes after 12 seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.tables.schemas import FAILED_AT, STATED_FAILED_AT, TIME

TOLERANCE: Final = timedelta(minutes=5)
"""How far a destination's clock may be outside of the bounds. Clocks that are set by the network differ by
less than a second; Kerberos, too, accepts five minutes."""

UNKNOWN_DESTINATION: Final = "unknown destination"

_TOLERANCE_MS: Final = int(TOLERANCE / timedelta(milliseconds=1))
_DAY_MS: Final = 86_400_000
_MOST_RETRIES: Final = 100  # of a message; their delays are 96 days together
_DELAYS_MS: Final = [
    min(_DAY_MS, round(1000 * math.exp(min(2.5 * retry, 20))))
    for retry in range(1, _MOST_RETRIES + 1)
]
_DELAYS_UNTIL: Final = pa.array([0, *np.cumsum(_DELAYS_MS).tolist()], pa.int64())
"""Milliseconds from the first attempt to the attempt after n retries, if no other delay was requested."""
_HOST: Final = r"^[A-Za-z][A-Za-z0-9+.\-]*://(?:[^/?#@]*@)?(?P<host>[^/?#@]+)"


class FailureTimes(NamedTuple):
    """The two columns of `bounded_times`."""

    failed_at: pa.Array
    stated_failed_at: pa.Array


def bounded_times(
    stated: pa.Array,
    created_at: pa.Array,
    loaded_at: pa.Scalar | pa.Array,
    retries: Callable[[], pa.Array],
) -> FailureTimes:
    """Return when failures happened, and impossible times of headers.

    `stated` are the times of the Date headers. `loaded_at` is one time, or one per row. `retries` returns the
    retries of each row, and is called only if a time is impossible.

    >>> hours = [pa.array([hour * 3_600_000], pa.int64()).cast(TIME) for hour in (9, 1, 2)]
    >>> bounded_times(*hours, lambda: pa.array([1])).failed_at.cast(pa.int64()).to_pylist()
    [3612182]
    """
    stated_ms, created_ms, loaded_ms = (
        times.cast(pa.int64()) for times in (stated, created_at, loaded_at)
    )
    is_late = pc.greater(stated_ms, pc.add(loaded_ms, _TOLERANCE_MS))
    is_early = pc.less(stated_ms, pc.subtract(created_ms, _TOLERANCE_MS))
    is_impossible = pc.or_(pc.fill_null(is_late, False), pc.fill_null(is_early, False))
    if not is_impossible.true_count:
        return FailureTimes(stated, pa.nulls(len(stated), TIME))

    known_retries = pc.fill_null(retries(), 0)
    known_retries = pc.max_element_wise(
        pc.min_element_wise(known_retries, _MOST_RETRIES), 0
    )
    estimated_ms = pc.add(created_ms, _DELAYS_UNTIL.take(known_retries))
    estimated_ms = pc.min_element_wise(estimated_ms, loaded_ms, skip_nulls=False)
    # the clock of the service may be ahead of the one that loads
    estimated_ms = pc.max_element_wise(estimated_ms, created_ms, skip_nulls=False)
    failed_ms = pc.if_else(is_impossible, estimated_ms, stated_ms)

    return FailureTimes(
        failed_ms.cast(TIME), pc.if_else(is_impossible, stated, pa.scalar(None, TIME))
    )


class ClockErrors:
    """Count failures with an impossible time, by destination and by the error of the clock there.

    Differences are rounded to three digits, which bounds what is stored.
    """

    def __init__(self, counts: Iterable[tuple[str, int, int]] = ()) -> None:
        self._rows = Counter(
            {(destination, seconds): rows for destination, seconds, rows in counts}
        )

    def add(self, failures: pa.Table) -> None:
        """Count the failures of a table that has ``stated_failed_at``."""
        if failures[STATED_FAILED_AT].null_count == failures.num_rows:
            return

        marked = failures.filter(failures[STATED_FAILED_AT].is_valid())
        destinations = pc.fill_null(_hosts(marked), UNKNOWN_DESTINATION).to_pylist()
        seconds = _rounded(_seconds_ahead(marked)).tolist()
        self._rows.update(zip(destinations, seconds, strict=True))

    @property
    def counts(self) -> list[tuple[str, int, int]]:
        """Destination, seconds that the clock is ahead, and failures; JSON values."""
        return [
            (destination, seconds, rows)
            for (destination, seconds), rows in sorted(self._rows.items())
        ]

    @property
    def by_destination(self) -> list[tuple[str, int, int]]:
        """Destination, median seconds that the clock is ahead, and failures; the most failures first."""
        differences: dict[str, list[tuple[int, int]]] = {}
        for destination, seconds, rows in self.counts:
            differences.setdefault(destination, []).append((seconds, rows))
        results = []
        for destination, pairs in differences.items():
            total = sum(rows for _, rows in pairs)
            results.append((destination, _median(pairs), total))

        return sorted(results, key=lambda result: (-result[2], result[0]))


def _median(pairs: list[tuple[int, int]]) -> int:
    """Return the median of values in ascending order. Each comes with the number of occurrences.

    >>> _median([(5, 1), (7, 3), (900, 1)])
    7
    """
    # the first value at which the running total of occurrences reaches the middle
    values, counts = zip(*pairs, strict=True)
    position = int(np.searchsorted(np.cumsum(counts), (sum(counts) + 1) // 2))
    return int(values[position])


def _hosts(failures: pa.Table) -> pa.Array:
    """Return host and port of the URL that failed, or of the workflow."""
    urls = [
        failures[name]
        for name in ("url", "workflow_url")
        if name in failures.column_names
    ]
    hosts = [
        pc.struct_field(pc.extract_regex(column, _HOST), "host") for column in urls
    ]
    if not hosts:
        return pa.nulls(failures.num_rows, pa.string())

    return pc.coalesce(*hosts)


def _seconds_ahead(failures: pa.Table) -> npt.NDArray[np.float64]:
    """Return how far the header is ahead of the estimated time; of the creation time without an estimate."""
    # frames of pandas may have other units
    stated, failed_at, created_at = (
        failures[name].cast(TIME, safe=False)
        for name in (STATED_FAILED_AT, FAILED_AT, "created_at")
    )
    placed = pc.coalesce(failed_at, created_at, stated)
    stated_ms, placed_ms = stated.cast(pa.int64()), placed.cast(pa.int64())
    milliseconds: npt.NDArray[np.float64] = (
        pc.subtract(stated_ms, placed_ms).to_numpy().astype(np.float64)
    )

    return milliseconds / 1000


def _rounded(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round to three digits.

    >>> _rounded(np.array([18_123.0, -172_801.0, 7.0]))
    array([  18100, -173000,       7])
    """
    sizes = np.maximum(np.abs(seconds), 1.0)
    steps = 10 ** np.maximum(np.floor(np.log10(sizes)) - 2, 0)
    rounded: npt.NDArray[np.int64] = (np.round(seconds / steps) * steps).astype(
        np.int64
    )

    return rounded
