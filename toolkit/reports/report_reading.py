"""Read the failures of a report once for all of its counts, if they are not in memory.

A snapshot, a relation of DuckDB and a frame of Dask are read from files. The analyses of the report are
listed here a second time, so that their results are computed together. If one is missing from the list, or
has other arguments, the report is the same and takes one more reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Final

import pandas as pd
import pyarrow as pa

from toolkit.failures.calendars import failure_calendar
from toolkit.failures.clocks import clock_errors
from toolkit.failures.counts import count_by, count_labels, count_matrix, count_states
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import stored_rows
from toolkit.failures.lifetimes import bins_of_failures, count_expiring, next_expiring
from toolkit.failures.over_time import failure_trend
from toolkit.failures.overview import failure_overview, recent_failures
from toolkit.failures.repeating import failure_functions
from toolkit.failures.retention import retention_of
from toolkit.failures.selection import scanned
from toolkit.failures.shared_reading import Analysis, SharedReading
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.reports.counted_sections import (
    MATRIX_COLUMNS,
    MATRIX_ROWS,
    masked_columns,
)
from toolkit.reports.evidence import MOST, charged_if_known
from toolkit.reports.findings import CAPS, TREND_GROUPS, without_repeated
from toolkit.reports.periods import DAY, count_minutes
from toolkit.secrets.redaction import Redactor
from toolkit.tables.freshness import Freshness

_DOING: Final = "making a report"
_STATUS: Final = ("workflow_url", "response_status")


def read_for_report(
    failures: AnyFrame,
    *,
    retention: str | timedelta | None,
    fresh: Freshness,
    redactor: Redactor,
) -> AnyFrame:
    """Return a frame in memory unchanged, and other failures with the results that a report needs."""
    source = scanned(failures, doing=_DOING)
    if isinstance(source, pd.DataFrame | pa.Table | SelectedRows):
        return failures

    reading = SharedReading(source, doing=_DOING)
    reading.prepare(_analyses(retention, fresh, redactor))
    return reading.rows


def _analyses(
    retention: str | timedelta | None, fresh: Freshness, redactor: Redactor
) -> Iterator[Analysis]:
    """Yield the analyses of a report. Those that need the results of others call these first."""
    yield partial(without_repeated, doing=_DOING)
    yield failure_overview
    yield partial(recent_failures, now=fresh.now, max_age=fresh.max_age)
    yield clock_errors
    yield count_labels
    yield count_states
    yield partial(count_by, column=_STATUS)
    yield partial(failure_functions, now=fresh.end)
    yield charged_if_known
    yield partial(_minutes, fresh)
    yield _groups
    yield partial(_expiry, retention, fresh)
    yield partial(_next_to_expire, retention, fresh)
    yield partial(_expiry_bins, retention, fresh)
    yield partial(_trend, fresh, redactor)
    yield partial(_matrix, redactor)
    yield partial(_calendar, redactor)


def _groups(failures: SelectedRows) -> object:
    """Ask for the counts and examples of groups, which a report needs if a sample is not everything."""
    if failures.in_database or failure_overview(failures).count <= MOST:
        return None
    return stored_rows(failures, GroupRules())


def _minutes(fresh: Freshness, failures: SelectedRows) -> object:
    return count_minutes(failures, failures, fresh.end - DAY, fresh.end)


def _expiry(
    stated: str | timedelta | None, fresh: Freshness, failures: SelectedRows
) -> object:
    kept = retention_of(failures, stated, fresh.now)
    return count_expiring(failures, kept, fresh.now)


def _next_to_expire(
    stated: str | timedelta | None, fresh: Freshness, failures: SelectedRows
) -> object:
    kept = retention_of(failures, stated, fresh.now)
    return next_expiring(failures, kept, fresh.now, most=CAPS["expiring"])


def _expiry_bins(
    stated: str | timedelta | None, fresh: Freshness, failures: SelectedRows
) -> object:
    kept = retention_of(failures, stated, fresh.now)
    return bins_of_failures(failures, kept, fresh.now)


def _trend(fresh: Freshness, redactor: Redactor, failures: SelectedRows) -> object:
    shown = masked_columns(failures, redactor)
    return failure_trend(shown, by="workflow_url", top=TREND_GROUPS, now=fresh.now)


def _matrix(redactor: Redactor, failures: SelectedRows) -> object:
    shown = masked_columns(failures, redactor)
    return count_matrix(
        shown, *_STATUS, top_rows=MATRIX_ROWS, top_columns=MATRIX_COLUMNS
    )


def _calendar(redactor: Redactor, failures: SelectedRows) -> object:
    return failure_calendar(masked_columns(failures, redactor))
