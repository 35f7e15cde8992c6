"""Workflow runs: how they end, start again, and wait for events.

States of a run::

    RUN_STARTED ──the endpoint ends it──────────────> RUN_SUCCESS
        │ ├──a step has failed for good: the DLQ────> RUN_FAILED
        │ └──canceled───────────────────────────────> RUN_CANCELED

A waiter is a message of kind ``wait``. It is due when the wait times out. An event, or the due time, turns
the waiter into a step. If an event for one run arrives before the run waits for it, the event is stored. An
event for all runs is not delivered to runs that wait later.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final, Literal, NotRequired, Required, TypedDict

import msgspec
from msgspec.structs import replace

from toolkit.base.times import duration_ms
from toolkit_service.api import ApiError, invalid
from toolkit_service.queue import steps
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.listing import Condition, where
from toolkit_service.queue.messages import (
    Message,
    Settings,
    Waiting,
    decode_message,
    header_lists,
    new_id,
)
from toolkit_service.queue.publishing import MAX_WAIT_MS, Publish
from toolkit_service.queue.steps import (
    REQUESTED,
    EventState,
    PublishedMessage,
    enqueue,
    fresh_copy,
    record,
)

DEFAULT_WAIT: Final = "7d"


class RunEntry(TypedDict, total=False):
    """A run as the run log shows it. Imported entries may have other fields as well."""

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
    """A notified run, and the waiter, if the run waited."""

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
        """Return the longest wait in milliseconds. The request gives a duration, or seconds."""
        text = DEFAULT_WAIT if self.timeout is None else str(self.timeout)
        duration = duration_ms(text)
        if duration is None or duration > MAX_WAIT_MS:
            raise invalid(
                "timeout is not understood",
                repr(text[:80]),
                "60, 60s or 7d, up to ten years",
            )

        return duration


def fail(tx: QueueWrite, message: Message) -> int | None:
    """Mark the run of a message as failed and park the other deliveries of the run.

    Return the time when the run was created, or None if the message belongs to no run.
    """
    if message.run_id is None:
        return None

    # copies, from which `start_again` continues parallel steps if the run is resumed
    tx.execute(
        "INSERT INTO parked (run_id, due_at, spec) "
        "SELECT run_id, due_at, spec FROM messages WHERE run_id = ? ORDER BY seq",
        message.run_id,
    )
    _drop_messages(tx, message.run_id, "CANCELED")
    # two parallel steps can fail at once: only the first failure ends the run
    sql = "UPDATE runs SET state = 'RUN_FAILED', completed_at = ? WHERE id = ? AND state = 'RUN_STARTED'"
    if tx.execute(sql, tx.now_ms, message.run_id).rowcount:
        _report_to_invoker(tx, message.run_id, b"", failed=True)
    created_at: int | None = tx.value(
        "SELECT created_at FROM runs WHERE id = ?", message.run_id
    )

    return message.created_at if created_at is None else created_at


_CANCEL_CALLBACK: Final = (
    "UPDATE dlq SET state = 'CALLBACK_CANCELED'"
    " WHERE id = ? AND state = 'CALLBACK_INPROGRESS'"
)


def end(tx: QueueWrite, run_id: str, *, cancel: bool, result: bytes = b"") -> None:
    """End a run as completed or canceled, and pass the result to the run that invoked it.

    If the run has ended, canceling it cancels the failure function that is in progress.
    """
    row = tx.first("SELECT state, dlq_id FROM runs WHERE id = ?", run_id)
    if row is None:
        raise ApiError(
            404, f"run {run_id[:80]!r} is not known; expected the id of a run"
        )

    if row["state"] == "RUN_STARTED":
        _end_running(tx, run_id, cancel=cancel, result=result)
        return

    canceled_callbacks = 0
    if cancel:
        canceled_callbacks = tx.execute(_CANCEL_CALLBACK, row["dlq_id"]).rowcount
    if not canceled_callbacks:
        raise invalid(
            f"run {run_id[:80]!r} has ended already",
            row["state"],
            "RUN_STARTED",
            status=404,
        )

    _drop_messages(tx, run_id, *REQUESTED)


def _end_running(tx: QueueWrite, run_id: str, *, cancel: bool, result: bytes) -> None:
    if cancel:
        state = "RUN_CANCELED"
        _drop_messages(tx, run_id, *REQUESTED)
    else:
        state = "RUN_SUCCESS"
        # the endpoint ends the run during a delivery, which has no response yet: it counts as delivered
        _drop_messages(tx, run_id, "DELIVERED")

    tx.execute(
        "UPDATE runs SET state = ?, completed_at = ? WHERE id = ?",
        state,
        tx.now_ms,
        run_id,
    )
    _report_to_invoker(tx, run_id, result, canceled=cancel)


def cancel_all(
    tx: QueueWrite, conditions: Iterable[Condition], count: int | None = None
) -> int:
    """Cancel the running runs that meet the conditions, and return how many.

    If `count` is given, only the oldest `count` runs are canceled.
    """
    condition, bound = where(*conditions)
    running_here = f"SELECT id FROM runs WHERE state = 'RUN_STARTED' AND first IS NOT NULL AND {condition}"  # noqa: S608 - SQL of this package, values bound
    limit = -1 if count is None else count
    rows = tx.rows(f"{running_here} ORDER BY seq LIMIT ?", *bound, limit)
    for row in rows:
        end(tx, row["id"], cancel=True)
    return len(rows)


def _report_to_invoker(
    tx: QueueWrite,
    run_id: str,
    result: bytes,
    *,
    failed: bool = False,
    canceled: bool = False,
) -> None:
    """Add a step to the run that invoked this one, with the result or the failure."""
    stored = tx.value("SELECT invoker FROM runs WHERE id = ?", run_id)
    if not stored:
        return

    invoker = decode_message(stored)
    if steps.running(tx, invoker.run_id) is None:
        return

    out = {
        "body": result.decode(errors="replace"),
        "isFailed": failed,
        "isCanceled": canceled,
    }
    body = json.dumps({**json.loads(invoker.body), "out": json.dumps(out)}).encode()
    if steps.known_step(tx, invoker.run_id, body) is None:
        step = replace(fresh_copy(tx, invoker), body=body)
        enqueue(tx, steps.as_step(tx, step))


def _drop_messages(tx: QueueWrite, run_id: str, *states: EventState) -> None:
    for row in tx.rows("SELECT spec FROM messages WHERE run_id = ?", run_id):
        for state in states:
            record(tx, decode_message(row["spec"]), state)

    tx.execute("DELETE FROM messages WHERE run_id = ?", run_id)
    tx.execute("DELETE FROM notifications WHERE run_id = ?", run_id)


def start_again(
    tx: QueueWrite, failed: Message, *, from_failed_step: bool, requested: Settings
) -> dict[str, Any]:
    """Start a new run from a failed one: after the finished steps, or from the beginning.

    A resumed run also gets the pending deliveries and waiters of the failed run (parallel steps), unless the
    endpoint has posted the result of a step. The id, retries, labels and flow control of `requested` replace
    the settings of the failed run.
    """
    new_run = _NewRun(tx, requested)
    first = steps.start_run(
        tx, new_run.copy(steps.first_message(tx, failed.run_id) or failed)
    )
    parked = tx.rows(
        "SELECT spec, due_at FROM parked WHERE run_id = ? ORDER BY rowid", failed.run_id
    )
    tx.execute("DELETE FROM parked WHERE run_id = ?", failed.run_id)
    if not from_failed_step or failed.step == 0:
        enqueue(tx, first)
        return new_run.started

    tx.execute(
        "INSERT INTO steps (run_id, position, message_id, name, body) "
        "SELECT ?, position, message_id, name, body FROM steps WHERE run_id = ? AND position > 0",
        new_run.id,
        failed.run_id,
    )
    waiting = [
        (decode_message(row["spec"]), max(tx.now_ms, row["due_at"])) for row in parked
    ]
    pending = [(failed, tx.now_ms), *waiting]
    unfinished = [
        (message, due_at)
        for message, due_at in pending
        if not steps.has_result(tx, message)
    ]
    # if all steps have results, the failed message is delivered again: the endpoint decides how to go on
    for message, due_at in unfinished or pending[:1]:
        enqueue(tx, replace(new_run.copy(message), not_before=due_at))
    return new_run.started


class _NewRun:
    """A run that repeats a failed one under a new id, with changed settings."""

    def __init__(self, tx: QueueWrite, requested: Settings) -> None:
        self.id = requested.workflow.run_id if requested.workflow else new_id("wfr")
        if tx.first("SELECT 1 FROM runs WHERE id = ?", self.id) is not None:
            raise ApiError(
                409,
                f"run {self.id[:80]!r} exists already; expected the id of a new run",
            )

        self._tx = tx
        self._changed = requested.given(
            "retries", "retry_delay", "labels", "flow_key", "flow"
        )
        self.started = {"workflowRunId": self.id, "workflowCreatedAt": tx.now_ms}

    def copy(self, message: Message) -> Message:
        """Return a message of the failed run as a message of the new one."""
        return replace(
            fresh_copy(self._tx, message),
            settings=replace(self._in_run(message.settings), **self._changed),
            callback=message.callback and self._in_run(message.callback),
            failure_callback=message.failure_callback
            and self._in_run(message.failure_callback),
        )

    def _in_run(self, settings: Settings) -> Settings:
        if settings.workflow is None:
            return settings
        return replace(settings, workflow=replace(settings.workflow, run_id=self.id))


def shown(tx: QueueWrite, row: sqlite3.Row) -> dict[str, Any]:
    """Return a run as the run log shows it."""
    if row["entry"] is not None:
        imported: dict[str, Any] = json.loads(row["entry"])
        return imported

    labels = json.loads(row["labels"])
    optional = {
        "flowControlKey": row["flow_key"],
        "workflowRunCompletedAt": row["completed_at"],
        "dlqId": row["dlq_id"],
    }
    if labels:
        optional["label"] = labels[0]
    if row["invoker"]:
        workflow = decode_message(row["invoker"]).settings.workflow
        optional["invoker"] = workflow and {
            "workflowRunId": workflow.run_id,
            "workflowUrl": workflow.url,
        }

    return {
        "workflowRunId": row["id"],
        "workflowUrl": row["url"],
        "workflowState": row["state"],
        "workflowRunCreatedAt": row["created_at"],
        "labels": labels,
        "steps": steps.shown(tx, row["id"]),
        **{name: detail for name, detail in optional.items() if detail is not None},
    }


def wait(
    tx: QueueWrite,
    publish: Publish,
    event_id: str,
    request: WaitRequest,
    *,
    caller_ip: str,
) -> PublishedMessage:
    """Let a run wait for an event, or resume it at once if the event has arrived."""
    if publish.settings.workflow is None:
        raise ApiError(
            400,
            "no run waits; got no Workflow-RunId header; expected the id of the run",
        )

    message = _waiting_message(tx, publish, event_id, request, caller_ip)
    message = steps.of_run(tx, message)
    known = steps.known_step(tx, message.run_id, message.body) or _known_waiter(
        tx, message, event_id
    )
    if known:
        return {"messageId": known, "deduplicated": True}

    enqueue(tx, message)
    # The event may have arrived before the wait. Each stored event ends one wait, the oldest first.
    early_event = tx.value(
        "DELETE FROM notifications WHERE seq = (SELECT min(seq) FROM notifications "
        "WHERE run_id = ? AND event_id = ?) RETURNING body",
        message.run_id,
        event_id,
    )
    if early_event is not None:
        _resume(tx, message, early_event)
    return {"messageId": message.id}


def _waiting_message(
    tx: QueueWrite,
    publish: Publish,
    event_id: str,
    request: WaitRequest,
    caller_ip: str,
) -> Message:
    body = json.dumps({**request.step, "waitEventId": event_id}).encode()
    return publish.message(
        "wait",
        created_at=tx.now_ms,
        not_before=tx.now_ms + round(request.timeout_ms / tx.factor),
        body=body,
        callback=None,
        caller_ip=caller_ip,
        waiting=Waiting(
            event_id=event_id,
            timeout_url=request.timeout_url,
            timeout_body=""
            if request.timeout_body is None
            else str(request.timeout_body),
            timeout_headers=request.timeout_headers,
        ),
    )


def notify(tx: QueueWrite, event_id: str, body: bytes) -> list[Notified]:
    """Notify all waiters of an event, and return them."""
    return [_notified(tx, message, body) for message in _waiters(tx, event_id)]


def notify_run(tx: QueueWrite, run_id: str, event_id: str, body: bytes) -> Notified:
    """Notify one run of an event. If the run does not wait yet, the event is stored."""
    run = tx.first("SELECT state, created_at FROM runs WHERE id = ?", run_id)
    if run is None or run["state"] != "RUN_STARTED":
        expected = "a running run that may wait for the event"
        raise ApiError(404, f"run {run_id[:80]!r} is not running; expected {expected}")

    for message in _waiters(tx, event_id):
        if message.run_id == run_id:
            return _notified(tx, message, body)

    # the run does not wait yet: `wait` finds the event later
    tx.insert("notifications", run_id=run_id, event_id=event_id, body=body)
    return {
        "messageId": new_id("msg"),
        "workflowRunId": run_id,
        "workflowCreatedAt": run["created_at"],
    }


def waiters(tx: QueueWrite, event_id: str) -> list[Waiter]:
    """Return the waiters of an event for listings; the waiter that has waited longest is first."""
    return [_waiter(message) for message in _waiters(tx, event_id)]


def _waiters(tx: QueueWrite, event_id: str) -> list[Message]:
    rows = tx.rows(
        "SELECT spec FROM messages WHERE event_id = ? ORDER BY seq", event_id
    )
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


def _known_waiter(tx: QueueWrite, message: Message, event_id: str) -> str | None:
    """Return the id of an earlier wait of the run at the same step, if it still waits.

    For example, an endpoint that is called twice posts the same wait twice.
    """
    name = steps.position_of(message.body).name
    if not name:
        return None

    for waiter in _waiters(tx, event_id):
        if (
            waiter.run_id == message.run_id
            and steps.position_of(waiter.body).name == name
        ):
            return waiter.id

    return None


def _notified(tx: QueueWrite, message: Message, body: bytes) -> Notified:
    return {
        "waiter": _waiter(message),
        "messageId": _resume(tx, message, body),
        "workflowRunId": message.run_id,
        "workflowCreatedAt": tx.value(
            "SELECT created_at FROM runs WHERE id = ?", message.run_id
        ),
    }


def _resume(tx: QueueWrite, message: Message, event: bytes | None) -> str:
    """Turn a waiter into a step, and return the id of the new message. Without an event, it timed out."""
    tx.execute("DELETE FROM messages WHERE id = ?", message.id)
    record(tx, message, "DELIVERED")
    # the step contains the event, or that the wait timed out
    step = json.loads(message.body)
    step["waitTimeout"] = event is None
    if event is not None:
        step["out"] = base64.b64encode(event).decode()
    following = replace(
        fresh_copy(tx, message),
        kind="step",
        body=json.dumps(step).encode(),
        waiting=None,
    )
    enqueue(tx, steps.as_step(tx, following))

    return following.id
