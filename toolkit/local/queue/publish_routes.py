"""Operations on messages: publish, batch, trigger, and show or cancel those to be delivered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypedDict
from urllib.parse import unquote

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import (
    NAMES,
    TOKEN_PARAMETERS,
    ApiError,
    checked_name,
    invalid,
    naming,
    read_as,
    read_body,
    read_json,
    shown,
)
from toolkit.local.operations import Declared, Operation, Query, Texts, Timestamp
from toolkit.local.queue import dlq, url_groups
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.listing import (
    FlowKey,
    MostCanceled,
    Span,
    TextOrTexts,
    any_label,
    conditions,
    sql,
    where,
    with_ids,
)
from toolkit.local.queue.messages import (
    NO_ORIGIN,
    Origin,
    PendingMessage,
    decode_message,
    message_entry,
    new_id,
)
from toolkit.local.queue.publishing import PREFIXES, PUBLISH_HEADERS, Publish, read_publish
from toolkit.local.queue.steps import REQUESTED, PublishedMessage, accept, record

if TYPE_CHECKING:
    from toolkit.local.queue.scheduler import Queue

Addressed: TypeAlias = Publish | list[Publish]
"""A publish to a URL, or one for each endpoint of a URL group."""
Published: TypeAlias = PublishedMessage | list[PublishedMessage]

_ENCODED_SCHEME: Final = re.compile(r"https?%3a", re.IGNORECASE)


_HEADER: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


class BatchItem(msgspec.Struct):
    """A message of a batch, to a URL or a URL group."""

    destination: str
    headers: dict[str, Annotated[Any, Meta(extra_json_schema=_HEADER)]] | None = None
    body: Annotated[Any, Meta(extra_json_schema={"type": "string"})] = None
    queue: str | None = None


def _field(path: str) -> str:
    """SQL: a field of a stored message."""
    return f"json_extract(message_json(spec), '$.{path}')"


class MessagesQuery(Span):
    """The messages to cancel."""

    from_date: Annotated[Timestamp, sql(f"{_field('created_at')} >= {{}}")] | None = None
    to_date: Annotated[Timestamp, sql(f"{_field('created_at')} <= {{}}")] | None = None
    count: MostCanceled | None = None
    message_ids: Annotated[Texts, sql("id IN ({})")] = ()
    flow_control_key: FlowKey = ()
    url: Annotated[Texts, sql(f"{_field('settings.url')} IN ({{}})")] = ()
    host: Annotated[Texts, sql(any_label(f"url_hosts({_field('settings.url')})"), "Of the URL.")] = ()
    path: Annotated[Texts, sql(f"url_path({_field('settings.url')}) IN ({{}})", "Of the URL.")] = ()
    label: Annotated[Texts, sql(any_label("message_json(spec), '$.settings.labels'"))] = ()
    caller_ip: Annotated[Texts, sql(f"{_field('caller_ip')} IN ({{}})")] = ()
    topic_name: Annotated[Texts, sql(f"{_field('origin.topic')} IN ({{}})")] = ()
    queue_name: Annotated[Texts, sql(f"{_field('origin.queue')} IN ({{}})")] = ()
    schedule_id: Annotated[Texts, sql(f"{_field('origin.schedule')} IN ({{}})")] = ()


class MessageIds(msgspec.Struct, rename="camel"):
    """Messages by their ids."""

    message_ids: TextOrTexts = []


class Canceled(TypedDict):
    """How many were canceled."""

    cancelled: int


class Triggered(TypedDict, total=False):
    """A run that was started; a message that was deduplicated, or that starts no run."""

    workflowRunId: str
    messageId: str
    deduplicated: bool


_operation: Declared[Queue] = Declared()
_publishing = partial(_operation, query=None, body=bytes, headers=PUBLISH_HEADERS, errors=(404, 412))


def message_operations(queue: Queue) -> list[Operation]:
    """The operations that publish messages, show and cancel them."""
    return _operation.of(queue)


def header_pairs(request: Request) -> list[tuple[str, str]]:
    """The request's headers as received, in order."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]


def caller(request: Request) -> str:
    """The IP address of the sender of the request."""
    return request.client.host if request.client else ""


@_publishing("POST", "/v2/publish/{destination:path}", "publish", Published)
async def _publish(queue: Queue, request: Request, _: None) -> Response:
    """Publish a message to a URL, or to each URL of a group. Headers may have the prefix Upstash-."""
    destination = destination_of(request, "/v2/publish/")
    body = await read_body(request, queue.max_message)
    publish = await _addressed(queue, destination, header_pairs(request), body)
    return JSONResponse((await _accept(queue, [publish], caller(request)))[0])


@_publishing("POST", "/v2/enqueue/{queue_name}/{destination:path}", "enqueue", Published)
async def _enqueue(queue: Queue, request: Request, _: None) -> Response:
    """Publish a message to a named queue, which is made when it is new."""
    written = request.scope["raw_path"].decode("latin-1").split("/", 4)[3]
    name = checked_name(unquote(written), "name of the queue")
    destination = destination_of(request, f"/v2/enqueue/{written}/")
    body = await read_body(request, queue.max_message)
    publish = await _addressed(queue, destination, header_pairs(request), body, Origin(queue=name))
    return JSONResponse((await _accept(queue, [publish], caller(request)))[0])


@_operation("POST", "/v2/batch", "batch", list[Published], body=list[BatchItem], errors=(404, 412))
async def _batch(queue: Queue, request: Request, _: Query) -> Response:
    """Publish all messages of an array, or none."""
    items = await read_json(request)
    if not isinstance(items, list):
        raise ApiError(
            400, f"body is not an array; got {type(items).__name__}; expected an array of messages"
        )
    publishes = []
    for position, item in enumerate(items):
        with naming(f"message {position}: "):
            publishes.append(await _batch_item(read_as(item, BatchItem, "message"), queue))
    return JSONResponse(await _accept(queue, publishes, caller(request)))


@_publishing("POST", "/v2/trigger/{destination:path}", "trigger", Triggered)
async def _trigger(queue: Queue, request: Request, _: None) -> Response:
    """Start a workflow run."""
    url = destination_of(request, "/v2/trigger/")
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
    run_id = None if isinstance(accepted, list) else accepted.get("workflowRunId")
    return JSONResponse({"workflowRunId": run_id} if run_id else accepted)


async def _addressed(
    queue: Queue, destination: str, headers: list[tuple[str, str]], body: bytes, origin: Origin = NO_ORIGIN
) -> Addressed:
    """The publish to a URL, or to each endpoint of the URL group of this name."""
    group = NAMES.fullmatch(destination) is not None
    url = await first_url(queue, destination) if group else destination
    publish = read_publish(url, headers, body, prefix=queue.prefix)
    publish = msgspec.structs.replace(publish, origin=origin)
    return await queue.store.read(url_groups.spread, publish, destination) if group else publish


async def first_url(queue: Queue, group: str) -> str:
    """The URL of the first endpoint of a group; an `ApiError` where it has none."""
    members = await queue.store.read(url_groups.urls, group)
    if not members:
        raise url_groups.no_destination(group)
    return members[0]


async def _accept(queue: Queue, publishes: Sequence[Addressed], caller_ip: str) -> list[Published]:
    every = [item for publish in publishes for item in (publish if isinstance(publish, list) else [publish])]
    settings = [part for item in every for part in (item.settings, item.callback, item.failure_callback)]
    for url in dict.fromkeys(part.url for part in settings if part is not None):
        await queue.destinations.address(url)

    def work(tx: QueueWrite) -> list[Published]:
        return [
            [accept(tx, item, caller_ip=caller_ip) for item in publish]
            if isinstance(publish, list)
            else accept(tx, publish, caller_ip=caller_ip)
            for publish in publishes
        ]

    return await queue.write(work)


def destination_of(request: Request, route: str) -> str:
    """The destination as it was sent: not decoded, with its query, without our token."""
    raw: str = request.scope["raw_path"].decode("latin-1")
    url = raw[len(route) :]
    if _ENCODED_SCHEME.match(url):
        url = unquote(url)
    query: str = request.scope["query_string"].decode("latin-1")
    own = [part for part in query.split("&") if part.partition("=")[0] not in TOKEN_PARAMETERS]
    return f"{url}?{'&'.join(own)}" if any(own) else url


async def _batch_item(item: BatchItem, queue: Queue) -> Addressed:
    pairs = []
    for name, values in (item.headers or {}).items():
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str):
                raise invalid(f"header {name[:80]!r}", shown(value), "text")
            pairs.append((name, value))
    if not isinstance(item.body, str | None):
        raise invalid("body is not text", shown(item.body), "text (JSON as text, too)")
    raw = (item.body or "").encode()
    if len(raw) > queue.max_message:
        raise ApiError(413, f"body too large; got {len(raw)} bytes; expected at most {queue.max_message}")
    name = checked_name(item.queue, "queue") if item.queue else ""
    return await _addressed(queue, item.destination, pairs, raw, Origin(queue=name))


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
    """Cancel the messages that are named or meet the filters, or all of them; with `count` the oldest."""
    wanted, values = where(*conditions(await with_ids(request, query, MessageIds)))
    most = -1 if query.count is None else query.count

    def work(tx: QueueWrite) -> int:
        rows = tx.rows(f"SELECT id FROM messages WHERE {wanted} ORDER BY seq LIMIT ?", *values, most)  # noqa: S608 - SQL of this package, values bound
        for row in rows:
            cancel(tx, row["id"])
        return len(rows)

    return JSONResponse({"cancelled": await queue.write(work)})


@_operation("GET", "/v2/messages/{message_id}", "message", PendingMessage, errors=(404,))
async def _show(queue: Queue, request: Request, _: Query) -> Response:
    """The stored message."""
    message_id = request.path_params["message_id"]
    row = await queue.store.read(
        QueueWrite.first, "SELECT spec, due_at, retried FROM messages WHERE id = ?", message_id
    )
    if row is None:
        raise _no_message(message_id)
    entry = message_entry(decode_message(row["spec"]))
    return JSONResponse(entry | {"retried": row["retried"], "nextDeliveryTime": row["due_at"]})


@_operation("DELETE", "/v2/messages/{message_id}", "cancelMessage", status=202, errors=(404,))
async def _cancel_one(queue: Queue, request: Request, _: Query) -> Response:
    """Cancel a message."""
    await queue.write(cancel, request.path_params["message_id"])
    return Response(status_code=202)


def cancel(tx: QueueWrite, message_id: str) -> None:
    """Cancel a message. A failure callback that is canceled leaves its DLQ entry as CALLBACK_CANCELED."""
    row = tx.first("DELETE FROM messages WHERE id = ? RETURNING spec", message_id)
    if row is None:
        raise _no_message(message_id)
    message = decode_message(row["spec"])
    for state in REQUESTED:
        record(tx, message, state)
    if message.kind == "failure_callback" and message.about:
        dlq.set_state(tx, message.about, "CALLBACK_CANCELED")


def _no_message(message_id: str) -> ApiError:
    return ApiError(
        404, f"message {message_id[:80]!r} is not here; expected one that still has to be delivered"
    )
