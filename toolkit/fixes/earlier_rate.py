"""Measure how often a group failed before a fix, so that later times become numbers of expected failures.

A clock counts expected failures. For example, if a group failed ten times per day, mostly at noon, one quiet
night is half an expected failure, and one quiet day is ten. If runs are known, the clock counts runs: without
runs, nothing can fail, so a weekend without runs is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from toolkit.fixes.sequential_test import (
    Numbers,
    PriorCounts,
    evidence_of,
    extremal_index,
)

_HOURS: Final = 24
_LEAST_DAYS: Final = 0.9  # with less, the hours of the day cannot be compared
_SMOOTHING: Final = 2.0  # failures that each hour has in common with all others
_ROUNDING: Final = 1e-7
_LONGEST_DAYS: Final = 4000  # longer waits are reported as never

Gaps = tuple[tuple[float, float], ...]
"""Spans of time in which failures may be missing, in days."""


class Clock(Protocol):
    """Measures time in units that are equally likely to contain a failure. Times are days since 1970."""

    def at(self, times: Numbers) -> Numbers:
        """Return the position of each time."""

    def ahead(self, end: float, amount: float) -> float:
        """Return the time when the clock has advanced by an amount since `end`."""


@dataclass(frozen=True)
class DailyClock:
    """A clock by the hours of a day (UTC): `weights` has the mean 1, and an hour that fails often has more.

    >>> noon = DailyClock(np.where(np.arange(24) == 12, 24.0, 0.0))
    >>> noon.at(np.array([1.0, 1.5, 1.75, 2.0])).round(3).tolist()
    [1.0, 1.0, 2.0, 2.0]
    """

    weights: Numbers
    gaps: Gaps = ()

    def at(self, times: Numbers) -> Numbers:
        """Return the position of each time. Gaps take no time."""
        positions = self._whole(times)
        for start, end in self.gaps:
            inside = self._whole(np.clip(times, start, end))
            positions = positions - (inside - self._whole(np.array([start])))

        return positions

    def ahead(self, end: float, amount: float) -> float:
        """Return the time when the clock has advanced by an amount since `end`."""
        days = np.floor(end) + np.arange(0, amount + 3, 1 / _HOURS)
        target = self._whole(np.array([end]))[0] + amount
        return float(max(end, np.interp(target, self._whole(days), days)))

    def _whole(self, times: Numbers) -> Numbers:
        # 8 o'clock is a third of a day, which as a float may be a little less
        days = np.floor(times + _ROUNDING)
        hours = np.maximum(times - days, 0.0) * _HOURS + _ROUNDING
        full = np.minimum(hours.astype(np.int64), _HOURS - 1)
        before = np.concatenate([[0.0], np.cumsum(self.weights)])[full]

        return np.asarray(
            days + (before + (hours - full) * self.weights[full]) / _HOURS
        )


@dataclass(frozen=True)
class RunClock:
    """A clock that advances by 1 per run that has ended; `ended` is ascending.

    >>> RunClock(np.array([1.0, 2.0, 2.0])).at(np.array([0.5, 1.0, 9.0])).tolist()
    [0.0, 1.0, 3.0]
    """

    ended: Numbers

    def at(self, times: Numbers) -> Numbers:
        """Return the number of runs that had ended at each time."""
        counts = np.searchsorted(self.ended, times, side="right")
        return np.asarray(counts, dtype=np.float64)

    def ahead(self, end: float, amount: float) -> float:
        """Return when this number of further runs will have ended, if they come as before."""
        days = max(end - float(self.ended[0]), 1e-9)
        return end + amount * days / len(self.ended)


@dataclass(frozen=True)
class EarlierRate:
    """The rate of a group before a fix: failures per unit of a clock, and the evidence for it."""

    clock: Clock
    per_unit: float
    evidence: PriorCounts
    begin: float

    def positions(self, times: Numbers, since: float) -> Numbers:
        """Return the failures that were expected from `since` until each time."""
        start = self.clock.at(np.array([since]))[0]
        passed = np.maximum(self.clock.at(times) - start, 0.0)
        return np.asarray(passed * self.per_unit, dtype=np.float64)

    def wait(self, end: float, expected: float) -> float | None:
        """Return the days after `end` until this number of failures is expected; None if never."""
        units = expected / self.per_unit if self.per_unit else np.inf
        if not np.isfinite(units) or (
            isinstance(self.clock, DailyClock) and units > _LONGEST_DAYS
        ):
            return None

        return self.clock.ahead(end, units) - end


def daily_rate(before: Numbers, since: float, gaps: Gaps = ()) -> EarlierRate:
    """Return the rate of failures at these times (days since 1970, ascending) by the hours of the day."""
    begin = float(before[0]) if len(before) else since
    weights = np.ones(_HOURS)
    if since - begin >= _LEAST_DAYS:
        weights = _hour_weights(before)
    return _rate(DailyClock(weights, gaps), before, begin, since)


def run_rate(before: Numbers, since: float, ended: Numbers) -> EarlierRate:
    """Return the rate of failures per run. Failures before the first known run do not count."""
    before = before[before >= ended[0]]
    return _rate(RunClock(ended), before, float(ended[0]), since, has_own_start=True)


def _rate(
    clock: Clock,
    before: Numbers,
    begin: float,
    since: float,
    *,
    has_own_start: bool = False,
) -> EarlierRate:
    edges = clock.at(np.array([begin, since]))
    length = float(edges[1] - edges[0])
    if len(before) == 0 or length <= 0:
        return EarlierRate(clock, 0.0, PriorCounts(0.0, 1.0), begin)

    evidence = evidence_of(np.diff(clock.at(before)), len(before))
    counted = float(len(before))
    if not has_own_start:
        # the measured time begins with an episode, which therefore does not count
        counted = (counted - 1) * evidence.known * (2 - evidence.burst_share) / counted

    return EarlierRate(clock, counted / length, evidence, begin)


def _hour_weights(before: Numbers) -> Numbers:
    """Return the weight of each hour of the day, closer to 1 if the failures are few or come in bursts."""
    later = before[1:]
    share = extremal_index(np.diff(before))
    hours = (later * _HOURS + _ROUNDING).astype(np.int64) % _HOURS
    counts = np.bincount(hours, minlength=_HOURS)
    even = len(later) / _HOURS
    weights = (share * counts + _SMOOTHING) / (share * even + _SMOOTHING)

    return np.asarray(weights / weights.mean())
