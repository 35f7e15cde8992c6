"""Check whether the failures of a group have stopped since a fix.

For example, a group failed 40 times per day until a deployment at noon. After two quiet hours, 3 failures
would be expected, and the check reports "not yet known" with the time to wait; an hour later, "stopped".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import pandas as pd

from toolkit.base.arguments import instance, nearest, text
from toolkit.base.errors import InputError
from toolkit.base.progress import ProgressOption, checked_progress
from toolkit.base.time_zones import time_text
from toolkit.base.times import parse_time
from toolkit.drawing.result_tables import Plotted, frame_table
from toolkit.drawing.wording import counted, span
from toolkit.failures.gaps import gaps_of
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import grouped
from toolkit.failures.selection import freshness_of, receipt_of, select, select_timed
from toolkit.failures.signed_failures import earlier_ids, present_ids
from toolkit.failures.sources import AnyFrame
from toolkit.fixes.earlier_rate import EarlierRate, Gaps, daily_rate, run_rate
from toolkit.fixes.sequential_test import Numbers, redrive_score
from toolkit.loading.failures import load_failures
from toolkit.secrets.redaction import Redactor, visible
from toolkit.service.settings import Service
from toolkit.tables.freshness import Clock

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

State: TypeAlias = Literal["stopped", "not yet known", "still failing", "back again"]
STOPPED: Final[State] = "stopped"
NOT_KNOWN: Final[State] = "not yet known"
FAILING: Final[State] = "still failing"
BACK: Final[State] = "back again"

_DOING: Final = "checking a fix"
_DAY_MS: Final = 86_400_000
_STEPS: Final = 200  # rows of the course after the fix
_AGAIN: Final = ("failed again", "failed otherwise")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FixCheck(Plotted):
    """Whether failures of a group have stopped; made by `check_fix`. `plot` draws seen and expected failures.

    Attributes
    ----------
    state : str
        ``"stopped"``, ``"not yet known"``, ``"still failing"`` or ``"back again"``.
    group, title : str
        The group. The title is masked.
    since, until : pandas.Timestamp
        The time of the fix, and the end of the data.
    before, after : int
        Failures before and after the fix.
    expected : float
        Failures that would be expected after the fix at the earlier rate.
    holds_since : pandas.Timestamp or None
        If the failures have stopped: the time of the fix, or of the last failure after it.
    wait : datetime.timedelta or None
        If the result is not yet known: the time until it is known, if no more failures come. None if counts
        cannot decide.
    reason : str
        Why the result is not known; empty otherwise.
    frame : pandas.DataFrame
        The course since the fix: `time` (datetime64[ms, UTC]), `failures` (Int64) and `expected` (float64)
        until then, `score` (float64: the logarithm of the likelihood ratio; below 0 if failures rather have
        stopped).

    Examples
    --------
    >>> groups = tk.group_failures(tk.load_failures(service, limit=20))
    >>> check = check_fix(service, groups.frame["group"][0], "1h")
    >>> check.state in ("stopped", "not yet known", "still failing", "back again")
    True
    """

    state: State
    group: str
    title: str
    since: pd.Timestamp
    until: pd.Timestamp
    before: int
    after: int
    expected: float
    holds_since: pd.Timestamp | None
    wait: timedelta | None
    reason: str
    frame: pd.DataFrame

    @property
    def summary(self) -> str:
        """Return the result as one or two sentences."""
        seen = f"{counted(self.after, 'failure')} since {time_text(self.since)}"
        facts = f"{seen}, about {self.expected:,.1f} expected"
        sentence = f"{self.state[0].upper()}{self.state[1:]}: {facts}."
        if self.reason:
            sentence += f" {self.reason}."
        if self.wait is not None:
            sentence += f" Without another failure, known in {span(self.wait)}."
        if self.holds_since is not None and self.after:
            sentence += f" The last one was at {time_text(self.holds_since)}."
        return sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON: times in ISO 8601, the wait in seconds.

        Examples
        --------
        >>> group = tk.group_failures(tk.load_failures(service, limit=20)).frame["group"][0]
        >>> check_fix(service, group, "1h").to_dict()["group"] == group
        True
        """
        holds = self.holds_since
        return {
            "state": self.state,
            "group": self.group,
            "title": self.title,
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "before": self.before,
            "after": self.after,
            "expected": round(self.expected, 2),
            "holds_since": None if holds is None else holds.isoformat(),
            "wait_seconds": None if self.wait is None else self.wait.total_seconds(),
            "reason": self.reason,
        }

    def __repr__(self) -> str:
        return visible(f"{self.summary}\n{self.title}")

    def _repr_html_(self) -> str:
        shown = self.frame.iloc[:: max(1, len(self.frame) // 10)]
        return frame_table(repr(self), shown)

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.fixes.check_plot import draw_check  # noqa: PLC0415 - matplotlib is slow to import

        return draw_check(self.frame, self.state, self.title, ax, theme)


def check_fix(
    failures: Service | AnyFrame,
    group: str,
    since: str | datetime,
    *,
    runs: AnyFrame | None = None,
    redrive: Any = None,
    rules: str | Path | GroupRules | None = None,
    now: Clock = None,
    progress: ProgressOption = None,
) -> FixCheck:
    """Check whether the failures of a group have stopped since a fix was deployed.

    The failures since the fix are compared with the earlier rate of the group: its bursts, the time of day,
    and the uncertainty of a short history. You may look as often as you like: "stopped" is wrong for at most
    5 % of groups that continue, and "still failing" for at most 5 % of groups that have stopped. Do not use
    it for a group that was rare before: a result then takes longer than your deployment.

    Parameters
    ----------
    failures : Service or frame
        All failures, from before the fix until now. A snapshot is better than a service, because entries that
        were deleted or redriven are only in a snapshot.
    group : str
        Id of the group, as `group_failures` returns it, or the beginning of it: ``"s8-703ae1"``, or without
        the version of the rules ``"703ae1"``.
    since : str or datetime
        When the fix was deployed everywhere; for example ``"2026-03-01T12:00Z"`` or ``"2h"``. A failure of an
        old process after this time counts as a failure of the fix.
    runs : frame, optional
        Runs of `load_runs` that cover the same time. Failures are then compared per ended run of the
        workflows of the group, so that times with little traffic are no evidence. Redriven runs count.
    redrive : RedriveResult, optional
        A finished redrive. Entries of the group that ended after the fix are evidence if the same redrive, or
        an earlier part of it, also has entries that ended before the fix; otherwise nobody knows how many
        would have succeeded without a fix.
    rules : str, Path or GroupRules, optional
        Rules as in `group_failures`.
    now : datetime or callable, optional
        A time to look back at, as in `report_failures`.
    progress : bool or callable, optional
        See `load_failures`.

    Returns
    -------
    FixCheck
        The state, a sentence (`summary`), and the time to wait if it is not yet known.

    Raises
    ------
    InputError
        If the group has no failure, if several groups begin like this, if `since` is later than the data, or
        if a column is missing.

    Examples
    --------
    >>> from toolkit import group_failures
    >>> days = pd.date_range("2026-03-01", periods=200, freq="h", tz="UTC")
    >>> frame = pd.DataFrame({"dlq_id": [f"d{number}" for number in range(200)], "workflow_url": "u",
    ...     "response_status": 500, "failed_at": days, "created_at": days, "response_body": "disk full",
    ...     "response_body_base64": None})
    >>> group = group_failures(frame).frame["group"][0]
    >>> check_fix(frame, group, "2026-03-09T08:00Z", now=pd.Timestamp("2026-03-09T18:00Z"))
    Stopped: 0 failures since 2026-03-09 08:00 UTC, about 9.6 expected.
    disk full
    """
    group = text("group", group, empty=False)
    checked_progress(progress)
    # all arguments before the failures are loaded and grouped
    redriven_rows = _redriven_rows(redrive)
    if isinstance(failures, Service):
        failures = load_failures(failures, progress=progress)
    fresh = freshness_of(failures, now, None)
    fixed_at = parse_time(since, now=fresh.now, name="since")

    end = fresh.end
    if fixed_at >= end:
        raise InputError(
            _DOING,
            got=f"a fix at {time_text(fixed_at)}, and data until {time_text(end)}",
            expected="data from after the fix",
            next_step="Load the failures again, or check the time zone of since.",
        )

    group, rows = _rows_of_group(failures, group, rules)
    own_ids = [group, *earlier_ids(failures, group)]
    redriven = _redriven(redriven_rows, own_ids, fixed_at)
    rows = rows[~rows["dlq_id"].isin(redriven.new_ids)]
    times = np.sort(_days(rows["when"].dropna()))
    times = times[times <= _day(end)]
    before, after = times[times < _day(fixed_at)], times[times >= _day(fixed_at)]
    rate = _rate(failures, runs, rows, before, _day(fixed_at))
    course = _Course(rate, after, _day(fixed_at), _day(end), redriven.score)
    state = course.decided()
    reason = ""
    if state in (STOPPED, NOT_KNOWN):
        reason = _not_whole(failures)
    if state == STOPPED and reason:
        state = NOT_KNOWN
    wait = None
    if state == NOT_KNOWN and not reason:
        wait = course.wait()
        if wait is None:
            reason = f"Only {counted(len(before), 'failure')} before: too few to decide"

    holds_since = None
    if state == STOPPED:
        holds_since = _timestamp(float(after[-1]) if len(after) else _day(fixed_at))
    return FixCheck(
        state=state,
        group=group,
        title=visible(Redactor().text(str(rows["title"].iloc[0]))),
        since=pd.Timestamp(fixed_at),
        until=pd.Timestamp(end),
        before=len(before),
        after=len(after),
        expected=course.end_position,
        holds_since=holds_since,
        wait=wait,
        reason=reason,
        frame=course.frame(),
    )


@dataclass(frozen=True)
class _Course:
    """The failures after a fix, and the test of them. Times are days since 1970."""

    rate: EarlierRate
    after: Numbers
    since: float
    end: float
    prior: float

    @property
    def positions(self) -> Numbers:
        """Return the expected failures until each failure."""
        return self.rate.positions(self.after, self.since)

    @property
    def end_position(self) -> float:
        """Return the expected failures until the end of the data."""
        return float(self.rate.positions(np.array([self.end]), self.since)[0])

    def decided(self) -> State:
        """Return the state at the end of the data.

        After "stopped", the test begins again, so that later failures are found. It does not begin again
        after "still failing": pass the time of the next deployment instead.
        """
        evidence, positions, end = self.rate.evidence, self.positions, self.end_position
        first = evidence.first_decision(positions, end, self.prior)
        if first is None:
            return NOT_KNOWN
        if first.continues:
            return FAILING

        seen, start = first.failures, first.position
        while True:
            later = evidence.first_decision(positions[seen:] - start, end - start)
            if later is None:
                return STOPPED
            if later.continues:
                return BACK
            seen, start = seen + later.failures, start + later.position

    def wait(self) -> timedelta | None:
        """Return the time after which the failures have stopped if no more come; None if never."""
        if not self.rate.evidence.can_decide:
            return None

        wanted = self.rate.evidence.stopping_point(len(self.after), self.prior)
        days = self.rate.wait(self.end, max(wanted - self.end_position, 0.0))
        if days is None:
            return None

        minutes = int(np.ceil(days * 1440 + 1e-6))
        return timedelta(minutes=minutes)

    def frame(self) -> pd.DataFrame:
        """Return the seen and expected failures over time."""
        even = np.linspace(self.since, self.end, _STEPS)
        times = np.unique(np.concatenate([even, self.after[:_STEPS]]))
        expected = self.rate.positions(times, self.since)
        seen = np.searchsorted(self.after, times, side="right")
        pairs = zip(seen.tolist(), expected.tolist(), strict=True)
        scores = [self.rate.evidence.score(*pair) + self.prior for pair in pairs]
        milliseconds = np.round(times * _DAY_MS).astype("int64")
        when = pd.to_datetime(milliseconds, unit="ms", utc=True).as_unit("ms")
        columns = {"time": when, "failures": pd.array(seen, dtype="Int64")}

        return pd.DataFrame(columns | {"expected": expected, "score": scores})


@dataclass(frozen=True)
class _Redriven:
    """The evidence of a redrive. `new_ids` are entries that came back, which are no failures of their own."""

    score: float = 0.0
    new_ids: tuple[str, ...] = ()


def _redriven_rows(redrive: Any) -> pd.DataFrame | None:
    """Return the entries of a redrive."""
    if redrive is None:
        return None

    frame: pd.DataFrame = instance(
        "redrive", getattr(redrive, "frame", None), pd.DataFrame, "a RedriveResult"
    )
    return frame


def _redriven(
    frame: pd.DataFrame | None, groups: Sequence[str], since: datetime
) -> _Redriven:
    """Return the evidence of the entries of a group that a redrive ended before and after the fix.

    A plan that was made before a sync joined groups has the earlier ids, which are in `groups` as well.
    """
    if frame is None:
        return _Redriven()

    own = frame[frame["group"].isin(groups)]
    ended = own[own["state"].isin(("succeeded", *_AGAIN))].dropna(subset="ended_at")
    counts = []
    is_after = ended["ended_at"] >= pd.Timestamp(since)
    for part in (ended[~is_after], ended[is_after]):
        again = int(part["state"].isin(_AGAIN).sum())
        counts.append((again, len(part) - again))

    new_ids = tuple(own["new_dlq_id"].dropna())
    return _Redriven(redrive_score(*counts), new_ids)


def _rows_of_group(
    failures: AnyFrame, group: str, rules: str | Path | GroupRules | None
) -> tuple[str, pd.DataFrame]:
    """Return the whole id of a group, and the id, workflow, time and title of its failures."""
    columns = ["dlq_id", "workflow_url"]
    table = select_timed(failures, columns, doing=_DOING).whole_table(_DOING)
    groups, ids = grouped(failures, rules)
    titles = groups.frame.set_index("group")["title"]
    group = _whole_id(group, titles.index.tolist(), present_ids(failures))
    frame = table.select(["dlq_id", "workflow_url"]).to_pandas()
    frame["when"] = table["when_"].to_pandas()
    own: pd.DataFrame = frame[np.array(ids) == group]
    rows = own.drop_duplicates("dlq_id", keep="last").assign(title=titles[group])

    return group, rows


def _whole_id(group: str, ids: Sequence[str], renamed: Mapping[str, str]) -> str:
    """Return the only id of a group that begins with these characters.

    The version of the rules in front may be left out: "703ae1" is the beginning of "s8-703ae1747355". An
    earlier id, of a group that a sync has joined with others, leads to the present one.
    """
    if group in ids:
        return group

    present = {**renamed, **dict(zip(ids, ids, strict=True))}
    matching = {
        whole
        for known, whole in present.items()
        if known.startswith(group) or known.partition("-")[2].startswith(group)
    }
    # a group that was joined may have no row among these failures
    matching &= {*ids}
    if len(matching) == 1:
        return matching.pop()

    if matching:
        raise InputError(
            _DOING,
            got=f"{group!r}, the beginning of {len(matching)} groups",
            expected="the beginning of one group",
        )

    raise InputError(
        _DOING,
        got=f"the group {group!r}, without a failure",
        expected="the id of a group of these failures",
        next_step=nearest(group, ids, what="They have")
        or "See group_failures(failures).frame.",
    )


def _rate(
    failures: AnyFrame,
    runs: AnyFrame | None,
    rows: pd.DataFrame,
    before: Numbers,
    since: float,
) -> EarlierRate:
    if runs is None:
        gaps: Gaps = tuple(
            (_day(start), _day(stop)) for start, stop in gaps_of(failures)
        )
        return daily_rate(before, since, gaps)

    columns = ["workflow_url", "completed_at"]
    chosen = select(runs, columns, doing=_DOING, name="runs")
    table = chosen.whole_table(_DOING).to_pandas()
    own = table[table["workflow_url"].isin(rows["workflow_url"])]

    ended = np.sort(_days(own["completed_at"].dropna()))
    if not len(ended) or ended[0] >= since:
        raise InputError(
            _DOING,
            got="no ended run of these workflows before the fix",
            expected="runs that cover the time before and after the fix",
            next_step="Leave out runs to compare failures over time.",
        )

    return run_rate(before, since, ended)


def _not_whole(failures: AnyFrame) -> str:
    """Return why failures may be missing; empty if the load was complete."""
    receipt = receipt_of(failures)
    if receipt is None or receipt.complete:
        return ""

    return "The load is not complete, so failures may be missing: load them again"


def _day(when: datetime) -> float:
    return when.timestamp() * 1000 / _DAY_MS


def _days(times: pd.Series) -> Numbers:
    plain = times.dt.tz_convert("UTC").dt.tz_localize(None).astype("datetime64[ms]")
    milliseconds = plain.astype("int64").to_numpy(dtype=np.float64)
    return np.asarray(milliseconds / _DAY_MS, dtype=np.float64)


def _timestamp(day: float) -> pd.Timestamp:
    return pd.Timestamp(round(day * _DAY_MS), unit="ms", tz="UTC")
