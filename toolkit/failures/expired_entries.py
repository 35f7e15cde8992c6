"""Decide where the rows are whether an entry left the queue because it expired: in Arrow or in DuckDB.

An entry has expired if the retention ended while it was missing, and it was seen until shortly before. For
example, with a retention of 3 days, an entry that failed on Monday at 10:00, was last seen on Thursday at
9:00 and first missed at 11:00 has expired.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.failures.outcome_names import EXPIRED, SEEN_LATE, UNKNOWN
from toolkit.failures.partitions import Step
from toolkit.failures.selection import in_milliseconds
from toolkit.failures.sql_results import SqlStep
from toolkit.tables.schemas import GONE_AFTER, GONE_BEFORE, TIME

_MILLISECOND: Final = timedelta(milliseconds=1)


def with_expired(kept: timedelta | None) -> SqlStep:
    """Return the step that adds `expired_`: whether a failure left the queue because it expired."""
    if kept is None:
        return SqlStep(_never_expired, "(SELECT *, false AS expired_ FROM {rows})")

    length, late = kept // _MILLISECOND, SEEN_LATE // _MILLISECOND
    expires, seen = f"epoch_ms(when_) + {length}", f"epoch_ms({GONE_AFTER})"
    is_expired = (
        f"{expires} <= epoch_ms({GONE_BEFORE}) AND {expires} - {seen} <= {late}"
    )
    return SqlStep(
        partial(_expired, length, late),
        f"(SELECT *, coalesce({is_expired}, false) AS expired_ FROM {{rows}})",  # noqa: S608 - names and numbers only
    )


def _never_expired(table: pa.Table) -> pa.Table:
    never = pa.repeat(pa.scalar(value=False), table.num_rows)
    return table.append_column("expired_", never)


def _expired(length: int, late: int, table: pa.Table) -> pa.Table:
    """Add `expired_`, as `find_retry_outcomes` decides it without a run log."""
    seen, missed = (in_milliseconds(table, name) for name in (GONE_AFTER, GONE_BEFORE))
    expires = pc.add(in_milliseconds(table), length)
    is_expired = pc.and_(
        pc.less_equal(expires, missed), pc.less_equal(pc.subtract(expires, seen), late)
    )
    return table.append_column("expired_", pc.fill_null(is_expired, fill_value=False))


def outcomes_without_runs(kept: timedelta | None, not_gone: str) -> Step:
    """Return the step from rows with `when_` to outcomes, if neither retries nor a later load are known.

    The result has `dlq_id`, `workflow_url`, `outcome`, and the times `seen`, `missing` and `expires`.
    """
    return partial(_outcomes, kept, not_gone)


def _outcomes(kept: timedelta | None, not_gone: str, table: pa.Table) -> pa.Table:
    absent = pa.nulls(table.num_rows, TIME)
    for name in (GONE_AFTER, GONE_BEFORE):
        if name not in table.column_names:
            table = table.append_column(name, absent)
    expires = absent
    if kept is not None:
        milliseconds = pc.add(in_milliseconds(table), kept // _MILLISECOND)
        expires = milliseconds.cast(TIME)

    expired = with_expired(kept)(table)["expired_"]
    left = pc.if_else(expired, EXPIRED, UNKNOWN)
    outcome = pc.if_else(table[GONE_BEFORE].is_valid(), left, not_gone)

    return pa.table(
        {
            "dlq_id": table["dlq_id"],
            "workflow_url": table["workflow_url"],
            "outcome": outcome,
            "seen": table[GONE_AFTER].cast(TIME, safe=False),
            "missing": table[GONE_BEFORE].cast(TIME, safe=False),
            "expires": expires,
        }
    )
