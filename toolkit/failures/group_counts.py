"""Count failures per group and hour while they arrive, in a bounded amount of memory.

Only the counts of the last days are kept per hour; earlier failures are one number. For example, a group with
a million failures takes as much memory as a group with a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.failures.earlier_rates import EarlierRates, FirstOccasions
from toolkit.failures.group_states import (
    KEPT,
    LATELY,
    GroupState,
    days_before,
    has_ended,
    is_clear_rise,
    state_of,
)

_HOUR_MS: Final = 3_600_000
_DAY_HOURS: Final = 24
_KEPT_HOURS: Final = KEPT // timedelta(hours=1)
_SILENCE_HOURS: Final = 3 * _DAY_HOURS


@dataclass
class GroupCount:
    """The failures of one group. Hours are hours since 1970."""

    title: str
    count: int = 0
    first: int = np.iinfo(np.int64).max
    last: int = np.iinfo(np.int64).min
    in_first_hour: int = 0
    active_hours: int = 0
    """The number of hours with a failure."""
    returned: int | None = None
    hours: dict[int, int] = field(default_factory=dict)
    stored: pd.Timestamp | None = None
    """When the sync began that stored the first failure, if there is a snapshot."""

    def add(self, hours: Iterable[int]) -> None:
        """Count failures, the earliest first."""
        for hour in hours:
            if self.count and has_ended(
                timedelta(hours=hour - self.last),
                timedelta(hours=self.last - self.first),
                self.count,
            ):
                self.returned = hour
            self.count += 1
            if hour < self.first:
                self.in_first_hour = 0
            if hour <= self.first:
                self.in_first_hour += 1
            if hour not in self.hours:
                self.active_hours += 1
            self.first, self.last = min(self.first, hour), max(self.last, hour)
            self.hours[hour] = self.hours.get(hour, 0) + 1

    def forget(self, now: int) -> None:
        """Drop the hours that no state and no trend needs."""
        old = [hour for hour in self.hours if hour < now - _KEPT_HOURS]
        for hour in old:
            del self.hours[hour]

    def state(self, now: int, start: int) -> GroupState:
        """Return the state, as boards of failures have it, if the failures of all groups begin at `start`."""
        begin = now - _DAY_HOURS
        recent_hours = {hour for hour in self.hours if hour > begin}
        recent = sum(self.hours[hour] for hour in recent_hours)
        # the present hour has just begun, so one more counts
        late = now - LATELY // timedelta(hours=1) - 1
        lately = sum(number for hour, number in self.hours.items() if hour > late)
        before = self.count - recent
        silence = timedelta()
        if self.returned is not None and self.returned > begin:
            silence = timedelta(hours=_SILENCE_HOURS)

        usual, is_more = 0.0, False
        if before:
            first = FirstOccasions(
                np.array([float(self.in_first_hour)]),
                np.array([(begin - self.first) / _DAY_HOURS]),
                np.array([self.active_hours - len(recent_hours)]),
            )
            days = days_before(begin + 1 - start)
            rates = EarlierRates.of(np.array([float(before)]), days, first)
            after = np.array([float(recent)])
            usual = float(rates.expected(after)[0])
            rise = float(rates.rise(after)[0])
            is_more = is_clear_rise(recent, usual, rise, self._hourly)

        state = state_of(recent, before, silence, lately, is_more=is_more)
        return GroupState(state, recent, usual)

    def _hourly(self) -> NDArray[np.int64]:
        """Return the counts of the hours that are kept."""
        first, last = min(self.hours), max(self.hours)
        hours = range(first, last + 1)
        return np.array([self.hours.get(hour, 0) for hour in hours], dtype=np.int64)

    def bars(self, now: int) -> list[int]:
        """Return the counts of the last 24 hours, one per hour."""
        hours = range(now - _DAY_HOURS + 1, now + 1)
        return [self.hours.get(hour, 0) for hour in hours]


def hour_of(when: datetime) -> int:
    """Return the hours since 1970."""
    return int(when.timestamp() * 1000) // _HOUR_MS


def hours_of(times: pd.Series) -> list[int]:
    """Return the hours since 1970 of each time, the earliest first. Missing times are left out."""
    plain = times.dropna().dt.tz_convert("UTC").dt.tz_localize(None)
    milliseconds = plain.astype("datetime64[ms]").astype("int64").to_numpy()
    hours: list[int] = np.sort(milliseconds // _HOUR_MS).tolist()

    return hours
