"""Keep the facts that a board shows about groups: rows, trend, matching failures, and the group in view."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from toolkit.base.times import milliseconds
from toolkit.failures.grouping import FailureGroups
from toolkit.secrets.redaction import Redactor
from toolkit.widgets.failure_grouping import trend_state
from toolkit.widgets.failure_rows import FailureRows, FailureView
from toolkit.widgets.group_facts import GroupFacts


class GroupBoard:
    """The states of a board. Before the groups are read, there are no facts about them."""

    def __init__(self, rows: FailureRows, redactor: Redactor) -> None:
        self._rows, self._redactor = rows, redactor
        self.facts: GroupFacts | None = None
        self._facts_of: FailureGroups | None = None
        self._described: tuple[GroupFacts, str] | None = None

    def groups(self, end: datetime) -> list[dict[str, Any]]:
        """Return the rows of the board. If the groups have changed, their facts are computed again."""
        grouping = self._rows.grouping
        groups = grouping.groups
        facts = self.facts
        if facts is None or self._facts_of is not groups:
            facts = GroupFacts(self._rows, self._redactor, end, self._rows.zone)
            self.facts, self._facts_of = facts, groups

        return facts.board()

    def trend(self, view: FailureView) -> dict[str, Any]:
        """Return the trend of the chosen groups, and the chosen range of times."""
        state: dict[str, Any] = {"selection": _range(view)}
        if self.facts is not None:
            series = self.facts.series(view.groups)
            state |= trend_state(self._rows.grouping.trend, self._rows.zone, series)

        return state

    def hits(self, view: FailureView) -> dict[str, int] | None:
        """Return the number of failures per group that the search and the times find, or None for all."""
        facts = self.facts
        limits = [view.search, view.since, view.until]
        if facts is None or not any(limits):
            return None

        in_all_groups = view.replace(groups=())
        matching_rows = self._rows.arranged(in_all_groups)
        return facts.hits(matching_rows)

    def about(self, row: int | None, known: dict[str, Any]) -> dict[str, Any]:
        """Return the facts of the group of a row; `known` are the facts that the page shows."""
        facts = self.facts
        if facts is None or row is None:
            return {}

        group = facts.group_of(row)
        # shared values are compared once per group, not for each failure that is looked at
        if known and self._described == (facts, group):
            return known

        self._described = (facts, group)
        return facts.about(group)


def _range(view: FailureView) -> list[int | None]:
    """Return the ends of the chosen range in milliseconds, or an empty list for all times."""
    since, until = _milliseconds(view.since), _milliseconds(view.until)
    # `until` excludes its own time, and the range of the brush includes both ends. They differ by 1 ms.
    if until is not None:
        until -= 1
    ends = [since, until]
    if ends == [None, None]:
        return []

    return ends


def _milliseconds(time: datetime | None) -> int | None:
    if time is None:
        return None
    return milliseconds(time)
