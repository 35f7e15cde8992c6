"""Routes of messages that still have to be delivered: what is known of them, and canceling them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolkit.local.answers import ApiError
from toolkit.local.queue import dlq
from toolkit.local.queue.events import record
from toolkit.local.queue.message import decode_message
from toolkit.local.queue.parameters import Filter, ids_in_body, several, span
from toolkit.local.queue.payloads import message_entry
from toolkit.local.queue.service import Queue


def message_routes() -> list[BaseRoute]:
    """Routes under ``/v2``; they find the queue at ``app.state.queue``."""
    return [Route("/v2/messages", Messages), Route("/v2/messages/{message_id}", MessageEndpoint)]


class Messages(HTTPEndpoint):
    """``/v2/messages``."""

    async def delete(self, request: Request) -> Response:
        """Cancel the messages that are named or meet the filters, or all of them; gives how many."""
        queue: Queue = request.app.state.queue
        since, until = span(request)
        named = (await ids_in_body(request, "messageIds"))["messageIds"]
        wanted = Filter()
        wanted.any_of("id", (*several(request, "messageIds"), *named))
        wanted.any_of("flow_key", several(request, "flowControlKey"))
        urls, labels = set(several(request, "url")), set(several(request, "label"))
        callers, now = set(several(request, "callerIp")), queue.store.clock.now_ms()

        def work(connection: sqlite3.Connection) -> int:
            rows = connection.execute(
                f"SELECT id, spec FROM messages WHERE {wanted.where}",  # noqa: S608 - names from above, values bound
                wanted.values,
            ).fetchall()
            canceled = 0
            for row in rows:
                message = decode_message(row["spec"])
                fits = (
                    (not urls or message.settings.url in urls)
                    and (not labels or not labels.isdisjoint(message.settings.labels))
                    and (not callers or message.caller_ip in callers)
                    and (since is None or message.created_at >= since)
                    and (until is None or message.created_at <= until)
                )
                if fits:
                    _cancel(row["id"], now)(connection)
                    canceled += 1
            return canceled

        return JSONResponse({"cancelled": await queue.store.database.write(work)})


class MessageEndpoint(HTTPEndpoint):
    """``/v2/messages/{id}``."""

    async def get(self, request: Request) -> Response:
        """What is known about it; what its publish wanted redacted is."""
        queue: Queue = request.app.state.queue
        message_id = request.path_params["message_id"]
        row = await queue.store.database.read(
            lambda connection: connection.execute(
                "SELECT spec, due_at, retried FROM messages WHERE id = ?", (message_id,)
            ).fetchone()
        )
        if row is None:
            raise _no_message(message_id)
        shown = message_entry(decode_message(row["spec"]))
        return JSONResponse(shown | {"retried": row["retried"], "nextDeliveryTime": row["due_at"]})

    async def delete(self, request: Request) -> Response:
        """Cancel it. A failure callback that is canceled leaves its DLQ entry as CALLBACK_CANCELED."""
        queue: Queue = request.app.state.queue
        cancel = _cancel(request.path_params["message_id"], queue.store.clock.now_ms())
        await queue.store.database.write(cancel)
        return Response(status_code=202)


def _cancel(message_id: str, now_ms: int) -> Callable[[sqlite3.Connection], None]:
    def work(connection: sqlite3.Connection) -> None:
        row = connection.execute("SELECT spec FROM messages WHERE id = ?", (message_id,)).fetchone()
        if row is None:
            raise _no_message(message_id)
        message = decode_message(row["spec"])
        connection.execute("DELETE FROM messages WHERE id = ?", (message_id,))
        record(connection, message, "CANCELED", now_ms)
        if message.kind == "failure_callback" and message.about:
            dlq.set_state(connection, message.about, "CALLBACK_CANCELED")

    return work


def _no_message(message_id: str) -> ApiError:
    return ApiError(
        404, f"message {message_id[:80]!r} is not here; expected one that still has to be delivered"
    )
