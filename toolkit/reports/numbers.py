"""The four numbers under a report's verdict, each with its change where that is known."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from toolkit.analysis.wording import counted, percent, span
from toolkit.reports.verdict import expiring_soon


def four_numbers(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How many, how many lately, in how many workflows, and how many are about to be lost.

    Parameters
    ----------
    found : mapping
        The findings, see `toolkit.reports.findings`.

    Returns
    -------
    list of dict
        Each with ``name`` (str), ``value`` (int), ``change`` (int or None: against what ``note`` names) and
        ``note`` (str).
    """
    overview, recent, comparison = found["overview"], found["recent"], found["comparison"]
    hours = f"last {recent['hours']} hours"
    if comparison is None:
        total = {
            "change": None,
            "note": f"{counted(overview['workflows'], 'workflow')}, {counted(overview['runs'], 'run')}",
        }
    else:
        total = {
            "change": overview["count"] - comparison["previous_count"],
            "note": f"{comparison['new']:,} new and {comparison['gone']:,} gone since the previous load",
        }
    return [
        {"name": "failures", "value": overview["count"], **total},
        {"name": f"in the {hours}", "value": recent["failures"], **_against(recent, "failures")},
        {"name": f"workflows, {hours}", "value": recent["workflows"],
         **_against(recent, "workflows")},
        {"name": "expire within 24 hours", "value": expiring_soon(found), "change": None,
         "note": _next(found["expiry"])},
    ]  # fmt: skip


def change_in_words(number: Mapping[str, Any]) -> str | None:
    """The change as a sign, a number and a share, read the same by eye and by ear.

    >>> change_in_words({"value": 120, "change": 30})
    '▲ up 30 (33 %)'
    >>> change_in_words({"value": 5, "change": 0})
    '= unchanged'
    """
    change, before = number["change"], None
    if change is None:
        return None
    if change == 0:
        return "= unchanged"
    before = number["value"] - change
    share = f" ({percent(abs(change) / before)})" if before > 0 else ""
    return f"{'▲ up' if change > 0 else '▼ down'} {abs(change):,}{share}"


def _against(recent: Mapping[str, Any], what: str) -> dict[str, Any]:
    before = recent[f"{what}_before"]
    if before is None:
        return {"change": None, "note": "what was before is not known"}
    return {"change": recent[what] - before, "note": f"{before:,} in the {recent['hours']} hours before"}


def _next(expiry: Mapping[str, Any]) -> str:
    kept = f"kept {expiry['retention']}"
    if not expiry["next"]:
        return kept
    return f"the next in {span(timedelta(hours=expiry['next'][0]['hours_left']))}; {kept}"
