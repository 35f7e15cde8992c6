"""Measure the life of entries: the time from creation to failure, retries, and the time until they expire."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.errors import InputError
from toolkit.base.times import milliseconds, parse_duration
from toolkit.failures.partial_results import FirstRows
from toolkit.failures.retention import Retention, retention_of
from toolkit.failures.selection import (
    Counted,
    in_milliseconds,
    named,
    opened,
    select,
    select_retained,
    timestamps,
    typed_frame,
    when_counted,
    with_time,
)
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.failures.sql_results import SqlStep
from toolkit.tables.frames import made_visible
from toolkit.tables.schemas import TIME


@dataclass(frozen=True)
class LifetimeTuning:
    """Constants of durations and retries, with their reasons."""

    delays: tuple[int, ...] = (
        0, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 57600, 86400, 172800, 604800,
    )  # fmt: skip
    """Seconds from which a bin of delays begins: common durations with similar ratios, so that retries after
    minutes and after a day both show."""
    most_retries: int = 1_000
    """The largest number of retries that is counted. Rows with a larger one, which is likely damaged, are
    left out and counted, so that one wrong number does not stretch the table."""
    steps: tuple[timedelta, ...] = tuple(
        timedelta(hours=hours) for hours in (0.25, 0.5, 1, 3, 6, 12, 24, 48, 168)
    )
    """Lengths of a bin of times until failures expire, as people divide a day and a week."""
    quarter: float = 0.25
    """Hours that are counted together first. Every step is a multiple."""
    most_bins: int = 48
    """Bins of a plot. More bars could not be told apart."""


_TUNING: Final = LifetimeTuning()
_DELAYS: Final = np.array(_TUNING.delays, dtype=np.float64)
_EXPIRING: Final = ("dlq_id", "workflow_url", "failed_at", "created_at")
_DOING: Final = "finding expiring failures"
_SOONEST: Final = (("when_", "ascending"), ("dlq_id", "ascending"))
_ALL_ROWS: Final = 1 << 62
# hours
_LIMITS: Final = {
    "already due": 0,
    "within 6 hours": 6,
    "within 24 hours": 24,
    "within 3 days": 72,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class FailureDelays(Counted):
    """Counts by the time from creation to failure."""

    # seconds, shape (bins + 1,); a bin includes the lower edge, the last is open
    edges: NDArray[np.float64]
    counts: NDArray[np.int64]  # shape (bins,)
    median: float  # seconds; NaN if nothing was counted
    left_out: int  # rows without both times


def failure_delays(failures: AnyFrame) -> FailureDelays:
    """Count failures by the time from `created_at` to `failed_at`, from the shortest to the longest.

    Most of this time is spent in retries: by default they come after 12 seconds, 2.5 minutes, half an hour, 6
    hours and a day. `failed_at` has whole seconds and `created_at` milliseconds. If a message seems to have
    failed before it was created, it counts as 0 seconds.

    Parameters
    ----------
    failures : frame
        With the columns `created_at` and `failed_at`.

    Returns
    -------
    FailureDelays

    Raises
    ------
    InputError
        If a column is missing or does not contain times.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 12:30"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times - pd.Timedelta("20s")})
    >>> failure_delays(frame).median
    20.0
    """
    columns = ["created_at", "failed_at"]
    doing = "counting failures by the time until they failed"
    table = select(failures, columns, doing=doing).whole_table(doing)
    durations = (
        timestamps(table, "failed_at") - timestamps(table, "created_at")
    ).dt.total_seconds()
    # The two times are of different clocks, so a failure can appear to be earlier than the creation.
    known = np.maximum(durations.dropna().to_numpy(dtype=np.float64), 0.0)
    # "right", so that a bin includes the lower edge: a delay of exactly 60 s is in the bin from 60 s.
    counts = np.bincount(
        np.searchsorted(_DELAYS, known, side="right") - 1, minlength=len(_DELAYS)
    )
    used = np.flatnonzero(counts)
    low, high, median = 0, 0, float("nan")
    if len(used):
        low, high, median = int(used[0]), int(used[-1]) + 1, float(np.median(known))
    return FailureDelays(
        edges=np.append(_DELAYS, np.inf)[low : high + 1],
        counts=counts[low:high].astype(np.int64),
        median=median,
        left_out=len(durations) - len(known),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class RetriesUsed:
    """Counts by number of retries."""

    retries: NDArray[np.int64]  # from 0 to the most, without gaps
    used_up: NDArray[np.int64]  # rows that used all retries, by number of retries
    others: NDArray[np.int64]  # the other rows
    allowed_only: bool  # whether these are allowed retries (failures) instead of made ones (callbacks)
    left_out: int  # rows with a missing, negative or too large (above 1,000) number

    @property
    def total(self) -> int:
        """Return the number of rows that were counted."""
        return int(self.used_up.sum() + self.others.sum())


def retries_used(frame: AnyFrame) -> RetriesUsed:
    """Count rows by the number of retries.

    Callbacks have the retries that were made (`retried`) and allowed (`max_retries`). An entry of the DLQ has
    only the allowed ones: they were used up, or the endpoint answered that another attempt cannot help.

    Parameters
    ----------
    frame : frame
        Failures, with the column `max_retries`, or callbacks, with `retried` as well.

    Returns
    -------
    RetriesUsed

    Raises
    ------
    InputError
        If `max_retries` is missing.

    Examples
    --------
    >>> used = retries_used(pd.DataFrame({"retried": [1, 2, 2], "max_retries": [3, 3, 2]}))
    >>> used.retries.tolist(), used.used_up.tolist(), used.others.tolist()
    ([0, 1, 2], [0, 0, 1], [0, 1, 1])
    """
    doing = "counting retries"
    allowed_only = "retried" not in opened(frame, doing=doing, name="frame").names
    columns = ["max_retries"] if allowed_only else ["retried", "max_retries"]
    rows = select(frame, columns, doing=doing, name="frame").count(*columns).to_pylist()
    counts = np.zeros((2, _TUNING.most_retries + 1), dtype=np.int64)
    most, left_out = -1, 0

    for row in rows:
        number, count = row[columns[0]], row["count_"]
        if number is not None and 0 <= number <= _TUNING.most_retries:
            most = max(most, int(number))
            counts[0 if number == row["max_retries"] else 1, int(number)] += count
        else:
            left_out += count

    return RetriesUsed(
        retries=np.arange(most + 1, dtype=np.int64),
        used_up=counts[0, : most + 1],
        others=counts[1, : most + 1],
        allowed_only=allowed_only,
        left_out=left_out,
    )


def find_expiring(
    failures: AnyFrame,
    retention: str | timedelta | None = None,
    now: datetime | None = None,
    *,
    within: str | timedelta | None = None,
) -> pd.DataFrame:
    """Return when each failure expires: `retention` after `failed_at`, else after `created_at`.

    The service does not document the start of the retention. If it is `created_at`, entries with five retries
    expire up to 31 hours earlier.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at`. Rows of a snapshot that have
        left the queue (`gone_before`) are ignored.
    retention : str or timedelta, optional
        How long the queue keeps an entry, by plan: "3d", "7d", "90d". If omitted, the retention of the last
        sync of the snapshot (`sync_failures`), or ``TOOLKIT_RETENTION``, or seven days. If the queue has an
        older entry, the retention is unknown, and so is the time at which each failure expires.
    now : datetime, optional
        Start of the first hour; without a time zone, UTC. If omitted, the current time.
    within : str or timedelta, optional
        Only failures that expire within this time, or are already due, for example "24h". DuckDB and the
        workers of Dask choose them, so that only these rows arrive. If omitted, all failures.

    Returns
    -------
    pandas.DataFrame
        One row per failure, the next to expire first: `dlq_id`, `workflow_url` (str), `expires_at`
        (datetime64[ms, UTC]; missing, and last, if no time is known), `hours_left` (float64, negative if
        already due), `basis` (str: the column with the start, missing if no time is known).

    Raises
    ------
    InputError
        If a column is missing, or `retention`, `now` or `within` cannot be read. Also if `within` is passed
        and the retention is unknown, because an empty result would mean that nothing expires.

    Examples
    --------
    >>> failed, never = pd.to_datetime(["2026-01-01"], utc=True), pd.to_datetime([None], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": "a", "workflow_url": "u", "failed_at": failed, "created_at": never})
    >>> find_expiring(frame, "7d", pd.Timestamp("2026-01-07", tz="UTC"))["hours_left"].tolist()
    [24.0]
    """
    rows = select_retained(failures, _EXPIRING, doing=_DOING).then(with_time)
    if within is None:
        table = rows.whole_table(_DOING)
        kept = _kept(failures, retention, now)
    else:
        # one time for the choice and for the hours that are left
        now = when_counted(now)
        until = now + parse_duration(within, name="within")
        kept = _kept(failures, retention, now)
        if not kept.is_known:
            raise InputError(
                _DOING,
                got=f"within={within!r}, and an entry that is older than the retention: it is {kept.words}",
                expected="a retention that no entry in the queue has passed",
                next_step="Pass the retention of your plan, for example retention='30d'.",
            )
        table = _due_until(rows, kept, until)
    expiries = _expiries(table, kept, now)

    return expiries.sort_values(
        ["expires_at", "dlq_id"], na_position="last", ignore_index=True
    )


def _due_until(rows: SelectedRows, kept: Retention, until: datetime) -> pa.Table:
    """Return the failures that expire until a time; none if the retention is unknown."""
    if not kept.is_known:
        return rows.reduce(FirstRows(_SOONEST, 0))

    # A failure expires at `when_ + length`, and `when_` counts in whole milliseconds.
    last = milliseconds(until - kept.length)
    chosen = rows.then(
        SqlStep(
            partial(_until, last),
            f"(SELECT * FROM {{rows}} WHERE epoch_ms(when_) <= {last})",  # noqa: S608 - a number
        )
    )
    computed = chosen.computed_elsewhere(FirstRows(_SOONEST, _ALL_ROWS))
    return chosen.table() if computed is None else computed


def _until(last: int, table: pa.Table) -> pa.Table:
    """Return the failures of a batch until a time in milliseconds since 1970."""
    return table.filter(pc.less_equal(in_milliseconds(table), last))


def next_expiring(
    failures: AnyFrame, kept: Retention, now: datetime, *, most: int
) -> pd.DataFrame:
    """Return the first failures of `find_expiring` that are not due, without loading all failures."""
    # A failure expires at `when + length`, so it is due later than `now` if `when >= now - length`.
    start = now - kept.length
    if not kept.is_known:
        most = 0
    rows = select_retained(failures, _EXPIRING, doing=_DOING).then(with_time)
    soonest = FirstRows(_SOONEST, most)
    expiries = _expiries(rows.then(partial(_since, start)).reduce(soonest), kept, now)

    return expiries.sort_values(["expires_at", "dlq_id"], ignore_index=True)


def _since(start: datetime, table: pa.Table) -> pa.Table:
    """Return the failures of a batch after a time."""
    when = table["when_"].cast(pa.timestamp("us", "UTC"), safe=False)
    return table.filter(pc.greater_equal(when, pa.scalar(start, when.type)))


def _with_limit(kept: Retention, now: datetime, table: pa.Table) -> pa.Table:
    """Add `limit_`, the position in `_LIMITS`, "later" or "unknown", and `at_`: the time if it is not due."""
    times = _times_left(table, kept, now)
    hours = times["hours_left"].to_numpy(dtype="float64", na_value=np.nan)
    edges = list(_LIMITS.values())
    # right=True: an entry that expires in exactly six hours is within six hours; NaN comes last
    limits = np.where(
        np.isnan(hours), len(edges) + 1, np.digitize(hours, edges, right=True)
    )
    at = pa.array(times["expires_at"].where(hours > 0), TIME)

    return table.append_column("limit_", pa.array(limits)).append_column("at_", at)


def _kept(
    failures: AnyFrame,
    retention: str | timedelta | Retention | None,
    now: datetime | None,
) -> Retention:
    if isinstance(retention, Retention):
        return retention
    return retention_of(failures, retention, when_counted(now))


def _times_left(table: pa.Table, kept: Retention, now: datetime | None) -> pd.DataFrame:
    expires = timestamps(table, "when_").astype("datetime64[ms, UTC]") + kept.length
    if not kept.is_known:
        expires = expires.where(expires.isna())  # nothing is known to expire
    return typed_frame(
        expires_at=("datetime64[ms, UTC]", expires),
        hours_left=(
            "float64",
            (expires - pd.Timestamp(when_counted(now))).dt.total_seconds() / 3600,
        ),
    )


def _expiries(table: pa.Table, kept: Retention, now: datetime | None) -> pd.DataFrame:
    """Return when each failure expires, in the order of the rows."""
    left = _times_left(table, kept, now)
    basis = np.where(table["fell_back_"], "created_at", "failed_at")

    return typed_frame(
        dlq_id=("str", table["dlq_id"].to_pylist()),
        workflow_url=("str", table["workflow_url"].to_pylist()),
        expires_at=("datetime64[ms, UTC]", left["expires_at"]),
        hours_left=("float64", left["hours_left"]),
        basis=("str", pd.Series(basis, dtype="str").where(left["expires_at"].notna())),
    )


def count_expiring(
    failures: AnyFrame,
    retention: str | timedelta | Retention | None = None,
    now: datetime | None = None,
    *,
    by: str | None = None,
) -> pd.DataFrame:
    """Count failures by the time left until they expire, all together or by a column.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at` and `by`.
    retention, now
        As in `find_expiring`.
    by : str, optional
        Column of single values: ``"workflow_url"``, or ``"signature"``, which `FailureGroups.assign` adds.

    Returns
    -------
    pandas.DataFrame
        `when` (str), `count` (Int64): already due, within 6 hours, 24 hours, 3 days, later, unknown. Each
        failure is counted once, in the first row that applies. With `by`, one row per value, and one column
        per time: `by`, then `already due`, `within 6 hours`, … `unknown` (Int64), and `next_at`
        (datetime64[ms, UTC], when the next failure expires that is not due). The value that loses most
        failures in the next 24 hours comes first.

    Raises
    ------
    InputError
        As in `find_expiring`.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 00:00", "2026-01-01 12:00", None], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "failed_at": times})
    >>> counts = count_expiring(frame.assign(created_at=times), "7d", datetime(2026, 1, 8, 8, tzinfo=UTC))
    >>> counts["count"].tolist()
    [1, 1, 0, 0, 0, 1]
    """
    columns = ["failed_at", "created_at"]
    keys = []
    if by is not None:
        # raises an error that names the argument
        select(failures, [], doing=_DOING, chosen={"by": by})
        columns.append(by)
        keys.append(by)

    now = when_counted(now)
    kept = _kept(failures, retention, now)
    rows = select_retained(failures, dict.fromkeys(columns), doing=_DOING)
    rows = rows.then(with_time).then(partial(_with_limit, kept, now))
    table = rows.count(*keys, "limit_", next_=("at_", "min"))
    counts = table.to_pandas()
    names = [*_LIMITS, "later", "unknown"]

    if by is None:
        by_limit = counts.set_index("limit_")["count_"]
        return typed_frame(
            when=("str", names),
            count=("Int64", by_limit.reindex(range(len(names)), fill_value=0)),
        )

    counts["by_"] = [named(value) for value in table[by].to_pylist()]
    counted = counts.pivot_table(
        index="by_", columns="limit_", values="count_", aggfunc="sum", fill_value=0
    )
    counted = counted.reindex(columns=range(len(names)), fill_value=0)
    counted.columns = pd.Index(names)
    counted = counted.astype("Int64").assign(
        next_at=counts.groupby("by_")["next_"].min()
    )
    order = counted.assign(
        soon=-counted[names[1:3]].sum(axis=1), by=counted.index.astype(str)
    )
    order = order.sort_values(["soon", "next_at", "by"])
    by_group = (
        order.drop(columns=["soon", "by"])
        .rename_axis(by)
        .reset_index()
        .astype({by: "str"})
    )

    return made_visible(by_group)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpiryBins(Counted):
    """Counts of failures that expire in each span of the coming time."""

    now: datetime  # start of the first bin, UTC
    step: timedelta  # width of a bin
    counts: NDArray[np.int64]  # shape (bins,)
    due: int  # failures that are already due, which are in no bin
    unknown: int  # failures without a time, which are in no bin


def expiry_bins(expiries: AnyFrame, now: datetime) -> ExpiryBins:
    """Count the failures that expire in each span of time after `now`, by the result of `find_expiring`.

    Parameters
    ----------
    expiries : frame
        A result of `find_expiring` for this time, with the column `hours_left` (float64).
    now : datetime
        Start of the first bin, with a time zone.

    Returns
    -------
    ExpiryBins
        At most 48 bins from 15 minutes to a week wide (more if failures expire later).

    Raises
    ------
    InputError
        If the column `hours_left` is missing or does not contain numbers.

    Examples
    --------
    >>> now = pd.Timestamp("2026-01-08 09:00", tz="UTC")
    >>> bins = expiry_bins(pd.DataFrame({"hours_left": [1.0, 3.5, -2.0, None]}), now)
    >>> bins.total, bins.due, bins.unknown
    (2, 1, 1)
    """
    rows = select(
        expiries,
        ["hours_left"],
        doing="counting failures by their expiry",
        name="expiries",
    )
    return _bins(rows.then(_with_quarter), now)


def bins_of_failures(failures: AnyFrame, kept: Retention, now: datetime) -> ExpiryBins:
    """Return the bins of `expiry_bins` for failures, which are counted batch by batch."""
    rows = select_retained(failures, ["failed_at", "created_at"], doing=_DOING)
    hours = rows.then(with_time).then(partial(_hours_left, kept, now))
    return _bins(hours.then(_with_quarter), now)


def _hours_left(kept: Retention, now: datetime, table: pa.Table) -> pa.Table:
    """Return the column `hours_left`, as in `find_expiring`."""
    when = table["when_"].cast(TIME, safe=False).cast(pa.timestamp("us", "UTC"))
    if not kept.is_known:
        return pa.table({"hours_left": pa.nulls(len(when), pa.float64())})

    # the differences are whole microseconds
    passed = pc.subtract(when, pa.scalar(now - kept.length, when.type))
    seconds = pc.divide(passed.cast(pa.int64()).cast(pa.float64()), 1e6)
    return pa.table({"hours_left": pc.divide(seconds, 3600)})


def _with_quarter(table: pa.Table) -> pa.Table:
    """Add `quarter_`: how many quarters of an hour are left, -1 if the failure is due, null if unknown."""
    hours = table["hours_left"].cast(pa.float64())
    # NaN of a pandas frame is a missing value
    hours = pc.if_else(pc.is_nan(hours), None, hours)
    quarters = pc.floor(pc.divide(hours, _TUNING.quarter))
    quarter = pc.max_element_wise(quarters, -1.0, skip_nulls=False).cast(pa.int64())

    return pa.table({"quarter_": quarter, "hours_left": hours})


def _bins(rows: SelectedRows, now: datetime) -> ExpiryBins:
    """Return the bins, which are whole quarters of an hour wide."""
    table = rows.count("quarter_", longest=("hours_left", "max"))
    counts = table.to_pandas().set_index("quarter_")
    coming = counts[counts.index >= 0]
    longest = timedelta(0)
    if len(coming):
        longest = timedelta(hours=float(coming["longest"].max()))
    step = next(
        (step for step in _TUNING.steps if longest < _TUNING.most_bins * step),
        _TUNING.steps[-1],
    )
    indices = coming.index.to_numpy(dtype=np.int64) // (step // timedelta(minutes=15))
    # sums of whole numbers below 2**53 are exact
    sums = np.bincount(indices, weights=coming["count_"])

    return ExpiryBins(
        now=now.astimezone(UTC),
        step=step,
        counts=sums.astype(np.int64),
        due=int(counts["count_"][counts.index < 0].sum()),
        unknown=int(counts["count_"][counts.index.isna()].sum()),
    )
