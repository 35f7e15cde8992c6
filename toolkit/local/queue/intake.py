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
        sql = "SELECT message_id FROM deduplication WHERE name = ? AND expires_at > ?"
        known = tx.first(sql, publish.deduplication, tx.now_ms)
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
        row = (publish.deduplication, message.id, tx.now_ms + DEDUPLICATION_MS)
        tx.execute("INSERT OR REPLACE INTO deduplication VALUES (?, ?, ?)", *row)
    enqueue(tx, message)
    accepted: PublishedMessage = {"messageId": message.id}
    return accepted | {"workflowRunId": message.run_id} if message.run_id else accepted


def enqueue(tx: QueueWrite, message: Message) -> None:
    """Store a message where the scheduler finds it."""
    tx.insert(
        "messages",
        id=message.id,
        due_at=message.not_before,
        run_id=message.run_id,
        flow_key=None if message.kind == "wait" else message.settings.flow_key,
        about=message.about,
        event_id=message.waiting.event_id if message.waiting else None,
        spec=message.encode(),
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
    about = {"message_id": message.id, "run_id": message.run_id, "state": state, "url": settings.url}
    tx.insert("events", time=tx.now_ms, **about, entry=json.dumps(entry))


def again(tx: QueueWrite, message: Message) -> Message:
    """The message under a new id, due now."""
    return msgspec.structs.replace(message, id=new_id("msg"), created_at=tx.now_ms, not_before=tx.now_ms)


def first_delay(tx: QueueWrite, settings: Settings) -> int:
    """Milliseconds until the first delivery: Not-Before wins over Delay; the time factor divides them."""
    delay = settings.delay_ms or 0
    if settings.not_before is not None:
        delay = max(0, settings.not_before - tx.now_ms)
    return round(delay / tx.factor)
