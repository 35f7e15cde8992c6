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
from functools import partial
from typing import Any, Literal, Required, TypedDict

import msgspec

from toolkit.local.api import ApiError
from toolkit.local.queue import dlq, steps
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.listing import Condition, where
from toolkit.local.queue.messages import Message, Settings, decode_message, new_id
from toolkit.local.queue.steps import REQUESTED, EventState, again, enqueue, record


class RunEntry(TypedDict, total=False):
    """A run as the run log shows it. Entries that were filled in may have other fields, too."""

    workflowRunId: Required[str]
    workflowUrl: str
    workflowState: Literal["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"]


class RestartedRun(TypedDict):
    """A run that was started."""

    workflowRunId: str


def fail(tx: QueueWrite, message: Message) -> int | None:
    """Mark the message's run as failed and park its other deliveries; returns when the run was created."""
    if message.run_id is None:
        return None
    tx.execute(
        "INSERT INTO parked (run_id, due_at, spec) "
        "SELECT run_id, due_at, spec FROM messages WHERE run_id = ? ORDER BY seq",
        message.run_id,
    )
    _drop_messages(tx, message.run_id, "CANCELED")
    failed = tx.execute(
        "UPDATE runs SET state = 'RUN_FAILED', completed_at = ? WHERE id = ? AND state = 'RUN_STARTED'",
        tx.now_ms,
        message.run_id,
    ).rowcount
    if failed:
        _report_to_invoker(tx, message.run_id, b"", failed=True)
    row = tx.first("SELECT created_at FROM runs WHERE id = ?", message.run_id)
    return row["created_at"] if row else message.created_at


def end(tx: QueueWrite, run_id: str, *, cancel: bool, result: bytes = b"") -> None:
    """End a run, as its endpoint does or by canceling it, and pass the result to the run that invoked it."""
    row = tx.first("SELECT state, dlq_id FROM runs WHERE id = ?", run_id)
    if row is None:
        raise ApiError(404, f"run {run_id[:80]!r} is not known; expected the id of a run")
    if row["state"] == "RUN_STARTED":
        # the delivery that ended it has no response yet, and has reached its purpose
        _drop_messages(tx, run_id, *(REQUESTED if cancel else ("DELIVERED",)))
        state = "RUN_CANCELED" if cancel else "RUN_SUCCESS"
        tx.execute("UPDATE runs SET state = ?, completed_at = ? WHERE id = ?", state, tx.now_ms, run_id)
        _report_to_invoker(tx, run_id, result, canceled=cancel)
    elif cancel and dlq.cancel_callback(tx, row["dlq_id"]):
        _drop_messages(tx, run_id, *REQUESTED)
    else:
        raise ApiError(
            404, f"run {run_id[:80]!r} has ended already; got {row['state']}; expected RUN_STARTED"
        )


def cancel_all(tx: QueueWrite, conditions: Iterable[Condition], count: int | None = None) -> int:
    """Cancel the runs that are running and meet the conditions, at most `count`; returns how many."""
    wanted, values = where(*conditions)
    running_here = f"SELECT id FROM runs WHERE state = 'RUN_STARTED' AND first IS NOT NULL AND {wanted}"  # noqa: S608 - SQL of this package, values bound
    rows = tx.rows(f"{running_here} ORDER BY seq LIMIT ?", *values, -1 if count is None else count)
    for row in rows:
        end(tx, row["id"], cancel=True)
    return len(rows)


def _report_to_invoker(
    tx: QueueWrite, run_id: str, result: bytes, *, failed: bool = False, canceled: bool = False
) -> None:
    """Add a step with how the run ended to the run that invoked it."""
    row = tx.first("SELECT invoker FROM runs WHERE id = ?", run_id)
    invoker = decode_message(row["invoker"]) if row and row["invoker"] else None
    if invoker is None or steps.running(tx, invoker.run_id) is None:
        return
    out = {"body": result.decode(errors="replace"), "isFailed": failed, "isCanceled": canceled}
    body = json.dumps({**json.loads(invoker.body), "out": json.dumps(out)}).encode()
    if steps.posted_before(tx, invoker.run_id, body) is None:
        enqueue(tx, steps.as_step(tx, msgspec.structs.replace(again(tx, invoker), body=body)))


def _drop_messages(tx: QueueWrite, run_id: str, *states: EventState) -> None:
    for row in tx.rows("SELECT spec FROM messages WHERE run_id = ?", run_id):
        for state in states:
            record(tx, decode_message(row["spec"]), state)
    tx.execute("DELETE FROM messages WHERE run_id = ?", run_id)
    tx.execute("DELETE FROM notifications WHERE run_id = ?", run_id)


def start_again(
    tx: QueueWrite, failed: Message, *, from_failed_step: bool, requested: Settings
) -> dict[str, Any]:
    """Start a new run from a failed one: after its finished steps, or from the beginning.

    A resumed run also gets the pending deliveries and waiters of the failed one (parallel steps), unless
    its endpoint has posted the result already. What `requested` says replaces the failed run's settings: the
    id, retries, labels and flow control.
    """
    run_id = requested.workflow.run_id if requested.workflow else new_id("wfr")
    if tx.first("SELECT 1 FROM runs WHERE id = ?", run_id) is not None:
        raise ApiError(409, f"run {run_id[:80]!r} exists already; expected the id of a new run")
    for_run = partial(_as_requested, requested, run_id)
    first = steps.start_run(tx, for_run(tx, steps.first_message(tx, failed.run_id) or failed))
    parked = tx.rows("SELECT spec, due_at FROM parked WHERE run_id = ? ORDER BY rowid", failed.run_id)
    tx.execute("DELETE FROM parked WHERE run_id = ?", failed.run_id)
    if not from_failed_step or failed.step == 0:
        enqueue(tx, first)
        return {"workflowRunId": run_id, "workflowCreatedAt": tx.now_ms}
    steps.copy(tx, failed.run_id, run_id)
    waiting = [(decode_message(row["spec"]), max(tx.now_ms, row["due_at"])) for row in parked]
    left = [
        (message, due_at)
        for message, due_at in [(failed, tx.now_ms), *waiting]
        if not steps.has_result(tx, message)
    ]
    for message, due_at in left or [(failed, tx.now_ms)]:
        enqueue(tx, msgspec.structs.replace(for_run(tx, message), not_before=due_at))
    return {"workflowRunId": run_id, "workflowCreatedAt": tx.now_ms}


def _as_requested(requested: Settings, run_id: str, tx: QueueWrite, message: Message) -> Message:
    """The message as one of another run with other settings, due now."""
    given = {
        name: value
        for name in ("retries", "retry_delay", "labels", "flow_key", "flow")
        if (value := getattr(requested, name)) not in (None, ())
    }
    return msgspec.structs.replace(
        again(tx, message),
        settings=msgspec.structs.replace(_in_run(message.settings, run_id), **given),
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


def shown(tx: QueueWrite, row: sqlite3.Row) -> dict[str, Any]:
    """A run as the run log shows it."""
    if row["entry"] is not None:
        given: dict[str, Any] = json.loads(row["entry"])
        return given
    labels = json.loads(row["labels"])
    workflow = decode_message(row["invoker"]).settings.workflow if row["invoker"] else None
    optional = {
        "invoker": workflow and {"workflowRunId": workflow.run_id, "workflowUrl": workflow.url},
        "label": labels[0] if labels else None,
        "flowControlKey": row["flow_key"],
        "workflowRunCompletedAt": row["completed_at"],
        "dlqId": row["dlq_id"],
    }
    return {
        "workflowRunId": row["id"],
        "workflowUrl": row["url"],
        "workflowState": row["state"],
        "workflowRunCreatedAt": row["created_at"],
        "labels": labels,
        "steps": steps.shown(tx, row["id"]),
        **{name: value for name, value in optional.items() if value is not None},
    }
