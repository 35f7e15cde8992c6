"""Incidents of a history: when failures rose, for how long, and what those have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import wrong
from toolkit.base.progress import ProgressSteps, StepOption, rows_of
from toolkit.base.times import parse_time
from toolkit.drawing.wording import counted
from toolkit.failures.explaining import Explanation
from toolkit.failures.failure_attributes import SIGNATURE, WORKFLOW, FailureAttributes
from toolkit.failures.gaps import gaps_of, in_nanoseconds, time_known
from toolkit.failures.incident_search import Incident, IncidentSearch, Span, datetimes
from toolkit.failures.periods import begins_of_bursts, period_in_words
from toolkit.failures.selection import NONE, scanned, select, told_until, typed_rows, when_counted
from toolkit.failures.sources import AnyFrame

_FINDING: Final = "finding incidents"
_WORKFLOWS: Final = 5
_SHARED: Final = 0.9  # of the failures of an incident
_SLICES: Final = 24  # of the history: a steady failure is in all but one of them
_STEADY: Final = 30  # failures
_STEADY_SHARE: Final = 0.05  # of all failures
_STEADY_TIMES: Final = 3.0  # of what the median workflow has
_STEADY_ALIKE: Final = 0.8  # of the failures of its workflow
_TIMED: Final = 0.5  # of the times between failures are within a quarter of the median; by chance 0.17
WithRows = tuple[dict[str, Any], npt.NDArray[np.int64]]
"""The row of an incident, and the positions of its failures."""

_TIME: Final = "datetime64[ms, UTC]"
_TYPES: Final = {
    "rank": "Int64", "kind": "str", "condition": "object", "workflows": "object", "workflow_count": "Int64",
    "shared": "object", "from_at": _TIME, "until_at": _TIME, "goes_on": "bool", "episodes": "object",
    "period": "str",
    "observed": "float64", "expected": "float64", "excess": "float64", "share": "float64", "lift": "float64",
    "confidence": "float64", "alternatives": "object",
}  # fmt: skip


def find_incidents(failures: AnyFrame, *, now: datetime | None = None) -> pd.DataFrame:
    """Find all times at which failures rose, and what those have in common.

    Windows of any length are searched in the counts of each value of each attribute (workflow, label,
    flow-control key, caller, status, signature, headers and JSON fields of few values) and of its pairs with
    the workflow. What rose beyond the daily wave, bursts and the rest of the failures is an incident; its
    failures are left out of the search for the next. Not proof of a cause: whatever goes together with the
    failures is found, too. A few failures months from all others, as of a clock that was wrong, are none of
    the history, nor is a long time without failures before `now`. A response that a workflow words anew,
    without more failures than before, is no rise. Gaps of a snapshot, of which failures expired before they
    were read, are left out, as if they took no time.

    Parameters
    ----------
    failures, now
        As in `explain_spike`.

    Returns
    -------
    pandas.DataFrame
        One row an incident, the largest excess first: `rank` (Int64), `kind` (str: ``rise``; after those
        ``steady``, a workflow that fails in one way all the time at regular intervals), `condition` (dict of
        attribute to value; empty where all failures rose and none much more than the others), `workflows`
        (list of str: the most frequent of its failures, five at most; empty where the frame has one or none),
        `workflow_count` (Int64: how many there are; missing then), `shared` (dict: what nine of ten of its
        failures have in common), `from_at`, `until_at` (datetime64[ms, UTC], its first and last failure),
        `goes_on` (bool: until the end of the history), `episodes` (list of pairs of such times), `period`
        (str: when its failures begin if that is regular, in UTC, such as "every day at 03:10"), `observed`,
        `expected`, `excess` (float64, failures; one that meets two conditions counts in both), `share`
        (float64, of all failures, also those without a usable time), `lift` (float64, observed over
        expected), `confidence` (float64, 0 to 1: that the condition is this one and no other),
        `alternatives` (list of dict: conditions that describe the same failures and explain them as well,
        in front those that need all their attributes).

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
    return typed_rows([record for record, _ in incidents_with_rows(failures, now=now)], _TYPES)


def incidents_with_rows(failures: AnyFrame, *, now: datetime | None = None) -> list[WithRows]:
    """The incidents as `find_incidents` has them, each with the positions of its failures in the frame."""
    gaps = in_nanoseconds(gaps_of(failures))
    failures = scanned(failures, doing=_FINDING)
    read = FailureAttributes(failures, doing=_FINDING)
    total = int(select(failures, ["failed_at"], doing=_FINDING).count()["count_"][0].as_py())
    search = IncidentSearch(read, None if now is None else told_until(failures, when_counted(now)), gaps)
    rises = [(_rise(incident, read), incident.rows) for incident in search.incidents()]
    return [
        ({"rank": rank, **record, "share": record["observed"] / total}, read.positions[rows])
        for rank, (record, rows) in enumerate([*rises, *_steady(search)], start=1)
    ]


def explain_spike(
    failures: AnyFrame,
    window: tuple[datetime, datetime] | None = None,
    baseline: tuple[datetime, datetime] | None = None,
    *,
    now: datetime | None = None,
    progress: StepOption = None,
) -> Explanation:
    """Find what the failures of a rise have in common, and when it was.

    Parameters
    ----------
    failures : frame
        The failures table. A column `signature`, as `FailureGroups.assign` adds it, is used as it is.
    window : pair of datetime, optional
        From when (included) until when (not included). Default: the largest rise of the history.
    baseline : pair of datetime, optional
        What the window is compared with, without the gaps of a snapshot. Default: all other times.
    now : datetime, optional
        When the history ends, or when the data end if that is earlier; later failures are left out. Default:
        at the last failure.
    progress : bool or callable, optional
        A callable gets (steps done, steps in all, name of the step that begins). Default: a bar in a
        notebook or terminal if there are many failures.

    Returns
    -------
    Explanation
        `.frame` with the ranked conditions, `.window`, and `.stands_out`, which is false when nothing rose
        or, in a window that is given, when nothing rose more than the rest. Where all failures rose and none
        much more than the others, the condition of the rise that was found is empty. `observed` are the
        failures in its episodes, `expected` what the other times, without rises of their own, have in as
        long a time. A failure counts for each of its labels.

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
    with ProgressSteps(progress, title="spike", total=2, rows=rows_of(failures)) as step:
        return _explained_spike(failures, window, baseline, now, step)


def _explained_spike(
    failures: AnyFrame,
    window: tuple[datetime, datetime] | None,
    baseline: tuple[datetime, datetime] | None,
    now: datetime | None,
    step: Callable[[str], None],
) -> Explanation:
    """Explain a window, or the largest rise."""
    step("reading what failures have in common")
    gaps = in_nanoseconds(gaps_of(failures))
    read = FailureAttributes(failures, doing="explaining a spike")
    search = IncidentSearch(read, None if now is None else told_until(failures, when_counted(now)), gaps)
    step(f"comparing {counted(len(read.when), 'failure')}")
    if window is None:
        incidents = search.incidents()
        if incidents:
            return incidents[0].explanation
        return replace(search.explained(search.left, search.left, 1.0), stands_out=False)
    inside = _span("window", window)
    beside = (search.start, search.end) if baseline is None else _span("baseline", baseline)
    shared = max(inside[0], beside[0]), min(inside[1], beside[1])
    beside_time = search.known_time(beside)
    if shared[0] < shared[1]:
        beside_time -= search.known_time(shared)
    # of a window that is in a gap as a whole, what was read is all that there is
    inside_time = search.known_time(inside) or inside[1] - inside[0]
    within, usual = ((read.when >= start) & (read.when < stop) for start, stop in (inside, beside))
    found = search.explained(within, usual & ~within & ~search.in_gap, max(beside_time, 1) / inside_time)
    return replace(found, window=datetimes(inside))


def _span(name: str, pair: object) -> Span:
    """The two times of an argument."""
    times = [] if isinstance(pair, str) or not isinstance(pair, Iterable) else list(pair)
    if len(times) != 2:  # noqa: PLR2004 - from and until
        raise wrong(name, pair, "two times, from when until when")
    start, stop = (round(parse_time(time, exact=True, name=name).timestamp() * 1e9) for time in times)
    if start >= stop:
        raise wrong(name, pair, "two times, the earlier one first")
    return start, stop


def _rise(incident: Incident, failures: FailureAttributes) -> dict[str, Any]:
    """The row of an incident."""
    first = incident.first
    about = _about(failures, incident.rows, incident.episodes, incident.expected)
    return about | {
        "kind": "rise",
        "condition": dict(first["condition"]),
        "goes_on": incident.goes_on,
        "confidence": float(first["confidence"]),
        "alternatives": list(first["alternatives"]),
    }


def _steady(search: IncidentSearch) -> list[tuple[dict[str, Any], npt.NDArray[np.bool_]]]:
    """Rows for workflows that fail in one way all the time, much more than others, and by a timer."""
    failures, left = search.failures, search.left
    workflows, signatures = (failures.columns.get(name) for name in (WORKFLOW, SIGNATURE))
    if workflows is None:
        return []
    sizes = np.bincount(workflows.codes[left], minlength=len(workflows.categories))
    usual = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0
    edges = np.linspace(search.start, search.end, _SLICES + 1).astype(np.int64)
    slices_known = int((time_known(search.gaps, edges) > 0).sum())
    records = []
    for code in np.argsort(-sizes, kind="stable"):
        size = int(sizes[code])
        if size < max(_STEADY, _STEADY_SHARE * len(failures), _STEADY_TIMES * usual):
            break
        condition = {WORKFLOW: str(workflows.categories[code])}
        rows = left & (workflows.codes == code)
        if signatures is not None:
            most = int(np.bincount(signatures.codes[rows]).argmax())
            condition[SIGNATURE] = str(signatures.categories[most])
            rows &= signatures.codes == most
        when = failures.when[rows]
        slices = (when - search.start) * _SLICES // (search.end - search.start)
        between = np.diff(when)
        timed = np.abs(between - np.median(between)) <= np.median(between) / 4
        always = len(np.unique(slices)) >= slices_known - 1
        if rows.sum() >= _STEADY_ALIKE * size and always and timed.mean() >= _TIMED:
            about = _about(failures, rows, [(int(when[0]), int(when[-1]))], usual)
            steady = {"kind": "steady", "condition": condition, "goes_on": True, "confidence": 1.0}
            records.append((about | steady | {"alternatives": []}, rows))
    return records


def _about(
    failures: FailureAttributes, rows: npt.NDArray[np.bool_], episodes: list[Span], expected: float
) -> dict[str, Any]:
    """When some failures were, how many, and what they share."""
    observed = float(rows.sum())
    times = [datetimes(episode) for episode in episodes]
    workflows = [name for name in failures.most_frequent(WORKFLOW, rows, len(failures)) if name != NONE]
    return {
        "workflows": workflows[:_WORKFLOWS],
        "workflow_count": len(workflows) if WORKFLOW in failures.columns else None,
        "shared": failures.shared(rows, _SHARED),
        "from_at": times[0][0],
        "until_at": times[-1][1],
        "episodes": times,
        "period": period_in_words(begins_of_bursts(failures.when[rows])),
        "observed": observed,
        "expected": expected,
        "excess": observed - expected,
        "lift": observed / expected if expected else np.inf,
    }
