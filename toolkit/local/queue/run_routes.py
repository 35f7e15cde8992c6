"""Routes of workflow runs: their history, their end, events they wait for; and of the signing keys."""

from __future__ import annotations

import base64
import re
import sqlite3
from typing import Any, Final

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolkit.local.answers import ApiError, read_body, read_json
from toolkit.local.queue import runs, steps, waiting
from toolkit.local.queue.parameters import Filter, ids_in_body, several, single, span
from toolkit.local.queue.publishing import read_publish
from toolkit.local.queue.requests import caller, header_pairs
from toolkit.local.queue.service import Queue

_FLAG: Final = re.compile(r"true|false")


def run_routes() -> list[BaseRoute]:
    """Routes under ``/v2``; they find the queue at ``app.state.queue``."""
    return [
        Route("/v2/workflows/runs", Runs),
        Route("/v2/workflows/runs/{run_id}", RunEndpoint),
        Route("/v2/wait/{event_id}", Wait),
        Route("/v2/waiters/{event_id}", Waiters),
        Route("/v2/notify/{event_id}", Notification),
        Route("/v2/notify/{run_id}/{event_id}", RunNotification),
        Route("/v2/keys", Keys),
        Route("/v2/keys/rotate", KeyRotation),
    ]


class Runs(HTTPEndpoint):
    """``/v2/workflows/runs``."""

    async def delete(self, request: Request) -> Response:
        """Cancel the runs that are named or meet the filters, or all of them; gives how many were running.

        ``workflowUrl`` is a prefix unless ``workflowUrlExactMatch`` is true.
        """
        queue: Queue = request.app.state.queue
        since, until = span(request)
        body = await ids_in_body(request, "workflowRunIds", "workflowUrl")
        urls = (*several(request, "workflowUrl"), *body["workflowUrl"])
        conditions = Filter()
        conditions.least("created_at", since)
        conditions.most("created_at", until)
        conditions.any_of("id", (*several(request, "workflowRunIds"), *body["workflowRunIds"]))
        if _flag(request, "workflowUrlExactMatch", "false"):
            conditions.any_of("url", urls)
        else:
            conditions.starts_with("url", urls)
        conditions.any_of("caller_ip", several(request, "callerIp"))
        conditions.any_of("flow_key", several(request, "flowControlKey"))
        conditions.any_label(several(request, "label"))
        where, values, now = conditions.where, conditions.values, queue.store.clock.now_ms()
        canceled = await queue.store.database.write(
            lambda connection: runs.cancel_all(connection, where, values, now_ms=now)
        )
        queue.scheduler.wake()
        return JSONResponse({"cancelled": canceled})


class RunEndpoint(HTTPEndpoint):
    """``/v2/workflows/runs/{id}``."""

    async def get(self, request: Request) -> Response:
        """The run's history, for endpoints that fetch it instead of having it delivered."""
        queue: Queue = request.app.state.queue
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

    async def delete(self, request: Request) -> Response:
        """End the run: ``cancel=false`` as its endpoint does when it is through, else by canceling it.

        The body is the run's result, for the run that invoked it.
        """
        queue: Queue = request.app.state.queue
        cancel = _flag(request, "cancel", "true")
        result = await read_body(request, queue.max_message)
        run_id, now = request.path_params["run_id"], queue.store.clock.now_ms()
        await queue.store.database.write(
            lambda connection: runs.end(connection, run_id, cancel=cancel, now_ms=now, result=result)
        )
        queue.scheduler.wake()
        return JSONResponse({"workflowRunId": run_id})


class Wait(HTTPEndpoint):
    """``/v2/wait/{eventId}``."""

    async def post(self, request: Request) -> Response:
        """Let the run of the headers wait for an event."""
        queue: Queue = request.app.state.queue
        event_id = waiting.checked_event_id(request.path_params["event_id"])
        asked = waiting.read_wait(await read_json(request))
        publish = read_publish(asked.url, header_pairs(request), b"", prefix=queue.prefix)
        await queue.destinations.address(asked.url)
        now, factor = queue.store.clock.now_ms(), queue.scheduler.factor

        def work(connection: sqlite3.Connection) -> dict[str, Any]:
            return waiting.wait(
                connection, publish, event_id, asked, now_ms=now, factor=factor, caller_ip=caller(request)
            )

        answer = await queue.store.database.write(work)
        queue.scheduler.wake()
        return JSONResponse(answer)


class Waiters(HTTPEndpoint):
    """``/v2/waiters/{eventId}``."""

    async def get(self, request: Request) -> Response:
        """Who waits for an event."""
        queue: Queue = request.app.state.queue
        event_id = waiting.checked_event_id(request.path_params["event_id"])
        found = await queue.store.database.read(lambda connection: waiting.waiters(connection, event_id))
        return JSONResponse([waiting.shown(message) for message in found])


class Notification(HTTPEndpoint):
    """``/v2/notify/{eventId}``."""

    async def post(self, request: Request) -> Response:
        """Tell all that wait for an event that it came; the body is handed to them."""
        queue: Queue = request.app.state.queue
        event_id = waiting.checked_event_id(request.path_params["event_id"])
        body, now = await read_body(request, queue.max_message), queue.store.clock.now_ms()
        told = await queue.store.database.write(
            lambda connection: waiting.notify(connection, event_id, body, now_ms=now)
        )
        queue.scheduler.wake()
        return JSONResponse(told)


class RunNotification(HTTPEndpoint):
    """``/v2/notify/{runId}/{eventId}``."""

    async def post(self, request: Request) -> Response:
        """Tell one run that an event came, now or when it waits for it."""
        queue: Queue = request.app.state.queue
        run_id = request.path_params["run_id"]
        event_id = waiting.checked_event_id(request.path_params["event_id"])
        body, now = await read_body(request, queue.max_message), queue.store.clock.now_ms()
        told = await queue.store.database.write(
            lambda connection: waiting.notify_run(connection, run_id, event_id, body, now_ms=now)
        )
        queue.scheduler.wake()
        return JSONResponse(told)


class Keys(HTTPEndpoint):
    """``/v2/keys``."""

    async def get(self, request: Request) -> Response:
        """The signing keys."""
        queue: Queue = request.app.state.queue
        current, following = queue.store.signing_keys
        return JSONResponse({"current": current, "next": following})


class KeyRotation(HTTPEndpoint):
    """``/v2/keys/rotate``."""

    async def post(self, request: Request) -> Response:
        """The next key becomes the current one."""
        queue: Queue = request.app.state.queue
        current, following = await queue.store.rotate_keys()
        return JSONResponse({"current": current, "next": following})


def _flag(request: Request, name: str, default: str) -> bool:
    text = single(request, name) or default
    if not _FLAG.fullmatch(text):
        raise ApiError(400, f"{name} is not understood; got {text[:80]!r}; expected true or false")
    return text == "true"
