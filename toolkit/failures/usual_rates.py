"""Model usual counts of failures: daily and weekly profiles, and the dispersion of the counts around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bins = tuple[int, int]  # the first bin of a window, and the bin after its last


@dataclass(frozen=True)
class UsualTuning:
    """Constants of usual rates, with their reasons."""

    shortest: int = 3
    """Bins of a level, at least. One or two bins cannot be told from noise."""
    cycles: int = 3
    """Cycles of a period, at least, to believe in it. Two can agree by chance."""
    wave: float = 4.7532584578526205
    """Standard deviations: one in a million series without a period looks as regular."""
    trimmed: float = 0.1
    """Share of the cycles that are ignored at each end (trimmed mean), so that one incident is not usual."""


TUNING: Final = UsualTuning()
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
_BLOCKS: Final = (1, 2, 4, 8, 16)


def seasonal_profile(
    values: Floats, period: int | None = None, known: Bools | None = None
) -> Floats:
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
    cut = (counted * TUNING.trimmed).astype(int)
    rows = np.arange(cycles)[:, None]
    is_kept = (rows >= cut) & (rows < counted - cut)
    kept = np.where(is_kept, by_phase, 0).sum(axis=0) / np.maximum(counted - 2 * cut, 1)
    # An hour in which nothing ever failed is not impossible: one failure
    # in it must not be infinitely surprising.
    profile = np.maximum(kept / max(kept.mean(), 1e-9), 0.02)

    return np.tile(profile, cycles)[: values.size]


def _has_wave(values: Floats, period: int, known: Bools) -> bool:
    """Return whether the phase of a period explains the counts better than chance (F test of phase means).

    Only cycles with all bins known count.
    """
    cycles = values.size // period
    if cycles < TUNING.cycles:
        return False

    is_whole = known[: cycles * period].reshape(cycles, period).all(axis=1)
    level = np.maximum(_moving_mean(values, period, known), 1e-9)
    # The square root makes the variance of a Poisson count nearly independent of the mean (Anscombe), which
    # an F test requires. The bound keeps one incident from looking like a wave.
    table = np.sqrt(np.minimum(values / level, 20))[: cycles * period].reshape(
        cycles, period
    )[is_whole]
    cycles = len(table)
    if cycles < TUNING.cycles:
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

    return float(z) > TUNING.wave


def _moving_mean(values: Floats, width: int, known: Bools) -> Floats:
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


def cumulated(shares: Floats) -> Floats:
    """Return the sum before each bin, and the sum of all bins."""
    return np.concatenate([[0.0], np.cumsum(shares)])


def dispersion(values: Floats, exposure: Floats) -> float:
    """Return the variance over the mean around a slowly changing level; 1 for a Poisson process."""
    return float(dispersions(values[None], exposure[None])[0])


def dispersions(values: Floats, exposure: Floats) -> Floats:
    """Return the dispersion of each row of counts.

    It is measured on the differences of neighbouring blocks, so that changes of the level hardly count.
    Blocks have several sizes, because a burst that lasts adds up over several bins. The largest differences
    are ignored: they may be changes.
    """
    largest = np.ones(len(values))
    for width in _BLOCKS:
        blocks = values.shape[1] // width
        if blocks < 4 * TUNING.shortest:
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
