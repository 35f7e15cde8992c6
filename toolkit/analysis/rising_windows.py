"""Time in equal bins, and windows in which counts are higher than around them: all starts and lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from toolkit.analysis.change_points import dispersions, seasonal_profile

Span = tuple[int, int]
"""From when (included) until when (not included), in ns since 1970."""

_MINUTE: Final = 60_000_000_000  # nanoseconds
_STEPS: Final = tuple(
    minutes * _MINUTE for minutes in (1, 2, 5, 10, 20, 30, 60, 180, 360, 1440, 7 * 1440, 28 * 1440)
)


@dataclass(frozen=True)
class TimeBins:
    """Bins that begin at full steps and cover a span; times are in ns since 1970."""

    start: int
    end: int  # not included
    step: int

    @classmethod
    def covering(cls, start: int, end: int, most: int) -> TimeBins:
        """The shortest usual bins of which a span has no more than this."""
        return cls(start, end, next((step for step in _STEPS if (end - start) // step < most), _STEPS[-1]))

    @property
    def origin(self) -> int:
        """When the first bin begins."""
        return self.start // self.step * self.step

    @property
    def count(self) -> int:
        """How many bins there are."""
        return (self.end - 1 - self.origin) // self.step + 1

    def positions(self, when: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bin of each time."""
        return (when - self.origin) // self.step

    def counted(self, when: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many of some times are in each bin."""
        return np.bincount(self.positions(when), minlength=self.count).astype(np.float64)

    def span(self, bins: tuple[int, int]) -> Span:
        """When a range of bins begins and ends."""
        start, stop = (self.origin + position * self.step for position in bins)
        return max(start, self.start), min(stop, self.end)

    def share(self, span: Span, shares: npt.NDArray[np.float64]) -> float:
        """How much of what is spread over the bins by shares is within a span."""
        cumulated = np.concatenate([[0.0], np.cumsum(shares)])
        edges = [(time - self.origin) / self.step for time in span]
        low, high = np.interp(edges, np.arange(cumulated.size), cumulated)
        return float(high - low)


_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]

FEWEST: Final = 10.0  # events in excess
MARGIN: Final = 2.0  # natural units of log-likelihood beyond what chance reaches in all windows
_GROWTH: Final = 1.35  # from one length to the next
_LONGEST: Final = 0.85  # of all bins
_STARTS: Final = 6  # of a window within its length
_ROUNDS: Final = 5
_EPISODES: Final = 30
_UNUSUAL: Final = 2.0  # times the usual dispersion
_UNLIKE: Final = 1.8  # times the failures of any other time of this length
_SHARE: Final = 2.5  # times what is gained over the other failures: what of them rose is explained later
_JOINED: Final = 0.35  # of the longer of two episodes: a gap that does not part them


class Rise(NamedTuple):
    """Bins in which a series is high, the last one excluded, and how clearly."""

    score: float
    series: int
    start: int
    stop: int


def exposure(values: _Floats, wave: _Floats) -> _Floats:
    """The share of each bin of what a series is expected to have: level, or with the wave of all failures."""
    return wave if values @ np.log(wave * wave.size) > 0 else np.full(wave.size, 1 / wave.size)


def wave_of(total: _Floats) -> _Floats:
    """The share of each bin of all failures by the hour of day, where that explains them."""
    wave = seasonal_profile(total)
    return np.asarray(wave / wave.sum())


def least_surprise(series: int, bins: int) -> float:
    """What a window must score, where so many series and bins are searched."""
    return float(np.log(max(series, 1)) + np.log(max(bins, 2) * _STARTS) + MARGIN)


def spreads(counts: _Ints, wave: _Floats) -> _Floats:
    """How much more than by chance each series varies, as far as most series do."""
    size = counts.shape[1]
    own = dispersions(
        counts.astype(np.float64),
        np.array([exposure(series, wave) for series in counts]).reshape(counts.shape) * size,
    )
    usual = float(np.median(own)) if own.size else 1.0
    return np.asarray(np.clip(own, usual, _UNUSUAL * usual))


def strongest(counts: _Ints, total: _Floats, wave: _Floats, spread: _Floats, least: float) -> list[Rise]:
    """The strongest window of each series and length that scores at least so much, the strongest first."""
    size, events = counts.shape[1], counts.sum(axis=1)
    logs = np.arange(int(events.max(initial=0)) + 1, dtype=np.float64)
    logs[1:] *= np.log(logs[1:])
    sums = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
    waving = np.array([exposure(values, wave) is wave for values in counts], dtype=bool)
    levels = np.linspace(0, 1, size + 1), _cumulated(wave), _cumulated(total / max(total.sum(), 1e-9))
    rises = []
    for length in lengths(size):
        step = max(1, length // _STARTS)
        inside = sums[:, length::step] - sums[:, : size - length + 1 : step]
        level, daily, whole = (
            np.clip(rise[length::step] - rise[: size - length + 1 : step], 1e-9, 1 - 1e-9) for rise in levels
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
                rises.append(Rise(float(score[first]), int(series[first]), start, start + length))
    return sorted(rises, key=lambda rise: (-rise.score, rise.series, rise.start, rise.stop))


def _coded(inside: _Ints, outside: _Ints, share: _Floats) -> _Floats:
    """Log-likelihood of where events fall, up to what does not depend on the share."""
    return np.asarray(inside * np.log(share) + outside * np.log1p(-share))


def _cumulated(shares: _Floats) -> _Floats:
    return np.concatenate([[0.0], np.cumsum(shares)])


def lengths(size: int) -> list[int]:
    """Lengths of windows: all short ones, and then in steps of a third."""
    sizes = [1]
    while sizes[-1] < size * _LONGEST / _GROWTH:
        sizes.append(max(sizes[-1] + 1, round(sizes[-1] * _GROWTH)))
    return sizes


def gain(inside: _Floats, events: _Floats, share: _Floats | float) -> _Floats:
    """Log-likelihood of a rate of its own inside, over one rate; zero where it is not higher."""
    share = np.clip(share, 1e-9, 1 - 1e-9)
    outside = events - inside
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(inside > 0, inside * np.log(inside / (events * share)), 0.0)
        two = np.where(outside > 0, outside * np.log(outside / (events * (1 - share))), 0.0)
    return np.where(inside > events * share, inner + two, 0.0)


def episodes(values: _Floats, share: _Floats, spread: float) -> list[tuple[int, int]]:
    """All windows in which one series is high, in order; those that nearly touch are one."""
    values, share = values.copy(), share / share.sum()
    least = least_surprise(1, values.size)
    spans: list[tuple[int, int]] = []
    while len(spans) < _EPISODES and values.any() and share.sum() > 0:
        span, score = _best(values, share / share.sum())
        if score / spread < least:
            break
        spans.append(span)
        values[slice(*span)], share[slice(*span)] = 0, 0
    return _joined(sorted(spans))


def _best(values: _Floats, share: _Floats) -> tuple[tuple[int, int], float]:
    """The window of one series that is highest, its ends sharpened, and its score."""
    sums, parts = _cumulated(values), _cumulated(share)
    best, span = 0.0, (0, 1)
    for length in lengths(values.size):
        starts = np.arange(0, values.size - length + 1, max(1, length // _STARTS))
        inside, usual = sums[starts + length] - sums[starts], parts[starts + length] - parts[starts]
        score = np.where(inside - sums[-1] * usual >= FEWEST, gain(inside, sums[-1], usual), 0.0)
        place = int(score.argmax())
        if score[place] > best:
            best, span = float(score[place]), (int(starts[place]), int(starts[place]) + length)
    return _sharpened(sums, parts, *span), best


def unlike_any(total: _Floats, share: _Floats, least: float) -> tuple[int, int] | None:
    """The window in which all failures are many as at no other time; None where there is none such."""
    span, score = _best(total, share)
    length = span[1] - span[0]
    sums = _cumulated(total)
    starts = np.arange(total.size - length + 1)
    apart = starts[(starts + length <= span[0]) | (starts >= span[1])]
    most = (sums[apart + length] - sums[apart]).max(initial=0.0)
    inside = sums[span[1]] - sums[span[0]]
    enough = score >= least and apart.size and inside >= _UNLIKE * most
    return span if enough else None


def _sharpened(sums: _Floats, parts: _Floats, start: int, stop: int) -> tuple[int, int]:
    """The window with the ends, near those found, that fit best; empty bins at the ends are left out."""
    size = sums.size - 1
    for _ in range(_ROUNDS):
        reach = max(2, -(-(stop - start) // 4))
        lows = np.arange(max(0, start - reach), min(start + reach, size) + 1)
        highs = np.arange(max(0, stop - reach), min(stop + reach, size) + 1)
        low, high = (grid.ravel() for grid in np.meshgrid(lows, highs))
        low, high = low[high > low], high[high > low]
        best = int(gain(sums[high] - sums[low], sums[-1], parts[high] - parts[low]).argmax())
        if (start, stop) == (low[best], high[best]):
            break
        start, stop = int(low[best]), int(high[best])
    full = np.flatnonzero(np.diff(sums[start : stop + 1]))
    if not full.size:
        return start, stop
    return start + int(full[0]), start + int(full[-1]) + 1


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if joined:
            before = joined[-1]
            if start - before[1] <= _JOINED * max(stop - start, before[1] - before[0]):
                joined[-1] = (before[0], stop)
                continue
        joined.append((start, stop))
    return joined
