"""Find windows of any length with more failures than usual.

For example, hourly counts of about 5, then of about 15 for a night, then of 5 again have one window with a
raised rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from toolkit.failures.usual_rates import (
    Bins,
    Bools,
    Floats,
    Ints,
    cumulated,
    dispersions,
    seasonal_profile,
)

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


@dataclass(frozen=True, eq=False)
class ExpectedShares:
    """The share of all failures that is expected in each bin.

    Bins in a gap, whose failures expired before they were read, have 0: no failures are expected there, and
    the others share the rest. For example, if the last of four bins is in a gap, each of the others has a
    third.
    """

    level: Floats  # at one rate
    wave: Floats  # by the hour of the day, if that explains the failures

    @classmethod
    def of(cls, total: Floats, known: Floats) -> ExpectedShares:
        """Return the shares for the counts of all failures; `known` is the part of each bin in no gap."""
        wave = seasonal_profile(total, known=known >= 1) * known
        return cls(level=known / known.sum(), wave=wave / wave.sum())

    @property
    def has_data(self) -> Bools:
        """Return which bins are at least partly outside of gaps."""
        return self.level > 0

    def of_series(self, values: Floats) -> Floats:
        """Return the shares for one series: with the wave, if it explains the counts better."""
        seen = self.has_data
        is_waving = values[seen] @ np.log(self.wave[seen] / self.level[seen]) > 0
        return self.wave if is_waving else self.level


def least_surprise(series: int, bins: int) -> float:
    """Return the score that a window needs if this number of series and bins is searched."""
    return float(np.log(max(series, 1)) + np.log(max(bins, 2) * _STARTS) + MARGIN)


def spreads(counts: Ints, expected: ExpectedShares) -> Floats:
    """Return the dispersion of each series, limited to the usual dispersion of all series."""
    seen = expected.has_data
    shares = np.array([expected.of_series(series) for series in counts]).reshape(
        counts.shape
    )
    own = dispersions(counts[:, seen].astype(np.float64), shares[:, seen] * seen.sum())
    usual = float(np.median(own)) if own.size else 1.0

    return np.asarray(np.clip(own, usual, _UNUSUAL * usual))


def strongest(
    counts: Ints,
    total: Floats,
    expected: ExpectedShares,
    spread: Floats,
    least: float,
) -> list[Bins]:
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


def _clipped(share: Floats) -> Floats:
    return np.clip(share, 1e-9, 1 - 1e-9)


def _log_likelihood(inside: Ints, outside: Ints, share: Floats) -> Floats:
    """Return the log-likelihood that events fall inside, without terms that do not depend on the share."""
    return np.asarray(inside * np.log(share) + outside * np.log1p(-share))


def _lengths(size: int) -> list[int]:
    """Return lengths of windows: all short ones, then each about a third longer than the last."""
    sizes = [1]
    while sizes[-1] < size * _LONGEST / _GROWTH:
        sizes.append(max(sizes[-1] + 1, round(sizes[-1] * _GROWTH)))
    return sizes


def gain(inside: Floats | Ints, events: Floats | Ints, share: Floats | float) -> Floats:
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


def episodes(values: Floats, share: Floats, spread: float) -> list[Bins]:
    """Return all windows with a high rate of one series, in order. Windows with a short gap are joined."""
    values, share = values.copy(), share / share.sum()
    least = least_surprise(1, values.size)

    spans: list[Bins] = []
    while len(spans) < _EPISODES and values.any() and share.sum() > 0:
        span, score = _best(values, share / share.sum())
        if score / spread < least:
            break
        spans.append(span)
        # Both are taken out, so that the next search compares the rest of
        # the failures with the rest of the time.
        values[slice(*span)], share[slice(*span)] = 0, 0

    return _joined(sorted(spans))


def _best(values: Floats, share: Floats) -> tuple[Bins, float]:
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


def unlike_any(total: Floats, expected: ExpectedShares, least: float) -> Bins | None:
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


def _sharpened(sums: Floats, parts: Floats, start: int, stop: int) -> Bins:
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


def _joined(spans: list[Bins]) -> list[Bins]:
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


def forerunners(when: Ints) -> int:
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
