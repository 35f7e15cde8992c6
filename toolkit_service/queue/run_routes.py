"""Operations on workflow runs and the events that they wait for, on the two logs, and on the signing keys."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit_service.api import ApiError, checked_name, read_as, read_json
from toolkit_service.operations import Query, Texts, Timestamp
from toolkit_service.queue import runs, steps
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.listing import (
    Condition,
    FlowKey,
    ListQuery,
    MostCanceled,
    Span,
    TextOrTexts,
    any_label,
    conditions,
    json_field,
    of_host,
    of_path,
    page,
    sql,
    starts_with,
    with_ids,
)
from toolkit_service.queue.messages import HistoryStep, history_items
from toolkit_service.queue.publish_routes import Canceled
from toolkit_service.queue.publishing import read_publish
from toolkit_service.queue.queue_operations import QueueOperations, with_cursor
from toolkit_service.queue.request_parts import caller, header_pairs
from toolkit_service.queue.runs import (
    Notified,
    RestartedRun,
    RunEntry,
    Waiter,
    WaitRequest,
)
from toolkit_service.queue.scheduler import Queue
from toolkit_service.queue.steps import PublishedMessage

Flag: TypeAlias = Literal["true", "false"]
RunLabels: TypeAlias = Annotated[Texts, sql(any_label("labels"))]


class RunsQuery(Span):
    """The runs to cancel."""

    count: MostCanceled | None = None
    workflow_run_ids: Annotated[Texts, sql("id IN ({})")] = ()
    workflow_url: Annotated[Texts, sql("")] = ()
    host: Annotated[Texts, of_host("url")] = ()
    path: Annotated[Texts, of_path("url")] = ()
    caller_ip: Texts = ()
    flow_control_key: FlowKey = ()
    label: RunLabels = ()
    workflow_url_exact_match: Annotated[
        Flag,
        Meta(
            description="Whether workflowUrl is the whole URL, not only the start of it (false)."
        ),
    ] = "false"


class EndQuery(Query):
    """How a run ends."""

    cancel: Annotated[
        Flag, Meta(description="Whether the run is cancelled (true).")
    ] = "true"


class RunLogQuery(ListQuery):
    """Filters of the run log."""

    workflow_created_at: Annotated[Timestamp, sql("created_at = {}")] | None = None
    workflow_run_id: Annotated[Texts, sql("id IN ({})")] = ()
    workflow_url: Annotated[Texts, sql("url IN ({})")] = ()
    host: Annotated[Texts, of_host("url")] = ()
    path: Annotated[Texts, of_path("url")] = ()
    state: Texts = ()
    workflow_state: Annotated[Texts, sql("state IN ({})")] = ()
    label: RunLabels = ()
    caller_ip: Texts = ()
    flow_control_key: FlowKey = ()
    message_id: Annotated[
        Texts, sql("id IN (SELECT run_id FROM steps WHERE message_id IN ({}))")
    ] = ()
    trim_body: Annotated[
        Flag, Meta(description="Whether to omit outputs of steps (false).")
    ] = "false"
    # the public workflow client sends this parameter, and lists runs without it as well
    group_by: Annotated[
        Texts, sql("", "Accepted and ignored: entries are not grouped.")
    ] = ()


class EventLogQuery(ListQuery):
    """Filters of the log of messages."""

    count: Annotated[int, Meta(ge=1, le=1000, description="Most entries per page.")] = (
        1000
    )
    from_date: (
        Annotated[Timestamp, sql("time >= {}", "Unix milliseconds, inclusive.")] | None
    ) = None
    to_date: (
        Annotated[Timestamp, sql("time <= {}", "Unix milliseconds, inclusive.")] | None
    ) = None
    message_id: Texts = ()
    message_ids: Annotated[Texts, sql("message_id IN ({})")] = ()
    workflow_run_id: Annotated[Texts, sql("run_id IN ({})")] = ()
    state: Texts = ()
    url: Texts = ()
    host: Annotated[Texts, of_host("url")] = ()
    path: Annotated[Texts, of_path("url")] = ()
    label: Annotated[Texts, sql(any_label("entry, '$.labels'"))] = ()
    caller_ip: Annotated[Texts, sql(json_field("callerIP"))] = ()
    flow_control_key: Annotated[Texts, sql(json_field("flowControlKey"))] = ()
    topic_name: Annotated[Texts, sql(json_field("topicName"))] = ()
    queue_name: Annotated[Texts, sql(json_field("queueName"))] = ()
    schedule_id: Annotated[Texts, sql(json_field("scheduleId"))] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        # public pages spell this state differently from the public package
        spellings = {"CANCELLED": "CANCELED"}
        self.state = tuple(spellings.get(state, state) for state in self.state)


class RunSelection(msgspec.Struct, rename="camel"):
    """Runs by ids or URLs."""

    workflow_run_ids: TextOrTexts = []
    workflow_url: TextOrTexts = []


class RunPage(TypedDict):
    """A page of runs, newest first. On the last page, the cursor is empty (public dialect: omitted)."""

    cursor: NotRequired[str]
    runs: Annotated[list[RunEntry], Meta(max_length=100)]


class MessageEvent(TypedDict):
    """An event of a message; fields that do not apply are omitted."""

    time: int
    messageId: str
    state: str
    url: NotRequired[str]
    topicName: NotRequired[str]
    endpointName: NotRequired[str]
    queueName: NotRequired[str]
    scheduleId: NotRequired[str]
    label: NotRequired[str]
    labels: NotRequired[list[str]]
    responseStatus: NotRequired[int]
    error: NotRequired[str]
    nextDeliveryTime: NotRequired[int]


class EventPage(TypedDict):
    """A page of events, newest first. On the last page, the cursor is empty (public dialect: omitted)."""

    cursor: NotRequired[str]
    events: Annotated[list[MessageEvent], Meta(max_length=1000)]


class LogPage(EventPage):
    """A page of events, newest first, under both names that public pages use."""

    logs: Annotated[list[MessageEvent], Meta(max_length=1000)]


class SigningKeys(TypedDict):
    """The current and the next signing key."""

    current: str
    next: str


run_operations: Final = QueueOperations()
"""The operations on runs, events, logs and keys."""


@run_operations(
    "DELETE",
    "/v2/workflows/runs",
    "cancelRuns",
    Canceled,
    query=RunsQuery,
    body=RunSelection,
    body_required=False,
)
async def _cancel(queue: Queue, request: Request, query: RunsQuery) -> Response:
    """Cancel the runs with these ids or filters, or all runs; with `count`, only the oldest."""
    query = await with_ids(request, query, RunSelection)
    if query.workflow_url_exact_match == "true":
        url_condition: Condition = ("url IN ({})", query.workflow_url)
    else:
        url_condition = starts_with("url", query.workflow_url)

    wanted = [*conditions(query), url_condition]
    return JSONResponse(
        {"cancelled": await queue.write(runs.cancel_all, wanted, query.count)}
    )


@run_operations.transaction(
    "GET", "/v2/workflows/runs/{run_id}", "run", list[HistoryStep], errors=(404,)
)
def _history(tx: QueueWrite, run_id: str) -> list[HistoryStep]:
    """List the steps of a run, in order."""
    history = steps.steps(tx, run_id)
    if not history:
        raise ApiError(
            404, f"run {run_id[:80]!r} is not known; expected the id of a run"
        )

    return history_items(history)


@run_operations.transaction(
    "DELETE",
    "/v2/workflows/runs/{run_id}",
    "endRun",
    RestartedRun,
    query=EndQuery,
    body=bytes,
    errors=(404,),
)
def _end(tx: QueueWrite, run_id: str, query: EndQuery, body: bytes) -> RestartedRun:
    """End a run as canceled or, with cancel=false, as completed."""
    runs.end(tx, run_id, cancel=query.cancel == "true", result=body)
    return {"workflowRunId": run_id}


@run_operations(
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
    event_id = _event_id(request.path_params["event_id"])
    body = read_as(await read_json(request), WaitRequest, "wait")
    publish = read_publish(body.url, header_pairs(request), b"", prefix=queue.prefix)
    await queue.destinations.address(body.url)

    return JSONResponse(
        await queue.write(runs.wait, publish, event_id, body, caller_ip=caller(request))
    )


@run_operations.transaction("GET", "/v2/waiters/{event_id}", "waiters", list[Waiter])
def _waiters(tx: QueueWrite, event_id: str) -> list[Waiter]:
    """List the waiters of an event."""
    return runs.waiters(tx, _event_id(event_id))


@run_operations.transaction(
    "POST", "/v2/notify/{event_id}", "notify", list[Notified], body=bytes
)
def _notify(tx: QueueWrite, event_id: str, body: bytes) -> list[Notified]:
    """Notify all waiters of an event."""
    return runs.notify(tx, _event_id(event_id), body)


@run_operations.transaction(
    "POST",
    "/v2/notify/{run_id}/{event_id}",
    "notifyRun",
    Notified,
    body=bytes,
    errors=(404,),
)
def _notify_run(tx: QueueWrite, run_id: str, event_id: str, body: bytes) -> Notified:
    """Notify one run of an event, now or when the run waits for the event."""
    return runs.notify_run(tx, run_id, _event_id(event_id), body)


def _event_id(text: str) -> str:
    return checked_name(text, "event id")


@run_operations("GET", "/v2/workflows/logs", "run-logs", RunPage, query=RunLogQuery)
@run_operations("GET", "/v2/workflows/events", "run-events", RunPage, query=RunLogQuery)
async def _run_log(queue: Queue, _: Request, query: RunLogQuery) -> Response:
    """List a page of runs, newest first."""

    def shown(tx: QueueWrite, row: sqlite3.Row) -> dict[str, Any]:
        run = runs.shown(tx, row)
        if query.trim_body == "true":
            _trim(run)
        return run

    return JSONResponse(await queue.store.read(_listed, queue, "runs", query, shown))


def _trim(run: dict[str, Any]) -> None:
    """Remove the outputs of the steps of a run."""
    for group in run.get("steps", ()):
        for step in group["steps"]:
            step.pop("out", None)


@run_operations("GET", "/v2/logs", "message-logs", LogPage, query=EventLogQuery)
async def _log(queue: Queue, _: Request, query: EventLogQuery) -> Response:
    """List a page of events of messages, newest first, as `logs` and as `events`."""
    listed = await queue.store.read(_listed, queue, "events", query, _event)
    return JSONResponse(listed | {"logs": listed["events"]})


@run_operations("GET", "/v2/events", "message-events", EventPage, query=EventLogQuery)
async def _event_log(queue: Queue, _: Request, query: EventLogQuery) -> Response:
    """List a page of events of messages, newest first."""
    return JSONResponse(await queue.store.read(_listed, queue, "events", query, _event))


_OTHER_NAMES: Final = {
    "responseHeader": "responseHeaders",
    "retryDelayExpression": "retryDelayExpr",
}
"""Fields of events that have different names in the public package and on the public pages."""


def _event(_: QueueWrite, row: sqlite3.Row) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(row["entry"])
    for name, other_name in _OTHER_NAMES.items():
        if name in entry:
            entry[other_name] = entry[name]

    return entry


def _listed(
    tx: QueueWrite,
    queue: Queue,
    table: str,
    query: ListQuery,
    shown: Callable[[QueueWrite, sqlite3.Row], dict[str, Any]],
) -> dict[str, Any]:
    """Return the response with a page of a table, newest first."""
    rows, cursor = page(tx, queue.store.cursors, table, query)
    return with_cursor(queue, {table: [shown(tx, row) for row in rows]}, cursor)


@run_operations("GET", "/v2/keys", "keys", SigningKeys)
async def _keys(queue: Queue, _: Request, __: Query) -> Response:
    """Return the signing keys."""
    current, following = queue.store.signing_keys
    return JSONResponse({"current": current, "next": following})


@run_operations("POST", "/v2/keys/rotate", "rotateKeys", SigningKeys)
async def _rotate(queue: Queue, _: Request, __: Query) -> Response:
    """Make the next signing key the current key."""
    current, following = await queue.store.rotate_keys()
    return JSONResponse({"current": current, "next": following})
