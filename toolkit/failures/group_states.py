"""Tell how each group of failures changed lately: new, back again, growing, steady or ended.

Reports have the same states (`STATES`), and also use explanations and a period before. This module uses only
counts and times of the groups of one frame, so it takes milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

State = Literal["new", "back again", "growing", "steady", "ended"]

STATES: Final[tuple[State, ...]] = ("new", "back again", "growing", "steady", "ended")
"""States of a group or problem, in the order of boards and reports:

- new: it began within the last 24 hours of the data.
- back again: an earlier problem began again within the last 24 hours.
- growing: it is older, and the rate is clearly higher than before. It has not fallen again since.
- steady: it is older, and continues.
- ended: it does not continue.
"""

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Tuning:
    """Thresholds of the states, set on the sample history."""

    silence: timedelta = timedelta(days=3)
    """A group is back again after a silence of this length,"""

    pauses: float = 3.0
    """and of so many mean pauses between the earlier failures: some errors come every other day."""

    least: int = 10
    """A growing group has at least this many failures in the last 24 hours."""

    ratio: float = 1.5
    """A growing group has this many times the usual failures per day."""

    lately: timedelta = timedelta(hours=3)
    """A group whose failures nearly stopped this long ago, for example by a fix, is not growing any more."""

    fallen: float = 3.0
    """Failures have fallen if there are so many standard deviations fewer than on average of the last day."""

    deviations: float = 4.0
    """The rise is this many standard deviations of a Poisson count, so that chance rarely counts."""


_TUNING: Final = Tuning()
LATELY: Final = _TUNING.lately
"""Counts of this time before the end of the data are passed to `state_of`."""


@dataclass(frozen=True)
class GroupState:
    """The state of a group, the failures of the last 24 hours, and the usual number per 24 hours."""

    state: State
    recent: int
    usual: float

    @property
    def rank(self) -> int:
        """Return the place of the state in the list: new groups first."""
        return STATES.index(self.state)


def group_states(
    times: pd.Series, codes: NDArray[np.int64], count: int, end: datetime
) -> list[GroupState]:
    """Return the state of each group, by the number of the group.

    `times` and `codes` are the time and the group of each row; `end` is the end of the data.

    >>> hours = pd.Series(pd.date_range("2026-03-01", periods=49, freq="h", tz="UTC"))
    >>> codes = np.array([0] * 24 + [1] * 25)
    >>> end = pd.Timestamp("2026-03-03", tz="UTC")
    >>> [found.state for found in group_states(hours, codes, 2, end)]
    ['ended', 'new']
    """
    known = times.notna().to_numpy()
    milliseconds = (
        times[known].dt.tz_convert("UTC").dt.tz_localize(None).astype("datetime64[ms]")
    )
    when = milliseconds.to_numpy().astype(np.int64)
    groups = np.asarray(codes)[known]
    day_ms = _DAY // timedelta(milliseconds=1)
    begin = round(end.timestamp() * 1000) - day_ms
    is_recent = when >= begin
    recent = np.bincount(groups[is_recent], minlength=count)
    before = np.bincount(groups[~is_recent], minlength=count)
    is_late = when > begin + day_ms - LATELY // timedelta(milliseconds=1)
    lately = np.bincount(groups[is_late], minlength=count)
    none = np.iinfo(np.int64)
    first = np.full(count, none.max)
    last_before = np.full(count, none.min)
    first_recent = np.full(count, none.max)
    np.minimum.at(first, groups, when)
    np.maximum.at(last_before, groups[~is_recent], when[~is_recent])
    np.minimum.at(first_recent, groups[is_recent], when[is_recent])

    states = []
    for group in range(count):
        usual, silence = 0.0, timedelta()
        if before[group]:
            days = max((begin - int(first[group])) / day_ms, 1.0)
            usual = float(before[group]) / days

        if before[group] and recent[group]:
            gap = int(first_recent[group]) - int(last_before[group])
            lasted = int(last_before[group]) - int(first[group])
            if has_ended(
                timedelta(milliseconds=gap),
                timedelta(milliseconds=lasted),
                int(before[group]),
            ):
                silence = timedelta(milliseconds=gap)

        state = state_of(
            int(recent[group]), int(before[group]), usual, silence, int(lately[group])
        )
        states.append(GroupState(state, int(recent[group]), usual))

    return states


def has_ended(silence: timedelta, lasted: timedelta, failures: int) -> bool:
    """Return whether a group had ended before a silence, so that it is back again after it.

    `lasted` is the time from the first to the last of the `failures` before.

    >>> silence = timedelta(days=4)
    >>> has_ended(silence, timedelta(hours=2), 120), has_ended(silence, timedelta(days=6), 3)
    (True, False)
    """
    pause = lasted / max(failures - 1, 1)
    return silence >= max(_TUNING.silence, _TUNING.pauses * pause)


def state_of(
    recent: int, before: int, usual: float, silence: timedelta, lately: int
) -> State:
    """Return the state of a group by its failures in the last 24 hours and before.

    `usual` is the usual number per 24 hours, `silence` the time before the first recent failure, if the group
    had ended before it, and `lately` the number in the last `LATELY`.

    >>> state_of(30, 60, 10.0, timedelta(), 4), state_of(0, 60, 10.0, timedelta(), 0)
    ('growing', 'ended')
    >>> state_of(200, 60, 10.0, timedelta(), 1)
    'steady'
    """
    if not recent:
        return "ended"
    if not before:
        return "new"
    if silence >= _TUNING.silence:
        return "back again"

    share = recent * (_TUNING.lately / _DAY)
    if share - lately > _TUNING.fallen * math.sqrt(share):
        return "steady"

    is_more = recent >= max(_TUNING.least, _TUNING.ratio * usual)
    if is_more and recent - usual > _TUNING.deviations * math.sqrt(usual):
        return "growing"

    return "steady"


def in_order(states: Sequence[GroupState], counts: Sequence[int]) -> list[int]:
    """Return the numbers of the groups as a board lists them: by state, and the largest first.

    >>> some = [GroupState("steady", 1, 1.0), GroupState("new", 2, 0.0), GroupState("steady", 9, 8.0)]
    >>> in_order(some, [10, 2, 90])
    [1, 2, 0]
    """
    return sorted(
        range(len(states)), key=lambda group: (states[group].rank, -counts[group])
    )
