"""Find out in one DuckDB query what happened to entries of the queue; see `outcomes.py` for the rules.

Times are microseconds since 1970. The query joins each entry with the later load, with the run that retried
it, and with the latest run of its workflow that started before the entry was missed:

    entries ──┬── later load, by id ──────── when it left
              ├── run log, by run id ─────── how its own run ended
              ├── retries, by id ─────────── the new run, and how that ended
              └── run log, by workflow ───── whether a run started while it left (ASOF)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.failures.outcome_names import (
    CANCELED,
    DELETED,
    EXPIRED,
    FAILED_AGAIN,
    OUTCOME_OF_STATE,
    RETRIED,
    SEEN_LATE,
    SUCCEEDED,
    UNKNOWN,
)
from toolkit.failures.selection import with_time
from toolkit.failures.sources import AnyFrame
from toolkit.failures.sql_joins import (
    ROWS,
    TEXT,
    TIME,
    JoinQuery,
    has_types,
    joined_rows,
    numbered,
)

LOOKS: Final = ("gone_after", "gone_before")
_ENTRIES: Final = {
    "dlq_id": TEXT,
    "workflow_url": TEXT,
    "workflow_run_id": TEXT,
    "failed_at": TIME,
    "created_at": TIME,
}
_RUNS: Final = {
    "workflow_run_id": TEXT,
    "state": TEXT,
    "workflow_url": TEXT,
    "created_at": TIME,
}
_CALLBACKS: Final = {
    "source_message_id": TEXT,
    "delivered": "BOOLEAN",
    "exhausted": "BOOLEAN",
}
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class OutcomeFacts:
    """The facts of `find_retry_outcomes`, with the times of both loads and the retention."""

    after: AnyFrame | None
    after_looks: tuple[str, ...]
    """Columns of the later load that tell when an entry left."""
    runs: AnyFrame | None
    callbacks: AnyFrame | None
    new_runs: Mapping[Any, str]
    all_retries_known: bool
    start: pd.Timestamp | None
    end: pd.Timestamp | None
    kept: timedelta | None
    not_gone: str
    """The outcome of an entry that has not left."""


def outcome_query(
    before: Any, looks: tuple[str, ...], facts: OutcomeFacts, *, doing: str
) -> JoinQuery | None:
    """Return the query of the outcomes; None if types differ from those that loaders write.

    It has one row per entry of the relation `before`: `dlq_id`, `workflow_url`, `outcome`, `run`, `seen`,
    `missing`, `expires` (microseconds since 1970), and `row_`, the number of the entry.
    """
    types = _ENTRIES | dict.fromkeys(looks, TIME)
    if not has_types(before, types):
        return None

    others = _others(facts, doing)
    if others is None:
        return None

    parts = [
        ("entries", _entries(types, looks, facts)),
        ("present", _present(facts)),
        ("ended", _ended(facts)),
        ("started", _started(facts)),
        ("retries", _retries()),
        ("outcomes", _outcomes(facts)),
    ]
    listed = ", ".join(f"{name} AS ({sql})" for name, sql in parts)
    return JoinQuery(f"WITH {listed} SELECT * FROM outcomes ORDER BY row_", others)  # noqa: S608 - names and numbers only


def _others(facts: OutcomeFacts, doing: str) -> dict[str, Any] | None:
    """Return the rows that are joined; None if they have other types."""
    others: dict[str, Any] = {}
    if facts.after is not None:
        types = {"dlq_id": TEXT} | dict.fromkeys(facts.after_looks, TIME)
        others["after"] = joined_rows(facts.after, types, doing=doing, name="after")

    if facts.runs is not None:
        others["runs"] = joined_rows(facts.runs, _RUNS, doing=doing, name="runs")
    if facts.callbacks is not None:
        found = joined_rows(facts.callbacks, _CALLBACKS, doing=doing, name="callbacks")
        if isinstance(found, pa.Table) and not _are_booleans(found):
            return None
        others["callbacks"] = found

    if not all(isinstance(entry, str) for entry in facts.new_runs):
        return None

    others["retried"] = pa.table({
        "entry": pa.array(facts.new_runs.keys(), pa.string()),
        "run": pa.array(facts.new_runs.values(), pa.string()),
    })  # fmt: skip
    return others


def _are_booleans(callbacks: pa.Table) -> bool:
    return all(
        pa.types.is_boolean(callbacks[name].type) for name in ("delivered", "exhausted")
    )


def _entries(
    types: Mapping[str, str], looks: tuple[str, ...], facts: OutcomeFacts
) -> str:
    """Return the query of the entries with their times."""
    timed = with_time.sql.replace("{rows}", numbered(ROWS, types))
    seen, missing = (_look(name, looks) for name in LOOKS)
    expires = "NULL::BIGINT"
    if facts.kept is not None:
        expires = f"(epoch_us(when_) + {facts.kept // _MICROSECOND}) // 1000 * 1000"
    return (
        "SELECT row_, dlq_id, workflow_url, workflow_run_id,"  # noqa: S608 - names and numbers only
        f" {seen} AS seen, {missing} AS missing, {expires} AS expires FROM {timed}"
    )


def _look(name: str, looks: tuple[str, ...]) -> str:
    """Return a column of a time in microseconds, to the millisecond; null without the column."""
    if name in looks:
        return f"epoch_us({name}) // 1000 * 1000"
    return "NULL::BIGINT"


def _present(facts: OutcomeFacts) -> str:
    """Return the query of the entries with the time when they were last seen and first missing."""
    if facts.after is None:
        return "SELECT * FROM entries"

    later = "SELECT DISTINCT dlq_id AS later_id, true AS is_later FROM toolkit_after"
    stored = "SELECT NULL::VARCHAR AS stored_id, NULL::STRUCT(seen BIGINT, missing BIGINT) AS stored LIMIT 0"
    if facts.after_looks == LOOKS:
        # a snapshot knows when an entry left better than two loads do
        seen, missing = (_look(name, LOOKS) for name in LOOKS)
        stored = (
            f"SELECT dlq_id AS stored_id, min_by({{'seen': {seen}, 'missing': {missing}}}, row_) AS stored"  # noqa: S608 - names only
            f" FROM {numbered('toolkit_after', ['dlq_id', *LOOKS])}"
            " WHERE dlq_id IS NOT NULL AND gone_before IS NOT NULL GROUP BY dlq_id"
        )

    return (
        "SELECT entries.* REPLACE ("  # noqa: S608 - names and numbers only
        f"{_presence('seen', facts.start)}, {_presence('missing', facts.end)}) FROM entries "
        f"LEFT JOIN ({later}) ON later_id IS NOT DISTINCT FROM dlq_id "
        f"LEFT JOIN ({stored}) ON stored_id = dlq_id"
    )


def _presence(column: str, load: pd.Timestamp | None) -> str:
    """Return the expression of a time: as stored, that of a load if the entry is missing there, or none."""
    return (
        f"CASE WHEN entries.missing IS NOT NULL THEN entries.{column}"
        f" WHEN is_later IS NULL THEN {_number(load)}"
        f" WHEN stored IS NOT NULL THEN stored.{column} ELSE entries.{column} END AS {column}"
    )


def _number(time: pd.Timestamp | None) -> str:
    if time is None or pd.isna(time):
        return "NULL::BIGINT"
    return str((time - pd.Timestamp(0, tz="UTC")) // _MICROSECOND)


def _ended(facts: OutcomeFacts) -> str:
    """Return the query of the outcome of each run and message; the run log counts more than callbacks."""
    queries = [
        "SELECT NULL::VARCHAR AS id, NULL::VARCHAR AS end_, 0 AS place, 0 AS row_ LIMIT 0"
    ]
    if facts.callbacks is not None:
        rows = numbered("toolkit_callbacks", _CALLBACKS)
        queries.append(
            f"SELECT source_message_id, CASE WHEN delivered THEN '{SUCCEEDED}'"  # noqa: S608 - names only
            f" ELSE '{FAILED_AGAIN}' END, 0, row_ FROM {rows} WHERE delivered OR exhausted"
        )

    if facts.runs is not None:
        ends = " ".join(
            f"WHEN '{state}' THEN '{end}'" for state, end in OUTCOME_OF_STATE.items()
        )
        queries.append(
            f"SELECT workflow_run_id, CASE state {ends} ELSE '{RETRIED}' END, 1, row_"  # noqa: S608 - names only
            f" FROM {numbered('toolkit_runs', _RUNS)}"
        )

    every = " UNION ALL ".join(f"({query})" for query in queries)
    return (
        f"SELECT id, last(end_ ORDER BY place, row_) AS end_ FROM ({every}) GROUP BY id"  # noqa: S608 - names only
    )


def _started(facts: OutcomeFacts) -> str:
    """Return the query of the start times of runs by workflow."""
    if facts.runs is None:
        return "SELECT NULL::VARCHAR AS url, NULL::BIGINT AS start_ LIMIT 0"

    return (
        "SELECT workflow_url AS url, epoch_us(created_at) AS start_ FROM toolkit_runs"
        " WHERE workflow_url IS NOT NULL AND created_at IS NOT NULL"
    )


def _retries() -> str:
    """Return the query of the new run of each entry, and how that ended."""
    return (
        f"SELECT entry, run, coalesce(end_, '{RETRIED}') AS end_"  # noqa: S608 - names only
        " FROM toolkit_retried LEFT JOIN ended ON ended.id = toolkit_retried.run"
    )


def _outcomes(facts: OutcomeFacts) -> str:
    """Return the query of the outcome of each entry."""
    had_no_run = "false"
    if facts.all_retries_known:
        had_no_run = "true"
    elif facts.runs is not None:
        # A run log that begins later than the entry was last seen proves nothing about the time before.
        # Without runs at all, the first start is null, and nothing is proved.
        had_no_run = (
            "seen >= (SELECT min(start_) FROM started)"
            " AND (started.start_ IS NULL OR started.start_ <= least(seen, missing))"
        )

    late = SEEN_LATE // _MICROSECOND
    is_expired = f"expires <= missing AND (expires <= seen OR expires - seen <= {late})"
    is_own = f"missing IS NOT NULL AND own.end_ IN ('{SUCCEEDED}', '{CANCELED}')"

    return (
        "SELECT present.* EXCLUDE (workflow_run_id),"  # noqa: S608 - names and numbers only
        f" CASE WHEN retries.run IS NOT NULL THEN retries.end_ WHEN {is_own} THEN own.end_"
        f" WHEN missing IS NULL THEN '{facts.not_gone}' WHEN {is_expired} THEN '{EXPIRED}'"
        f" WHEN expires > missing AND {had_no_run} THEN '{DELETED}' ELSE '{UNKNOWN}' END AS outcome,"
        f" CASE WHEN retries.run IS NOT NULL THEN retries.run WHEN {is_own} THEN workflow_run_id END AS run"
        " FROM present LEFT JOIN retries ON retries.entry = dlq_id"
        " LEFT JOIN ended own ON own.id = workflow_run_id"
        " ASOF LEFT JOIN started ON started.url = workflow_url AND started.start_ <= greatest(seen, missing)"
    )
