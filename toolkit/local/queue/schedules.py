"""Schedules: publishes that are made again and again, at the times of a cron expression."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Required, TypedDict
from zoneinfo import ZoneInfo

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import NAMES, ApiError, checked_name, read_body
from toolkit.local.operations import Declared, Operation, Query
from toolkit.local.queue import url_groups
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.messages import (
    DEFAULT_RETRIES,
    HeaderLists,
    Origin,
    Sent,
    body_fields,
    header_lists,
    new_id,
    redacted,
)
from toolkit.local.queue.publish_routes import caller, destination_of, first_url, header_pairs
from toolkit.local.queue.publishing import PUBLISH_HEADERS, Publish, read_publish
from toolkit.local.queue.steps import accept

if TYPE_CHECKING:
    from toolkit.local.queue.scheduler import Queue

MAX_SCHEDULES: Final = 1000
MAX_CRON: Final = 256
"""Longest cron expression, in characters."""

_AT_ONCE: Final = 100  # schedules of one transaction
_TIME_ZONE: Final = "CRON_TZ="
_HEADERS: Final = {name: text for name, text in PUBLISH_HEADERS.items() if name != "Service-Not-Before"} | {
    "Service-Cron": "Minute, hour, day of month, month, day of week (UTC; CRON_TZ=… before it).",
    "Service-Schedule-Id": "Its id: a known one changes that schedule.",
    "Service-Queue-Name": "The named queue to which its messages go.",
}


class Schedule(TypedDict, total=False):
    """A schedule; fields that do not apply are left out. Times are Unix milliseconds."""

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


def next_time(cron: str, after_ms: int) -> int | None:
    """The first time (Unix ms) of a cron expression after another; None when there is none.

    >>> next_time("*/5 * * * *", 1_800_000_000_000)
    1800000300000
    """
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only a service with schedules needs it
    except ModuleNotFoundError:
        raise ApiError(
            500, "schedules need a package; got none; expected cronsim: pip install cronsim"
        ) from None

    expected = "five fields such as '0 9 * * MON-FRI', perhaps after CRON_TZ=Europe/Berlin"
    problem = ApiError(400, f"header Cron is not understood; got {cron[:80]!r}; expected {expected}")
    fields = cron.split()
    zone: Any = UTC
    try:
        if fields and fields[0].startswith(_TIME_ZONE):
            zone = ZoneInfo(fields.pop(0).removeprefix(_TIME_ZONE))
        if len(fields) != 5 or len(cron) > MAX_CRON or not cron.isascii():  # noqa: PLR2004 - no seconds
            raise problem
        after = datetime.fromtimestamp(after_ms / 1000, zone)
        following = next(CronSim(" ".join(fields), after), None)
    except (CronSimError, LookupError, ValueError, OSError, RecursionError):
        raise problem from None
    return None if following is None else round(following.timestamp() * 1000)


def next_due(tx: QueueWrite) -> int | None:
    """When the next schedule is due."""
    row = tx.first("SELECT min(next_at) AS due FROM schedules WHERE NOT paused")
    return row["due"] if row else None


def fire(tx: QueueWrite) -> None:
    """Publish for each schedule that is due, and store when it is due next, in one transaction.

    Times that passed while the service did not run count once.
    """
    sql = "SELECT * FROM schedules WHERE NOT paused AND next_at <= ? ORDER BY next_at, id LIMIT ?"
    for row in tx.rows(sql, tx.now_ms, _AT_ONCE):
        error, made = None, list[str]()
        tx.execute("SAVEPOINT fired")
        try:
            for publish in _publishes(tx, row):
                made.append(accept(tx, publish, caller_ip=row["caller_ip"])["messageId"])
        except ApiError as problem:  # such as a group that was deleted: the next time is another try
            tx.execute("ROLLBACK TO fired")
            error, made = problem.message, []
        tx.execute("RELEASE fired")
        tx.execute(
            "UPDATE schedules SET next_at = ?, last_at = ?, last_messages = ?, error = ? WHERE id = ?",
            *(next_time(row["cron"], tx.now_ms), tx.now_ms, json.dumps(made), error, row["id"]),
        )


def _publishes(tx: QueueWrite, row: sqlite3.Row) -> list[Publish]:
    publish: Publish = msgspec.msgpack.decode(row["spec"], type=Publish)
    if NAMES.fullmatch(row["destination"]):
        return url_groups.spread(tx, publish, row["destination"])
    return [publish]


_operation: Declared[Queue] = Declared()


def schedule_operations(queue: Queue) -> list[Operation]:
    """The operations below ``/v2/schedules``."""
    return _operation.of(queue)


@_operation("GET", "/v2/schedules", "schedules", list[Schedule])
async def _list(queue: Queue, _: Request, __: Query) -> Response:
    """All schedules, in the order in which they were made."""

    def read(tx: QueueWrite) -> list[Schedule]:
        return [_shown(tx, row) for row in tx.rows("SELECT * FROM schedules ORDER BY created_at, id")]

    return JSONResponse(await queue.store.read(read))


@_operation("GET", "/v2/schedules/{schedule}", "schedule", Schedule, errors=(404,))
async def _one(queue: Queue, request: Request, _: Query) -> Response:
    """A schedule, with the states of the messages that it made last."""

    def read(tx: QueueWrite) -> Schedule:
        return _shown(tx, _stored(tx, request.path_params["schedule"]))

    return JSONResponse(await queue.store.read(read))


@_operation("DELETE", "/v2/schedules/{schedule}", "deleteSchedule", errors=(404,))
async def _delete(queue: Queue, request: Request, _: Query) -> Response:
    """Delete a schedule; the messages that it made stay."""

    def work(tx: QueueWrite) -> None:
        tx.execute("DELETE FROM schedules WHERE id = ?", _stored(tx, request.path_params["schedule"])["id"])

    await queue.write(work)
    return Response()


# the public package sends PATCH, public pages say POST
@_operation("PATCH", "/v2/schedules/{schedule}/pause", "patchPauseSchedule", errors=(404,))
@_operation("POST", "/v2/schedules/{schedule}/pause", "pauseSchedule", errors=(404,))
async def _pause(queue: Queue, request: Request, _: Query) -> Response:
    """Let a schedule make no messages until it is resumed."""
    await queue.write(_set_paused, request.path_params["schedule"], paused=True)
    return Response()


@_operation("PATCH", "/v2/schedules/{schedule}/resume", "patchResumeSchedule", errors=(404,))
@_operation("POST", "/v2/schedules/{schedule}/resume", "resumeSchedule", errors=(404,))
async def _resume(queue: Queue, request: Request, _: Query) -> Response:
    """Let a schedule make messages again, from its next time on."""
    await queue.write(_set_paused, request.path_params["schedule"], paused=False)
    return Response()


def _set_paused(tx: QueueWrite, schedule_id: str, *, paused: bool) -> None:
    row = _stored(tx, schedule_id)
    # what passed meanwhile is not made up for
    next_at = next_time(row["cron"], tx.now_ms) if row["paused"] and not paused else row["next_at"]
    tx.execute("UPDATE schedules SET paused = ?, next_at = ? WHERE id = ?", paused, next_at, schedule_id)


@_operation(
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
    """Make a schedule, or change the one of this id: a publish to a URL or a URL group at given times."""
    destination = destination_of(request, "/v2/schedules/")
    url = await first_url(queue, destination) if NAMES.fullmatch(destination) else destination
    body = await read_body(request, queue.max_message)
    given = {
        name.lower().partition("-")[2]: value
        for name, value in reversed(header_pairs(request))
        if name.lower().startswith(("service-", "upstash-"))
    }
    publish = read_publish(url, header_pairs(request), body, prefix=queue.prefix)
    if publish.settings.workflow or publish.settings.not_before is not None or publish.deduplication:
        raise ApiError(
            400,
            "a header is for one message; got Workflow-RunId, Not-Before, Deduplication-Id or "
            "Content-Based-Deduplication; expected none of them",
        )
    for settings in (publish.settings, publish.callback, publish.failure_callback):
        if settings is not None:
            await queue.destinations.address(settings.url)
    cron = " ".join(given.get("cron", "").split())
    schedule_id = checked_name(given.get("schedule-id", "") or new_id("scd"), "header Schedule-Id")
    name = given.get("queue-name", "")
    origin = Origin(schedule=schedule_id, queue=checked_name(name, "header Queue-Name") if name else "")
    publish = msgspec.structs.replace(publish, origin=origin)
    await queue.write(_made, schedule_id, cron, destination, publish, caller(request))
    return JSONResponse({"scheduleId": schedule_id})


def _made(
    tx: QueueWrite, schedule_id: str, cron: str, destination: str, publish: Publish, caller_ip: str
) -> None:
    next_at = next_time(cron, tx.now_ms)
    if next_at is None:
        raise ApiError(400, f"header Cron means no time; got {cron[:80]!r}; expected one that comes")
    tx.execute(
        "INSERT INTO schedules (id, cron, destination, created_at, paused, next_at, caller_ip, spec) "
        "VALUES (?, ?, ?, ?, FALSE, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET cron = excluded.cron, "
        "destination = excluded.destination, next_at = excluded.next_at, spec = excluded.spec",
        *(schedule_id, cron, destination, tx.now_ms, next_at, caller_ip, msgspec.msgpack.encode(publish)),
    )
    (count,) = tx.rows("SELECT count(*) FROM schedules")[0]
    if count > MAX_SCHEDULES:
        raise ApiError(412, f"too many schedules; got {count}; expected at most {MAX_SCHEDULES}")


def _stored(tx: QueueWrite, schedule_id: str) -> sqlite3.Row:
    row = tx.first("SELECT * FROM schedules WHERE id = ?", schedule_id)
    if row is None:
        raise ApiError(404, f"schedule {schedule_id[:80]!r} is not here; expected one that was made")
    return row


def _shown(tx: QueueWrite, row: sqlite3.Row) -> Schedule:
    publish: Publish = msgspec.msgpack.decode(row["spec"], type=Publish)
    settings, flow = publish.settings, publish.settings.flow
    headers, body = redacted(publish.redact, Sent(settings.headers, publish.body))
    callback, failure_callback = publish.callback, publish.failure_callback
    last = json.loads(row["last_messages"]) if row["last_messages"] else []
    optional: Any = {
        "callback": callback and callback.url,
        "callbackHeader": callback and header_lists(callback.headers),
        "failureCallback": failure_callback and failure_callback.url,
        "failureCallbackHeader": failure_callback and header_lists(failure_callback.headers),
        "delay": settings.delay_ms and settings.delay_ms // 1000,
        "timeout": settings.timeout_ms and settings.timeout_ms // 1000,
        "retryDelayExpression": settings.retry_delay,
        "queueName": publish.origin.queue or None,
        "label": settings.labels[0] if settings.labels else None,
        "flowControlKey": settings.flow_key,
        "parallelism": flow and flow.parallelism,
        "rate": flow and flow.rate,
        "period": flow and flow.period_ms // 1000,
        "nextScheduleTime": row["next_at"],
        "lastScheduleTime": row["last_at"],
        "lastScheduleStates": {name: _state(tx, name) for name in last} or None,
        "error": row["error"],
    }
    shown: Schedule = {
        "scheduleId": row["id"],
        "cron": row["cron"],
        "destination": row["destination"],
        "createdAt": row["created_at"],
        "method": settings.method or "POST",
        "retries": DEFAULT_RETRIES if settings.retries is None else settings.retries,
        "isPaused": bool(row["paused"]),
        "header": header_lists(headers),
        "labels": list(settings.labels),
        "callerIP": row["caller_ip"],
    }
    more: Any = {name: value for name, value in optional.items() if value is not None}
    shown.update(body_fields("body", body) | more)
    return shown


def _state(tx: QueueWrite, message_id: str) -> str:
    """How far a message of a schedule is."""
    if tx.first("SELECT 1 FROM messages WHERE id = ?", message_id):
        return "IN_PROGRESS"
    sql = "SELECT 1 FROM events WHERE message_id = ? AND state = 'DELIVERED'"
    return "SUCCESS" if tx.first(sql, message_id) else "FAIL"
