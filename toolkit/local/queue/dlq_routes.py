"""Operations of the dead letter queues: ``/v2/workflows/dlq`` for runs, ``/v2/dlq`` for plain messages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeAlias, TypedDict

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError
from toolkit.local.operations import Operation, Query
from toolkit.local.queue import dlq
from toolkit.local.queue.database import Transaction
from toolkit.local.queue.dlq import DlqQuery, MessageDlqQuery
from toolkit.local.queue.intake import again, enqueue
from toolkit.local.queue.listing import Position, TextOrTexts, conditions, with_ids
from toolkit.local.queue.messages import DlqEntry, Message, decode_message
from toolkit.local.queue.outcomes import report_failure_again
from toolkit.local.queue.runs import start_again
from toolkit.local.queue.scheduler import Queue

Action: TypeAlias = Callable[[Transaction, sqlite3.Row, Queue], dict[str, Any]]
"""Acts on an entry; returns its item of the response."""


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
    """The operations below ``/v2/workflows/dlq`` and ``/v2/dlq``.

    Resuming, restarting and retrying remove the entry from the DLQ; calling the failure function leaves it.
    """
    resume, restart = (partial(_start_again, from_failed_step=failed) for failed in (True, False))
    runs, messages = _Handlers(queue, workflow=True), _Handlers(queue, workflow=False)
    path = "/v2/workflows/dlq"
    return [
        *_listing(path, "workflow", runs, DlqQuery),
        *_listing("/v2/dlq", "message", messages, MessageDlqQuery),
        *_action(f"{path}/resume", "resume", "Continue runs from their failed steps.", runs, resume),
        *_action(f"{path}/restart", "restart", "Start runs from the beginning.", runs, restart),
        *_action(
            f"{path}/callback",
            "callFailureFunction",
            "Call failure functions again.",
            runs,
            _call_failure_function,
        ),
        *_action("/v2/dlq/retry", "retry", "Deliver messages again.", messages, _retry),
    ]


def _listing(path: str, kind: str, handlers: _Handlers, query: type[DlqQuery]) -> list[Operation]:
    delete_many = partial(handlers.each, act=_delete, shown=lambda done: {"deleted": len(done)})
    delete_one = partial(handlers.act, act=_delete, shown=lambda _: Response())
    named = f"{path}/{{dlq_id}}"
    return [
        Operation(
            "GET",
            path,
            f"{kind}Dlq",
            "A page of entries, newest first.",
            handlers.page,
            DlqPage,
            query=query,
        ),
        Operation(
            "DELETE",
            path,
            f"{kind}DlqDelete",
            "Remove entries by ids or filters, at most `count` of them.",
            delete_many,
            Deleted,
            query=query,
            body=DlqIds,
            body_required=False,
        ),
        Operation("GET", named, f"{kind}DlqEntry", "One entry.", handlers.one, DlqEntry, errors=(404,)),
        Operation("DELETE", named, f"{kind}DlqEntryDelete", "Remove one entry.", delete_one, errors=(404,)),
    ]


def _action(path: str, name: str, summary: str, handlers: _Handlers, act: Action) -> list[Operation]:
    done = "workflowRuns" if handlers.workflow else "responses"
    return [
        Operation(
            "POST",
            path,
            f"{name}Many",
            f"{summary} By ids or filters, at most `count` of them.",
            partial(handlers.each, act=act, shown=lambda entries: {done: entries}),
            StartedRuns if handlers.workflow else RetriedMessages,
            query=DlqQuery if handlers.workflow else MessageDlqQuery,
            body=DlqIds,
            body_required=False,
            errors=(404,),
        ),
        Operation(
            "POST",
            f"{path}/{{dlq_id}}",
            name,
            f"{summary} This one alone.",
            partial(handlers.act, act=act, shown=JSONResponse),
            dict[str, Any],
            errors=(404,),
        ),
    ]


class _Handlers:
    """The operations on one of the two queues."""

    def __init__(self, queue: Queue, *, workflow: bool) -> None:
        self._queue = queue
        self.workflow = workflow
        self._listing = "workflow dlq" if workflow else "message dlq"

    async def page(self, _: Request, query: DlqQuery) -> Response:
        rows, last = await self._queue.store.read(self._find, query)
        cursor = self._queue.store.cursors.make(self._listing, last)
        # entries are stored as JSON: put together, not decoded and encoded again
        page = f'{{"cursor": {json.dumps(cursor)}, "messages": [{", ".join(map(dlq.shown, rows))}]}}'
        return Response(page, media_type="application/json")

    async def one(self, request: Request, _: Query) -> Response:
        row = await self._queue.store.read(self._find_one, request.path_params["dlq_id"])
        return Response(dlq.shown(row), media_type="application/json")

    async def act(
        self, request: Request, _: Query, *, act: Action, shown: Callable[[dict[str, Any]], Response]
    ) -> Response:
        """Do something with one entry."""

        def work(tx: Transaction) -> dict[str, Any]:
            return act(tx, self._find_one(tx, request.path_params["dlq_id"]), self._queue)

        return shown(await self._queue.write(work))

    async def each(
        self,
        request: Request,
        query: DlqQuery,
        *,
        act: Action,
        shown: Callable[[list[dict[str, Any]]], dict[str, Any]],
    ) -> Response:
        """Do something with each entry of a page, all in one transaction."""
        query = await with_ids(request, query, DlqIds)
        if not conditions(query):
            raise ApiError(
                400, "no entries are selected; got neither dlqIds nor a filter; expected one of them"
            )

        def work(tx: Transaction) -> tuple[list[dict[str, Any]], Position | None]:
            rows, last = self._find(tx, query)
            return [act(tx, row, self._queue) for row in rows], last

        done, last = await self._queue.write(work)
        return JSONResponse(shown(done) | {"cursor": self._queue.store.cursors.make(self._listing, last)})

    def _find(self, tx: Transaction, query: DlqQuery) -> tuple[list[sqlite3.Row], Position | None]:
        store = self._queue.store
        after = store.cursors.read(self._listing, query.cursor)
        return dlq.entries(tx, query, workflow=self.workflow, entered_since=store.expired_before, after=after)

    def _find_one(self, tx: Transaction, dlq_id: str) -> sqlite3.Row:
        rows, _ = self._find(tx, DlqQuery(count=1, dlq_ids=(dlq_id,)))
        if not rows:
            expected = "one that was neither removed nor expired"
            raise ApiError(404, f"DLQ entry {dlq_id[:80]!r} is not here; expected {expected}")
        return rows[0]


def _delete(tx: Transaction, row: sqlite3.Row, _: Queue) -> dict[str, Any]:
    dlq.delete(tx, row)
    return {}


def _start_again(
    tx: Transaction, row: sqlite3.Row, queue: Queue, *, from_failed_step: bool
) -> dict[str, Any]:
    started = start_again(tx, _message(row, queue), from_failed_step=from_failed_step)
    dlq.delete(tx, row)
    return started


def _call_failure_function(tx: Transaction, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    return report_failure_again(tx, _message(row, queue), row)


def _retry(tx: Transaction, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    message = again(tx, _message(row, queue))
    enqueue(tx, message)
    dlq.delete(tx, row)
    return {"messageId": message.id}


def _message(row: sqlite3.Row, queue: Queue) -> Message:
    if row["message"]:
        return decode_message(row["message"])
    return dlq.message_of_entry(json.loads(row["entry"]), queue.prefix)
