"""Operations of the dead letter queues: ``/v2/workflows/dlq`` for runs, ``/v2/dlq`` for plain messages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeAlias, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError
from toolkit.local.operations import Operation, Query
from toolkit.local.queue import dlq
from toolkit.local.queue.dlq import DlqSelection
from toolkit.local.queue.intake import enqueue
from toolkit.local.queue.messages import DlqEntry, Message, decode_message
from toolkit.local.queue.outcomes import report_failure_again
from toolkit.local.queue.parameters import DlqIds, DlqQuery, MessageDlqQuery, Position, ids_in_body
from toolkit.local.queue.runs import again, start_again
from toolkit.local.queue.scheduler import Queue

Action: TypeAlias = Callable[[sqlite3.Connection, sqlite3.Row, Queue], dict[str, Any]]
"""Acts on an entry; returns its item of the response."""


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
        *_again(f"{path}/resume", "resume", "Continue runs from their failed steps.", runs, resume),
        *_again(f"{path}/restart", "restart", "Start runs from the beginning.", runs, restart),
        *_again(
            f"{path}/callback",
            "callFailureFunction",
            "Call failure functions again.",
            runs,
            _call_failure_function,
        ),
        *_again("/v2/dlq/retry", "retry", "Deliver messages again.", messages, _retry),
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


def _again(path: str, name: str, summary: str, handlers: _Handlers, act: Action) -> list[Operation]:
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
        find = self._finder(DlqSelection(self.workflow, query))
        rows, last = await self._queue.store.database.read(find)
        cursor = self._queue.store.cursors.make(self._listing, last)
        # entries are stored as JSON: put together, not decoded and encoded again
        page = f'{{"cursor": {json.dumps(cursor)}, "messages": [{", ".join(map(dlq.shown, rows))}]}}'
        return Response(page, media_type="application/json")

    async def one(self, request: Request, _: Query) -> Response:
        find = self._finder(self._named(request))
        rows, _last = await self._queue.store.database.read(find)
        return Response(dlq.shown(_only(rows, request)), media_type="application/json")

    async def act(
        self, request: Request, _: Query, *, act: Action, shown: Callable[[dict[str, Any]], Response]
    ) -> Response:
        """Do something with one entry."""
        find = self._finder(self._named(request))

        def work(connection: sqlite3.Connection) -> dict[str, Any]:
            return act(connection, _only(find(connection)[0], request), self._queue)

        done = await self._queue.store.database.write(work)
        self._queue.scheduler.wake()
        return shown(done)

    async def each(
        self,
        request: Request,
        query: DlqQuery,
        *,
        act: Action,
        shown: Callable[[list[dict[str, Any]]], dict[str, Any]],
    ) -> Response:
        """Do something with each entry of a page, all in one transaction."""
        ids = (await ids_in_body(request, "dlqIds"))["dlqIds"]
        selection = DlqSelection(self.workflow, query, ids)
        if selection.is_everything:
            raise ApiError(
                400, "no entries are selected; got neither dlqIds nor a filter; expected one of them"
            )
        find = self._finder(selection)

        def work(connection: sqlite3.Connection) -> tuple[list[dict[str, Any]], Position | None]:
            rows, last = find(connection)
            return [act(connection, row, self._queue) for row in rows], last

        done, last = await self._queue.store.database.write(work)
        self._queue.scheduler.wake()
        return JSONResponse(shown(done) | {"cursor": self._queue.store.cursors.make(self._listing, last)})

    def _named(self, request: Request) -> DlqSelection:
        return DlqSelection(self.workflow, DlqQuery(count=1), (request.path_params["dlq_id"],))

    def _finder(
        self, selection: DlqSelection
    ) -> Callable[[sqlite3.Connection], tuple[list[sqlite3.Row], Position | None]]:
        store = self._queue.store
        after = store.cursors.read(self._listing, selection.query.cursor)
        return partial(selection.page, after=after, entered_since=store.expired_before)


def _only(rows: list[sqlite3.Row], request: Request) -> sqlite3.Row:
    if not rows:
        dlq_id = request.path_params["dlq_id"]
        raise ApiError(
            404, f"DLQ entry {dlq_id[:80]!r} is not here; expected one that was neither removed nor expired"
        )
    return rows[0]


def _delete(connection: sqlite3.Connection, row: sqlite3.Row, _: Queue) -> dict[str, Any]:
    dlq.delete(connection, [row])
    return {}


def _start_again(
    connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue, *, from_failed_step: bool
) -> dict[str, Any]:
    failed, now = _message(row, queue), queue.store.clock.now_ms()
    started = start_again(connection, failed, from_failed_step=from_failed_step, now_ms=now)
    dlq.delete(connection, [row])
    return started


def _call_failure_function(connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    now, factor = queue.store.clock.now_ms(), queue.scheduler.factor
    return report_failure_again(connection, _message(row, queue), row, now_ms=now, factor=factor)


def _retry(connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    now = queue.store.clock.now_ms()
    message = again(_message(row, queue), now_ms=now)
    enqueue(connection, message, now_ms=now)
    dlq.delete(connection, [row])
    return {"messageId": message.id}


def _message(row: sqlite3.Row, queue: Queue) -> Message:
    if row["message"]:
        return decode_message(row["message"])
    return dlq.message_of_entry(json.loads(row["entry"]), queue.prefix)
