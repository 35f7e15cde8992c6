"""Workflow runs: their states, how they end, and how the run log shows them.

States of a run::

    RUN_STARTED ──the endpoint ends it──────────────> RUN_SUCCESS
        │ ├──a step is given up: the DLQ────────────> RUN_FAILED
        │ └──canceled───────────────────────────────> RUN_CANCELED
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from toolkit.local.answers import ApiError
from toolkit.local.queue import dlq, steps
from toolkit.local.queue.events import EventState, record
from toolkit.local.queue.intake import as_step, enqueue, run_state
from toolkit.local.queue.invoking import result_step
from toolkit.local.queue.message import Message, decode_message, new_id


def source_body(connection: sqlite3.Connection, message: Message) -> bytes | None:
    """What callbacks name as source body: with the InitialBody feature, what the run was started with."""
    workflow = message.settings.workflow
    if workflow is None or message.kind == "call":
        return None
    first = first_message(connection, workflow.run_id)
    if first is None:
        return None
    features = first.settings.workflow.features if first.settings.workflow else ()
    return first.body if "InitialBody" in features else None


def first_message(connection: sqlite3.Connection, run_id: str) -> Message | None:
    """The message that started a run; None when that did not happen here."""
    row = connection.execute("SELECT first FROM runs WHERE id = ?", (run_id,)).fetchone()
    return decode_message(row["first"]) if row and row["first"] else None


def fail(connection: sqlite3.Connection, message: Message, *, now_ms: int) -> int | None:
    """Mark the message's run as failed and give its creation time.

    What else it had to deliver or to wait for is not sent any more, and kept for when it is resumed.
    """
    if message.run_id is None:
        return None
    connection.execute(
        "INSERT INTO parked (run_id, due_at, spec) "
        "SELECT run_id, due_at, spec FROM messages WHERE run_id = ? ORDER BY seq",
        (message.run_id,),
    )
    _drop_messages(connection, message.run_id, "CANCELED", now_ms)
    failed = connection.execute(
        "UPDATE runs SET state = 'RUN_FAILED', completed_at = ? WHERE id = ? AND state = 'RUN_STARTED'",
        (now_ms, message.run_id),
    ).rowcount
    if failed:
        _tell_invoker(connection, message.run_id, b"", failed=True, now_ms=now_ms)
    row = connection.execute("SELECT created_at FROM runs WHERE id = ?", (message.run_id,)).fetchone()
    return row["created_at"] if row else message.created_at


def end(
    connection: sqlite3.Connection, run_id: str, *, cancel: bool, now_ms: int, result: bytes = b""
) -> None:
    """End a run: as a success, as its endpoint does, or by canceling it or its failure function.

    A run that invoked it is handed the result.

    Raises
    ------
    ApiError
        404 when there is no such run, or nothing of it is left to end.
    """
    row = connection.execute("SELECT state, dlq_id FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise ApiError(404, f"run {run_id[:80]!r} is not known; expected the id of a run")
    if row["state"] == "RUN_STARTED":
        # the delivery that ended it is under way still, and has reached its purpose
        _drop_messages(connection, run_id, "CANCELED" if cancel else "DELIVERED", now_ms)
        state = "RUN_CANCELED" if cancel else "RUN_SUCCESS"
        connection.execute(
            "UPDATE runs SET state = ?, completed_at = ? WHERE id = ?", (state, now_ms, run_id)
        )
        _tell_invoker(connection, run_id, result, canceled=cancel, now_ms=now_ms)
    elif cancel and row["dlq_id"] and dlq.get_state(connection, row["dlq_id"]) == "CALLBACK_INPROGRESS":
        _drop_messages(connection, run_id, "CANCELED", now_ms)
        dlq.set_state(connection, row["dlq_id"], "CALLBACK_CANCELED")
    else:
        raise ApiError(
            404, f"run {run_id[:80]!r} has ended already; got {row['state']}; expected RUN_STARTED"
        )


def cancel_all(
    connection: sqlite3.Connection, where: str, values: Sequence[int | str], *, now_ms: int
) -> int:
    """Cancel the runs that are running and meet a condition; gives how many."""
    rows = connection.execute(
        f"SELECT id FROM runs WHERE state = 'RUN_STARTED' AND first IS NOT NULL AND {where}",  # noqa: S608 - the condition is of this package, its values bound
        values,
    ).fetchall()
    for row in rows:
        end(connection, row["id"], cancel=True, now_ms=now_ms)
    return len(rows)


def _tell_invoker(
    connection: sqlite3.Connection,
    run_id: str,
    result: bytes,
    *,
    failed: bool = False,
    canceled: bool = False,
    now_ms: int,
) -> None:
    row = connection.execute("SELECT invoker FROM runs WHERE id = ?", (run_id,)).fetchone()
    invoker = decode_message(row["invoker"]) if row and row["invoker"] else None
    if invoker is None or run_state(connection, invoker) != "RUN_STARTED":
        return
    step = msgspec.structs.replace(
        invoker,
        id=new_id("msg"),
        body=result_step(invoker, result, failed=failed, canceled=canceled),
        created_at=now_ms,
        not_before=now_ms,
    )
    if steps.posted_before(connection, step.run_id, step.body) is None:
        enqueue(connection, as_step(connection, step), now_ms=now_ms)


def _drop_messages(connection: sqlite3.Connection, run_id: str, state: EventState, now_ms: int) -> None:
    for row in connection.execute("SELECT spec FROM messages WHERE run_id = ?", (run_id,)).fetchall():
        record(connection, decode_message(row["spec"]), state, now_ms)
    connection.execute("DELETE FROM messages WHERE run_id = ?", (run_id,))
    connection.execute("DELETE FROM notifications WHERE run_id = ?", (run_id,))


def insert(connection: sqlite3.Connection, entries: Iterable[Mapping[str, Any]]) -> int:
    """Fill in runs as they are listed elsewhere; they are shown exactly as given. Gives how many are new."""
    before = connection.total_changes
    connection.executemany(
        "INSERT OR IGNORE INTO runs (id, url, state, created_at, completed_at, dlq_id, labels, caller_ip, "
        "flow_key, entry) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                entry["workflowRunId"],
                entry.get("workflowUrl"),
                entry.get("workflowState"),
                entry.get("workflowRunCreatedAt") or 0,
                entry.get("workflowRunCompletedAt"),
                entry.get("dlqId"),
                json.dumps(entry.get("labels") or []),
                entry.get("callerIP"),
                entry.get("flowControlKey"),
                json.dumps(entry),
            )
            for entry in entries
        ),
    )
    return connection.total_changes - before


def shown(connection: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    """A run as the run log shows it."""
    if row["entry"] is not None:
        given: dict[str, Any] = json.loads(row["entry"])
        return given
    found = {
        "workflowRunId": row["id"],
        "workflowUrl": row["url"],
        "workflowState": row["state"],
        "workflowRunCreatedAt": row["created_at"],
        "labels": json.loads(row["labels"]),
        "steps": steps.shown(connection, row["id"]),
    }
    if row["invoker"]:
        workflow = decode_message(row["invoker"]).settings.workflow
        if workflow:
            found["invoker"] = {"workflowRunId": workflow.run_id, "workflowUrl": workflow.url}
    if found["labels"]:
        found["label"] = found["labels"][0]
    if row["completed_at"] is not None:
        found["workflowRunCompletedAt"] = row["completed_at"]
    if row["dlq_id"] is not None:
        found["dlqId"] = row["dlq_id"]
    return found


def expire(connection: sqlite3.Connection, ended_before: int) -> None:
    """Remove runs that ended long enough ago, with their history."""
    ended = "state != 'RUN_STARTED' AND coalesce(completed_at, created_at) < ?"
    for table in ("steps", "parked", "notifications"):
        connection.execute(
            f"DELETE FROM {table} WHERE run_id IN (SELECT id FROM runs WHERE {ended})",  # noqa: S608 - names from above
            (ended_before,),
        )
    connection.execute(f"DELETE FROM runs WHERE {ended}", (ended_before,))  # noqa: S608 - from above
