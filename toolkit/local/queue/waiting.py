"""Runs that wait for events: waiters, the events that end them, and timeouts.

A waiter is a message of kind ``wait`` that is due when the wait has lasted too long. An event, or the due
time, turns it into a step, which is added to the run's history and delivered like any other::

    POST /v2/wait/{eventId} ──> waits ──POST /v2/notify/{eventId}──> step with `out`, the event in base64
                                  └────due──────────────────────────> step with `waitTimeout` true

An event for one run (``/v2/notify/{runId}/{eventId}``) that arrives before the run waits is stored; one
for all (``/v2/notify/{eventId}``) is not delivered to runs that wait later.
"""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from typing import Any, Final, NotRequired, TypedDict

import msgspec

from toolkit.local.api import ApiError
from toolkit.local.queue import steps
from toolkit.local.queue.intake import PublishedMessage, as_step, enqueue, of_run, record
from toolkit.local.queue.messages import Message, Waiting, decode_message, header_lists, new_id
from toolkit.local.queue.publishing import Publish
from toolkit.times import duration_ms

DEFAULT_WAIT: Final = "7d"
_EVENT_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_LONGEST_MS: Final = 10 * 365 * 86_400_000


def checked_event_id(text: str) -> str:
    """The event id, when it is one."""
    if not _EVENT_ID.fullmatch(text):
        raise ApiError(
            400, f"event id is not usable; got {text[:80]!r}; expected letters, digits, '-', '_' and '.'"
        )
    return text


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


class WaitRequest(msgspec.Struct, frozen=True):
    """The body of a wait: where the run resumes, the timeout, and the step that follows."""

    url: str
    step: dict[str, Any]
    timeout: str | float | None = None
    timeout_url: str = msgspec.field(default="", name="timeoutUrl")
    timeout_body: Any = msgspec.field(default=None, name="timeoutBody")
    timeout_headers: dict[str, list[str]] = msgspec.field(default_factory=dict, name="timeoutHeaders")

    @property
    def timeout_ms(self) -> int:
        """How long to wait at most: a duration, or seconds."""
        text = DEFAULT_WAIT if self.timeout is None else str(self.timeout)
        found = duration_ms(text)
        if found is None or found > _LONGEST_MS:
            raise ApiError(
                400, f"timeout is not understood; got {text[:80]!r}; expected 60, 60s or 7d, up to ten years"
            )
        return found


def read_wait(body: Any) -> WaitRequest:
    """Read the body of a wait; raises `ApiError` with 400, naming the field."""
    try:
        found = msgspec.convert(body, WaitRequest)
        msgspec.json.encode(found)  # text that cannot be encoded: JSON can hold lone surrogates
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ApiError(
            400, f"body is not a wait; got one with {error}; expected url, timeout and step"
        ) from None
    return found


def wait(
    connection: sqlite3.Connection,
    publish: Publish,
    event_id: str,
    request: WaitRequest,
    *,
    now_ms: int,
    factor: float,
    caller_ip: str,
) -> PublishedMessage:
    """Let a run wait for an event.

    Raises `ApiError` with 400 without a run, 404 when it is not running (any more).
    """
    workflow = publish.settings.workflow
    if workflow is None:
        raise ApiError(400, "no run waits; got no Workflow-RunId header; expected the id of the run")
    body = json.dumps({**request.step, "waitEventId": event_id}).encode()
    message = Message(
        id=new_id("msg"),
        kind="wait",
        prefix=publish.prefix,
        settings=publish.settings,
        created_at=now_ms,
        not_before=now_ms + round(request.timeout_ms / factor),
        body=body,
        caller_ip=caller_ip,
        failure_callback=publish.failure_callback,
        redact=publish.redact,
        waiting=Waiting(
            event_id=event_id,
            timeout_url=request.timeout_url,
            timeout_body="" if request.timeout_body is None else str(request.timeout_body),
            timeout_headers=request.timeout_headers,
        ),
    )
    message = of_run(connection, message)
    before = steps.posted_before(connection, message.run_id, body) or _is_waiting(connection, message)
    if before:
        return {"messageId": before, "deduplicated": True}
    enqueue(connection, message, now_ms=now_ms)
    before_waiting = connection.execute(
        "SELECT seq, body FROM notifications WHERE run_id = ? AND event_id = ? ORDER BY seq LIMIT 1",
        (message.run_id, event_id),
    ).fetchone()
    if before_waiting:
        connection.execute("DELETE FROM notifications WHERE seq = ?", (before_waiting["seq"],))
        _resume(connection, message, before_waiting["body"], now_ms=now_ms)
    return {"messageId": message.id}


def notify(connection: sqlite3.Connection, event_id: str, body: bytes, *, now_ms: int) -> list[Notified]:
    """Notify all waiters of an event, and return them."""
    return [_notified(connection, message, body, now_ms=now_ms) for message in waiters(connection, event_id)]


def notify_run(
    connection: sqlite3.Connection, run_id: str, event_id: str, body: bytes, *, now_ms: int
) -> Notified:
    """Notify one run of an event, which is stored when the run does not wait yet.

    Raises `ApiError` with 404 when there is no such run, or it has ended.
    """
    run = connection.execute("SELECT state, created_at FROM runs WHERE id = ?", (run_id,)).fetchone()
    if run is None or run["state"] != "RUN_STARTED":
        raise ApiError(404, f"run {run_id[:80]!r} is not running; expected one that may wait for the event")
    for message in waiters(connection, event_id):
        if message.run_id == run_id:
            return _notified(connection, message, body, now_ms=now_ms)
    connection.execute(
        "INSERT INTO notifications (run_id, event_id, body) VALUES (?, ?, ?)", (run_id, event_id, body)
    )
    return {"messageId": new_id("msg"), "workflowRunId": run_id, "workflowCreatedAt": run["created_at"]}


def waiters(connection: sqlite3.Connection, event_id: str) -> list[Message]:
    """The messages that wait for an event, the longest waiting first."""
    rows = connection.execute("SELECT spec FROM messages WHERE event_id = ? ORDER BY seq", (event_id,))
    return [decode_message(row["spec"]) for row in rows]


def time_out(connection: sqlite3.Connection, message: Message, *, now_ms: int) -> None:
    """Resume without the event, unless it arrived in the meantime."""
    if connection.execute("SELECT 1 FROM messages WHERE id = ?", (message.id,)).fetchone():
        _resume(connection, message, None, now_ms=now_ms)


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


def _is_waiting(connection: sqlite3.Connection, message: Message) -> str | None:
    name = steps.position_of(message.body).name
    if name is None or message.waiting is None:
        return None
    for other in waiters(connection, message.waiting.event_id):
        if other.run_id == message.run_id and steps.position_of(other.body).name == name:
            return other.id
    return None


def _notified(connection: sqlite3.Connection, message: Message, body: bytes, *, now_ms: int) -> Notified:
    run = connection.execute("SELECT created_at FROM runs WHERE id = ?", (message.run_id,)).fetchone()
    sent = _resume(connection, message, body, now_ms=now_ms)
    return {
        "waiter": shown(message),
        "messageId": sent,
        "workflowRunId": message.run_id,
        "workflowCreatedAt": run["created_at"],
    }


def _resume(connection: sqlite3.Connection, message: Message, event: bytes | None, *, now_ms: int) -> str:
    """Turn a waiter into a step, with the event or as timed out; returns the id of the new message."""
    connection.execute("DELETE FROM messages WHERE id = ?", (message.id,))
    record(connection, message, "DELIVERED", now_ms)
    step = json.loads(message.body)
    step["waitTimeout"] = event is None
    if event is not None:
        step["out"] = base64.b64encode(event).decode()
    following = msgspec.structs.replace(
        message,
        id=new_id("msg"),
        kind="step",
        body=json.dumps(step).encode(),
        created_at=now_ms,
        not_before=now_ms,
        waiting=None,
    )
    enqueue(connection, as_step(connection, following), now_ms=now_ms)
    return following.id
