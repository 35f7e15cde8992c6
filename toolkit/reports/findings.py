"""What the head of a failure report says, as JSON-able values with secrets masked.

``docs/failure-report.schema.json`` describes them: times are ISO 8601 in UTC, counts integers, shares floats
of 1, missing values null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from inspect import signature
from typing import Any, Final

import pandas as pd

from toolkit.analysis import (
    FailureOverview,
    RecentFailures,
    count_expiring,
    new_and_gone,
    recent_failures,
)
from toolkit.analysis.lifetimes import next_expiring
from toolkit.analysis.selection import receipt_of, select
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import shorten
from toolkit.filters.failure import FailureFilter
from toolkit.receipt import Receipt
from toolkit.redaction import Redactor

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Counts:
    """The failures of a report as its head and its sections count them."""

    failures: AnyFrame
    previous: AnyFrame | None
    overview: FailureOverview
    retention: timedelta
    kept: str
    """The retention in words."""
    now: datetime
    clean: Cleaner

    @cached_property
    def receipt(self) -> Receipt | None:
        """The receipt of the load."""
        return receipt_of(self.failures)

    @cached_property
    def recent(self) -> RecentFailures:
        """The last hours against those before."""
        return recent_failures(self.failures, self.now)

    @cached_property
    def covered(self) -> bool:
        """Whether all failures of the hours before were kept and loaded."""
        span = 2 * self.recent.span
        return _covers(self.receipt, self.now - span) and self.retention >= span

    @cached_property
    def expiring(self) -> list[dict[str, Any]]:
        """How many expire when."""
        return self.clean.rows(count_expiring(self.failures, self.retention, self.now))

    @cached_property
    def next_expiring(self) -> list[dict[str, Any]]:
        """The next ones to expire."""
        return self.clean.rows(next_expiring(self.failures, self.retention, self.now, most=CAPS["expiring"]))


def find(counts: Counts) -> dict[str, Any]:
    """What the head of a report says, and what the load was."""
    failures, previous, clean = counts.failures, counts.previous, counts.clean
    overview, recent, receipt = counts.overview, counts.recent, counts.receipt
    for load in (receipt, receipt_of(previous)):
        if load is not None:
            _chosen(load.scope, counts.now)
    worst_share = overview.worst_count / overview.count if overview.count else None
    soon = {"within 6 hours", "within 24 hours"}
    return {
        "overview": clean.value(vars(overview) | {"worst_share": worst_share}),
        "recent": {
            "hours": int(recent.span.total_seconds() // 3600),
            "failures": recent.failures,
            "failures_before": recent.failures_before if counts.covered else None,
            "workflows": recent.workflows,
            "workflows_before": recent.workflows_before if counts.covered else None,
        },
        "expiry": {
            "retention": counts.kept,
            "within_24_hours": sum(row["count"] for row in counts.expiring if row["when"] in soon),
            "next_hours_left": next((row["hours_left"] for row in counts.next_expiring), None),
        },
        "completeness": _completeness(receipt, overview, clean),
        "comparison": _comparison(failures, previous, receipt, clean),
        "code": _code(receipt, previous is not None, counts.kept, counts.now, clean),
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
        "previous_count": select(previous, ["dlq_id"], doing="comparing failures").table().num_rows,
        "new": len(changes.new),
        "gone": len(changes.gone),
        "new_workflows": clean.value(changes.new_workflows[: CAPS["new_workflows"]]),
        "ids": clean.value(changes.new[: CAPS["ids"]]),
        "ids_left_out": max(len(changes.new) - CAPS["ids"], 0),
        "caution": clean.text(_caution(receipt, receipt_of(previous))),
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
    times = {"since", "until"}  # those of "the last seven days" move on, which is no difference
    if {name: scope[name] for name in scope.keys() - times} != {
        name: earlier[name] for name in earlier.keys() - times
    }:
        return True
    return "until" in earlier or ("since" in earlier and str(scope.get("since", "")) < str(earlier["since"]))


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
