"""Operations of the dead letter queues: ``/v2/workflows/dlq`` for runs, ``/v2/dlq`` for plain messages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, TypeAlias, TypedDict

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError, invalid
from toolkit.local.operations import Endpoint, Operation, Query
from toolkit.local.queue import dlq
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.dlq import DlqQuery, MessageDlqQuery
from toolkit.local.queue.listing import Position, TextOrTexts, conditions, with_ids
from toolkit.local.queue.messages import DlqEntry, Message, Settings, decode_message
from toolkit.local.queue.outcomes import report_failure_again
from toolkit.local.queue.publish_routes import cancel, header_pairs
from toolkit.local.queue.publishing import PUBLISH_HEADERS, read_publish
from toolkit.local.queue.runs import start_again
from toolkit.local.queue.scheduler import Queue
from toolkit.local.queue.steps import again, enqueue

Action: TypeAlias = Callable[[QueueWrite, sqlite3.Row, Queue, Settings], dict[str, Any]]
"""Acts on an entry, with the settings that the request's headers give; returns its item of the response."""


class DlqIds(msgspec.Struct, rename="camel"):
    """DLQ entries by their ids."""

    dlq_ids: TextOrTexts = []


class DlqPage(TypedDict):
    """A page of entries, newest first; the cursor is empty on the last one."""

    cursor: str
    messages: Annotated[list[DlqEntry], Meta(max_length=100)]


class Deleted(TypedDict):
    """How many entries were removed; with a cursor when more remain."""

    deleted: int
    cursor: str


class StartedRuns(TypedDict):
    """The outcome for each entry."""

    cursor: str
    workflowRuns: list[dict[str, Any]]


class RetriedMessages(TypedDict):
    """The outcome for each entry."""

    cursor: str
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
        self._listing = "workflow dlq" if workflow else "message dlq"

    def operations(self) -> list[Operation]:
        """Listing and removing entries, and what else can be done with some of them or with one."""
        path, query, kind, done, started = (
            ("/v2/workflows/dlq", DlqQuery, "workflow", "workflowRuns", StartedRuns)
            if self._workflow
            else ("/v2/dlq", MessageDlqQuery, "message", "responses", RetriedMessages)
        )
        entry = f"{path}/{{dlq_id}}"
        several = partial(Operation, query=query, body=DlqIds, body_required=False)
        one = partial(Operation, errors=(404,))
        changed = {name: PUBLISH_HEADERS[name] for name in _CHANGES} if self._workflow else {}
        run_id = {"Service-Workflow-RunId": "The id of the new run."} if self._workflow else {}
        listed, removed = (
            "A page of entries, newest first.",
            "Remove entries by ids or filters, at most `count`.",
        )
        delete_many = self._each(_delete, lambda deleted: {"deleted": len(deleted)})
        delete_one = self._act(_delete, lambda _: Response())
        operations = [
            Operation("GET", path, f"{kind}Dlq", listed, self._page, DlqPage, query=query),
            several("DELETE", path, f"{kind}DlqDelete", removed, delete_many, Deleted),
            one("GET", entry, f"{kind}DlqEntry", "One entry.", self._one, DlqEntry),
            one("DELETE", entry, f"{kind}DlqEntryDelete", "Remove one entry.", delete_one),
        ]
        if self._workflow:
            route, cancel_one = (
                f"{path}/callback/{{dlq_id}}",
                self._act(_cancel_callback, lambda _: Response()),
            )
            summary = "Cancel the failure function of an entry, which is in progress."
            operations.append(one("DELETE", route, "cancelFailureFunction", summary, cancel_one))
        for part, name, summary, action in _RUN_ACTIONS if self._workflow else _MESSAGE_ACTIONS:
            route, act = f"{path}/{part}", self._act(action, JSONResponse)
            each = self._each(action, lambda entries: {done: entries})
            many = f"{summary} By ids or filters, at most `count` of them."
            operations += [
                several("POST", route, f"{name}Many", many, each, started, errors=(404,), headers=changed),
                one(
                    "POST",
                    f"{route}/{{dlq_id}}",
                    name,
                    f"{summary} This one alone.",
                    act,
                    dict[str, Any],
                    errors=(404, 409),
                    headers=changed | run_id,
                ),
            ]
        return operations

    async def _page(self, _: Request, query: DlqQuery) -> Response:
        rows, last = await self._queue.store.read(self._find, query)
        cursor = self._queue.store.cursors.make(self._listing, last)
        # entries are stored as JSON: put together, not decoded and encoded again
        page = f'{{"cursor": {json.dumps(cursor)}, "messages": [{", ".join(map(dlq.shown, rows))}]}}'
        return Response(page, media_type="application/json")

    async def _one(self, request: Request, _: Query) -> Response:
        row = await self._queue.store.read(self._find_one, request.path_params["dlq_id"])
        return Response(dlq.shown(row), media_type="application/json")

    def _act(self, action: Action, shown: Callable[[dict[str, Any]], Response]) -> Endpoint:
        """Do something with one entry."""

        async def endpoint(request: Request, _: Query) -> Response:
            requested = _requested(request)

            def work(tx: QueueWrite) -> dict[str, Any]:
                return action(tx, self._find_one(tx, request.path_params["dlq_id"]), self._queue, requested)

            return shown(await self._queue.write(work))

        return endpoint

    def _each(self, action: Action, shown: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> Endpoint:
        """Do something with each entry of a page, all in one transaction."""

        async def endpoint(request: Request, query: DlqQuery) -> Response:
            query = await with_ids(request, query, DlqIds)
            requested = msgspec.structs.replace(_requested(request), workflow=None)
            if not conditions(query):
                raise invalid("no entries are selected", "neither dlqIds nor a filter", "one of them")

            def work(tx: QueueWrite) -> tuple[list[dict[str, Any]], Position | None]:
                rows, last = self._find(tx, query)
                return [action(tx, row, self._queue, requested) for row in rows], last

            done, last = await self._queue.write(work)
            cursor = self._queue.store.cursors.make(self._listing, last)
            return JSONResponse(shown(done) | {"cursor": cursor})

        return endpoint

    def _find(self, tx: QueueWrite, query: DlqQuery) -> tuple[list[sqlite3.Row], Position | None]:
        store = self._queue.store
        after = store.cursors.read(self._listing, query.cursor)
        since = store.expired_before
        return dlq.entries(tx, query, workflow=self._workflow, entered_since=since, after=after)

    def _find_one(self, tx: QueueWrite, dlq_id: str) -> sqlite3.Row:
        rows, _ = self._find(tx, DlqQuery(count=1, dlq_ids=(dlq_id,)))
        if not rows:
            expected = "one that was neither removed nor expired"
            raise ApiError(404, f"DLQ entry {dlq_id[:80]!r} is not here; expected {expected}")
        return rows[0]


def _requested(request: Request) -> Settings:
    """The settings that a request's headers give."""
    return read_publish("http://localhost/", header_pairs(request), b"").settings


def _delete(tx: QueueWrite, row: sqlite3.Row, _: Queue, __: Settings) -> dict[str, Any]:
    dlq.delete(tx, row)
    return {}


def _start_again(
    tx: QueueWrite, row: sqlite3.Row, queue: Queue, requested: Settings, *, from_failed_step: bool
) -> dict[str, Any]:
    dlq.delete(tx, row)
    failed = _message(row, queue)
    return start_again(tx, failed, from_failed_step=from_failed_step, requested=requested)


def _call_failure_function(tx: QueueWrite, row: sqlite3.Row, queue: Queue, _: Settings) -> dict[str, Any]:
    return report_failure_again(tx, _message(row, queue), row)


def _cancel_callback(tx: QueueWrite, row: sqlite3.Row, _: Queue, __: Settings) -> dict[str, Any]:
    message = tx.first("SELECT id FROM messages WHERE about = ?", row["id"])
    if message is None:
        got = row["state"] or "no failure function"
        raise ApiError(
            400, f"nothing is in progress for {row['id']!r}; got {got}; expected CALLBACK_INPROGRESS"
        )
    cancel(tx, message["id"])
    return {}


def _retry(tx: QueueWrite, row: sqlite3.Row, queue: Queue, _: Settings) -> dict[str, Any]:
    message = again(tx, _message(row, queue))
    enqueue(tx, message)
    dlq.delete(tx, row)
    return {"messageId": message.id}


def _message(row: sqlite3.Row, queue: Queue) -> Message:
    if row["message"]:
        return decode_message(row["message"])
    return dlq.message_of_entry(json.loads(row["entry"]), queue.prefix)


_CHANGES: Final = tuple(
    f"Service-{name}"
    for name in ("Retries", "Retry-Delay", "Label", "Flow-Control-Key", "Flow-Control-Value")
)
_resume = partial(_start_again, from_failed_step=True)
_restart = partial(_start_again, from_failed_step=False)
_RUN_ACTIONS: Final = (
    ("resume", "resume", "Continue runs from their failed steps.", _resume),
    ("restart", "restart", "Start runs from the beginning.", _restart),
    ("callback", "callFailureFunction", "Call failure functions again.", _call_failure_function),
)
_MESSAGE_ACTIONS: Final = (("retry", "retry", "Deliver messages again.", _retry),)
