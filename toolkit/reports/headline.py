"""The headline of a report: its verdict in one sentence, and four numbers with their changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from toolkit.analysis.wording import counted, percent, span, time_text
from toolkit.reports.sections import read_time

_PARTS: Final = {
    "workflow_url": "workflow",
    "label": "label",
    "failure_function_state": "failure function state",
    "caller_ip": "caller IP",
    "flow_control_key": "flow control key",
    "response_status": "status",
    "error": "error text",
    "workflow_run_id": "run",
    "workflow_created_at": "run created at",
}
_MOST_VALUES: Final = 3


def verdict(found: Mapping[str, Any], explained: str = "") -> str:
    """How many failures, of which filter, when, where most, what is new, what expires; what explains it."""
    overview, state = found["overview"], found["completeness"]["state"]
    count = overview["count"]
    prefix = {"complete": "", "incomplete": "Incomplete: ", "unknown": ""}[state]
    chosen = filter_in_words(found["completeness"].get("scope", {}))
    if not count:
        return f"{prefix}{'no' if prefix else 'No'} failures{chosen}{_new(found)}."
    at_least = "at least " if state == "incomplete" else ""
    where = f" in {counted(overview['workflows'], 'workflow')}" if overview["workflows"] else ""
    parts = [f"{prefix}{at_least}{counted(count, 'failure')}{chosen}{where}{_window(overview)}"]
    if overview["workflows"] > 1 and "largest explanation" not in explained:
        share = percent(overview["worst_share"])
        parts.append(f"{overview['worst_count']:,} of them ({share}) in {overview['worst_workflow']}")
    new = _new(found)
    soon = expiring_soon(found)
    expiry = f"; {soon:,} {'expires' if soon == 1 else 'expire'} within 24 hours" if soon else ""
    return f"{', '.join(parts)}{new}{expiry}.{explained}"


def filter_in_words(scope: Mapping[str, Any]) -> str:
    """The filter of a load, as it follows "12 failures"; empty where everything was requested.

    >>> filter_in_words({"kind": "workflows", "label": ["eu", "us"], "response_status": [500]})
    ' with label eu or us and status 500'
    >>> filter_in_words({"kind": "messages", "since": "2026-03-03T00:00:00.000Z"})
    ' of plain messages since 2026-03-03 00:00 UTC'
    """
    named = [f"{name} {_some(scope[part])}" for part, name in _PARTS.items() if scope.get(part)]
    times = [f" {part} {time_text(read_time(scope[part]))}" for part in ("since", "until") if scope.get(part)]
    kind = " of plain messages" if scope.get("kind") == "messages" else ""
    return f"{kind}{' with ' if named else ''}{' and '.join(named)}{''.join(times)}"


def _some(values: Any) -> str:
    """The first values of a part of a filter."""
    texts = [str(value) for value in values] if isinstance(values, list) else [str(values)]
    more = f" or {len(texts) - _MOST_VALUES} more" if len(texts) > _MOST_VALUES else ""
    return " or ".join(texts[:_MOST_VALUES]) + more


def expiring_soon(found: Mapping[str, Any]) -> int:
    """How many failures expire within the next 24 hours."""
    return sum(
        row["count"]
        for row in found["expiry"]["summary"]
        if row["when"] in {"within 6 hours", "within 24 hours"}
    )


def _window(overview: Mapping[str, Any]) -> str:
    if not overview["first_at"]:
        return ""
    first, last = (
        time_text(read_time(overview["first_at"])),
        time_text(read_time(overview["last_at"])),
    )
    return f" at {first}" if first == last else f" between {first.removesuffix(' UTC')} and {last}"


def _new(found: Mapping[str, Any]) -> str:
    comparison = found["comparison"]
    if comparison is None:
        return ""
    new = f"{comparison['new']:,}" if comparison["new"] else "none"
    return f"; {new} new compared with the earlier failures"


def four_numbers(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How many, how many lately, in how many workflows, and how many are about to be lost.

    Each has a `name`, a `value`, the `change` against what the `note` names (or None), and that note.
    """
    overview, recent, comparison = found["overview"], found["recent"], found["comparison"]
    hours = f"last {recent['hours']} hours"
    if comparison is None:
        total = {
            "change": None,
            "note": f"{counted(overview['workflows'], 'workflow')}, {counted(overview['runs'], 'run')}",
        }
    else:
        counts = f"{comparison['new']:,} new and {comparison['gone']:,} gone"
        total = {
            "change": overview["count"] - comparison["previous_count"],
            "note": f"{counts} compared with the earlier failures",
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
    change = number["change"]
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
        return {"change": None, "note": "the earlier value is not known"}
    return {"change": recent[what] - before, "note": f"{before:,} in the {recent['hours']} hours before"}


def _next(expiry: Mapping[str, Any]) -> str:
    kept = f"kept {expiry['retention']}"
    if not expiry["next"]:
        return kept
    return f"the next in {span(timedelta(hours=expiry['next'][0]['hours_left']))}; {kept}"
