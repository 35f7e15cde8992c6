"""Routes of the two dead letter queues: ``/v2/workflows/dlq`` for runs and ``/v2/dlq`` for plain messages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeAlias

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolkit.local.answers import ApiError
from toolkit.local.queue import dlq, restarting
from toolkit.local.queue.callbacks import report_failure_again
from toolkit.local.queue.dlq import Conditions
from toolkit.local.queue.intake import enqueue
from toolkit.local.queue.message import Message, decode_message
from toolkit.local.queue.parameters import count, dlq_conditions, single
from toolkit.local.queue.service import Queue

Action: TypeAlias = Callable[[sqlite3.Connection, sqlite3.Row, Queue], dict[str, Any]]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def dlq_routes() -> list[BaseRoute]:
    """Routes under ``/v2``; they find the queue at ``app.state.queue``.

    Resuming, restarting and retrying take the entry out of the DLQ; calling the failure function leaves it.
    """
    actions = {
        "/v2/workflows/dlq/resume": _acting(_resume),
        "/v2/workflows/dlq/restart": _acting(_restart),
        "/v2/workflows/dlq/callback": _acting(_call_failure_function),
        "/v2/dlq/retry": _acting(_retry, workflow=False, answers="responses"),
    }
    return [
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in actions.items()),
        *(Route(f"{path}/{{dlq_id}}", endpoint, methods=["POST"]) for path, endpoint in actions.items()),
        Route("/v2/workflows/dlq", WorkflowDlq),
        Route("/v2/workflows/dlq/{dlq_id}", WorkflowDlqEntry),
        Route("/v2/dlq", MessageDlq),
        Route("/v2/dlq/{dlq_id}", MessageDlqEntry),
    ]


class _Listing(HTTPEndpoint):
    workflow: ClassVar[bool]

    async def get(self, request: Request) -> Response:
        """A page of entries, newest first."""
        queue: Queue = request.app.state.queue
        rows, cursor = await _page(queue, request, await dlq_conditions(request, workflow=self.workflow))
        # entries rest as JSON: put together, not read and written again
        page = f'{{"cursor": {json.dumps(cursor)}, "messages": [{", ".join(map(dlq.shown, rows))}]}}'
        return Response(page, media_type="application/json")

    async def delete(self, request: Request) -> Response:
        """Remove entries by ids or filters, at most ``count``; the cursor goes on where more remain."""
        queue: Queue = request.app.state.queue
        conditions = await dlq_conditions(request, workflow=self.workflow)
        rows, cursor = await _each(queue, request, conditions, _delete)
        return JSONResponse({"deleted": len(rows), "cursor": cursor})


class WorkflowDlq(_Listing):
    """``/v2/workflows/dlq``."""

    workflow = True


class MessageDlq(_Listing):
    """``/v2/dlq``."""

    workflow = False


class _Entry(HTTPEndpoint):
    workflow: ClassVar[bool]

    async def get(self, request: Request) -> Response:
        """One entry."""
        queue: Queue = request.app.state.queue
        wanted = Conditions(workflow=self.workflow, ids=(request.path_params["dlq_id"],))
        rows, _ = await queue.store.database.read(_finder(queue, wanted, 1, None))
        if not rows:
            raise _no_entry(wanted.ids[0])
        return Response(dlq.shown(rows[0]), media_type="application/json")

    async def delete(self, request: Request) -> Response:
        """Remove one entry."""
        queue: Queue = request.app.state.queue
        await _one(queue, Conditions(workflow=self.workflow, ids=(request.path_params["dlq_id"],)), _delete)
        return Response(status_code=200)


class WorkflowDlqEntry(_Entry):
    """``/v2/workflows/dlq/{dlqId}``."""

    workflow = True


class MessageDlqEntry(_Entry):
    """``/v2/dlq/{dlqId}``."""

    workflow = False


def _acting(act: Action, *, workflow: bool = True, answers: str = "workflowRuns") -> Endpoint:
    """The endpoint that does something with one entry, or with all that ids or filters name."""

    async def endpoint(request: Request) -> Response:
        queue: Queue = request.app.state.queue
        if "dlq_id" in request.path_params:
            wanted = Conditions(workflow=workflow, ids=(request.path_params["dlq_id"],))
            return JSONResponse(await _one(queue, wanted, act))
        done, cursor = await _each(queue, request, await dlq_conditions(request, workflow=workflow), act)
        return JSONResponse({answers: done, "cursor": cursor})

    return endpoint


def _resume(connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    return _start_again(connection, row, queue, from_failed_step=True)


def _restart(connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    return _start_again(connection, row, queue, from_failed_step=False)


def _start_again(
    connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue, *, from_failed_step: bool
) -> dict[str, Any]:
    now = queue.store.clock.now_ms()
    started = restarting.start_again(
        connection, _message(row, queue), from_failed_step=from_failed_step, now_ms=now
    )
    dlq.delete(connection, [row])
    return started


def _call_failure_function(connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    now, factor = queue.store.clock.now_ms(), queue.scheduler.factor
    return report_failure_again(connection, _message(row, queue), row, now_ms=now, factor=factor)


def _retry(connection: sqlite3.Connection, row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    now = queue.store.clock.now_ms()
    message = restarting.again(_message(row, queue), now_ms=now)
    enqueue(connection, message, now_ms=now)
    dlq.delete(connection, [row])
    return {"messageId": message.id}


def _delete(connection: sqlite3.Connection, row: sqlite3.Row, _: Queue) -> dict[str, Any]:
    dlq.delete(connection, [row])
    return {}


def _message(row: sqlite3.Row, queue: Queue) -> Message:
    if row["message"]:
        return decode_message(row["message"])
    return restarting.message_of_entry(json.loads(row["entry"]), queue.prefix)


def _no_entry(dlq_id: str) -> ApiError:
    return ApiError(
        404, f"DLQ entry {dlq_id[:80]!r} is not here; expected one that was neither removed nor expired"
    )


def _name(conditions: Conditions) -> str:
    return "workflow dlq" if conditions.workflow else "message dlq"


def _finder(
    queue: Queue, conditions: Conditions, most: int, after: dlq.Place | None
) -> Callable[[sqlite3.Connection], tuple[list[sqlite3.Row], dlq.Place | None]]:
    since = queue.store.expired_before
    return lambda connection: dlq.find(connection, conditions, count=most, after=after, entered_since=since)


async def _page(queue: Queue, request: Request, conditions: Conditions) -> tuple[list[sqlite3.Row], str]:
    listing = _name(conditions)
    after = queue.store.cursors.read(listing, single(request, "cursor") or "")
    rows, place = await queue.store.database.read(_finder(queue, conditions, count(request), after))
    return rows, queue.store.cursors.make(listing, place)


async def _each(
    queue: Queue, request: Request, conditions: Conditions, act: Action
) -> tuple[list[dict[str, Any]], str]:
    """Do something with each entry of a page, all in one transaction."""
    if conditions == Conditions(workflow=conditions.workflow):
        raise ApiError(
            400, "nothing says which entries; got neither dlqIds nor a filter; expected one of them"
        )
    after = queue.store.cursors.read(_name(conditions), single(request, "cursor") or "")
    find = _finder(queue, conditions, count(request), after)

    def work(connection: sqlite3.Connection) -> tuple[list[dict[str, Any]], dlq.Place | None]:
        rows, place = find(connection)
        return [act(connection, row, queue) for row in rows], place

    answers, place = await queue.store.database.write(work)
    queue.scheduler.wake()
    return answers, queue.store.cursors.make(_name(conditions), place)


async def _one(queue: Queue, wanted: Conditions, act: Action) -> dict[str, Any]:
    find = _finder(queue, wanted, 1, None)

    def work(connection: sqlite3.Connection) -> dict[str, Any]:
        rows, _ = find(connection)
        if not rows:
            raise _no_entry(wanted.ids[0])
        return act(connection, rows[0], queue)

    answer = await queue.store.database.write(work)
    queue.scheduler.wake()
    return answer
