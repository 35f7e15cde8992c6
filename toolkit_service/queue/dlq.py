"""The operations on the dead letter queues: ``/v2/workflows/dlq`` (runs) and ``/v2/dlq`` (plain messages)."""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    TypeAlias,
    TypedDict,
)

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit_service.api import ApiError, invalid
from toolkit_service.operations import Endpoint, Operation, Query, Texts, Timestamp
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.destinations import check_url
from toolkit_service.queue.listing import (
    FlowKey,
    ListQuery,
    TextOrTexts,
    conditions,
    json_field,
    not_found,
    page,
    sql,
    with_ids,
)
from toolkit_service.queue.messages import (
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
from toolkit_service.queue.outcomes import report_failure
from toolkit_service.queue.publish_routes import cancel
from toolkit_service.queue.publishing import PUBLISH_HEADERS, read_publish
from toolkit_service.queue.queue_operations import with_cursor
from toolkit_service.queue.request_parts import header_pairs
from toolkit_service.queue.runs import start_again
from toolkit_service.queue.scheduler import Queue
from toolkit_service.queue.steps import enqueue, fresh_copy

Action: TypeAlias = Callable[
    [QueueWrite, sqlite3.Row, Queue, Settings], dict[str, Any] | None
]
"""Acts on an entry, with the settings from the headers of the request. Returns an item of the response."""


class Kind(NamedTuple):
    """The names that differ between the two queues, and the actions on entries of each."""

    path: str
    name: str
    query: type[DlqQuery]
    page_query: type[DlqQuery]
    started: type
    started_field: str
    actions: tuple[NamedAction, ...]


class NamedAction(NamedTuple):
    """An action: the last part of the path, the name of the operations, and a sentence about it."""

    part: str
    name: str
    summary: str
    action: Action


class DlqQuery(ListQuery):
    """Filters of the dead letter queues. An entry matches if it meets all filters of the request."""

    workflow_url: Texts = ()
    workflow_run_id: Annotated[str, sql("run_id = {}", "The run with this id.")] = ""
    workflow_created_at: (
        Annotated[Timestamp, sql("workflow_created_at = {}")] | None
    ) = None
    label: Annotated[
        Texts, sql("seq IN (SELECT dlq_seq FROM dlq_labels WHERE label IN ({}))")
    ] = ()
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
    dlq_ids: Annotated[Texts, sql("id IN ({})", "The entries with these ids.")] = ()


class MessageDlqQuery(DlqQuery):
    """Filters of the dead letter queue of plain messages."""

    url: Annotated[Texts, sql(json_field("url"))] = ()


class MessageDlqListQuery(MessageDlqQuery):
    """Filters and page of plain messages or, as the public workflow client requests, of runs."""

    source: Annotated[
        Literal["workflow"] | None,
        sql("", "List the entries of runs instead of plain messages."),
    ] = None


class DlqIds(msgspec.Struct, rename="camel"):
    """DLQ entries by their ids."""

    dlq_ids: TextOrTexts = []


class DlqPage(TypedDict):
    """A page of entries, newest first. On the last page, the cursor is empty (public dialect: omitted)."""

    cursor: NotRequired[str]
    messages: Annotated[list[DlqEntry], Meta(max_length=100)]


class Deleted(TypedDict):
    """The number of removed entries; if more entries match, the cursor of the next page."""

    deleted: int
    cursor: NotRequired[str]


class StartedRuns(TypedDict):
    """The outcome per entry."""

    cursor: NotRequired[str]
    workflowRuns: list[dict[str, Any]]


class RetriedMessages(TypedDict):
    """The outcome per entry."""

    cursor: NotRequired[str]
    responses: list[dict[str, Any]]


def dlq_operations(queue: Queue) -> list[Operation]:
    """Return the operations below ``/v2/workflows/dlq`` and ``/v2/dlq``."""
    of_runs = DeadLetters(queue, workflow=True)
    of_messages = DeadLetters(queue, workflow=False)
    return of_runs.operations() + of_messages.operations()


class DeadLetters:
    """The operations on one of the two queues: that of runs, or that of plain messages."""

    def __init__(self, queue: Queue, *, workflow: bool) -> None:
        self._queue = queue
        self._workflow = workflow

    def operations(self) -> list[Operation]:
        """Return the operations that list and remove entries, and the actions on one or several entries."""
        kind = _RUNS if self._workflow else _MESSAGES
        operations = self._listing_operations(kind)
        if self._workflow:
            operations.append(
                Operation(
                    "DELETE",
                    f"{kind.path}/callback/{{dlq_id}}",
                    "cancelFailureFunction",
                    "Cancel the failure function of an entry, which is in progress.",
                    self._act(_cancel_callback),
                    errors=(404,),
                )
            )

        for named in kind.actions:
            operations += self._action_operations(kind, named)
        return operations

    def _listing_operations(self, kind: Kind) -> list[Operation]:
        path, entry_path = kind.path, f"{kind.path}/{{dlq_id}}"
        listed = "List a page of entries, newest first."
        removed = "Remove entries by ids or filters, at most `count`."
        delete_many = self._each(_delete, lambda deleted: {"deleted": len(deleted)})
        several = partial(Operation, query=kind.query, body=DlqIds, body_required=False)
        one = partial(Operation, errors=(404,))

        return [
            Operation(
                "GET",
                path,
                f"{kind.name}Dlq",
                listed,
                self._page,
                DlqPage,
                query=kind.page_query,
            ),
            several(
                "DELETE", path, f"{kind.name}DlqDelete", removed, delete_many, Deleted
            ),
            one(
                "GET",
                entry_path,
                f"{kind.name}DlqEntry",
                "Return one entry.",
                self._one,
                DlqEntry,
            ),
            one(
                "DELETE",
                entry_path,
                f"{kind.name}DlqEntryDelete",
                "Remove one entry.",
                self._act(_delete),
            ),
        ]

    def _action_operations(self, kind: Kind, named: NamedAction) -> list[Operation]:
        """Return an action twice: on several entries, and on one."""
        changes: dict[str, str] = {}
        run_id: dict[str, str] = {}
        if self._workflow:
            changes = {name: PUBLISH_HEADERS[name] for name in _CHANGES}
            run_id = {"Service-Workflow-RunId": "The id of the new run."}

        route = f"{kind.path}/{named.part}"
        many = Operation(
            "POST",
            route,
            f"{named.name}Many",
            f"{named.summary} By ids or filters, at most `count` of them.",
            self._each(named.action, lambda outcomes: {kind.started_field: outcomes}),
            kind.started,
            query=kind.query,
            body=DlqIds,
            body_required=False,
            errors=(404,),
            headers=changes,
        )
        one = Operation(
            "POST",
            f"{route}/{{dlq_id}}",
            named.name,
            f"{named.summary} Only this entry.",
            self._act(named.action),
            dict[str, Any],
            errors=(404, 409),
            headers=changes | run_id,
        )

        return [many, one]

    async def _page(self, _: Request, query: DlqQuery) -> Response:
        rows, cursor = await self._queue.store.read(self._find, query)
        # entries are stored as JSON, and are joined as they are: decoding and encoding them is slow
        fields = [f'"messages": [{", ".join(map(_shown, rows))}]']
        if "cursor" in with_cursor(self._queue, {}, cursor):
            fields.insert(0, f'"cursor": {json.dumps(cursor)}')
        return Response(f"{{{', '.join(fields)}}}", media_type="application/json")

    async def _one(self, request: Request, _: Query) -> Response:
        row = await self._queue.store.read(
            self._find_one, request.path_params["dlq_id"]
        )
        return Response(_shown(row), media_type="application/json")

    def _act(self, action: Action) -> Endpoint:
        """Return an endpoint that applies an action to one entry."""

        async def endpoint(request: Request, _: Query) -> Response:
            requested = _requested(request)
            dlq_id = request.path_params["dlq_id"]

            def work(tx: QueueWrite) -> dict[str, Any] | None:
                return action(tx, self._find_one(tx, dlq_id), self._queue, requested)

            outcome = await self._queue.write(work)

            return Response() if outcome is None else JSONResponse(outcome)

        return endpoint

    def _each(
        self, action: Action, respond: Callable[[list[Any]], dict[str, Any]]
    ) -> Endpoint:
        """Return an endpoint that applies an action to each entry of a page, all in one transaction."""

        async def endpoint(request: Request, query: DlqQuery) -> Response:
            query = await with_ids(request, query, DlqIds)
            # a run id in the headers can name one new run only
            requested = replace(_requested(request), workflow=None)
            # public clients select all entries with a count and no filter
            if not conditions(query) and not request.query_params.get("count"):
                got = "neither dlqIds nor a filter nor count"
                raise invalid("no entries are selected", got, "one of them")

            def work(tx: QueueWrite) -> dict[str, Any]:
                rows, cursor = self._find(tx, query)
                outcomes = [action(tx, row, self._queue, requested) for row in rows]
                return with_cursor(self._queue, respond(outcomes), cursor)

            return JSONResponse(await self._queue.write(work))

        return endpoint

    def _find(self, tx: QueueWrite, query: DlqQuery) -> tuple[list[sqlite3.Row], str]:
        """Return a page of entries that have not expired, and the cursor of the next page."""
        store = self._queue.store
        is_workflow = self._workflow
        if isinstance(query, MessageDlqListQuery) and query.source is not None:
            is_workflow = True
        # a "+" before a column keeps SQLite from using an index: with ids, the index of ids is faster
        no_index = "+" if query.dlq_ids or query.workflow_run_id else ""
        of_this_queue = (f"{no_index}workflow = {{}}", int(is_workflow))
        not_expired = (f"{no_index}entered_at >= {{}}", store.expired_before)
        listing = "workflow dlq" if is_workflow else "message dlq"

        return page(
            tx, store.cursors, "dlq", query, of_this_queue, not_expired, listing=listing
        )

    def _find_one(self, tx: QueueWrite, dlq_id: str) -> sqlite3.Row:
        rows, _ = self._find(tx, DlqQuery(count=1, dlq_ids=(dlq_id,)))
        if not rows:
            raise not_found(
                "DLQ entry", dlq_id, "an entry that was neither removed nor expired"
            )

        return rows[0]


def _shown(row: sqlite3.Row) -> str:
    """Return the JSON of an entry for listings and single reads."""
    entry: str = row["entry"]  # an object that contains at least the id
    if row["state"] is None:
        return entry

    without_brace = entry[:-1]
    return f'{without_brace}, "failureFunctionState": {json.dumps(row["state"])}}}'


def _requested(request: Request) -> Settings:
    """Return the settings from the headers of a request."""
    return read_publish("http://localhost/", header_pairs(request), b"").settings


def _delete(tx: QueueWrite, row: sqlite3.Row, _: Queue, __: Settings) -> None:
    tx.execute("DELETE FROM dlq WHERE seq = ?", row["seq"])


def _start_again(
    tx: QueueWrite,
    row: sqlite3.Row,
    queue: Queue,
    requested: Settings,
    *,
    from_failed_step: bool,
) -> dict[str, Any]:
    _delete(tx, row, queue, requested)
    failed = _message(row, queue)

    return start_again(
        tx, failed, from_failed_step=from_failed_step, requested=requested
    )


def _call_failure_function(
    tx: QueueWrite, row: sqlite3.Row, queue: Queue, _: Settings
) -> dict[str, Any]:
    failed, entry = _message(row, queue), json.loads(row["entry"])
    if failed.failure_callback is None:
        problem = f"DLQ entry {row['id']!r} has no failure callback"
        raise ApiError(400, f"{problem}; expected an entry that was published with it")

    if row["state"] == "CALLBACK_INPROGRESS":
        raise ApiError(
            400,
            f"the failure function of {row['id']!r} is running; expected it to have ended",
        )

    attempt = Attempt(
        # from the entry, which has redacted values: the original values are not stored
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

    return {
        "workflowRunId": failed.run_id,
        "failureFunctionState": "CALLBACK_INPROGRESS",
    }


def _cancel_callback(tx: QueueWrite, row: sqlite3.Row, _: Queue, __: Settings) -> None:
    message_id = tx.value("SELECT id FROM messages WHERE about = ?", row["id"])
    if message_id is None:
        got = row["state"] or "no failure function"
        raise invalid(
            f"nothing is in progress for {row['id']!r}", got, "CALLBACK_INPROGRESS"
        )

    cancel(tx, message_id)


def _retry(
    tx: QueueWrite, row: sqlite3.Row, queue: Queue, requested: Settings
) -> dict[str, Any]:
    message = fresh_copy(tx, _message(row, queue))
    enqueue(tx, message)
    _delete(tx, row, queue, requested)

    return {"messageId": message.id}


def _message(row: sqlite3.Row, queue: Queue) -> Message:
    """Return the message of an entry. For an imported entry, make a message that can start the run again."""
    if row["message"]:
        return decode_message(row["message"])

    entry = json.loads(row["entry"])
    failure_callback = None
    if entry.get("failureCallback"):
        failure_callback = Settings(url=str(entry["failureCallback"]))
    return Message(
        id=str(entry.get("messageId") or new_id("msg")),
        kind="step",
        prefix=queue.prefix,
        settings=_imported_settings(entry),
        created_at=int(entry.get("createdAt") or 0),
        not_before=0,
        body=_body(entry, "body"),
        failure_callback=failure_callback,
        step=0,
    )


def _imported_settings(entry: Mapping[str, Any]) -> Settings:
    """Return the settings of an imported entry, whose fields can be missing or null."""
    workflow_url = str(entry.get("workflowUrl") or "")
    url = check_url(
        str(entry.get("url") or workflow_url), f"the URL of {entry['dlqId']!r}"
    )
    run_id = str(entry.get("workflowRunId") or "")

    return Settings(
        url=url,
        method=entry.get("method"),
        headers=_pairs(entry.get("header")),
        labels=tuple(entry.get("labels") or ()),
        workflow=WorkflowHeaders(run_id=run_id, url=workflow_url or url),
    )


def _body(entry: Mapping[str, Any], name: str) -> bytes:
    """Return a body of an entry, from the field in base64 or the plain field."""
    try:
        decoded = base64.b64decode(entry.get(f"{name}Base64") or "", validate=True)
    except (binascii.Error, ValueError):
        # imported entries can have any content there
        decoded = b""

    if decoded:
        return decoded

    text = entry.get(name) or ""
    return str(text).encode(errors="replace")


def _pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    """Return the header map of an entry as pairs of name and value."""
    if not isinstance(headers, dict):
        return ()

    pairs: list[tuple[str, str]] = []
    for name, values in headers.items():
        pairs += [(name, str(header_value)) for header_value in values]
    return tuple(pairs)


_CHANGES: Final = (
    "Service-Retries", "Service-Retry-Delay", "Service-Label", "Service-Flow-Control-Key",
    "Service-Flow-Control-Value",
)  # fmt: skip
"""Headers that change the settings of runs that start again."""
_resume = partial(_start_again, from_failed_step=True)
_restart = partial(_start_again, from_failed_step=False)
_RUNS: Final = Kind(
    path="/v2/workflows/dlq",
    name="workflow",
    query=DlqQuery,
    page_query=DlqQuery,
    started=StartedRuns,
    started_field="workflowRuns",
    actions=(
        NamedAction(
            "resume", "resume", "Continue runs from the failed steps.", _resume
        ),
        NamedAction("restart", "restart", "Start runs from the beginning.", _restart),
        NamedAction(
            "callback",
            "callFailureFunction",
            "Call failure functions again.",
            _call_failure_function,
        ),
    ),
)
_MESSAGES: Final = Kind(
    path="/v2/dlq",
    name="message",
    query=MessageDlqQuery,
    page_query=MessageDlqListQuery,
    started=RetriedMessages,
    started_field="responses",
    actions=(NamedAction("retry", "retry", "Deliver messages again.", _retry),),
)
