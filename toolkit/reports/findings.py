"""Compute the numbers of a failure report as JSON-able values with masked secrets.

``docs/failure-report.schema.json`` describes the values: times are ISO 8601 in UTC, counts are integers,
shares are between 0 and 1, and missing values are null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from inspect import signature
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from toolkit.base.progress import silent
from toolkit.base.python_code import Code, PublicCall, fill, joined, variable
from toolkit.base.time_zones import span_of_times, time_zone
from toolkit.drawing.wording import counted, shorten
from toolkit.failures.clocks import clock_errors
from toolkit.failures.gaps import gaps_of, overlap
from toolkit.failures.lifetimes import count_expiring, next_expiring
from toolkit.failures.over_time import FailureTrend, failure_trend
from toolkit.failures.overview import (
    FailureOverview,
    RecentFailures,
    failure_overview,
    new_and_gone,
    recent_failures,
)
from toolkit.failures.partial_results import DistinctValues, repeated_rows
from toolkit.failures.retention import Retention
from toolkit.failures.selection import opened, receipt_of, scanned, select
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.filters.failure import FailureFilter
from toolkit.reports.evidence import Evidence, gather, missing_columns
from toolkit.secrets.redaction import Redactor
from toolkit.tables.freshness import Freshness
from toolkit.tables.receipt import (
    ClockError,
    Gap,
    Receipt,
    clock_sentence,
    requested_time,
)

CAPS: Final = {
    "workflows": 15, "labels": 25, "states": 15, "ids": 200, "expiring": 10, "worst": 8,
    "new_workflows": 25,
}  # fmt: skip
ONCE: Final = fill(
    "# the code of this report is for a frame with each id once\n"
    'failures = failures[~failures["dlq_id"].duplicated(keep="last") | failures["dlq_id"].isna()]'
)
_LEFT: Final = {
    "within 24 hours": "in 6 to 24 hours",
    "within 3 days": "in 1 to 3 days",
}
_LONGEST: Final = 500  # longer strings are truncated
TREND_GROUPS: Final = 5  # workflows that the trend shows by name


class Cleaner:
    """Makes values JSON-able and safe to show: masks secrets, then truncates to 500 characters."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor

    def value(self, value: Any) -> Any:
        """Return a JSON-able copy: strings at any depth are masked, and missing values become None.

        >>> Cleaner(Redactor(key=b"example")).value({"at": datetime(2026, 3, 1, tzinfo=UTC), "share": pd.NA})
        {'at': '2026-03-01T00:00:00.000+00:00', 'share': None}
        """
        if isinstance(value, Mapping):
            names = map(self.value, map(str, value))
            return dict(zip(names, map(self.value, value.values()), strict=True))
        if isinstance(value, list | tuple):
            return list(map(self.value, value))
        if value is None or value is pd.NA or value is pd.NaT:
            return None
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat(timespec="milliseconds")
        if isinstance(value, float):
            return _rounded(value)
        if isinstance(value, int):
            return value

        # mask before truncating, because half a secret is not recognised
        return shorten(self.redactor.text(str(value)), _LONGEST)

    def rows(self, frame: pd.DataFrame) -> list[dict[str, Any]]:
        """Return the rows of a small frame as masked dicts."""
        plain = frame.astype(object)
        rows = plain.itertuples(index=False, name=None)

        return [
            dict(zip(frame.columns, map(self.value, row), strict=True)) for row in rows
        ]


def _rounded(number: float) -> float | None:
    """Return a number with six digits, which are enough for any share and hide the noise of the last bits."""
    if math.isnan(number):
        return None
    return round(number, 6)


def without_repeated(
    frame: AnyFrame, *, doing: str, name: str = "failures"
) -> tuple[AnyFrame, int]:
    """Return the frame with only the last row of each id, and the number of rows left out.

    A snapshot has unique ids already. A lazy frame is read into memory only if ids repeat.
    """
    frame = scanned(frame, doing=doing, name=name)
    rows = opened(frame, doing=doing, name=name)
    if rows.has_unique_ids or "dlq_id" not in rows.names:
        return frame, 0

    ids = select(rows, ["dlq_id"], doing=doing, name=name)
    if not repeated_rows(ids.reduce(DistinctValues("dlq_id"))):
        return frame, 0
    if isinstance(frame, pd.DataFrame):
        repeated = _repeated(frame, doing, name)
        return frame[~repeated], int(repeated.sum())

    table = rows.whole_table(doing).replace_schema_metadata(rows.schema.metadata)
    repeated = _repeated(table, doing, name)
    return table.filter(pa.array(~repeated)), int(repeated.sum())


def _repeated(frame: AnyFrame, doing: str, name: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose id occurs again in a later row."""
    ids = (
        select(frame, ["dlq_id"], doing=doing, name=name).table()["dlq_id"].to_pandas()
    )
    return np.asarray(ids.duplicated(keep="last") & ids.notna(), dtype=bool)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportCounts:
    """The failures of a report with all counts, each computed when a section first needs it."""

    failures: AnyFrame
    previous: AnyFrame | None
    shown: SelectedRows  # the columns that figures count, with masked strings
    retention: Retention
    kept: str  # the retention as shown code spells it, for example "7d"
    fresh: Freshness
    clean: Cleaner
    new_since: datetime | None = None  # groups first seen after this time count as new
    # reports progress: called with the name of each step
    step: Callable[[str], None] = silent
    repeated: int = 0  # number of rows left out because a later row has the same id

    @property
    def now(self) -> datetime:
        """Return the time of the report."""
        return self.fresh.now

    @cached_property
    def columns(self) -> frozenset[str]:
        """Return the names of the columns of the failures."""
        return frozenset(opened(self.failures, doing="making a report").names)

    @cached_property
    def receipt(self) -> Receipt | None:
        """Return the receipt of the load."""
        return receipt_of(self.failures)

    @cached_property
    def overview(self) -> FailureOverview:
        """Return the counts of failures, workflows and runs, and the first and last time."""
        return failure_overview(self.failures)

    @cached_property
    def recent(self) -> RecentFailures:
        """Return the last hours compared with the hours before."""
        return recent_failures(self.failures, self.now, max_age=self.fresh.max_age)

    @cached_property
    def covered(self) -> bool:
        """Return whether all failures of the hours before were kept and loaded."""
        length = 2 * self.recent.span
        if overlap(gaps_of(self.failures), self.fresh.end - length, self.fresh.end):
            return False

        is_covered = (
            _covers(self.receipt, self.fresh.end - length)
            and self.retention.at_least >= length
        )
        return self.fresh.is_current and is_covered

    @cached_property
    def expiring(self) -> list[dict[str, Any]]:
        """Return the number of failures that expire within 6 hours, 24 hours and so on."""
        return self.clean.rows(count_expiring(self.failures, self.retention, self.now))

    @property
    def is_quiet(self) -> bool:
        """Return whether a complete and current load found no failures."""
        complete = self.receipt is not None and self.receipt.complete
        return not self.overview.count and complete and self.fresh.state == "current"

    @property
    def left(self) -> list[tuple[str, int]]:
        """Return the counts of `expiring` that are not zero, with labels for separate periods."""
        return [
            (_LEFT.get(row["when"], row["when"]), row["count"])
            for row in self.expiring
            if row["count"]
        ]

    @cached_property
    def next_expiring(self) -> list[dict[str, Any]]:
        """Return the failures that expire next."""
        return self.clean.rows(
            next_expiring(
                self.failures, self.retention, self.now, most=CAPS["expiring"]
            )
        )

    @cached_property
    def evidence(self) -> Evidence | None:
        """Return the results of the analyses that explain failures."""
        return gather(
            self.failures,
            self.previous,
            total=self.overview.count,
            retention=self.retention,
            fresh=self.fresh,
            new_since=self.new_since,
            step=self.step,
        )

    @cached_property
    def missing(self) -> list[str]:
        """Return the columns that are missing for the results of `evidence`."""
        return missing_columns(self.failures, self.previous)

    @property
    def load_code(self) -> Code:
        """Return code that assigns the service to `service` and loads the failures into `failures`."""
        return _load_code(self.receipt, self.now, self.clean)

    @property
    def markers(self) -> dict[str, str]:
        """Return the times that the trend marks, by name."""
        if self.evidence is None:
            return {}
        return self.evidence.begins

    @cached_property
    def trend(self) -> FailureTrend:
        """Return the failures over time, by workflow."""
        gaps = gaps_of(self.failures)
        return failure_trend(
            self.shown,
            by="workflow_url",
            top=TREND_GROUPS,
            now=self.now,
            markers=self.markers,
            gaps=gaps,
        )

    @cached_property
    def findings(self) -> dict[str, Any]:
        """Return the contents of the head and the facts of the load, as in the JSON form."""
        failures, previous, clean = self.failures, self.previous, self.clean
        overview, recent, receipt = self.overview, self.recent, self.receipt
        for load in (receipt, receipt_of(previous)):
            if load is not None:
                # raises an error for an edited receipt, before any section is made
                _chosen(load.scope, self.now)

        worst_share = None
        if overview.count:
            worst_share = overview.worst_count / overview.count
        failures_before = workflows_before = None

        if self.covered:
            failures_before, workflows_before = (
                recent.failures_before,
                recent.workflows_before,
            )

        retention = self.retention.words
        within = None
        if self.retention.is_known:
            retention = self.kept
            # the counts are of separate periods, so that the first day is the sum of two
            soon = {"within 6 hours", "within 24 hours"}
            within = sum(row["count"] for row in self.expiring if row["when"] in soon)

        return {
            "overview": clean.value(
                vars(overview) | {"worst_share": worst_share, "repeated": self.repeated}
            ),
            "recent": {
                "hours": int(recent.span.total_seconds() // 3600),
                "until": clean.value(recent.until),
                "failures": recent.failures,
                "failures_before": failures_before,
                "workflows": recent.workflows,
                "workflows_before": workflows_before,
            },
            "expiry": {
                "retention": retention,
                "is_known": self.retention.is_known,
                "within_24_hours": within,
                "next_hours_left": next(
                    (row["hours_left"] for row in self.next_expiring), None
                ),
            },
            "data": clean.value(self.fresh.to_dict()),
            "completeness": _completeness(
                receipt, overview, clock_errors(self.failures), clean
            ),
            "comparison": _comparison(failures, previous, receipt, clean),
            "code": _code(receipt, previous is not None, self.kept, self.now, clean),
        }


def _covers(receipt: Receipt | None, start: datetime) -> bool:
    """Return whether a load is complete and requested everything since this time."""
    if receipt is None or not receipt.complete:
        return False

    since = requested_time(receipt, "since")
    return since is None or since <= start


def _completeness(
    receipt: Receipt | None,
    overview: FailureOverview,
    clocks: tuple[ClockError, ...],
    clean: Cleaner,
) -> dict[str, Any]:
    """Return the facts about the load, and a sentence about them."""
    if receipt is None:
        return {
            "state": "unknown",
            "sentence": "Not known to be complete: the frame has no receipt of its load.",
        }

    gaps = _gaps_shown(receipt, overview)
    sentences = [
        _rows_read_in_words(receipt),
        *_rows_shown_in_words(receipt, overview),
        *(f"{overdue[0].upper()}{overdue[1:]}." for overdue in receipt.overdue),
    ]
    if clocks:
        sentences.append(f"{clock_sentence(clocks)}.")
    if gaps:
        sentences.append(_gaps_in_words(gaps))
    state = "incomplete"
    if receipt.complete:
        state = "complete"
    return {
        "state": state,
        "sentence": clean.value(" ".join(sentences)),
        "reasons": clean.value(receipt.reasons),
        "gaps": clean.value([asdict(gap) for gap in gaps]),
        "clocks": clean.value([asdict(error) for error in clocks]),
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


def _rows_read_in_words(receipt: Receipt) -> str:
    """Return a sentence about whether the load read every entry."""
    if receipt.complete:
        rows = counted(receipt.rows, "row")
        return f"Complete: every entry present during the load was read ({rows})."

    reasons = "; ".join(receipt.reasons) or "the load did not end"
    return f"Not complete: {receipt.rows:,} rows were read; {reasons}."


def _rows_shown_in_words(receipt: Receipt, overview: FailureOverview) -> Iterator[str]:
    """Yield sentences about rows of the report that differ from the rows of the load."""
    # the frame may be a selection of the loaded rows, or several frames in one
    loaded = overview.count - overview.gone
    if loaded < receipt.rows:
        yield f"This report is on {loaded:,} of them."
    elif loaded > receipt.rows:
        yield f"This report is on {loaded:,}."

    if overview.gone:
        verb = "are"
        if overview.gone == 1:
            verb = "is"
        earlier = f"{overview.gone:,} from earlier loads"
        yield f"The report includes {earlier} that {verb} no longer in the queue."


def _gaps_shown(receipt: Receipt, overview: FailureOverview) -> list[Gap]:
    """Return the gaps that end after the first failure of the report; without failures, the latest gap."""
    first = overview.first_at
    if first is None:
        return list(receipt.gaps[-1:])

    return [gap for gap in receipt.gaps if gap.bounds[1] > first]


def _gaps_in_words(gaps: list[Gap]) -> str:
    """Return a sentence about failures that expired before a sync could read them.

    >>> gap = Gap(start="2026-03-01T00:00:00+00:00", end="2026-03-06T00:00:00+00:00", is_certain=True)
    >>> _gaps_in_words([gap])
    'Failures between 2026-03-01 00:00 and 2026-03-06 00:00 UTC are missing; usual rates leave that time out.'
    """
    start, end = span_of_times(*gaps[-1].bounds)
    missing = "may be missing"
    if gaps[-1].is_certain:
        missing = "are missing"
    times = f"between {start} and {end}"
    if len(gaps) > 1:
        times += f", and in {counted(len(gaps) - 1, 'earlier gap')}"
    return f"Failures {times} {missing}; usual rates leave that time out."


def _comparison(
    failures: AnyFrame,
    previous: AnyFrame | None,
    receipt: Receipt | None,
    clean: Cleaner,
) -> dict[str, Any] | None:
    """Return new and gone failures compared with an earlier frame, or None without one."""
    if previous is None:
        return None

    doing = "comparing failures"
    # errors name the argument of the report
    select(previous, ["dlq_id", "workflow_url"], doing=doing, name="previous")
    changes = new_and_gone(previous, failures)
    count, previous_count = (
        select(frame, ["dlq_id"], doing=doing).count()["count_"][0].as_py()
        for frame in (failures, previous)
    )
    earlier = receipt_of(previous)
    # a part of the same load, for example a sample of it, is no earlier state
    is_smaller = previous_count <= count and not changes.gone

    return {
        "previous_count": previous_count,
        "new": len(changes.new),
        "gone": len(changes.gone),
        "is_part": is_smaller and _are_of_one_load(receipt, earlier),
        "new_workflows": clean.value(changes.new_workflows[: CAPS["new_workflows"]]),
        "ids": clean.value(changes.new[: CAPS["ids"]]),
        "ids_left_out": max(len(changes.new) - CAPS["ids"], 0),
        "caution": clean.value(_caution(receipt, earlier)),
    }


def _are_of_one_load(receipt: Receipt | None, earlier: Receipt | None) -> bool:
    """Return whether two frames can come from the same load, so that one may be a part of the other."""
    if receipt is None or earlier is None:
        return True
    return (receipt.source, receipt.started_at) == (earlier.source, earlier.started_at)


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
    """Return whether a load can have older entries that the earlier load did not request."""
    # "the last seven days" starts later in each load, which is no difference
    times = {
        "since": None,
        "until": None,
    }
    if {**scope, **times} != {**earlier, **times}:
        return True

    return "until" in earlier or (
        "since" in earlier and str(scope.get("since", "")) < str(earlier["since"])
    )


def _chosen(scope: Mapping[str, Any], now: datetime) -> FailureFilter:
    """Return the filter of a load.

    Raise `InputError` if the receipt contains a value that is not valid, for example in an edited file.
    """
    parts = {
        name: scope[name]
        for name in signature(FailureFilter).parameters
        if scope.get(name)
    }
    return FailureFilter(**parts, now=now)


def _code(
    receipt: Receipt | None,
    compared: bool,  # noqa: FBT001 - private
    retention: str,
    now: datetime,
    clean: Cleaner,
) -> Code:
    """Return code that loads the failures and makes the report again."""
    lines = [_load_code(receipt, now, clean)]
    frames = [variable("failures")]
    if compared:
        lines.append(fill(_PREVIOUS))
        frames.append(variable("previous"))

    report = _REPORT.write(*frames, retention=retention, **zone_option())
    lines.append(fill('{report}.save("failure-report.html")', report=report))
    return joined(lines)


def zone_option() -> dict[str, object]:
    """Return ``{"tz": zone}`` for the shown code, or an empty dict if the report is in UTC."""
    zone = time_zone().key
    if zone == "UTC":
        return {}

    return {"tz": zone}


def _load_code(receipt: Receipt | None, now: datetime, clean: Cleaner) -> Code:
    """Return code that repeats the load that a receipt describes."""
    scope: dict[str, Any] = {}
    if receipt is not None:
        scope = clean.value(receipt.scope)
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
_REPORT: Final = PublicCall("report_failures", ("retention", "tz"))
_PREVIOUS: Final = 'previous = tk.read_snapshot("snapshots/failures")  # or another frame to compare with'
