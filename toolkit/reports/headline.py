"""Write the head of a failure report: one line, the sentences below it, the verdict, and four numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from toolkit.base.time_zones import span_of_times, time_text
from toolkit.drawing.wording import counted, percent, span
from toolkit.reports.board import Problem
from toolkit.reports.explanation_words import ongoing_explanations
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
    out_of_date = age_in_words(findings["data"]).strip()
    if out_of_date:
        return out_of_date

    sentence = _now_in_words(findings, problems, now)
    if findings["completeness"]["state"] == "incomplete":
        return f"Incomplete: {sentence[0].lower()}{sentence[1:]}"

    return sentence


def _now_in_words(
    findings: Mapping[str, Any], problems: Sequence[Problem], now: datetime
) -> str:
    """Return a sentence about the most important kind of problems: ongoing, then changed, then ended."""
    count = findings["overview"]["count"]
    if not count:
        return "No failures."

    explained = [problem for problem in problems if problem.explanation is not None]
    changed = [problem for problem in problems if problem.explanation is None]
    ongoing = ongoing_explanations(problems)
    if ongoing:
        return _ongoing_in_words(ongoing, now)
    if changed:
        return _changed_in_words(changed, now)

    if explained:
        last = max(explained, key=lambda problem: problem.until)
        ended = f"{at_time(last.until, now)} in {_place(last)}"
        return f"No problem is ongoing. The last ended {ended}."

    failures = counted(count, "failure")
    recent = findings["recent"]["failures"]
    if recent is None:
        return f"{failures}, and no problem that stands out."
    if findings["recent"]["failures_before"] is None:
        lately = f"{failures}, {recent:,} of them in the last day."
        return f"{lately} Earlier failures are not known, so nothing could be compared."

    return f"No problem stands out: {failures}, {recent:,} of them in the last day."


def _ongoing_in_words(ongoing: Sequence[Problem], now: datetime) -> str:
    newest = ongoing[0]
    begin = f"began {at_time(newest.since, now)} in {_place(newest)}"
    if len(ongoing) == 1:
        return f"1 problem is ongoing. It {begin}."

    return f"{len(ongoing)} problems are ongoing. The newest {begin}."


def _changed_in_words(changed: Sequence[Problem], now: datetime) -> str:
    first = changed[0]
    begin = f"began {at_time(first.since, now)} in {_place(first)}"
    if first.state == "steady":
        # the data may begin later than the error
        return f"1 error continues at its usual rate. It {begin} or earlier."
    if len(changed) == 1:
        return f"1 error is {first.state}. It {begin}."

    return f"{len(changed)} errors are new or growing. The first {begin}."


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

    sentences = [
        (_lately_in_words(numbers[1]), "numbers"),
        (_expiring_soon(findings["expiry"]), "deadline"),
        (_more_changed_in_words(problems), "changed"),
    ]
    return [(f"{words}.", section) for words, section in sentences if words]


def _lately_in_words(lately: Mapping[str, Any]) -> str:
    if lately["value"] is None:
        return ""

    number = counted(lately["value"], "failure")
    return f"{number} {lately['name']}, {lately['note']}"


def _more_changed_in_words(problems: Sequence[Problem]) -> str:
    """Return the number of changed groups; "" if the headline is about them, or if there are none."""
    changed = [problem for problem in problems if problem.explanation is None]
    if len(changed) in (0, len(problems)):
        return ""
    if len(changed) == 1:
        return "1 more error is new or growing"

    return f"{len(changed)} more errors are new or growing"


def about_in_words(findings: Mapping[str, Any], now: datetime) -> str:
    """Return the number of failures, the filter and the period, for the line above the headline."""
    overview = findings["overview"]
    chosen = filter_in_words(findings["completeness"].get("scope", {}))
    words = f"{counted(overview['count'], 'failure')}{chosen}{_workflows(overview)}"
    if not overview["first_at"]:
        return words

    first = day_text(read_time(overview["first_at"]), now)
    last = day_text(read_time(overview["last_at"]), now)
    zone = time_text(now).split(" ", 2)[-1]
    if first == last:
        return f"{words}, {first} ({zone})"

    return f"{words}, {first} to {last} ({zone})"


def _workflows(overview: Mapping[str, Any]) -> str:
    if not overview["workflows"]:
        return ""
    return f" in {counted(overview['workflows'], 'workflow')}"


def verdict(findings: Mapping[str, Any], explained: str = "") -> str:
    """Return the headline: count, filter, times, worst workflow, new groups, expiry and explanation."""
    overview = findings["overview"]
    prefix, at_least = age_in_words(findings["data"]), ""
    if findings["completeness"]["state"] == "incomplete":
        prefix += "Incomplete: "
        at_least = "at least "

    chosen = filter_in_words(findings["completeness"].get("scope", {}))
    new = _new(findings)
    if not overview["count"]:
        sentence = f"{prefix}no failures{chosen}{new}."
        return sentence[0].upper() + sentence[1:]

    failures = f"{at_least}{counted(overview['count'], 'failure')}{chosen}"
    counts = f"{failures}{_workflows(overview)}{_window(overview)}"
    # the largest explanation already names the workflows that matter most
    if overview["workflows"] > 1 and "largest explanation" not in explained:
        share = percent(overview["worst_share"])
        worst = f"{overview['worst_count']:,} of them ({share})"
        counts += f", {worst} in {overview['worst_workflow']}"

    expiring = _expiring_soon(findings["expiry"])
    if expiring:
        expiring = f"; {expiring}"
    return f"{prefix}{counts}{new}{expiring}.{explained}"


def _expiring_soon(expiry: Mapping[str, Any]) -> str:
    soon = expiry["within_24_hours"]
    if not soon:
        return ""
    if soon == 1:
        return "1 expires within 24 hours"

    return f"{soon:,} expire within 24 hours"


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
    words = ""
    if scope.get("kind") == "messages":
        words = " of plain messages"
    named = [
        f"{name} {_some(scope[part])}"
        for part, name in _PARTS.items()
        if scope.get(part)
    ]
    if named:
        words += f" with {' and '.join(named)}"
    for limit in filter(scope.get, ("since", "until")):
        time = read_time(scope[limit])
        words += f" {limit} {time_text(time)}"

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

    first_at = read_time(overview["first_at"])
    last_at = read_time(overview["last_at"])
    # both times are shown to the minute, so they can look the same
    if time_text(first_at) == time_text(last_at):
        return f" at {time_text(first_at)}"

    first, last = span_of_times(first_at, last_at)
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
    recent, expiry = findings["recent"], findings["expiry"]
    hours = _period_in_words(recent, findings["data"])
    lately = {
        "name": f"in the {hours}",
        "value": recent["failures"],
        **_against(recent, "failures"),
    }
    if trend is not None and trend.usual is not None:
        lately = _against_usual(trend, lately)
    workflows = {
        "name": f"workflows, {hours}",
        "value": recent["workflows"],
        **_against(recent, "workflows"),
    }
    expiring = {
        "name": "expire within 24 hours",
        "value": expiry["within_24_hours"],
        "change": None,
        "note": _next(expiry),
    }

    return [_all_failures(findings), lately, workflows, expiring]


def _all_failures(findings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of failures, compared with earlier failures if the report has any."""
    overview, comparison = findings["overview"], findings["comparison"]
    change = None
    if comparison is None:
        workflows = counted(overview["workflows"], "workflow")
        note = f"{workflows}, {counted(overview['runs'], 'run')}"
    elif comparison["is_part"]:
        # the difference in numbers is no change over time
        new = f"{comparison['new']:,} are not in the earlier failures"
        note = f"{new}, which are a part of these"
    else:
        change = overview["count"] - comparison["previous_count"]
        new_and_gone = f"{comparison['new']:,} new and {comparison['gone']:,} gone"
        note = f"{new_and_gone} compared with the earlier failures"

    return {
        "name": "failures",
        "value": overview["count"],
        "change": change,
        "note": note,
    }


def _against_usual(trend: Trend, lately: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of failures in the period, compared with the usual number.

    The headline judges the same period. If it sees no clear change, this shows no change either.
    """
    name = lately["name"]
    if trend.compared:
        name = f"since {time_text(trend.since)}"
    # a mean, which a large incident of the period raises: "usually" would mislead
    note = f"{round(trend.usual or 0):,} on average in as long a time"
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
    age_hours = data["age_hours"]
    is_late = age_hours is not None and age_hours > 1
    if is_late and data["state"] == "current":
        until = time_text(read_time(recent["until"]))
        return f"{recent['hours']} hours until {until}"

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
