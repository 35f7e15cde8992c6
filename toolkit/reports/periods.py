"""Compare the failures in the period of a report with the time before, and find new groups.

The period is the last day of the data, or the time since an earlier load. If the data are too old, nothing is
known about the period, and every value is None.

The rate is compared with a two-sided test of two counts. Failures come in bursts, so their variance is the
mean times a dispersion, which is measured on the hours before the period (quasi-Poisson). For example, 100
failures after a usual 60 are a clear change if failures are independent, but not if they come in
bursts of 20.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.drawing.wording import counted
from toolkit.failures.gaps import Spans, bins_in, gaps_of, inside, overlap
from toolkit.failures.partial_results import Counts
from toolkit.failures.selection import (
    opened,
    receipt_of,
    select_retained,
    select_timed,
    with_minute,
)
from toolkit.failures.sources import AnyFrame, Request, reduce_together
from toolkit.failures.usual_rates import dispersion
from toolkit.tables.freshness import Freshness
from toolkit.tables.receipt import Receipt, requested_time
from toolkit.tables.schemas import FIRST_SEEN_AT
from toolkit.tables.signed_rows import SIGNATURE

DAY: Final = timedelta(hours=24)
# three standard deviations: at one report per day, one false alarm per year
CONFIDENT: Final = 0.997
_DOING: Final = "making a report"


@dataclass(frozen=True, eq=False, kw_only=True)
class Trend:
    """The failures of a period, compared with the time before, and the new groups."""

    since: datetime
    recent: int | None  # None if the data are too old
    usual: float | None  # mean number of failures before, in a time of the same length
    confidence: float | None  # confidence that the rate changed
    exposure: float  # length of the time before, in periods; for samples, scaled by the sampling rates
    new: list[str] | None  # ids of groups, the largest first
    compared: bool  # whether there is an earlier frame
    grown: list[str] = field(default_factory=list)  # ids of groups whose rate is higher
    length: timedelta = DAY
    gaps: Spans = ()
    sampling: float = (
        1.0  # the part of `exposure` that corrects for samples of different rates
    )

    def exposure_since(self, first: datetime) -> float:
        """Return the exposure of a group whose first failure was at a time."""
        known = _known_since(first, self.since, self.gaps)
        return self.sampling * (known / self.length)

    @property
    def direction(self) -> str | None:
        """Return "worse", "better" or "the same" for all failures; None if no earlier rate is known."""
        if self.recent is None or self.usual is None or self.confidence is None:
            return None
        if self.confidence < CONFIDENT:
            return "the same"
        if self.recent > self.usual:
            return "worse"

        return "better"

    @property
    def overall(self) -> str:
        """Return the direction in words. Headline, sections and tile use the same words."""
        if self.direction in {"worse", "better"}:
            return f"{self.direction} than before"
        return "no clear change"

    @property
    def clear_change(self) -> int | None:
        """Return the difference to the usual number of failures; None if it is no clear change."""
        if (
            self.direction not in {"worse", "better"}
            or self.recent is None
            or self.usual is None
        ):
            return None

        return self.recent - round(self.usual)

    @property
    def words(self) -> str:
        """Return one statement that compares the rate with the rate before.

        It is "worse" only if the rate of all failures together rose.
        """
        if not self.grown:
            if self.direction == "the same":
                return f"{self.overall} from before"
            return self.overall

        grown = f"{counted(len(self.grown), 'group')} grew"
        if self.direction == "worse":
            return f"{self.overall}, as {grown}"
        if self.direction == "better":
            return f"{self.overall}, but {grown}"

        return f"{self.overall} in all, but {grown}"

    @property
    def worse(self) -> bool | None:
        """Return whether the rate of all failures, or of at least one group, is higher than before."""
        if self.direction is None:
            return None
        return self.direction == "worse" or bool(self.grown)


@dataclass(frozen=True, kw_only=True)
class Period:
    """The time that a report judges: since the end of an earlier load, or the last day."""

    since: datetime
    new_since: datetime  # groups first seen later are new: a day before now, or an earlier time of the caller
    end: datetime  # when the data end
    now: datetime
    compared: bool  # whether there is an earlier load
    # a sync that began this long before `since` may have ended after it
    slack: timedelta = timedelta()

    @classmethod
    def before(
        cls,
        fresh: Freshness,
        previous: AnyFrame | None,
        slack: timedelta = timedelta(),
        new_since: datetime | None = None,
    ) -> Period:
        """Return the period that ends with the data."""
        if previous is None:
            since, end = fresh.end - DAY, fresh.end
            new_since = min(fresh.now - DAY, new_since or fresh.now)
        else:
            since = new_since = min(_ended(previous) or fresh.end - DAY, fresh.now)
            end, slack = max(fresh.end, since), timedelta()

        return cls(
            since=since,
            new_since=new_since,
            end=end,
            now=fresh.now,
            compared=previous is not None,
            slack=slack,
        )

    @property
    def length(self) -> timedelta:
        """Return the length of the period."""
        return self.end - self.since


def _covered_from(
    receipt: Receipt | None, end: datetime, retention: timedelta
) -> datetime | None:
    """Return the start of the period with complete data, or None if it is unknown."""
    if receipt is None or not receipt.complete:
        return None

    start = end - retention
    since = requested_time(receipt, "since")
    if since is None:
        return start

    return max(start, since)


def _slack(receipt: Receipt | None) -> timedelta:
    """Return the duration of the longest sync: its failures became readable only when it ended."""
    if receipt is None or receipt.syncs is None or receipt.syncs.every_seconds is None:
        return timedelta()

    return timedelta(
        seconds=min(receipt.syncs.longest_seconds, receipt.syncs.every_seconds)
    )


def _ended(previous: AnyFrame) -> datetime | None:
    """Return when the earlier load ended.

    If the frame is only a selection of the loaded rows, return the time of the latest row: the load may have
    ended long after it.
    """
    receipt = receipt_of(previous)
    kept = select_retained(previous, [], doing=_DOING).count()["count_"][0].as_py()
    ended = None
    if receipt is not None and receipt.rows == kept:
        ended = pd.to_datetime(receipt.ended_at, utc=True, errors="coerce")
    if ended is None or pd.isna(ended):
        counts = select_timed(previous, [], doing=_DOING).count(last=("when_", "max"))
        ended = pd.to_datetime(counts["last"][0].as_py(), utc=True)

    if ended is None or pd.isna(ended):
        return None

    return ended.to_pydatetime(warn=False)


def _new_groups(
    failures: AnyFrame, groups: pd.DataFrame, known: pd.DataFrame | None, period: Period
) -> list[str]:
    """Return the ids of groups that the earlier load does not have, or that were unknown at `new_since`.

    A failure is known from the moment that a sync first saw it. For example, a failure that happened while no
    sync ran is new when the next sync reads it. Failures of the first sync count as known since they failed.
    """
    if period.compared:
        if known is None:
            return groups["group"].tolist()
        return groups["group"][~groups["group"].isin(known["group"])].tolist()

    groups = groups[groups["count"] > 0]
    names = opened(failures, doing=_DOING).names
    # a plain load has no column that records when a sync first saw a failure
    if FIRST_SEEN_AT not in names or SIGNATURE not in names:
        since = min(period.since, period.new_since)
        is_new = groups["first_at"].between(since, period.end, inclusive="right")
        return groups["group"][is_new].tolist()

    rows = select_timed(failures, [FIRST_SEEN_AT, SIGNATURE], doing=_DOING)
    first_sync = rows.count(first=(FIRST_SEEN_AT, "min"))["first"][0].as_py()
    rows = rows.then(partial(_with_known, first_sync, period.now))
    counts = rows.count(SIGNATURE, known=("known_", "min")).to_pandas()
    known_at = pd.to_datetime(counts["known"], utc=True)
    new = set(
        counts[SIGNATURE][known_at > pd.Timestamp(period.new_since - period.slack)]
    )

    return [group for group in groups["group"] if group in new]


def _with_known(
    first_sync: datetime | None, now: datetime, table: pa.Table
) -> pa.Table:
    """Add `known_`: when each failure was first seen, or when it failed if that was later."""
    kind = pa.timestamp("us", "UTC")
    nothing = pa.scalar(None, kind)
    failed, seen = (
        table[name].cast(kind, safe=False) for name in ("when_", FIRST_SEEN_AT)
    )
    if first_sync is not None:
        is_first = pc.equal(seen, pa.scalar(first_sync, kind))
        seen = pc.if_else(pc.fill_null(is_first, True), nothing, seen)

    # a time in the future comes from a wrong clock
    past = [
        pc.if_else(pc.greater(time, pa.scalar(now, kind)), nothing, time)
        for time in (failed, seen)
    ]
    latest = pc.max_element_wise(
        *(time.cast(pa.int64()) for time in past), skip_nulls=True
    )
    return table.append_column("known_", latest.cast(kind))


def trend_of(
    failures: AnyFrame,
    previous: AnyFrame | None,
    groups: pd.DataFrame,
    known: pd.DataFrame | None,
    fresh: Freshness,
    retention: timedelta,
    new_since: datetime | None = None,
) -> Trend:
    """Return the rate of the period, compared with the rate before it, and the new groups.

    `known` contains the groups of the earlier load. Without an earlier load, groups first seen after
    `new_since` are new, even if that was more than a day ago.
    """
    if not fresh.is_current:
        return _unknown_trend(fresh.end, compared=previous is not None)

    receipt = receipt_of(failures)
    period = Period.before(fresh, previous, _slack(receipt), new_since)
    covered = _covered_from(receipt, fresh.end, retention)
    since = period.since
    past = previous
    if past is None:
        past = failures
    minutes, earlier = count_minutes(failures, past, since, period.end)
    recent, gaps = minutes["count_"], gaps_of(past)
    # drop counts in gaps: some failures of that time expired unread
    earlier = earlier[~inside(gaps, earlier["first"])]
    before, length = earlier["count_"], period.length
    usual = confidence = new = None
    exposure = 1.0
    observed = timedelta()
    if len(before):
        observed = _known_since(earlier["first"].min(), since, gaps)
    if covered is not None and previous is None and observed < length / 2:
        # the load covers a long time without failures, which is a known rate of zero
        observed = _known_since(covered, since, gaps)

    # a rate from less than half of the period is too uncertain to compare with
    if observed >= length / 2 > timedelta():
        exposure = observed / length
        usual = float(before.sum()) / exposure
        confidence = _confidence(recent, before, since, exposure, gaps)

    # without any earlier data, every group would be new
    if period.compared or len(before) or usual is not None:
        new = _new_groups(failures, groups, known, period)
    return Trend(
        since=since,
        recent=int(recent.sum()),
        usual=usual,
        confidence=confidence,
        exposure=round(exposure, 4),
        new=new,
        compared=period.compared,
        length=length,
        gaps=gaps,
    )


def _known_since(first: datetime, since: datetime, gaps: Spans) -> timedelta:
    """Return the length of the time from `first` to `since`, without gaps."""
    return since - first - overlap(gaps, first, since)


def _unknown_trend(end: datetime, *, compared: bool) -> Trend:
    """Return a trend without values, for data that are too old."""
    return Trend(
        since=end - DAY,
        recent=None,
        usual=None,
        confidence=None,
        exposure=1.0,
        new=None,
        compared=compared,
    )


def count_minutes(
    failures: AnyFrame, past: AnyFrame, since: datetime, until: datetime
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count the failures of a period, and the failures before it, by minute since 1970.

    `first` is the first time in each minute. If both are of one frame, it is read once.
    """
    requests = [
        _minutes(failures, since, until),
        _minutes(past, None, since),
    ]
    if past is failures:
        recent, earlier = reduce_together(requests)
    else:
        recent, earlier = (reduce_together([request])[0] for request in requests)

    return _by_minute(recent), _by_minute(earlier)


def _minutes(failures: AnyFrame, after: datetime | None, until: datetime) -> Request:
    rows = (
        select_timed(failures, [], doing=_DOING)
        .then(partial(_within, after, until))
        .then(with_minute)
    )
    return rows, Counts(("minute_",), (("first", ("when_", "min")),))


def _by_minute(table: pa.Table) -> pd.DataFrame:
    counts = table.to_pandas()
    first = pd.to_datetime(counts["first"], utc=True)
    return pd.DataFrame(counts.assign(first=first).set_index("minute_").sort_index())


def _within(after: datetime | None, until: datetime, table: pa.Table) -> pa.Table:
    when = table["when_"].cast(pa.timestamp("us", "UTC"), safe=False)
    within = pc.less_equal(when, pa.scalar(until, when.type))
    if after is not None:
        within = pc.and_(within, pc.greater(when, pa.scalar(after, when.type)))
    return table.filter(within)


def _confidence(
    recent: pd.Series, before: pd.Series, since: datetime, exposure: float, gaps: Spans
) -> float:
    """Return the confidence that a rate changed (two-sided, normal approximation, quasi-Poisson variance).

    If the rate did not change, `recent` and `before / exposure` estimate the same number `usual`. The
    difference has the variance ``bursts * usual * (1 + 1 / exposure)``. Half a failure is subtracted, because
    counts are integers (continuity correction).
    """
    bursts = 1.0
    if len(before):
        bursts = _dispersion(before, since, gaps)
    usual = float(recent.sum() + before.sum()) / (1 + exposure)
    deviation = math.sqrt(bursts * max(usual, 1e-9) * (1 + 1 / exposure))
    z = (
        max(abs(float(recent.sum()) - float(before.sum()) / exposure) - 0.5, 0)
        / deviation
    )

    return math.erf(z / math.sqrt(2))


def _dispersion(before: pd.Series, since: datetime, gaps: Spans) -> float:
    """Return the variance of the counts per hour, divided by their mean, without hours in gaps."""
    first = int(before.index.min())
    hours = (before.index.to_numpy() - first) // 60
    size = int((since.timestamp() / 60 - first) // 60) + 1
    counts = np.bincount(
        hours.astype(np.int64), weights=before.to_numpy(), minlength=size
    )
    starts = pd.to_datetime(
        first * 60_000 + 3_600_000 * np.arange(size), unit="ms", utc=True
    )
    counts = counts[~bins_in(gaps, starts, starts + timedelta(hours=1)) | (counts > 0)]

    return float(dispersion(counts.astype(np.float64), np.ones(len(counts))))
