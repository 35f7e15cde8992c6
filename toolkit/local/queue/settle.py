"""What follows from an answer: delivered, tried again, or given up; callbacks, the DLQ, the run's state.

Everything that follows from one answer is written in one transaction together with the message's row, so
that a crash leaves either all of it or none of it, and then the message is delivered again.

States of a DLQ entry's failure function (`failureFunctionState`)::

    (no failure callback set: no state)

    the message is given up ──> CALLBACK_INPROGRESS ──2xx──────────────────> CALLBACK_SUCCESS
                                  ^   │   │
                                  │   │   └──given up, after its retries───> CALLBACK_FAIL
                                  │   └──its message deleted, run canceled─> CALLBACK_CANCELED
                                  └──asked to run again, from any of the three
"""

from __future__ import annotations

import math
import sqlite3
from typing import Final

from toolkit.errors import InputError
from toolkit.local.queue import dlq, runs
from toolkit.local.queue.callbacks import report_answer, report_failure
from toolkit.local.queue.events import record
from toolkit.local.queue.expressions import RetryDelay
from toolkit.local.queue.message import Message
from toolkit.local.queue.payloads import Answer, Sent
from toolkit.times import DAY_MS, delay_ms

NON_RETRYABLE: Final = 489
_RESET_HEADERS: Final = (
    "retry-after",
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
)
_GIVE_UP_HEADERS: Final = ("nonretryable-error", "service-nonretryable-error", "upstash-nonretryable-error")


def settle(
    connection: sqlite3.Connection,
    message: Message,
    sent: Sent,
    answer: Answer,
    *,
    retried: int,
    now_ms: int,
    factor: float,
) -> None:
    """Record an answer and everything that follows from it.

    Parameters
    ----------
    connection : sqlite3.Connection
        Within a transaction.
    message : Message
    sent : Sent
        What this attempt sent.
    answer : Answer
    retried : int
        Retries before this attempt.
    now_ms : int
        When the answer came.
    factor : float
        The time factor; divides waits.
    """
    if connection.execute("SELECT 1 FROM messages WHERE id = ?", (message.id,)).fetchone() is None:
        return  # canceled while it was under way
    report_answer(connection, message, sent, answer, retried=retried, now_ms=now_ms, factor=factor)
    if answer.ok:
        _remove(connection, message)
        record(connection, message, "DELIVERED", now_ms, responseStatus=answer.status, retried=retried)
        if message.about and message.kind == "failure_callback":
            dlq.set_state(connection, message.about, "CALLBACK_SUCCESS")
    elif retried < message.max_retries and not _never_again(answer):
        due_at = now_ms + round(retry_wait(message, answer, retried=retried, now_ms=now_ms) / factor)
        connection.execute(
            "UPDATE messages SET due_at = ?, retried = ? WHERE id = ?", (due_at, retried + 1, message.id)
        )
        record(
            connection,
            message,
            "RETRY",
            now_ms,
            responseStatus=answer.status,
            retried=retried,
            nextDeliveryTime=due_at,
            error=_error(answer),
        )
    else:
        _remove(connection, message)
        record(
            connection,
            message,
            "FAILED",
            now_ms,
            responseStatus=answer.status,
            retried=retried,
            error=_error(answer),
        )
        _give_up(connection, message, sent, answer, retried=retried, now_ms=now_ms, factor=factor)


def retry_wait(message: Message, answer: Answer, *, retried: int, now_ms: int) -> int:
    """Milliseconds before the next retry, before the time factor.

    What the destination asks for comes first, unless that is more than a day or not understood; then the
    message's own Retry-Delay; then min(86400, e^(2.5 n)) seconds before retry n.
    """
    for name in _RESET_HEADERS:
        text = answer.header(name)
        wait = None if text is None else delay_ms(text, now_ms)
        if wait is not None and wait <= DAY_MS:
            return wait
    if message.settings.retry_delay:
        try:
            return min(DAY_MS, RetryDelay(message.settings.retry_delay)(retried))
        except (
            InputError
        ):  # checked when published for the retries it was published with; kept for later ones
            return DAY_MS
    exponent = 2.5 * (retried + 1)
    return DAY_MS if exponent > math.log(86_400) else round(1000 * math.exp(exponent))


def _never_again(answer: Answer) -> bool:
    return answer.status == NON_RETRYABLE and any(
        (answer.header(name) or "").lower() == "true" for name in _GIVE_UP_HEADERS
    )


def _remove(connection: sqlite3.Connection, message: Message) -> None:
    connection.execute("DELETE FROM messages WHERE id = ?", (message.id,))


def _error(answer: Answer) -> str:
    return answer.body[:1000].decode(errors="replace")


def _give_up(
    connection: sqlite3.Connection,
    message: Message,
    sent: Sent,
    answer: Answer,
    *,
    retried: int,
    now_ms: int,
    factor: float,
) -> None:
    if message.kind == "failure_callback" and message.about:
        dlq.set_state(connection, message.about, "CALLBACK_FAIL")
        if message.run_id:
            return  # the run's own entry tells it
    if message.kind == "call" and message.callback:
        return  # its callback took the answer to the run, which decides what it means
    run = runs.fail(connection, message, now_ms=now_ms)
    dlq_id = dlq.add(connection, message, sent, answer, run_created_at=run, now_ms=now_ms)
    report_failure(
        connection, message, sent, answer, retried=retried, dlq_id=dlq_id, now_ms=now_ms, factor=factor
    )
