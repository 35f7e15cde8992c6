"""Write the head of a failure report: one line, the sentences below it, the verdict, and four numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from toolkit.base.time_zones import span_of_times, time_text
from toolkit.drawing.wording import counted, percent, span
from toolkit.reports.board import Problem
from toolkit.reports.periods import Trend
from toolkit.reports.sections import read_time
from toolkit.reports.spoken_times import at_time, day_text
from toolkit.tables.freshness import span_text

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


def headline(
    findings: Mapping[str, Any], problems: Sequence[Problem], now: datetime
) -> str:
    """Return one line about the present state: the number of problems, and the begin of the newest."""
    state = findings["completeness"]["state"]
    prefix = age_in_words(findings["data"]).strip()
    if prefix:
        return prefix
    if state == "incomplete":
        prefix = "Incomplete: "
    sentence = _now_in_words(findings, problems, now)
    if prefix:
        sentence = sentence[0].lower() + sentence[1:]
    return f"{prefix}{sentence}"


def _now_in_words(
    findings: Mapping[str, Any], problems: Sequence[Problem], now: datetime
) -> str:
    count = findings["overview"]["count"]
    if not count:
        return "No failures."
    explained = [problem for problem in problems if problem.explanation is not None]
    ongoing = [problem for problem in explained if problem.is_ongoing]
    changed = [problem for problem in problems if problem.explanation is None]
    if ongoing:
        newest = max(ongoing, key=lambda problem: problem.since)
        begin = f"began {at_time(newest.since, now)} in {_place(newest)}"
        if len(ongoing) == 1:
            return f"1 problem is ongoing. It {begin}."
        return f"{len(ongoing)} problems are ongoing. The newest {begin}."
    if changed:
        first = changed[0]
        where = f"{at_time(first.since, now)} in {_place(first)}"
        if len(changed) == 1:
            return f"1 error is {first.state}. It began {where}."
        return f"{len(changed)} errors are new or growing. The first began {where}."
    if explained:
        last = max(explained, key=lambda problem: problem.until)
        return f"No problem is ongoing. The last ended {at_time(last.until, now)} in {_place(last)}."
    recent = findings["recent"]["failures"]
    if recent is None:
        return f"{counted(count, 'failure')}, and no problem that stands out."
    return f"No problem stands out: {counted(count, 'failure')}, {recent:,} of them in the last day."


def _place(problem: Problem) -> str:
    """Return the workflows of a problem, or only their number, so that the headline fits into a line."""
    return problem.where.partition(", most in ")[0]


def lead_sentences(
    findings: Mapping[str, Any],
    numbers: Sequence[Mapping[str, Any]],
    problems: Sequence[Problem],
) -> list[tuple[str, str]]:
    """Return the sentences below the headline, each with the section that it links to, or ""."""
    if not findings["overview"]["count"]:
        return []
    sentences = []
    lately = numbers[1]
    if lately["value"] is not None:
        number = counted(lately["value"], "failure")
        sentences.append((f"{number} {lately['name']}, {lately['note']}.", "numbers"))
    if soon := findings["expiry"]["within_24_hours"]:
        expire = "expire"
        if soon == 1:
            expire = "expires"
        sentences.append((f"{soon:,} {expire} within 24 hours.", "deadline"))
    others = [problem for problem in problems if problem.explanation is None]
    if others and len(others) < len(problems):
        errors = "errors are"
        if len(others) == 1:
            errors = "error is"
        sentences.append((f"{len(others)} more {errors} new or growing.", "changed"))
    return sentences


def about_in_words(findings: Mapping[str, Any], now: datetime) -> str:
    """Return the number of failures, the filter and the period, for the line above the headline."""
    overview = findings["overview"]
    chosen = filter_in_words(findings["completeness"].get("scope", {}))
    words = counted(overview["count"], "failure") + chosen
    if overview["workflows"]:
        words += f" in {counted(overview['workflows'], 'workflow')}"
    if not overview["first_at"]:
        return words
    first, last = (
        day_text(read_time(overview[name]), now) for name in ("first_at", "last_at")
    )
    zone = time_text(now).split(" ", 2)[-1]
    if first == last:
        return f"{words}, {first} ({zone})"
    return f"{words}, {first} to {last} ({zone})"


def verdict(findings: Mapping[str, Any], explained: str = "") -> str:
    """Return the headline: count, filter, times, worst workflow, new groups, expiry and explanation."""
    overview, state = findings["overview"], findings["completeness"]["state"]
    count = overview["count"]
    prefix = age_in_words(findings["data"])
    at_least = ""
    if state == "incomplete":
        prefix += "Incomplete: "
        at_least = "at least "
    chosen = filter_in_words(findings["completeness"].get("scope", {}))
    if not count:
        sentence = f"{prefix}no failures{chosen}{_new(findings)}."
        return sentence[0].upper() + sentence[1:]
    where = ""
    if overview["workflows"]:
        where = f" in {counted(overview['workflows'], 'workflow')}"
    parts = [
        f"{prefix}{at_least}{counted(count, 'failure')}{chosen}{where}{_window(overview)}"
    ]
    # the largest explanation already names the workflows that matter most
    if overview["workflows"] > 1 and "largest explanation" not in explained:
        share = percent(overview["worst_share"])
        parts.append(
            f"{overview['worst_count']:,} of them ({share}) in {overview['worst_workflow']}"
        )
    return f"{', '.join(parts)}{_new(findings)}{_expiring_soon(findings['expiry'])}.{explained}"


def _expiring_soon(expiry: Mapping[str, Any]) -> str:
    soon = expiry["within_24_hours"]
    if not soon:
        return ""
    if soon == 1:
        return "; 1 expires within 24 hours"
    return f"; {soon:,} expire within 24 hours"


def age_in_words(data: Mapping[str, Any]) -> str:
    """Return the begin of the headline if the data do not reach the last hours, and otherwise "".

    >>> age_in_words({"state": "old", "until": "2026-03-01T09:00:00.000+00:00", "age_hours": 312.5})
    'Out of date: the data end at 2026-03-01 09:00 UTC, 13 days before this report. '
    """
    if data["state"] not in {"old", "ahead"}:
        return ""
    until = time_text(read_time(data["until"]))
    if data["state"] == "ahead":
        return f"Out of date: the data are of {until}, after this report, so a clock is wrong. "
    age = span_text(timedelta(hours=data["age_hours"]))
    return f"Out of date: the data end at {until}, {age} before this report. "


def filter_in_words(scope: Mapping[str, Any]) -> str:
    """Return the filter of a load in the words that follow "12 failures"; "" without a filter.

    >>> filter_in_words({"kind": "workflows", "label": ["eu", "us"], "response_status": [500]})
    ' with label eu or us and status 500'
    >>> filter_in_words({"kind": "messages", "since": "2026-03-03T00:00:00.000Z"})
    ' of plain messages since 2026-03-03 00:00 UTC'
    """
    named = [
        f"{name} {_some(scope[part])}"
        for part, name in _PARTS.items()
        if scope.get(part)
    ]
    words = ""
    if scope.get("kind") == "messages":
        words = " of plain messages"
    if named:
        words += f" with {' and '.join(named)}"
    for part in ("since", "until"):
        if scope.get(part):
            words += f" {part} {time_text(read_time(scope[part]))}"
    return words


def _some(values: Any) -> str:
    """Return the first values of a filter, for example "500 or 502 or 503 or 2 more"."""
    if not isinstance(values, list):
        values = [values]
    named = [str(value) for value in values[:_MOST_VALUES]]
    if len(values) > _MOST_VALUES:
        named.append(f"{len(values) - _MOST_VALUES} more")
    return " or ".join(named)


def _window(overview: Mapping[str, Any]) -> str:
    if not overview["first_at"]:
        return ""
    times = [read_time(overview[name]) for name in ("first_at", "last_at")]
    # both times are shown to the minute, so they can look the same
    if time_text(times[0]) == time_text(times[1]):
        return f" at {time_text(times[0])}"
    first, last = span_of_times(*times)
    return f" between {first} and {last}"


def _new(findings: Mapping[str, Any]) -> str:
    comparison = findings["comparison"]
    if comparison is None:
        return ""
    new = "none"
    if comparison["new"]:
        new = f"{comparison['new']:,}"
    return f"; {new} new compared with the earlier failures"


def four_numbers(
    findings: Mapping[str, Any], trend: Trend | None
) -> list[dict[str, Any]]:
    """Return the four numbers of the head: failures, recent failures, recent workflows, and soon expiring."""
    overview, recent, comparison = (
        findings["overview"],
        findings["recent"],
        findings["comparison"],
    )
    change = None
    hours = _period_in_words(recent, findings["data"])
    note = f"{counted(overview['workflows'], 'workflow')}, {counted(overview['runs'], 'run')}"
    # if the earlier failures are a part of these, the difference in numbers is no change over time
    if comparison is not None and comparison["is_part"]:
        note = f"{comparison['new']:,} are not in the earlier failures, which are a part of these"
    elif comparison is not None:
        change = overview["count"] - comparison["previous_count"]
        note = f"{comparison['new']:,} new and {comparison['gone']:,} gone compared with the earlier failures"
    lately = {
        "name": f"in the {hours}",
        "value": recent["failures"],
        **_against(recent, "failures"),
    }
    if trend is not None and trend.usual is not None:
        lately = _against_usual(trend, lately)
    return [
        {"name": "failures", "value": overview["count"], "change": change, "note": note},
        lately,
        {"name": f"workflows, {hours}", "value": recent["workflows"], **_against(recent, "workflows")},
        {"name": "expire within 24 hours", "value": findings["expiry"]["within_24_hours"], "change": None,
         "note": _next(findings["expiry"])},
    ]  # fmt: skip


def _against_usual(trend: Trend, lately: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of failures in the period, compared with the usual number.

    The headline judges the same period. If it sees no clear change, this shows no change either.
    """
    name = lately["name"]
    if trend.compared:
        name = f"since {time_text(trend.since)}"
    note = f"usually {round(trend.usual or 0):,} in as long a time"
    if trend.clear_change is None:
        note += f": {trend.overall}"
    return {
        "name": name,
        "value": trend.recent,
        "change": trend.clear_change,
        "note": note,
    }


def _period_in_words(recent: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the period of the recent counts, with the end if the data end more than an hour ago."""
    lags = (
        data["age_hours"] is not None
        and data["age_hours"] > 1
        and data["state"] == "current"
    )
    if lags:
        return f"{recent['hours']} hours until {time_text(read_time(recent['until']))}"
    return f"last {recent['hours']} hours"


def _against(recent: Mapping[str, Any], what: str) -> dict[str, Any]:
    before = recent[f"{what}_before"]
    if recent[what] is None:
        return {"change": None, "note": "not known: the data are too old"}
    if before is None:
        return {"change": None, "note": "the earlier value is not known"}
    return {
        "change": recent[what] - before,
        "note": f"{before:,} in the {recent['hours']} hours before",
    }


def _next(expiry: Mapping[str, Any]) -> str:
    if not expiry["is_known"]:
        return f"how long failures are kept is {expiry['retention']}"
    kept = f"kept {expiry['retention']}"
    if expiry["next_hours_left"] is None:
        return kept
    return f"the next in {span(timedelta(hours=expiry['next_hours_left']))}; {kept}"
