"""Find changes of the level of a rate that chance does not explain.

For example, hourly counts of about 5, then of about 15 for a night, then of 5 again have two changes of the
level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from toolkit.base.arguments import whole, wrong
from toolkit.failures.usual_rates import (
    TUNING,
    Floats,
    Ints,
    cumulated,
    dispersion,
    seasonal_profile,
)

_MOST: Final = 2.0**53  # events of a bin: a float is exact up to this number
# bins, at most, for the exact search; longer series use candidates of parts
_EXACT: Final = 8_192
_PART: Final = 1_024  # bins, or blocks of bins
_COARSER: Final = 8
# times the logarithm of the number of bins: the gain that a change needs
_PENALTY: Final = 2.5


def change_points(
    counts: Sequence[float] | Floats | pd.Series, *, period: int | None = None
) -> pd.DataFrame:
    """Find changes of the rate of a count to another level.

    Failures come in bursts (retries, batches), so that counts vary more than by chance alone. The evidence is
    therefore divided by the dispersion of the counts. Do not use it for single bursts: a level lasts at least
    three bins.

    Parameters
    ----------
    counts : sequence of float
        Numbers of events in bins of equal length, oldest first; none of them negative, missing or infinite.
    period : int, optional
        Bins of a daily or weekly wave, for example 24 for hours; 1 if the counts have no wave. If omitted,
        the period is found in the counts.

    Returns
    -------
    pandas.DataFrame
        One row per change, oldest first: `at` (Int64, position of the first bin of the new level), `before`
        and `after` (float64, events per bin), `confidence` (float64, 0 to 1: that the level changed at all).

    Raises
    ------
    InputError
        If `counts` are not numbers as above, or `period` is below 1.

    Notes
    -----
    The method is the penalised likelihood of a piecewise constant Poisson rate (Killick et al., 2012, PELT),
    with the likelihood divided by the dispersion of the counts. It is exact up to 8,192 bins. In longer
    series, the candidates are the changes within parts of 1,024 bins, or of 1,024 blocks of 8, 64 … bins.

    Examples
    --------
    >>> counts = [4, 6, 5, 5, 3, 6, 5, 4, 6, 5, 16, 14, 15, 17, 13, 15, 16, 14]
    >>> change_points(counts)[["at", "before", "after"]]
       at  before  after
    0  10     4.9   15.0
    """
    values = _checked(counts)
    period = whole("period", period, optional="to find it in the counts")

    starts: list[int] = []
    confidence: list[float] = []
    if values.size >= 2 * TUNING.shortest and values.any():
        exposure = seasonal_profile(values, period)
        spread = dispersion(values, exposure)
        starts = _segments(values, exposure, _PENALTY * np.log(values.size) * spread)
        starts = _with_exact_last_start(values / exposure, starts)
        confidence = _confidence(values, starts, exposure, spread)

    rates = [
        float(values[first:end].mean())
        for first, end in pairwise([*starts, values.size])
    ]
    return pd.DataFrame(
        {
            "at": pd.Series(starts[1:], dtype="Int64"),
            "before": pd.Series(rates[:-1], dtype="float64"),
            "after": pd.Series(rates[1:], dtype="float64"),
            "confidence": pd.Series(confidence, dtype="float64"),
        }
    )


def _checked(counts: Any) -> Floats:
    try:
        values = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise wrong(
            "counts", counts, "numbers of events in bins of equal length"
        ) from None

    if (
        values.ndim != 1
        or not np.isfinite(values).all()
        or ((values < 0) | (values > _MOST)).any()
    ):
        raise wrong(
            "counts",
            counts,
            "a sequence of counts, none negative, missing or above 2**53",
        )

    return values


def _segments(values: Floats, exposure: Floats, penalty: float) -> list[int]:
    """Return the starts of levels by the penalised Poisson likelihood, of candidates if bins are many."""
    total, share = cumulated(values), cumulated(exposure)
    size = values.size
    if size <= _EXACT:
        return _optimal(total, share, np.arange(size + 1), penalty)

    # half the penalty, because a part may contain half of a level
    bounds = np.unique([0, *_candidates(total, share, penalty / 2), size])
    return _placed(total, share, [*_optimal(total, share, bounds, penalty), size])[:-1]


def _with_exact_last_start(rates: Floats, starts: list[int]) -> list[int]:
    """Return the starts of levels, the last one at the first bin of the level that is now.

    A level has at least three bins, so the last one begins too early if something rose in the last bin or the
    last two. For example, the last level of 16, 17, 16, 28, 15, 159 begins at 28, two bins too early. Bins
    that are nearer to the level before do not belong to it, and a single bin is no level.
    """
    if len(starts) < 2 or rates.size - starts[-1] != TUNING.shortest:  # noqa: PLR2004 - two levels
        return starts

    before, last = rates[starts[-2] : starts[-1]].mean(), rates[starts[-1] :]
    is_new = np.abs(last - last.mean()) < np.abs(last - before)
    if is_new.sum() < 2:  # noqa: PLR2004 - a single bin
        return starts[:-1]

    return [*starts[:-1], starts[-1] + int(is_new.argmax())]


def _candidates(total: Floats, share: Floats, penalty: float) -> Iterator[int]:
    """Yield the changes within parts of the series, of bins and of ever larger blocks of bins."""
    size, step = total.size - 1, 1
    while step == 1 or size > step * _PART // _COARSER:
        for first in range(0, size, step * _PART):
            last = min(first + step * _PART, size)
            bounds = np.append(np.arange(first, last, step), last)
            yield from _placed(
                total, share, [*_optimal(total, share, bounds, penalty), last]
            )

        step *= _COARSER


def _placed(total: Floats, share: Floats, bounds: list[int]) -> list[int]:
    """Move each bound of levels to the best place between the bounds next to it."""
    for number in range(1, len(bounds) - 1):
        before, after = bounds[number - 1], bounds[number + 1]
        at = np.arange(before + TUNING.shortest, after - TUNING.shortest + 1)
        if at.size:
            left = _cost(total[at] - total[before], share[at] - share[before])
            right = _cost(total[after] - total[at], share[after] - share[at])
            bounds[number] = int(at[np.argmin(left + right)])

    return bounds


def _optimal(total: Floats, share: Floats, bounds: Ints, penalty: float) -> list[int]:
    """Return the optimal starts of levels that begin and end at some bounds, by dynamic programming (PELT).

    `best[index]` is the least cost of the series up to a bound, and `origin[index]` the start of the last
    level of that solution. A start that is worse than the best solution now can never win later (pruning).
    """
    # The least cost up to bound i is the minimum over the start j of the last level:
    #     best[i] = min(best[j] + cost(j, i)) + penalty
    # Source: Killick, Fearnhead and Eckley (2012), Optimal detection of changepoints with a linear
    # computational cost.
    best = np.full(bounds.size, np.inf)
    best[0] = -penalty
    origin = np.zeros(bounds.size, dtype=np.intp)
    events_until, share_until = total[bounds], share[bounds]
    # The first `count` of these starts can still win. An array that grows would be copied each time.
    open_starts = np.zeros(bounds.size, dtype=np.intp)
    count = 1

    fresh = 1
    for index in range(1, bounds.size):
        end = bounds[index]
        if end < bounds[0] + TUNING.shortest:
            continue
        # A start can be chosen as soon as a level from there to `end` has the shortest length.
        while bounds[fresh] <= end - TUNING.shortest:
            if best[fresh] < np.inf:
                open_starts[count] = fresh
                count += 1
            fresh += 1

        candidates = open_starts[:count]
        events = events_until[index] - events_until[candidates]
        cost = best[candidates] + _cost(
            events, share_until[index] - share_until[candidates]
        )
        winner = cost.argmin()
        best[index], origin[index] = cost[winner] + penalty, candidates[winner]
        # Pruning: with more events, a start that is worse now stays worse.
        can_win = cost <= best[index]
        if not can_win.all():
            kept = candidates[can_win]
            count = kept.size
            open_starts[:count] = kept

    level_starts: list[int] = []
    index = bounds.size - 1
    # Follow the chosen starts from the end of the series back to the beginning.
    while index > 0:
        index = int(origin[index])
        level_starts.append(int(bounds[index]))

    return level_starts[::-1]


def _cost(events: Floats, share: Floats) -> Floats:
    """Return the negative maximised log-likelihood of levels, without terms that are equal for all."""
    # A level with n events in a share s has the rate n / s, and the log-likelihood n log(n / s) - n.
    has_events = events > 0
    rates = events / share
    if has_events.all():
        # the usual case, without arrays for the exceptions
        return np.asarray(events - events * np.log(rates))
    logs = np.log(rates, out=np.zeros(events.shape), where=has_events)
    return np.asarray(events - events * logs)


def _confidence(
    values: Floats, starts: list[int], exposure: Floats, spread: float
) -> list[float]:
    """Return for each change one minus the chance of a difference as large at any bin of both levels."""

    def cost(first: int, end: int) -> float:
        return float(
            _cost(
                values[first:end].sum(keepdims=True),
                exposure[first:end].sum(keepdims=True),
            )[0]
        )

    bounds = [*starts, values.size]

    confidences = []
    for before, at, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        gain = (
            max(cost(before, after) - cost(before, at) - cost(at, after), 0.0) / spread
        )
        # the level could have changed at any bin of both levels: one chance per bin
        confidences.append(1 - min(1.0, (after - before) * np.exp(-gain)))

    return confidences
