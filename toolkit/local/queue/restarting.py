"""Beginning again with what the DLQ kept: runs from the failed step or the start, and plain messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from toolkit.local.queue import dlq, steps
from toolkit.local.queue.destinations import check_url
from toolkit.local.queue.intake import enqueue, start_run
from toolkit.local.queue.message import Message, Settings, Workflow, decode_message, new_id


def start_again(
    connection: sqlite3.Connection, failed: Message, *, from_failed_step: bool, now_ms: int
) -> dict[str, Any]:
    """Start a new run from a failed one: behind its finished steps, or from the beginning.

    Resumed, it also goes on with what else the failed run had to deliver or to wait for (parallel steps), but
    for what its endpoint has answered already.

    Returns
    -------
    dict
        ``workflowRunId`` and ``workflowCreatedAt`` of the new run.
    """
    run_id = new_id("wfr")
    old = connection.execute("SELECT first FROM runs WHERE id = ?", (failed.run_id,)).fetchone()
    first = _moved(decode_message(old["first"]) if old and old["first"] else failed, run_id, now_ms)
    first = start_run(connection, first)
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
        if not steps.answered(connection, message)
    ]
    for message, due_at in left or [(failed, now_ms)]:
        moved = msgspec.structs.replace(_moved(message, run_id, now_ms), not_before=due_at)
        enqueue(connection, moved, now_ms=now_ms)
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


def message_of_entry(entry: Mapping[str, Any], prefix: str) -> Message:
    """A message that can start a run again, from a DLQ entry that was filled in without one."""
    url = check_url(str(entry.get("url") or entry.get("workflowUrl") or ""), f"the URL of {entry['dlqId']!r}")
    failure_callback = entry.get("failureCallback")
    return Message(
        id=str(entry.get("messageId") or new_id("msg")),
        kind="step",
        prefix=prefix,
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
