"""Runs that wait for events: waiters, the events that end them, and timeouts.

A waiter is a message of kind ``wait`` that is due when the wait has lasted too long. An event, or the due
time, turns it into a step. An event for one run that arrives before the run waits is stored; one for all is
not delivered to runs that wait later.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, NotRequired, TypedDict

import msgspec

from toolkit.local.api import ApiError
from toolkit.local.queue import steps
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.messages import Message, Waiting, decode_message, header_lists, new_id
from toolkit.local.queue.publishing import MAX_WAIT_MS, Publish
from toolkit.local.queue.steps import PublishedMessage, again, enqueue, record
from toolkit.times import duration_ms

DEFAULT_WAIT: Final = "7d"


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
            raise ApiError(
                400, f"timeout is not understood; got {text[:80]!r}; expected 60, 60s or 7d, up to ten years"
            )
        return duration


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
    before = steps.posted_before(tx, message.run_id, body) or _is_waiting(tx, message)
    if before:
        return {"messageId": before, "deduplicated": True}
    enqueue(tx, message)
    earlier = tx.first(
        "DELETE FROM notifications WHERE seq = (SELECT min(seq) FROM notifications "
        "WHERE run_id = ? AND event_id = ?) RETURNING body",
        message.run_id,
        event_id,
    )
    if earlier:
        _resume(tx, message, earlier["body"])
    return {"messageId": message.id}


def notify(tx: QueueWrite, event_id: str, body: bytes) -> list[Notified]:
    """Notify all waiters of an event, and return them."""
    return [_notified(tx, message, body) for message in waiters(tx, event_id)]


def notify_run(tx: QueueWrite, run_id: str, event_id: str, body: bytes) -> Notified:
    """Notify one run of an event, which is stored when the run does not wait yet."""
    run = tx.first("SELECT state, created_at FROM runs WHERE id = ?", run_id)
    if run is None or run["state"] != "RUN_STARTED":
        raise ApiError(404, f"run {run_id[:80]!r} is not running; expected one that may wait for the event")
    for message in waiters(tx, event_id):
        if message.run_id == run_id:
            return _notified(tx, message, body)
    tx.execute("INSERT INTO notifications (run_id, event_id, body) VALUES (?, ?, ?)", run_id, event_id, body)
    return {"messageId": new_id("msg"), "workflowRunId": run_id, "workflowCreatedAt": run["created_at"]}


def waiters(tx: QueueWrite, event_id: str) -> list[Message]:
    """The messages that wait for an event, the longest waiting first."""
    rows = tx.rows("SELECT spec FROM messages WHERE event_id = ? ORDER BY seq", event_id)
    return [decode_message(row["spec"]) for row in rows]


def time_out(tx: QueueWrite, message: Message) -> None:
    """Resume without the event, unless it arrived in the meantime."""
    if tx.first("SELECT 1 FROM messages WHERE id = ?", message.id):
        _resume(tx, message, None)


def shown(message: Message) -> Waiter:
    """A waiter as it is listed."""
    waiting = message.waiting or Waiting("")
    return {
        "url": message.settings.url,
        "headers": header_lists(message.settings.headers),
        "deadline": message.not_before,
        "timeoutUrl": waiting.timeout_url,
        "timeoutBody": waiting.timeout_body,
        "timeoutHeaders": waiting.timeout_headers,
    }


def _is_waiting(tx: QueueWrite, message: Message) -> str | None:
    name = steps.position_of(message.body).name
    if name is None or message.waiting is None:
        return None
    for other in waiters(tx, message.waiting.event_id):
        if other.run_id == message.run_id and steps.position_of(other.body).name == name:
            return other.id
    return None


def _notified(tx: QueueWrite, message: Message, body: bytes) -> Notified:
    (created_at,) = tx.rows("SELECT created_at FROM runs WHERE id = ?", message.run_id)[0]
    return {
        "waiter": shown(message),
        "messageId": _resume(tx, message, body),
        "workflowRunId": message.run_id,
        "workflowCreatedAt": created_at,
    }


def _resume(tx: QueueWrite, message: Message, event: bytes | None) -> str:
    """Turn a waiter into a step, with the event or as timed out; returns the id of the new message."""
    tx.execute("DELETE FROM messages WHERE id = ?", message.id)
    record(tx, message, "DELIVERED")
    step = json.loads(message.body)
    step["waitTimeout"] = event is None
    if event is not None:
        step["out"] = base64.b64encode(event).decode()
    following = msgspec.structs.replace(
        again(tx, message), kind="step", body=json.dumps(step).encode(), waiting=None
    )
    enqueue(tx, steps.as_step(tx, following))
    return following.id
