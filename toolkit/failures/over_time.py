"""Count failures per bin of time, with usual counts, changes of the rate and named times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.arguments import text, whole, wrong
from toolkit.base.errors import InputError
from toolkit.base.time_zones import time_zone
from toolkit.base.times import DAY_MS, parse_time
from toolkit.failures.change_points import change_points
from toolkit.failures.gaps import Spans, bins_in, gaps_of
from toolkit.failures.selection import (
    EARLIEST,
    LATEST,
    Counted,
    largest_groups,
    select,
    told_until,
    typed_frame,
    with_minute,
    with_time,
)
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.failures.sql_results import SqlStep
from toolkit.failures.time_bins import (
    MINUTE,
    bin_numbers,
    bin_width,
    bins_of,
    localized,
)
from toolkit.secrets.redaction import Redactor

Markers: TypeAlias = Mapping[str, Any] | Iterable[Any]
"""Names and their times, or pairs of a time and a name."""

_FEWEST: Final = 3  # earlier bins of the same hour, at least, for a baseline
_MOST: Final = 8  # earlier bins, at most: the latest count
_DAY: Final = timedelta(days=1)
_MARKERS: Final = 200
# selections whose largest groups are kept; the latest changes count
_MOST_MARKED: Final = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class FailureTrend(Counted):
    """Counts per time bin and group. If groups were merged, the last one is ``other (n)``."""

    starts: pd.DatetimeIndex  # start of each bin, UTC, ascending, without gaps
    step: timedelta  # width of a bin
    groups: tuple[str, ...]  # most failures first
    counts: NDArray[np.int64]  # shape (groups, bins)
    merged: int  # number of groups that were merged into the last one, or 0
    fell_back: int  # rows without `failed_at`, counted at `created_at` instead, which can be a day earlier
    undated: int  # rows without a plausible time (2000 to 2099), which are in no bin
    markers: tuple[
        tuple[datetime, str], ...
    ] = ()  # times and names, the earliest first
    # shape (bins,): runs that started, if they are known
    runs: NDArray[np.int64] | None = None
    gaps: Spans = ()  # spans with missing failures, which expired before a sync read them
    tz: str = "UTC"  # time zone of days and of times that are shown

    @cached_property
    def ends(self) -> pd.DatetimeIndex:
        """Return the end of each bin, UTC. A day has 23 or 25 hours if clocks are changed."""
        if not len(self.starts):
            return self.starts

        # Add whole days to local times, because the day of a clock change has 23 or 25 hours.
        local = self.starts[-1:].tz_convert(self.tz).tz_localize(None) + self.step
        last = (
            localized(local, self.tz)
            if self.step % _DAY == timedelta()
            else self.starts[-1:] + self.step
        )
        return pd.DatetimeIndex(self.starts[1:].append(last.as_unit("ms")))

    @cached_property
    def in_gap(self) -> NDArray[np.bool_]:
        """Return which bins overlap with a gap."""
        return bins_in(self.gaps, self.starts, self.ends)

    @cached_property
    def baseline(self) -> NDArray[np.float64]:
        """Return the usual count of each bin, in all groups; NaN if too few weeks or days are known.

        Bins in a gap do not count.
        """
        return usual_counts(self.counts.sum(axis=0), self.step, ~self.in_gap)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Return the changes of the rate of all groups: `change_points` with `start` (the time).

        Bins in a gap are excluded, as if the bins before and after the gap were neighbours.
        """
        # Bins in a gap are removed rather than counted as 0: their count is not known, and a
        # low count would be a change of the rate.
        known = np.flatnonzero(~self.in_gap)
        changes = change_points(self.counts.sum(axis=0)[known])
        bins = known[changes["at"].to_numpy(dtype=np.int64)].astype(np.int64)

        return changes.assign(at=bins, start=self.starts[bins])

    @property
    def rates(self) -> NDArray[np.float64] | None:
        """Return failures per run, shape (groups, bins), NaN in bins without runs; None if not known."""
        if self.runs is None:
            return None

        return np.asarray(
            self.counts / np.where(self.runs > 0, self.runs, np.nan), dtype=np.float64
        )

    @property
    def frame(self) -> pd.DataFrame:
        """Return one row per bin, of all groups.

        `start` (datetime64[ms, UTC]), `count` (Int64), `baseline`, `level` (float64: the mean between two
        changes), `runs` (Int64), `rate` (float64, failures per run), `marker` (str: names in the bin),
        `in_gap` (boolean: failures may be missing, so the bin counts neither for `baseline` nor for `level`).
        """
        bins = len(self.starts)
        runs: Any = np.full(bins, pd.NA)
        rates = np.full(bins, np.nan)
        if self.runs is not None and self.rates is not None:
            runs, rates = self.runs, self.rates.sum(axis=0)
        return typed_frame(
            start=("datetime64[ms, UTC]", self.starts),
            count=("Int64", self.counts.sum(axis=0)),
            baseline=("float64", self.baseline),
            level=("float64", self._levels()),
            runs=("Int64", runs),
            rate=("float64", rates),
            marker=("str", self._marker_names()),
            in_gap=("boolean", self.in_gap),
        )

    def _levels(self) -> NDArray[np.float64]:
        """Return the mean count between two changes for each bin; NaN if all bins are in a gap."""
        counts = np.where(self.in_gap, np.nan, self.counts.sum(axis=0))
        levels = np.full(len(counts), np.nan)
        for first, end in pairwise([0, *self.changes["at"].astype(int), len(counts)]):
            if not self.in_gap[first:end].all():
                levels[first:end] = np.nanmean(counts[first:end])

        return levels

    def _marker_names(self) -> list[str | None]:
        """Return the names of the markers in each bin."""
        names: list[list[str]] = [[] for _ in self.starts]
        for when, name in self.markers:
            position = (
                int(self.starts.searchsorted(pd.Timestamp(when), side="right")) - 1
            )
            if position >= 0 and when < self.ends[position]:
                names[position].append(name)

        return [", ".join(names_of_bin) or None for names_of_bin in names]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per group and bin: `group` (str), `start` (datetime64[ms, UTC]), `count` (Int64)."""
        groups, bins = self.counts.shape
        return typed_frame(
            group=("str", np.repeat(np.array(self.groups, dtype=object), bins)),
            start=("datetime64[ms, UTC]", list(self.starts) * groups),
            count=("Int64", self.counts.reshape(-1)),
        )


def count_over_time(
    failures: AnyFrame,
    *,
    by: str | None = None,
    freq: str | timedelta | None = None,
    top: int = 8,
    now: datetime | None = None,
    tz: str | tzinfo | None = None,
) -> pd.DataFrame:
    """Count failures per time bin of `failed_at`, or of `created_at` if that is missing.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to group by, for example `workflow_url`. If omitted, all failures are one
        group.
    freq : str or timedelta, optional
        Width of a bin, in whole minutes ("15min", "6h", "1d"). If omitted, at most 60 bins are made. Bins of
        whole days begin at midnight in `tz`, so that a day has 23 or 25 hours if clocks are changed, and
        weeks begin on Mondays. Narrower bins have equal widths, counted from midnight.
    top : int
        Number of groups, at least 1; all others are merged into ``other (n)``. The largest groups are kept,
        and in turns the largest of the last day, of the tallest bar, and of marked changes.
    now : datetime, optional
        Bins extend to this time, or to the end of the data if that is earlier, because later failures are
        unknown. If omitted, bins extend to the last failure.
    tz : str or tzinfo, optional
        The time zone of midnight, for example ``"Europe/Berlin"``. If omitted, ``TOOLKIT_TZ``, or UTC. The
        frame stays in UTC.

    Returns
    -------
    pandas.DataFrame
        One row per group and bin, without holes, the largest group first: `group` (str), `start`
        (datetime64[ms, UTC]), `count` (Int64). Failures without a plausible time (2000 to 2099) are in no
        bin.

    Raises
    ------
    InputError
        If a column is missing, `freq` is not a width, or the result would have more than 5,000 bins.

    Examples
    --------
    >>> hours = pd.to_datetime(["2026-01-01 00:10", "2026-01-01 00:20", "2026-01-01 02:00"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": hours, "created_at": hours})
    >>> count_over_time(frame, freq="1h")["count"].tolist()
    [2, 0, 1]
    """
    return failure_trend(failures, by=by, freq=freq, top=top, now=now, tz=tz).to_frame()


def failure_trend(
    failures: AnyFrame,
    *,
    by: str | None = None,
    freq: str | timedelta | None = None,
    top: int = 8,
    now: datetime | None = None,
    markers: Markers | None = None,
    runs: AnyFrame | None = None,
    gaps: Spans | None = None,
    tz: str | tzinfo | None = None,
) -> FailureTrend:
    """Count failures per time bin, as `count_over_time` does, with usual counts and named times.

    Parameters
    ----------
    failures, by, freq, top, now, tz
        As in `count_over_time`.
    markers : mapping, Series or iterable of pairs, optional
        Times with names, for example deployments: a mapping from name to time, a Series of times with names
        as the index, or pairs of a time and a name.
    runs : frame, optional
        The run log (`load_runs`), for the runs that started in each bin.
    gaps : tuple of pairs of datetime, optional
        Spans of time with missing failures. If omitted, the gaps of the snapshot of these failures.

    Returns
    -------
    FailureTrend
        `baseline`, `changes` and `frame` are computed when first read.

    Raises
    ------
    InputError
        As in `count_over_time`, or if `markers` cannot be read.

    Examples
    --------
    >>> hours = pd.to_datetime(["2026-01-01 00:10", "2026-01-01 00:20", None], utc=True)
    >>> frame = pd.DataFrame({"failed_at": hours, "created_at": pd.Timestamp("2026-01-01 02:00", tz="UTC")})
    >>> trend = failure_trend(frame, freq="1h")
    >>> trend.counts.tolist(), trend.fell_back
    ([[2, 0, 1]], 1)
    """
    doing = "counting failures over time"
    top, zone = whole("top", top), time_zone(tz)
    if now is not None:
        now = told_until(failures, parse_time(now, exact=True, name="now"))
    wanted = started = None
    if freq is not None:
        wanted = bin_width(freq)
    chosen: dict[str, str] = {}
    if by is not None:
        chosen["by"] = by
    selected = select(failures, ["failed_at", "created_at"], doing=doing, chosen=chosen)
    timed = selected.then(with_time).then(with_minute)
    span = timed.count(first=("minute_", "min"), last=("minute_", "max"))
    ends = pa.concat_arrays([span[name].combine_chunks() for name in ("first", "last")])
    ends_ms = ends.drop_null().to_numpy() * MINUTE
    starts, width = bins_of(ends_ms, wanted, now, doing, zone)
    # Counts by bin instead of by minute do not grow with the time span.
    counted = timed.then(partial(_with_bin, starts)).count(
        "bin_", "fell_back_", *chosen.values()
    )
    rows = counted["count_"].to_numpy()
    dated = counted["bin_"].is_valid().to_numpy()
    bins = counted["bin_"].drop_null().to_numpy()
    # without a column, all failures are one group
    values = np.full(len(rows), "failures", dtype=object)
    if by:
        values = np.array(counted[by].to_pylist(), dtype=object)
    named_times = read_markers(markers, now)
    marked = _marked(
        np.bincount(bins, rows[dated], len(starts)), bins, starts, width, named_times
    )
    groups, positions, merged = largest_groups(
        values[dated].tolist(), rows[dated], top, marked
    )
    counts = np.zeros((len(groups), len(starts)), dtype=np.int64)
    # `counts[positions, bins] += …` would add only once per cell if a cell occurs several times.
    np.add.at(counts, (positions, bins), rows[dated])
    if runs is not None:
        started = _started(runs, starts, width, doing)
    if gaps is None:
        gaps = gaps_of(failures)
    return FailureTrend(
        starts=pd.DatetimeIndex(
            pd.to_datetime(starts, unit="ms", utc=True).as_unit("ms")
        ),
        step=timedelta(milliseconds=width),
        groups=groups,
        counts=counts,
        merged=merged,
        fell_back=int(rows[counted["fell_back_"].to_numpy()].sum()),
        undated=int(rows[~dated].sum()),
        markers=named_times,
        runs=started,
        gaps=gaps,
        tz=zone.key,
    )


def _marked(
    totals: NDArray[Any],
    bins: NDArray[np.int64],
    starts: NDArray[np.int64],
    width: int,
    markers: Sequence[tuple[datetime, str]],
) -> list[NDArray[np.bool_]]:
    """Return which counts are in the last day, in the tallest bar, and in the bars after each change upwards.

    Readers look at these bars first. The largest groups there are kept, so that they have names and colours.
    """
    if not len(starts):
        return []

    recent = bins >= len(starts) - max(DAY_MS // width, 1)
    chosen = [recent, bins == int(totals.argmax())]
    changes = change_points(totals)
    upwards = (
        changes[changes["after"] > changes["before"]]["at"]
        .to_numpy(dtype=np.int64)
        .tolist()
    )
    times = np.array(
        [round(when.timestamp() * 1000) for when, _ in markers], dtype=np.int64
    )
    within = times[(times >= starts[0]) & (times < starts[-1] + width)]
    first_bins = sorted({*upwards, *bin_numbers(within, starts).tolist()})
    # the bar of the change and the next one: later ones may belong to another change
    chosen += [(bins >= first) & (bins <= first + 1) for first in reversed(first_bins)]

    return chosen[:_MOST_MARKED]


def _with_bin(starts: NDArray[np.int64], table: pa.Table) -> pa.Table:
    """Add `bin_`, the number of the bin that contains `minute_`; null if that is null."""
    minutes = table["minute_"].to_pandas().to_numpy(dtype="float64") * MINUTE
    bins = np.where(np.isnan(minutes), np.nan, bin_numbers(minutes, starts))
    return table.append_column("bin_", pa.array(bins, from_pandas=True).cast("int64"))


def by_minute(
    rows: SelectedRows, *keys: str
) -> tuple[pa.Table, NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """Count rows by minute: return the counts, the rows of each, which have a time, and these times in ms."""
    counted = rows.then(with_minute).count("minute_", "fell_back_", *keys)
    dated = counted["minute_"].is_valid().to_numpy()
    minutes = counted["minute_"].drop_null().to_numpy() * MINUTE

    return counted, counted["count_"].to_numpy(), dated, minutes


def _started(
    runs: AnyFrame, starts: NDArray[np.int64], width: int, doing: str
) -> NDArray[np.int64]:
    """Count the runs that started in each bin. Minutes are counted where the rows are."""
    selected = select(runs, ["created_at"], doing=doing, name="runs")
    counted = selected.then(_with_start).then(with_minute).count("minute_")
    if not len(starts):
        return starts

    minutes = counted["minute_"].to_numpy() * MINUTE
    is_shown = (minutes >= starts[0]) & (minutes < starts[-1] + width)
    bins = bin_numbers(minutes[is_shown], starts)
    rows = counted["count_"].to_numpy()[is_shown]

    return np.bincount(bins, rows, len(starts)).astype(np.int64)


def _started_rows(table: pa.Table) -> pa.Table:
    """Add `when_`, and omit the rows without a plausible time, which no bin contains."""
    when = table["created_at"]
    not_early = pc.greater_equal(when, pa.scalar(EARLIEST, when.type))
    not_late = pc.less(when, pa.scalar(LATEST, when.type))
    return table.append_column("when_", when).filter(pc.and_(not_early, not_late))


_with_start: Final = SqlStep(
    _started_rows,
    "(SELECT *, created_at AS when_ FROM {rows} "  # noqa: S608 - constants
    f"WHERE created_at >= TIMESTAMPTZ '{EARLIEST}' AND created_at < TIMESTAMPTZ '{LATEST}')",
)
"""Adds `when_`, the start of each run."""


def usual_counts(
    counts: NDArray[np.int64], step: timedelta, known: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return the usual count of each bin: the median of the same hour of earlier weeks, or of earlier days.

    This is the lower median, so that a burst in half of the weeks is not usual. For example, 3, 4, 50 and 60
    in four earlier weeks give 4. It is NaN if fewer than three counts are known, or if bins do not divide a
    day or week. If `known` is omitted, all counts are known.
    """
    if known is None:
        known = np.ones(len(counts), dtype=bool)
    usual = np.full(len(counts), np.nan)
    # weeks come last, and replace days if enough of them are known
    for cycle in (timedelta(days=1), timedelta(days=7)):
        if cycle % step or cycle < step:
            continue
        width = cycle // step
        # For example, with hourly bins and cycles of a day, bin 74 is compared with bins 2, 26 and 50.
        for number in range(_FEWEST * width, len(counts)):
            same_hour = slice(number % width, number, width)
            earlier = np.sort(counts[same_hour][known[same_hour]][-_MOST:])
            if len(earlier) >= _FEWEST:
                usual[number] = earlier[(len(earlier) - 1) // 2]

    return usual


_MARKERS_EXPECTED: Final = (
    "names with their times, a Series of times by name, or pairs of a time and a name"
)


def read_markers(
    markers: Markers | None, now: datetime | None = None
) -> tuple[tuple[datetime, str], ...]:
    """Return times and masked names, the earliest first."""
    if markers is None:
        return ()
    if isinstance(markers, str | bytes) or not isinstance(markers, Iterable):
        raise wrong("markers", markers, _MARKERS_EXPECTED)

    pairs: list[Any] = list(markers)
    if isinstance(markers, Mapping | pd.Series):
        pairs = [(when, name) for name, when in markers.items()]
    if len(pairs) > _MARKERS:
        raise wrong("markers", markers, f"at most {_MARKERS} markers")

    clean = Redactor().text
    return tuple(sorted(_marker(pair, now, clean) for pair in pairs))


def _marker(
    pair: object, now: datetime | None, clean: Callable[[str], str]
) -> tuple[datetime, str]:
    """Return the time and the masked name of a pair."""
    parts: list[Any] = []
    if isinstance(pair, Iterable) and not isinstance(pair, str | bytes):
        parts = list(pair)
    if len(parts) != 2:  # noqa: PLR2004 - a pair
        raise wrong("markers", pair, _MARKERS_EXPECTED)

    time, name = parts
    try:
        when = parse_time(time, now=now, name="markers")
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise wrong("markers", time, _MARKERS_EXPECTED) from None

    return when, clean(text("markers", name, empty=False))
