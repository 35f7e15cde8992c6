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

from toolkit.failures.group_states import LATELY, GroupState, has_ended, state_of

_HOUR_MS: Final = 3_600_000
_DAY_HOURS: Final = 24
_KEPT_HOURS: Final = 7 * _DAY_HOURS
_SILENCE_HOURS: Final = 3 * _DAY_HOURS


@dataclass
class GroupCount:
    """The failures of one group. Hours are hours since 1970."""

    title: str
    count: int = 0
    first: int = np.iinfo(np.int64).max
    last: int = np.iinfo(np.int64).min
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
            self.first, self.last = min(self.first, hour), max(self.last, hour)
            self.hours[hour] = self.hours.get(hour, 0) + 1

    def forget(self, now: int) -> None:
        """Drop the hours that no state and no trend needs."""
        old = [hour for hour in self.hours if hour < now - _KEPT_HOURS]
        for hour in old:
            del self.hours[hour]

    def state(self, now: int) -> GroupState:
        """Return the state, as boards of failures have it, from the counts of the last 24 hours."""
        begin = now - _DAY_HOURS
        recent = sum(number for hour, number in self.hours.items() if hour > begin)
        # the present hour has just begun, so one more counts
        late = now - LATELY // timedelta(hours=1) - 1
        lately = sum(number for hour, number in self.hours.items() if hour > late)
        before = self.count - recent
        usual = 0.0
        if before:
            usual = before / max((begin - self.first) / _DAY_HOURS, 1.0)
        silence = timedelta()
        if self.returned is not None and self.returned > begin:
            silence = timedelta(hours=_SILENCE_HOURS)
        state = state_of(recent, before, usual, silence, lately)
        return GroupState(state, recent, usual)

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
