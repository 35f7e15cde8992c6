"""The findings of a failure report, as JSON-able values with secrets masked: the source of all its forms.

``docs/failure-report.schema.json`` describes them: times are ISO 8601 in UTC, counts integers, shares floats
of 1, missing values null.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any, Final

import pandas as pd

from toolkit.analysis import (
    FailureOverview,
    count_by,
    count_errors,
    count_expiring,
    count_labels,
    count_states,
    new_and_gone,
    recent_failures,
)
from toolkit.analysis.lifetimes import next_expiring
from toolkit.analysis.selection import collect, receipt_of, select
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import shorten
from toolkit.filters.failure import FailureFilter
from toolkit.receipt import Receipt
from toolkit.redaction import Redactor
from toolkit.reports.failure_sections import Charts

CAPS: Final = {
    "workflows": 15,
    "labels": 25,
    "states": 15,
    "texts": 15,
    "ids": 200,
    "expiring": 10,
    "new_workflows": 25,
    "worst": 8,
}
_LONGEST: Final = 500  # characters of a text that is shown


class Cleaner:
    """Makes values JSON-able and safe to show: secrets masked, then truncated to 500 characters."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor

    def text(self, value: object) -> str | None:
        """A text, or None where it is missing."""
        if value is None or value is pd.NA or (isinstance(value, float) and pd.isna(value)):
            return None
        # masked before it is truncated: part of a secret would not be recognised
        return shorten(self.redactor.text(str(value)), _LONGEST)

    def value(self, value: Any) -> Any:
        """Any value: texts cleaned, in lists and maps too, times in ISO 8601, missing ones None."""
        if isinstance(value, Mapping):
            return {str(self.text(name)): self.value(item) for name, item in value.items()}
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
        return self.text(value)

    def rows(self, frame: pd.DataFrame) -> list[dict[str, Any]]:
        """The rows of a small frame."""
        plain = frame.astype(object)
        return [
            {name: self.value(item) for name, item in zip(frame.columns, row, strict=True)}
            for row in plain.itertuples(index=False, name=None)
        ]


def find(
    failures: AnyFrame,
    previous: AnyFrame | None,
    overview: FailureOverview,
    *,
    charts: Charts,
    markers: Mapping[str, str],
    retention: timedelta,
    retention_text: str,
    now: datetime,
    clean: Cleaner,
) -> dict[str, Any]:
    """All findings of a report."""
    receipt = receipt_of(failures)
    for one in (receipt, receipt_of(previous)):
        if one is not None:
            _chosen(one.scope, now)
    trend = charts.trend
    worst_share = overview.worst_count / overview.count if overview.count else None
    return {
        "generated_at": clean.value(now),
        "overview": clean.value(vars(overview) | {"worst_share": worst_share}),
        "completeness": _completeness(receipt, overview, clean),
        "comparison": _comparison(failures, previous, receipt, clean),
        "trend": {
            "by": "workflow_url",
            "step_seconds": int(trend.step.total_seconds()),
            "starts": [clean.value(start.to_pydatetime()) for start in trend.starts],
            "groups": [
                {"name": clean.text(name), "counts": counts.tolist()}
                for name, counts in zip(trend.groups, trend.counts, strict=True)
            ],
            "fell_back": trend.fell_back,
            "undated": trend.undated,
        },
        **_recent(failures, receipt, retention, now, clean),
        "matrix": {
            "rows": clean.value(charts.matrix.rows),
            "columns": clean.value(charts.matrix.columns),
            "counts": charts.matrix.counts.tolist(),
        },
        "calendar": {
            "tz": charts.calendar.tz,
            "counts": charts.calendar.counts.tolist(),
            "undated": charts.calendar.undated,
        },
        "by_workflow": _capped(
            count_by(failures, ["workflow_url", "response_status"]), CAPS["workflows"], clean
        ),
        "by_label": _capped(count_labels(failures), CAPS["labels"], clean),
        **_states(failures, clean),
        "expiry": {
            "retention": retention_text,
            "summary": clean.rows(count_expiring(failures, retention, now)),
            "step_seconds": int(charts.expiry.step.total_seconds()),
            "counts": charts.expiry.counts.tolist(),
            "due": charts.expiry.due,
            "unknown": charts.expiry.unknown,
            "next": clean.rows(next_expiring(failures, retention, now, most=CAPS["expiring"])),
        },
        "error_texts": _error_texts(failures, previous, clean),
        "codes": _codes(retention_text, markers),
        "code": _code(receipt, previous is not None, retention_text, now, clean),
    }


def _recent(
    failures: AnyFrame, receipt: Receipt | None, retention: timedelta, now: datetime, clean: Cleaner
) -> dict[str, Any]:
    """The last hours against those before, and the worst workflows with both."""
    found = recent_failures(failures, now)
    covered = _covers(receipt, now - 2 * found.span) and retention >= 2 * found.span
    rows = _capped(found.by_workflow, CAPS["worst"], clean)
    for row in rows["rows"]:
        row["before"] = row["before"] if covered else None
    return {
        "recent": {
            "hours": int(found.span.total_seconds() // 3600),
            "failures": found.failures,
            "failures_before": found.failures_before if covered else None,
            "workflows": found.workflows,
            "workflows_before": found.workflows_before if covered else None,
        },
        "worst_workflows": rows,
    }


def _covers(receipt: Receipt | None, start: datetime) -> bool:
    """Whether a load requested everything since this time, and is complete."""
    if receipt is None or not receipt.complete:
        return False
    since = receipt.scope.get("since")
    return since is None or datetime.fromisoformat(str(since)) <= start


def _completeness(receipt: Receipt | None, overview: FailureOverview, clean: Cleaner) -> dict[str, Any]:
    count = overview.count - overview.gone
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
        sentence += (
            f" This report is on {count:,} of them."
            if count < receipt.rows
            else f" This report is on {count:,}."
        )
    if overview.gone:
        sentence += f" It includes {overview.gone:,} from earlier loads that are no longer in the queue."
    return {
        "state": "complete" if receipt.complete else "incomplete",
        "sentence": clean.text(sentence),
        "reasons": clean.value(receipt.reasons),
        "assumptions": clean.value(receipt.assumptions),
        "source": clean.text(receipt.source),
        "scope": clean.value(receipt.scope),
        "limit": receipt.limit,
        "read_at": clean.text(receipt.ended_at),
        "pages": receipt.pages,
        "requests": receipt.requests,
        "retries": receipt.retries,
        "bytes": receipt.bytes,
    }


def _comparison(
    failures: AnyFrame, previous: AnyFrame | None, receipt: Receipt | None, clean: Cleaner
) -> dict[str, Any] | None:
    if previous is None:
        return None
    changes = new_and_gone(failures, previous)
    return {
        "previous_count": collect(select(previous, ["dlq_id"], doing="comparing failures")).num_rows,
        "new": len(changes.new),
        "gone": len(changes.gone),
        "new_workflows": clean.value(changes.new_workflows[: CAPS["new_workflows"]]),
        "ids": clean.value(changes.new[: CAPS["ids"]]),
        "ids_left_out": max(len(changes.new) - CAPS["ids"], 0),
        "caution": clean.text(_caution(receipt, receipt_of(previous))),
    }


def _caution(receipt: Receipt | None, earlier: Receipt | None) -> str | None:
    if receipt is None or earlier is None:
        return "One of the two frames has no receipt, so an id that is said to be new or gone may not be."
    if receipt.source != earlier.source:
        return f"The previous frame is from another source ({earlier.source})."
    if not (receipt.complete and earlier.complete):
        return "One of the two loads was not complete, so an id that is said to be new or gone may not be."
    if _reaches_further(receipt.scope, earlier.scope):
        return (
            "The two loads asked for different entries, so an id that is said to be new or gone may not be."
        )
    return None


def _reaches_further(scope: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether a load can hold older entries that the earlier one did not request."""
    times = {"since", "until"}  # those of "the last seven days" move on, which is no difference
    if {name: scope[name] for name in scope.keys() - times} != {
        name: earlier[name] for name in earlier.keys() - times
    }:
        return True
    return "until" in earlier or ("since" in earlier and str(scope.get("since", "")) < str(earlier["since"]))


def _capped(counts: pd.DataFrame, cap: int, clean: Cleaner) -> dict[str, Any]:
    return {"rows": clean.rows(counts.head(cap)), "left_out": max(len(counts) - cap, 0)}


def _states(failures: AnyFrame, clean: Cleaner) -> dict[str, Any]:
    """States of failure functions; those without one are counted however many states there are."""
    found = count_states(failures)
    none = found["state"].isna()
    kept = pd.concat([found[~none].head(CAPS["states"]), found[none]])
    return {"callbacks": clean.rows(kept), "callbacks_left_out": len(found) - len(kept)}


def _error_texts(failures: AnyFrame, previous: AnyFrame | None, clean: Cleaner) -> dict[str, Any]:
    texts = count_errors(failures, clean=clean.redactor.text)
    known = None if previous is None else set(count_errors(previous, clean=clean.redactor.text)["text"])
    found = _capped(texts, CAPS["texts"], clean)
    for row, text in zip(found["rows"], texts["text"], strict=False):
        row["new"] = None if known is None else text not in known
    return found


def _codes(retention: str, markers: Mapping[str, str]) -> dict[str, str]:
    named = f", markers={dict(markers)!r}" if markers else ""
    return {
        "trend": f'tk.plot_failure_trend(failures, by="workflow_url", top=5{named})',
        "expiry": f"tk.plot_expiry(failures, {retention!r})\n\ntk.count_expiring(failures, {retention!r})",
        "matrix": "tk.plot_failure_matrix(failures)",
        "calendar": "tk.plot_failure_calendar(failures)",
        "error_texts": "tk.count_errors(failures)",
        "worst_workflows": "tk.count_workflows(failures)",
        "by_workflow": 'tk.count_by(failures, ["workflow_url", "response_status"])',
        "callbacks": "tk.count_states(failures)",
        "by_label": "tk.count_labels(failures)",
    }


def _chosen(scope: Mapping[str, Any], now: datetime) -> FailureFilter:
    """The filter of a load; `InputError` where its receipt holds something else, as an edited file may."""
    parts = {name: scope[name] for name in signature(FailureFilter).parameters if scope.get(name)}
    return FailureFilter(**parts, now=now)


def _code(receipt: Receipt | None, compared: bool, retention: str, now: datetime, clean: Cleaner) -> str:  # noqa: FBT001 - private
    scope = clean.value(receipt.scope) if receipt else {}
    lines = ["import toolkit as tk", "", "service = tk.connect()"]
    arguments = "service"
    chosen = _chosen(scope, now)
    if not chosen.is_empty:
        lines.append(f"chosen = {chosen.to_code()}")
        arguments += ", chosen"
    if scope.get("kind") == "messages":
        arguments += ', kind="messages"'
    if receipt is not None and receipt.limit is not None:
        arguments += f", limit={receipt.limit!r}"
    lines.append(f"failures = tk.load_failures({arguments})")
    options = ""
    if compared:
        lines.append('previous = tk.read_snapshot("snapshots/failures")  # or another frame to compare with')
        options = ", previous"
    lines.append(f'tk.failure_report(failures{options}, retention={retention!r}).save("failure-report.html")')
    return "\n".join(lines)
