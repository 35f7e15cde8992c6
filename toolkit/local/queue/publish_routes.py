"""Routes that take messages in: publish, batch, trigger."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any, Final
from urllib.parse import unquote

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from toolkit.local.answers import ApiError, read_body, read_json
from toolkit.local.guard import TOKEN_PARAMETERS
from toolkit.local.queue.intake import accept
from toolkit.local.queue.message import new_id
from toolkit.local.queue.publishing import PREFIXES, Publish, read_publish
from toolkit.local.queue.requests import caller, header_pairs
from toolkit.local.queue.service import Queue

_ENCODED_SCHEME: Final = re.compile(r"https?%3a", re.IGNORECASE)


def publish_routes() -> list[BaseRoute]:
    """Routes under ``/v2``; they find the queue at ``app.state.queue``."""
    return [
        Route("/v2/publish/{destination:path}", PublishEndpoint),
        Route("/v2/batch", BatchEndpoint),
        Route("/v2/trigger/{destination:path}", TriggerEndpoint),
    ]


class PublishEndpoint(HTTPEndpoint):
    """``/v2/publish/{destination}``."""

    async def post(self, request: Request) -> Response:
        """Take one message in."""
        queue: Queue = request.app.state.queue
        url = _destination(request, "/v2/publish/")
        body = await read_body(request, queue.max_message)
        publish = read_publish(url, header_pairs(request), body, prefix=queue.prefix)
        return JSONResponse((await _take(queue, [publish], caller(request)))[0])


class BatchEndpoint(HTTPEndpoint):
    """``/v2/batch``."""

    async def post(self, request: Request) -> Response:
        """Take all messages of an array in, or none."""
        queue: Queue = request.app.state.queue
        items = await read_json(request)
        if not isinstance(items, list):
            raise ApiError(
                400, f"body is not an array; got {type(items).__name__}; expected an array of messages"
            )
        publishes = []
        for position, item in enumerate(items):
            try:
                publishes.append(_batch_item(item, queue))
            except ApiError as refusal:
                raise ApiError(refusal.status, f"message {position}: {refusal.message}") from None
        return JSONResponse(await _take(queue, publishes, caller(request)))


class TriggerEndpoint(HTTPEndpoint):
    """``/v2/trigger/{workflow_url}``."""

    async def post(self, request: Request) -> Response:
        """Start a workflow run without asking its endpoint first."""
        queue: Queue = request.app.state.queue
        url = _destination(request, "/v2/trigger/")
        headers = header_pairs(request)
        names = {name.lower(): value for name, value in headers}
        prefix = next(
            (known for known in reversed(PREFIXES) if any(n.startswith(known.lower()) for n in names)),
            queue.prefix,
        )
        for name, value in (
            ("Workflow-Init", "true"),
            ("Workflow-RunId", new_id("wfr")),
            ("Workflow-Url", url),
            ("Feature-Set", "LazyFetch,InitialBody"),
            (f"Forward-{prefix}Workflow-Sdk-Version", "1"),
        ):
            if f"{prefix}{name}".lower() not in names:
                headers.append((f"{prefix}{name}", value))
        body = await read_body(request, queue.max_message)
        publish = read_publish(url, headers, body, prefix=queue.prefix)
        (taken,) = await _take(queue, [publish], caller(request))
        answer = {"workflowRunId": taken["workflowRunId"]} if "workflowRunId" in taken else taken
        return JSONResponse(answer)


async def _take(queue: Queue, publishes: list[Publish], caller_ip: str) -> list[dict[str, Any]]:
    for publish in publishes:
        for settings in (publish.settings, publish.callback, publish.failure_callback):
            if settings is not None:
                await queue.destinations.address(settings.url)
    now = queue.store.clock.now_ms()

    def work(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        return [
            accept(connection, publish, now_ms=now, factor=queue.scheduler.factor, caller_ip=caller_ip)
            for publish in publishes
        ]

    taken = await queue.store.database.write(work)
    queue.scheduler.wake()
    return taken


def _destination(request: Request, route: str) -> str:
    """The destination as it was sent: not decoded, with its query, without our token."""
    raw: str = request.scope["raw_path"].decode("latin-1")
    url = raw[len(route) :]
    if _ENCODED_SCHEME.match(url):
        url = unquote(url)
    query: str = request.scope["query_string"].decode("latin-1")
    own = [part for part in query.split("&") if part.partition("=")[0] not in TOKEN_PARAMETERS]
    return f"{url}?{'&'.join(own)}" if any(own) else url


def _batch_item(item: Any, queue: Queue) -> Publish:
    if not isinstance(item, dict) or not isinstance(item.get("destination"), str):
        got = "none in it" if isinstance(item, dict) else type(item).__name__
        raise ApiError(400, f"not a message; got {got}; expected an object with a destination")
    headers, body = item.get("headers") or {}, item.get("body")
    if not isinstance(headers, dict):
        raise ApiError(400, f"headers is no object; got {type(headers).__name__}; expected names and text")
    pairs = []
    for name, values in headers.items():
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str):
                raise ApiError(
                    400, f"header {name[:80]!r} is not text; got {json.dumps(value)[:80]}; expected text"
                )
            pairs.append((name, value))
    if body is not None and not isinstance(body, str):
        raise ApiError(400, f"body is not text; got {type(body).__name__}; expected text (JSON as text, too)")
    try:
        raw = (body or "").encode()
    except UnicodeEncodeError as error:
        got = f"a lone surrogate at position {error.start}"
        raise ApiError(400, f"body is not text; got {got}; expected text") from None
    if len(raw) > queue.max_message:
        raise ApiError(413, f"body too large; got {len(raw)} bytes; expected at most {queue.max_message}")
    if item.get("queue"):
        raise ApiError(400, "queue is given, and there are no queues here; expected none")
    return read_publish(item["destination"], pairs, raw, prefix=queue.prefix)
