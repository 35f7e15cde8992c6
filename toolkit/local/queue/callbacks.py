"""Callbacks and failure callbacks: messages that report on another message."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import msgspec

from toolkit.local.answers import ApiError
from toolkit.local.queue import dlq, runs
from toolkit.local.queue.intake import enqueue, first_wait
from toolkit.local.queue.message import Message, Settings, new_id
from toolkit.local.queue.payloads import Answer, Sent, callback_body


def report_answer(
    connection: sqlite3.Connection,
    source: Message,
    sent: Sent,
    answer: Answer,
    *,
    retried: int,
    now_ms: int,
    factor: float,
) -> None:
    """Send a callback about one attempt's answer, when the message wants that."""
    if source.callback is None:
        return
    body = callback_body(
        source, sent, answer, retried=retried, source_body=runs.source_body(connection, source)
    )
    callback = _report(source, source.callback, body, now_ms=now_ms, factor=factor)
    if source.run_id:
        # a run that cannot take its call's answer has failed, and its failure function is to know
        first = runs.first_message(connection, source.run_id)
        failure_callback = source.failure_callback or (first.failure_callback if first else None)
        callback = msgspec.structs.replace(callback, failure_callback=failure_callback)
    enqueue(connection, callback, now_ms=now_ms)


def report_failure(
    connection: sqlite3.Connection,
    source: Message,
    sent: Sent,
    answer: Answer,
    *,
    retried: int,
    dlq_id: str,
    now_ms: int,
    factor: float,
) -> None:
    """Send a failure callback, when the message wants one, and note it in its DLQ entry."""
    if source.failure_callback is None:
        return
    body = callback_body(
        source, sent, answer, retried=retried, source_body=runs.source_body(connection, source), dlq_id=dlq_id
    )
    callback = _report(source, source.failure_callback, body, now_ms=now_ms, factor=factor)
    enqueue(
        connection, msgspec.structs.replace(callback, kind="failure_callback", about=dlq_id), now_ms=now_ms
    )
    dlq.set_state(connection, dlq_id, "CALLBACK_INPROGRESS")


def report_failure_again(
    connection: sqlite3.Connection, failed: Message, row: sqlite3.Row, *, now_ms: int, factor: float
) -> dict[str, Any]:
    """Run the failure function of a DLQ entry again.

    Raises
    ------
    ApiError
        400 when the entry has no failure function, or it is under way.
    """
    if failed.failure_callback is None:
        raise ApiError(
            400, f"DLQ entry {row['id']!r} has no failure callback; expected one that was published with it"
        )
    if row["state"] == "CALLBACK_INPROGRESS":
        raise ApiError(400, f"the failure function of {row['id']!r} is under way; expected it to have ended")
    entry = json.loads(row["entry"])
    sent = Sent(dlq.header_pairs(entry.get("header")), dlq.body_of_entry(entry, "body"))
    answer = Answer(
        int(entry.get("responseStatus") or 0),
        dlq.header_pairs(entry.get("responseHeader")),
        dlq.body_of_entry(entry, "responseBody"),
    )
    # shown as it was shown then: what was redacted is not there any more
    shown = msgspec.structs.replace(failed, redact=())
    report_failure(
        connection,
        shown,
        sent,
        answer,
        retried=failed.max_retries,
        dlq_id=row["id"],
        now_ms=now_ms,
        factor=factor,
    )
    return {"workflowRunId": failed.run_id, "failureFunctionState": "CALLBACK_INPROGRESS"}


def _report(source: Message, settings: Settings, body: bytes, *, now_ms: int, factor: float) -> Message:
    """A callback message: with the source's retry settings unless it has its own."""
    settings = msgspec.structs.replace(
        settings,
        retries=source.settings.retries if settings.retries is None else settings.retries,
        retry_delay=settings.retry_delay or source.settings.retry_delay,
        headers=(("Content-Type", "application/json"), *settings.headers),
        workflow=settings.workflow or source.settings.workflow,
    )
    return Message(
        id=new_id("msg"),
        kind="callback",
        prefix=source.prefix,
        settings=settings,
        created_at=now_ms,
        not_before=now_ms + first_wait(settings, now_ms=now_ms, factor=factor),
        body=body,
        caller_ip=source.caller_ip,
    )
