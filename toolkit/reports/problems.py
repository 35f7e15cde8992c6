"""Find the problems of a report: explanations, and changed groups that no explanation contains.

`group_states.STATES` defines the states. Headline, page, Markdown, e-mail and JSON show the same problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from toolkit.base.time_zones import time_zone
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.wording import counted, shorten, span
from toolkit.failures.group_states import STATES, State
from toolkit.failures.matching_rows import rows_meeting
from toolkit.failures.selection import NONE
from toolkit.redrive.choices import recommended
from toolkit.reports.board import Problem
from toolkit.reports.evidence import Evidence, Story
from toolkit.reports.group_changes import estimate
from toolkit.reports.spoken_times import age_text, day_and_time, times_between
from toolkit.signatures.placeholders import PLACEHOLDER
from toolkit.tables.freshness import Freshness
from toolkit.tables.signed_rows import SIGNATURE

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_SHORTEST: Final = timedelta(minutes=1)
_JUST_NOW: Final = timedelta(minutes=10)
"""If the last failure is not older, a problem does not name the time of it."""

_LONGEST_TREND: Final = timedelta(days=60)
_MOST_BARS: Final = 60
_STEPS: Final = tuple(timedelta(hours=hours) for hours in (1, 2, 3, 6, 12, 24))
# "timeout at reports.PageBuffer.grow": the last words name a place in the code
_AT: Final = re.compile(r"(.+) at ([\w.$/<>:#-]+[.:/]\S+)")
_LONGEST_TITLE: Final = 160
_LONGEST_NAME: Final = 60
_SHARED: Final = {
    "caller_ip": "only from {}",
    "flow_control_key": "key {}",
    "label": "label {}",
}
_CHANGES: Final[Mapping[str, State]] = {
    "new": "new",
    "back again": "back again",
    "growing": "growing",
}
"""Changes of groups that are problems by themselves."""

_LEAST_RECENT: Final = 10
"""Least number of failures of the last 24 hours for a problem without any change."""

_FADED: Final = 0.2
"""A group is over with its explanation if it then fails at less than this share of the rate before.

The search of incidents leaves out smaller episodes by the same share.
"""

_OF_ALL: Final = "Look for a shared cause"
_OF_ALL_REASON: Final = "failures of all kinds rose alike"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The bars of all trends on the first screen: equal steps that end with the data."""

    start: datetime
    step: timedelta
    count: int

    @classmethod
    def until(cls, end: datetime, first: datetime) -> Scale:
        """Return at most 60 bars from the first failure to the end of the data."""
        length = min(max(end - first, _HOUR), _LONGEST_TREND)
        step = next(
            (step for step in _STEPS if length / step <= _MOST_BARS), _STEPS[-1]
        )
        count = -(-length // step)

        return cls(start=end - count * step, step=step, count=count)

    @property
    def length(self) -> str:
        """Return the length of all bars in words."""
        return age_text(self.count * self.step)

    def bar_of(self, when: datetime) -> int:
        """Return the number of the bar of a time; the first bar for earlier times."""
        return min(max((when - self.start) // self.step, 0), self.count - 1)

    def counts(self, times: pd.Series) -> tuple[int, ...]:
        """Count times by bar. Times before the first bar and after the last are left out."""
        since_start = (times.dropna() - self.start) / self.step
        bars = np.floor(since_start[(since_start >= 0) & (since_start <= self.count)])
        numbers = np.minimum(bars.astype(np.int64), self.count - 1)

        return tuple(np.bincount(numbers, minlength=self.count).tolist())


class FoundProblems(NamedTuple):
    """The problems of a report, and the groups that have stopped."""

    problems: list[Problem]
    """Ordered by state, and within a state the latest first."""
    ended_groups: frozenset[str]
    """The groups of ended problems that have stopped, and that no ongoing explanation contains."""


def problems_of(
    evidence: Evidence, fresh: Freshness, scale: Scale, clean: Callable[[Any], Any]
) -> FoundProblems:
    """Return all problems.

    `scale` are the bars of their trends. `clean` masks secrets. It is applied to whole values, because half a
    secret is not recognized.
    """
    found = _Problems(evidence, fresh, scale, clean)
    problems = sorted(found.all(), key=_order) or list(found.continuing())
    return FoundProblems(
        problems, frozenset(found.stopped_groups - found.ongoing_groups)
    )


def _order(problem: Problem) -> tuple[int, bool, float]:
    """Return the place of a problem: by state, explanations before groups, the latest first."""
    is_group = problem.explanation is None
    return STATES.index(problem.state), is_group, -problem.since.timestamp()


def short_names(workflows: Iterable[str]) -> dict[str, str]:
    """Return short names of workflows: addresses without the part that all have in common.

    >>> short_names(["https://a.example/flows/pay", "https://a.example/flows/ship"])
    {'https://a.example/flows/pay': 'pay', 'https://a.example/flows/ship': 'ship'}
    >>> short_names(["https://a.example/flows/pay"])
    {'https://a.example/flows/pay': 'flows/pay'}
    """
    names = sorted(set(workflows))
    short, prefix = without_prefix(names)
    if not prefix:
        short = _paths(names)
    return dict(zip(names, short, strict=True))


def _paths(addresses: list[str]) -> list[str]:
    """Return the paths of addresses, or the addresses if two hosts have the same path."""
    paths = [_path(address) or address for address in addresses]
    if len(set(paths)) < len(paths):
        return addresses

    return paths


def _path(address: str) -> str:
    """Return the path of an address, which need not be valid: a mask can be in place of the host.

    >>> _path("https://[masked len=28 tag=089446be]/flows/pay/?x=1#y")
    'flows/pay'
    """
    after_scheme = address.partition("://")[2]
    path = after_scheme.partition("/")[2]
    for end in "?#":
        path = path.partition(end)[0]
    return path.strip("/")


def scale_of(sample: pd.DataFrame, fresh: Freshness) -> Scale:
    """Return the bars that all problems and groups of a report share."""
    when = _times(sample)
    first = when[when <= fresh.end].min()
    if pd.isna(first):
        first = pd.Timestamp(fresh.end - _DAY)
    return Scale.until(fresh.end, first.to_pydatetime(warn=False))


def trends_of_groups(sample: pd.DataFrame, scale: Scale) -> dict[str, tuple[int, ...]]:
    """Return the number of failures per bar for each group of the sample."""
    by_group = _times(sample).groupby(sample[SIGNATURE])
    return {str(group): scale.counts(times) for group, times in by_group}


class _Problems:
    """Makes problems from the explanations and the changed groups of the evidence."""

    def __init__(
        self,
        evidence: Evidence,
        fresh: Freshness,
        scale: Scale,
        clean: Callable[[Any], Any],
    ) -> None:
        self.evidence, self.scale, self.clean = evidence, scale, clean
        self.end, self.now = fresh.end, fresh.now
        workflows = evidence.sample["workflow_url"].dropna().unique()
        masked = {name: str(clean(name)) for name in workflows}
        short = short_names(masked.values())
        self.names = {
            name: shorten(short[shown], _LONGEST_NAME) for name, shown in masked.items()
        }

    def all(self) -> Iterator[Problem]:
        """Return explanations, then changed groups whose present failures no explanation contains."""
        for number, story in enumerate(self.evidence.stories, 1):
            yield self._explained(number, story)
        explained = self.ongoing_groups | self.stopped_groups

        changes = self.evidence.changes
        if changes is None:
            # nothing failed before, so nothing could be compared, but the first errors are new
            changes = pd.DataFrame({"group": self.evidence.trend.new or []})
            changes["change"] = "new"
        if self.evidence.is_current:
            yield from self._changed_groups(changes, explained)

    @cached_property
    def ongoing_groups(self) -> set[str]:
        """Return the groups of ongoing explanations."""
        groups: set[str] = set()
        for story in self.evidence.stories:
            if self._state(story) != "ended":
                groups |= story.groups

        return groups

    @cached_property
    def stopped_groups(self) -> set[str]:
        """Return the groups of ended explanations that have stopped with them."""
        groups: set[str] = set()
        for story in self.evidence.stories:
            if self._state(story) == "ended":
                groups |= {
                    group for group in story.groups if self._is_over(group, story)
                }

        return groups

    def continuing(self) -> Iterator[Problem]:
        """Return the problem of the group of most recent failures, for a report without any other problem.

        For example, an error fails 300 times a day since the first day of the data. Nothing rose, so there is
        no explanation and no change, but something is wrong.
        """
        changes = self.evidence.changes
        if changes is None or not self.evidence.is_current:
            return

        sample = self.evidence.sample
        recent = sample[_times(sample).between(self.end - _DAY, self.end)]
        counts = recent[SIGNATURE].value_counts()
        if counts.empty or counts.iloc[0] < max(_LEAST_RECENT, len(recent) / 2):
            return

        group, number = str(counts.index[0]), int(counts.iloc[0])
        if not (changes["change"][changes["group"] == group] == "steady").any():
            return

        groups = self.evidence.groups.set_index("group")
        kinds = self.evidence.classes.set_index("group")["class"]
        problem = self._group(group, "steady", {}, groups.loc[[group]].iloc[0], kinds)
        rate = f"{number:,} in 24 hours, as before"
        if self.evidence.sampled:
            rate = f"{number / len(recent):.0%} of the last 24 hours, as before"
        yield replace(problem, rate_text=rate, link="groups")

    def _is_over(self, group: str, story: Story) -> bool:
        """Return whether a group has stopped, or nearly so, since an explanation ended.

        For example, 300 failures until a fix at 05:00 are many for the day, so the group counts as new or
        growing. That is no problem of its own if only a few failures came after the fix.
        """
        times = _times(self._rows_of(group))
        after = int(times.between(story.stop, self.end, inclusive="right").sum())
        if not after:
            return True

        during = int(times.between(story.last_start, story.stop).sum())
        length = max(story.stop - story.last_start, _SHORTEST)
        usual = during * ((self.end - story.stop) / length)
        return after < _FADED * usual

    def _later_in_words(self, story: Story) -> str:
        """Return how often the errors of an ended explanation came after it, if they began with it.

        Errors that also occurred before usually continue, which tells nothing about a fix.
        """
        later = 0
        for group in story.groups:
            times = _times(self._rows_of(group))
            if times.min() >= story.start:
                later += int((times > story.stop).sum())
        if not later:
            return ""

        return f"{self._estimated(later)} more since then"

    def _estimated(self, count: int) -> str:
        """Return a count of the sample as a number of all failures, for example "about 1,230"."""
        if self.evidence.sampled:
            return f"about {estimate(count, self.evidence.scale):,}"
        return f"{count:,}"

    def _rows_of(self, group: str) -> pd.DataFrame:
        sample = self.evidence.sample
        return sample[sample[SIGNATURE] == group]

    def _changed_groups(
        self, changes: pd.DataFrame, explained: set[str]
    ) -> Iterator[Problem]:
        """Return the problems of changed groups that are not explained."""
        groups = self.evidence.groups.set_index("group")
        kinds = self.evidence.classes.set_index("group")["class"]
        is_problem = (
            changes["change"].isin(_CHANGES)
            & changes["group"].isin(groups.index)
            & ~changes["group"].isin(explained)
        )
        for row in changes[is_problem].to_dict("records"):
            group, state = row["group"], _CHANGES[row["change"]]
            yield self._group(group, state, row, groups.loc[[group]].iloc[0], kinds)

    def _explained(self, number: int, story: Story) -> Problem:
        """Return the problem of an explanation."""
        state = self._state(story)
        since = story.start
        if state == "back again":
            since = story.last_start
        title, place = _title_and_place(self.clean(story.what))
        if not story.whole:
            place.append("with other errors")
        advice = recommended(*story.classes)
        action = f"{advice.brief} {story.about}{story.waiting:,}"
        reason, link = _reason(*story.classes), f"action-{number}"
        if story.waiting != story.observed:
            # the condition of the code also selects failures outside of the episodes, or misses gone ones
            reason += f"; {story.about}{story.waiting:,} of this kind are in the queue"

        if story.of_all:
            action, reason = _OF_ALL, _OF_ALL_REASON
        if not story.waiting:
            action, reason, link = "Nothing to resume", "none is in the queue", ""
        rows = rows_meeting(self.evidence.sample, story.chosen, None, None)
        since_text, since_note = self._since_texts(story, state, since)

        return Problem(
            state=state,
            title=title,
            where=self._where(story),
            detail=", ".join(
                [
                    *place,
                    *self._errors_in_words(story, rows),
                    *self._in_common(story),
                ]
            ),
            since=since,
            until=story.stop,
            since_text=since_text,
            since_note=since_note,
            failures=story.observed,
            about=story.about,
            rate_text=self._rate_text(story, state, _times(rows)),
            bars=self._bars(rows),
            hot_from=self.scale.bar_of(since),
            failure_class=", ".join(story.classes),
            action=action,
            reason=reason,
            link=link,
            explanation=number,
        )

    def _bars(self, rows: pd.DataFrame) -> tuple[int, ...]:
        """Return the failures per bar of the trend, estimated if the rows are of a sample."""
        counts = self.scale.counts(_times(rows))
        return tuple(estimate(count, self.evidence.scale) for count in counts)

    def _group(
        self,
        group: str,
        state: State,
        change: Mapping[Any, Any],
        facts: pd.Series,
        kinds: pd.Series,
    ) -> Problem:
        """Return the problem of a group that no explanation contains."""
        rows = self._rows_of(group)
        by_frequency = rows["workflow_url"].dropna().value_counts().index
        workflows = [self.names.get(name, name) for name in by_frequency]
        since = self._time_or_end(facts["first_at"])
        if state == "back again":
            since = self._first_of_last_day(_times(rows), since)
        until = self._time_or_end(facts["last_at"])
        title, place = _title_and_place(self.clean(str(facts["title"])))
        found_class = str(kinds.get(group, "unknown"))
        rate = ""
        if state == "growing":
            usual = _number_text(float(change["expected"]))
            about = "about " if change["is_estimate"] else ""
            rate = f"{about}{int(change['after']):,} lately, usually {usual}"

        return Problem(
            state=state,
            title=title,
            where=_places(workflows),
            detail=", ".join(place),
            since=since,
            until=until,
            since_text=day_and_time(since, self.now),
            since_note=self._age_in_words(since, until),
            failures=int(facts["count"]),
            about="",
            rate_text=rate,
            bars=self._bars(rows),
            hot_from=self.scale.bar_of(since),
            failure_class=found_class,
            action="Look at the failures",
            reason=_reason(found_class),
            link="changed",
            explanation=None,
        )

    def _age_in_words(self, since: datetime, until: datetime) -> str:
        """Return when a group began, and when it last failed if that is not just now.

        For example "5 h ago, the last 3 h ago".
        """
        age = f"{age_text(self.now - since)} ago"
        if since >= until:
            return age

        return age + self._last_in_words(until)

    def _last_in_words(self, last: datetime) -> str:
        """Return when a problem last failed, for example ", the last 3 h ago"; "" if that is just now."""
        if self.end - last < _JUST_NOW:
            return ""

        return f", the last {age_text(self.now - last)} ago"

    def _time_or_end(self, time: Any) -> datetime:
        """Return a time, or the end of the data for a missing one."""
        if pd.isna(time):
            return self.end

        when: datetime = time.to_pydatetime(warn=False)
        return when

    def _first_of_last_day(self, times: pd.Series, otherwise: datetime) -> datetime:
        """Return the first time of the last day of the data."""
        recent = times[times > self.end - _DAY]
        if recent.empty:
            return otherwise

        first: datetime = recent.min().to_pydatetime(warn=False)
        return first

    def _state(self, story: Story) -> State:
        """Return the state of an explanation; "ended" if the data do not reach the last hours."""
        if not (story.goes_on and self.evidence.is_current):
            return "ended"
        if story.kind == "steady":
            return "steady"

        yesterday = self.end - _DAY
        if story.start > yesterday:
            return "new"
        if story.episodes > 1 and story.last_start > yesterday:
            return "back again"
        if story.groups & {*self.evidence.trend.grown}:
            return "growing"

        return "steady"

    def _where(self, story: Story) -> str:
        """Return the workflows of an explanation by their short names."""
        names = [name for name in story.workflows if name != NONE]
        own = story.shared.get("workflow_url")
        if own and own != NONE:
            names = [own]
        short = [self.names.get(name, self.clean(name)) for name in names]

        return _places(short, max(story.workflow_count, len(short)), is_all=bool(own))

    def _errors_in_words(self, story: Story, rows: pd.DataFrame) -> list[str]:
        """Return the number of errors and the most frequent one, if the title names none of them."""
        if SIGNATURE in story.chosen:
            return []

        within = rows[_times(rows).between(story.start, story.stop)]
        counts = within[SIGNATURE].value_counts()
        if len(counts) < 2:  # noqa: PLR2004 - several errors
            return []

        titles = self.evidence.groups.set_index("group")["title"]
        most, _ = _title_and_place(self.clean(str(titles[counts.index[0]])))
        return [f"{len(counts):,} errors, most often {most}"]

    def _in_common(self, story: Story) -> list[str]:
        """Return a value that all failures of an explanation share and that the title does not name."""
        return [
            words.format(self.clean(story.shared[name]))
            for name, words in _SHARED.items()
            if name in story.shared and name not in story.stated
        ][:1]

    def _since_texts(
        self, story: Story, state: State, since: datetime
    ) -> tuple[str, str]:
        """Return the time of a problem for readers, and a note below it."""
        if state == "ended":
            times = times_between(story.start, story.stop, self.now)
            return times, _episodes_in_words(story)

        length = self.now - since
        age = age_text(length)
        if story.kind == "steady":
            return "always", f"{age} at least"

        if length < 2 * _DAY:
            age = f"{age} ago"
        return day_and_time(since, self.now), age + self._last_in_words(story.stop)

    def _rate_text(self, story: Story, state: State, times: pd.Series) -> str:
        """Return the rate of an ongoing problem next to the usual rate; of an ended one, later failures."""
        if state == "ended":
            return self._later_in_words(story)

        if state == "back again":
            # the other episodes are over, so a rate since the first one would be too low
            recent = int((times >= story.last_start).sum()) * self.evidence.scale
            hours = max((self.end - story.last_start) / _HOUR, 1)
            return f"{story.about}{_number_text(recent / hours)} per hour since then"

        length = max(self.end - story.start, _HOUR)
        unit, name = _DAY, "day"
        if length <= _DAY:
            unit, name = _HOUR, "hour"
        rate = _number_text(story.observed * (unit / length))
        if story.kind == "steady":
            return f"{rate} per {name}, as always"

        usual = _number_text(story.expected * (unit / length))
        return f"{rate} per {name}, usually {usual}"


def _episodes_in_words(story: Story) -> str:
    """Return when the episodes of an explanation begin, or how many there were; "" for a single one."""
    if story.period:
        return _period_text(story.period)
    if story.episodes > 1:
        return f"{story.episodes} times"

    return ""


def _reason(*classes: str) -> str:
    """Return the reason for an action, after the classes if they are known."""
    reason = recommended(*classes).reason
    if classes == ("unknown",):
        return reason

    return f"{', '.join(classes)}: {reason}"


def _times(rows: pd.DataFrame) -> pd.Series:
    return rows["failed_at"].fillna(rows["created_at"])


def _title_and_place(title: str) -> tuple[str, list[str]]:
    """Split an error from the place in the code that it names.

    >>> _title_and_place("OutOfMemoryError: Java heap space at reports.PageBuffer.grow")
    ('OutOfMemoryError: Java heap space', ['at reports.PageBuffer.grow'])
    >>> _title_and_place("connection refused at 10")
    ('connection refused at 10', [])
    >>> _title_and_place("order <num> is late")[0]
    'order … is late'
    >>> _title_and_place("unexpected <div> in line <num>")[0]  # a tag is no value
    'unexpected <div> in line …'
    """
    title = shorten(PLACEHOLDER.sub("…", title), _LONGEST_TITLE)
    split = _AT.fullmatch(title)
    if split is None:
        return title, []

    return split[1], [f"at {split[2]}"]


def _places(names: list[str], count: int = 0, *, is_all: bool = False) -> str:
    """Return short names of workflows, at most two of them.

    >>> _places(["pay", "ship"]), _places(["pay", "ship", "mail"]), _places([])
    ('pay, ship', '3 workflows, most in pay', 'no known workflow')
    """
    count = max(count, len(names))
    if not names:
        return "no known workflow"
    if count <= 2 or is_all:  # noqa: PLR2004 - two names fit into a line
        return ", ".join(names[:2])

    return f"{counted(count, 'workflow')}, most in {names[0]}"


def _period_text(period: str) -> str:
    """Return when episodes begin. Periods are in UTC, which is named if the report is not."""
    if time_zone().key == "UTC":
        return period
    return f"{period} UTC"


def _number_text(value: float) -> str:
    """Return a rate without false precision.

    >>> _number_text(50.8), _number_text(2.31), _number_text(0.04), _number_text(0)
    ('51', '2.3', '0', '0')
    """
    if value >= 10 or value < 0.05:  # noqa: PLR2004 - one decimal is enough below
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0")


def step_text(scale: Scale) -> str:
    """Return the length of one bar, for example "6 h"."""
    return span(scale.step)
