"""Accepting messages: deduplication, runs and their steps, and the row that makes delivery certain."""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec

from toolkit.local.queue import steps
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.messages import Message, Settings, new_id
from toolkit.local.queue.publishing import Publish

DEDUPLICATION_MS: Final = 10 * 60 * 1000

EventState: TypeAlias = Literal["CREATED", "RETRY", "DELIVERED", "FAILED", "CANCELED"]


class PublishedMessage(TypedDict):
    """A message that was accepted."""

    messageId: str
    deduplicated: NotRequired[bool]
    workflowRunId: NotRequired[str]


def accept(tx: QueueWrite, publish: Publish, *, caller_ip: str) -> PublishedMessage:
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
        before = steps.brought_before(tx, message)
        if before:
            return {"messageId": before, "deduplicated": True}
        message = steps.join_run(tx, message)
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


def enqueue(tx: QueueWrite, message: Message) -> None:
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


def record(tx: QueueWrite, message: Message, state: EventState, **more: Any) -> None:
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


def again(tx: QueueWrite, message: Message) -> Message:
    """The message under a new id, due now."""
    return msgspec.structs.replace(message, id=new_id("msg"), created_at=tx.now_ms, not_before=tx.now_ms)


def first_delay(tx: QueueWrite, settings: Settings) -> int:
    """Milliseconds until the first delivery: Not-Before wins over Delay; the time factor divides them."""
    delay = settings.delay_ms or 0
    if settings.not_before is not None:
        delay = max(0, settings.not_before - tx.now_ms)
    return round(delay / tx.factor)
