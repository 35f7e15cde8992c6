"""Workflow runs: their states, how they end and start again, and how they wait for events.

States of a run::

    RUN_STARTED ──the endpoint ends it──────────────> RUN_SUCCESS
        │ ├──a step has failed for good: the DLQ────> RUN_FAILED
        │ └──canceled───────────────────────────────> RUN_CANCELED

A waiter is a message of kind ``wait`` that is due when the wait has lasted too long. An event, or the due
time, turns it into a step. An event for one run that arrives before the run waits is stored; one for all is
not delivered to runs that wait later.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final, Literal, NotRequired, Required, TypedDict

import msgspec
from msgspec.structs import replace

from toolkit.local.api import ApiError, invalid
from toolkit.local.queue import steps
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.listing import Condition, where
from toolkit.local.queue.messages import Message, Settings, Waiting, decode_message, header_lists, new_id
from toolkit.local.queue.publishing import MAX_WAIT_MS, Publish
from toolkit.local.queue.steps import REQUESTED, EventState, PublishedMessage, enqueue, fresh_copy, record
from toolkit.times import duration_ms

DEFAULT_WAIT: Final = "7d"


class RunEntry(TypedDict, total=False):
    """A run as the run log shows it. Entries that were filled in may have other fields, too."""

    workflowRunId: Required[str]
    workflowUrl: str
    workflowState: Literal["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"]


class RestartedRun(TypedDict):
    """A run that was started."""

    workflowRunId: str


class Waiter(TypedDict):
    """A waiting run; the deadline is in Unix milliseconds."""

    url: str
    headers: dict[str, list[str]]
    deadline: int
    timeoutUrl: str
    timeoutBody: str
    timeoutHeaders: dict[str, list[str]]


class Notified(TypedDict):
    """A notified run, and its waiter."""

    messageId: str
    workflowRunId: str | None
    workflowCreatedAt: int
    waiter: NotRequired[Waiter]


class WaitRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a wait: where the run resumes, the timeout, and the step that follows."""

    url: str
    step: dict[str, Any]
    timeout: str | float | None = None
    timeout_url: str = ""
    timeout_body: Any = None
    timeout_headers: dict[str, list[str]] = {}

    @property
    def timeout_ms(self) -> int:
        """How long to wait at most: a duration, or seconds."""
        text = DEFAULT_WAIT if self.timeout is None else str(self.timeout)
        duration = duration_ms(text)
        if duration is None or duration > MAX_WAIT_MS:
            raise invalid("timeout is not understood", repr(text[:80]), "60, 60s or 7d, up to ten years")
        return duration


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
    sql = "UPDATE runs SET state = 'RUN_FAILED', completed_at = ? WHERE id = ? AND state = 'RUN_STARTED'"
    if tx.execute(sql, tx.now_ms, message.run_id).rowcount:
        _report_to_invoker(tx, message.run_id, b"", failed=True)
    created_at: int | None = tx.value("SELECT created_at FROM runs WHERE id = ?", message.run_id)
    return message.created_at if created_at is None else created_at


_CANCEL_CALLBACK: Final = (
    "UPDATE dlq SET state = 'CALLBACK_CANCELED' WHERE id = ? AND state = 'CALLBACK_INPROGRESS'"
)


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
    elif cancel and tx.execute(_CANCEL_CALLBACK, row["dlq_id"]).rowcount:
        _drop_messages(tx, run_id, *REQUESTED)
    else:
        raise invalid(f"run {run_id[:80]!r} has ended already", row["state"], "RUN_STARTED", status=404)


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
    stored = tx.value("SELECT invoker FROM runs WHERE id = ?", run_id)
    invoker = decode_message(stored) if stored else None
    if invoker is None or steps.running(tx, invoker.run_id) is None:
        return
    out = {"body": result.decode(errors="replace"), "isFailed": failed, "isCanceled": canceled}
    body = json.dumps({**json.loads(invoker.body), "out": json.dumps(out)}).encode()
    if steps.known_step(tx, invoker.run_id, body) is None:
        enqueue(tx, steps.as_step(tx, replace(fresh_copy(tx, invoker), body=body)))


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
    changed = requested.given("retries", "retry_delay", "labels", "flow_key", "flow")

    def of_new_run(message: Message) -> Message:
        callback, failure_callback = message.callback, message.failure_callback
        return replace(
            fresh_copy(tx, message),
            settings=replace(_in_run(message.settings, run_id), **changed),
            callback=callback and _in_run(callback, run_id),
            failure_callback=failure_callback and _in_run(failure_callback, run_id),
        )

    first = steps.start_run(tx, of_new_run(steps.first_message(tx, failed.run_id) or failed))
    started = {"workflowRunId": run_id, "workflowCreatedAt": tx.now_ms}
    parked = tx.rows("SELECT spec, due_at FROM parked WHERE run_id = ? ORDER BY rowid", failed.run_id)
    tx.execute("DELETE FROM parked WHERE run_id = ?", failed.run_id)
    if not from_failed_step or failed.step == 0:
        enqueue(tx, first)
        return started
    tx.execute(
        "INSERT INTO steps (run_id, position, message_id, name, body) "
        "SELECT ?, position, message_id, name, body FROM steps WHERE run_id = ? AND position > 0",
        run_id,
        failed.run_id,
    )
    waiting = [(decode_message(row["spec"]), max(tx.now_ms, row["due_at"])) for row in parked]
    pending = [(failed, tx.now_ms), *waiting]
    left = [(message, due_at) for message, due_at in pending if not steps.has_result(tx, message)]
    for message, due_at in left or pending[:1]:
        enqueue(tx, replace(of_new_run(message), not_before=due_at))
    return started


def _in_run(settings: Settings, run_id: str) -> Settings:
    workflow = settings.workflow
    return replace(settings, workflow=replace(workflow, run_id=run_id)) if workflow else settings


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


def wait(
    tx: QueueWrite, publish: Publish, event_id: str, request: WaitRequest, *, caller_ip: str
) -> PublishedMessage:
    """Let a run wait for an event."""
    if publish.settings.workflow is None:
        raise ApiError(400, "no run waits; got no Workflow-RunId header; expected the id of the run")
    body = json.dumps({**request.step, "waitEventId": event_id}).encode()
    message = publish.message(
        "wait",
        created_at=tx.now_ms,
        not_before=tx.now_ms + round(request.timeout_ms / tx.factor),
        body=body,
        callback=None,
        caller_ip=caller_ip,
        waiting=Waiting(
            event_id=event_id,
            timeout_url=request.timeout_url,
            timeout_body="" if request.timeout_body is None else str(request.timeout_body),
            timeout_headers=request.timeout_headers,
        ),
    )
    message = steps.of_run(tx, message)
    before = steps.known_step(tx, message.run_id, body) or _waiting_before(tx, message, event_id)
    if before:
        return {"messageId": before, "deduplicated": True}
    enqueue(tx, message)
    earlier = tx.value(
        "DELETE FROM notifications WHERE seq = (SELECT min(seq) FROM notifications "
        "WHERE run_id = ? AND event_id = ?) RETURNING body",
        message.run_id,
        event_id,
    )
    if earlier is not None:
        _resume(tx, message, earlier)
    return {"messageId": message.id}


def notify(tx: QueueWrite, event_id: str, body: bytes) -> list[Notified]:
    """Notify all waiters of an event, and return them."""
    return [_notified(tx, message, body) for message in _waiters(tx, event_id)]


def notify_run(tx: QueueWrite, run_id: str, event_id: str, body: bytes) -> Notified:
    """Notify one run of an event, which is stored when the run does not wait yet."""
    run = tx.first("SELECT state, created_at FROM runs WHERE id = ?", run_id)
    if run is None or run["state"] != "RUN_STARTED":
        raise ApiError(404, f"run {run_id[:80]!r} is not running; expected one that may wait for the event")
    for message in _waiters(tx, event_id):
        if message.run_id == run_id:
            return _notified(tx, message, body)
    tx.insert("notifications", run_id=run_id, event_id=event_id, body=body)
    return {"messageId": new_id("msg"), "workflowRunId": run_id, "workflowCreatedAt": run["created_at"]}


def waiters(tx: QueueWrite, event_id: str) -> list[Waiter]:
    """The waiters of an event as they are listed, the longest waiting first."""
    return [_waiter(message) for message in _waiters(tx, event_id)]


def _waiters(tx: QueueWrite, event_id: str) -> list[Message]:
    rows = tx.rows("SELECT spec FROM messages WHERE event_id = ? ORDER BY seq", event_id)
    return [decode_message(row["spec"]) for row in rows]


def time_out(tx: QueueWrite, message: Message) -> None:
    """Resume without the event, unless it arrived in the meantime."""
    if tx.first("SELECT 1 FROM messages WHERE id = ?", message.id):
        _resume(tx, message, None)


def _waiter(message: Message) -> Waiter:
    waiting = message.waiting or Waiting("")
    return {
        "url": message.settings.url,
        "headers": header_lists(message.settings.headers),
        "deadline": message.not_before,
        "timeoutUrl": waiting.timeout_url,
        "timeoutBody": waiting.timeout_body,
        "timeoutHeaders": waiting.timeout_headers,
    }


def _waiting_before(tx: QueueWrite, message: Message, event_id: str) -> str | None:
    """The message by which the run waits at the same step already."""
    name = steps.position_of(message.body).name
    for other in _waiters(tx, event_id) if name else ():
        if other.run_id == message.run_id and steps.position_of(other.body).name == name:
            return other.id
    return None


def _notified(tx: QueueWrite, message: Message, body: bytes) -> Notified:
    return {
        "waiter": _waiter(message),
        "messageId": _resume(tx, message, body),
        "workflowRunId": message.run_id,
        "workflowCreatedAt": tx.value("SELECT created_at FROM runs WHERE id = ?", message.run_id),
    }


def _resume(tx: QueueWrite, message: Message, event: bytes | None) -> str:
    """Turn a waiter into a step, with the event or as timed out; returns the id of the new message."""
    tx.execute("DELETE FROM messages WHERE id = ?", message.id)
    record(tx, message, "DELIVERED")
    step = json.loads(message.body)
    step["waitTimeout"] = event is None
    if event is not None:
        step["out"] = base64.b64encode(event).decode()
    following = replace(fresh_copy(tx, message), kind="step", body=json.dumps(step).encode(), waiting=None)
    enqueue(tx, steps.as_step(tx, following))
    return following.id
