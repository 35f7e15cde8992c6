"""Where a rate of failures changed for longer than chance explains: levels, and windows of any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.arguments import whole, wrong

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Bins = tuple[int, int]  # the first of a window, and the one after its last

_SHORTEST: Final = 3  # bins of a level
_PERIODS: Final = (24, 168, 7, 12, 48, 96, 144, 288, 336, 672, 1440)  # a day or a week of usual bins
_MOST: Final = 2.0**53  # events of a bin: a float counts no further
_CYCLES: Final = 3  # a period is believed when it is seen as often
_WAVE: Final = (
    4.7532584578526205  # standard deviations: once in a million, bins without a period look as regular
)
_BLOCKS: Final = (1, 2, 4, 8, 16)
_TRIMMED: Final = 0.1  # share of the cycles that are left out at each end
_EXACT: Final = 8_192  # bins of which every one can be a change; of more, those that are in a part
_PART: Final = 1_024  # bins, or blocks of bins
_COARSER: Final = 8
_PENALTY: Final = 2.5  # times the logarithm of the number of bins: what a change must explain to be one
FEWEST: Final = 10.0  # events in excess
MARGIN: Final = 2.0  # natural units of log-likelihood beyond what chance reaches in all windows
_GROWTH: Final = 1.35  # from one length to the next
_LONGEST: Final = 0.85  # of all bins
_STARTS: Final = 6  # of a window within its length
_ROUNDS: Final = 5
_EPISODES: Final = 30
_UNUSUAL: Final = 2.0  # times the usual dispersion
_SHARP: Final = 6  # times as many failures after a beginning as before it, in as long a time
_UNLIKE: Final = 1.8  # times the failures of any other time of this length
_SHARE: Final = 2.5  # times what is gained over the other failures: what of them rose is explained later
_JOINED: Final = 0.35  # of the longer of two episodes: a gap that does not part them


def change_points(
    counts: Sequence[float] | _Floats | pd.Series, *, period: int | None = None
) -> pd.DataFrame:
    """Find the bins at which the rate of a count changed to another level.

    Failures come in bursts (retries, batches), so that counts vary more than by chance alone: the
    evidence is divided by how much they vary around their level. Not for single bursts: a level lasts three
    bins at least.

    Parameters
    ----------
    counts : sequence of float
        Numbers of events in bins of equal length, oldest first; none of them negative, missing or infinite.
    period : int, optional
        Bins of a daily or weekly wave, such as 24 for hours; 1 for none. Default: found in the counts.

    Returns
    -------
    pandas.DataFrame
        One row a change, oldest first: `at` (Int64, position of the first bin of the new level), `before` and
        `after` (float64, events a bin), `confidence` (float64, 0 to 1: that the level changed at all).

    Raises
    ------
    InputError
        When `counts` are not numbers as above, or `period` is below 1.

    Notes
    -----
    The penalised likelihood of a piecewise constant Poisson rate, maximised by dynamic programming, with the
    likelihood divided by the dispersion of the counts. Exact up to 8,192 bins; of more, the bins compared are
    those at which parts of 1,024 bins change, or of 1,024 blocks of 8, 64 … bins.

    Examples
    --------
    >>> counts = [4, 6, 5, 5, 3, 6, 5, 4, 6, 5, 16, 14, 15, 17, 13, 15, 16, 14]
    >>> change_points(counts)[["at", "before", "after"]]
       at  before  after
    0  10     4.9   15.0
    """
    values = _checked(counts)
    period = whole("period", period, optional="to find it in the counts")
    empty = values.size < 2 * _SHORTEST or not values.any()
    exposure = np.ones(values.size) if empty else seasonal_profile(values, period)
    spread = 1.0 if empty else dispersion(values, exposure)
    starts = [0] if empty else _segments(values, exposure, _PENALTY * np.log(values.size) * spread)
    bounds = [*starts, values.size]
    rates = [float(values[one:two].mean()) for one, two in pairwise(bounds) if two > one]
    confidence = _confidence(values, starts, exposure, spread)
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
        raise wrong("counts", counts, "numbers of events in bins of equal length") from None
    if values.ndim != 1 or not np.isfinite(values).all() or ((values < 0) | (values > _MOST)).any():
        raise wrong("counts", counts, "a sequence of counts, none negative, missing or above 2**53")
    return values


def seasonal_profile(values: _Floats, period: int | None = None, known: _Bools | None = None) -> _Floats:
    """How much of the mean rate each bin is expected to have by its phase; 1 without a wave.

    Bins that are not `known` (failures may be missing) count neither for the level nor for a phase.
    """
    if known is None:
        known = np.ones(values.size, dtype=bool)
    if period is None:
        period = next((found for found in _PERIODS if _has_wave(values, found, known)), 1)
    if period == 1 or values.size < 2 * period:
        return np.ones(values.size)
    level = np.maximum(_moving_mean(values, period, known), 1e-9)
    cycles = -(-values.size // period)
    ratios = np.full(cycles * period, np.nan)
    ratios[: values.size] = np.where(known, values / level, np.nan)
    by_phase = np.sort(ratios.reshape(cycles, period), axis=0)  # missing ones last
    counted = np.isfinite(by_phase).sum(axis=0)
    cut = (counted * _TRIMMED).astype(int)
    rows = np.arange(cycles)[:, None]
    is_kept = (rows >= cut) & (rows < counted - cut)
    kept = np.where(is_kept, by_phase, 0).sum(axis=0) / np.maximum(counted - 2 * cut, 1)
    profile = np.maximum(kept / max(kept.mean(), 1e-9), 0.02)
    return np.tile(profile, cycles)[: values.size]


def _has_wave(values: _Floats, period: int, known: _Bools) -> bool:
    """Whether the phase of a period explains the counts better than chance (an F test of phase means).

    Only cycles of which all bins are known count.
    """
    cycles = values.size // period
    if cycles < _CYCLES:
        return False
    is_whole = known[: cycles * period].reshape(cycles, period).all(axis=1)
    level = np.maximum(_moving_mean(values, period, known), 1e-9)
    table = np.sqrt(np.minimum(values / level, 20))[: cycles * period].reshape(cycles, period)[is_whole]
    cycles = len(table)
    if cycles < _CYCLES:
        return False
    table = table - table.mean(axis=1, keepdims=True)
    between = cycles * table.mean(axis=0).var() * period / (period - 1)
    within = (table - table.mean(axis=0)).var() * cycles * period / ((cycles - 1) * (period - 1))
    if within <= 0:
        return bool(between > 0)
    # Wilson and Hilferty's normal approximation of the F distribution
    one, two = period - 1, (cycles - 1) * (period - 1)
    root = (between / within) ** (1 / 3)
    z = (root * (1 - 2 / (9 * two)) - (1 - 2 / (9 * one))) / np.sqrt(root**2 * 2 / (9 * two) + 2 / (9 * one))
    return float(z) > _WAVE


def _moving_mean(values: _Floats, width: int, known: _Bools) -> _Floats:
    """Centred mean of the bins that are known, with fewer bins at both ends."""
    sums, numbers = cumulated(np.where(known, values, 0.0)), cumulated(known.astype(np.float64))
    centre = np.arange(values.size)
    first, last = np.maximum(centre - width // 2, 0), np.minimum(centre - width // 2 + width, values.size)
    counted = np.maximum(numbers[last] - numbers[first], 1)
    return np.asarray((sums[last] - sums[first]) / counted, dtype=np.float64)


def cumulated(shares: _Floats) -> _Floats:
    """The sum before each bin, and that of all."""
    return np.concatenate([[0.0], np.cumsum(shares)])


def dispersion(values: _Floats, exposure: _Floats) -> float:
    """Variance over mean around a slowly changing level, 1 for a Poisson process."""
    return float(dispersions(values[None], exposure[None])[0])


def dispersions(values: _Floats, exposure: _Floats) -> _Floats:
    """The dispersion of each row of counts.

    Taken from differences of neighbouring blocks, so that changes of level hardly count, of blocks of several
    sizes, as a burst that lasts adds up over its bins. The largest are left out: they may be changes.
    """
    found = np.ones(len(values))
    for width in _BLOCKS:
        blocks = values.shape[1] // width
        if blocks < 4 * _SHORTEST:
            break
        sums, shares = (
            part[:, : blocks * width].reshape(-1, blocks, width).sum(axis=2) for part in (values, exposure)
        )
        one, two = sums[:, :-1] / shares[:, :-1], sums[:, 1:] / shares[:, 1:]
        level = (sums[:, :-1] + sums[:, 1:]) / (shares[:, :-1] + shares[:, 1:])
        expected = level * (1 / shares[:, :-1] + 1 / shares[:, 1:])
        ratio = np.divide((one - two) ** 2, expected, out=np.ones_like(expected), where=expected > 0)
        kept = np.sort(ratio, axis=1)[:, : blocks - 1 - max(2, (blocks - 1) // 50)]
        found = np.maximum(found, kept.mean(axis=1))
    return found


def _segments(values: _Floats, exposure: _Floats, penalty: float) -> list[int]:
    """Starts of levels by the penalised Poisson likelihood; of many bins, the best of the candidates."""
    total, share = cumulated(values), cumulated(exposure)
    size = values.size
    if size <= _EXACT:
        return _optimal(total, share, np.arange(size + 1), penalty)
    # half the penalty, as a part may hold half of a level
    bounds = np.unique([0, *_candidates(total, share, penalty / 2), size])
    return _placed(total, share, [*_optimal(total, share, bounds, penalty), size])[:-1]


def _candidates(total: _Floats, share: _Floats, penalty: float) -> Iterator[int]:
    """Where parts of the series change, in bins and in ever larger blocks of them."""
    size, step = total.size - 1, 1
    while step == 1 or size > step * _PART // _COARSER:
        for first in range(0, size, step * _PART):
            last = min(first + step * _PART, size)
            bounds = np.append(np.arange(first, last, step), last)
            yield from _placed(total, share, [*_optimal(total, share, bounds, penalty), last])
        step *= _COARSER


def _placed(total: _Floats, share: _Floats, bounds: list[int]) -> list[int]:
    """The bounds of levels, each moved to where it fits best between its neighbours."""
    for number in range(1, len(bounds) - 1):
        before, after = bounds[number - 1], bounds[number + 1]
        at = np.arange(before + _SHORTEST, after - _SHORTEST + 1)
        if at.size:
            left = _cost(total[at] - total[before], share[at] - share[before])
            right = _cost(total[after] - total[at], share[after] - share[at])
            bounds[number] = int(at[np.argmin(left + right)])
    return bounds


def _optimal(total: _Floats, share: _Floats, bounds: _Ints, penalty: float) -> list[int]:
    """Optimal starts of levels that begin and end at some bounds, from cumulated counts (PELT)."""
    best = np.full(bounds.size, np.inf)
    best[0] = -penalty
    origin = np.zeros(bounds.size, dtype=np.intp)
    candidates = np.array([0], dtype=np.intp)
    fresh = 1
    for index in range(1, bounds.size):
        end = bounds[index]
        if end < bounds[0] + _SHORTEST:
            continue
        while bounds[fresh] <= end - _SHORTEST:
            if np.isfinite(best[fresh]):
                candidates = np.append(candidates, fresh)
            fresh += 1
        starts = bounds[candidates]
        cost = best[candidates] + _cost(total[end] - total[starts], share[end] - share[starts])
        winner = int(np.argmin(cost))
        best[index], origin[index] = cost[winner] + penalty, candidates[winner]
        candidates = candidates[cost <= best[index]]
    found, index = [], bounds.size - 1
    while index > 0:
        index = int(origin[index])
        found.append(int(bounds[index]))
    return found[::-1]


def _cost(events: _Floats, share: _Floats) -> _Floats:
    """Minus the maximised log-likelihood of levels, up to what all segmentations share."""
    logs = np.log(events / share, out=np.zeros_like(events), where=events > 0)
    return np.asarray(events - events * logs)


def _confidence(values: _Floats, starts: list[int], exposure: _Floats, spread: float) -> list[float]:
    """Of each change: one minus the chance of as large a difference at any bin between its neighbours."""
    bounds, found = [*starts, values.size], []
    for before, at, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        parts = [
            (values[one:two].sum(), exposure[one:two].sum())
            for one, two in ((before, at), (at, after), (before, after))
        ]
        one, two, both = (float(_cost(np.array([n]), np.array([share]))[0]) for n, share in parts)
        gain = max(both - one - two, 0.0) / spread
        found.append(1 - min(1.0, (after - before) * np.exp(-gain)))
    return found


@dataclass(frozen=True, eq=False)
class ExpectedShares:
    """Which share of all failures each bin is expected to have.

    Bins in a gap, whose failures expired before they were read, have 0: nothing is expected there, and the
    others share the rest. For example, of four bins with a gap in the last one, each of the others has a
    third.
    """

    level: _Floats  # at one rate
    wave: _Floats  # by the hour of the day, where that explains the failures

    @classmethod
    def of(cls, total: _Floats, known: _Floats) -> ExpectedShares:
        """Return the shares for the counts of all failures, and which part of each bin is in no gap."""
        wave = seasonal_profile(total, known=known >= 1) * known
        return cls(level=known / known.sum(), wave=wave / wave.sum())

    @property
    def has_data(self) -> _Bools:
        """Which bins are in no gap, at least in part."""
        return self.level > 0

    def of_series(self, values: _Floats) -> _Floats:
        """Return the shares of one series: those with the wave if they explain its counts better."""
        seen = self.has_data
        is_waving = values[seen] @ np.log(self.wave[seen] / self.level[seen]) > 0
        return self.wave if is_waving else self.level


def least_surprise(series: int, bins: int) -> float:
    """What a window must score, where so many series and bins are searched."""
    return float(np.log(max(series, 1)) + np.log(max(bins, 2) * _STARTS) + MARGIN)


def spreads(counts: _Ints, expected: ExpectedShares) -> _Floats:
    """How much more than by chance each series varies, as far as most series do."""
    seen = expected.has_data
    shares = np.array([expected.of_series(series) for series in counts]).reshape(counts.shape)
    own = dispersions(counts[:, seen].astype(np.float64), shares[:, seen] * seen.sum())
    usual = float(np.median(own)) if own.size else 1.0
    return np.asarray(np.clip(own, usual, _UNUSUAL * usual))


def strongest(
    counts: _Ints, total: _Floats, expected: ExpectedShares, spread: _Floats, least: float
) -> list[_Bins]:
    """The strongest window of each series and length that scores at least so much, the strongest first."""
    size, events = counts.shape[1], counts.sum(axis=1)
    logs = np.arange(int(events.max(initial=0)) + 1, dtype=np.float64)
    logs[1:] *= np.log(logs[1:])
    sums = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
    waving = np.array([expected.of_series(values) is expected.wave for values in counts], dtype=bool)
    of_all_failures = total / max(total.sum(), 1e-9)
    levels = cumulated(expected.level), cumulated(expected.wave), cumulated(of_all_failures)
    rises: list[tuple[float, int, int, int]] = []
    for length in _lengths(size):
        step = max(1, length // _STARTS)
        inside = sums[:, length::step] - sums[:, : size - length + 1 : step]
        level, daily, whole = (
            _clipped(rise[length::step] - rise[: size - length + 1 : step]) for rise in levels
        )
        series, place = np.nonzero(inside >= FEWEST)  # nearly all windows of most series hold fewer
        within = inside[series, place]
        usual = np.where(waving[series], daily[place], level[place])
        high = (within - events[series] * usual >= FEWEST) & (within > events[series] * whole[place])
        series, place, within, usual = series[high], place[high], within[high], usual[high]
        outside = events[series] - within
        same = logs[within] + logs[outside] - logs[events[series]]
        in_time, of_all = (_coded(within, outside, share) for share in (usual, whole[place]))
        score = np.minimum(same - in_time, _SHARE * (same - of_all)) / spread[series]
        order = np.lexsort((place, -score, series))
        for first in order[np.unique(series[order], return_index=True)[1]]:
            if score[first] >= least:
                start = int(place[first]) * step
                rises.append((-float(score[first]), int(series[first]), start, start + length))
    return [(start, stop) for _, _, start, stop in sorted(rises)]


def _clipped(share: _Floats) -> _Floats:
    return np.clip(share, 1e-9, 1 - 1e-9)


def _coded(inside: _Ints, outside: _Ints, share: _Floats) -> _Floats:
    """Log-likelihood of where events fall, up to what does not depend on the share."""
    return np.asarray(inside * np.log(share) + outside * np.log1p(-share))


def _lengths(size: int) -> list[int]:
    """Lengths of windows: all short ones, and then in steps of a third."""
    sizes = [1]
    while sizes[-1] < size * _LONGEST / _GROWTH:
        sizes.append(max(sizes[-1] + 1, round(sizes[-1] * _GROWTH)))
    return sizes


def gain(inside: _Floats | _Ints, events: _Floats | _Ints, share: _Floats | float) -> _Floats:
    """Log-likelihood of a rate of its own inside, over one rate; zero where it is not higher."""
    outside = events - inside
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(inside > 0, inside * np.log(inside / (events * share)), 0.0)
        two = np.where(outside > 0, outside * np.log(outside / (events * (1 - share))), 0.0)
    return np.where(inside > events * share, inner + two, 0.0)


def episodes(values: _Floats, share: _Floats, spread: float) -> list[_Bins]:
    """All windows in which one series is high, in order; those that nearly touch are one."""
    values, share = values.copy(), share / share.sum()
    least = least_surprise(1, values.size)
    spans: list[_Bins] = []
    while len(spans) < _EPISODES and values.any() and share.sum() > 0:
        span, score = _best(values, share / share.sum())
        if score / spread < least:
            break
        spans.append(span)
        values[slice(*span)], share[slice(*span)] = 0, 0
    return _joined(sorted(spans))


def _best(values: _Floats, share: _Floats) -> tuple[_Bins, float]:
    """The window of one series that is highest, its ends sharpened, and its score."""
    sums, parts = cumulated(values), cumulated(share)
    best, span = 0.0, (0, 1)
    for length in _lengths(values.size):
        starts = np.arange(0, values.size - length + 1, max(1, length // _STARTS))
        inside, usual = sums[starts + length] - sums[starts], parts[starts + length] - parts[starts]
        score = np.where(inside - sums[-1] * usual >= FEWEST, gain(inside, sums[-1], _clipped(usual)), 0.0)
        place = int(score.argmax())
        if score[place] > best:
            best, span = float(score[place]), (int(starts[place]), int(starts[place]) + length)
    return _sharpened(sums, parts, *span), best


def unlike_any(total: _Floats, expected: ExpectedShares, least: float) -> _Bins | None:
    """The window in which all failures are many as at no other time; None where there is none such."""
    span, score = _best(total, expected.wave)
    length = span[1] - span[0]
    sums = cumulated(total)
    starts = np.arange(total.size - length + 1)
    apart = starts[(starts + length <= span[0]) | (starts >= span[1])]
    inside = sums[span[1]] - sums[span[0]]
    if apart.size:
        most = (sums[apart + length] - sums[apart]).max()
    else:  # more than half of the history: as many as would be in this length
        known = np.count_nonzero(expected.has_data)
        length = int(np.count_nonzero(expected.has_data[slice(*span)]))
        most = (sums[-1] - inside) * length / max(known - length, 1)
    enough = score >= least and span[0] > 0 and inside >= _UNLIKE * most
    return span if enough else None


def _sharpened(sums: _Floats, parts: _Floats, start: int, stop: int) -> _Bins:
    """The window with the ends, near those found, that fit best; empty bins at the ends are left out."""
    size = sums.size - 1
    for _ in range(_ROUNDS):
        reach = max(2, -(-(stop - start) // 4))
        lows = np.arange(max(0, start - reach), min(start + reach, size) + 1)
        highs = np.arange(max(0, stop - reach), min(stop + reach, size) + 1)
        low, high = (grid.ravel() for grid in np.meshgrid(lows, highs))
        low, high = low[high > low], high[high > low]
        best = int(gain(sums[high] - sums[low], sums[-1], _clipped(parts[high] - parts[low])).argmax())
        if (start, stop) == (low[best], high[best]):
            break
        start, stop = int(low[best]), int(high[best])
    full = np.flatnonzero(np.diff(sums[start : stop + 1]))
    if not full.size:
        return start, stop
    return start + int(full[0]), start + int(full[-1]) + 1


def _joined(spans: list[_Bins]) -> list[_Bins]:
    joined: list[_Bins] = []
    for start, stop in spans:
        before = joined[-1] if joined else None
        if before and start - before[1] <= _JOINED * max(stop - start, before[1] - before[0]):
            joined[-1] = (before[0], stop)
        else:
            joined.append((start, stop))
    return joined


def surprise(observed: int, usual: float, exposure: float, mean: float) -> float:
    """Minus the logarithm of the chance of so many failures, in bursts of geometric sizes with this mean.

    `usual` bursts came in a time that is `exposure` times as long, from which follow how many come now.
    """
    ratio = (usual + observed + 1) / ((observed + 1) * (1 + exposure))
    if observed <= 0 or ratio >= 1:
        return 0.0
    number = np.arange(1, observed + 1)  # of bursts
    factorials = np.concatenate([[0.0], np.cumsum(np.log(number))])
    each = np.log((usual + number) / (number * (1 + exposure)))  # of the negative binomial distribution
    bursts = np.cumsum(each) - (usual + 1) * np.log1p(1 / exposure)
    enough = np.where(number == observed, 0.0, -np.inf)  # chance that so many bursts hold all
    if mean > 1:
        ended = number - 1
        goes_on = observed - number
        chances = factorials[observed - 1] - factorials[ended] - factorials[goes_on]
        chances += goes_on * np.log1p(-1 / mean) - ended * np.log(mean)
        enough = np.logaddexp.accumulate(chances)
    more = bursts[-1] + np.log(ratio) - np.log1p(-ratio)
    return max(0.0, -float(np.logaddexp.reduce(np.append(bursts + enough, more))))


def forerunners(when: _Ints) -> int:
    """How many failures come before a sharp beginning: far fewer than in as long a time after it.

    Failures without a date of their own have that of their first try.
    """
    before = np.arange(1, len(when))
    stop = 2 * when[1:] - when[0]
    after = np.searchsorted(when, stop) - before
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = after * np.log(2 * after / (before + after)) + before * np.log(2 * before / (before + after))
    gain[(after < _SHARP * before) | (stop > when[-1])] = 0
    best = int(gain.argmax()) if gain.size else 0
    return best + 1 if gain.size and gain[best] >= np.log(len(when)) + MARGIN else 0
