"""Define the rows of the first screen of a failure report: problems, with their state and one action."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from toolkit.failures.group_states import State


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of the first screen. Secrets in strings are masked.

    Attributes
    ----------
    state : str
        One of `toolkit.failures.group_states.STATES`.
    title, where, detail : str
        The error, the workflows by their short names, and the place in the code or a value in common.
    since, until : datetime
        Times of the first and the last failure; of a problem that is back again, of the last episode.
    since_text, since_note : str
        The same for readers, in the time zone of the report, for example "20:28 today" and "3 h ago".
    failures : int
        Number of failures.
    about : str
        "about " if `failures` is estimated from a sample, otherwise empty.
    rate_text : str
        The rate, compared with the usual rate, for example "50 per hour, usually 0"; of a problem that
        has ended, the failures since then, if any.
    bars : tuple of int
        Number of failures per bar of the trend. All problems of a report have the same bars.
    hot_from : int
        Number of the first bar of the problem. Earlier bars are drawn in grey.
    failure_class : str
        As in `classify_failures`; if the errors have several classes, all of them, separated by commas.
    action, reason : str
        The next action, and the reason for it.
    link : str
        Name of the section, or of the part of a section, with the code of the action.
    explanation : int or None
        Number of the explanation; None for a group of failures that no explanation contains.
    """

    state: State
    title: str
    where: str
    detail: str
    since: datetime
    until: datetime
    since_text: str
    since_note: str
    failures: int
    about: str
    rate_text: str
    bars: tuple[int, ...]
    hot_from: int
    failure_class: str
    action: str
    reason: str
    link: str
    explanation: int | None

    @property
    def is_ongoing(self) -> bool:
        """Return whether the problem continues."""
        return self.state != "ended"

    def to_dict(self) -> dict[str, Any]:
        """Return the facts of the problem as JSON-able values, without strings for readers only."""
        values = asdict(self)
        for name in (
            "since_text",
            "since_note",
            "about",
            "rate_text",
            "hot_from",
            "link",
        ):
            del values[name]
        for name in ("since", "until"):
            values[name] = values[name].isoformat(timespec="milliseconds")
        return values | {"bars": list(self.bars)}


@dataclass(frozen=True, kw_only=True)
class ReportBoard:
    """A list of problems below a caption. Pages draw a trend in each row.

    Attributes
    ----------
    caption : str
        Heading of the list.
    problems : tuple of Problem
        The rows, in order.
    period : str
        Length of the trend in words, for example "14 days".
    bar : str
        Length of one bar in words, for example "6 h".
    more : str
        A sentence about rows that are left out; empty if none are.
    """

    caption: str
    problems: tuple[Problem, ...]
    period: str
    bar: str
    more: str = ""
    is_quiet: bool = False  # ended problems have smaller rows
