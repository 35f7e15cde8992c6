"""Workflow runs: their states, how they end and start again, and how the run log shows them.

States of a run::

    RUN_STARTED ──the endpoint ends it──────────────> RUN_SUCCESS
        │ ├──a step has failed for good: the DLQ────> RUN_FAILED
        │ └──canceled───────────────────────────────> RUN_CANCELED
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Required, TypedDict

import msgspec

from toolkit.local.api import ApiError
from toolkit.local.queue import dlq, steps
from toolkit.local.queue.intake import EventState, as_step, enqueue, record, run_state, start_run
from toolkit.local.queue.messages import Message, Settings, decode_message, new_id
from toolkit.local.queue.parameters import Condition, where


class RunEntry(TypedDict, total=False):
    """A run as the run log shows it. Entries that were filled in may have other fields, too."""

    workflowRunId: Required[str]
    workflowUrl: str
    workflowState: Literal["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"]


class RestartedRun(TypedDict):
    """A run that was started."""

    workflowRunId: str


def source_body(connection: sqlite3.Connection, message: Message) -> bytes | None:
    """The source body in callbacks: with the InitialBody feature, the payload of the run."""
    workflow = message.settings.workflow
    if workflow is None or message.kind == "call":
        return None
    first = first_message(connection, workflow.run_id)
    if first is None or first.settings.workflow is None:
        return None
    return first.body if "InitialBody" in first.settings.workflow.features else None


def first_message(connection: sqlite3.Connection, run_id: str | None) -> Message | None:
    """The message that started a run; None when that did not happen here."""
    row = connection.execute("SELECT first FROM runs WHERE id = ?", (run_id,)).fetchone()
    return decode_message(row["first"]) if row and row["first"] else None


def fail(connection: sqlite3.Connection, message: Message, *, now_ms: int) -> int | None:
    """Mark the message's run as failed; returns when the run was created.

    Its other pending deliveries and waits are parked until it is resumed.
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

    The result is passed to the run that invoked it.

    Raises `ApiError` with 404 when there is no such run, or nothing of it is left to end.
    """
    row = connection.execute("SELECT state, dlq_id FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise ApiError(404, f"run {run_id[:80]!r} is not known; expected the id of a run")
    if row["state"] == "RUN_STARTED":
        # the delivery that ended it has no response yet, and has reached its purpose
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


def cancel_all(connection: sqlite3.Connection, conditions: Iterable[Condition], *, now_ms: int) -> int:
    """Cancel the runs that are running and meet the conditions; returns how many."""
    wanted, values = where(*conditions)
    rows = connection.execute(
        f"SELECT id FROM runs WHERE state = 'RUN_STARTED' AND first IS NOT NULL AND {wanted}",  # noqa: S608 - SQL of this package, values bound
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
    """Add a step with how the run ended to the run that invoked it."""
    row = connection.execute("SELECT invoker FROM runs WHERE id = ?", (run_id,)).fetchone()
    invoker = decode_message(row["invoker"]) if row and row["invoker"] else None
    if invoker is None or run_state(connection, invoker) != "RUN_STARTED":
        return
    out = {"body": result.decode(errors="replace"), "isFailed": failed, "isCanceled": canceled}
    body = json.dumps({**json.loads(invoker.body), "out": json.dumps(out)}).encode()
    if steps.posted_before(connection, invoker.run_id, body) is None:
        step = msgspec.structs.replace(again(invoker, now_ms=now_ms), body=body)
        enqueue(connection, as_step(connection, step), now_ms=now_ms)


def _drop_messages(connection: sqlite3.Connection, run_id: str, state: EventState, now_ms: int) -> None:
    for row in connection.execute("SELECT spec FROM messages WHERE run_id = ?", (run_id,)).fetchall():
        record(connection, decode_message(row["spec"]), state, now_ms)
    connection.execute("DELETE FROM messages WHERE run_id = ?", (run_id,))
    connection.execute("DELETE FROM notifications WHERE run_id = ?", (run_id,))


def start_again(
    connection: sqlite3.Connection, failed: Message, *, from_failed_step: bool, now_ms: int
) -> dict[str, Any]:
    """Start a new run from a failed one: after its finished steps, or from the beginning.

    A resumed run also gets the other pending deliveries and waits of the failed one (parallel steps), unless
    its endpoint has posted the result already.
    """
    run_id = new_id("wfr")
    first = start_run(
        connection, _for_run(first_message(connection, failed.run_id) or failed, run_id, now_ms)
    )
    parked = connection.execute(
        "SELECT spec, due_at FROM parked WHERE run_id = ? ORDER BY rowid", (failed.run_id,)
    ).fetchall()
    connection.execute("DELETE FROM parked WHERE run_id = ?", (failed.run_id,))
    if not from_failed_step or failed.step == 0:
        enqueue(connection, first, now_ms=now_ms)
        return {"workflowRunId": run_id, "workflowCreatedAt": now_ms}
    steps.copy(connection, failed.run_id, run_id)
    waiting = [(decode_message(row["spec"]), max(now_ms, row["due_at"])) for row in parked]
    left = [
        (message, due_at)
        for message, due_at in [(failed, now_ms), *waiting]
        if not steps.has_result(connection, message)
    ]
    for message, due_at in left or [(failed, now_ms)]:
        following = msgspec.structs.replace(_for_run(message, run_id, now_ms), not_before=due_at)
        enqueue(connection, following, now_ms=now_ms)
    return {"workflowRunId": run_id, "workflowCreatedAt": now_ms}


def again(message: Message, *, now_ms: int) -> Message:
    """The message under a new id, due now."""
    return msgspec.structs.replace(message, id=new_id("msg"), created_at=now_ms, not_before=now_ms)


def _for_run(message: Message, run_id: str, now_ms: int) -> Message:
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


def insert(connection: sqlite3.Connection, entries: Iterable[Mapping[str, Any]]) -> int:
    """Fill in runs, shown exactly as given; returns how many are new."""
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
