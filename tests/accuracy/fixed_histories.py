"""Simulated histories of failures before and after a fix, and how often the test of fixes decides rightly.

The data are generated. Episodes are a Poisson process of 3 to 316 failures per day, in half of the histories
with a daily wave. An episode has one failure, or a geometric number with the mean 3 or 10, a minute apart.
The earlier history is 2, 5 or 14 days long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolkit.fixes.earlier_rate import EarlierRate, daily_rate, run_rate

Times = NDArray[np.float64]

_MINUTE = 1 / 1440
_STRAGGLERS = 0.05  # share of failures that remain after a fix that works


@dataclass(frozen=True)
class History:
    """Times in days; the fix is at `since`. Without a fix, `after` are the failures that follow."""

    before: Times
    after: Times
    since: float
    until: float
    burst: int
    bursts_per_day: float
    wave: float

    def oracle_wait(self) -> float:
        """Return the days in which three bursts are expected, for a reader who knows the true rate.

        A fixed time with e⁻³ = 5 % chance of no failure. No test of a fixed time that is wrong in 5 % of
        cases can be shorter.
        """
        days = np.linspace(0, 30, 30_001)
        turn = 2 * np.pi
        swing = np.cos(turn * self.since) - np.cos(turn * (self.since + days))
        expected = self.bursts_per_day * (days + self.wave / turn * swing)
        return float(days[np.argmax(expected >= 3)])


def history(rng: np.random.Generator) -> History:
    """Make a history that nobody fixed."""
    rate = 10 ** rng.uniform(0.5, 2.5)
    burst = int(rng.choice([1, 1, 3, 10]))
    since = float(rng.choice([2, 5, 14]))
    wave = float(rng.choice([0, 0.8]))
    until = 3 * since + 10
    starts = np.sort(rng.uniform(0, until, rng.poisson(2 * rate / burst * until)))
    is_kept = (
        rng.uniform(size=len(starts)) < (1 + wave * np.sin(2 * np.pi * starts)) / 2
    )
    times = _with_bursts(starts[is_kept], burst, rng)
    times = times[times < until]
    return History(
        before=times[times < since],
        after=times[times >= since],
        since=since,
        until=until,
        burst=burst,
        bursts_per_day=rate / burst,
        wave=wave,
    )


def _with_bursts(starts: Times, burst: int, rng: np.random.Generator) -> Times:
    sizes = rng.geometric(1 / burst, len(starts))
    delays = rng.exponential(_MINUTE, int(sizes.sum()))
    firsts = np.cumsum(sizes) - sizes
    delays[firsts] = 0
    totals = np.cumsum(delays)
    within = totals - np.repeat(totals[firsts], sizes)
    return np.sort(np.repeat(starts, sizes) + within)


@dataclass(frozen=True)
class Outcome:
    """The decisions about one history. Waits are in days, `quiet` in expected episodes."""

    burst: int
    wrongly_stopped: bool
    wrongly_continuing: bool
    wait: float
    oracle_wait: float
    quiet: float
    rate: EarlierRate
    since: float

    def fixed_wait(self, episodes: float) -> float:
        """Return the wait of a test of a fixed time: until so many episodes were expected."""
        wait = self.rate.wait(self.since, episodes / self.rate.evidence.burst_share)
        return np.inf if wait is None else wait


def outcome(made: History, rate: EarlierRate, rng: np.random.Generator) -> Outcome:
    """Test a history as it is, with few stragglers, and without any failure after the fix."""
    evidence = rate.evidence
    end = float(rate.positions(np.array([made.until]), made.since)[0])
    unfixed = evidence.first_decision(rate.positions(made.after, made.since), end)
    stragglers = made.after[rng.uniform(size=len(made.after)) < _STRAGGLERS]
    fixed = evidence.first_decision(rate.positions(stragglers, made.since), end)
    wait = rate.wait(made.since, evidence.stopping_point(0))
    if not evidence.can_decide or wait is None:
        wait = np.inf
    return Outcome(
        burst=made.burst,
        wrongly_stopped=unfixed is not None and not unfixed.continues,
        wrongly_continuing=fixed is not None and fixed.continues,
        wait=wait,
        oracle_wait=made.oracle_wait(),
        quiet=_first_position(made, rate) * evidence.burst_share,
        rate=rate,
        since=made.since,
    )


def _first_position(made: History, rate: EarlierRate) -> float:
    """Return the expected failures until the first failure after the fix."""
    first = np.append(made.after, made.until)[:1]
    return float(rate.positions(first, made.since)[0])


def fixed_episodes(outcomes: list[Outcome]) -> float:
    """Return the expected episodes of the shortest fixed time that is wrong in 5 % of these histories.

    The best test of a fixed time knows no more than the sequential test: the history of each group.
    """
    return float(np.quantile([made.quiet for made in outcomes], 0.95))


def outcomes(count: int, seed: int, *, by_runs: bool = False) -> Iterator[Outcome]:
    """Test simulated histories by the hours of the day, or by runs."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        made = history(rng)
        if len(made.before) < 3:
            continue
        if by_runs:
            yield outcome(made, _by_runs(made, rng), rng)
        else:
            yield outcome(made, daily_rate(made.before, made.since), rng)


def _by_runs(made: History, rng: np.random.Generator) -> EarlierRate:
    """Return the rate per run: each failure is of a run, and five times as many succeed, at any time."""
    failures = np.concatenate([made.before, made.after])
    succeeded = rng.uniform(0, made.until, 5 * len(failures))
    ended = np.sort(np.concatenate([failures, succeeded]))
    return run_rate(made.before, made.since, ended)
