"""Find changes of a rate of failures that chance does not explain: levels, and windows of any length.

For example, hourly counts of about 5, then of about 15 for a night, then of 5 again have two changes of the
level, and one window with a raised rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import whole, wrong

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Bins = tuple[int, int]  # the first bin of a window, and the bin after its last

_SHORTEST: Final = 3  # bins of a level
# a day or a week of usual bins
_PERIODS: Final = (
    24,
    168,
    7,
    12,
    48,
    96,
    144,
    288,
    336,
    672,
    1440,
)
_MOST: Final = 2.0**53  # events of a bin: a float is exact up to this number
_CYCLES: Final = 3  # cycles, at least, to believe in a period
# standard deviations: one in a million series without a period looks as regular
_WAVE: Final = 4.7532584578526205
_BLOCKS: Final = (1, 2, 4, 8, 16)
_TRIMMED: Final = 0.1  # share of the cycles that are ignored at each end (trimmed mean)
# bins, at most, for the exact search; longer series use candidates of parts
_EXACT: Final = 8_192
_PART: Final = 1_024  # bins, or blocks of bins
_COARSER: Final = 8
# times the logarithm of the number of bins: the gain that a change needs
_PENALTY: Final = 2.5
FEWEST: Final = 10.0  # events in excess
# natural units of log-likelihood above the best of all windows by chance
MARGIN: Final = 2.0
_GROWTH: Final = 1.35  # from one length to the next
_LONGEST: Final = 0.85  # of all bins
_STARTS: Final = 6  # of a window within its length
_ROUNDS: Final = 5
_EPISODES: Final = 30
_UNUSUAL: Final = 2.0  # times the usual dispersion
# times as many failures after a sharp beginning as in an equal time before it
_SHARP: Final = 6
_UNLIKE: Final = 1.8  # times the failures of any other time of this length
# weight of the gain over other failures, as their own rise is explained later
_SHARE: Final = 2.5
# of the longer of two episodes: a shorter gap does not separate them
_JOINED: Final = 0.35


def change_points(
    counts: Sequence[float] | _Floats | pd.Series, *, period: int | None = None
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
    if values.size >= 2 * _SHORTEST and values.any():
        exposure = seasonal_profile(values, period)
        spread = dispersion(values, exposure)
        starts = _segments(values, exposure, _PENALTY * np.log(values.size) * spread)
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


def _checked(counts: Any) -> _Floats:
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


def seasonal_profile(
    values: _Floats, period: int | None = None, known: _Bools | None = None
) -> _Floats:
    """Return the rate that is expected in each bin by the time of day or week, relative to the mean rate.

    For example, 2 for a bin at noon with twice the mean. It is 1 in all bins if the counts have no wave. Bins
    that are not `known` (failures may be missing) count neither for the level nor for a phase.
    """
    if known is None:
        known = np.ones(values.size, dtype=bool)
    if period is None:
        period = next(
            (period for period in _PERIODS if _has_wave(values, period, known)), 1
        )
    if period == 1 or values.size < 2 * period:
        return np.ones(values.size)
    level = np.maximum(_moving_mean(values, period, known), 1e-9)
    # Round up. The last cycle may be incomplete; missing bins are NaN, and NaN is sorted to the end.
    cycles = -(-values.size // period)
    ratios = np.full(cycles * period, np.nan)
    ratios[: values.size] = np.where(known, values / level, np.nan)
    by_phase = np.sort(ratios.reshape(cycles, period), axis=0)  # missing ones last
    counted = np.isfinite(by_phase).sum(axis=0)
    cut = (counted * _TRIMMED).astype(int)
    rows = np.arange(cycles)[:, None]
    is_kept = (rows >= cut) & (rows < counted - cut)
    kept = np.where(is_kept, by_phase, 0).sum(axis=0) / np.maximum(counted - 2 * cut, 1)
    # An hour in which nothing ever failed is not impossible: one failure
    # in it must not be infinitely surprising.
    profile = np.maximum(kept / max(kept.mean(), 1e-9), 0.02)
    return np.tile(profile, cycles)[: values.size]


def _has_wave(values: _Floats, period: int, known: _Bools) -> bool:
    """Return whether the phase of a period explains the counts better than chance (F test of phase means).

    Only cycles with all bins known count.
    """
    cycles = values.size // period
    if cycles < _CYCLES:
        return False
    is_whole = known[: cycles * period].reshape(cycles, period).all(axis=1)
    level = np.maximum(_moving_mean(values, period, known), 1e-9)
    # The square root makes the variance of a Poisson count nearly independent of the mean (Anscombe), which
    # an F test requires. The bound keeps one incident from looking like a wave.
    table = np.sqrt(np.minimum(values / level, 20))[: cycles * period].reshape(
        cycles, period
    )[is_whole]
    cycles = len(table)
    if cycles < _CYCLES:
        return False
    table = table - table.mean(axis=1, keepdims=True)
    between = cycles * table.mean(axis=0).var() * period / (period - 1)
    within = (
        (table - table.mean(axis=0)).var()
        * cycles
        * period
        / ((cycles - 1) * (period - 1))
    )
    if within <= 0:
        return bool(between > 0)
    # Wilson and Hilferty's normal approximation of the F distribution
    one, two = period - 1, (cycles - 1) * (period - 1)
    root = (between / within) ** (1 / 3)
    z = (root * (1 - 2 / (9 * two)) - (1 - 2 / (9 * one))) / np.sqrt(
        root**2 * 2 / (9 * two) + 2 / (9 * one)
    )
    return float(z) > _WAVE


def _moving_mean(values: _Floats, width: int, known: _Bools) -> _Floats:
    """Return the centred mean of the bins that are known, with fewer bins at both ends."""
    sums, numbers = (
        cumulated(np.where(known, values, 0.0)),
        cumulated(known.astype(np.float64)),
    )
    centre = np.arange(values.size)
    first, last = (
        np.maximum(centre - width // 2, 0),
        np.minimum(centre - width // 2 + width, values.size),
    )
    counted = np.maximum(numbers[last] - numbers[first], 1)
    return np.asarray((sums[last] - sums[first]) / counted, dtype=np.float64)


def cumulated(shares: _Floats) -> _Floats:
    """Return the sum before each bin, and the sum of all bins."""
    return np.concatenate([[0.0], np.cumsum(shares)])


def dispersion(values: _Floats, exposure: _Floats) -> float:
    """Return the variance over the mean around a slowly changing level; 1 for a Poisson process."""
    return float(dispersions(values[None], exposure[None])[0])


def dispersions(values: _Floats, exposure: _Floats) -> _Floats:
    """Return the dispersion of each row of counts.

    It is measured on the differences of neighbouring blocks, so that changes of the level hardly count.
    Blocks have several sizes, because a burst that lasts adds up over several bins. The largest differences
    are ignored: they may be changes.
    """
    largest = np.ones(len(values))
    for width in _BLOCKS:
        blocks = values.shape[1] // width
        if blocks < 4 * _SHORTEST:
            break
        sums, shares = (
            part[:, : blocks * width].reshape(-1, blocks, width).sum(axis=2)
            for part in (values, exposure)
        )
        # For a Poisson process, the difference of two rates has the variance level * (1 / share + 1 / share),
        # so the squared difference relative to this has the mean 1. If failures come in pairs, the mean is 2.
        one, two = sums[:, :-1] / shares[:, :-1], sums[:, 1:] / shares[:, 1:]
        level = (sums[:, :-1] + sums[:, 1:]) / (shares[:, :-1] + shares[:, 1:])
        expected = level * (1 / shares[:, :-1] + 1 / shares[:, 1:])
        ratio = np.divide(
            (one - two) ** 2, expected, out=np.ones_like(expected), where=expected > 0
        )
        # The largest ratios are real changes of the level, so 2 % of them, and at least two, are left out.
        kept = np.sort(ratio, axis=1)[:, : blocks - 1 - max(2, (blocks - 1) // 50)]
        largest = np.maximum(largest, kept.mean(axis=1))
    return largest


def _segments(values: _Floats, exposure: _Floats, penalty: float) -> list[int]:
    """Return the starts of levels by the penalised Poisson likelihood, of candidates if bins are many."""
    total, share = cumulated(values), cumulated(exposure)
    size = values.size
    if size <= _EXACT:
        return _optimal(total, share, np.arange(size + 1), penalty)
    # half the penalty, because a part may contain half of a level
    bounds = np.unique([0, *_candidates(total, share, penalty / 2), size])
    return _placed(total, share, [*_optimal(total, share, bounds, penalty), size])[:-1]


def _candidates(total: _Floats, share: _Floats, penalty: float) -> Iterator[int]:
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


def _placed(total: _Floats, share: _Floats, bounds: list[int]) -> list[int]:
    """Move each bound of levels to the best place between the bounds next to it."""
    for number in range(1, len(bounds) - 1):
        before, after = bounds[number - 1], bounds[number + 1]
        at = np.arange(before + _SHORTEST, after - _SHORTEST + 1)
        if at.size:
            left = _cost(total[at] - total[before], share[at] - share[before])
            right = _cost(total[after] - total[at], share[after] - share[at])
            bounds[number] = int(at[np.argmin(left + right)])
    return bounds


def _optimal(
    total: _Floats, share: _Floats, bounds: _Ints, penalty: float
) -> list[int]:
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
    candidates = np.array([0], dtype=np.intp)
    fresh = 1
    for index in range(1, bounds.size):
        end = bounds[index]
        if end < bounds[0] + _SHORTEST:
            continue
        # A start can be chosen as soon as a level from there to `end` has the shortest length.
        while bounds[fresh] <= end - _SHORTEST:
            if np.isfinite(best[fresh]):
                candidates = np.append(candidates, fresh)
            fresh += 1
        starts = bounds[candidates]
        cost = best[candidates] + _cost(
            total[end] - total[starts], share[end] - share[starts]
        )
        winner = int(np.argmin(cost))
        best[index], origin[index] = cost[winner] + penalty, candidates[winner]
        candidates = candidates[cost <= best[index]]
    level_starts: list[int] = []
    index = bounds.size - 1
    # Follow the chosen starts from the end of the series back to the beginning.
    while index > 0:
        index = int(origin[index])
        level_starts.append(int(bounds[index]))
    return level_starts[::-1]


def _cost(events: _Floats, share: _Floats) -> _Floats:
    """Return the negative maximised log-likelihood of levels, without terms that are equal for all."""
    # A level with n events in a share s has the rate n / s, and the log-likelihood n log(n / s) - n.
    logs = np.log(events / share, out=np.zeros_like(events), where=events > 0)
    return np.asarray(events - events * logs)


def _confidence(
    values: _Floats, starts: list[int], exposure: _Floats, spread: float
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


@dataclass(frozen=True, eq=False)
class ExpectedShares:
    """The share of all failures that is expected in each bin.

    Bins in a gap, whose failures expired before they were read, have 0: no failures are expected there, and
    the others share the rest. For example, if the last of four bins is in a gap, each of the others has a
    third.
    """

    level: _Floats  # at one rate
    wave: _Floats  # by the hour of the day, if that explains the failures

    @classmethod
    def of(cls, total: _Floats, known: _Floats) -> ExpectedShares:
        """Return the shares for the counts of all failures; `known` is the part of each bin in no gap."""
        wave = seasonal_profile(total, known=known >= 1) * known
        return cls(level=known / known.sum(), wave=wave / wave.sum())

    @property
    def has_data(self) -> _Bools:
        """Return which bins are at least partly outside of gaps."""
        return self.level > 0

    def of_series(self, values: _Floats) -> _Floats:
        """Return the shares for one series: with the wave, if it explains the counts better."""
        seen = self.has_data
        is_waving = values[seen] @ np.log(self.wave[seen] / self.level[seen]) > 0
        return self.wave if is_waving else self.level


def least_surprise(series: int, bins: int) -> float:
    """Return the score that a window needs if this number of series and bins is searched."""
    return float(np.log(max(series, 1)) + np.log(max(bins, 2) * _STARTS) + MARGIN)


def spreads(counts: _Ints, expected: ExpectedShares) -> _Floats:
    """Return the dispersion of each series, limited to the usual dispersion of all series."""
    seen = expected.has_data
    shares = np.array([expected.of_series(series) for series in counts]).reshape(
        counts.shape
    )
    own = dispersions(counts[:, seen].astype(np.float64), shares[:, seen] * seen.sum())
    usual = float(np.median(own)) if own.size else 1.0
    return np.asarray(np.clip(own, usual, _UNUSUAL * usual))


def strongest(
    counts: _Ints,
    total: _Floats,
    expected: ExpectedShares,
    spread: _Floats,
    least: float,
) -> list[_Bins]:
    """Return the best window of each series and length with at least this score, the best first.

    The score is a log-likelihood ratio: a higher rate in the window against one rate for the whole time. It
    is limited by the ratio against the rise of all failures, and divided by the dispersion of the series.
    """
    size, events = counts.shape[1], counts.sum(axis=1)
    # This is a table of n log(n): counts are whole numbers, so windows can look the values up.
    logs = np.arange(int(events.max(initial=0)) + 1, dtype=np.float64)
    logs[1:] *= np.log(logs[1:])
    # With cumulated sums, the count of a window is one subtraction, whatever the length is.
    sums = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
    waving = np.array(
        [expected.of_series(values) is expected.wave for values in counts], dtype=bool
    )
    of_all_failures = total / max(total.sum(), 1e-9)
    levels = (
        cumulated(expected.level),
        cumulated(expected.wave),
        cumulated(of_all_failures),
    )
    rises: list[tuple[float, int, int, int]] = []
    for length in _lengths(size):
        step = max(1, length // _STARTS)
        inside = sums[:, length::step] - sums[:, : size - length + 1 : step]
        level, daily, all_failures = (
            _clipped(sums[length::step] - sums[: size - length + 1 : step])
            for sums in levels
        )
        # most windows have too few failures: compute the score of the others only
        series, place = np.nonzero(inside >= FEWEST)
        within = inside[series, place]
        usual = np.where(waving[series], daily[place], level[place])
        is_high = (within - events[series] * usual >= FEWEST) & (
            within > events[series] * all_failures[place]
        )
        series, place, within, usual = (
            series[is_high],
            place[is_high],
            within[is_high],
            usual[is_high],
        )
        outside = events[series] - within
        own_rate = logs[within] + logs[outside] - logs[events[series]]
        one_rate = _log_likelihood(within, outside, usual)
        rate_of_all = _log_likelihood(within, outside, all_failures[place])
        # Two explanations have to be beaten: that the series always has this rate, and that it only follows
        # all failures. Otherwise, every series of a rise of everything would have a window.
        score = (
            np.minimum(own_rate - one_rate, _SHARE * (own_rate - rate_of_all))
            / spread[series]
        )
        order = np.lexsort((place, -score, series))
        for first in order[np.unique(series[order], return_index=True)[1]]:
            if score[first] >= least:
                start = int(place[first]) * step
                rises.append(
                    (-float(score[first]), int(series[first]), start, start + length)
                )
    return [(start, stop) for _, _, start, stop in sorted(rises)]


def _clipped(share: _Floats) -> _Floats:
    return np.clip(share, 1e-9, 1 - 1e-9)


def _log_likelihood(inside: _Ints, outside: _Ints, share: _Floats) -> _Floats:
    """Return the log-likelihood that events fall inside, without terms that do not depend on the share."""
    return np.asarray(inside * np.log(share) + outside * np.log1p(-share))


def _lengths(size: int) -> list[int]:
    """Return lengths of windows: all short ones, then each about a third longer than the last."""
    sizes = [1]
    while sizes[-1] < size * _LONGEST / _GROWTH:
        sizes.append(max(sizes[-1] + 1, round(sizes[-1] * _GROWTH)))
    return sizes


def gain(
    inside: _Floats | _Ints, events: _Floats | _Ints, share: _Floats | float
) -> _Floats:
    """Return the log-likelihood ratio of a higher rate inside against one rate; 0 if it is not higher.

    For example, 20 of 100 events in a window that should have a tenth gain 20 log 2 + 80 log(8/9) = 4.4.
    """
    outside = events - inside
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(inside > 0, inside * np.log(inside / (events * share)), 0.0)
        two = np.where(
            outside > 0, outside * np.log(outside / (events * (1 - share))), 0.0
        )
    return np.where(inside > events * share, inner + two, 0.0)


def episodes(values: _Floats, share: _Floats, spread: float) -> list[_Bins]:
    """Return all windows with a high rate of one series, in order. Windows with a short gap are joined."""
    values, share = values.copy(), share / share.sum()
    least = least_surprise(1, values.size)
    spans: list[_Bins] = []
    while len(spans) < _EPISODES and values.any() and share.sum() > 0:
        span, score = _best(values, share / share.sum())
        if score / spread < least:
            break
        spans.append(span)
        # Both are taken out, so that the next search compares the rest of
        # the failures with the rest of the time.
        values[slice(*span)], share[slice(*span)] = 0, 0
    return _joined(sorted(spans))


def _best(values: _Floats, share: _Floats) -> tuple[_Bins, float]:
    """Return the window of one series with the largest gain, with refined ends, and the gain."""
    sums, parts = cumulated(values), cumulated(share)
    best, span = 0.0, (0, 1)
    for length in _lengths(values.size):
        starts = np.arange(0, values.size - length + 1, max(1, length // _STARTS))
        inside, usual = (
            sums[starts + length] - sums[starts],
            parts[starts + length] - parts[starts],
        )
        score = np.where(
            inside - sums[-1] * usual >= FEWEST,
            gain(inside, sums[-1], _clipped(usual)),
            0.0,
        )
        place = int(score.argmax())
        if score[place] > best:
            best, span = (
                float(score[place]),
                (int(starts[place]), int(starts[place]) + length),
            )
    return _sharpened(sums, parts, *span), best


def unlike_any(total: _Floats, expected: ExpectedShares, least: float) -> _Bins | None:
    """Return the window with more failures than any other time of this length; None if none stands out."""
    span, score = _best(total, expected.wave)
    length = span[1] - span[0]
    sums = cumulated(total)
    starts = np.arange(total.size - length + 1)
    apart = starts[(starts + length <= span[0]) | (starts >= span[1])]
    inside = sums[span[1]] - sums[span[0]]
    if apart.size:
        most = (sums[apart + length] - sums[apart]).max()
    else:  # the window is more than half of the history: use the rate of the rest
        known = np.count_nonzero(expected.has_data)
        length = int(np.count_nonzero(expected.has_data[slice(*span)]))
        most = (sums[-1] - inside) * length / max(known - length, 1)
    enough = score >= least and span[0] > 0 and inside >= _UNLIKE * most
    return span if enough else None


def _sharpened(sums: _Floats, parts: _Floats, start: int, stop: int) -> _Bins:
    """Move the ends of a window to the best places near them, and remove empty bins at the ends."""
    size = sums.size - 1
    for _ in range(_ROUNDS):
        reach = max(2, -(-(stop - start) // 4))
        lows = np.arange(max(0, start - reach), min(start + reach, size) + 1)
        highs = np.arange(max(0, stop - reach), min(stop + reach, size) + 1)
        low, high = (grid.ravel() for grid in np.meshgrid(lows, highs))
        low, high = low[high > low], high[high > low]
        best = int(
            gain(
                sums[high] - sums[low], sums[-1], _clipped(parts[high] - parts[low])
            ).argmax()
        )
        if (start, stop) == (low[best], high[best]):
            break
        start, stop = int(low[best]), int(high[best])
    full = np.flatnonzero(np.diff(sums[start : stop + 1]))
    if not full.size:
        return start, stop
    return start + int(full[0]), start + int(full[-1]) + 1


def _joined(spans: list[_Bins]) -> list[_Bins]:
    joined = spans[:1]
    for start, stop in spans[1:]:
        before_start, before_stop = joined[-1]
        longer = max(stop - start, before_stop - before_start)
        if start - before_stop <= _JOINED * longer:
            joined[-1] = (before_start, stop)
        else:
            joined.append((start, stop))
    return joined


def surprise(observed: int, usual: float, exposure: float, mean: float) -> float:
    """Return the negative logarithm of the chance of this many failures, or more.

    Failures come in bursts of geometric sizes with a `mean`. `usual` bursts came in a time that is `exposure`
    times as long, so the number of bursts now has a negative binomial distribution. For example, 10 failures
    are no surprise if they usually come in bursts of 10.
    """
    ratio = (usual + observed + 1) / ((observed + 1) * (1 + exposure))
    if observed <= 0 or ratio >= 1:
        return 0.0
    number = np.arange(1, observed + 1)  # of bursts
    factorials = np.concatenate([[0.0], np.cumsum(np.log(number))])
    # of the negative binomial distribution
    each = np.log((usual + number) / (number * (1 + exposure)))
    bursts = np.cumsum(each) - (usual + 1) * np.log1p(1 / exposure)
    # chance that this number of bursts is enough
    enough = np.where(number == observed, 0.0, -np.inf)
    if mean > 1:
        ended = number - 1
        goes_on = observed - number
        chances = factorials[observed - 1] - factorials[ended] - factorials[goes_on]
        chances += goes_on * np.log1p(-1 / mean) - ended * np.log(mean)
        enough = np.logaddexp.accumulate(chances)
    more = bursts[-1] + np.log(ratio) - np.log1p(-ratio)
    return max(0.0, -float(np.logaddexp.reduce(np.append(bursts + enough, more))))


def forerunners(when: _Ints) -> int:
    """Count the failures before a sharp beginning: far fewer than in an equal time after it.

    Such failures can come from an incident all the same: without a time of failure, they have the time of
    their first try.
    """
    before = np.arange(1, len(when))
    stop = 2 * when[1:] - when[0]
    after = np.searchsorted(when, stop) - before
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = after * np.log(2 * after / (before + after)) + before * np.log(
            2 * before / (before + after)
        )
    gain[(after < _SHARP * before) | (stop > when[-1])] = 0
    if not gain.size:
        return 0
    best = int(gain.argmax())
    is_sharp = gain[best] >= np.log(len(when)) + MARGIN
    return best + 1 if is_sharp else 0
