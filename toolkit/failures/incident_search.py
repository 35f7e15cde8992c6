"""Search for incidents: find the clearest rise, explain it, take it out, and search again.

Method, repeated until no window stands out:

1. Count the failures that no incident explains yet in bins of time, once per frequent value of each attribute
   (a *series*), and find the windows with the most surprising counts.
2. Explain the clearest window: find the condition that its failures share (`conditions.py`).
3. Find all episodes of this condition with finer bins, and explain them together. If the explanation
   describes the same failures, the incident has several episodes; otherwise only the first window counts.
4. Take out the failures of the incident, except as many as are usual, so that a smaller rise becomes visible.

For example, a bad release fails 500 times from 10:00 to 11:00, and a quota fails 40 times every night. The
first round finds the release. With its failures taken out, the second round finds the quota with one episode
per night.

Failures come in bursts (one cause fails several runs at once), so a rise must also be surprising in bursts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import compress
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.failures.change_columns import category_column
from toolkit.failures.explaining import RANKED, Explanation, explain_columns, recounted
from toolkit.failures.failure_attributes import (
    NAMED,
    SIGNATURE,
    WORKFLOW,
    FailureAttributes,
)
from toolkit.failures.gaps import Nanoseconds, time_known
from toolkit.failures.incident_times import (
    Span,
    TimeBins,
    datetimes,
    history_of,
)
from toolkit.failures.periods import period_in_words
from toolkit.failures.rate_windows import (
    FEWEST,
    ExpectedShares,
    episodes,
    forerunners,
    least_surprise,
    spreads,
    strongest,
    surprise,
    unlike_any,
)
from toolkit.failures.selection import typed_rows

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]
_BINS: Final = 1_100  # bins for the search of windows
_FINE_BINS: Final = 4_400  # bins for the ends of episodes
_VALUES: Final = 20  # values per attribute, the most frequent first
_INCIDENTS: Final = 12
# more than incidents, because an end of an incident can be found separately
_ROUNDS: Final = 24
_CLEAR: Final = 2.0  # times the least surprise: enough if no condition stands out
_LIKELY: Final = 0.6  # times the least surprise: enough to explain a window
# the search ends after this number of windows without an incident
_REJECTED: Final = 12
# one burst per this number, the largest, does not count for the mean size
_RARE: Final = 100
_FEWEST: Final = 3.0  # least excess, in bursts of mean size
_FEWEST_BURSTS: Final = 5.0  # least excess of bursts if only their number is surprising
# price, in natural units, of choosing the condition and of testing two numbers
_CHOSEN: Final = 1.0
_RETRIED: Final = 20 * 60 * 1_000_000_000  # longest pause within a burst, in ns
# longest pause within a burst, relative to the mean pause of alike failures
_QUICK: Final = 0.1
_USUAL: Final = 10  # a condition with this number of irregular episodes has no incident, it is usual
_OF_RESPONSES: Final = (SIGNATURE, "response")  # attributes
_SAME_WINDOW: Final = 0.5  # overlap of two windows, relative to their union
_SAME_FAILURES: Final = 0.9  # share of failures that two conditions have in common
_EDGE: Final = 0.25  # an end is this near, relative to the length of the incident
_MINOR: Final = 0.2  # smaller episodes, relative to the largest, are left out
_LONGER: Final = 20  # a rise of all failures this much longer than the rest of the history is ongoing
_IDLE: Final = 5  # an incident is over after a pause of this number of mean pauses


@dataclass(frozen=True, eq=False)
class Incident:
    """A rise of failures: the condition that they share, and the times."""

    explanation: Explanation
    rows: _Bools  # mask of the failures that meet the condition within the episodes
    episodes: list[Span]  # first and last failure of each
    expected: float
    goes_on: bool

    @property
    def first(self) -> dict[str, Any]:
        """Return the likeliest condition, as a row of the explanation."""
        return dict(self.explanation.frame.iloc[0])

    @property
    def condition(self) -> dict[str, str]:
        """Return the condition that the failures meet."""
        return dict(self.first["condition"])

    @property
    def excess(self) -> float:
        """Return the number of failures beyond the expected number."""
        return float(self.rows.sum()) - self.expected

    def is_near(self, other: Incident) -> bool:
        """Return whether another incident was shortly before or after this one."""
        start, stop = self.episodes[0][0], self.episodes[-1][1]
        apart = max(other.episodes[0][0] - stop, start - other.episodes[-1][1])
        return apart <= _EDGE * (stop - start)

    def with_edge(self, other: Incident) -> Incident:
        """Return an incident that consists of both."""
        episodes = sorted([*self.episodes, *other.episodes])
        if len(self.episodes) == 1:
            episodes = [(episodes[0][0], max(stop for _, stop in episodes))]
        expected, goes_on = (
            self.expected + other.expected,
            self.goes_on or other.goes_on,
        )
        return Incident(
            self.explanation, self.rows | other.rows, episodes, expected, goes_on
        )


class IncidentSearch:
    """The state of a search: failures in bins of time, and a mask of the failures not explained yet."""

    def __init__(
        self, failures: FailureAttributes, now: datetime | None, gaps: Nanoseconds = ()
    ) -> None:
        self.failures = failures
        self.gaps = gaps
        until = None
        if now is not None:
            until = round(now.timestamp() * 1e9)
        counted, self.end = history_of(failures.when, until, gaps)
        when = failures.when[counted]
        self.start = 0
        if when.size:
            self.start = int(when[0])
        self._now = until or self.end
        self._bins = TimeBins.covering(self.start, self.end, _BINS)
        self._fine = TimeBins.covering(self.start, self.end, _FINE_BINS)
        self._known, self._fine_known = self._bins.known(gaps), self._fine.known(gaps)
        self._alike = _alike(failures)
        # mask of the failures that no incident explains
        self.left = np.zeros(len(failures), dtype=bool)
        self.left[counted] = True
        self.in_gap = self._within(gaps)
        # counts in gaps are too small: some failures expired unread
        self.left &= ~self.in_gap
        self._counted = self.left.copy()
        self._burst = self._bursts()
        self._spread = 1.0

    def incidents(self) -> list[Incident]:
        """Return all rises, the largest excess first."""
        found: list[Incident] = []
        rejected: list[Span] = []
        if self.left.sum() < FEWEST or self.start + self._bins.step >= self.end:
            return []
        series, rows = self._series()
        # how much the series vary is measured once, before incidents are taken out
        counts = self._counts(series, rows)
        varied = spreads(counts, ExpectedShares.of(self._total(), self._known))
        self._spread = float(varied.min(initial=FEWEST))
        for _ in range(_ROUNDS):
            incident = self._next(self._counts(series, rows), varied, rejected)
            if incident is None or len(found) == _INCIDENTS:
                break
            self._take_out(incident)
            # the ends of an incident are less dense than the middle, so they can be found in a later round
            same = next(
                (
                    at
                    for at, earlier in enumerate(found)
                    if self._continues(earlier, incident)
                ),
                None,
            )
            if same is None:
                found.append(incident)
            else:
                found[same] = found[same].with_edge(incident)
        return sorted(map(self._narrowed, found), key=lambda incident: -incident.excess)

    def explained(
        self, inside: _Bools, outside: _Bools, exposure: float
    ) -> Explanation:
        """Explain the failures of one mask, compared with the failures of another."""
        rows = inside | outside
        observed, usual = (
            inside[rows].astype(np.float64),
            outside[rows].astype(np.float64),
        )
        categories = self.failures.columns_of(rows, observed, usual / exposure)
        columns = {name: category_column(values) for name, values in categories.items()}
        found = explain_columns(columns, observed, usual, exposure)
        return self._recounted(found, inside, outside, exposure)

    def _recounted(
        self, found: Explanation, inside: _Bools, outside: _Bools, exposure: float
    ) -> Explanation:
        events = inside.astype(np.float64), outside.astype(np.float64)
        return recounted(found, *events, exposure, self.failures.meets)

    def _next(
        self, counts: _Ints, varied: _Floats, rejected: list[Span]
    ) -> Incident | None:
        """Return the incident of the clearest window. Windows without an incident are added to `rejected`."""
        total = self._total()
        least = least_surprise(len(counts), counts.shape[1])
        expected = ExpectedShares.of(total, self._known)
        windows = strongest(counts, total, expected, varied, _LIKELY * least)
        # a rise of all failures is tried first: otherwise each attribute would explain a part of it
        all_rose = unlike_any(total, expected, 2 * least)
        if all_rose is not None:
            windows.insert(0, all_rose)
        for bins in windows:
            window = self._bins.span(bins)
            incident = None
            # a window that was rejected in an earlier round would be rejected again
            if not _overlaps(window, rejected):
                incident = self._incident(window, least, sure=bins is all_rose)
            if incident is not None or len(rejected) >= _REJECTED:
                return incident
            rejected.append(window)
        return None

    def _series(self) -> tuple[_Ints, _Ints]:
        """Return the series number and the row of each failure, once per series that contains it.

        Every frequent value of an attribute is a series, for example ``status = 500``, and so are every pair
        of such a value with a workflow, and every label.
        """
        everything = np.arange(len(self.failures))
        columns = self.failures.columns
        coded: list[tuple[_Ints, _Ints]] = []
        for name, column in columns.items():
            codes = column.codes.astype(np.int64)
            coded.append((codes, everything))
            if name != WORKFLOW and WORKFLOW in columns:
                workflow = columns[WORKFLOW]
                # One code per pair. For example, with 3 workflows, value 2 and
                # workflow 1 have the code 2 * 3 + 1 = 7.
                coded.append(
                    (codes * len(workflow.categories) + workflow.codes, everything)
                )
        coded.append((self.failures.label_codes, self.failures.labelled))
        # keep the most frequent values of each attribute, and number them across all attributes
        series, failures, offset = [], [], 0
        for codes, rows in coded:
            counts = np.bincount(codes, minlength=1)
            kept = np.argsort(-counts, kind="stable")[:_VALUES]
            kept = kept[counts[kept] >= FEWEST]
            numbers = np.full(len(counts), -1, dtype=np.int64)
            numbers[kept] = offset + np.arange(len(kept))
            offset += len(kept)
            numbered = numbers[codes]
            series.append(numbered[numbered >= 0])
            failures.append(rows[numbered >= 0])
        return np.concatenate(series), np.concatenate(failures)

    def _counts(self, series: _Ints, rows: _Ints) -> _Ints:
        """Count the unexplained failures by bin, with one row per series."""
        number, size = int(series.max(initial=-1)) + 1, self._bins.count
        left = self.left[rows]
        bins = self._bins.positions(self.failures.when[rows[left]])
        # One number per pair of series and bin makes a single `bincount` of the whole table.
        flat = np.bincount(series[left] * size + bins, minlength=number * size)
        return flat.reshape(number, size).astype(np.int64)

    def _total(self) -> _Floats:
        return self._bins.counted(self.failures.when[self.left])

    def _incident(self, window: Span, least: float, *, sure: bool) -> Incident | None:
        """Return the incident that explains a window, or None if nothing stands out.

        If it is `sure` that all failures rose, the incident covers all of them, or most of them if a
        condition describes these.
        """
        explanation = self._explained_at([window])
        if sure and not explanation.stands_out and not _holds_most(explanation):
            explanation = self._of_all(window)
        if explanation.frame.empty:
            return None
        first = explanation.frame.iloc[0]
        condition = first["condition"]
        if not explanation.stands_out and not sure:
            least *= _CLEAR
        if not self._beyond_bursts(window, first, least):
            return None
        explanation = replace(explanation, stands_out=True)
        if not condition:
            start, stop = window
            # a short rest after a long rise is too short to show that the rise is over
            if (self.end - stop) * _LONGER < stop - start:
                stop = self.end
            return self._over([(start, stop)], explanation)
        spans = self._episodes(condition)
        # many irregular episodes are how these failures usually come; regular ones have a cause of their own,
        # for example a nightly job
        if (
            len(spans) >= _USUAL
            and period_in_words(self._begins(condition, spans)) is None
        ):
            return None
        wider = None
        if spans:
            wider = self._explained_at(spans)
        if (
            wider
            and wider.stands_out
            and self._same(spans, condition, wider.frame["condition"].iloc[0])
        ):
            explanation = wider
        else:
            # other failures rose at the other times, so only this window belongs to the incident
            spans = [span for span in spans if _overlaps(span, [window])][:1] or [
                window
            ]
        incident = self._over(spans, explanation)
        if self._only_wording_changed(incident, spans):
            return None
        return incident

    def _begins(self, condition: Mapping[str, str], spans: list[Span]) -> list[int]:
        """Return the time of the first failure that meets a condition in each span."""
        rows = self.left & self.failures.meets(condition)
        return [self._first_and_last(rows, span)[0] for span in spans]

    def _only_wording_changed(self, incident: Incident, spans: list[Span]) -> bool:
        """Return whether only the wording of responses changed.

        Then other responses of the same workflow became rarer by the same number, and no rate rose.
        """
        workflow = self.failures.shared(incident.rows, _SAME_FAILURES).get(WORKFLOW)
        if workflow is None or not any(
            name.startswith(_OF_RESPONSES) for name in incident.condition
        ):
            return False
        own = self._counted & self.failures.meets({WORKFLOW: workflow})
        within = self._within(spans)
        expected = float((own & ~within).sum()) / self._exposure(spans)
        # the rise of the whole workflow, generously estimated by two standard deviations
        rose = float((own & within).sum()) - expected + 2 * math.sqrt(expected)
        return rose < incident.excess / 2

    def _of_all(self, window: Span) -> Explanation:
        """Return an explanation with the empty condition, which all failures meet."""
        frame = typed_rows(
            [{"rank": 1, "condition": {}, "confidence": 1.0, "alternatives": []}],
            RANKED,
        )
        within = self._within([window])
        found = Explanation(frame, 0.0, 0.0, stands_out=True)
        return self._recounted(
            found, self.left & within, self.left & ~within, self._exposure([window])
        )

    def _continues(self, earlier: Incident, later: Incident) -> bool:
        """Return whether an incident is the less dense end of one that was found before."""
        if not earlier.is_near(later):
            return False
        # The condition of the end may state less or more; it is the same incident if it
        # also describes the failures of the middle.
        met = int((earlier.rows & self.failures.meets(later.condition)).sum())
        return met >= _SAME_FAILURES * int(earlier.rows.sum())

    def _same(
        self, spans: list[Span], one: Mapping[str, str], other: Mapping[str, str]
    ) -> bool:
        """Return whether two conditions describe nearly the same failures within some spans."""
        rows = self.left & self._within(spans)
        first, second = self.failures.meets(one), self.failures.meets(other)
        return bool(
            (rows & first & second).sum()
            >= _SAME_FAILURES * (rows & (first | second)).sum()
        )

    def _over(self, spans: list[Span], explanation: Explanation) -> Incident:
        """Return the incident of the likeliest condition over some spans."""
        first = explanation.frame.iloc[0]
        within = self._within(spans)
        conditions = [first["condition"], *first["alternatives"]]
        rows = (
            self.left
            & within
            & np.logical_or.reduce([self.failures.meets(each) for each in conditions])
        )
        episodes = [self._first_and_last(rows, span) for span in spans]
        # the incident is ongoing if the pause since the last failure is not longer than usual pauses in it
        until, length = episodes[-1][1], sum(stop - start for start, stop in episodes)
        idle = max(2 * self._fine.step, _IDLE * length // max(int(rows.sum()), 1))
        outside = self.left & ~within & self.failures.meets(first["condition"])
        expected = float(outside.sum()) / self._exposure(spans)
        return Incident(
            explanation, rows, episodes, expected, goes_on=until + idle >= self._now
        )

    def _beyond_bursts(self, window: Span, first: pd.Series, least: float) -> bool:
        """Return whether a condition rose beyond chance, measured in failures or in bursts."""
        within, exposure = self._within([window]), self._exposure([window])
        mean, tail = self._sizes(self.left & ~within)
        met = self.left & within & self.failures.meets(first["condition"])
        failures, bursts = int(met.sum()), np.unique(self._burst[met]).size
        # failures of a burst have one cause, so the usual number of independent events is that of bursts
        usual = float(first["expected"]) * exposure / mean
        likely = surprise(failures, usual, exposure, tail)
        if bursts - usual / exposure >= _FEWEST_BURSTS:
            likely = max(likely, surprise(bursts, usual, exposure, 1.0))
        return (
            likely >= least + _CHOSEN
            and failures - float(first["expected"]) >= _FEWEST * mean
        )

    def _sizes(self, rows: _Bools) -> tuple[float, float]:
        """Return the mean size of bursts, and the mean of a geometric distribution with the same tail.

        The largest burst of each hundred is left out, because one extreme burst would hide every rise.
        """
        counts = np.bincount(self._burst[rows & self.left], minlength=1)
        counts = np.sort(counts[counts > 0])
        counts = counts[: counts.size - counts.size // _RARE].astype(np.float64)
        if not counts.size:
            return 1.0, 1.0
        mean = float(counts.mean())
        return mean, max(mean, (float((counts**2).sum() / counts.sum()) + 1) / 2)

    def _bursts(self) -> _Ints:
        """Return the number of the burst that each unexplained failure belongs to, and -1 for all others.

        A burst is a run of alike failures with short pauses: at most 20 minutes, and at most a tenth of the
        usual pause between such failures.
        """
        rows = np.flatnonzero(self.left)
        # sort by kind, then by time (rows are sorted by time), so that each burst is a run of neighbours
        order = np.lexsort((rows, self._alike[rows]))
        alike, when = self._alike[rows][order], self.failures.when[rows][order]
        same, gap = np.diff(alike) == 0, np.diff(when)
        # This is the mean pause between failures of the same kind, without gaps of the snapshot.
        usual = (
            self.known_time((self.start, self.end))
            / np.bincount(alike, minlength=1)[alike[1:]]
        )
        bursts = np.full(len(self.left), -1, dtype=np.int64)
        bursts[rows[order]] = np.cumsum(
            np.append(0, ~(same & (gap < np.minimum(_RETRIED, usual * _QUICK))))[
                : len(rows)
            ]
        )
        return bursts

    def _explained_at(self, spans: list[Span]) -> Explanation:
        """Explain the unexplained failures within some spans, compared with all other times."""
        within = self._within(spans)
        return self.explained(
            self.left & within, self.left & ~within, self._exposure(spans)
        )

    def _within(self, spans: Iterable[Span]) -> _Bools:
        when = self.failures.when
        within = np.zeros(len(when), dtype=bool)
        for span in spans:
            # Failures are sorted by time, so each span is one slice.
            within[slice(*np.searchsorted(when, span))] = True
        return within

    def _episodes(self, condition: Mapping[str, str]) -> list[Span]:
        """Return all spans with many failures of a condition, except spans much smaller than the largest."""
        values = self._fine.counted(
            self.failures.when[self.left & self.failures.meets(condition)]
        )
        found = episodes(values, self._fine_shares().of_series(values), self._spread)
        sizes = [float(values[start:stop].sum()) for start, stop in found]
        large = [size >= _MINOR * max(sizes) for size in sizes]
        return [self._fine.span(bins) for bins in compress(found, large)]

    def _fine_shares(self) -> ExpectedShares:
        """Return the expected share of the unexplained failures per fine bin."""
        return ExpectedShares.of(
            self._fine.counted(self.failures.when[self.left]), self._fine_known
        )

    def known_time(self, span: Span) -> int:
        """Return the length of a span without gaps, in ns."""
        return int(time_known(self.gaps, np.array(span, dtype=np.int64))[0])

    def _exposure(self, spans: list[Span]) -> float:
        """Return the expected number of failures outside of some spans, relative to the number within."""
        # By the hour of the day: a window at night is expected to have fewer
        # failures than one of the same length by day.
        wave = self._fine_shares().wave
        within = sum(self._fine.share(span, wave) for span in spans)
        return max((1 - within) / max(within, 1e-9), 1e-6)

    def _narrowed(self, incident: Incident) -> Incident:
        """Return the incident with episodes that begin and end with a failure that meets the condition."""
        rows = incident.rows & self.failures.meets(incident.condition)
        when = self.failures.when
        parts = [
            when[rows & self._within([(start, stop + 1)])]
            for start, stop in incident.episodes
        ]
        episodes = [
            (
                int(part[forerunners(part)]),
                -int((-part[::-1])[forerunners(-part[::-1])]),
            )
            for part in parts
            if part.size
        ]
        # a span excludes the end, and the last failure has to be inside
        spans = [(start, stop + 1) for start, stop in episodes]
        within = self._within(spans)
        times = list(map(datetimes, episodes))
        found = self._recounted(
            incident.explanation, within, self.left & ~within, self._exposure(spans)
        )
        found = replace(found, window=(times[0][0], times[-1][1]), episodes=times)
        # includes failures that an earlier incident explains, because `Explanation.select` also returns them
        rows = within & self.failures.meets(incident.condition)
        return replace(incident, rows=rows, episodes=episodes, explanation=found)

    def _first_and_last(self, rows: _Bools, span: Span) -> Span:
        within = self.failures.when[rows & self._within([span])]
        if not len(within):
            return span
        return int(within[0]), int(within[-1])

    def _take_out(self, incident: Incident) -> None:
        """Mark the failures of an incident as explained, except the number that was expected anyway."""
        taken = np.flatnonzero(incident.rows)
        stay = min(round(incident.expected), len(taken))
        self.left[taken] = False
        # the failures that stay are spread evenly, so that no new window appears
        self.left[taken[np.linspace(0, len(taken) - 1, stay).astype(np.int64)]] = True
        self._burst = self._bursts()


def _alike(failures: FailureAttributes) -> _Ints:
    """Return a number per failure. Failures with equal attributes have the same number."""
    codes = pd.DataFrame(
        {
            name: column.codes
            for name, column in failures.columns.items()
            if name in NAMED
        }
    )
    if codes.columns.empty:
        return np.zeros(len(failures), np.int64)
    return codes.groupby(list(codes.columns)).ngroup().to_numpy().astype(np.int64)


def _holds_most(explanation: Explanation) -> bool:
    """Return whether the first condition misses at most half as much of the rise as of the usual failures."""
    first = explanation.frame.head(1)
    usual = first["expected"] / max(explanation.expected, 1e-9)
    return bool((first["share"] >= (1 + usual) / 2).any())


def _overlaps(window: Span, others: list[Span]) -> bool:
    """Return whether a window is nearly the same as one of the others."""
    start, stop = window
    return any(
        min(stop, until) - max(start, since)
        > _SAME_WINDOW * (max(stop, until) - min(start, since))
        for since, until in others
    )
