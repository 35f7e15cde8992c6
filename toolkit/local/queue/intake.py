"""Accepting messages: deduplication, runs and their steps, and the row that makes delivery certain.

Everything that happens to a message is an event: CREATED, then DELIVERED, or RETRY until DELIVERED or FAILED,
or CANCELED.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec

from toolkit.local.api import ApiError
from toolkit.local.queue import steps
from toolkit.local.queue.messages import Message, Settings, decode_message, new_id
from toolkit.local.queue.publishing import Publish, read_publish

DEDUPLICATION_MS: Final = 10 * 60 * 1000

EventState: TypeAlias = Literal["CREATED", "RETRY", "DELIVERED", "FAILED", "CANCELED"]


class PublishedMessage(TypedDict):
    """A message that was accepted."""

    messageId: str
    deduplicated: NotRequired[bool]
    workflowRunId: NotRequired[str]


class Invocation(msgspec.Struct, frozen=True, rename="camel"):
    """The body of an invocation: the new run's payload, and where the invoking run resumes."""

    workflow_url: str
    step: dict[str, Any]
    headers: dict[str, list[str]]
    body: str = ""


# created here: msgspec's first inspection of a struct is not thread-safe
_INVOCATION: Final = msgspec.json.Decoder(Invocation)


def accept(
    connection: sqlite3.Connection, publish: Publish, *, now_ms: int, factor: float, caller_ip: str
) -> PublishedMessage:
    """Accept one publish; raises `ApiError` with 404 for a step of a run that is not running (any more)."""
    if publish.deduplication:
        known = connection.execute(
            "SELECT message_id FROM deduplication WHERE name = ? AND expires_at > ?",
            (publish.deduplication, now_ms),
        ).fetchone()
        if known:
            return {"messageId": known["message_id"], "deduplicated": True}
    workflow = publish.settings.workflow
    to_third_party = workflow is not None and workflow.call_type.lower() == "tocallback"
    message = Message(
        id=new_id("msg"),
        kind="message" if workflow is None else "call" if to_third_party else "step",
        prefix=publish.prefix,
        settings=publish.settings,
        created_at=now_ms,
        not_before=now_ms + first_delay(publish.settings, now_ms=now_ms, factor=factor),
        body=publish.body,
        caller_ip=caller_ip,
        callback=publish.callback,
        failure_callback=publish.failure_callback,
        redact=publish.redact,
    )
    if message.kind == "step":
        before = _run_start(connection, message) or _same_step(connection, message)
        if before:
            return {"messageId": before, "deduplicated": True}
        message, invoker = split_invocation(message)
        message = as_step(connection, message)
        if invoker:
            connection.execute("UPDATE runs SET invoker = ? WHERE id = ?", (invoker.encode(), message.run_id))
    if publish.deduplication:
        connection.execute(
            "INSERT OR REPLACE INTO deduplication VALUES (?, ?, ?)",
            (publish.deduplication, message.id, now_ms + DEDUPLICATION_MS),
        )
    enqueue(connection, message, now_ms=now_ms)
    if message.run_id:
        return {"messageId": message.id, "workflowRunId": message.run_id}
    return {"messageId": message.id}


def enqueue(connection: sqlite3.Connection, message: Message, *, now_ms: int) -> None:
    """Store a message where the scheduler finds it."""
    connection.execute(
        "INSERT INTO messages (id, due_at, run_id, flow_key, about, event_id, spec) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            message.id,
            message.not_before,
            message.run_id,
            None if message.kind == "wait" else message.settings.flow_key,
            message.about,
            message.waiting.event_id if message.waiting else None,
            message.encode(),
        ),
    )
    record(connection, message, "CREATED", now_ms)


def record(
    connection: sqlite3.Connection, message: Message, state: EventState, now_ms: int, **more: Any
) -> None:
    """Store one event; `more` are further fields of its entry, by their names in JSON."""
    entry = {
        "time": now_ms,
        "messageId": message.id,
        "state": state,
        "url": message.settings.url,
        "method": message.method,
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "callerIP": message.caller_ip,
        **({"workflowRunId": message.run_id} if message.run_id else {}),
        **({"labels": list(message.settings.labels)} if message.settings.labels else {}),
        **({"flowControlKey": message.settings.flow_key} if message.settings.flow_key else {}),
        **more,
    }
    connection.execute(
        "INSERT INTO events (time, message_id, run_id, state, url, entry) VALUES (?, ?, ?, ?, ?, ?)",
        (now_ms, message.id, message.run_id, state, message.settings.url, json.dumps(entry)),
    )


def first_delay(settings: Settings, *, now_ms: int, factor: float) -> int:
    """Milliseconds until the first delivery: Not-Before wins over Delay; the time factor divides them."""
    delay = settings.delay_ms or 0
    if settings.not_before is not None:
        delay = max(0, settings.not_before - now_ms)
    return round(delay / factor)


def _run_start(connection: sqlite3.Connection, message: Message) -> str | None:
    """The message that already started this run, when a first message is published twice."""
    workflow = message.settings.workflow
    if not workflow or not workflow.init:
        return None
    row = connection.execute("SELECT first FROM runs WHERE id = ?", (workflow.run_id,)).fetchone()
    if row is None:
        return None
    if row["first"] is None:
        raise ApiError(
            400, f"run {workflow.run_id[:80]!r} is of the filled-in history; expected a new run id"
        )
    return decode_message(row["first"]).id


def _same_step(connection: sqlite3.Connection, message: Message) -> str | None:
    """The message that brought this step before: an endpoint that is called twice posts it twice."""
    workflow = message.settings.workflow
    if not workflow or workflow.init or run_state(connection, message) != "RUN_STARTED":
        return None
    return steps.posted_before(connection, message.run_id, message.body)


def split_invocation(message: Message) -> tuple[Message, Message | None]:
    """The first message of a new run, and the step for the run that invoked it; None when none did.

    Raises `ApiError` with 400 when the body is no invocation.
    """
    workflow = message.settings.workflow
    if workflow is None or not workflow.init or not workflow.invoke:
        return message, None
    try:
        invocation = _INVOCATION.decode(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(
            400, f"body is no invocation; got one with {error}; expected workflowUrl, step, headers and body"
        ) from None
    pairs = [(name, value) for name, values in invocation.headers.items() for value in values]
    back = read_publish(invocation.workflow_url, pairs, b"", prefix=message.prefix)
    if back.settings.workflow is None:
        raise ApiError(400, "headers of the invocation name no run; expected the id of the run that invokes")
    step = msgspec.structs.replace(
        message,
        settings=back.settings,
        body=json.dumps(invocation.step).encode(),
        callback=None,
        failure_callback=back.failure_callback,
        redact=back.redact,
    )
    return msgspec.structs.replace(message, body=invocation.body.encode()), step


def run_state(connection: sqlite3.Connection, message: Message) -> str | None:
    """The state of the message's run; None when it is not known, or of the filled-in history."""
    row = connection.execute("SELECT state, first FROM runs WHERE id = ?", (message.run_id,)).fetchone()
    return row["state"] if row and row["first"] else None


def as_step(connection: sqlite3.Connection, message: Message) -> Message:
    """Add the message to its run's history: as its start, or after the steps that are already there.

    Raises `ApiError` with 404 when its run is not running (any more).
    """
    workflow = message.settings.workflow
    if workflow and workflow.init:
        return start_run(connection, message)
    return steps.append(connection, of_run(connection, message))


def of_run(connection: sqlite3.Connection, message: Message) -> Message:
    """The message with the settings of its run's first message where it has none of its own.

    Raises `ApiError` with 404 when its run is not running (any more).
    """
    if run_state(connection, message) != "RUN_STARTED":
        raise ApiError(
            404, f"run {str(message.run_id)[:80]!r} is not running; expected a run that was started here"
        )
    run = connection.execute("SELECT first FROM runs WHERE id = ?", (message.run_id,)).fetchone()
    first = decode_message(run["first"])
    own, before = message.settings, first.settings
    has_headers = any(name.lower() != "content-type" for name, _ in own.headers)
    settings = msgspec.structs.replace(
        own,
        headers=own.headers if has_headers else before.headers,
        timeout_ms=before.timeout_ms if own.timeout_ms is None else own.timeout_ms,
        retries=before.retries if own.retries is None else own.retries,
        retry_delay=own.retry_delay or before.retry_delay,
        labels=own.labels or before.labels,
        flow_key=own.flow_key or before.flow_key,
        flow=own.flow or (None if own.flow_key else before.flow),
    )
    return msgspec.structs.replace(
        message,
        settings=settings,
        failure_callback=message.failure_callback or first.failure_callback,
        redact=message.redact or first.redact,
    )


def start_run(connection: sqlite3.Connection, first: Message) -> Message:
    """Store a new run and its first message, whose body is the run's payload."""
    first = msgspec.structs.replace(first, step=0)
    workflow = first.settings.workflow
    connection.execute(
        "INSERT INTO runs (id, url, state, created_at, labels, caller_ip, flow_key, first) "
        "VALUES (?, ?, 'RUN_STARTED', ?, ?, ?, ?, ?)",
        (
            first.run_id,
            workflow.url if workflow else first.settings.url,
            first.created_at,
            msgspec.json.encode(first.settings.labels).decode(),
            first.caller_ip,
            first.settings.flow_key,
            first.encode(),
        ),
    )
    return steps.append(connection, first)
