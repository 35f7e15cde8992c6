"""The one sentence that a report begins with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toolkit.analysis.wording import counted, moment, percent


def verdict(found: Mapping[str, Any]) -> str:
    """One sentence: how many failures, when, where most, what is new, what expires.

    Parameters
    ----------
    found : mapping
        The findings, see `toolkit.reports.findings`.

    Returns
    -------
    str
        Texts in it are masked like the findings, and not escaped.
    """
    overview, state = found["overview"], found["completeness"]["state"]
    count = overview["count"]
    prefix = {"complete": "", "incomplete": "Incomplete: ", "unknown": ""}[state]
    if not count:
        return f"{prefix}{'no' if prefix else 'No'} failures{_new(found)}."
    at_least = "at least " if state == "incomplete" else ""
    where = f" in {counted(overview['workflows'], 'workflow')}" if overview["workflows"] else ""
    parts = [f"{prefix}{at_least}{counted(count, 'failure')}{where}{_window(overview)}"]
    if overview["workflows"] > 1:
        share = percent(overview["worst_share"])
        parts.append(f"{overview['worst_count']:,} of them ({share}) in {overview['worst_workflow']}")
    new = _new(found)
    soon = expiring_soon(found)
    expiry = f"; {soon:,} {'expires' if soon == 1 else 'expire'} within 24 hours" if soon else ""
    return f"{', '.join(parts)}{new}{expiry}."


def expiring_soon(found: Mapping[str, Any]) -> int:
    """How many failures expire within the next 24 hours."""
    return sum(
        row["count"]
        for row in found["expiry"]["summary"]
        if row["when"] in {"within 6 hours", "within 24 hours"}
    )


def read_time(text: str) -> datetime:
    """A time of the findings."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _window(overview: Mapping[str, Any]) -> str:
    if not overview["first_at"]:
        return ""
    first, last = moment(read_time(overview["first_at"])), moment(read_time(overview["last_at"]))
    return f" at {first}" if first == last else f" between {first.removesuffix(' UTC')} and {last}"


def _new(found: Mapping[str, Any]) -> str:
    comparison = found["comparison"]
    if comparison is None:
        return ""
    return (
        f"; {comparison['new']:,} new since the previous load"
        if comparison["new"]
        else "; none new since the previous load"
    )
