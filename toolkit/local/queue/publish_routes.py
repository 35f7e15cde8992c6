"""Operations on messages: publish, batch, trigger, and show or cancel those to be delivered."""

from __future__ import annotations

import json
import re
import sqlite3
from functools import partial
from typing import Any, Final, Required, TypedDict
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import TOKEN_PARAMETERS, ApiError, read_body, read_json
from toolkit.local.operations import Declared, Operation, Query, Texts
from toolkit.local.queue import dlq
from toolkit.local.queue.intake import PublishedMessage, accept, record
from toolkit.local.queue.messages import PendingMessage, decode_message, message_entry, new_id
from toolkit.local.queue.parameters import Span, TextOrTexts, ids_in_body, where
from toolkit.local.queue.publishing import PREFIXES, PUBLISH_HEADERS, Publish, read_publish
from toolkit.local.queue.scheduler import Queue

_ENCODED_SCHEME: Final = re.compile(r"https?%3a", re.IGNORECASE)


class BatchItem(TypedDict, total=False):
    """A message of a batch."""

    destination: Required[str]
    headers: dict[str, str | list[str]]
    body: str


class MessagesQuery(Span):
    """The messages to cancel."""

    message_ids: Texts = ()
    flow_control_key: Texts = ()
    url: Texts = ()
    label: Texts = ()
    caller_ip: Texts = ()


class MessageIds(TypedDict, total=False):
    """Messages by their ids."""

    messageIds: TextOrTexts


class Canceled(TypedDict):
    """How many were canceled."""

    cancelled: int


class Triggered(TypedDict, total=False):
    """A run that was started; a message that was deduplicated, or that starts no run."""

    workflowRunId: str
    messageId: str
    deduplicated: bool


_operation: Declared[Queue] = Declared()
_publishing = partial(_operation, query=None, body=bytes, headers=PUBLISH_HEADERS, errors=(404,))


def message_operations(queue: Queue) -> list[Operation]:
    """The operations that publish messages, show and cancel them."""
    return _operation.of(queue)


def header_pairs(request: Request) -> list[tuple[str, str]]:
    """The request's headers as received, in order."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]


def caller(request: Request) -> str:
    """The IP address of the sender of the request."""
    return request.client.host if request.client else ""


@_publishing("POST", "/v2/publish/{destination:path}", "publish", PublishedMessage)
async def _publish(queue: Queue, request: Request, _: None) -> Response:
    """Publish a message. Headers may have the prefix Upstash- instead of Service-."""
    url = _destination(request, "/v2/publish/")
    body = await read_body(request, queue.max_message)
    publish = read_publish(url, header_pairs(request), body, prefix=queue.prefix)
    return JSONResponse((await _accept(queue, [publish], caller(request)))[0])


@_operation("POST", "/v2/batch", "batch", list[PublishedMessage], body=list[BatchItem], errors=(404,))
async def _batch(queue: Queue, request: Request, _: Query) -> Response:
    """Publish all messages of an array, or none."""
    items = await read_json(request)
    if not isinstance(items, list):
        raise ApiError(
            400, f"body is not an array; got {type(items).__name__}; expected an array of messages"
        )
    publishes = []
    for position, item in enumerate(items):
        try:
            publishes.append(_batch_item(item, queue))
        except ApiError as error:
            raise ApiError(error.status, f"message {position}: {error.message}") from None
    return JSONResponse(await _accept(queue, publishes, caller(request)))


@_publishing("POST", "/v2/trigger/{destination:path}", "trigger", Triggered)
async def _trigger(queue: Queue, request: Request, _: None) -> Response:
    """Start a workflow run.

    Its endpoint is not called first.
    """
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
    (accepted,) = await _accept(queue, [publish], caller(request))
    run_id = accepted.get("workflowRunId")
    return JSONResponse({"workflowRunId": run_id} if run_id else accepted)


async def _accept(queue: Queue, publishes: list[Publish], caller_ip: str) -> list[PublishedMessage]:
    for publish in publishes:
        for settings in (publish.settings, publish.callback, publish.failure_callback):
            if settings is not None:
                await queue.destinations.address(settings.url)
    now = queue.store.clock.now_ms()

    def work(connection: sqlite3.Connection) -> list[PublishedMessage]:
        return [
            accept(connection, publish, now_ms=now, factor=queue.scheduler.factor, caller_ip=caller_ip)
            for publish in publishes
        ]

    accepted = await queue.store.database.write(work)
    queue.scheduler.wake()
    return accepted


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


@_operation(
    "DELETE",
    "/v2/messages",
    "cancelMessages",
    Canceled,
    query=MessagesQuery,
    body=MessageIds,
    body_required=False,
)
async def _cancel_many(queue: Queue, request: Request, query: MessagesQuery) -> Response:
    """Cancel the messages that are named or meet the filters, or all of them."""
    named = (await ids_in_body(request, "messageIds"))["messageIds"]
    conditions, values = where(
        ("id IN ({})", (*query.message_ids, *named)), ("flow_key IN ({})", query.flow_control_key)
    )
    since, until = query.from_date, query.to_date
    now = queue.store.clock.now_ms()

    def work(connection: sqlite3.Connection) -> int:
        rows = connection.execute(
            f"SELECT id, spec FROM messages WHERE {conditions}",  # noqa: S608 - SQL of this package, values bound
            values,
        ).fetchall()
        canceled = 0
        for row in rows:
            message = decode_message(row["spec"])
            fits = (
                (not query.url or message.settings.url in query.url)
                and (not query.label or not set(query.label).isdisjoint(message.settings.labels))
                and (not query.caller_ip or message.caller_ip in query.caller_ip)
                and (since is None or message.created_at >= since)
                and (until is None or message.created_at <= until)
            )
            if fits:
                _cancel(connection, row["id"], now)
                canceled += 1
        return canceled

    return JSONResponse({"cancelled": await queue.store.database.write(work)})


@_operation("GET", "/v2/messages/{message_id}", "message", PendingMessage, errors=(404,))
async def _show(queue: Queue, request: Request, _: Query) -> Response:
    """The stored message."""
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


@_operation("DELETE", "/v2/messages/{message_id}", "cancelMessage", status=202, errors=(404,))
async def _cancel_one(queue: Queue, request: Request, _: Query) -> Response:
    """Cancel a message."""
    message_id, now = request.path_params["message_id"], queue.store.clock.now_ms()
    await queue.store.database.write(lambda connection: _cancel(connection, message_id, now))
    return Response(status_code=202)


def _cancel(connection: sqlite3.Connection, message_id: str, now_ms: int) -> None:
    """Cancel a message. A failure callback that is canceled leaves its DLQ entry as CALLBACK_CANCELED."""
    row = connection.execute("SELECT spec FROM messages WHERE id = ?", (message_id,)).fetchone()
    if row is None:
        raise _no_message(message_id)
    message = decode_message(row["spec"])
    connection.execute("DELETE FROM messages WHERE id = ?", (message_id,))
    record(connection, message, "CANCELED", now_ms)
    if message.kind == "failure_callback" and message.about:
        dlq.set_state(connection, message.about, "CALLBACK_CANCELED")


def _no_message(message_id: str) -> ApiError:
    return ApiError(
        404, f"message {message_id[:80]!r} is not here; expected one that still has to be delivered"
    )
