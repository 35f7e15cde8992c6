"""Outcomes of a delivery attempt: delivered, retried, or failed; callbacks, the DLQ, the run's state.

All that follows from one response is one transaction. States of an entry's failure function::

    the message has failed ──> CALLBACK_INPROGRESS ──2xx──────────────────> CALLBACK_SUCCESS
                                 ^   │   │
                                 │   │   └──failed, after its retries─────> CALLBACK_FAIL
                                 │   └──its message deleted, run canceled─> CALLBACK_CANCELED
                                 └──run again on request, from any of the three
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from toolkit.errors import InputError
from toolkit.local.queue import runs
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.messages import (
    Attempt,
    DestinationResponse,
    Message,
    Origin,
    Settings,
    callback_body,
    dlq_entry,
    header_lists,
    new_id,
)
from toolkit.local.queue.publishing import RetryDelay
from toolkit.local.queue.steps import enqueue, first_delay, first_message, record
from toolkit.times import DAY_MS, delay_ms

NON_RETRYABLE: Final = 489
_RESET_HEADERS: Final = (
    "retry-after", "x-ratelimit-reset", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens",
)  # fmt: skip
_NON_RETRYABLE_HEADERS: Final = (
    "nonretryable-error", "service-nonretryable-error", "upstash-nonretryable-error",
)  # fmt: skip
_COLUMNS: Final = {
    "created_at": "createdAt", "workflow_url": "workflowUrl", "run_id": "workflowRunId",
    "workflow_created_at": "workflowCreatedAt", "caller_ip": "callerIP", "flow_key": "flowControlKey",
}  # fmt: skip
_INHERITED: Final = ("retries", "retry_delay", "workflow")
_SET_STATE: Final = "UPDATE dlq SET state = ? WHERE id = ?"


def record_start(tx: QueueWrite, message: Message, retried: int, *, counts_until: int | None) -> bool:
    """Record that an attempt starts, and until when it counts against a rate; False: it was cancelled."""
    if tx.first("SELECT 1 FROM messages WHERE id = ?", message.id) is None:
        return False
    if counts_until is not None:
        tx.execute("INSERT INTO rates VALUES (?, ?)", message.settings.flow_key, counts_until)
    record(tx, message, "ACTIVE", retried=retried)
    return True


def record_outcome(tx: QueueWrite, attempt: Attempt) -> None:
    """Record an attempt and everything that follows from it."""
    message, response = attempt.message, attempt.response
    row = tx.first("SELECT joins_at FROM messages WHERE id = ?", message.id)
    if row is None:
        return  # cancelled during the delivery
    # callbacks of a message of a named queue come right before its place: the next message waits for them
    joins_at = None if row["joins_at"] is None else row["joins_at"] - 1
    _report_response(tx, attempt, joins_at)
    details: dict[str, Any] = {"responseStatus": response.status, "retried": attempt.retried}
    if not response.ok:
        details["error"] = details["responseBody"] = response.body[:1000].decode(errors="replace")
        details["responseHeader"] = header_lists(response.headers)
        record(tx, message, "ERROR", **details)
    if not response.ok and attempt.retried < message.max_retries and not _is_final(response):
        due_at = tx.now_ms + round(retry_delay(attempt, tx.now_ms) / tx.factor)
        retried = attempt.retried + 1
        tx.execute("UPDATE messages SET due_at = ?, retried = ? WHERE id = ?", due_at, retried, message.id)
        record(tx, message, "RETRY", nextDeliveryTime=due_at, **details)
        return
    tx.execute("DELETE FROM messages WHERE id = ?", message.id)
    record(tx, message, "DELIVERED" if response.ok else "FAILED", **details)
    if message.kind == "failure_callback" and message.about:
        tx.execute(_SET_STATE, "CALLBACK_SUCCESS" if response.ok else "CALLBACK_FAIL", message.about)
        if message.run_id:
            return  # a run's failure function has no DLQ entry of its own
    if response.ok or (message.kind == "call" and message.callback):
        return  # the callback of a call delivered the response to the run, which interprets it
    dlq_id = f"{tx.now_ms}-{secrets.token_hex(6)}"
    entry = dlq_entry(attempt, dlq_id=dlq_id, run_created_at=runs.fail(tx, message))
    workflow = message.run_id is not None
    store_entry(tx, entry, workflow=workflow, entered_at=tx.now_ms, message=message.encode())
    if workflow:
        tx.execute("UPDATE runs SET dlq_id = ? WHERE id = ?", dlq_id, message.run_id)
    report_failure(tx, attempt, dlq_id, joins_at)


def store_entry(
    tx: QueueWrite, entry: Mapping[str, Any], *, workflow: bool, entered_at: int, message: bytes | None = None
) -> None:
    """Add an entry to the DLQ; one that is filled in has no message."""
    stored, state = dict(entry), column_value(entry.get("failureFunctionState"))
    if isinstance(state, str):
        del stored["failureFunctionState"]  # it changes: its column holds the current value
    seq = tx.insert(
        "dlq",
        id=entry["dlqId"],
        workflow=workflow,
        entered_at=entered_at,
        **{column: column_value(entry.get(name)) for column, name in _COLUMNS.items()},
        state=state if isinstance(state, str) else None,
        entry=json.dumps(stored),
        message=message,
    )
    given = entry.get("labels")
    labels = {*map(column_value, (*(given if isinstance(given, list) else ()), entry.get("label")))}
    for label in sorted(label for label in labels if label and isinstance(label, str)):
        tx.insert("dlq_labels", dlq_seq=seq, label=label)


def column_value(value: Any) -> Any:
    """The value when a column can hold it; others are shown in lists, but no filter finds them."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    return value if value.isprintable() else None


def retry_delay(attempt: Attempt, now_ms: int) -> int:
    """Milliseconds before the next retry, before the time factor.

    A delay requested by the destination comes first, unless it is malformed or more than a day; then the
    message's own Retry-Delay; then min(86400, e^(2.5 n)) seconds before retry n.
    """
    for name in _RESET_HEADERS:
        text = attempt.response.header(name)
        delay = None if text is None else delay_ms(text, now_ms)
        if delay is not None and delay <= DAY_MS:
            return delay
    expression = attempt.message.settings.retry_delay
    if expression:
        try:
            return min(DAY_MS, RetryDelay(expression)(attempt.retried))
        except InputError:  # it was checked for the retries with which it was published alone
            return DAY_MS
    exponent = 2.5 * (attempt.retried + 1)
    return DAY_MS if exponent > math.log(86_400) else round(1000 * math.exp(exponent))


def _is_final(response: DestinationResponse) -> bool:
    return response.status == NON_RETRYABLE and any(
        (response.header(name) or "").lower() == "true" for name in _NON_RETRYABLE_HEADERS
    )


def _report_response(tx: QueueWrite, attempt: Attempt, joins_at: int | None) -> None:
    """Enqueue a callback about the response, when the message has one."""
    message = attempt.message
    if message.callback is None:
        return
    callback = _callback(tx, attempt, message.callback)
    if message.run_id:
        # a run that fails on its call's response has failed, and its failure function is to know
        first = first_message(tx, message.run_id)
        reported_to = message.failure_callback or (first and first.failure_callback)
        callback = replace(callback, failure_callback=reported_to)
    enqueue(tx, callback, joins_at=joins_at)


def report_failure(tx: QueueWrite, attempt: Attempt, dlq_id: str, joins_at: int | None = None) -> None:
    """Enqueue a failure callback, when the message has one, and set the state of its DLQ entry."""
    if attempt.message.failure_callback is None:
        return
    callback = _callback(tx, attempt, attempt.message.failure_callback, dlq_id)
    enqueue(tx, replace(callback, kind="failure_callback", about=dlq_id), joins_at=joins_at)
    tx.execute(_SET_STATE, "CALLBACK_INPROGRESS", dlq_id)


def _callback(tx: QueueWrite, attempt: Attempt, settings: Settings, dlq_id: str | None = None) -> Message:
    """A callback message: with the retry settings of the message it reports on unless it has its own."""
    source, source_body = attempt.message, None
    # with the InitialBody feature, the source body is the payload of the run
    first = None if source.kind == "call" else first_message(tx, source.run_id)
    if first and first.settings.workflow and "InitialBody" in first.settings.workflow.features:
        source_body = first.body
    settings = replace(
        settings,
        headers=(("Content-Type", "application/json"), *settings.headers),
        **source.settings.given(*_INHERITED) | settings.given(*_INHERITED),
    )
    return Message(
        id=new_id("msg"),
        kind="callback",
        prefix=source.prefix,
        settings=settings,
        created_at=tx.now_ms,
        not_before=tx.now_ms + first_delay(tx, settings),
        body=callback_body(attempt, source_body=source_body, dlq_id=dlq_id),
        caller_ip=source.caller_ip,
        origin=Origin(queue=source.origin.queue),
    )
