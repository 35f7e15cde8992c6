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
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.failures.attribute_series import AttributeSeries
from toolkit.failures.change_columns import category_column
from toolkit.failures.explaining import RANKED, Explanation, explain_columns, recounted
from toolkit.failures.failure_attributes import (
    MENTIONED,
    SIGNATURE,
    WORKFLOW,
    FailureAttributes,
)
from toolkit.failures.failure_bursts import Bursts, find_bursts, kinds_of
from toolkit.failures.found_incident import Incident
from toolkit.failures.gaps import Nanoseconds, known_length
from toolkit.failures.incident_times import (
    Span,
    TimeBins,
    datetimes,
    history_of,
    nanoseconds_of,
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
_OF_RESPONSES: Final = (SIGNATURE, "response")
"""Attributes that describe the response of a failure."""


@dataclass(frozen=True)
class SearchTuning:
    """Constants of the search, with their reasons."""

    bins: int = 1_100
    """Bins for the search of windows. For example, two weeks have bins of 20 minutes."""
    fine_bins: int = 4_400
    """Bins for the ends of episodes, which are counted for one condition only."""
    incidents: int = 12
    """Incidents of one search, at most."""
    rounds: int = 24
    """More than incidents, because an end of an incident can be found separately."""
    rejected: int = 12
    """Windows without an incident after which the search ends."""
    clear: float = 2.0
    """Multiple of the least surprise that is enough if no condition stands out."""
    likely: float = 0.6
    """Multiple of the least surprise that is enough to explain a window, which takes time."""
    least_excess: float = 3.0
    """Fewer extra failures than three bursts of mean size are noise."""
    least_bursts: float = 5.0
    """Least excess of bursts, if only their number is surprising."""
    choice: float = 1.0
    """Price, in natural units, of choosing the condition and of testing two numbers."""
    usual_episodes: int = 10
    """A condition with this number of irregular episodes has no incident: failures usually come like this."""
    same_failures: float = 0.9
    """Share of the failures that two conditions have in common if they describe the same ones."""
    minor: float = 0.2
    """Episodes that are smaller, relative to the largest, are left out."""
    longer: int = 20
    """A rise of all failures that is this much longer than the rest of the history is ongoing."""
    rest: int = 30 * 60 * 1_000_000_000
    """An incident is not over after a pause that is not longer, in ns: retries come in waves."""
    idle: int = 5
    """An incident is over after a pause of this number of mean pauses between failures."""
    idle_of_clumps: float = 2.5
    """For failures in clumps, the number of pauses that a random moment is in. If failures are random, these
    are twice as long as the mean pause."""
    longest_rest: int = 6 * 3600 * 1_000_000_000
    """Pauses between clumps do not count if they are longer, in ns: a nightly job has ended by noon."""
    missed_at_start: float = 10.0
    """Failures that a workflow would have had before its first one if all had begun together. The probability
    that a Poisson process has none of ten is below 1 : 20,000."""
    same_window: float = 0.5
    """Overlap of two windows, relative to their union, above which they count as one."""


_TUNING: Final = SearchTuning()


def explained_counts(
    failures: FailureAttributes, inside: _Floats, outside: _Floats, exposure: float
) -> Explanation:
    """Explain counts of failures, compared with usual counts of a time that is `exposure` times as long."""
    rows = (inside > 0) | (outside > 0)
    observed, usual = inside[rows], outside[rows]
    categories = failures.columns_of(rows, observed, usual / exposure)
    columns = {name: category_column(values) for name, values in categories.items()}
    found = explain_columns(columns, observed, usual, exposure)

    return recounted(found, inside, outside, exposure, failures.meets)


class IncidentSearch:
    """The state of a search: failures in bins of time, and a mask of the failures not explained yet."""

    def __init__(
        self, failures: FailureAttributes, now: datetime | None, gaps: Nanoseconds = ()
    ) -> None:
        self.failures = failures
        self.gaps = gaps
        until = nanoseconds_of(now)
        history, self.end = history_of(failures.when, until, gaps)
        when = failures.when[history]
        self.start = 0
        if when.size:
            self.start = int(when[0])
        self._now = until or self.end
        self._bins = TimeBins.covering(self.start, self.end, _TUNING.bins)
        self._fine = TimeBins.covering(self.start, self.end, _TUNING.fine_bins)
        self._known, self._fine_known = self._bins.known(gaps), self._fine.known(gaps)
        self._kinds = kinds_of(failures)
        # mask of the failures that no incident explains
        self.left = np.zeros(len(failures), dtype=bool)
        self.left[history] = True
        self.in_gap = self._within(gaps)
        # counts in gaps are too small: some failures expired unread
        self.left &= ~self.in_gap
        self._counted = self.left.copy()
        self._bursts = self._find_bursts()
        self._spread = 1.0

    def incidents(self) -> list[Incident]:
        """Return all rises, the largest excess first."""
        found: list[Incident] = []
        rejected: list[Span] = []
        if self.left.sum() < FEWEST or self.start + self._bins.step >= self.end:
            return []

        series = AttributeSeries.of(self.failures)
        # how much the series vary is measured once, before incidents are taken out
        counts = self._counts(series)
        varied = spreads(counts, ExpectedShares.of(self._total(), self._known))
        self._spread = float(varied.min(initial=FEWEST))

        for _ in range(_TUNING.rounds):
            incident = self._next(self._counts(series), varied, rejected)
            if incident is None or len(found) == _TUNING.incidents:
                break
            self._take_out(incident)
            self._add(found, incident)

        return sorted(map(self._narrowed, found), key=lambda incident: -incident.excess)

    def _add(self, found: list[Incident], incident: Incident) -> None:
        """Add an incident, together with earlier ones that are parts of the same.

        The ends of an incident are less dense than the middle, so they can be found in a later round. Nights
        of a nightly job can be found one by one, before a later round finds that they belong together.
        """
        for earlier in [*found]:
            is_alike = earlier.condition == incident.condition
            if self._continues(earlier, incident):
                incident = earlier.with_edge(incident)
            elif is_alike and incident.is_near(earlier):
                incident = incident.with_edge(earlier)
            else:
                continue
            found.remove(earlier)

        found.append(incident)

    def explained(
        self, inside: _Bools, outside: _Bools, exposure: float
    ) -> Explanation:
        """Explain the failures of one mask, compared with the failures of another."""
        return explained_counts(
            self.failures,
            inside.astype(np.float64),
            outside.astype(np.float64),
            exposure,
        )

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
        windows = strongest(counts, total, expected, varied, _TUNING.likely * least)
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
            if incident is not None or len(rejected) >= _TUNING.rejected:
                return incident
            rejected.append(window)

        return None

    def _counts(self, series: AttributeSeries) -> _Ints:
        """Count the unexplained failures by bin, with one row per series."""
        return series.counts(self._bins, self.failures.when, self.left)

    def _total(self) -> _Floats:
        return self._bins.counted(self.failures.when[self.left])

    def _incident(self, window: Span, least: float, *, sure: bool) -> Incident | None:
        """Return the incident that explains a window, or None if nothing stands out.

        If it is `sure` that all failures rose, the incident covers all of them, or most of them if a
        condition describes these.
        """
        explanation = self._explained_at([window])
        if sure and not explanation.stands_out and not _explains_most(explanation):
            explanation = self._of_all(window)
        if explanation.frame.empty:
            return None

        first = explanation.frame.iloc[0]
        if not explanation.stands_out and not sure:
            least *= _TUNING.clear
        if not self._beyond_bursts(window, first, least):
            return None

        explanation = replace(explanation, stands_out=True)
        condition = first["condition"]
        if not condition:
            return self._over([self._until_now(window)], explanation)

        spans = self._episodes(condition)
        if self._is_usual(condition, spans):
            return None

        explanation, spans = self._with_episodes(explanation, window, spans)
        incident = self._largest_part(self._over(spans, explanation), spans)
        incident = self._without_earlier(incident, spans)
        if self._only_wording_changed(incident, spans):
            return None

        return incident

    def _largest_part(self, incident: Incident, spans: list[Span]) -> Incident:
        """Return the incident, or the part in the largest workflow if it has several causes.

        Several causes are likely if the failures have only their status in common, and the workflows have
        different errors, which name nothing in common and began at different times. For example, a bug of one
        workflow began at 09:00 and a full disk of another one at 10:00. A later round finds the other part.
        """
        # a status is a symptom of many causes, unlike an attribute of requests
        has_symptom_only = all(
            name.startswith("response") for name in incident.condition
        )
        has_workflows = WORKFLOW in self.failures.columns
        if not has_symptom_only or not has_workflows or len(spans) > 1:
            return incident

        shared = self.failures.shared(incident.rows, _TUNING.same_failures)
        if MENTIONED in shared:
            return incident

        parts = self._parts_by_workflow(incident)
        is_divided = len(parts) > 1 and self._have_other_errors(parts)
        if not is_divided or not self._began_apart(parts):
            return incident

        return self._only(parts[0], incident, spans)

    def _without_earlier(self, incident: Incident, spans: list[Span]) -> Incident:
        """Return the incident with a condition that failures of earlier ones do not meet, if there is one."""
        earlier = self._counted & ~self.left & self._within(spans)
        earlier &= self.failures.meets(incident.condition)
        if not earlier.any() or not self._have_other_errors([incident.rows, earlier]):
            return incident

        return self._only(incident.rows, incident, spans)

    def _only(self, rows: _Bools, incident: Incident, spans: list[Span]) -> Incident:
        """Return the incident of some failures of an incident, compared with all other failures."""
        found = self.explained(rows, self._counted & ~rows, self._exposure(spans))
        if found.frame.empty or not found.stands_out:
            return incident

        return self._over(spans, found)

    def _parts_by_workflow(self, incident: Incident) -> list[_Bools]:
        """Return the failures of each workflow that has a large share of an incident, the largest first."""
        codes = self.failures.columns[WORKFLOW].codes
        counts = np.bincount(codes[incident.rows])
        order = np.argsort(-counts, kind="stable")
        least = max(_TUNING.minor * counts.sum(), FEWEST)

        return [
            incident.rows & (codes == code) for code in order if counts[code] >= least
        ]

    def _have_other_errors(self, parts: list[_Bools]) -> bool:
        """Return whether parts of the failures have no error in common."""
        errors = self.failures.errors
        if errors is None:
            return False

        kinds = [set(errors.codes[part].tolist()) for part in parts]
        return len(set[int]().union(*kinds)) == sum(map(len, kinds))

    def _began_apart(self, parts: list[_Bools]) -> bool:
        """Return whether parts of an incident did not begin together, judged by their rates."""
        begins = [int(self.failures.when[part][0]) for part in parts]
        earliest = min(begins)
        for part, begin in zip(parts, begins, strict=True):
            length = int(self.failures.when[part][-1]) - begin
            missed = int(part.sum()) * (begin - earliest) / max(length, 1)
            if missed >= _TUNING.missed_at_start:
                return True

        return False

    def _until_now(self, window: Span) -> Span:
        """Return the window of a rise of all failures, up to now if the time since then is short.

        A short rest after a long rise is too short to show that the rise is over.
        """
        start, stop = window
        if (self.end - stop) * _TUNING.longer < stop - start:
            return start, self.end

        return window

    def _is_usual(self, condition: Mapping[str, str], spans: list[Span]) -> bool:
        """Return whether failures of a condition usually come like this: in many irregular episodes.

        Regular episodes have a cause of their own, for example a nightly job.
        """
        if len(spans) < _TUNING.usual_episodes:
            return False
        return period_in_words(self._begins(condition, spans)) is None

    def _with_episodes(
        self, explanation: Explanation, window: Span, spans: list[Span]
    ) -> tuple[Explanation, list[Span]]:
        """Return the explanation of all episodes of a condition, or of the window alone.

        If other failures rose at the other times, only the window belongs to the incident.
        """
        if spans:
            wider = self._explained_at(spans)
            condition = explanation.frame["condition"].iloc[0]
            if wider.stands_out and self._same(
                spans, condition, wider.frame["condition"].iloc[0]
            ):
                return wider, spans

        own_episodes = [span for span in spans if _overlaps(span, [window])]
        return explanation, own_episodes[:1] or [window]

    def _begins(self, condition: Mapping[str, str], spans: list[Span]) -> list[int]:
        """Return the time of the first failure that meets a condition in each span."""
        rows = self.left & self.failures.meets(condition)
        return [self._first_and_last(rows, span)[0] for span in spans]

    def _only_wording_changed(self, incident: Incident, spans: list[Span]) -> bool:
        """Return whether only the wording of responses changed.

        Then other responses of the same workflow became rarer by the same number, and no rate rose.
        """
        shared = self.failures.shared(incident.rows, _TUNING.same_failures)
        workflow = shared.get(WORKFLOW)
        names_response = any(
            name.startswith(_OF_RESPONSES) for name in incident.condition
        )
        if workflow is None or not names_response:
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
        return met >= _TUNING.same_failures * int(earlier.rows.sum())

    def _same(
        self, spans: list[Span], one: Mapping[str, str], other: Mapping[str, str]
    ) -> bool:
        """Return whether two conditions describe nearly the same failures within some spans."""
        rows = self.left & self._within(spans)
        first, second = self.failures.meets(one), self.failures.meets(other)
        in_common = (rows & first & second).sum()
        in_either = (rows & (first | second)).sum()

        return bool(in_common >= _TUNING.same_failures * in_either)

    def _over(self, spans: list[Span], explanation: Explanation) -> Incident:
        """Return the incident of the likeliest condition over some spans."""
        first = explanation.frame.iloc[0]
        within = self._within(spans)
        conditions = [first["condition"], *first["alternatives"]]
        meets_any = np.logical_or.reduce(list(map(self.failures.meets, conditions)))
        rows = self.left & within & meets_any
        episodes = [self._first_and_last(rows, span) for span in spans]
        longest_pause = max(
            _TUNING.rest,
            2 * self._fine.step,
            self._usual_rest(rows, spans),
        )
        _, last = episodes[-1]
        outside = self.left & ~within & self.failures.meets(first["condition"])
        expected = float(outside.sum()) / self._exposure(spans)

        return Incident(
            explanation,
            rows,
            episodes,
            expected,
            goes_on=last + longest_pause >= self._now,
        )

    def _usual_rest(self, rows: _Bools, spans: list[Span]) -> float:
        """Return the length of a pause in ns that does not end an incident, by the pauses within it.

        Failures that come in clumps have short pauses within a clump, and long ones between them, which take
        most of the time. For example, of the pauses 1, 1, 8, 1, 1 and 8 minutes, the mean is 3.3 minutes, but
        a random moment is in a pause of 6.6 minutes on average.
        """
        when = self.failures.when
        within = [when[rows & self._within([span])] for span in spans]
        pauses = np.concatenate([np.diff(times) for times in within]).astype(float)
        length = pauses.sum()
        mean_pause = length / max(int(rows.sum()), 1)
        pause_of_moment = (pauses**2).sum() / max(length, 1.0)
        rest = _rest_of_clumps(float(pause_of_moment))
        return max(float(_TUNING.idle * mean_pause), rest)

    def _beyond_bursts(self, window: Span, first: pd.Series, least: float) -> bool:
        """Return whether a condition rose beyond chance, measured in failures or in bursts."""
        within, exposure = self._within([window]), self._exposure([window])
        sizes = self._bursts.sizes(self.left & ~within)
        met = self.left & within & self.failures.meets(first["condition"])
        failures, bursts = int(met.sum()), self._bursts.count(met)
        expected = float(first["expected"])
        # failures of a burst have one cause, so the usual number of independent events is that of bursts
        usual = expected * exposure / sizes.mean
        likely = surprise(failures, usual, exposure, sizes.tail)
        if bursts - usual / exposure >= _TUNING.least_bursts:
            likely = max(likely, surprise(bursts, usual, exposure, 1.0))
        if likely < least + _TUNING.choice:
            return False

        return failures - expected >= _TUNING.least_excess * sizes.mean

    def _find_bursts(self) -> Bursts:
        """Return the bursts of the unexplained failures."""
        time = self.known_time((self.start, self.end))
        return find_bursts(self.failures.when, self._kinds, self.left, time)

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
        large = [size >= _TUNING.minor * max(sizes) for size in sizes]

        return [self._fine.span(bins) for bins in compress(found, large)]

    def _fine_shares(self) -> ExpectedShares:
        """Return the expected share of the unexplained failures per fine bin."""
        return ExpectedShares.of(
            self._fine.counted(self.failures.when[self.left]), self._fine_known
        )

    def goes_on(self, last: int, pause: float) -> bool:
        """Return whether clumps of failures with a usual pause go on now, by the time of the last failure."""
        return last + _rest_of_clumps(pause) >= self._now

    def known_time(self, span: Span) -> int:
        """Return the length of a span without gaps, in ns."""
        return known_length(self.gaps, span)

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
        episodes = []
        for start, stop in incident.episodes:
            when = self.failures.when[rows & self._within([(start, stop + 1)])]
            if when.size:
                episodes.append(_without_forerunners(when))

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
        self._bursts = self._find_bursts()


def _rest_of_clumps(pause: float) -> float:
    """Return the length of a time without failures that does not end clumps with a usual pause, in ns."""
    return float(min(_TUNING.idle_of_clumps * pause, _TUNING.longest_rest))


def _without_forerunners(when: _Ints) -> Span:
    """Return the first and the last time of the dense part of an episode."""
    # the same search from the end, with negative times in ascending order
    backwards = -when[::-1]
    first, last = forerunners(when), forerunners(backwards)
    return int(when[first]), -int(backwards[last])


def _explains_most(explanation: Explanation) -> bool:
    """Return whether the first condition misses at most half as much of the rise as of the usual failures."""
    first = explanation.frame.head(1)
    usual = first["expected"] / max(explanation.expected, 1e-9)
    return bool((first["share"] >= (1 + usual) / 2).any())


def _overlaps(window: Span, others: list[Span]) -> bool:
    """Return whether a window is nearly the same as one of the others."""
    start, stop = window
    for other_start, other_stop in others:
        overlap = min(stop, other_stop) - max(start, other_start)
        union = max(stop, other_stop) - min(start, other_start)
        if overlap > _TUNING.same_window * union:
            return True

    return False
