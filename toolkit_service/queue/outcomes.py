"""Record the outcome of a delivery attempt: delivered, retried or failed, with everything that follows.

A response can change the message, the callbacks, the DLQ and the state of the run. All changes that follow
from one response are one transaction. States of the failure function of an entry::

    the message has failed ──> CALLBACK_INPROGRESS ──2xx──────────────────> CALLBACK_SUCCESS
                                 ^   │   │
                                 │   │   └──failed, after all retries─────> CALLBACK_FAIL
                                 │   └──the message or the run canceled───> CALLBACK_CANCELED
                                 └──run again on request, from any of the three
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec.structs import replace

from toolkit.base.errors import InputError
from toolkit.base.times import DAY_MS, delay_ms
from toolkit_service.queue import runs
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.messages import (
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
from toolkit_service.queue.publishing import RetryDelay
from toolkit_service.queue.steps import enqueue, first_delay, first_message, record

NON_RETRYABLE: Final = 489
"""The status that, with a header of `_NON_RETRYABLE_HEADERS`, ends the retries."""
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


def record_start(
    tx: QueueWrite, message: Message, retried: int, *, counts_until: int | None
) -> bool:
    """Record the start of an attempt. Return False if the message was cancelled.

    If `counts_until` is given, the attempt counts against the rate of the flow-control key until then.
    """
    if tx.first("SELECT 1 FROM messages WHERE id = ?", message.id) is None:
        return False

    if counts_until is not None:
        tx.execute(
            "INSERT INTO rates VALUES (?, ?)", message.settings.flow_key, counts_until
        )

    record(tx, message, "ACTIVE", retried=retried)
    return True


def record_outcome(tx: QueueWrite, attempt: Attempt) -> None:
    """Record an attempt and everything that follows from it."""
    message = attempt.message
    row = tx.first("SELECT joins_at FROM messages WHERE id = ?", message.id)
    if row is None:
        return  # cancelled during the delivery

    joins_at = row["joins_at"]
    if joins_at is not None:
        # in a named queue, callbacks come right before the place of the message: the next message waits
        joins_at -= 1

    _report_response(tx, attempt, joins_at)

    details = _details(attempt)
    if attempt.response.ok:
        _end_delivery(tx, message, "DELIVERED", details)
        _set_callback_state(tx, message, "CALLBACK_SUCCESS")
        return

    record(tx, message, "ERROR", **details)
    if _is_retried(attempt):
        _retry(tx, attempt, details)
        return

    _end_delivery(tx, message, "FAILED", details)
    _set_callback_state(tx, message, "CALLBACK_FAIL")
    if _enters_dlq(message):
        _enter_dlq(tx, attempt, joins_at)


def _end_delivery(
    tx: QueueWrite,
    message: Message,
    state: Literal["DELIVERED", "FAILED"],
    details: dict[str, Any],
) -> None:
    tx.execute("DELETE FROM messages WHERE id = ?", message.id)
    record(tx, message, state, **details)


def _set_callback_state(tx: QueueWrite, message: Message, state: str) -> None:
    """Set the state of the DLQ entry, if the message is a failure callback about one."""
    if message.kind == "failure_callback" and message.about:
        tx.execute(_SET_STATE, state, message.about)


def _details(attempt: Attempt) -> dict[str, Any]:
    """Return the fields about the response that all events of an attempt have."""
    response = attempt.response
    details: dict[str, Any] = {
        "responseStatus": response.status,
        "retried": attempt.retried,
    }
    if not response.ok:
        excerpt = response.body[:_MAX_EXCERPT].decode(errors="replace")
        details["error"] = excerpt
        details["responseBody"] = excerpt
        details["responseHeader"] = header_lists(response.headers)

    return details


_MAX_EXCERPT: Final = 1000  # bytes of a response that an event shows


def _is_retried(attempt: Attempt) -> bool:
    """Return True if a failed attempt is followed by another one."""
    if _is_final(attempt.response):
        return False
    return attempt.retried < attempt.message.max_retries


def _retry(tx: QueueWrite, attempt: Attempt, details: dict[str, Any]) -> None:
    due_at = tx.now_ms + round(retry_delay(attempt, tx.now_ms) / tx.factor)
    sql = "UPDATE messages SET due_at = ?, retried = ? WHERE id = ?"
    tx.execute(sql, due_at, attempt.retried + 1, attempt.message.id)
    record(tx, attempt.message, "RETRY", nextDeliveryTime=due_at, **details)


def _enters_dlq(message: Message) -> bool:
    """Return True if a failed message becomes an entry of the DLQ."""
    if message.kind == "failure_callback" and message.about and message.run_id:
        # the entry of the run shows the state of the failure function
        return False

    # the callback of a call delivered the response to the run, which interprets it
    is_reported_call = message.kind == "call" and message.callback is not None
    return not is_reported_call


def _enter_dlq(tx: QueueWrite, attempt: Attempt, joins_at: int | None) -> None:
    message = attempt.message
    dlq_id = f"{tx.now_ms}-{secrets.token_hex(6)}"
    entry = dlq_entry(attempt, dlq_id=dlq_id, run_created_at=runs.fail(tx, message))
    is_workflow = message.run_id is not None
    store_entry(
        tx, entry, workflow=is_workflow, entered_at=tx.now_ms, message=message.encode()
    )
    if is_workflow:
        tx.execute("UPDATE runs SET dlq_id = ? WHERE id = ?", dlq_id, message.run_id)
    report_failure(tx, attempt, dlq_id, joins_at)


def store_entry(
    tx: QueueWrite,
    entry: Mapping[str, Any],
    *,
    workflow: bool,
    entered_at: int,
    message: bytes | None = None,
) -> None:
    """Add an entry to the DLQ. An imported entry has no message."""
    stored = dict(entry)
    state = column_value(entry.get("failureFunctionState"))
    if isinstance(state, str):
        # the state changes: the column has the current value
        del stored["failureFunctionState"]
    else:
        state = None

    seq = tx.insert(
        "dlq",
        id=entry["dlqId"],
        workflow=workflow,
        entered_at=entered_at,
        **{column: column_value(entry.get(name)) for column, name in _COLUMNS.items()},
        state=state,
        entry=json.dumps(stored),
        message=message,
    )
    for label in _labels(entry):
        tx.insert("dlq_labels", dlq_seq=seq, label=label)


def _labels(entry: Mapping[str, Any]) -> list[str]:
    """Return the labels of an entry from both fields. Imported entries can have any value there."""
    listed = entry.get("labels")
    candidates = list(listed) if isinstance(listed, list) else []
    candidates.append(entry.get("label"))
    columns = map(column_value, candidates)

    return sorted({label for label in columns if label and isinstance(label, str)})


def column_value(field: Any) -> int | str | None:
    """Return the value of a field if a column can store it, otherwise None.

    Lists show a field that no column can store, for example a nested object, but no filter matches it.
    """
    if isinstance(field, bool):
        return None
    if isinstance(field, int) and -(2**63) <= field < 2**63:
        return field
    if isinstance(field, str) and field.isprintable():
        return field

    return None


def retry_delay(attempt: Attempt, now_ms: int) -> int:
    """Return the milliseconds before the next retry, before the time factor divides them.

    A delay that the destination requests applies first, unless it is malformed or longer than a day. Next is
    the Retry-Delay of the message. Otherwise retry n waits min(86400, e^(2.5 n)) seconds.
    """
    requested = _requested_delay(attempt.response, now_ms)
    if requested is not None:
        return requested

    expression = attempt.message.settings.retry_delay
    if expression:
        return _expressed_delay(expression, attempt.retried)

    # The retries wait 12 s, 148 s, 30 min, 6 h, and then 24 h each.
    exponent = 2.5 * (attempt.retried + 1)
    if exponent > math.log(DAY_MS / 1000):
        # before exp, which overflows for many retries
        return DAY_MS

    return round(1000 * math.exp(exponent))


def _requested_delay(response: DestinationResponse, now_ms: int) -> int | None:
    for name in _RESET_HEADERS:
        requested = response.header(name)
        if requested is None:
            continue
        delay = delay_ms(requested, now_ms)
        if delay is not None and delay <= DAY_MS:
            return delay

    return None


def _expressed_delay(expression: str, retried: int) -> int:
    try:
        return min(DAY_MS, RetryDelay(expression)(retried))
    except InputError:
        # the publish checked it, but a retry of the DLQ entry can request more retries than that
        return DAY_MS


def _is_final(response: DestinationResponse) -> bool:
    """Return True if the destination asks for no more retries."""
    if response.status != NON_RETRYABLE:
        return False

    for name in _NON_RETRYABLE_HEADERS:
        flag = response.header(name) or ""
        if flag.lower() == "true":
            return True

    # the status alone is not enough: other services use it for other purposes
    return False


def _report_response(tx: QueueWrite, attempt: Attempt, joins_at: int | None) -> None:
    """Enqueue a callback about the response, if the message has one."""
    message = attempt.message
    if message.callback is None:
        return

    callback = _callback(tx, attempt, message.callback)
    if message.run_id:
        # if the run fails on the response of the call, the failure function is called
        callback = replace(
            callback, failure_callback=_failure_callback_of_run(tx, message)
        )

    enqueue(tx, callback, joins_at=joins_at)


def _failure_callback_of_run(tx: QueueWrite, message: Message) -> Settings | None:
    if message.failure_callback is not None:
        return message.failure_callback

    first = first_message(tx, message.run_id)
    return first.failure_callback if first else None


def report_failure(
    tx: QueueWrite, attempt: Attempt, dlq_id: str, joins_at: int | None = None
) -> None:
    """Enqueue a failure callback, if the message has one, and set the state of the DLQ entry."""
    if attempt.message.failure_callback is None:
        return

    callback = _callback(tx, attempt, attempt.message.failure_callback, dlq_id)
    enqueue(
        tx, replace(callback, kind="failure_callback", about=dlq_id), joins_at=joins_at
    )
    tx.execute(_SET_STATE, "CALLBACK_INPROGRESS", dlq_id)


def _callback(
    tx: QueueWrite, attempt: Attempt, settings: Settings, dlq_id: str | None = None
) -> Message:
    """Return a callback message. It inherits the retry settings of the message that it reports on."""
    source = attempt.message
    settings = replace(
        settings,
        headers=(("Content-Type", "application/json"), *settings.headers),
        **source.settings.given(*_INHERITED) | settings.given(*_INHERITED),
    )
    source_body = _payload_of_run(tx, source)

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


def _payload_of_run(tx: QueueWrite, source: Message) -> bytes | None:
    """Return the payload of the run if the SDK expects that as the source body (feature InitialBody)."""
    if source.kind == "call":
        return None

    first = first_message(tx, source.run_id)
    if first is None or first.settings.workflow is None:
        return None

    has_feature = "InitialBody" in first.settings.workflow.features
    return first.body if has_feature else None
