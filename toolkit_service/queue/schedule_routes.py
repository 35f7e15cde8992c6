"""Operations on schedules: make, change, list, pause, resume and delete them."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any, Final, Required, TypedDict

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit_service.api import NAMES, checked_name, invalid, read_body
from toolkit_service.queue import url_groups
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.listing import not_found
from toolkit_service.queue.messages import (
    HeaderLists,
    Origin,
    Sent,
    body_fields,
    given_settings,
    header_lists,
    new_id,
    redacted,
    with_values,
)
from toolkit_service.queue.publishing import PUBLISH_HEADERS, Publish, read_publish
from toolkit_service.queue.queue_operations import QueueOperations
from toolkit_service.queue.request_parts import caller, destination_of, header_pairs
from toolkit_service.queue.schedules import STORED_PUBLISH, next_time

if TYPE_CHECKING:
    from toolkit_service.queue.scheduler import Queue

MAX_SCHEDULES: Final = 1000
_HEADERS: Final = {
    name: text for name, text in PUBLISH_HEADERS.items() if name != "Service-Not-Before"
} | {
    "Service-Cron": "Minute, hour, day of month, month, day of week (UTC; CRON_TZ=… before it).",
    "Service-Schedule-Id": "Id of the schedule; a known id changes that schedule.",
    "Service-Queue-Name": "Named queue for the messages of the schedule.",
}


class Schedule(TypedDict, total=False):
    """A schedule; fields that do not apply are omitted. Times are Unix milliseconds."""

    scheduleId: Required[str]
    cron: Required[str]
    destination: Required[str]
    createdAt: Required[int]
    method: Required[str]
    retries: Required[int]
    isPaused: Required[bool]
    header: HeaderLists
    body: str
    bodyBase64: str
    callback: str
    callbackHeader: HeaderLists
    failureCallback: str
    failureCallbackHeader: HeaderLists
    delay: int
    timeout: int
    retryDelayExpression: str
    queueName: str
    label: str
    labels: list[str]
    flowControlKey: str
    parallelism: int
    rate: int
    period: int
    callerIP: str
    nextScheduleTime: int
    lastScheduleTime: int
    lastScheduleStates: dict[str, str]
    error: str


class ScheduleMade(TypedDict):
    """A schedule that was made or changed."""

    scheduleId: str


schedule_operations: Final = QueueOperations()
"""The operations below ``/v2/schedules``."""


@schedule_operations.transaction("GET", "/v2/schedules", "schedules", list[Schedule])
def _list(tx: QueueWrite) -> list[Any]:
    """List all schedules, in the order of their creation."""
    return [
        _shown(tx, row)
        for row in tx.rows("SELECT * FROM schedules ORDER BY created_at, id")
    ]


@schedule_operations.transaction(
    "GET", "/v2/schedules/{schedule}", "schedule", Schedule, errors=(404,)
)
def _one(tx: QueueWrite, schedule: str) -> Any:
    """Return a schedule, with the states of the messages that it made last."""
    return _shown(tx, _stored(tx, schedule))


@schedule_operations.transaction(
    "DELETE", "/v2/schedules/{schedule}", "deleteSchedule", errors=(404,)
)
def _delete(tx: QueueWrite, schedule: str) -> None:
    """Delete a schedule; the messages that it made stay."""
    tx.execute("DELETE FROM schedules WHERE id = ?", _stored(tx, schedule)["id"])


# the public package sends PATCH, public pages show POST
@schedule_operations.transaction(
    "PATCH", "/v2/schedules/{schedule}/pause", "patchPauseSchedule", errors=(404,)
)
@schedule_operations.transaction(
    "POST", "/v2/schedules/{schedule}/pause", "pauseSchedule", errors=(404,)
)
def _pause(tx: QueueWrite, schedule: str) -> None:
    """Let a schedule make no messages until it is resumed."""
    tx.execute(
        "UPDATE schedules SET paused = TRUE WHERE id = ?", _stored(tx, schedule)["id"]
    )


@schedule_operations.transaction(
    "PATCH", "/v2/schedules/{schedule}/resume", "patchResumeSchedule", errors=(404,)
)
@schedule_operations.transaction(
    "POST", "/v2/schedules/{schedule}/resume", "resumeSchedule", errors=(404,)
)
def _resume(tx: QueueWrite, schedule: str) -> None:
    """Let a schedule make messages again, beginning with the next time."""
    row = _stored(tx, schedule)
    if row["paused"]:
        # times that passed during the pause are skipped
        next_at = next_time(row["cron"], tx.now_ms)
        tx.execute(
            "UPDATE schedules SET paused = FALSE, next_at = ? WHERE id = ?",
            next_at,
            row["id"],
        )


@schedule_operations(
    "POST",
    "/v2/schedules/{schedule:path}",
    "makeSchedule",
    ScheduleMade,
    query=None,
    body=bytes,
    headers=_HEADERS,
    errors=(412,),
)
async def _make(queue: Queue, request: Request, _: None) -> Response:
    """Make a schedule, or change the schedule with this id: a publish to a URL or a URL group."""
    destination = destination_of(request, "/v2/schedules/")
    url = destination
    if NAMES.fullmatch(destination):
        endpoints = await queue.store.read(url_groups.destinations, destination)
        url = endpoints[0]["url"]

    body = await read_body(request, queue.max_message)
    publish = read_publish(url, header_pairs(request), body, prefix=queue.prefix)
    _check_repeatable(publish)
    for settings in (publish.settings, publish.callback, publish.failure_callback):
        if settings is not None:
            await queue.destinations.address(settings.url)

    headers = _schedule_headers(request)
    cron = " ".join(headers.get("cron", "").split())
    schedule_id = checked_name(
        headers.get("schedule-id") or new_id("scd"), "header Schedule-Id"
    )
    queue_name = headers.get("queue-name", "")
    if queue_name:
        checked_name(queue_name, "header Queue-Name")
    publish = replace(publish, origin=Origin(schedule=schedule_id, queue=queue_name))
    await queue.write(_made, schedule_id, cron, destination, publish, caller(request))

    return JSONResponse({"scheduleId": schedule_id})


def _check_repeatable(publish: Publish) -> None:
    """Raise an `ApiError` if a publish has settings that only make sense for one message."""
    is_for_one_message = (
        publish.settings.workflow is not None,
        publish.settings.not_before is not None,
        bool(publish.deduplication),
    )
    if any(is_for_one_message):
        got = "Workflow-RunId, Not-Before, Deduplication-Id or Content-Based-Deduplication"
        raise invalid("a header is for one message", got, "none of them")


def _schedule_headers(request: Request) -> dict[str, str]:
    """Return the headers with a prefix, by the name without it. If a name is repeated, the first counts."""
    headers: dict[str, str] = {}
    for full_name, text in header_pairs(request):
        prefix, _, name = full_name.lower().partition("-")
        if prefix in ("service", "upstash"):
            headers.setdefault(name, text)

    return headers


def _made(
    tx: QueueWrite,
    schedule_id: str,
    cron: str,
    destination: str,
    publish: Publish,
    caller_ip: str,
) -> None:
    next_at = next_time(cron, tx.now_ms)
    if next_at is None:
        raise invalid("header Cron means no time", repr(cron[:80]), "a time that comes")

    # a changed schedule keeps the time of creation, and whether it is paused
    tx.execute(
        "INSERT INTO schedules (id, cron, destination, created_at, paused, next_at, caller_ip, spec) "
        "VALUES (?, ?, ?, ?, FALSE, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET cron = excluded.cron, "
        "destination = excluded.destination, next_at = excluded.next_at, spec = excluded.spec",
        *(
            schedule_id,
            cron,
            destination,
            tx.now_ms,
            next_at,
            caller_ip,
            msgspec.msgpack.encode(publish),
        ),
    )
    tx.check_count("schedules", MAX_SCHEDULES, "schedules")


def _stored(tx: QueueWrite, schedule_id: str) -> sqlite3.Row:
    row = tx.first("SELECT * FROM schedules WHERE id = ?", schedule_id)
    if row is None:
        raise not_found("schedule", schedule_id, "the id of a schedule")

    return row


def _shown(tx: QueueWrite, row: sqlite3.Row) -> Any:
    publish = STORED_PUBLISH.decode(row["spec"])
    settings = publish.settings
    headers, body = redacted(publish.redact, Sent(settings.headers, publish.body))
    optional: dict[str, Any] = {
        **body_fields("body", body),
        **given_settings(settings, publish.callback, publish.failure_callback),
        "delay": settings.delay_ms and settings.delay_ms // 1000,
        "timeout": settings.timeout_ms and settings.timeout_ms // 1000,
        "queueName": publish.origin.queue,
        "nextScheduleTime": row["next_at"],
        "lastScheduleTime": row["last_at"],
        "error": row["error"],
        "labels": list(settings.labels),
        "callerIP": row["caller_ip"],
    }
    if publish.callback:
        optional["callbackHeader"] = header_lists(publish.callback.headers)
    if publish.failure_callback:
        optional["failureCallbackHeader"] = header_lists(
            publish.failure_callback.headers
        )

    if row["last_messages"]:
        last_messages = json.loads(row["last_messages"])
        optional["lastScheduleStates"] = {
            message_id: _state(tx, message_id) for message_id in last_messages
        }

    return {
        "scheduleId": row["id"],
        "cron": row["cron"],
        "destination": row["destination"],
        "createdAt": row["created_at"],
        "method": settings.method or "POST",
        "retries": settings.max_retries,
        "isPaused": bool(row["paused"]),
        "header": header_lists(headers),
        **with_values(optional),
    }


def _state(tx: QueueWrite, message_id: str) -> str:
    """Return the state of a message of a schedule: in progress, delivered or failed."""
    if tx.first("SELECT 1 FROM messages WHERE id = ?", message_id):
        return "IN_PROGRESS"

    sql = "SELECT 1 FROM events WHERE message_id = ? AND state = 'DELIVERED'"
    return "SUCCESS" if tx.first(sql, message_id) else "FAIL"
