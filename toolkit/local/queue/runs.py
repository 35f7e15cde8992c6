"""Workflow runs: their history, their states, and starting them anew from what the DLQ kept.

States of a run::

    RUN_STARTED ──the endpoint ends it──────────────> RUN_SUCCESS
        │ ├──a step is given up: the DLQ────────────> RUN_FAILED
        │ └──canceled───────────────────────────────> RUN_CANCELED
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from toolkit.local.answers import Refusal
from toolkit.local.queue import dlq
from toolkit.local.queue.destinations import check_url
from toolkit.local.queue.events import record
from toolkit.local.queue.intake import enqueue, start_run
from toolkit.local.queue.message import Message, Settings, Workflow, decode_message, new_id


def history(connection: sqlite3.Connection, message: Message) -> list[tuple[str, bytes]]:
    """Message id and body of the run's steps up to the one that this message delivers."""
    if message.step is None:
        return []
    rows = connection.execute(
        "SELECT message_id, body FROM steps WHERE run_id = ? AND position <= ? ORDER BY position",
        (message.run_id, message.step),
    )
    return [(row["message_id"], row["body"]) for row in rows]


def steps(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, bytes]]:
    """Message id and body of all steps of a run, its start first."""
    rows = connection.execute(
        "SELECT message_id, body FROM steps WHERE run_id = ? ORDER BY position", (run_id,)
    )
    return [(row["message_id"], row["body"]) for row in rows]


def source_body(connection: sqlite3.Connection, message: Message) -> bytes | None:
    """What callbacks name as source body: with the InitialBody feature, what the run was started with."""
    workflow = message.settings.workflow
    if workflow is None or message.kind == "call":
        return None
    row = connection.execute("SELECT first FROM runs WHERE id = ?", (workflow.run_id,)).fetchone()
    if row is None or row["first"] is None:
        return None
    first = decode_message(row["first"])
    features = first.settings.workflow.features if first.settings.workflow else ()
    return first.body if "InitialBody" in features else None


def fail(connection: sqlite3.Connection, message: Message, *, now_ms: int) -> int | None:
    """Mark the message's run as failed and drop its other messages; gives the run's creation time."""
    if message.run_id is None:
        return None
    _drop_messages(connection, message.run_id, now_ms)
    connection.execute(
        "UPDATE runs SET state = 'RUN_FAILED', completed_at = ? WHERE id = ? AND state = 'RUN_STARTED'",
        (now_ms, message.run_id),
    )
    row = connection.execute("SELECT created_at FROM runs WHERE id = ?", (message.run_id,)).fetchone()
    return row["created_at"] if row else message.created_at


def end(connection: sqlite3.Connection, run_id: str, *, cancel: bool, now_ms: int) -> None:
    """End a run: as a success, as its endpoint does, or by canceling it or its failure function.

    Raises
    ------
    Refusal
        404 when there is no such run, or nothing of it is left to end.
    """
    row = connection.execute("SELECT state, dlq_id FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise Refusal(404, f"run {run_id[:80]!r} is not known; expected the id of a run")
    if row["state"] == "RUN_STARTED":
        _drop_messages(connection, run_id, now_ms)
        state = "RUN_CANCELED" if cancel else "RUN_SUCCESS"
        connection.execute(
            "UPDATE runs SET state = ?, completed_at = ? WHERE id = ?", (state, now_ms, run_id)
        )
    elif cancel and row["dlq_id"] and dlq.get_state(connection, row["dlq_id"]) == "CALLBACK_INPROGRESS":
        _drop_messages(connection, run_id, now_ms)
        dlq.set_state(connection, row["dlq_id"], "CALLBACK_CANCELED")
    else:
        raise Refusal(404, f"run {run_id[:80]!r} has ended already; got {row['state']}; expected RUN_STARTED")


def _drop_messages(connection: sqlite3.Connection, run_id: str, now_ms: int) -> None:
    for row in connection.execute("SELECT spec FROM messages WHERE run_id = ?", (run_id,)).fetchall():
        record(connection, decode_message(row["spec"]), "CANCELED", now_ms)
    connection.execute("DELETE FROM messages WHERE run_id = ?", (run_id,))


def start_again(
    connection: sqlite3.Connection, failed: Message, *, from_failed_step: bool, now_ms: int
) -> dict[str, Any]:
    """Start a new run from a failed one: behind its finished steps, or from the beginning.

    Returns
    -------
    dict
        ``workflowRunId`` and ``workflowCreatedAt`` of the new run.
    """
    run_id = new_id("wfr")
    old = connection.execute("SELECT first FROM runs WHERE id = ?", (failed.run_id,)).fetchone()
    first = _moved(decode_message(old["first"]) if old and old["first"] else failed, run_id, now_ms)
    first = start_run(connection, first)
    if not from_failed_step or failed.step == 0:
        enqueue(connection, first, now_ms=now_ms)
    else:
        connection.execute(
            "INSERT INTO steps (run_id, position, message_id, body) "
            "SELECT ?, position, message_id, body FROM steps WHERE run_id = ? AND position > 0",
            (run_id, failed.run_id),
        )
        enqueue(connection, _moved(failed, run_id, now_ms), now_ms=now_ms)
    return {"workflowRunId": run_id, "workflowCreatedAt": now_ms}


def again(message: Message, *, now_ms: int) -> Message:
    """The message under a new id, due now."""
    return msgspec.structs.replace(message, id=new_id("msg"), created_at=now_ms, not_before=now_ms)


def _moved(message: Message, run_id: str, now_ms: int) -> Message:
    """The message as one of another run, due now."""
    return msgspec.structs.replace(
        again(message, now_ms=now_ms),
        settings=_in_run(message.settings, run_id),
        callback=message.callback and _in_run(message.callback, run_id),
        failure_callback=message.failure_callback and _in_run(message.failure_callback, run_id),
    )


def _in_run(settings: Settings, run_id: str) -> Settings:
    workflow = settings.workflow
    if workflow is None:
        return settings
    return msgspec.structs.replace(settings, workflow=msgspec.structs.replace(workflow, run_id=run_id))


def message_of_entry(entry: Mapping[str, Any]) -> Message:
    """A message that can start a run again, from a DLQ entry that was filled in without one."""
    url = check_url(str(entry.get("url") or entry.get("workflowUrl") or ""), f"the URL of {entry['dlqId']!r}")
    failure_callback = entry.get("failureCallback")
    return Message(
        id=str(entry.get("messageId") or new_id("msg")),
        kind="step",
        prefix="Service-",
        settings=Settings(
            url=url,
            method=entry.get("method"),
            headers=dlq.header_pairs(entry.get("header")),
            labels=tuple(entry.get("labels") or ()),
            workflow=Workflow(
                run_id=str(entry.get("workflowRunId") or ""), url=str(entry.get("workflowUrl") or url)
            ),
        ),
        created_at=int(entry.get("createdAt") or 0),
        not_before=0,
        body=dlq.body_of_entry(entry),
        failure_callback=Settings(url=str(failure_callback)) if failure_callback else None,
        step=0,
    )


def insert(connection: sqlite3.Connection, entries: Iterable[Mapping[str, Any]]) -> int:
    """Fill in runs as they are listed elsewhere; they are shown exactly as given. Gives how many are new."""
    before = connection.total_changes
    connection.executemany(
        "INSERT OR IGNORE INTO runs (id, url, state, created_at, completed_at, dlq_id, labels, entry) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                entry["workflowRunId"],
                entry.get("workflowUrl"),
                entry.get("workflowState"),
                entry.get("workflowRunCreatedAt") or 0,
                entry.get("workflowRunCompletedAt"),
                entry.get("dlqId"),
                json.dumps(entry.get("labels") or []),
                json.dumps(entry),
            )
            for entry in entries
        ),
    )
    return connection.total_changes - before


def shown(row: sqlite3.Row) -> dict[str, Any]:
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
    }
    if row["completed_at"] is not None:
        found["workflowRunCompletedAt"] = row["completed_at"]
    if row["dlq_id"] is not None:
        found["dlqId"] = row["dlq_id"]
    return found


def expire(connection: sqlite3.Connection, ended_before: int) -> None:
    """Remove runs that ended long enough ago, with their history."""
    connection.execute(
        "DELETE FROM steps WHERE run_id IN "
        "(SELECT id FROM runs WHERE state != 'RUN_STARTED' AND coalesce(completed_at, created_at) < ?)",
        (ended_before,),
    )
    connection.execute(
        "DELETE FROM runs WHERE state != 'RUN_STARTED' AND coalesce(completed_at, created_at) < ?",
        (ended_before,),
    )
