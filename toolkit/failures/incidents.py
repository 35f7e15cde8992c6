"""Find the incidents of a history: when failures rose, for how long, and which values they share."""

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
from toolkit.failures.counted_attributes import CountedFailures
from toolkit.failures.explaining import Explanation
from toolkit.failures.failure_attributes import SIGNATURE, WORKFLOW, FailureAttributes
from toolkit.failures.found_incident import Incident
from toolkit.failures.gaps import (
    Nanoseconds,
    gaps_of,
    in_nanoseconds,
    known_length,
    time_known,
)
from toolkit.failures.incident_search import IncidentSearch, explained_counts
from toolkit.failures.incident_times import Span, datetimes, nanoseconds_of
from toolkit.failures.periods import begins_of_bursts, period_in_words
from toolkit.failures.selection import (
    NONE,
    scanned,
    select,
    told_until,
    typed_rows,
    when_counted,
)
from toolkit.failures.sources import AnyFrame

_FINDING: Final = "finding incidents"
_WORKFLOWS: Final = 5
_SHARED: Final = 0.9  # share of the failures of an incident that have a common value
# parts of the history: a steady failure occurs in all of them but one
_SLICES: Final = 24
_STEADY: Final = 30  # least number of failures of a steady workflow
_STEADY_SHARE: Final = 0.05  # least share of all failures
_STEADY_TIMES: Final = 3.0  # least number of failures, relative to the median workflow
# share of the failures of the workflow with the same signature
_STEADY_ALIKE: Final = 0.8
_REGULAR: Final = 5  # least number of episodes at regular times
# share of pauses within a quarter of the median; 0.17 if failures are random
_TIMED: Final = 0.5
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
    """Find all incidents: times with more failures than usual, and the values that these failures share.

    Each attribute is searched for windows of any length (workflow, label, flow-control key, caller, status,
    signature, headers and JSON fields with few values), alone and together with the workflow. An incident is
    a rise beyond the daily wave, the usual bursts and the growth of all other failures. For example, 60
    failures of one workflow within an hour are an incident if it usually fails once per hour.

    Failures that have only a status in common are several incidents if workflows have different errors, which
    began at different times and name no third party in common.

    The result shows which values go together with a rise. That is no proof of a cause.

    Outliers in time (for example from a wrong clock) and a long time without failures before `now` do not
    count as history. A response with a new wording, without more failures than before, is no incident. Gaps
    of a snapshot, when failures expired before a sync could read them, are skipped as if they took no time.

    Parameters
    ----------
    failures, now
        As in `explain_spike`.

    Returns
    -------
    pandas.DataFrame
        One row per incident, the largest excess first:

        - `rank` (Int64).
        - `kind` (str): ``rise``, also for an error that comes at regular times, for example every night,
          followed by ``steady`` for workflows that fail all the time at regular intervals in the same way.
        - `condition` (dict of attribute to value): empty if all failures rose alike.
        - `workflows` (list of str): the five most frequent workflows; empty if the frame has at most one.
        - `workflow_count` (Int64): number of all workflows; missing if the frame has at most one.
        - `shared` (dict): values that nine of ten failures have in common.
        - `from_at`, `until_at` (datetime64[ms, UTC]): first and last failure.
        - `goes_on` (bool): whether the incident lasts until the end of the history, except for a pause
          that is usual for it.
        - `episodes` (list of pairs of datetime): first and last failure of each episode.
        - `period` (str): when the failures begin, if that is regular, for example "every day at 03:10" (UTC).
        - `observed`, `expected`, `excess` (float64): numbers of failures. A failure that meets two conditions
          counts in both.
        - `share` (float64): share of all failures, including failures without a usable time.
        - `lift` (float64): observed divided by expected.
        - `confidence` (float64): probability, from 0 to 1, that this is the right condition.
        - `alternatives` (list of dict): conditions that describe the same failures equally well, beginning
          with conditions without redundant attributes.

    Raises
    ------
    InputError
        If a column is missing or contains values of another type.

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
    return typed_rows(
        [record for record, _ in incidents_with_rows(failures, now=now)], _TYPES
    )


def incidents_with_rows(
    failures: AnyFrame, *, now: datetime | None = None
) -> list[WithRows]:
    """Return the rows of `find_incidents`, each with the positions of the failures in the frame."""
    gaps = in_nanoseconds(gaps_of(failures))
    failures = scanned(failures, doing=_FINDING)
    read = FailureAttributes(failures, doing=_FINDING)
    # includes failures without a usable time, which no incident can contain
    total = int(
        select(failures, ["failed_at"], doing=_FINDING).count()["count_"][0].as_py()
    )
    until = None
    if now is not None:
        until = told_until(failures, when_counted(now))
    search = IncidentSearch(read, until, gaps)
    rises = [(_rise(incident, read), incident.rows) for incident in search.incidents()]
    steady = _steady(search)
    regular = _regular(search, [rows for _, rows in steady])

    return [
        (
            {"rank": rank, **record, "share": record["observed"] / total},
            read.positions[rows],
        )
        for rank, (record, rows) in enumerate([*rises, *regular, *steady], start=1)
    ]


def explain_spike(
    failures: AnyFrame,
    window: tuple[datetime, datetime] | None = None,
    baseline: tuple[datetime, datetime] | None = None,
    *,
    now: datetime | None = None,
    progress: StepOption = None,
) -> Explanation:
    """Find the values that the failures of a rise have in common, and the time of the rise.

    Parameters
    ----------
    failures : frame
        The failures table. If it has a column `signature`, as `FailureGroups.assign` adds it, the column is
        used unchanged.
    window : pair of datetime, optional
        Start (included) and end (not included) of the rise that you want to explain. Default: the largest
        rise of the history.
    baseline : pair of datetime, optional
        Time to compare the window with, without the gaps of a snapshot. Default: all other times.
    now : datetime, optional
        End of the history; later failures are left out. If the data end earlier, that time is used. Default:
        the last failure.
    progress : bool or callable, optional
        A callable is called with (steps done, number of steps, name of the step that begins). By default, a
        notebook or terminal shows a bar if there are many failures.

    Returns
    -------
    Explanation
        `.frame` with the ranked conditions, `.window`, and `.stands_out`, which is false if nothing rose or,
        in your own window, if nothing rose more than the rest. If all failures rose alike, the condition is
        empty. `observed` is the number of failures in the episodes, `expected` the usual number in the same
        length of time. A failure counts once for each label.

    Raises
    ------
    InputError
        If a column is missing or a time is not valid.

    Examples
    --------
    >>> times = [*pd.date_range("2026-03-01", periods=200, freq="61min", tz="UTC"),
    ...     *pd.date_range("2026-03-05 10:00", periods=60, freq="min", tz="UTC")]
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times,
    ...     "workflow_url": ["pay", "mail"] * 100 + ["pay"] * 60})
    >>> explain_spike(frame).window[0]
    datetime.datetime(2026, 3, 5, 10, 0, tzinfo=datetime.timezone.utc)
    """
    inside = usual = until = None
    if window is not None:
        inside = _span("window", window)
    if baseline is not None:
        usual = _span("baseline", baseline)
    if now is not None:
        until = told_until(failures, when_counted(now))
    with ProgressSteps(
        progress, title="spike", total=2, rows=rows_of(failures)
    ) as step:
        return _explained_spike(failures, inside, usual, until, step)


def _explained_spike(
    failures: AnyFrame,
    inside: Span | None,
    usual: Span | None,
    until: datetime | None,
    step: Callable[[str], None],
) -> Explanation:
    """Explain the window `inside`, or the largest rise if no window is given."""
    step("reading what failures have in common")
    gaps = in_nanoseconds(gaps_of(failures))
    if inside is not None:
        large = CountedFailures.of(failures)
        if large is not None:
            step(f"comparing {counted(large.total, 'failure')}")
            usual = usual or large.history(nanoseconds_of(until), gaps)
            window = large.window(inside, usual, gaps)
            found = explained_counts(
                window.failures,
                window.inside,
                window.outside,
                _relative_length(inside, usual, gaps),
            )
            return replace(found, window=datetimes(inside))

    read = FailureAttributes(failures, doing="explaining a spike")
    search = IncidentSearch(read, until, gaps)
    step(f"comparing {counted(len(read.when), 'failure')}")

    if inside is None:
        incidents = search.incidents()
        if incidents:
            return incidents[0].explanation
        return replace(
            search.explained(search.left, search.left, 1.0), stands_out=False
        )

    if usual is None:
        usual = search.start, search.end
    within, others = (
        (read.when >= start) & (read.when < stop) for start, stop in (inside, usual)
    )
    found = search.explained(
        within,
        others & ~within & ~search.in_gap,
        _relative_length(inside, usual, gaps),
    )

    return replace(found, window=datetimes(inside))


def _relative_length(inside: Span, usual: Span, gaps: Nanoseconds) -> float:
    """Return how many times longer the usual time is than a window, both without gaps."""
    # the baseline may include the window, which then does not count as usual time
    shared = max(inside[0], usual[0]), min(inside[1], usual[1])
    usual_time = known_length(gaps, usual)
    if shared[0] < shared[1]:
        usual_time -= known_length(gaps, shared)
    # if the whole window is in a gap, the failures that were read are compared as if it had no gap
    inside_time = known_length(gaps, inside) or inside[1] - inside[0]

    return max(usual_time, 1) / inside_time


def _span(name: str, pair: object) -> Span:
    """Return the start and the end of an argument in ns since 1970."""
    times = []
    if isinstance(pair, Iterable) and not isinstance(pair, str):
        times = list(pair)
    if len(times) != 2:  # noqa: PLR2004 - from and until
        raise wrong(name, pair, "two times, from when until when")

    start, stop = (
        round(parse_time(time, exact=True, name=name).timestamp() * 1e9)
        for time in times
    )
    if start >= stop:
        raise wrong(name, pair, "two times, the earlier one first")

    return start, stop


def _rise(incident: Incident, failures: FailureAttributes) -> dict[str, Any]:
    """Return the row of an incident."""
    first = incident.first
    about = _about(failures, incident.rows, incident.episodes, incident.expected)

    return about | {
        "kind": "rise",
        "condition": dict(first["condition"]),
        "goes_on": incident.goes_on,
        "confidence": float(first["confidence"]),
        "alternatives": list(first["alternatives"]),
    }


def _regular(
    search: IncidentSearch, steady: list[npt.NDArray[np.bool_]]
) -> list[tuple[dict[str, Any], npt.NDArray[np.bool_]]]:
    """Return rows for errors of a workflow that come at regular times, for example every night.

    If most failures of a history are of this kind, they make the daily wave, and the search finds no rise.
    Failures that incidents, or rows of `steady`, explain are left out.
    """
    failures, left = search.failures, search.left.copy()
    for rows in steady:
        left &= ~rows
    workflows, errors = failures.columns.get(WORKFLOW), failures.errors
    if workflows is None or errors is None:
        return []

    # a kind is a workflow and an error: one number for both, from which `divmod` reads them again
    kinds = workflows.codes.astype(np.int64) * len(errors.categories) + errors.codes
    found, sizes = np.unique(kinds[left], return_counts=True)
    is_large = sizes >= max(_STEADY, _STEADY_SHARE * len(failures))

    records = []
    for kind in found[is_large]:
        of_kind = (kinds == kind) & ~search.in_gap
        rows = of_kind & left
        when = failures.when[rows]
        begins = begins_of_bursts(when)
        is_explained = 2 * rows.sum() < of_kind.sum()
        if is_explained or len(begins) < _REGULAR or period_in_words(begins) is None:
            continue

        workflow, error = divmod(int(kind), len(errors.categories))
        condition = {WORKFLOW: str(workflows.categories[workflow])}
        # if each workflow has one error, the error is no attribute
        if SIGNATURE in failures.columns:
            condition[SIGNATURE] = str(errors.categories[error])
        # an episode ends with the last failure before the next one begins
        lasts = np.append(np.searchsorted(when, begins[1:]) - 1, -1)
        episodes = list(zip(begins, when[lasts].tolist(), strict=True))
        regular = {
            "kind": "rise",
            "condition": condition,
            "goes_on": search.goes_on(int(when[-1]), float(np.median(np.diff(begins)))),
            "confidence": 1.0,
            "alternatives": [],
        }
        records.append((_about(failures, rows, episodes, expected=0.0) | regular, rows))

    return sorted(records, key=lambda record: -record[0]["observed"])


def _steady(
    search: IncidentSearch,
) -> list[tuple[dict[str, Any], npt.NDArray[np.bool_]]]:
    """Return rows for workflows that fail all the time at regular intervals, much more than others."""
    failures, left = search.failures, search.left
    workflows, signatures = (
        failures.columns.get(name) for name in (WORKFLOW, SIGNATURE)
    )
    if workflows is None:
        return []

    sizes = np.bincount(workflows.codes[left], minlength=len(workflows.categories))
    usual = 0.0
    if (sizes > 0).any():
        usual = float(np.median(sizes[sizes > 0]))
    edges = np.linspace(search.start, search.end, _SLICES + 1).astype(np.int64)
    slices_known = int((time_known(search.gaps, edges) > 0).sum())

    records = []
    for code in np.argsort(-sizes, kind="stable"):
        size = int(sizes[code])
        if size < max(_STEADY, _STEADY_SHARE * len(failures), _STEADY_TIMES * usual):
            break
        # sizes are sorted, so all further workflows have too few failures as well
        condition = {WORKFLOW: str(workflows.categories[code])}
        rows = left & (workflows.codes == code)

        if signatures is not None:
            most = int(np.bincount(signatures.codes[rows]).argmax())
            condition[SIGNATURE] = str(signatures.categories[most])
            rows &= signatures.codes == most

        when = failures.when[rows]
        slices = (when - search.start) * _SLICES // (search.end - search.start)
        between = np.diff(when)
        # a timer makes most pauses equal; random failures have pauses of all lengths
        timed = np.abs(between - np.median(between)) <= np.median(between) / 4

        always = len(np.unique(slices)) >= slices_known - 1
        if rows.sum() >= _STEADY_ALIKE * size and always and timed.mean() >= _TIMED:
            about = _about(failures, rows, [(int(when[0]), int(when[-1]))], usual)
            steady = {
                "kind": "steady",
                "condition": condition,
                "goes_on": True,
                "confidence": 1.0,
            }
            records.append((about | steady | {"alternatives": []}, rows))

    return records


def _about(
    failures: FailureAttributes,
    rows: npt.NDArray[np.bool_],
    episodes: list[Span],
    expected: float,
) -> dict[str, Any]:
    """Return the times, the counts and the common values of some failures."""
    observed = float(rows.sum())
    times = [datetimes(episode) for episode in episodes]
    workflows = [
        name
        for name in failures.most_frequent(WORKFLOW, rows, len(failures))
        if name != NONE
    ]
    workflow_count, lift = None, np.inf
    if WORKFLOW in failures.columns:
        workflow_count = len(workflows)
    if expected:
        lift = observed / expected
    return {
        "workflows": workflows[:_WORKFLOWS],
        "workflow_count": workflow_count,
        "shared": failures.shared(rows, _SHARED),
        "from_at": times[0][0],
        "until_at": times[-1][1],
        "episodes": times,
        "period": period_in_words(begins_of_bursts(failures.when[rows])),
        "observed": observed,
        "expected": expected,
        "excess": observed - expected,
        "lift": lift,
    }
