"""Incidents of a history: when failures rose, for how long, and what those have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.analysis import rising_windows
from toolkit.analysis.explaining import Explanation, explain_rows
from toolkit.analysis.failure_attributes import NAMED, SIGNATURE, WORKFLOW, FailureAttributes
from toolkit.analysis.selection import typed_frame, when_counted
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import wrong
from toolkit.times import parse_time

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]
_Times = tuple[int, int]  # ns since 1970

_MINUTE: Final = 60_000_000_000  # nanoseconds
_STEPS: Final = tuple(
    minutes * _MINUTE for minutes in (1, 2, 5, 10, 20, 30, 60, 180, 360, 1440, 7 * 1440, 28 * 1440)
)
_BINS: Final = 1_100  # that windows are searched in
_FINE: Final = 4_400  # that their ends are found in
_VALUES: Final = 20  # of an attribute, the most frequent first
_MOST: Final = 12  # incidents
_BURSTS: Final = 4.5  # times the usual burst: the excess of an incident
_RETRIED: Final = 20 * _MINUTE  # between failures of one burst, at most
_QUICK: Final = 0.1  # of the mean time between alike failures
_USUAL: Final = 10  # episodes: a rise that comes as often is how these failures come
_REJECTED: Final = 6  # windows in which nothing stands out, before the search ends
_SAME_WINDOW: Final = 0.5
_EDGE: Final = 0.25  # of the length of an incident
_MINOR: Final = 0.2  # of the largest episode's failures
_EXPLAINING: Final = 7  # attributes, the strongest first
_WORKFLOWS: Final = 5
_SHARED: Final = 0.9  # of the failures of an incident
_IDLE: Final = 5  # mean gaps between failures after which an incident is over
_SLICES: Final = 24
_STEADY: Final = 30  # failures
_STEADY_SHARE: Final = 0.05
_STEADY_TIMES: Final = 3.0  # of what the median workflow has
_STEADY_ALIKE: Final = 0.8  # of the failures of its workflow
_TIME: Final = "datetime64[ms, UTC]"
_TYPES: Final = {
    "rank": "Int64", "kind": "str", "condition": "object", "workflows": "object", "shared": "object",
    "from_at": _TIME, "until_at": _TIME, "goes_on": "bool", "episodes": "object", "observed": "float64",
    "expected": "float64",
    "excess": "float64", "share": "float64", "lift": "float64", "confidence": "float64",
    "alternatives": "object",
}  # fmt: skip


def find_incidents(failures: AnyFrame, *, now: datetime | None = None) -> pd.DataFrame:
    """Find all times at which failures rose, and what those have in common.

    Windows of any length are searched in the counts of each value of each attribute (workflow, label,
    flow-control key, caller, status, signature, headers and JSON fields of few values) and of its pairs with
    the workflow. What rose beyond the daily wave, beyond bursts and beyond the rest of the failures is an
    incident; its failures are left out when the next is searched. Not proof of a cause: whatever goes
    together with the failures is found, too.

    Parameters
    ----------
    failures : frame
        The failures table. A column `signature`, as `FailureGroups.assign` adds it, is used as it is.
    now : datetime, optional
        When the history ends. Default: at the last failure.

    Returns
    -------
    pandas.DataFrame
        One row an incident, the largest excess first: `rank` (Int64), `kind` (str: ``rise``; after those
        ``steady``, a workflow that fails in one way all the time), `condition` (dict of attribute to value),
        `workflows` (list of str: the most frequent of its failures, five at most), `shared` (dict: what nine
        of ten of its failures have in common), `from_at`, `until_at` (datetime64[ms, UTC], its first and last
        failure), `goes_on` (bool: until the end of the history), `episodes` (list of pairs of such times),
        `observed`, `expected`, `excess` (float64, failures), `share` (float64, of all failures), `lift`
        (float64, observed over expected), `confidence` (float64, 0 to 1: that the condition is this one and
        no other), `alternatives` (list of dict: conditions that describe the same failures).

    Raises
    ------
    InputError
        When a column is missing or holds values of another kind.

    Examples
    --------
    >>> times = [*pd.date_range("2026-03-01", periods=200, freq="61min", tz="UTC"),
    ...     *pd.date_range("2026-03-05 10:00", periods=60, freq="min", tz="UTC")]
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times,
    ...     "workflow_url": ["pay", "mail"] * 100 + ["pay"] * 60})
    >>> find_incidents(frame)[["condition", "goes_on", "observed"]]
                     condition  goes_on  observed
    0  {'workflow_url': 'pay'}    False      60.0
    """
    read = FailureAttributes(failures, doing="finding incidents")
    end = None if now is None else when_counted(now)
    search = _Search(read, end)
    return _frame(search, search.incidents())


def explain_spike(
    failures: AnyFrame,
    window: tuple[datetime, datetime] | None = None,
    baseline: tuple[datetime, datetime] | None = None,
    *,
    now: datetime | None = None,
) -> Explanation:
    """Find what the failures of a rise have in common, and when it was.

    Parameters
    ----------
    failures : frame
        The failures table. A column `signature`, as `FailureGroups.assign` adds it, is used as it is.
    window : pair of datetime, optional
        From when (included) until when (not included). Default: the largest rise of the history.
    baseline : pair of datetime, optional
        What the window is compared with. Default: all other times.
    now : datetime, optional
        When the history ends. Default: at the last failure.

    Returns
    -------
    Explanation
        `.frame` with the ranked conditions, `.window`, and `.stands_out`, which is false when failures did
        not rise, or nothing rose more than the rest.

    Raises
    ------
    InputError
        When a column is missing, or a time cannot be read.

    Examples
    --------
    >>> times = [*pd.date_range("2026-03-01", periods=200, freq="61min", tz="UTC"),
    ...     *pd.date_range("2026-03-05 10:00", periods=60, freq="min", tz="UTC")]
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times,
    ...     "workflow_url": ["pay", "mail"] * 100 + ["pay"] * 60})
    >>> explain_spike(frame).window[0]
    datetime.datetime(2026, 3, 5, 10, 0, tzinfo=datetime.timezone.utc)
    """
    read = FailureAttributes(failures, doing="explaining a spike")
    search = _Search(read, None if now is None else when_counted(now))
    everything = (search.start, search.end)
    if window is None:
        found = search.incidents(1)
        if found:
            return found[0].explanation
        calm = search.explained(np.ones(len(read), bool), np.ones(len(read), bool), 1.0)
        return replace(calm, stands_out=False)
    inside = _times("window", window)
    other = everything if baseline is None else _times("baseline", baseline)
    length = (other[1] - other[0]) - max(0, min(inside[1], other[1]) - max(inside[0], other[0]))
    within, usual = ((read.when >= one) & (read.when < two) for one, two in (inside, other))
    explanation = search.explained(within, usual & ~within, max(length, 1) / (inside[1] - inside[0]))
    return replace(explanation, window=_datetimes(inside))


@dataclass(frozen=True, eq=False)
class _Incident:
    """A rise: its explanation, whose first condition is meant, and when."""

    explanation: Explanation
    rows: _Bools  # failures of the condition within its episodes
    times: list[_Times]  # first and last failure of each episode
    expected: float
    goes_on: bool
    root: dict[str, str]
    alternatives: list[dict[str, str]]
    confidence: float

    def continues(self, other: _Incident) -> bool:
        """Whether another one is an end of this one, which was less dense there."""
        start, stop = self.times[0][0], self.times[-1][1]
        near = _EDGE * (stop - start)
        apart = max(other.times[0][0] - stop, start - other.times[-1][1])
        return apart <= near and other.root in [self.root, *self.alternatives]

    def with_edge(self, other: _Incident) -> _Incident:
        """Both as one."""
        times = sorted([*self.times, *other.times])
        if len(self.times) == 1:
            times = [(times[0][0], max(stop for _, stop in times))]
        window = _datetimes((times[0][0], max(stop for _, stop in times)))
        return replace(
            self,
            explanation=replace(self.explanation, window=window),
            rows=self.rows | other.rows,
            times=times,
            expected=self.expected + other.expected,
            goes_on=self.goes_on or other.goes_on,
        )


class _Search:
    """Failures in bins of time, and what of them is not explained yet."""

    def __init__(self, read: FailureAttributes, now: datetime | None) -> None:
        self.read = read
        self.start = int(read.when[0]) if len(read) else 0
        last = int(read.when[-1]) if len(read) else 0
        self.end = max(last + 1, 0 if now is None else round(now.timestamp() * 1e9))
        length = self.end - self.start
        self.step, self.fine = (
            next((step for step in _STEPS if length // step < bins), _STEPS[-1]) for bins in (_BINS, _FINE)
        )
        codes = pd.DataFrame({name: column.codes for name, column in read.columns.items() if name in NAMED})
        named = codes.groupby(list(codes.columns)).ngroup().to_numpy() if len(codes.columns) else None
        self.alike: _Ints = np.zeros(len(read), np.int64) if named is None else named.astype(np.int64)
        self.left = np.ones(len(read), dtype=bool)
        self.spread = 1.0

    def incidents(self, most: int = _MOST) -> list[_Incident]:
        """Rises, the largest excess first; at least one more is searched than asked for."""
        found: list[_Incident] = []
        rejected: list[_Times] = []
        incident: _Incident | None = None
        if len(self.read) < rising_windows.FEWEST or self.start + self.step >= self.end:
            return []
        series, rows = self._series()
        counts, total = self._counts(series, rows), self._counted(self.left, self.step)
        spread = rising_windows.spreads(counts, rising_windows.wave_of(total))
        self.spread = float(spread.min(initial=rising_windows.FEWEST))
        while len(found) < _MOST:
            counts, total = self._counts(series, rows), self._counted(self.left, self.step)
            least = rising_windows.least_surprise(len(counts), counts.shape[1])
            wave = rising_windows.wave_of(total)
            all_rose = rising_windows.unlike_any(total, wave, 2 * least)
            strong = rising_windows.strongest(counts, total, wave, spread, least)
            spans = [(one.start, one.stop) for one in strong]
            if all_rose is not None:
                spans.insert(0, all_rose)
            for span in spans:
                window = self._nanoseconds(span, self.step)
                sure = span is all_rose
                incident = None if _like(window, rejected) else self._incident(window, least, sure=sure)
                if incident is not None or len(rejected) >= _REJECTED:
                    break
                rejected.append(window)
            else:
                break
            if incident is None:
                break
            self._take(incident)
            same = next((place for place, one in enumerate(found) if one.continues(incident)), None)
            if same is None:
                found.append(incident)
            else:
                found[same] = found[same].with_edge(incident)
        return sorted(found, key=lambda one: one.expected - one.rows.sum())[:most]

    def _series(self) -> tuple[_Ints, _Ints]:
        """The series that windows are searched in, as pairs of a series and a failure."""
        everything = np.arange(len(self.read))
        columns = self.read.columns
        parts: list[tuple[_Ints, _Ints]] = []
        for name, column in columns.items():
            parts.append((column.codes.astype(np.int64), everything))
            if name != WORKFLOW and WORKFLOW in columns:
                pair = column.codes.astype(np.int64) * len(columns[WORKFLOW].categories)
                parts.append((pair + columns[WORKFLOW].codes, everything))
        codes, rows = self.read.label_codes()
        parts.append((codes, rows))
        found, offset = [], 0
        for codes, rows in parts:
            counts = np.bincount(codes, minlength=1)
            kept = np.argsort(-counts, kind="stable")[:_VALUES]
            kept = kept[counts[kept] >= rising_windows.FEWEST]
            numbers = np.full(len(counts), -1, dtype=np.int64)
            numbers[kept] = offset + np.arange(len(kept))
            offset += len(kept)
            series = numbers[codes]
            found.append((series[series >= 0], rows[series >= 0]))
        return np.concatenate([one for one, _ in found]), np.concatenate([two for _, two in found])

    def _counts(self, series: _Ints, rows: _Ints) -> _Ints:
        """Counts of what is left, one row a series."""
        number, size = int(series.max(initial=-1)) + 1, self._size(self.step)
        left = self.left[rows]
        bins = (self.read.when[rows[left]] - self._origin(self.step)) // self.step
        flat = np.bincount(series[left] * size + bins, minlength=number * size)
        return flat.reshape(number, size).astype(np.int64)

    def _counted(self, rows: _Bools, step: int) -> _Floats:
        bins = (self.read.when[rows] - self._origin(step)) // step
        return np.bincount(bins, minlength=self._size(step)).astype(np.float64)

    def _origin(self, step: int) -> int:
        return self.start // step * step

    def _size(self, step: int) -> int:
        return (self.end - 1 - self._origin(step)) // step + 1

    def _nanoseconds(self, span: tuple[int, int], step: int) -> _Times:
        start, stop = (self._origin(step) + one * step for one in span)
        return max(start, self.start), min(stop, self.end)

    def _incident(self, window: _Times, least: float, *, sure: bool) -> _Incident | None:
        """What rose in a window, and at which times; None where nothing stands out.

        Where all failures rose for sure, the likeliest condition is taken, however unlikely.
        """
        explanation = self._of([window])
        if explanation.frame.empty or not (explanation.stands_out or sure):
            return None
        explanation = replace(explanation, stands_out=True)
        first = explanation.frame.iloc[0]
        burst = self._burst(window)
        clear = rising_windows.surprise(first["observed"], first["expected"]) / burst >= least
        if not clear or (burst > 1 and first["excess"] < _BURSTS * (burst + 1)):
            return None
        spans = self._episodes(first["condition"])
        if len(spans) >= _USUAL:
            return None
        wider = self._of(spans) if spans else explanation
        top = wider.frame.iloc[0]
        if spans and wider.stands_out and first["condition"] in [top["condition"], *top["alternatives"]]:
            explanation, first = wider, top
        else:  # at other times something else rose
            spans = [span for span in spans if _like(span, [window])][:1] or [window]
        within, ratio = self._within(spans), self._ratio(spans)
        conditions = [first["condition"], *first["alternatives"]]
        rows = self.left & within & np.logical_or.reduce([self.read.meets(one) for one in conditions])
        times = [self._first_last(rows, span) for span in spans]
        until, length = times[-1][1], sum(two - one for one, two in times)
        idle = max(2 * self.fine, _IDLE * length // max(int(rows.sum()), 1))
        return _Incident(
            replace(explanation, window=_datetimes((times[0][0], until))),
            rows,
            times,
            float((self.left & ~within & self.read.meets(first["condition"])).sum()) / ratio,
            until + idle >= self.end,
            dict(first["condition"]),
            list(first["alternatives"]),
            float(first["confidence"]),
        )

    def _burst(self, window: _Times) -> float:
        """How large the burst of alike failures is that the median failure outside of a window is part of."""
        rows = np.flatnonzero(self.left & ~self._within([window]))
        if not rows.size:
            return 1.0
        order = np.lexsort((rows, self.alike[rows]))
        alike, when = self.alike[rows][order], self.read.when[rows][order]
        same, gap = np.diff(alike) == 0, np.diff(when)
        usual = (self.end - self.start) / np.bincount(alike)[alike[1:]]
        runs = np.cumsum(np.append(0, ~(same & (gap < np.minimum(_RETRIED, usual * _QUICK)))))
        sizes = np.bincount(runs)
        return float(np.median(sizes[runs]))

    def _of(self, spans: list[_Times]) -> Explanation:
        """What is left at some times explained beside what is left of all others."""
        within = self._within(spans)
        return self.explained(self.left & within, self.left & ~within, self._ratio(spans))

    def _within(self, spans: list[_Times]) -> _Bools:
        when = self.read.when
        within = np.zeros(len(when), dtype=bool)
        for start, stop in spans:
            within |= (when >= start) & (when < stop)
        return within

    def _episodes(self, condition: Mapping[str, str]) -> list[_Times]:
        """All times at which the failures of a condition were many, but those of few beside the largest."""
        values = self._counted(self.left & self.read.meets(condition), self.fine)
        share = rising_windows.exposure(values, self._wave())
        found = rising_windows.episodes(values, share, self.spread)
        sizes = [float(values[start:stop].sum()) for start, stop in found]
        kept = (one for one, size in zip(found, sizes, strict=True) if size >= _MINOR * max(sizes))
        return [self._nanoseconds(one, self.fine) for one in kept]

    def _wave(self) -> _Floats:
        """The wave of all failures that are left, in fine bins."""
        return rising_windows.wave_of(self._counted(self.left, self.fine))

    def _ratio(self, spans: list[_Times]) -> float:
        """How many times more is expected outside of some times than within."""
        edges = np.concatenate([[0.0], np.cumsum(self._wave())])
        origin, bins = self._origin(self.fine), np.arange(len(edges))
        within = sum(
            float(np.diff(np.interp([(one - origin) / self.fine for one in span], bins, edges))[0])
            for span in spans
        )
        return max((1 - within) / max(within, 1e-9), 1e-6)

    def _first_last(self, rows: _Bools, span: _Times) -> _Times:
        within = self.read.when[rows & (self.read.when >= span[0]) & (self.read.when < span[1])]
        return (int(within[0]), int(within[-1])) if len(within) else span

    def _take(self, incident: _Incident) -> None:
        """Leave out the failures of an incident, but as many as would have been there without it."""
        taken = np.flatnonzero(incident.rows)
        stay = min(round(incident.expected), len(taken))
        kept = taken[np.linspace(0, len(taken) - 1, stay).astype(np.int64)] if stay else taken[:0]
        self.left[taken] = False
        self.left[kept] = True

    def explained(self, inside: _Bools, outside: _Bools, exposure: float) -> Explanation:
        """Explain the failures of one mask beside those of another by the strongest attributes."""
        rows = inside | outside
        observed, usual = inside[rows].astype(np.float64), outside[rows].astype(np.float64)
        columns = self.read.columns_of(rows, observed, usual / exposure)
        gains = {name: _strength(column.codes, observed, usual) for name, column in columns.items()}
        ranked = sorted(columns, key=lambda name: -gains[name])[:_EXPLAINING]
        kept = [name for name in columns if name in ranked or name in (WORKFLOW, SIGNATURE)]
        frame = pd.DataFrame({name: columns[name] for name in kept}, index=range(int(rows.sum())))
        return explain_rows(frame, observed, usual, exposure)

    def steady(self) -> list[tuple[dict[str, str], _Bools, float]]:
        """Workflows that fail in one way all the time, much more than others."""
        workflows, signatures = (self.read.columns.get(name) for name in (WORKFLOW, SIGNATURE))
        if workflows is None:
            return []
        sizes = np.bincount(workflows.codes[self.left], minlength=len(workflows.categories))
        usual = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0
        found = []
        for code in np.argsort(-sizes, kind="stable"):
            size = int(sizes[code])
            if size < max(_STEADY, _STEADY_SHARE * len(self.read), _STEADY_TIMES * usual):
                break
            condition = {WORKFLOW: str(workflows.categories[code])}
            rows = self.left & (workflows.codes == code)
            if signatures is not None:
                most = int(np.bincount(signatures.codes[rows]).argmax())
                condition[SIGNATURE] = str(signatures.categories[most])
                rows &= signatures.codes == most
            slices = (self.read.when[rows] - self.start) * _SLICES // (self.end - self.start)
            if rows.sum() >= _STEADY_ALIKE * size and len(np.unique(slices)) >= _SLICES - 1:
                found.append((condition, rows, usual))
        return found


def _strength(codes: npt.NDArray[Any], observed: _Floats, usual: _Floats) -> float:
    """The largest gain of a value of an attribute, as `explain_change` has it."""
    inside, outside = (np.bincount(codes, events) for events in (observed, usual))
    total, other = observed.sum(), usual.sum()
    both = inside + outside
    share = total / max(total + other, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(inside > 0, inside * np.log(inside / (both * share)), 0.0)
        gain += np.where(outside > 0, outside * np.log(outside / (both * (1 - share))), 0.0)
    return float(np.where(inside > both * share, gain, 0.0).max(initial=0.0))


def _like(window: _Times, others: list[_Times]) -> bool:
    start, stop = window
    return any(
        min(stop, two) - max(start, one) > _SAME_WINDOW * (max(stop, two) - min(start, one))
        for one, two in others
    )


def _times(name: str, pair: object) -> _Times:
    """The two times of an argument."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 - from and until
        raise wrong(name, pair, "two times, from when until when")
    start, stop = (round(parse_time(one, exact=True, name=name).timestamp() * 1e9) for one in pair)
    if start >= stop:
        raise wrong(name, pair, "two times, the earlier one first")
    return start, stop


def _datetimes(times: _Times) -> tuple[datetime, datetime]:
    start, stop = (datetime.fromtimestamp(one // 1_000_000 / 1000, UTC) for one in times)
    return start, stop


def _frame(search: _Search, found: list[_Incident]) -> pd.DataFrame:
    """The documented columns."""
    total = max(len(search.read), 1)
    records: list[dict[str, Any]] = [
        {
            "kind": "rise",
            "condition": one.root,
            "workflows": search.read.most_frequent(WORKFLOW, one.rows, _WORKFLOWS),
            "shared": search.read.shared(one.rows, _SHARED),
            "times": one.times,
            "goes_on": one.goes_on,
            "observed": float(one.rows.sum()),
            "expected": one.expected,
            "confidence": one.confidence,
            "alternatives": one.alternatives,
        }
        for one in found
    ]
    for condition, rows, usual in search.steady():
        when = search.read.when[rows]
        records.append(
            {
                "kind": "steady",
                "condition": condition,
                "workflows": [condition[WORKFLOW]],
                "shared": search.read.shared(rows, _SHARED),
                "times": [(int(when[0]), int(when[-1]))],
                "goes_on": True,
                "observed": float(rows.sum()),
                "expected": usual,
                "confidence": 1.0,
                "alternatives": [],
            }
        )
    for rank, record in enumerate(records, start=1):
        times = record.pop("times")
        observed, expected = record["observed"], record["expected"]
        episodes = [_datetimes(one) for one in times]
        record |= {
            "rank": rank,
            "from_at": episodes[0][0],
            "until_at": episodes[-1][1],
            "episodes": episodes,
            "excess": observed - expected,
            "share": observed / total,
            "lift": observed / expected if expected else np.inf,
        }
    return typed_frame(**{name: (dtype, [one[name] for one in records]) for name, dtype in _TYPES.items()})
