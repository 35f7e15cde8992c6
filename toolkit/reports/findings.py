"""What a failure report counts, and what its head says: JSON-able values, texts with their secrets masked.

``docs/failure-report.schema.json`` describes them: times are ISO 8601 in UTC, counts integers, shares floats
of 1, missing values null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from inspect import signature
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.analysis import (
    FailureOverview,
    FailureTrend,
    RecentFailures,
    count_expiring,
    failure_overview,
    failure_trend,
    new_and_gone,
    recent_failures,
)
from toolkit.analysis.gaps import gaps_of, overlap
from toolkit.analysis.lifetimes import next_expiring
from toolkit.analysis.retention import Retention
from toolkit.analysis.selection import opened, receipt_of, scanned, select
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.analysis.wording import counted, percent, shorten, span, time_text
from toolkit.filters.failure import FailureFilter
from toolkit.freshness import Freshness, span_text
from toolkit.python_code import Code, PublicCall, fill, joined, variable
from toolkit.receipt import Gap, Receipt, requested_time
from toolkit.redaction import Redactor
from toolkit.reports.evidence import Evidence, gather
from toolkit.reports.sections import read_time

CAPS: Final = {
    "workflows": 15, "labels": 25, "states": 15, "texts": 15, "ids": 200, "expiring": 10, "worst": 8,
    "new_workflows": 25,
}  # fmt: skip
ONCE: Final = fill(
    "# the code of this report is for a frame with each id once\n"
    'failures = failures[~failures["dlq_id"].duplicated(keep="last") | failures["dlq_id"].isna()]'
)
_LEFT: Final = {"within 24 hours": "in 6 to 24 hours", "within 3 days": "in 1 to 3 days"}
_LONGEST: Final = 500  # characters of a text that is shown
_GROUPS: Final = 5  # workflows in the trend


class Cleaner:
    """Makes values JSON-able and safe to show: secrets masked, then truncated to 500 characters."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor

    def value(self, value: Any) -> Any:
        """Any value: texts cleaned, in lists and maps too, times in ISO 8601, missing ones None."""
        if isinstance(value, Mapping):
            return {self.value(str(name)): self.value(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if value is None or value is pd.NA or value is pd.NaT:
            return None
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat(timespec="milliseconds")
        if isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return None if pd.isna(value) else round(value, 6)
        # masked before it is truncated: part of a secret would not be recognised
        return shorten(self.redactor.text(str(value)), _LONGEST)

    def rows(self, frame: pd.DataFrame) -> list[dict[str, Any]]:
        """The rows of a small frame."""
        plain = frame.astype(object)
        return [
            {name: self.value(item) for name, item in zip(frame.columns, row, strict=True)}
            for row in plain.itertuples(index=False, name=None)
        ]


def without_repeated(frame: AnyFrame, *, doing: str, name: str = "failures") -> tuple[AnyFrame, int]:
    """A frame with the last row of each id, and how many others there were; a snapshot keeps ids unique.

    Only where ids repeat is a frame of an engine that reads lazily held in memory.
    """
    frame = scanned(frame, doing=doing, name=name)
    rows = opened(frame, doing=doing, name=name)
    if isinstance(frame, ds.Dataset) or "dlq_id" not in rows.names:
        return frame, 0
    repeated = _repeated(frame, doing, name)
    if not repeated.any():
        return frame, 0
    if isinstance(frame, pd.DataFrame):
        return frame[~repeated], int(repeated.sum())
    table = rows.table().replace_schema_metadata(rows.schema.metadata)
    repeated = _repeated(table, doing, name)  # again, in the order that it was read in now
    return table.filter(pa.array(~repeated)), int(repeated.sum())


def _repeated(frame: AnyFrame, doing: str, name: str) -> npt.NDArray[np.bool_]:
    """Which rows have the id of a later one."""
    ids = select(frame, ["dlq_id"], doing=doing, name=name).table()["dlq_id"].to_pandas()
    return np.asarray(ids.duplicated(keep="last") & ids.notna(), dtype=bool)


@dataclass(frozen=True, eq=False, kw_only=True)
class Counts:
    """The failures of a report as its head, its figures and its sections count them."""

    failures: AnyFrame
    previous: AnyFrame | None
    shown: SelectedRows  # what figures count, texts masked
    retention: Retention
    kept: str  # as code states it
    fresh: Freshness
    clean: Cleaner
    new_since: datetime | None = None  # when groups count as new that were first seen then
    repeated: int = 0  # rows left out, as a later one has their id

    @property
    def now(self) -> datetime:
        """The time of the report."""
        return self.fresh.now

    @cached_property
    def receipt(self) -> Receipt | None:
        """The receipt of the load."""
        return receipt_of(self.failures)

    @cached_property
    def overview(self) -> FailureOverview:
        """How many failures, of how many workflows and runs, from when until when."""
        return failure_overview(self.failures)

    @cached_property
    def recent(self) -> RecentFailures:
        """The last hours against those before."""
        return recent_failures(self.failures, self.now, max_age=self.fresh.max_age)

    @cached_property
    def covered(self) -> bool:
        """Whether all failures of the hours before were kept and loaded."""
        length = 2 * self.recent.span
        if overlap(gaps_of(self.failures), self.fresh.end - length, self.fresh.end):
            return False
        is_covered = _covers(self.receipt, self.fresh.end - length) and self.retention.at_least >= length
        return self.fresh.is_current and is_covered

    @cached_property
    def expiring(self) -> list[dict[str, Any]]:
        """How many expire when."""
        return self.clean.rows(count_expiring(self.failures, self.retention.length, self.now))

    @property
    def is_quiet(self) -> bool:
        """Whether there are no failures, and the data show that there are none."""
        complete = self.receipt is not None and self.receipt.complete
        return not self.overview.count and complete and self.fresh.state == "current"

    @property
    def left(self) -> list[tuple[str, int]]:
        """The same in words that say that each failure is counted once."""
        return [(_LEFT.get(row["when"], row["when"]), row["count"]) for row in self.expiring if row["count"]]

    @cached_property
    def next_expiring(self) -> list[dict[str, Any]]:
        """The next ones to expire."""
        return self.clean.rows(
            next_expiring(self.failures, self.retention.length, self.now, most=CAPS["expiring"])
        )

    @cached_property
    def evidence(self) -> Evidence | None:
        """What the analyses that explain find."""
        return gather(
            self.failures,
            self.previous,
            total=self.overview.count,
            retention=self.retention,
            fresh=self.fresh,
            new_since=self.new_since,
        )

    @property
    def load_code(self) -> Code:
        """Python that loads the failures, as `failures`, and `service`."""
        return _load_code(self.receipt, self.now, self.clean)

    @property
    def markers(self) -> dict[str, str]:
        """Names of times in the trend."""
        return {} if self.evidence is None else self.evidence.begins

    @cached_property
    def trend(self) -> FailureTrend:
        """Failures over time, by workflow."""
        gaps = gaps_of(self.failures)
        return failure_trend(
            self.shown, by="workflow_url", top=_GROUPS, now=self.now, markers=self.markers, gaps=gaps
        )

    @cached_property
    def findings(self) -> dict[str, Any]:
        """What the head says, and what the load was."""
        failures, previous, clean = self.failures, self.previous, self.clean
        overview, recent, receipt = self.overview, self.recent, self.receipt
        for load in (receipt, receipt_of(previous)):
            if load is not None:
                _chosen(load.scope, self.now)
        worst_share = overview.worst_count / overview.count if overview.count else None
        soon = {"within 6 hours", "within 24 hours"}
        within = sum(row["count"] for row in self.expiring if row["when"] in soon)
        return {
            "overview": clean.value(vars(overview) | {"worst_share": worst_share, "repeated": self.repeated}),
            "recent": {
                "hours": int(recent.span.total_seconds() // 3600),
                "until": clean.value(recent.until),
                "failures": recent.failures,
                "failures_before": recent.failures_before if self.covered else None,
                "workflows": recent.workflows,
                "workflows_before": recent.workflows_before if self.covered else None,
            },
            "expiry": {
                "retention": self.kept if self.retention.is_known else self.retention.words,
                "is_known": self.retention.is_known,
                "within_24_hours": within if self.retention.is_known else None,
                "next_hours_left": next((row["hours_left"] for row in self.next_expiring), None),
            },
            "data": clean.value(self.fresh.to_dict()),
            "completeness": _completeness(receipt, overview, clean),
            "comparison": _comparison(failures, previous, receipt, clean),
            "code": _code(receipt, previous is not None, self.kept, self.now, clean),
        }


def _covers(receipt: Receipt | None, start: datetime) -> bool:
    """Whether a load requested everything since this time, and is complete."""
    if receipt is None or not receipt.complete:
        return False
    since = requested_time(receipt, "since")
    return since is None or since <= start


def _completeness(receipt: Receipt | None, overview: FailureOverview, clean: Cleaner) -> dict[str, Any]:
    count = overview.count - overview.gone
    gaps = _gaps_shown(receipt, overview)
    if receipt is None:
        return {
            "state": "unknown",
            "sentence": "Not known to be complete: the frame has no receipt of its load.",
        }
    if receipt.complete:
        sentence = f"Complete: every entry present during the load was read ({receipt.rows:,} rows)."
    else:
        reasons = "; ".join(receipt.reasons) or "the load did not end"
        sentence = f"Not complete: {receipt.rows:,} rows were read; {reasons}."
    if count != receipt.rows:
        sentence += f" This report is on {count:,}{' of them' * (count < receipt.rows)}."
    if overview.gone:
        more = f"{overview.gone:,} from earlier loads that {'is' if overview.gone == 1 else 'are'}"
        sentence += f" The report includes {more} no longer in the queue."
    for overdue in receipt.overdue:
        sentence += f" {overdue[0].upper()}{overdue[1:]}."
    if gaps:
        sentence += f" {_gaps_in_words(gaps)}"
    return {
        "state": "complete" if receipt.complete else "incomplete",
        "sentence": clean.value(sentence),
        "reasons": clean.value(receipt.reasons),
        "gaps": clean.value([asdict(gap) for gap in gaps]),
        "assumptions": clean.value(receipt.assumptions),
        "source": clean.value(receipt.source),
        "scope": clean.value(receipt.scope),
        "limit": receipt.limit,
        "read_at": clean.value(receipt.ended_at),
        "pages": receipt.pages,
        "requests": receipt.requests,
        "retries": receipt.retries,
        "bytes": receipt.bytes,
    }


def _gaps_shown(receipt: Receipt | None, overview: FailureOverview) -> list[Gap]:
    """The gaps since the first failure of the report, or the latest one, which may precede it."""
    first = overview.first_at
    if receipt is None or first is None:
        return list(receipt.gaps[-1:]) if receipt else []
    return [gap for gap in receipt.gaps if gap.bounds[1] > first]


def _gaps_in_words(gaps: list[Gap]) -> str:
    """One sentence on what expired unread, with the last gap.

    >>> gap = Gap(start="2026-03-01T00:00:00+00:00", end="2026-03-06T00:00:00+00:00", is_certain=True)
    >>> _gaps_in_words([gap])
    'Failures between 2026-03-01 00:00 and 2026-03-06 00:00 UTC are missing; usual rates leave that time out.'
    """
    start, end = (time_text(time) for time in gaps[-1].bounds)
    missing = "are missing" if gaps[-1].is_certain else "may be missing"
    earlier = f", and in {counted(len(gaps) - 1, 'earlier gap')}" if len(gaps) > 1 else ""
    times = f"between {start.removesuffix(' UTC')} and {end}{earlier}"
    return f"Failures {times} {missing}; usual rates leave that time out."


def _comparison(
    failures: AnyFrame, previous: AnyFrame | None, receipt: Receipt | None, clean: Cleaner
) -> dict[str, Any] | None:
    if previous is None:
        return None
    changes = new_and_gone(failures, previous)
    return {
        "previous_count": select(previous, ["dlq_id"], doing="comparing failures").table().num_rows,
        "new": len(changes.new),
        "gone": len(changes.gone),
        "new_workflows": clean.value(changes.new_workflows[: CAPS["new_workflows"]]),
        "ids": clean.value(changes.new[: CAPS["ids"]]),
        "ids_left_out": max(len(changes.new) - CAPS["ids"], 0),
        "caution": clean.value(_caution(receipt, receipt_of(previous))),
    }


def _caution(receipt: Receipt | None, earlier: Receipt | None) -> str | None:
    if receipt is None or earlier is None:
        return "One of the two frames has no receipt, so an id shown as new or gone may not be."
    if receipt.source != earlier.source:
        return f"The previous frame is from another source ({earlier.source})."
    if not (receipt.complete and earlier.complete):
        return "One of the two loads was not complete, so an id shown as new or gone may not be."
    if _reaches_further(receipt.scope, earlier.scope):
        return "The two loads requested different entries, so an id shown as new or gone may not be."
    return None


def _reaches_further(scope: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether a load can hold older entries that the earlier one did not request."""
    times = {"since": None, "until": None}  # those of "the last seven days" move on: not a difference
    if {**scope, **times} != {**earlier, **times}:
        return True
    return "until" in earlier or ("since" in earlier and str(scope.get("since", "")) < str(earlier["since"]))


def _chosen(scope: Mapping[str, Any], now: datetime) -> FailureFilter:
    """The filter of a load; `InputError` where its receipt holds something else, as an edited file may."""
    parts = {name: scope[name] for name in signature(FailureFilter).parameters if scope.get(name)}
    return FailureFilter(**parts, now=now)


def _code(receipt: Receipt | None, compared: bool, retention: str, now: datetime, clean: Cleaner) -> Code:  # noqa: FBT001 - private
    """Python that loads the failures and makes the report again."""
    lines = [_load_code(receipt, now, clean)]
    frames = [variable("failures")]
    if compared:
        lines.append(fill(_PREVIOUS))
        frames.append(variable("previous"))
    report = _REPORT.write(*frames, retention=retention)
    lines.append(fill('{report}.save("failure-report.html")', report=report))
    return joined(lines)


def _load_code(receipt: Receipt | None, now: datetime, clean: Cleaner) -> Code:
    """Python that loads the failures of a receipt."""
    scope = clean.value(receipt.scope) if receipt else {}
    lines = [fill("import toolkit as tk\n\nservice = tk.connect()")]
    given = [variable("service")]
    options: dict[str, object] = {}
    chosen = _chosen(scope, now)
    if not chosen.is_empty:
        lines.append(fill("chosen = {made}", made=chosen.to_code()))
        given.append(variable("chosen"))
    if scope.get("kind") == "messages":
        options["kind"] = "messages"
    if receipt is not None and receipt.limit is not None:
        options["limit"] = receipt.limit
    lines.append(fill("failures = {load}", load=_LOAD.write(*given, **options)))
    return joined(lines)


_LOAD: Final = PublicCall("load_failures", ("kind", "limit"))
_REPORT: Final = PublicCall("failure_report", ("retention",))
_PREVIOUS: Final = 'previous = tk.read_snapshot("snapshots/failures")  # or another frame to compare with'


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
    prefix = age_in_words(findings["data"]) + "Incomplete: " * (state == "incomplete")
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


def age_in_words(data: Mapping[str, Any]) -> str:
    """Return how the headline begins if the data cannot tell about the last hours; "" if they can.

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
    first, last = (time_text(read_time(overview[name])) for name in ("first_at", "last_at"))
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
    change = None
    hours = _period_in_words(recent, findings["data"])
    note = f"{counted(overview['workflows'], 'workflow')}, {counted(overview['runs'], 'run')}"
    if comparison is not None:
        change = overview["count"] - comparison["previous_count"]
        note = f"{comparison['new']:,} new and {comparison['gone']:,} gone compared with the earlier failures"
    return [
        {"name": "failures", "value": overview["count"], "change": change, "note": note},
        {"name": f"in the {hours}", "value": recent["failures"], **_against(recent, "failures")},
        {"name": f"workflows, {hours}", "value": recent["workflows"], **_against(recent, "workflows")},
        {"name": "expire within 24 hours", "value": findings["expiry"]["within_24_hours"], "change": None,
         "note": _next(findings["expiry"])},
    ]  # fmt: skip


def _period_in_words(recent: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the period of the recent counts; if the data end earlier than the report, until when it is."""
    hours = f"last {recent['hours']} hours"
    lags = data["age_hours"] is not None and data["age_hours"] > 1 and data["state"] == "current"
    return f"{recent['hours']} hours until {time_text(read_time(recent['until']))}" if lags else hours


def _against(recent: Mapping[str, Any], what: str) -> dict[str, Any]:
    before = recent[f"{what}_before"]
    if recent[what] is None:
        return {"change": None, "note": "not known: the data are too old"}
    if before is None:
        return {"change": None, "note": "the earlier value is not known"}
    return {"change": recent[what] - before, "note": f"{before:,} in the {recent['hours']} hours before"}


def _next(expiry: Mapping[str, Any]) -> str:
    if not expiry["is_known"]:
        return f"how long failures are kept is {expiry['retention']}"
    kept = f"kept {expiry['retention']}"
    if expiry["next_hours_left"] is None:
        return kept
    return f"the next in {span(timedelta(hours=expiry['next_hours_left']))}; {kept}"
