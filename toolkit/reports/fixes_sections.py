"""Make the sections of a failure report on fixes that were checked, and on runbooks that were found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pandas as pd

from toolkit.base.arguments import wrong
from toolkit.base.python_code import fill
from toolkit.fixes.checking import STOPPED, FixCheck
from toolkit.fixes.runbooks import RunbookSuggestions
from toolkit.reports.sections import ReportCode, ReportColumn, Section, table

_MOST: Final = 20  # groups per table
_FIX_CODE: Final = "tk.check_fix(failures, {group}, {since})"
_RUNBOOK_CODE: Final = "tk.suggest_runbooks(tk.group_failures(failures), service)"


def checked_fixes(fixes: Sequence[FixCheck]) -> tuple[FixCheck, ...]:
    """Return the argument ``fixes`` of a report."""
    expected = "a list of results of check_fix"
    if isinstance(fixes, FixCheck | str) or not isinstance(fixes, Sequence):
        raise wrong("fixes", fixes, expected)

    for fix in fixes:
        if not isinstance(fix, FixCheck):
            raise wrong("fixes", fix, expected)

    return tuple(fixes)


def checked_runbooks(runbooks: RunbookSuggestions | None) -> RunbookSuggestions | None:
    """Return the argument ``runbooks`` of a report."""
    if runbooks is None or isinstance(runbooks, RunbookSuggestions):
        return runbooks
    raise wrong("runbooks", runbooks, "the result of suggest_runbooks")


def fixes_section(fixes: Sequence[FixCheck]) -> Iterator[Section]:
    """Return the section with the state of each fix, in the order given. Secrets are masked afterwards."""
    if not fixes:
        return

    stopped = sum(fix.state == STOPPED for fix in fixes)
    rows = [
        (
            fix.title, fix.reason or None, fix.state, _iso(fix.since), _iso(fix.holds_since), fix.after,
            round(fix.expected, 1),
        )
        for fix in fixes[:_MOST]
    ]  # fmt: skip
    columns = [
        "group",
        ReportColumn("why", below=True),
        "state",
        ReportColumn("fixed at", "time"),
        ReportColumn("fix holds since", "time", missing="not known"),
        "#failures since",
        "#expected",
    ]
    shown = table(
        "Groups with a fix", columns, rows, left_out=max(len(fixes) - _MOST, 0)
    )
    code = fill(_FIX_CODE, group=fixes[0].group, since=fixes[0].since.isoformat())
    sentence = f"Fixes that hold: {stopped:,} of {len(fixes):,}."
    yield Section("fixes", "Fixes", sentence, (shown, ReportCode(code)))


def runbooks_section(runbooks: RunbookSuggestions | None) -> Iterator[Section]:
    """Return the section with the best runbook of each group. Secrets are masked afterwards."""
    if runbooks is None or runbooks.frame.empty:
        return

    first = runbooks.frame.drop_duplicates("group")
    matching = first[first["matches"]]
    rows = [
        (row["title"], row["runbook_title"], _known(row["link"]), round(row["score"], 2))
        for row in matching.head(_MOST).to_dict("records")
    ]  # fmt: skip
    columns = [
        "group",
        "runbook",
        ReportColumn("address", "link", missing=""),
        ReportColumn("score", "digits"),
    ]
    parts: list[Any] = [ReportCode(fill(_RUNBOOK_CODE))]

    if rows:
        left_out = max(len(matching) - _MOST, 0)
        caption = "Groups with a runbook, the largest first"
        parts.insert(0, table(caption, columns, rows, left_out=left_out))

    yield Section("runbooks", "Runbooks", f"{runbooks!r}.", tuple(parts))


def _iso(time: pd.Timestamp | None) -> str | None:
    if time is None:
        return None
    return time.isoformat()


def _known(link: object) -> str | None:
    """Return an address, or None for a missing one."""
    if isinstance(link, str):
        return link
    return None
