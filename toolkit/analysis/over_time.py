"""How many failures when: per bin of time, by weekday and hour; what is usual then, and named times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.analysis.change_points import change_points
from toolkit.analysis.gaps import Spans, bins_in, gaps_of
from toolkit.analysis.selection import (
    Counted,
    largest_groups,
    select,
    timestamps,
    told_until,
    typed_frame,
    with_minute,
    with_time,
)
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.analysis.time_bins import MINUTE, bin_numbers, bin_width, bins_of, localized
from toolkit.arguments import text, whole, wrong
from toolkit.errors import InputError
from toolkit.redaction import Redactor
from toolkit.time_zones import time_zone
from toolkit.times import DAY_MS, parse_time

Markers: TypeAlias = Mapping[str, Any] | Iterable[Any]
"""Names and their times, or pairs of a time and a name."""

_FEWEST: Final = 3  # earlier bins of the same hour that make a baseline
_MOST: Final = 8  # the latest of them that count
_DAY: Final = timedelta(days=1)
_MARKERS: Final = 200
_MOST_MARKED: Final = 4  # times of which the largest groups are kept; of changes, the latest


@dataclass(frozen=True, eq=False, kw_only=True)
class FailureTrend(Counted):
    """Counts per time bin and group; where groups were merged, the last one is ``other (n)``."""

    starts: pd.DatetimeIndex  # start of each bin, UTC, ascending, without gaps
    step: timedelta  # width of a bin
    groups: tuple[str, ...]  # most failures first
    counts: NDArray[np.int64]  # shape (groups, bins)
    merged: int  # how many groups the last one holds; 0 when none were merged
    fell_back: int  # rows without `failed_at`, counted at `created_at` instead, which can be a day earlier
    undated: int  # rows without any plausible time (2000 to 2099), which are in no bin
    markers: tuple[tuple[datetime, str], ...] = ()  # times and names, the earliest first
    runs: NDArray[np.int64] | None = None  # shape (bins,): runs that started, where they are known
    gaps: Spans = ()  # times of which failures may be missing, as they expired before a sync read them
    tz: str = "UTC"  # time zone in which days are cut and times are shown

    @cached_property
    def ends(self) -> pd.DatetimeIndex:
        """Return the end of each bin, UTC. A day on which clocks are changed has 23 or 25 hours."""
        if not len(self.starts):
            return self.starts
        local = self.starts[-1:].tz_convert(self.tz).tz_localize(None) + self.step
        last = localized(local, self.tz) if self.step % _DAY == timedelta() else self.starts[-1:] + self.step
        return pd.DatetimeIndex(self.starts[1:].append(last.as_unit("ms")))

    @cached_property
    def in_gap(self) -> NDArray[np.bool_]:
        """Which bins lie in a gap, if only in part."""
        return bins_in(self.gaps, self.starts, self.ends)

    @cached_property
    def baseline(self) -> NDArray[np.float64]:
        """What each bin usually holds, in all groups; NaN where too few weeks (else days) came before it.

        Bins in a gap do not count.
        """
        return usual_counts(self.counts.sum(axis=0), self.step, ~self.in_gap)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Where the rate changed to another level, of all groups: `change_points` with `start` (the time).

        Bins in a gap are left out, as if the bins before and after it were neighbours.
        """
        known = np.flatnonzero(~self.in_gap)
        found = change_points(self.counts.sum(axis=0)[known])
        found = found.assign(at=known[found["at"].to_numpy(dtype=np.int64)].astype(np.int64))
        return found.assign(start=self.starts[found["at"].to_numpy(dtype=np.int64)])

    @property
    def rates(self) -> NDArray[np.float64] | None:
        """Failures a run, shape (groups, bins), NaN in bins without runs; None where runs are not known."""
        if self.runs is None:
            return None
        return np.asarray(self.counts / np.where(self.runs > 0, self.runs, np.nan), dtype=np.float64)

    @property
    def frame(self) -> pd.DataFrame:
        """One row a bin, of all groups.

        `start` (datetime64[ms, UTC]), `count` (Int64), `baseline`, `level` (float64: the mean between two
        changes), `runs` (Int64), `rate` (float64, failures a run), `marker` (str: names in the bin), `in_gap`
        (boolean: failures may be missing, so the bin counts neither for `baseline` nor for `level`).
        """
        bins = len(self.starts)
        counts = self.counts.sum(axis=0)
        edges = [0, *self.changes["at"].astype(int), bins]
        known = ~self.in_gap
        level = np.full(bins, np.nan)
        for one, two in pairwise(edges):
            if known[one:two].any():
                level[one:two] = counts[one:two][known[one:two]].mean()
        return typed_frame(
            start=("datetime64[ms, UTC]", self.starts),
            count=("Int64", counts),
            baseline=("float64", self.baseline),
            level=("float64", level),
            runs=("Int64", [pd.NA] * bins if self.runs is None else self.runs),
            rate=("float64", np.full(bins, np.nan) if self.rates is None else self.rates.sum(axis=0)),
            marker=("str", self._marked()),
            in_gap=("boolean", self.in_gap),
        )

    def _marked(self) -> list[str | None]:
        names: list[list[str]] = [[] for _ in self.starts]
        for when, name in self.markers:
            position = int(self.starts.searchsorted(pd.Timestamp(when), side="right")) - 1
            if position >= 0 and when < self.ends[position]:
                names[position].append(name)
        return [", ".join(found) or None for found in names]

    def to_frame(self) -> pd.DataFrame:
        """One row a group and bin: `group` (str), `start` (datetime64[ms, UTC]), `count` (Int64)."""
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
    """Count failures per time bin, on `failed_at` and, in rows without it, on `created_at`.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to group by, such as `workflow_url`. Default: one group of all failures.
    freq : str or timedelta, optional
        Width of a bin, in whole minutes ("15min", "6h", "1d"). Default: chosen so that there are at most 60.
        Bins of whole days begin at midnight in `tz`, so that a day on which clocks are changed has 23 or 25
        hours, and weeks begin on Mondays. Narrower bins are equally wide, counted from midnight.
    top : int
        Number of groups, at least 1; all others are the group ``other (n)``. The largest are kept, and the
        largest of the last day, of the tallest bar, and of marked changes, in turns.
    now : datetime, optional
        Bins extend to this time, or to the end of the data if that is earlier: nobody knows that no failure
        came later. Default: to the last failure.
    tz : str or tzinfo, optional
        The time zone of midnight, such as ``"Europe/Berlin"``. Default: ``TOOLKIT_TZ``, else UTC. The
        frame stays in UTC.

    Returns
    -------
    pandas.DataFrame
        One row a group and bin, without holes, the largest group first: `group` (str), `start`
        (datetime64[ms, UTC]), `count` (Int64). Failures without a plausible time (2000 to 2099) are in no
        bin.

    Raises
    ------
    InputError
        When a column is missing, `freq` is not such a width, or would make more than 5,000 bins.

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
    """Count failures per time bin, as `count_over_time` does, with what is usual and named times.

    Parameters
    ----------
    failures, by, freq, top, now, tz
        As in `count_over_time`.
    markers : mapping, Series or iterable of pairs, optional
        Times with names, such as deployments: a mapping from name to time, a Series of times with names as
        its index, or pairs of a time and a name.
    runs : frame, optional
        The run log (`load_runs`), for the runs that started in each bin.
    gaps : tuple of pairs of datetime, optional
        Times of which failures may be missing. Default: those of the snapshot that the failures come from.

    Returns
    -------
    FailureTrend
        `baseline`, `changes` and `frame` are computed when first read.

    Raises
    ------
    InputError
        As in `count_over_time`, or when `markers` cannot be read.

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
    now = None if now is None else told_until(failures, parse_time(now, exact=True, name="now"))
    wanted = None if freq is None else bin_width(freq)
    chosen = {} if by is None else {"by": by}
    selected = select(failures, ["failed_at", "created_at"], doing=doing, chosen=chosen)
    counted, rows, dated, minutes = by_minute(selected.then(with_time), *chosen.values())
    values = np.array(counted[by].to_pylist() if by else ["failures"] * len(rows), dtype=object)
    starts, width = bins_of(minutes, wanted, now, doing, zone)
    bins = bin_numbers(minutes, starts)
    named_times = read_markers(markers, now)
    marked = _marked(np.bincount(bins, rows[dated], len(starts)), bins, starts, width, named_times)
    groups, positions, merged = largest_groups(values[dated].tolist(), rows[dated], top, marked)
    counts = np.zeros((len(groups), len(starts)), dtype=np.int64)
    np.add.at(counts, (positions, bins), rows[dated])
    return FailureTrend(
        starts=pd.DatetimeIndex(pd.to_datetime(starts, unit="ms", utc=True).as_unit("ms")),
        step=timedelta(milliseconds=width),
        groups=groups,
        counts=counts,
        merged=merged,
        fell_back=int(rows[counted["fell_back_"].to_numpy()].sum()),
        undated=int(rows[~dated].sum()),
        markers=named_times,
        runs=None if runs is None else _started(runs, starts, width, doing),
        gaps=gaps_of(failures) if gaps is None else gaps,
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

    A reader looks there first, so that the groups that contribute most there have names and colours.
    """
    if not len(starts):
        return []
    recent = bins >= len(starts) - max(DAY_MS // width, 1)
    chosen = [recent, bins == int(totals.argmax())]
    changes = change_points(totals)
    upwards = changes[changes["after"] > changes["before"]]["at"].to_numpy(dtype=np.int64).tolist()
    times = [round(when.timestamp() * 1000) for when, _ in markers]
    end = int(starts[-1]) + width
    within = np.array([time for time in times if int(starts[0]) <= time < end], dtype=np.int64)
    first_bins = sorted({*upwards, *bin_numbers(within, starts).tolist()})
    # the bar in which it begins and the next one: later ones may belong to another change
    chosen += [(bins >= first) & (bins <= first + 1) for first in reversed(first_bins)]
    return chosen[:_MOST_MARKED]


def by_minute(
    rows: SelectedRows, *keys: str
) -> tuple[pa.Table, NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """Rows counted by minute: counts, how many rows each is, which have a time, and those times in ms."""
    counted = rows.then(with_minute).count("minute_", "fell_back_", *keys)
    dated = counted["minute_"].is_valid().to_numpy()
    minutes = counted["minute_"].drop_null().to_numpy() * MINUTE
    return counted, counted["count_"].to_numpy(), dated, minutes


def _started(runs: AnyFrame, starts: NDArray[np.int64], width: int, doing: str) -> NDArray[np.int64]:
    """How many runs started in each bin."""
    table = select(runs, ["created_at"], doing=doing, name="runs").table()
    when = timestamps(table, "created_at").dropna().astype("datetime64[ms, UTC]").astype("int64").to_numpy()
    if not len(starts):
        return starts
    bins = bin_numbers(when[(when >= starts[0]) & (when < starts[-1] + width)], starts)
    return np.bincount(bins, minlength=len(starts)).astype(np.int64)


def usual_counts(
    counts: NDArray[np.int64], step: timedelta, known: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """What each bin usually holds: the median of the same hour of earlier weeks, or else of earlier days.

    The lower median: a burst in half of them is not usual. NaN where fewer than three are known, or where
    bins are not a whole part of a day or week. Default: all counts are `known`.
    """
    known = np.ones(len(counts), dtype=bool) if known is None else known
    usual = np.full(len(counts), np.nan)
    for cycle in (timedelta(days=1), timedelta(days=7)):  # weeks, where there are enough, replace days
        if cycle % step or cycle < step:
            continue
        width = cycle // step
        for number in range(_FEWEST * width, len(counts)):
            same_hour = slice(number % width, number, width)
            earlier = np.sort(counts[same_hour][known[same_hour]][-_MOST:])
            if len(earlier) >= _FEWEST:
                usual[number] = earlier[(len(earlier) - 1) // 2]
    return usual


def read_markers(markers: Markers | None, now: datetime | None = None) -> tuple[tuple[datetime, str], ...]:
    """Times and masked names, the earliest first."""
    if markers is None:
        return ()
    expected = "names with their times, a Series of times by name, or pairs of a time and a name"
    if isinstance(markers, str | bytes) or not isinstance(markers, Iterable):
        raise wrong("markers", markers, expected)
    pairs: list[Any] = list(markers)
    if isinstance(markers, Mapping | pd.Series):
        pairs = [(when, name) for name, when in markers.items()]
    if len(pairs) > _MARKERS:
        raise wrong("markers", markers, f"at most {_MARKERS} markers")
    clean, found = Redactor().text, []
    for pair in pairs:
        if isinstance(pair, str | bytes) or not isinstance(pair, Iterable) or len(both := list(pair)) != 2:  # noqa: PLR2004 - a pair
            raise wrong("markers", pair, expected)
        try:
            when = parse_time(both[0], now=now, name="markers")
        except (TypeError, ValueError, OverflowError) as error:
            raise error if isinstance(error, InputError) else wrong("markers", both[0], expected) from None
        found.append((when, clean(text("markers", both[1], empty=False))))
    return tuple(sorted(found))
