"""Make the failure report: run the analyses, write the sections, and put them in order.

`ReportCounts` (in `findings.py`) computes each number once, when a section first needs it. `Explained` makes
the sections that explain failures. To add a section, write a function, add it to the list of its kind
(`COUNTED`, `ABOUT` or `Explained.sections`), and add the name to `_SHOWN` or `_FOLDED`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from itertools import chain
from typing import Any, ClassVar, Final

from toolkit.base.arguments import instance, text
from toolkit.base.progress import ProgressSteps, StepOption, checked_progress, rows_of
from toolkit.base.time_zones import shown_in, time_text, time_zone
from toolkit.base.times import parse_time
from toolkit.drawing.wording import counted, span
from toolkit.failures.retention import retention_of, with_gaps
from toolkit.failures.selection import freshness_of
from toolkit.failures.sources import AnyFrame
from toolkit.fixes.checking import FixCheck
from toolkit.fixes.runbooks import RunbookSuggestions
from toolkit.redrive.results import RedriveResult
from toolkit.reports.board import Problem
from toolkit.reports.counted_sections import ABOUT, COUNTED, masked_columns
from toolkit.reports.explained_sections import Explained
from toolkit.reports.explanation_words import explained_in_words
from toolkit.reports.findings import Cleaner, ReportCounts, without_repeated
from toolkit.reports.fixes_sections import (
    checked_fixes,
    checked_runbooks,
    fixes_section,
    runbooks_section,
)
from toolkit.reports.group_changes import counts_by_change
from toolkit.reports.headline import (
    about_in_words,
    four_numbers,
    headline,
    lead_sentences,
    verdict,
)
from toolkit.reports.now_section import now_section, numbers_section
from toolkit.reports.page import Report
from toolkit.reports.periods import DAY
from toolkit.reports.problems import problems_of, scale_of
from toolkit.reports.redrive_section import redrive_of, redrive_section
from toolkit.reports.report_reading import read_for_report
from toolkit.reports.sections import Notice, Section
from toolkit.secrets.redaction import Redactor
from toolkit.tables.freshness import Clock, Freshness, stated_retention

_SCHEMA: Final = "failure-report/7"
_METHOD: Final = (
    "How failures are grouped and explained: docs/groups-and-explanations.md."
)
STEPS: Final = 6
"""Number of steps that a progress bar shows."""

_NEW_GROUPS: Final = 200  # ids of new groups that the JSON lists at most
_SHOWN: Final = (
    "now", "redrive", "fixes", "runbooks", "groups", "changed", "new", "deadline", "impact",
)  # fmt: skip
"""The names of the sections that pages show, in order."""

_FOLDED: Final = (
    "numbers", "actions", "why", "when", "expiry", "worst", "classes", "seen", "outcomes", "where", "hours",
    "callbacks", "functions", "labels", "postmortem", "scope", "code",
)  # fmt: skip
"""The names of the sections that pages fold, in order."""

_ORDER: Final = _SHOWN + _FOLDED


class FailureReport(Report):
    """A report on failures; made by `report_failures`.

    Notebooks show it inline. It contains only numbers and masked strings, no frames, so you can share it.
    ``docs/failure-report.schema.json`` describes the JSON form.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import load_failures
    >>> report = report_failures(load_failures(service, limit=3, progress=False))
    >>> report.verdict[:30]
    'Incomplete: at least 3 failure'
    >>> with TemporaryDirectory() as folder:
    ...     report.save(f"{folder}/failures.md").name
    'failures.md'
    """

    method: ClassVar[str] = _METHOD
    command: ClassVar[str] = "toolkit report --output failure-report.html"


def report_failures(
    failures: AnyFrame,
    previous: AnyFrame | None = None,
    *,
    retention: str | timedelta | None = None,
    now: Clock = None,
    max_age: str | timedelta | None = None,
    new_since: datetime | None = None,
    title: str | None = None,
    redactor: Redactor | None = None,
    redrive: RedriveResult | str | os.PathLike[str] | None = None,
    fixes: Sequence[FixCheck] = (),
    runbooks: RunbookSuggestions | None = None,
    tz: str | tzinfo | None = None,
    progress: StepOption = None,
) -> FailureReport:
    """Report on failures: counts, likely explanations, changes, expiry, and how complete the data are.

    The same frames, options and `now` produce the same bytes.

    Parameters
    ----------
    failures : pandas.DataFrame
        The failures table, as loaders return it. The receipt in it records whether the load was complete.
        It needs the columns `dlq_id`, `workflow_url`, `workflow_run_id`, `response_status`, `failed_at` and
        `created_at`. Groups, changes and explanations also need `response_body` and `response_body_base64`.
        What the report tells about other columns is left out if they are missing.
    previous : pandas.DataFrame, optional
        An earlier failures table, to compare with.
    retention : str or timedelta, optional
        How long the queue keeps an entry ("3d", "7d", … by plan); entries expire that long after `failed_at`.
        If omitted, the retention that was passed to `sync_failures` is used, then the environment variable
        ``TOOLKIT_RETENTION``, then seven days. If the queue contains an older entry, the report calls the
        retention unknown and announces no expiry. If you pass a retention, gaps between the syncs of a
        snapshot are computed with it.
    now : datetime or callable, optional
        Start of "within 24 hours"; UTC if it has no time zone. You can also pass a clock, a
        callable that returns the time; data with a later time then count as out of date. If omitted, the
        clock of this machine is used.
    max_age : str or timedelta, optional
        How old the data may be, for example "2h" or "1d". If they are older, the headline and a notice show
        their age, and the report has no recent counts, new groups or trend. Default: three times the usual
        time between complete syncs of the snapshot, but at least an hour; a day without syncs.
    new_since : datetime, optional
        Groups first seen after this time count as new. Pass, for example, the time when you last read a
        report. Default: 24 hours before `now`, which is also the latest time that has an effect. Ignored if
        `previous` is given.
    title : str, optional
    redactor : Redactor, optional
        Masks secrets in everything shown. Default: a redactor with the user's key, which knows no live
        tokens; loaders have already masked live tokens in the frames.
    redrive : RedriveResult or path, optional
        The result of `run_redrive`, or the path of a ledger, whose latest plan is shown. The section lists
        entries that succeeded, came back (with their signature) or were left (with the reason).
    fixes : list of FixCheck, optional
        Results of `check_fix`. The section lists the state of each group and since when the fix holds.
    runbooks : RunbookSuggestions, optional
        The result of `suggest_runbooks`. The section lists the best runbook of each group, with the link.
    tz : str or tzinfo, optional
        The time zone of all displayed times and of day boundaries, for example ``"Europe/Berlin"``. Default:
        the environment variable ``TOOLKIT_TZ``, or UTC if it is not set. The JSON form names the zone in
        `tz`; all times in it are UTC.
    progress : bool or callable, optional
        A callable is called with (steps done, number of steps, name of the step that begins). By default, a
        notebook or terminal shows a bar if there are many failures.

    Returns
    -------
    FailureReport

    Raises
    ------
    InputError
        If a column is missing or an option is not valid.

    Examples
    --------
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import FAILURES
    >>> report = report_failures(frame_from_rows([], FAILURES), redactor=Redactor(key=b"example"))
    >>> report.verdict
    'No failures.'
    """
    if redactor is None:
        redactor = Redactor()
    instance("redactor", redactor, Redactor, "a Redactor")
    if title is None:
        title = "Failure report"
    title = text("title", title)
    checked_progress(progress)

    with shown_in(time_zone(tz)):
        fresh = freshness_of(failures, now, max_age)
        if new_since is not None:
            new_since = parse_time(new_since, exact=True, name="new_since")
        if retention is not None:
            stated_retention(retention, None)
        given = [
            *fixes_section(checked_fixes(fixes)),
            *runbooks_section(checked_runbooks(runbooks)),
        ]
        if (redriven := redrive_of(redrive)) is not None:
            given.append(redrive_section(redriven, redactor))
        with ProgressSteps(
            progress, title="report", total=STEPS, rows=rows_of(failures)
        ) as step:
            return _report(
                failures, previous, retention=retention, fresh=fresh, title=title, redactor=redactor,
                given=given, new_since=new_since, step=step,
            )  # fmt: skip


def _report(
    failures: AnyFrame,
    previous: AnyFrame | None,
    *,
    retention: str | timedelta | None,
    fresh: Freshness,
    title: str,
    redactor: Redactor,
    given: Sequence[Section],
    new_since: datetime | None,
    step: Callable[[str], None],
) -> FailureReport:
    """Make a report. The caller has set the time zone of displayed times.

    `given` are sections on results that were computed before.
    """
    step("counting failures")
    failures = read_for_report(
        failures, retention=retention, fresh=fresh, redactor=redactor
    )
    failures, repeated = without_repeated(failures, doing="making a report")

    if previous is not None:
        previous, _ = without_repeated(
            previous, doing="comparing failures", name="previous"
        )

    kept = retention_of(failures, retention, fresh.now)
    failures = with_gaps(failures, retention, kept)
    if previous is not None:
        previous = with_gaps(previous, retention, kept)
    kept_text = span(kept.length).replace(" ", "")
    if isinstance(retention, str):
        kept_text = retention
    counts = ReportCounts(
        failures=failures,
        previous=previous,
        shown=masked_columns(failures, redactor),
        retention=kept,
        kept=kept_text,
        fresh=fresh,
        new_since=new_since,
        clean=Cleaner(redactor),
        repeated=repeated,
        step=step,
    )
    evidence, findings, clean = counts.evidence, counts.findings, counts.clean
    step("writing the sections")
    makers = list(ABOUT)
    if counts.overview.count:
        makers = [*COUNTED, *ABOUT]
    sections = list(chain.from_iterable(make(counts) for make in makers))
    explained = [*given]

    problems: list[Problem] = []
    trend = None
    ended: frozenset[str] = frozenset()
    estimated: frozenset[str] = frozenset()
    if evidence is not None:
        scale = scale_of(evidence.sample, fresh)
        problems, ended = problems_of(evidence, fresh, scale, clean.value)
        explained += now_section(problems, scale)
        explained += Explained(evidence, counts, scale).sections()
        trend = evidence.trend
        estimated = evidence.estimated_groups

    # the counting sections are masked while they are made, because they draw names
    sections += [section.masked(clean.value, redactor.code) for section in explained]
    sentence = redactor.text(verdict(findings, explained_in_words(evidence, problems)))
    numbers = tuple(four_numbers(findings, trend))
    sections.append(numbers_section(sentence, numbers))
    facts, comparison = findings["completeness"], findings["comparison"] or {}
    notices = [Notice(facts["sentence"], good=facts["state"] == "complete")]

    if repeated:
        notices.append(
            Notice(f"Left out: {counted(repeated, 'row')} with the id of a later one.")
        )

    if counts.missing:
        notices.append(Notice(
            f"Groups, changes and explanations are left out: no column {', '.join(counts.missing)}."
        ))  # fmt: skip

    if fresh.problem:
        notices.append(Notice(
            f"Out of date: {fresh.problem}, so what came lately, what is new and what is worse is not known. "
            "Bring the snapshot up to date, or load again."
        ))  # fmt: skip

    if (last := counts.overview.last_at) and last > fresh.now:
        notices.append(Notice(
            f"The last failure is dated {time_text(last)}, after the time of this report, "
            f"{time_text(fresh.now)}: such failures are in the totals, but in no explanation and no rate."
        ))  # fmt: skip

    if comparison.get("caution"):
        notices.append(Notice(comparison["caution"]))
    return FailureReport(
        schema=_SCHEMA,
        title=clean.value(title),
        headline=headline(findings, problems, fresh.now),
        about=redactor.text(about_in_words(findings, fresh.now)),
        lead=tuple(lead_sentences(findings, numbers, problems)),
        verdict=sentence,
        made_at=clean.value(fresh.now),
        notices=tuple(notices),
        numbers=numbers,
        sections=tuple(_in_order(sections)),
        values=findings
        | {
            "problems": [problem.to_dict() for problem in problems],
            "change": _change(counts),
            "tz": time_zone().key,
        },
        ended_groups=ended,
        estimated_groups=estimated,
    )


def _in_order(sections: Iterable[Section]) -> Iterator[Section]:
    """Yield the sections in the order of the page, the later ones folded."""
    for section in sorted(sections, key=lambda section: _ORDER.index(section.name)):
        yield replace(section, folded=section.name in _FOLDED)


def _change(counts: ReportCounts) -> dict[str, Any]:
    """Return new groups and the change of the rate as JSON-able values. Unknown values are None."""
    evidence, clean = counts.evidence, counts.clean
    unknown: dict[str, Any] = dict.fromkeys(
        ("since", "failures", "expected", "worse", "new_groups")
    )
    unknown |= {"groups": None, "grown_groups": [], "titles": {}}

    if evidence is None and counts.is_quiet:
        since = clean.value(counts.fresh.end - DAY)
        return unknown | {
            "since": since,
            "failures": 0,
            "worse": False,
            "new_groups": [],
        }

    if evidence is None or not evidence.is_current:
        return unknown

    trend = evidence.trend
    new = groups = None
    if trend.new is not None:
        new = trend.new[:_NEW_GROUPS]
    if evidence.changes is not None:
        groups = counts_by_change(evidence.changes)
    titles = evidence.groups.set_index("group")["title"]
    return {
        "since": clean.value(trend.since),
        "failures": trend.recent,
        "expected": clean.value(trend.usual),
        "worse": trend.worse,
        "new_groups": new,
        "groups": groups,
        "grown_groups": trend.grown,
        "titles": {
            group: clean.value(titles.get(group, group))
            for group in [*(new or ()), *trend.grown]
        },
    }
