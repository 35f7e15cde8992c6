"""The dead letter queues: ``/v2/workflows/dlq`` of runs, ``/v2/dlq`` of plain messages."""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError, invalid
from toolkit.local.operations import Endpoint, Operation, Query, Texts, Timestamp
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.listing import (
    FlowKey,
    ListQuery,
    TextOrTexts,
    conditions,
    json_field,
    not_found,
    page,
    sql,
    with_cursor,
    with_ids,
)
from toolkit.local.queue.messages import (
    Attempt,
    DestinationResponse,
    DlqEntry,
    Message,
    Sent,
    Settings,
    WorkflowHeaders,
    decode_message,
    new_id,
)
from toolkit.local.queue.outcomes import report_failure
from toolkit.local.queue.publish_routes import cancel, header_pairs
from toolkit.local.queue.publishing import PUBLISH_HEADERS, read_publish
from toolkit.local.queue.runs import start_again
from toolkit.local.queue.scheduler import Queue
from toolkit.local.queue.sender import check_url
from toolkit.local.queue.steps import enqueue, fresh_copy

Action: TypeAlias = Callable[[QueueWrite, sqlite3.Row, Queue, Settings], dict[str, Any] | None]
"""Acts on an entry, with the settings that the request's headers give; returns its item of the response."""


class DlqQuery(ListQuery):
    """Filters of the dead letter queues: an entry passes that matches all that are given."""

    workflow_url: Texts = ()
    workflow_run_id: Annotated[str, sql("run_id = {}", "This one.")] = ""
    workflow_created_at: Annotated[Timestamp, sql("workflow_created_at = {}")] | None = None
    label: Annotated[Texts, sql("seq IN (SELECT dlq_seq FROM dlq_labels WHERE label IN ({}))")] = ()
    failure_function_state: Annotated[Texts, sql("state IN ({})")] = ()
    failure_callback_state: Annotated[
        Texts, sql("state IN ({})", "Another name of failureFunctionState.")
    ] = ()
    caller_ip: Texts = ()
    flow_control_key: FlowKey = ()
    message_id: Annotated[Texts, sql(json_field("messageId"))] = ()
    response_status: Annotated[Texts, sql(json_field("responseStatus"))] = ()
    topic_name: Annotated[Texts, sql(json_field("topicName"))] = ()
    queue_name: Annotated[Texts, sql(json_field("queueName"))] = ()
    schedule_id: Annotated[Texts, sql(json_field("scheduleId"))] = ()
    dlq_ids: Annotated[Texts, sql("id IN ({})", "These entries.")] = ()


class MessageDlqQuery(DlqQuery):
    """The same for plain messages."""

    url: Annotated[Texts, sql(json_field("url"))] = ()


class MessageDlqListQuery(MessageDlqQuery):
    """A page of plain messages or, as the public workflow client reads it, of runs."""

    source: Annotated[
        Literal["workflow"] | None, sql("", "The entries of runs in place of plain messages.")
    ] = None


class DlqIds(msgspec.Struct, rename="camel"):
    """DLQ entries by their ids."""

    dlq_ids: TextOrTexts = []


class DlqPage(TypedDict):
    """A page of entries, newest first; the last one has an empty cursor or, in the public dialect, none."""

    cursor: NotRequired[str]
    messages: Annotated[list[DlqEntry], Meta(max_length=100)]


class Deleted(TypedDict):
    """How many entries were removed; with a cursor when more remain."""

    deleted: int
    cursor: NotRequired[str]


class StartedRuns(TypedDict):
    """The outcome for each entry."""

    cursor: NotRequired[str]
    workflowRuns: list[dict[str, Any]]


class RetriedMessages(TypedDict):
    """The outcome for each entry."""

    cursor: NotRequired[str]
    responses: list[dict[str, Any]]


def dlq_operations(queue: Queue) -> list[Operation]:
    """The operations below ``/v2/workflows/dlq`` and ``/v2/dlq``."""
    return [
        operation
        for workflow in (True, False)
        for operation in DeadLetters(queue, workflow=workflow).operations()
    ]


class DeadLetters:
    """The operations on one of the two queues: that of runs, or that of plain messages."""

    def __init__(self, queue: Queue, *, workflow: bool) -> None:
        self._queue = queue
        self._workflow = workflow

    def operations(self) -> list[Operation]:
        """Listing and removing entries, and what else can be done with some of them or with one."""
        path, query, kind, done, started, actions = (
            ("/v2/workflows/dlq", DlqQuery, "workflow", "workflowRuns", StartedRuns, _RUN_ACTIONS)
            if self._workflow
            else ("/v2/dlq", MessageDlqQuery, "message", "responses", RetriedMessages, _MESSAGE_ACTIONS)
        )
        page_query = query if self._workflow else MessageDlqListQuery
        entry = f"{path}/{{dlq_id}}"
        several = partial(Operation, query=query, body=DlqIds, body_required=False)
        one = partial(Operation, errors=(404,))
        changed = {name: PUBLISH_HEADERS[name] for name in _CHANGES} if self._workflow else {}
        run_id = {"Service-Workflow-RunId": "The id of the new run."} if self._workflow else {}
        listed = "A page of entries, newest first."
        removed = "Remove entries by ids or filters, at most `count`."
        delete_many = self._each(_delete, lambda deleted: {"deleted": len(deleted)})
        operations = [
            Operation("GET", path, f"{kind}Dlq", listed, self._page, DlqPage, query=page_query),
            several("DELETE", path, f"{kind}DlqDelete", removed, delete_many, Deleted),
            one("GET", entry, f"{kind}DlqEntry", "One entry.", self._one, DlqEntry),
            one("DELETE", entry, f"{kind}DlqEntryDelete", "Remove one entry.", self._act(_delete)),
        ]
        if self._workflow:
            route, cancel_one = f"{path}/callback/{{dlq_id}}", self._act(_cancel_callback)
            summary = "Cancel the failure function of an entry, which is in progress."
            operations.append(one("DELETE", route, "cancelFailureFunction", summary, cancel_one))
        for part, name, summary, action in actions:
            route, act = f"{path}/{part}", self._act(action)
            each = self._each(action, lambda entries: {done: entries})
            many, alone = (
                f"{summary} By ids or filters, at most `count` of them.",
                f"{summary} This one alone.",
            )
            shown = partial(one, returns=dict[str, Any], errors=(404, 409), headers=changed | run_id)
            operations += [
                several("POST", route, f"{name}Many", many, each, started, errors=(404,), headers=changed),
                shown("POST", f"{route}/{{dlq_id}}", name, alone, act),
            ]
        return operations

    async def _page(self, _: Request, query: DlqQuery) -> Response:
        rows, cursor = await self._queue.store.read(self._find, query)
        # entries are stored as JSON: put together, not decoded and encoded again
        fields = [f'"messages": [{", ".join(map(_shown, rows))}]']
        if "cursor" in with_cursor(self._queue, {}, cursor):
            fields.insert(0, f'"cursor": {json.dumps(cursor)}')
        return Response(f"{{{', '.join(fields)}}}", media_type="application/json")

    async def _one(self, request: Request, _: Query) -> Response:
        row = await self._queue.store.read(self._find_one, request.path_params["dlq_id"])
        return Response(_shown(row), media_type="application/json")

    def _act(self, action: Action) -> Endpoint:
        """Do something with one entry."""

        async def endpoint(request: Request, _: Query) -> Response:
            requested = _requested(request)

            def work(tx: QueueWrite) -> dict[str, Any] | None:
                return action(tx, self._find_one(tx, request.path_params["dlq_id"]), self._queue, requested)

            done = await self._queue.write(work)
            return Response() if done is None else JSONResponse(done)

        return endpoint

    def _each(self, action: Action, shown: Callable[[list[Any]], dict[str, Any]]) -> Endpoint:
        """Do something with each entry of a page, all in one transaction."""

        async def endpoint(request: Request, query: DlqQuery) -> Response:
            query = await with_ids(request, query, DlqIds)
            requested = replace(_requested(request), workflow=None)
            # public clients select all entries by a count alone
            if not conditions(query) and not request.query_params.get("count"):
                got = "neither dlqIds nor a filter nor count"
                raise invalid("no entries are selected", got, "one of them")

            def work(tx: QueueWrite) -> dict[str, Any]:
                rows, cursor = self._find(tx, query)
                done = shown([action(tx, row, self._queue, requested) for row in rows])
                return with_cursor(self._queue, done, cursor)

            return JSONResponse(await self._queue.write(work))

        return endpoint

    def _find(self, tx: QueueWrite, query: DlqQuery) -> tuple[list[sqlite3.Row], str]:
        """A page of entries that have not expired, and the cursor of the next one."""
        store = self._queue.store
        # "+" keeps SQLite from walking the whole list where an index leads to the few that are named
        no_index_hint = "+" if query.dlq_ids or query.workflow_run_id else ""
        workflow = self._workflow or (isinstance(query, MessageDlqListQuery) and query.source is not None)
        ours = (f"{no_index_hint}workflow = {{}}", int(workflow))
        kept = (f"{no_index_hint}entered_at >= {{}}", store.expired_before)
        listing = "workflow dlq" if workflow else "message dlq"
        return page(tx, store.cursors, "dlq", query, ours, kept, listing=listing)

    def _find_one(self, tx: QueueWrite, dlq_id: str) -> sqlite3.Row:
        rows, _ = self._find(tx, DlqQuery(count=1, dlq_ids=(dlq_id,)))
        if not rows:
            raise not_found("DLQ entry", dlq_id, "one that was neither removed nor expired")
        return rows[0]


def _shown(row: sqlite3.Row) -> str:
    """The JSON of an entry as lists and single reads show it."""
    entry: str = row["entry"]  # an object that holds at least its id
    if row["state"] is None:
        return entry
    return f'{entry[:-1]}, "failureFunctionState": {json.dumps(row["state"])}}}'


def _requested(request: Request) -> Settings:
    """The settings that a request's headers give."""
    return read_publish("http://localhost/", header_pairs(request), b"").settings


def _delete(tx: QueueWrite, row: sqlite3.Row, _: Queue, __: Settings) -> None:
    tx.execute("DELETE FROM dlq WHERE seq = ?", row["seq"])


def _start_again(
    tx: QueueWrite, row: sqlite3.Row, queue: Queue, requested: Settings, *, from_failed_step: bool
) -> dict[str, Any]:
    _delete(tx, row, queue, requested)
    failed = _message(row, queue)
    return start_again(tx, failed, from_failed_step=from_failed_step, requested=requested)


def _call_failure_function(tx: QueueWrite, row: sqlite3.Row, queue: Queue, _: Settings) -> dict[str, Any]:
    failed, entry = _message(row, queue), json.loads(row["entry"])
    if failed.failure_callback is None:
        raise ApiError(
            400, f"DLQ entry {row['id']!r} has no failure callback; expected one that was published with it"
        )
    if row["state"] == "CALLBACK_INPROGRESS":
        raise ApiError(400, f"the failure function of {row['id']!r} is running; expected it to have ended")
    attempt = Attempt(
        # shown as then: redacted values are not stored
        message=replace(failed, redact=()),
        sent=Sent(_pairs(entry.get("header")), _body(entry, "body")),
        response=DestinationResponse(
            int(entry.get("responseStatus") or 0),
            _pairs(entry.get("responseHeader")),
            _body(entry, "responseBody"),
        ),
        retried=failed.max_retries,
    )
    report_failure(tx, attempt, row["id"])
    return {"workflowRunId": failed.run_id, "failureFunctionState": "CALLBACK_INPROGRESS"}


def _cancel_callback(tx: QueueWrite, row: sqlite3.Row, _: Queue, __: Settings) -> None:
    message_id = tx.value("SELECT id FROM messages WHERE about = ?", row["id"])
    if message_id is None:
        got = row["state"] or "no failure function"
        raise invalid(f"nothing is in progress for {row['id']!r}", got, "CALLBACK_INPROGRESS")
    cancel(tx, message_id)


def _retry(tx: QueueWrite, row: sqlite3.Row, queue: Queue, requested: Settings) -> dict[str, Any]:
    message = fresh_copy(tx, _message(row, queue))
    enqueue(tx, message)
    _delete(tx, row, queue, requested)
    return {"messageId": message.id}


def _message(row: sqlite3.Row, queue: Queue) -> Message:
    """The message of an entry; of one that was filled in, a message that can start its run again."""
    if row["message"]:
        return decode_message(row["message"])
    entry = json.loads(row["entry"])
    url = check_url(str(entry.get("url") or entry.get("workflowUrl") or ""), f"the URL of {entry['dlqId']!r}")
    failure_callback = entry.get("failureCallback")
    return Message(
        id=str(entry.get("messageId") or new_id("msg")),
        kind="step",
        prefix=queue.prefix,
        settings=Settings(
            url=url,
            method=entry.get("method"),
            headers=_pairs(entry.get("header")),
            labels=tuple(entry.get("labels") or ()),
            workflow=WorkflowHeaders(
                run_id=str(entry.get("workflowRunId") or ""), url=str(entry.get("workflowUrl") or url)
            ),
        ),
        created_at=int(entry.get("createdAt") or 0),
        not_before=0,
        body=_body(entry, "body"),
        failure_callback=Settings(url=str(failure_callback)) if failure_callback else None,
        step=0,
    )


def _body(entry: Mapping[str, Any], name: str) -> bytes:
    """A body of an entry, from either field."""
    try:
        encoded = base64.b64decode(entry.get(f"{name}Base64") or "", validate=True)
    except (binascii.Error, ValueError):
        encoded = b""
    return encoded or str(entry.get(name) or "").encode(errors="replace")


def _pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    """The pairs of a header map of an entry."""
    lists = headers if isinstance(headers, dict) else {}
    return tuple((name, str(value)) for name, values in lists.items() for value in values)


_CHANGES: Final = tuple(
    f"Service-{name}"
    for name in ("Retries", "Retry-Delay", "Label", "Flow-Control-Key", "Flow-Control-Value")
)
_RUN_ACTIONS: Final[tuple[tuple[str, str, str, Action], ...]] = (
    (
        "resume",
        "resume",
        "Continue runs from their failed steps.",
        partial(_start_again, from_failed_step=True),
    ),
    ("restart", "restart", "Start runs from the beginning.", partial(_start_again, from_failed_step=False)),
    ("callback", "callFailureFunction", "Call failure functions again.", _call_failure_function),
)
_MESSAGE_ACTIONS: Final[tuple[tuple[str, str, str, Action], ...]] = (
    ("retry", "retry", "Deliver messages again.", _retry),
)
