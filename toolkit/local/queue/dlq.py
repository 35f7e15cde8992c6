"""The dead letter queue: messages whose delivery failed for good, how they are stored, found and removed."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from toolkit.local.operations import Texts, Timestamp
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.listing import Condition, FlowKey, ListQuery, Position, json_field, page, sql
from toolkit.local.queue.messages import (
    Attempt,
    FunctionState,
    Message,
    Settings,
    WorkflowHeaders,
    dlq_entry,
    new_id,
)
from toolkit.local.queue.sender import check_url
from toolkit.times import http_date_ms

_COLUMNS: Final = {
    "created_at": "createdAt", "workflow_url": "workflowUrl", "run_id": "workflowRunId",
    "workflow_created_at": "workflowCreatedAt", "caller_ip": "callerIP", "flow_key": "flowControlKey",
}  # fmt: skip


class DlqQuery(ListQuery):
    """Filters of the dead letter queues: an entry passes that matches all that are given."""

    workflow_url: Texts = ()
    workflow_run_id: Annotated[str, sql("run_id = {}", "This one.")] = ""
    workflow_created_at: Annotated[Timestamp, sql("workflow_created_at = {}")] | None = None
    label: Annotated[Texts, sql("seq IN (SELECT dlq_seq FROM dlq_labels WHERE label IN ({}))")] = ()
    failure_function_state: Annotated[Texts, sql("state IN ({})")] = ()
    failure_callback_state: Annotated[
        Texts, sql("state IN ({})", "Another name of failureFunctionState.")
    ] = ()
    caller_ip: Texts = ()
    flow_control_key: FlowKey = ()
    message_id: Annotated[Texts, sql(json_field("messageId"))] = ()
    response_status: Annotated[Texts, sql(json_field("responseStatus"))] = ()
    topic_name: Annotated[Texts, sql(json_field("topicName"))] = ()
    queue_name: Annotated[Texts, sql(json_field("queueName"))] = ()
    schedule_id: Annotated[Texts, sql(json_field("scheduleId"))] = ()
    dlq_ids: Annotated[Texts, sql("id IN ({})", "These entries.")] = ()


class MessageDlqQuery(DlqQuery):
    """The same for plain messages."""

    url: Annotated[Texts, sql(json_field("url"))] = ()


def entries(
    tx: QueueWrite, query: DlqQuery, *, workflow: bool, entered_since: int, after: Position | None = None
) -> tuple[list[sqlite3.Row], Position | None]:
    """A page of entries of runs or of plain messages, and the position of the last if there are more."""
    # "+" keeps SQLite from walking the whole list where an index leads to the few that are named
    few = "+" if query.dlq_ids or query.workflow_run_id else ""
    queue: tuple[Condition, ...] = (
        (f"{few}workflow = {{}}", int(workflow)),
        (f"{few}entered_at >= {{}}", entered_since),
    )
    return page(tx, "dlq", "entered_at", query, *queue, after=after)


def shown(row: sqlite3.Row) -> str:
    """The JSON of an entry as lists and single reads show it."""
    entry: str = row["entry"]  # an object that holds at least its id
    if row["state"] is None:
        return entry
    return f'{entry[:-1]}, "failureFunctionState": {json.dumps(row["state"])}}}'


def add(tx: QueueWrite, attempt: Attempt, *, run_created_at: int | None) -> str:
    """Add the message of a failed attempt; returns its DLQ id."""
    message = attempt.message
    dlq_id = f"{tx.now_ms}-{secrets.token_hex(6)}"
    entry = dlq_entry(attempt, dlq_id=dlq_id, run_created_at=run_created_at)
    workflow = message.run_id is not None
    _insert(tx, entry, workflow=workflow, entered_at=tx.now_ms, message=message.encode())
    if workflow:
        tx.execute("UPDATE runs SET dlq_id = ? WHERE id = ?", dlq_id, message.run_id)
    return dlq_id


def insert(tx: QueueWrite, given: Iterable[Mapping[str, Any]], *, workflow: bool) -> int:
    """Fill in entries, which entered when their response was dated or they were created; how many are new."""
    new = 0
    for entry in given:
        if tx.first("SELECT 1 FROM dlq WHERE id = ?", entry["dlqId"]) is None:
            entered_at = _entered_at(entry, tx.now_ms)
            _insert(tx, entry, workflow=workflow, entered_at=entered_at, message=None)
            new += 1
    return new


def _insert(
    tx: QueueWrite, entry: Mapping[str, Any], *, workflow: bool, entered_at: int, message: bytes | None
) -> None:
    stored, state = dict(entry), entry.get("failureFunctionState")
    if isinstance(state, str) and _storable(state) is not None:
        del stored["failureFunctionState"]  # it changes: its column holds the current value
    seq = tx.insert(
        "dlq",
        id=entry["dlqId"],
        workflow=workflow,
        entered_at=entered_at,
        **{column: _storable(entry.get(name)) for column, name in _COLUMNS.items()},
        state=None if "failureFunctionState" in stored else state,
        entry=json.dumps(stored),
        message=message,
    )
    given = entry.get("labels")
    labels = {
        label
        for label in (*(given if isinstance(given, list) else ()), entry.get("label"))
        if isinstance(label, str) and label and _storable(label) is not None
    }
    for label in sorted(labels):
        tx.insert("dlq_labels", dlq_seq=seq, label=label)


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


def cancel_callback(tx: QueueWrite, dlq_id: str | None) -> bool:
    """Cancel the failure function of an entry; whether it was running."""
    canceled = tx.execute(
        "UPDATE dlq SET state = 'CALLBACK_CANCELED' WHERE id = ? AND state = 'CALLBACK_INPROGRESS'", dlq_id
    )
    return canceled.rowcount > 0


def set_state(tx: QueueWrite, dlq_id: str, state: FunctionState) -> None:
    """Set the failure-function state of an entry; nothing happens when the entry does not exist."""
    tx.execute("UPDATE dlq SET state = ? WHERE id = ?", state, dlq_id)


def delete(tx: QueueWrite, row: sqlite3.Row) -> None:
    """Remove an entry."""
    tx.execute("DELETE FROM dlq WHERE seq = ?", row["seq"])


def body_of_entry(entry: Mapping[str, Any], name: str = "body") -> bytes:
    """A body of an entry, from either field."""
    try:
        encoded = base64.b64decode(entry.get(f"{name}Base64") or "", validate=True)
    except (binascii.Error, ValueError):
        encoded = b""
    return encoded or str(entry.get(name) or "").encode(errors="replace")


def header_pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    """The pairs of a header map of an entry."""
    lists = headers if isinstance(headers, dict) else {}
    return tuple((name, str(value)) for name, values in lists.items() for value in values)


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
