"""Tell how each group of failures changed lately: new, back again, growing, steady or ended.

Reports have the same states (`STATES`), and also use explanations and a period before. This module uses only
counts and times of the groups of one frame, so it takes milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.failures.earlier_rates import EarlierRates, FirstOccasions
from toolkit.failures.usual_rates import dispersion

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
_HOUR_MS: Final = 3_600_000
_DAY_HOURS: Final = 24
_DAY_MS: Final = _DAY_HOURS * _HOUR_MS


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
    """The rise is this many standard deviations: a watch looks often, so chance must rarely count."""

    kept: timedelta = timedelta(days=7)
    """Bursts are measured in this time before the end of the data, as a watch keeps no older hours."""


_TUNING: Final = Tuning()
LATELY: Final = _TUNING.lately
"""Counts of this time before the end of the data are passed to `state_of`."""
KEPT: Final = _TUNING.kept
"""Hourly counts of this time before the end of the data are passed to `is_clear_rise`."""


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
    begin = round(end.timestamp() * 1000) - _DAY_MS
    is_recent = when >= begin
    recent = np.bincount(groups[is_recent], minlength=count)
    before = np.bincount(groups[~is_recent], minlength=count)
    is_late = when > begin + _DAY_MS - LATELY // timedelta(milliseconds=1)
    lately = np.bincount(groups[is_late], minlength=count)
    none = np.iinfo(np.int64)
    first = np.full(count, none.max)
    last_before = np.full(count, none.min)
    first_recent = np.full(count, none.max)
    np.minimum.at(first, groups, when)
    np.maximum.at(last_before, groups[~is_recent], when[~is_recent])
    np.minimum.at(first_recent, groups[is_recent], when[is_recent])

    rates = _rates_before(when[~is_recent], groups[~is_recent], count, begin)
    numbers = recent.astype(np.float64)
    usual, rise = rates.expected(numbers), rates.rise(numbers)
    is_kept = when >= begin + _DAY_MS - KEPT // timedelta(milliseconds=1)

    def hourly(group: int) -> NDArray[np.int64]:
        hours = when[is_kept & (groups == group)] // _HOUR_MS
        return np.bincount(hours - hours.min())

    states = []
    for group in range(count):
        silence = timedelta()
        if before[group] and recent[group]:
            gap = int(first_recent[group]) - int(last_before[group])
            lasted = int(last_before[group]) - int(first[group])
            if has_ended(
                timedelta(milliseconds=gap),
                timedelta(milliseconds=lasted),
                int(before[group]),
            ):
                silence = timedelta(milliseconds=gap)

        number, expected = int(recent[group]), float(usual[group])
        is_more = is_clear_rise(
            number, expected, float(rise[group]), partial(hourly, group)
        )
        state = state_of(
            number, int(before[group]), silence, int(lately[group]), is_more=is_more
        )
        states.append(GroupState(state, number, expected))

    return states


def _rates_before(
    when: NDArray[np.int64], groups: NDArray[np.int64], count: int, cut: int
) -> EarlierRates:
    """Return the rates of groups by the times before a cut, in milliseconds."""
    first = FirstOccasions(
        np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64)
    )
    if not when.size:
        return EarlierRates.of(np.zeros(count), 1.0, first)

    hours = when // _HOUR_MS
    start = int(hours.min())
    span = int(hours.max()) - start + 1
    # one number per group and hour, ordered by group, then by hour
    keys, numbers = np.unique(groups * span + hours - start, return_counts=True)
    known, positions = np.unique(keys // span, return_index=True)
    first.failures[known] = numbers[positions]
    first_hour_ended = start + keys[positions] % span + 1
    first.exposures[known] = (cut / _HOUR_MS - first_hour_ended) / _DAY_HOURS
    first.occasions[:] = np.bincount(keys // span, minlength=count)

    return EarlierRates.of(
        np.bincount(groups, minlength=count).astype(np.float64),
        days_before(cut / _HOUR_MS - start),
        first,
    )


def days_before(hours: float) -> float:
    """Return the days of a history before the last 24 hours: at least one, because less tells too little."""
    return max(hours / _DAY_HOURS, 1.0)


def has_ended(silence: timedelta, lasted: timedelta, failures: int) -> bool:
    """Return whether a group had ended before a silence, so that it is back again after it.

    `lasted` is the time from the first to the last of the `failures` before.

    >>> silence = timedelta(days=4)
    >>> has_ended(silence, timedelta(hours=2), 120), has_ended(silence, timedelta(days=6), 3)
    (True, False)
    """
    pause = lasted / max(failures - 1, 1)
    return silence >= max(_TUNING.silence, _TUNING.pauses * pause)


def is_clear_rise(
    recent: int, usual: float, rise: float, hourly: Callable[[], NDArray[np.int64]]
) -> bool:
    """Return whether a group failed clearly more often in the last 24 hours than before.

    `rise` is the number of standard deviations if failures are independent. `hourly` returns the counts of
    the last `KEPT` since the first failure, which show whether failures come in bursts.

    >>> is_clear_rise(30, 10.0, 4.5, lambda: np.ones(168, dtype=np.int64))
    True
    >>> is_clear_rise(30, 10.0, 4.5, lambda: np.tile([6, 0, 0, 0, 0, 0], 28))
    False
    """
    if recent < max(_TUNING.least, _TUNING.ratio * usual) or rise < _TUNING.deviations:
        return False

    counts = hourly().astype(np.float64)
    bursts = dispersion(counts, np.ones(len(counts)))
    return rise >= _TUNING.deviations * math.sqrt(bursts)


def state_of(
    recent: int, before: int, silence: timedelta, lately: int, *, is_more: bool
) -> State:
    """Return the state of a group by its failures in the last 24 hours and before.

    `silence` is the time before the first recent failure, if the group had ended before it, `lately` the
    number in the last `LATELY`, and `is_more` is the result of `is_clear_rise`.

    >>> state_of(30, 60, timedelta(), 4, is_more=True), state_of(0, 60, timedelta(), 0, is_more=False)
    ('growing', 'ended')
    >>> state_of(200, 60, timedelta(), 1, is_more=True)
    'steady'
    """
    if not recent:
        return "ended"
    if not before:
        return "new"
    if silence >= _TUNING.silence:
        return "back again"

    share = recent * (_TUNING.lately / _DAY)
    has_fallen = share - lately > _TUNING.fallen * math.sqrt(share)
    if is_more and not has_fallen:
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
