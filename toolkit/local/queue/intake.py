"""Accepting messages: deduplication, runs and their steps, and the row that makes delivery certain.

Everything that happens to a message is an event: CREATED, then DELIVERED, or RETRY until DELIVERED or FAILED,
or CANCELED.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec

from toolkit.local.api import ApiError
from toolkit.local.queue import steps
from toolkit.local.queue.database import Transaction
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


def accept(tx: Transaction, publish: Publish, *, caller_ip: str) -> PublishedMessage:
    """Accept one publish; raises `ApiError` with 404 for a step of a run that is not running (any more)."""
    if publish.deduplication:
        known = tx.first(
            "SELECT message_id FROM deduplication WHERE name = ? AND expires_at > ?",
            publish.deduplication,
            tx.now_ms,
        )
        if known:
            return {"messageId": known["message_id"], "deduplicated": True}
    workflow = publish.settings.workflow
    to_third_party = workflow is not None and workflow.call_type.lower() == "tocallback"
    message = publish.message(
        "message" if workflow is None else "call" if to_third_party else "step",
        created_at=tx.now_ms,
        not_before=tx.now_ms + first_delay(tx, publish.settings),
        caller_ip=caller_ip,
    )
    if message.kind == "step":
        before = _run_start(tx, message) or _same_step(tx, message)
        if before:
            return {"messageId": before, "deduplicated": True}
        message, invoker = split_invocation(message)
        message = as_step(tx, message)
        if invoker:
            tx.execute("UPDATE runs SET invoker = ? WHERE id = ?", invoker.encode(), message.run_id)
    if publish.deduplication:
        tx.execute(
            "INSERT OR REPLACE INTO deduplication VALUES (?, ?, ?)",
            publish.deduplication,
            message.id,
            tx.now_ms + DEDUPLICATION_MS,
        )
    enqueue(tx, message)
    if message.run_id:
        return {"messageId": message.id, "workflowRunId": message.run_id}
    return {"messageId": message.id}


def enqueue(tx: Transaction, message: Message) -> None:
    """Store a message where the scheduler finds it."""
    tx.execute(
        "INSERT INTO messages (id, due_at, run_id, flow_key, about, event_id, spec) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        message.id,
        message.not_before,
        message.run_id,
        None if message.kind == "wait" else message.settings.flow_key,
        message.about,
        message.waiting.event_id if message.waiting else None,
        message.encode(),
    )
    record(tx, message, "CREATED")


def record(tx: Transaction, message: Message, state: EventState, **more: Any) -> None:
    """Store one event; `more` are further fields of its entry, by their names in JSON."""
    settings = message.settings
    optional = {
        "workflowRunId": message.run_id,
        "labels": list(settings.labels),
        "flowControlKey": settings.flow_key,
    }
    entry = {
        "time": tx.now_ms,
        "messageId": message.id,
        "state": state,
        "url": settings.url,
        "method": message.method,
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "callerIP": message.caller_ip,
        **{name: value for name, value in optional.items() if value},
        **more,
    }
    tx.execute(
        "INSERT INTO events (time, message_id, run_id, state, url, entry) VALUES (?, ?, ?, ?, ?, ?)",
        tx.now_ms,
        message.id,
        message.run_id,
        state,
        settings.url,
        json.dumps(entry),
    )


def again(tx: Transaction, message: Message) -> Message:
    """The message under a new id, due now."""
    return msgspec.structs.replace(message, id=new_id("msg"), created_at=tx.now_ms, not_before=tx.now_ms)


def first_delay(tx: Transaction, settings: Settings) -> int:
    """Milliseconds until the first delivery: Not-Before wins over Delay; the time factor divides them."""
    delay = settings.delay_ms or 0
    if settings.not_before is not None:
        delay = max(0, settings.not_before - tx.now_ms)
    return round(delay / tx.factor)


def _run_start(tx: Transaction, message: Message) -> str | None:
    """The message that already started this run, when a first message is published twice."""
    workflow = message.settings.workflow
    row = tx.first("SELECT first FROM runs WHERE id = ?", message.run_id)
    if not workflow or not workflow.init or row is None:
        return None
    if row["first"] is None:
        raise ApiError(
            400, f"run {workflow.run_id[:80]!r} is of the filled-in history; expected a new run id"
        )
    return decode_message(row["first"]).id


def _same_step(tx: Transaction, message: Message) -> str | None:
    """The message that brought this step before: an endpoint that is called twice posts it twice."""
    workflow = message.settings.workflow
    if not workflow or workflow.init or running(tx, message.run_id) is None:
        return None
    return steps.posted_before(tx, message.run_id, message.body)


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


def first_message(tx: Transaction, run_id: str | None) -> Message | None:
    """The message that started a run; None when that did not happen here."""
    row = tx.first("SELECT first FROM runs WHERE id = ?", run_id)
    return decode_message(row["first"]) if row and row["first"] else None


def running(tx: Transaction, run_id: str | None) -> Message | None:
    """The message that started a run, when that happened here and the run is running."""
    row = tx.first("SELECT first FROM runs WHERE id = ? AND state = 'RUN_STARTED'", run_id)
    return decode_message(row["first"]) if row and row["first"] else None


def as_step(tx: Transaction, message: Message) -> Message:
    """Add the message to its run's history: as its start, or after the steps that are already there.

    Raises `ApiError` with 404 when its run is not running (any more).
    """
    workflow = message.settings.workflow
    if workflow and workflow.init:
        return start_run(tx, message)
    return steps.append(tx, of_run(tx, message))


def of_run(tx: Transaction, message: Message) -> Message:
    """The message with the settings of its run's first message where it has none of its own.

    Raises `ApiError` with 404 when its run is not running (any more).
    """
    first = running(tx, message.run_id)
    if first is None:
        raise ApiError(
            404, f"run {str(message.run_id)[:80]!r} is not running; expected a run that was started here"
        )
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


def start_run(tx: Transaction, first: Message) -> Message:
    """Store a new run and its first message, whose body is the run's payload."""
    first = msgspec.structs.replace(first, step=0)
    workflow = first.settings.workflow
    tx.execute(
        "INSERT INTO runs (id, url, state, created_at, labels, caller_ip, flow_key, first) "
        "VALUES (?, ?, 'RUN_STARTED', ?, ?, ?, ?, ?)",
        first.run_id,
        workflow.url if workflow else first.settings.url,
        first.created_at,
        msgspec.json.encode(first.settings.labels).decode(),
        first.caller_ip,
        first.settings.flow_key,
        first.encode(),
    )
    return steps.append(tx, first)
