"""The dead letter queue: messages whose delivery failed for good, how they are stored, found and removed."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolkit.local.queue.destinations import check_url
from toolkit.local.queue.messages import (
    Attempt,
    FunctionState,
    Message,
    Settings,
    WorkflowHeaders,
    dlq_entry,
    new_id,
)
from toolkit.local.queue.parameters import Condition, DlqQuery, MessageDlqQuery, Position, json_field, where
from toolkit.times import http_date_ms

_COLUMNS: Final = (
    "createdAt", "workflowUrl", "workflowRunId", "workflowCreatedAt", "callerIP", "flowControlKey",
)  # fmt: skip


class DlqSelection(NamedTuple):
    """The entries, of runs or of plain messages, that the query and the body of a request select."""

    workflow: bool
    query: DlqQuery
    ids: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether neither ids nor a filter is given."""
        return not where(*self._filters())[1]

    def page(
        self, connection: sqlite3.Connection, *, after: Position | None, entered_since: int
    ) -> tuple[list[sqlite3.Row], Position | None]:
        """A page of entries, newest first, and the position of the last; None when there are no more.

        `fromDate` and `toDate` are compared with ``createdAt``, not with when an entry entered the queue.
        """
        # "+" keeps SQLite from walking the whole list where an index leads to the few that are named
        few = "+" if self.ids or self.query.dlq_ids or self.query.workflow_run_id else ""
        conditions, values = where(
            (f"{few}workflow = {{}}", int(self.workflow)),
            (f"{few}entered_at >= {{}}", entered_since),
            *self._filters(),
            (f"({few}entered_at, seq) < ({{}})", after),
        )
        most = self.query.count
        rows = connection.execute(
            f"SELECT * FROM dlq WHERE {conditions} ORDER BY entered_at DESC, seq DESC LIMIT ?",  # noqa: S608 - SQL of this package, values bound
            (*values, most + 1),
        ).fetchall()
        last = rows[most - 1] if len(rows) > most else None
        return rows[:most], last and (last["entered_at"], last["seq"])

    def _filters(self) -> tuple[Condition, ...]:
        query = self.query
        return (
            ("created_at >= {}", query.from_date),
            ("created_at <= {}", query.to_date),
            ("workflow_created_at = {}", query.workflow_created_at),
            ("run_id = {}", query.workflow_run_id or None),
            ("workflow_url IN ({})", query.workflow_url),
            (json_field("url"), query.url if isinstance(query, MessageDlqQuery) else ()),
            ("state IN ({})", (*query.failure_function_state, *query.failure_callback_state)),
            ("caller_ip IN ({})", query.caller_ip),
            ("flow_key IN ({})", query.flow_control_key),
            ("id IN ({})", (*query.dlq_ids, *self.ids)),
            ("seq IN (SELECT dlq_seq FROM dlq_labels WHERE label IN ({}))", query.label),
            (json_field("messageId"), query.message_id),
            (json_field("responseStatus"), query.response_status),
            (json_field("topicName"), query.topic_name),
            (json_field("queueName"), query.queue_name),
            (json_field("scheduleId"), query.schedule_id),
        )


def shown(row: sqlite3.Row) -> str:
    """The JSON of an entry as lists and single reads show it."""
    entry: str = row["entry"]  # an object that holds at least its id
    if row["state"] is None:
        return entry
    return f'{entry[:-1]}, "failureFunctionState": {json.dumps(row["state"])}}}'


def add(connection: sqlite3.Connection, attempt: Attempt, *, run_created_at: int | None) -> str:
    """Add the message of a failed attempt; returns its DLQ id."""
    message = attempt.message
    dlq_id = f"{attempt.now_ms}-{secrets.token_hex(6)}"
    entry = dlq_entry(attempt, dlq_id=dlq_id, run_created_at=run_created_at)
    workflow = message.run_id is not None
    _insert(connection, entry, workflow=workflow, entered_at=attempt.now_ms, message=message.encode())
    if workflow:
        connection.execute("UPDATE runs SET dlq_id = ? WHERE id = ?", (dlq_id, message.run_id))
    return dlq_id


def insert(
    connection: sqlite3.Connection, entries: Iterable[Mapping[str, Any]], *, workflow: bool, now_ms: int
) -> int:
    """Fill in entries, shown exactly as given; returns how many are new.

    They entered the DLQ when their response was dated, or else when they were created.
    """
    new = 0
    for entry in entries:
        if connection.execute("SELECT 1 FROM dlq WHERE id = ?", (entry["dlqId"],)).fetchone() is None:
            _insert(connection, entry, workflow=workflow, entered_at=_entered_at(entry, now_ms), message=None)
            new += 1
    return new


def _insert(
    connection: sqlite3.Connection,
    entry: Mapping[str, Any],
    *,
    workflow: bool,
    entered_at: int,
    message: bytes | None,
) -> None:
    stored, state = dict(entry), entry.get("failureFunctionState")
    if isinstance(state, str) and _storable(state) is not None:
        del stored["failureFunctionState"]  # it changes: its column holds the current value
    seq = connection.execute(
        "INSERT INTO dlq (id, workflow, entered_at, created_at, workflow_url, run_id, workflow_created_at, "
        "caller_ip, flow_key, state, entry, message) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry["dlqId"],
            workflow,
            entered_at,
            *(_storable(entry.get(name)) for name in _COLUMNS),
            None if "failureFunctionState" in stored else state,
            json.dumps(stored),
            message,
        ),
    ).lastrowid
    given = entry.get("labels")
    labels = {
        label
        for label in (*(given if isinstance(given, list) else ()), entry.get("label"))
        if isinstance(label, str) and label and _storable(label) is not None
    }
    connection.executemany("INSERT INTO dlq_labels VALUES (?, ?)", ((seq, label) for label in sorted(labels)))


def _storable(value: Any) -> Any:
    """The value when a column can hold it; others are shown in lists, but no filter finds them."""
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
    created = _storable(entry.get("createdAt"))
    return min(created, now_ms) if isinstance(created, int) else now_ms


def get_state(connection: sqlite3.Connection, dlq_id: str) -> str | None:
    """The failure-function state of an entry."""
    row = connection.execute("SELECT state FROM dlq WHERE id = ?", (dlq_id,)).fetchone()
    return row["state"] if row else None


def set_state(connection: sqlite3.Connection, dlq_id: str, state: FunctionState) -> None:
    """Set the failure-function state of an entry; nothing happens when the entry does not exist."""
    connection.execute("UPDATE dlq SET state = ? WHERE id = ?", (state, dlq_id))


def delete(connection: sqlite3.Connection, rows: Sequence[sqlite3.Row]) -> None:
    """Remove entries."""
    connection.executemany("DELETE FROM dlq WHERE seq = ?", ((row["seq"],) for row in rows))


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


def message_of_entry(entry: Mapping[str, Any], prefix: str) -> Message:
    """A message that can start a run again, from an entry that was filled in without one."""
    url = check_url(str(entry.get("url") or entry.get("workflowUrl") or ""), f"the URL of {entry['dlqId']!r}")
    failure_callback = entry.get("failureCallback")
    return Message(
        id=str(entry.get("messageId") or new_id("msg")),
        kind="step",
        prefix=prefix,
        settings=Settings(
            url=url,
            method=entry.get("method"),
            headers=header_pairs(entry.get("header")),
            labels=tuple(entry.get("labels") or ()),
            workflow=WorkflowHeaders(
                run_id=str(entry.get("workflowRunId") or ""), url=str(entry.get("workflowUrl") or url)
            ),
        ),
        created_at=int(entry.get("createdAt") or 0),
        not_before=0,
        body=body_of_entry(entry),
        failure_callback=Settings(url=str(failure_callback)) if failure_callback else None,
        step=0,
    )
