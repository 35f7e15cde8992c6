"""The dead letter queue: what was given up, how it is kept, found, shown and removed."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from toolkit.local.queue.message import Message
from toolkit.local.queue.payloads import Answer, Sent, dlq_entry
from toolkit.times import http_date_ms

FunctionState: TypeAlias = Literal[
    "CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"
]

Place: TypeAlias = tuple[int, int]
"""Where an entry stands in the list, newest first: when it entered (Unix ms), and its number."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What entries a list is asked for. Values of one field are alternatives; all fields have to match.

    `since` and `until` are inclusive and test ``createdAt``. A field left empty is no condition.
    """

    workflow: bool
    since: int | None = None
    until: int | None = None
    workflow_created_at: int | None = None
    run_id: str | None = None
    workflow_url: tuple[str, ...] = ()
    url: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    caller_ip: tuple[str, ...] = ()
    flow_key: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    fields: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def where(self, *, after: Place | None, entered_since: int) -> tuple[str, list[int | str]]:
        """The condition in SQL, for entries behind `after` that have not expired."""
        # "+" keeps SQLite from walking the whole list where an index leads to the few that are named
        few = "+" if self.ids or self.run_id is not None else ""
        parts = [f"{few}workflow = ?", f"{few}entered_at >= ?"]
        values: list[int | str] = [int(self.workflow), entered_since]
        for condition, value in (
            ("created_at >= ?", self.since),
            ("created_at <= ?", self.until),
            ("workflow_created_at = ?", self.workflow_created_at),
            ("run_id = ?", self.run_id),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        for condition, wanted in (
            ("workflow_url IN ({})", self.workflow_url),
            ("json_extract(entry, '$.url') IN ({})", self.url),
            ("state IN ({})", self.state),
            ("caller_ip IN ({})", self.caller_ip),
            ("flow_key IN ({})", self.flow_key),
            ("id IN ({})", self.ids),
            ("seq IN (SELECT dlq_seq FROM dlq_labels WHERE label IN ({}))", self.label),
        ):
            if wanted:
                parts.append(condition.format(",".join("?" * len(wanted))))
                values.extend(wanted)
        for field, wanted in self.fields:
            marks = ",".join("?" * len(wanted))
            parts.append(f"CAST(json_extract(entry, '$.{field}') AS TEXT) IN ({marks})")
            values.extend(wanted)
        if after is not None:
            parts.append(f"({few}entered_at, seq) < (?, ?)")
            values.extend(after)
        return " AND ".join(parts), values


def find(
    connection: sqlite3.Connection,
    conditions: Conditions,
    *,
    count: int,
    after: Place | None,
    entered_since: int,
) -> tuple[list[sqlite3.Row], Place | None]:
    """A page of entries, newest first, and the place to go on from; None when there are no more."""
    where, values = conditions.where(after=after, entered_since=entered_since)
    rows = connection.execute(
        f"SELECT * FROM dlq WHERE {where} ORDER BY entered_at DESC, seq DESC LIMIT ?",  # noqa: S608 - parts above, values bound
        (*values, count + 1),
    ).fetchall()
    more = len(rows) > count
    rows = rows[:count]
    return rows, (rows[-1]["entered_at"], rows[-1]["seq"]) if more else None


def shown(row: sqlite3.Row) -> str:
    """The JSON of an entry as lists and single reads show it."""
    entry: str = row["entry"]  # an object that holds at least its id
    if row["state"] is None:
        return entry
    return f'{entry[:-1]}, "failureFunctionState": {json.dumps(row["state"])}}}'


def add(
    connection: sqlite3.Connection,
    message: Message,
    sent: Sent,
    answer: Answer,
    *,
    run_created_at: int | None,
    now_ms: int,
) -> str:
    """Take a message in that was given up; gives its DLQ id."""
    dlq_id = f"{now_ms}-{secrets.token_hex(6)}"
    entry = dlq_entry(message, sent, answer, dlq_id=dlq_id, run_created_at=run_created_at)
    _insert(
        connection, entry, workflow=message.run_id is not None, entered_at=now_ms, message=message.encode()
    )
    if message.run_id:
        connection.execute("UPDATE runs SET dlq_id = ? WHERE id = ?", (dlq_id, message.run_id))
    return dlq_id


def insert(
    connection: sqlite3.Connection, entries: Iterable[Mapping[str, Any]], *, workflow: bool, now_ms: int
) -> int:
    """Fill in entries as they are listed elsewhere; they are shown exactly as given. Gives how many are new.

    They entered the DLQ when their response was dated, or else when they were created.
    """
    taken = 0
    for entry in entries:
        if connection.execute("SELECT 1 FROM dlq WHERE id = ?", (entry["dlqId"],)).fetchone() is None:
            _insert(connection, entry, workflow=workflow, entered_at=_entered_at(entry, now_ms), message=None)
            taken += 1
    return taken


def _insert(
    connection: sqlite3.Connection,
    entry: Mapping[str, Any],
    *,
    workflow: bool,
    entered_at: int,
    message: bytes | None,
) -> None:
    kept, state = dict(entry), entry.get("failureFunctionState")
    if isinstance(state, str) and _fitting(state) is not None:
        del kept["failureFunctionState"]  # it changes: its column says what it is
    place = connection.execute(
        "INSERT INTO dlq (id, workflow, entered_at, created_at, workflow_url, run_id, workflow_created_at, "
        "caller_ip, flow_key, state, entry, message) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry["dlqId"],
            workflow,
            entered_at,
            *(_fitting(entry.get(name)) for name in _COLUMNS),
            None if "failureFunctionState" in kept else state,
            json.dumps(kept),
            message,
        ),
    ).lastrowid
    given = entry.get("labels")
    labels = {
        label
        for label in (*(given if isinstance(given, list) else ()), entry.get("label"))
        if isinstance(label, str) and label and _fitting(label) is not None
    }
    connection.executemany(
        "INSERT INTO dlq_labels VALUES (?, ?)", ((place, label) for label in sorted(labels))
    )


_COLUMNS = (
    "createdAt", "workflowUrl", "workflowRunId", "workflowCreatedAt", "callerIP", "flowControlKey",
)  # fmt: skip


def _fitting(value: Any) -> Any:
    """The value when a column can hold it; odd ones are shown in lists, but no filter finds them."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    return value if value.isprintable() else None


def _entered_at(entry: Mapping[str, Any], now_ms: int) -> int:
    headers = entry.get("responseHeader")
    for name, values in (headers if isinstance(headers, dict) else {}).items():
        if name.lower() == "date" and isinstance(values, list) and values and isinstance(values[0], str):
            dated = http_date_ms(values[0])
            if dated is not None:
                return dated
            break
    created = _fitting(entry.get("createdAt"))
    return min(created, now_ms) if isinstance(created, int) else now_ms


def get_state(connection: sqlite3.Connection, dlq_id: str) -> str | None:
    """The failure-function state of an entry."""
    row = connection.execute("SELECT state FROM dlq WHERE id = ?", (dlq_id,)).fetchone()
    return row["state"] if row else None


def set_state(connection: sqlite3.Connection, dlq_id: str, state: FunctionState) -> None:
    """Note where an entry's failure function stands; nothing happens when the entry is gone."""
    connection.execute("UPDATE dlq SET state = ? WHERE id = ?", (state, dlq_id))


def delete(connection: sqlite3.Connection, rows: Sequence[sqlite3.Row]) -> None:
    """Remove entries."""
    connection.executemany("DELETE FROM dlq WHERE seq = ?", ((row["seq"],) for row in rows))


def expire(connection: sqlite3.Connection, entered_before: int) -> int:
    """Remove what has been kept long enough; gives how many."""
    return connection.execute("DELETE FROM dlq WHERE entered_at < ?", (entered_before,)).rowcount


def body_of_entry(entry: Mapping[str, Any], name: str = "body") -> bytes:
    """A body of an entry, from either field."""
    try:
        encoded = base64.b64decode(entry.get(f"{name}Base64") or "", validate=True)
    except (binascii.Error, ValueError):
        encoded = b""
    return encoded or str(entry.get(name) or "").encode(errors="replace")


def header_pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    """The pairs of a header map of an entry."""
    found = headers if isinstance(headers, dict) else {}
    return tuple((name, str(value)) for name, values in found.items() for value in values)
