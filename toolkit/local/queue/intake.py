"""Taking messages in: deduplication, runs and their steps, and the row that makes delivery certain."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec

from toolkit.local.answers import ApiError
from toolkit.local.queue import steps
from toolkit.local.queue.events import record
from toolkit.local.queue.invoking import take_apart
from toolkit.local.queue.message import Kind, Message, Settings, decode_message, new_id
from toolkit.local.queue.publishing import Publish

DEDUPLICATION_MS: Final = 10 * 60 * 1000


def accept(
    connection: sqlite3.Connection, publish: Publish, *, now_ms: int, factor: float, caller_ip: str
) -> dict[str, Any]:
    """Take one publish in, and give the answer for its caller.

    Raises
    ------
    ApiError
        404 for a step of a run that is not running (any more).
    """
    if publish.deduplication:
        known = connection.execute(
            "SELECT message_id FROM deduplication WHERE name = ? AND expires_at > ?",
            (publish.deduplication, now_ms),
        ).fetchone()
        if known:
            return {"messageId": known["message_id"], "deduplicated": True}
    message = Message(
        id=new_id("msg"),
        kind=_kind(publish.settings),
        prefix=publish.prefix,
        settings=publish.settings,
        created_at=now_ms,
        not_before=now_ms + first_wait(publish.settings, now_ms=now_ms, factor=factor),
        body=publish.body,
        caller_ip=caller_ip,
        callback=publish.callback,
        failure_callback=publish.failure_callback,
        redact=publish.redact,
    )
    if message.kind == "step":
        before = _run_start(connection, message) or _step_before(connection, message)
        if before:
            return {"messageId": before, "deduplicated": True}
        message, invoker = take_apart(message)
        message = as_step(connection, message)
        if invoker:
            connection.execute("UPDATE runs SET invoker = ? WHERE id = ?", (invoker.encode(), message.run_id))
    if publish.deduplication:
        connection.execute(
            "INSERT OR REPLACE INTO deduplication VALUES (?, ?, ?)",
            (publish.deduplication, message.id, now_ms + DEDUPLICATION_MS),
        )
    enqueue(connection, message, now_ms=now_ms)
    answer: dict[str, Any] = {"messageId": message.id}
    if message.run_id:
        answer["workflowRunId"] = message.run_id
    return answer


def enqueue(connection: sqlite3.Connection, message: Message, *, now_ms: int) -> None:
    """Put a message where the scheduler finds it."""
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


def first_wait(settings: Settings, *, now_ms: int, factor: float) -> int:
    """Milliseconds until the first delivery: Not-Before wins over Delay; the time factor divides the wait."""
    asked = settings.delay_ms or 0
    if settings.not_before is not None:
        asked = max(0, settings.not_before - now_ms)
    return round(asked / factor)


def _kind(settings: Settings) -> Kind:
    if settings.workflow is None:
        return "message"
    return "call" if settings.workflow.call_type.lower() == "tocallback" else "step"


def _run_start(connection: sqlite3.Connection, message: Message) -> str | None:
    """The message that already started this run, when a first message comes twice."""
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


def _step_before(connection: sqlite3.Connection, message: Message) -> str | None:
    """The message that brought this step before: an endpoint that is asked twice answers twice."""
    workflow = message.settings.workflow
    if not workflow or workflow.init or run_state(connection, message) != "RUN_STARTED":
        return None
    return steps.posted_before(connection, message.run_id, message.body)


def run_state(connection: sqlite3.Connection, message: Message) -> str | None:
    """The state of the message's run; None when it is not known, or of the filled-in history."""
    row = connection.execute("SELECT state, first FROM runs WHERE id = ?", (message.run_id,)).fetchone()
    return row["state"] if row and row["first"] else None


def as_step(connection: sqlite3.Connection, message: Message) -> Message:
    """Put the message into its run's history: as its start, or behind the steps that are already there.

    Raises
    ------
    ApiError
        404 when its run is not running (any more).
    """
    workflow = message.settings.workflow
    if workflow and workflow.init:
        return start_run(connection, message)
    return steps.append(connection, of_run(connection, message))


def of_run(connection: sqlite3.Connection, message: Message) -> Message:
    """The message with what its run's first message said and it does not say itself.

    Raises
    ------
    ApiError
        404 when its run is not running (any more).
    """
    if run_state(connection, message) != "RUN_STARTED":
        raise ApiError(
            404, f"run {str(message.run_id)[:80]!r} is not running; expected a run that was started here"
        )
    run = connection.execute("SELECT first FROM runs WHERE id = ?", (message.run_id,)).fetchone()
    return _inherit(message, decode_message(run["first"]))


def start_run(connection: sqlite3.Connection, first: Message) -> Message:
    """Write down a new run and its first message, whose body is what the run was started with."""
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


def _inherit(message: Message, first: Message) -> Message:
    """What a step's publish does not say is as the run's first message said."""
    own, before = message.settings, first.settings
    settings = msgspec.structs.replace(
        own,
        headers=own.headers
        if any(name.lower() != "content-type" for name, _ in own.headers)
        else before.headers,
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
        callback=message.callback,
        failure_callback=message.failure_callback or first.failure_callback,
        redact=message.redact or first.redact,
    )
