"""Decide where the rows are whether an entry left the queue because it expired: in Arrow or in DuckDB.

An entry has expired if the retention ended while it was missing, and it was seen until shortly before. For
example, with a retention of 3 days, an entry that failed on Monday at 10:00, was last seen on Thursday at
9:00 and first missed at 11:00 has expired.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.failures.outcome_names import EXPIRED, SEEN_LATE, UNKNOWN
from toolkit.failures.partitions import Step
from toolkit.failures.selection import in_milliseconds
from toolkit.failures.sql_results import SqlStep
from toolkit.tables.schemas import GONE_AFTER, GONE_BEFORE, TIME

_MILLISECOND: Final = timedelta(milliseconds=1)


def is_expired(at: Any, seen: Any, missed: Any, kept: timedelta | None) -> pa.Array:
    """Return which entries expired, as `find_retry_outcomes` decides it without a run log.

    `at` is when each entry failed, `seen` and `missed` when it was last seen and first missed, in
    milliseconds. If the retention `kept` is unknown, no entry counts as expired.
    """
    if kept is None:
        return pa.repeat(pa.scalar(value=False), len(at))

    expires = pc.add(at, kept // _MILLISECOND)
    ended_while_missing = pc.less_equal(expires, missed)
    was_seen_late = pc.less_equal(pc.subtract(expires, seen), SEEN_LATE // _MILLISECOND)
    return pc.fill_null(pc.and_(ended_while_missing, was_seen_late), fill_value=False)


def expired_sql(at: str, seen: str, missed: str, kept: timedelta | None) -> str:
    """Return `is_expired` as a condition of SQL."""
    if kept is None:
        return "false"

    expires = f"{at} + {kept // _MILLISECOND}"
    late = SEEN_LATE // _MILLISECOND
    return f"coalesce({expires} <= {missed} AND {expires} - {seen} <= {late}, false)"


def with_expired(kept: timedelta | None) -> SqlStep:
    """Return the step that adds `expired_`: whether a failure left the queue because it expired."""
    at, seen, missed = (
        f"epoch_ms({name})" for name in ("when_", GONE_AFTER, GONE_BEFORE)
    )
    expired = expired_sql(at, seen, missed, kept)
    return SqlStep(
        partial(_with_expired, kept),
        f"(SELECT *, {expired} AS expired_ FROM {{rows}})",  # noqa: S608 - names and numbers only
    )


def _with_expired(kept: timedelta | None, table: pa.Table) -> pa.Table:
    at = in_milliseconds(table)
    seen = missed = at
    # without a retention, frames may lack these columns
    if kept is not None:
        seen, missed = (
            in_milliseconds(table, name) for name in (GONE_AFTER, GONE_BEFORE)
        )

    return table.append_column("expired_", is_expired(at, seen, missed, kept))


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
