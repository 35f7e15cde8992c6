"""Operations on workflow runs and the events that they wait for, on the two logs, and on the signing keys."""

from __future__ import annotations

import base64
import json
import sqlite3
from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError, read_body, read_json
from toolkit.local.operations import Declared, Operation, Query, Texts, Timestamp
from toolkit.local.queue import runs, steps, waiting
from toolkit.local.queue.intake import PublishedMessage
from toolkit.local.queue.parameters import (
    Condition,
    ListQuery,
    Span,
    TextOrTexts,
    ids_in_body,
    json_field,
    starts_with,
    where,
)
from toolkit.local.queue.publish_routes import Canceled, caller, header_pairs
from toolkit.local.queue.publishing import read_publish
from toolkit.local.queue.runs import RestartedRun, RunEntry
from toolkit.local.queue.scheduler import Queue
from toolkit.local.queue.waiting import Notified, Waiter, WaitRequest


class RunsQuery(Span):
    """The runs to cancel."""

    workflow_run_ids: Texts = ()
    workflow_url: Texts = ()
    caller_ip: Texts = ()
    flow_control_key: Texts = ()
    label: Texts = ()
    workflow_url_exact_match: Annotated[
        Literal["true", "false"], Meta(description="Whether it is no prefix (false).")
    ] = "false"


class EndQuery(Query):
    """How a run ends."""

    cancel: Annotated[Literal["true", "false"], Meta(description="Whether it is canceled (true).")] = "true"


class RunLogQuery(ListQuery):
    """Filters of the run log."""

    workflow_created_at: Timestamp | None = None
    workflow_run_id: Texts = ()
    workflow_url: Texts = ()
    state: Texts = ()
    workflow_state: Texts = ()
    label: Texts = ()
    caller_ip: Texts = ()
    flow_control_key: Texts = ()
    message_id: Texts = ()
    # runs are listed in any case: the public workflow client sends this
    group_by: Annotated[Texts, Meta(description="Accepted and ignored: entries are not grouped.")] = ()


class EventLogQuery(ListQuery):
    """Filters of the log of messages."""

    count: Annotated[int, Meta(ge=1, le=1000, description="Most entries a page.")] = 1000
    message_id: Texts = ()
    message_ids: Texts = ()
    workflow_run_id: Texts = ()
    state: Texts = ()
    url: Texts = ()
    label: Texts = ()
    caller_ip: Texts = ()
    flow_control_key: Texts = ()
    topic_name: Texts = ()
    queue_name: Texts = ()
    schedule_id: Texts = ()


class RunSelection(TypedDict, total=False):
    """Runs by ids or URLs."""

    workflowRunIds: TextOrTexts
    workflowUrl: TextOrTexts


class HistoryStep(TypedDict):
    """A step of a run, its body in base64."""

    messageId: str
    body: str
    callType: str


class RunPage(TypedDict):
    """A page of runs, newest first; the cursor is empty on the last one."""

    cursor: str
    runs: Annotated[list[RunEntry], Meta(max_length=100)]


class MessageEvent(TypedDict):
    """Something that happened to a message."""

    time: int
    messageId: str
    state: str
    url: NotRequired[str]


class EventPage(TypedDict):
    """A page of events, newest first; the cursor is empty on the last one."""

    cursor: str
    events: Annotated[list[MessageEvent], Meta(max_length=1000)]


class SigningKeys(TypedDict):
    """The current and the next signing key."""

    current: str
    next: str


_operation: Declared[Queue] = Declared()


def run_operations(queue: Queue) -> list[Operation]:
    """The operations on runs, events, logs and keys."""
    return _operation.of(queue)


@_operation(
    "DELETE",
    "/v2/workflows/runs",
    "cancelRuns",
    Canceled,
    query=RunsQuery,
    body=RunSelection,
    body_required=False,
)
async def _cancel(queue: Queue, request: Request, query: RunsQuery) -> Response:
    """Cancel the runs that are named or meet the filters, or all of them.

    ``workflowUrl`` is a prefix unless ``workflowUrlExactMatch`` is true.
    """
    body = await ids_in_body(request, "workflowRunIds", "workflowUrl")
    urls = (*query.workflow_url, *body["workflowUrl"])
    exact = query.workflow_url_exact_match == "true"
    conditions: tuple[Condition, ...] = (
        ("created_at >= {}", query.from_date),
        ("created_at <= {}", query.to_date),
        ("id IN ({})", (*query.workflow_run_ids, *body["workflowRunIds"])),
        ("url IN ({})", urls) if exact else starts_with("url", urls),
        ("caller_ip IN ({})", query.caller_ip),
        ("flow_key IN ({})", query.flow_control_key),
        (_ANY_LABEL.format("labels"), query.label),
    )
    now = queue.store.clock.now_ms()
    canceled = await queue.store.database.write(
        lambda connection: runs.cancel_all(connection, conditions, now_ms=now)
    )
    queue.scheduler.wake()
    return JSONResponse({"cancelled": canceled})


_ANY_LABEL = "EXISTS (SELECT 1 FROM json_each({}) WHERE value IN ({{}}))"


@_operation("GET", "/v2/workflows/runs/{run_id}", "run", list[HistoryStep], errors=(404,))
async def _history(queue: Queue, request: Request, _: Query) -> Response:
    """The steps of a run, in order."""
    run_id = request.path_params["run_id"]
    found = await queue.store.database.read(lambda connection: steps.steps(connection, run_id))
    if not found:
        raise ApiError(404, f"run {run_id[:80]!r} is not known; expected the id of a run")
    return JSONResponse(
        [
            {"messageId": message_id, "body": base64.b64encode(body).decode(), "callType": "step"}
            for message_id, body in found
        ]
    )


@_operation(
    "DELETE", "/v2/workflows/runs/{run_id}", "endRun", RestartedRun, query=EndQuery, body=bytes, errors=(404,)
)
async def _end(queue: Queue, request: Request, query: EndQuery) -> Response:
    """End a run: canceled, or with cancel=false as one that is through.

    The body is its result, for the run that invoked it.
    """
    result = await read_body(request, queue.max_message)
    run_id, now = request.path_params["run_id"], queue.store.clock.now_ms()
    cancel = query.cancel == "true"
    await queue.store.database.write(
        lambda connection: runs.end(connection, run_id, cancel=cancel, now_ms=now, result=result)
    )
    queue.scheduler.wake()
    return JSONResponse({"workflowRunId": run_id})


@_operation(
    "POST",
    "/v2/wait/{event_id}",
    "wait",
    PublishedMessage,
    body=WaitRequest,
    headers={"Service-Workflow-RunId": "The waiting run."},
    errors=(404,),
)
async def _wait(queue: Queue, request: Request, _: Query) -> Response:
    """Let a run wait for an event."""
    event_id = waiting.checked_event_id(request.path_params["event_id"])
    requested = waiting.read_wait(await read_json(request))
    publish = read_publish(requested.url, header_pairs(request), b"", prefix=queue.prefix)
    await queue.destinations.address(requested.url)
    now, factor = queue.store.clock.now_ms(), queue.scheduler.factor

    def work(connection: sqlite3.Connection) -> PublishedMessage:
        return waiting.wait(
            connection, publish, event_id, requested, now_ms=now, factor=factor, caller_ip=caller(request)
        )

    waits = await queue.store.database.write(work)
    queue.scheduler.wake()
    return JSONResponse(waits)


@_operation("GET", "/v2/waiters/{event_id}", "waiters", list[Waiter])
async def _waiters(queue: Queue, request: Request, _: Query) -> Response:
    """The waiters of an event."""
    event_id = waiting.checked_event_id(request.path_params["event_id"])
    found = await queue.store.database.read(lambda connection: waiting.waiters(connection, event_id))
    return JSONResponse([waiting.shown(message) for message in found])


@_operation("POST", "/v2/notify/{event_id}", "notify", list[Notified], body=bytes)
async def _notify(queue: Queue, request: Request, _: Query) -> Response:
    """Notify all waiters of an event."""
    event_id = waiting.checked_event_id(request.path_params["event_id"])
    body, now = await read_body(request, queue.max_message), queue.store.clock.now_ms()
    notified = await queue.store.database.write(
        lambda connection: waiting.notify(connection, event_id, body, now_ms=now)
    )
    queue.scheduler.wake()
    return JSONResponse(notified)


@_operation("POST", "/v2/notify/{run_id}/{event_id}", "notifyRun", Notified, body=bytes, errors=(404,))
async def _notify_run(queue: Queue, request: Request, _: Query) -> Response:
    """Notify one run of an event, now or when it waits for it."""
    run_id = request.path_params["run_id"]
    event_id = waiting.checked_event_id(request.path_params["event_id"])
    body, now = await read_body(request, queue.max_message), queue.store.clock.now_ms()
    notified = await queue.store.database.write(
        lambda connection: waiting.notify_run(connection, run_id, event_id, body, now_ms=now)
    )
    queue.scheduler.wake()
    return JSONResponse(notified)


@_operation("GET", "/v2/workflows/logs", "run-logs", RunPage, query=RunLogQuery)
@_operation("GET", "/v2/workflows/events", "run-events", RunPage, query=RunLogQuery)
async def _run_log(queue: Queue, _: Request, query: RunLogQuery) -> Response:
    """A page of runs, newest first."""
    rows, cursor = await _page(
        queue,
        query,
        "runs",
        "created_at",
        ("created_at = {}", query.workflow_created_at),
        ("id IN ({})", query.workflow_run_id),
        ("url IN ({})", query.workflow_url),
        ("state IN ({})", (*query.state, *query.workflow_state)),
        ("caller_ip IN ({})", query.caller_ip),
        ("flow_key IN ({})", query.flow_control_key),
        (_ANY_LABEL.format("labels"), query.label),
        ("id IN (SELECT run_id FROM steps WHERE message_id IN ({}))", query.message_id),
    )
    shown = await queue.store.database.read(lambda connection: [runs.shown(connection, row) for row in rows])
    return JSONResponse({"cursor": cursor, "runs": shown})


@_operation("GET", "/v2/logs", "message-logs", EventPage, query=EventLogQuery)
@_operation("GET", "/v2/events", "message-events", EventPage, query=EventLogQuery)
async def _event_log(queue: Queue, _: Request, query: EventLogQuery) -> Response:
    """A page of events of messages, newest first."""
    rows, cursor = await _page(
        queue,
        query,
        "events",
        "time",
        ("message_id IN ({})", (*query.message_id, *query.message_ids)),
        ("run_id IN ({})", query.workflow_run_id),
        ("state IN ({})", query.state),
        ("url IN ({})", query.url),
        (_ANY_LABEL.format("entry, '$.labels'"), query.label),
        (json_field("callerIP"), query.caller_ip),
        (json_field("flowControlKey"), query.flow_control_key),
        (json_field("topicName"), query.topic_name),
        (json_field("queueName"), query.queue_name),
        (json_field("scheduleId"), query.schedule_id),
    )
    return JSONResponse({"cursor": cursor, "events": [json.loads(row["entry"]) for row in rows]})


async def _page(
    queue: Queue, query: ListQuery, table: str, order: str, *conditions: Condition
) -> tuple[list[sqlite3.Row], str]:
    """A page of a table, newest first, of rows that meet the conditions."""
    after = queue.store.cursors.read(table, query.cursor)
    wanted, values = where(
        (f"{order} >= {{}}", query.from_date),
        (f"{order} <= {{}}", query.to_date),
        *conditions,
        (f"({order}, seq) < ({{}})", after),
    )
    sql = f"SELECT * FROM {table} WHERE {wanted} ORDER BY {order} DESC, seq DESC LIMIT ?"  # noqa: S608 - SQL of this package, values bound
    rows = await queue.store.database.read(
        lambda connection: connection.execute(sql, (*values, query.count + 1)).fetchall()
    )
    last = rows[query.count - 1] if len(rows) > query.count else None
    return rows[: query.count], queue.store.cursors.make(table, last and (last[order], last["seq"]))


@_operation("GET", "/v2/keys", "keys", SigningKeys)
async def _keys(queue: Queue, _: Request, __: Query) -> Response:
    """The signing keys."""
    current, following = queue.store.signing_keys
    return JSONResponse({"current": current, "next": following})


@_operation("POST", "/v2/keys/rotate", "rotateKeys", SigningKeys)
async def _rotate(queue: Queue, _: Request, __: Query) -> Response:
    """Make the next key the current one."""
    current, following = await queue.store.rotate_keys()
    return JSONResponse({"current": current, "next": following})
