"""The failure report, on one page: counts, time, workflows, error texts and expiry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis import count_matrix, expiry_bins, failure_calendar, failure_overview, failure_trend
from toolkit.analysis.lifetimes import times_left
from toolkit.analysis.selection import scanned, select, when_counted
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.analysis.wording import counted, percent, span, time_text
from toolkit.arguments import instance, text
from toolkit.redaction import Redactor
from toolkit.redrive.results import RedriveResult
from toolkit.reports.evidence import Evidence, gather
from toolkit.reports.explained_sections import Explained, explained_in_words
from toolkit.reports.failure_sections import ABOUT, COUNTED, Charts, redrive_of, redrive_section
from toolkit.reports.findings import Cleaner, Counts, find
from toolkit.reports.page import Report
from toolkit.reports.sections import Notice, read_time
from toolkit.times import parse_duration

_SCHEMA: Final = "failure-report/4"
_GROUPS: Final = 5  # workflows in the trend
_ROWS: Final = 8  # workflows and statuses in the matrix
_COLUMNS: Final = 6
_NEW: Final = 200  # ids of groups
_ORDER: Final = (
    "why", "when", "expiry", "deadline", "impact", "worst", "changed", "groups", "classes", "seen",
    "outcomes", "redrive", "actions", "where", "texts", "hours", "callbacks", "functions", "labels", "new",
    "postmortem", "scope", "code",
)  # fmt: skip
"""The names of all sections, in the order of the page."""


class FailureReport(Report):
    """A report on failures; made by `failure_report`.

    Notebooks show it as a part of their page. It holds no frame: only numbers, and texts with their secrets
    masked. ``docs/failure-report.schema.json`` describes its JSON.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import load_failures
    >>> report = failure_report(load_failures(service, limit=3, progress=False))
    >>> report.verdict[:30]
    'Incomplete: at least 3 failure'
    >>> with TemporaryDirectory() as folder:
    ...     report.save(f"{folder}/failures.md").name
    'failures.md'
    """


def failure_report(
    failures: AnyFrame,
    previous: AnyFrame | None = None,
    *,
    retention: str | timedelta = "7d",
    now: datetime | None = None,
    title: str | None = None,
    redactor: Redactor | None = None,
    redrive: RedriveResult | str | os.PathLike[str] | None = None,
) -> FailureReport:
    """Report on failures: how many, how complete, when, where, in which words, what expires and what is new.

    The same frames, options and `now` produce the same bytes.

    Parameters
    ----------
    failures : pandas.DataFrame
        The failures table, as loaders return it; its receipt says whether it is complete.
    previous : pandas.DataFrame, optional
        An earlier one, to compare with.
    retention : str or timedelta
        How long the queue keeps an entry ("3d", "7d", … by plan); entries expire that long after `failed_at`.
    now : datetime, optional
        What "within 24 hours" counts from; without a time zone, UTC. Default: the clock.
    title : str, optional
    redactor : Redactor, optional
        Masks secrets in everything shown. Default: one with the user's key, which has no live tokens;
        loaders have masked those in the frames.
    redrive : RedriveResult or path, optional
        What `run_redrive` returned, or its ledger, of which the latest plan is shown: what succeeded, what
        came back and with which signature, what was left and why.

    Returns
    -------
    FailureReport

    Raises
    ------
    InputError
        When a column is missing, or an option cannot be read.

    Examples
    --------
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import FAILURES
    >>> report = failure_report(frame_from_rows([], FAILURES), redactor=Redactor(key=b"example"))
    >>> report.verdict
    'No failures.'
    """
    now = when_counted(now)
    length = parse_duration(retention, name="retention")
    redactor = Redactor() if redactor is None else instance("redactor", redactor, Redactor, "a Redactor")
    if title is not None:
        text("title", title)
    redriven = redrive_of(redrive)
    failures = scanned(failures, doing="making a report")
    if previous is not None:
        previous = scanned(previous, doing="comparing failures", name="previous")
    masked = _masked(failures, redactor)
    expiries = times_left(failures, length, now)
    kept = retention if isinstance(retention, str) else span(retention).replace(" ", "")
    overview = failure_overview(failures)
    evidence = gather(failures, previous, total=overview.count, retention=length, now=now)
    begins = {} if evidence is None else evidence.begins
    charts = Charts(
        trend=failure_trend(masked, by="workflow_url", top=_GROUPS, now=now, markers=begins),
        expiry=expiry_bins(expiries, now),
        matrix=count_matrix(masked, "workflow_url", "response_status", top_rows=_ROWS, top_columns=_COLUMNS),
        calendar=failure_calendar(masked),
        markers=begins,
    )
    clean = Cleaner(redactor)
    counts = Counts(
        failures=failures,
        previous=previous,
        overview=overview,
        retention=length,
        kept=kept,
        now=now,
        clean=clean,
    )
    findings = find(counts)
    sections = [section for part in (COUNTED if overview.count else ()) for section in part(counts, charts)]
    sections += [section for part in ABOUT for section in part(findings, charts)]
    explained = [] if redriven is None else [redrive_section(redriven, redactor)]
    if evidence is not None:
        explained += Explained(evidence, now=now, retention=length, kept=kept).sections()
    sections += [section.masked(clean.value, redactor.code) for section in explained]
    sentence = verdict(findings, explained_in_words(evidence))
    facts, comparison = findings["completeness"], findings["comparison"] or {}
    notices = [Notice(text=facts["sentence"], good=facts["state"] == "complete")]
    notices += [Notice(text=comparison["caution"])] if comparison.get("caution") else []
    return FailureReport(
        schema=_SCHEMA,
        title=str(clean.text("Failure report" if title is None else title)),
        verdict=redactor.text(sentence),
        made_at=clean.value(now),
        notices=tuple(notices),
        numbers=tuple(four_numbers(findings)),
        sections=tuple(sorted(sections, key=lambda section: _ORDER.index(section.name))),
        values=findings | {"change": _change(evidence, clean)},
    )


def _change(evidence: Evidence | None, clean: Cleaner) -> dict[str, Any]:
    """What is new, and whether it is worse, as JSON-able values; null where nothing earlier is known."""
    if evidence is None:
        return {"since": None, "failures": 0, "expected": None, "worse": None, "new_groups": None,
                "grown_groups": [], "titles": {}}  # fmt: skip
    trend = evidence.trend
    new = None if trend.new is None else trend.new[:_NEW]
    titles = evidence.groups.set_index("group")["title"]
    return {
        "since": clean.value(trend.since),
        "failures": trend.recent,
        "expected": clean.value(trend.usual),
        "worse": trend.worse,
        "new_groups": new,
        "grown_groups": trend.grown,
        "titles": {group: clean.text(titles.get(group, group)) for group in [*(new or ()), *trend.grown]},
    }


def _masked(failures: AnyFrame, redactor: Redactor) -> SelectedRows:
    """The columns that the figures need, secrets masked: names of groups are drawn."""
    columns = ["failed_at", "created_at", "workflow_url", "response_status"]
    rows = select(failures, columns, doing="making a report")
    urls = rows.choose(["workflow_url"]).count("workflow_url")["workflow_url"].drop_null()
    masked = pa.array(map(redactor.text, urls.to_pylist()), pa.string())
    return rows.then(partial(_with_urls, urls.combine_chunks(), masked))


def _with_urls(urls: pa.Array, masked: pa.Array, table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index("workflow_url")
    if position < 0:
        return table
    return table.set_column(position, "workflow_url", masked.take(pc.index_in(table["workflow_url"], urls)))


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


def verdict(findings: Mapping[str, Any], explained: str = "") -> str:
    """How many failures, of which filter, when, where most, what is new, what expires; what explains it."""
    overview, state = findings["overview"], findings["completeness"]["state"]
    count = overview["count"]
    prefix = {"complete": "", "incomplete": "Incomplete: ", "unknown": ""}[state]
    chosen = filter_in_words(findings["completeness"].get("scope", {}))
    if not count:
        return f"{prefix}{'no' if prefix else 'No'} failures{chosen}{_new(findings)}."
    at_least = "at least " if state == "incomplete" else ""
    where = f" in {counted(overview['workflows'], 'workflow')}" if overview["workflows"] else ""
    parts = [f"{prefix}{at_least}{counted(count, 'failure')}{chosen}{where}{_window(overview)}"]
    if overview["workflows"] > 1 and "largest explanation" not in explained:
        share = percent(overview["worst_share"])
        parts.append(f"{overview['worst_count']:,} of them ({share}) in {overview['worst_workflow']}")
    new = _new(findings)
    soon = findings["expiry"]["within_24_hours"]
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


def _window(overview: Mapping[str, Any]) -> str:
    if not overview["first_at"]:
        return ""
    first, last = (
        time_text(read_time(overview["first_at"])),
        time_text(read_time(overview["last_at"])),
    )
    return f" at {first}" if first == last else f" between {first.removesuffix(' UTC')} and {last}"


def _new(findings: Mapping[str, Any]) -> str:
    comparison = findings["comparison"]
    if comparison is None:
        return ""
    new = f"{comparison['new']:,}" if comparison["new"] else "none"
    return f"; {new} new compared with the earlier failures"


def four_numbers(findings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How many, how many lately, in how many workflows, and how many are about to be lost."""
    overview, recent, comparison = findings["overview"], findings["recent"], findings["comparison"]
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
        {"name": "expire within 24 hours", "value": findings["expiry"]["within_24_hours"], "change": None,
         "note": _next(findings["expiry"])},
    ]  # fmt: skip


def _against(recent: Mapping[str, Any], what: str) -> dict[str, Any]:
    before = recent[f"{what}_before"]
    if before is None:
        return {"change": None, "note": "the earlier value is not known"}
    return {"change": recent[what] - before, "note": f"{before:,} in the {recent['hours']} hours before"}


def _next(expiry: Mapping[str, Any]) -> str:
    kept = f"kept {expiry['retention']}"
    if expiry["next_hours_left"] is None:
        return kept
    return f"the next in {span(timedelta(hours=expiry['next_hours_left']))}; {kept}"
