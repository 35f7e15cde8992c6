"""Operations on messages (publish, batch, trigger, show, cancel), and on the named queues that hold them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypeAlias, TypedDict
from urllib.parse import unquote

import msgspec
from msgspec import Meta
from msgspec.structs import replace
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
from toolkit.local.operations import Query, Texts, Timestamp
from toolkit.local.queue import url_groups
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.listing import (
    FlowKey,
    MostCanceled,
    QueueOperations,
    Span,
    TextOrTexts,
    any_label,
    conditions,
    not_found,
    of_host,
    of_path,
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
    with_values,
)
from toolkit.local.queue.publishing import PREFIXES, PUBLISH_HEADERS, Publish, read_publish
from toolkit.local.queue.steps import REQUESTED, PublishedMessage, accept, ensure_queue, record

if TYPE_CHECKING:
    from toolkit.local.queue.scheduler import Queue

Published: TypeAlias = PublishedMessage | list[PublishedMessage]

MAX_PARALLELISM: Final = 1000
_ENCODED_SCHEME: Final = re.compile(r"https?%3a", re.IGNORECASE)
_PENDING: Final = "one that still has to be delivered"
_HEADER: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


class TriggerItem(msgspec.Struct):
    """A run to start."""

    destination: str
    headers: dict[str, Annotated[Any, Meta(extra_json_schema=_HEADER)]] | None = None
    body: Annotated[Any, Meta(extra_json_schema={"type": "string"})] = None


class BatchItem(TriggerItem):
    """A message of a batch, to a URL or a URL group."""

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
    host: Annotated[Texts, of_host(_field("settings.url"))] = ()
    path: Annotated[Texts, of_path(_field("settings.url"))] = ()
    label: Annotated[Texts, sql(any_label("message_json(spec), '$.settings.labels'"))] = ()
    caller_ip: Annotated[Texts, sql(f"{_field('caller_ip')} IN ({{}})")] = ()
    topic_name: Annotated[Texts, sql(f"{_field('origin.topic')} IN ({{}})")] = ()
    queue_name: Annotated[Texts, sql(f"{_field('origin.queue')} IN ({{}})")] = ()
    schedule_id: Annotated[Texts, sql(f"{_field('origin.schedule')} IN ({{}})")] = ()


class MessageIds(msgspec.Struct, rename="camel"):
    """Messages by their ids."""

    message_ids: TextOrTexts = []


class Canceled(TypedDict):
    """How many were cancelled."""

    cancelled: int


class Triggered(TypedDict, total=False):
    """A run that was started; a message that was deduplicated, or that starts no run."""

    workflowRunId: str
    messageId: str
    deduplicated: bool


class TriggeredRun(TypedDict):
    """A run of a batch; `deduplicated` if one of this id was started before."""

    workflowRunId: str
    workflowCreatedAt: int
    deduplicated: NotRequired[bool]


class NamedQueue(TypedDict):
    """A named queue; `lag` counts its messages that are neither delivered nor failed."""

    name: str
    createdAt: int
    updatedAt: int
    parallelism: int
    paused: bool
    lag: int


class ChangedQueue(msgspec.Struct, rename="camel"):
    """A queue to make or to change; what is not given stays as it is."""

    queue_name: str
    parallelism: Annotated[int, Meta(ge=1)] | None = None
    paused: bool | None = None


message_operations: Final = QueueOperations()
"""The operations that publish messages, show and cancel them."""
queue_operations: Final = QueueOperations()
"""The operations below ``/v2/queues``."""
_publishing = partial(message_operations, query=None, body=bytes, headers=PUBLISH_HEADERS, errors=(404, 412))


def header_pairs(request: Request) -> list[tuple[str, str]]:
    """The request's headers as received, in order."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]


def caller(request: Request) -> str:
    """The IP address of the sender of the request."""
    return request.client.host if request.client else ""


@_publishing("POST", "/v2/publish/{destination:path}", "publish", Published)
async def _publish(queue: Queue, request: Request, _: None) -> Response:
    """Publish a message to a URL, or to each URL of a group. Headers may have the prefix Upstash-."""
    return await _published(queue, request, destination_of(request, "/v2/publish/"), NO_ORIGIN)


@_publishing("POST", "/v2/enqueue/{queue_name}/{destination:path}", "enqueue", Published)
async def _enqueue(queue: Queue, request: Request, _: None) -> Response:
    """Publish a message to a named queue, which is made when it is new."""
    written = request.scope["raw_path"].decode("latin-1").split("/", 4)[3]
    name = checked_name(unquote(written), "name of the queue")
    destination = destination_of(request, f"/v2/enqueue/{written}/")
    return await _published(queue, request, destination, Origin(queue=name))


async def _published(queue: Queue, request: Request, destination: str, origin: Origin) -> Response:
    body = await read_body(request, queue.max_message)
    publishes = await _addressed(queue, destination, header_pairs(request), body, origin)
    return JSONResponse((await _accept(queue, [publishes], request))[0])


@message_operations("POST", "/v2/batch", "batch", list[Published], body=list[BatchItem], errors=(404, 412))
async def _batch(queue: Queue, request: Request, _: Query) -> Response:
    """Publish all messages of an array, or none."""
    publishes = []
    for position, item in enumerate(await _read_items(request)):
        with naming(f"message {position}: "):
            publishes.append(await _batch_item(read_as(item, BatchItem, "message"), queue))
    return JSONResponse(await _accept(queue, publishes, request))


@_publishing("POST", "/v2/trigger/{destination:path}", "trigger", Triggered)
async def _trigger(queue: Queue, request: Request, _: None) -> Response:
    """Start a workflow run."""
    url = destination_of(request, "/v2/trigger/")
    body = await read_body(request, queue.max_message)
    publish = read_publish(url, _starting(header_pairs(request), url, queue), body, prefix=queue.prefix)
    (accepted,) = await _accept(queue, [[publish]], request)
    run_id = None if isinstance(accepted, list) else accepted.get("workflowRunId")
    return JSONResponse({"workflowRunId": run_id} if run_id else accepted)


@message_operations(
    "POST", "/v2/batch/trigger", "batchTrigger", list[TriggeredRun], body=list[TriggerItem], errors=(404, 412)
)
async def _batch_trigger(queue: Queue, request: Request, _: Query) -> Response:
    """Start a workflow run for each item of an array, or none."""
    publishes = []
    for position, value in enumerate(await _read_items(request)):
        with naming(f"message {position}: "):
            item = read_as(value, TriggerItem, "message")
            headers = _starting(_item_headers(item), item.destination, queue)
            body = _item_body(item, queue)
            publishes.append(read_publish(item.destination, headers, body, prefix=queue.prefix))
    await _check_destinations(queue, publishes)
    return JSONResponse(await queue.write(_start_runs, publishes, caller(request)))


def _start_runs(tx: QueueWrite, publishes: list[Publish], caller_ip: str) -> list[TriggeredRun]:
    started = []
    for publish in publishes:
        accepted = accept(tx, publish, caller_ip=caller_ip)
        row = tx.first(
            "SELECT id, created_at FROM runs WHERE id = (SELECT run_id FROM steps WHERE message_id = ?)",
            accepted["messageId"],
        )
        if row is None:  # a header says that the message is no first one of a run
            raise invalid("item starts no run", repr(publish.settings.url[:80]), "headers of a new run")
        run: TriggeredRun = {"workflowRunId": row["id"], "workflowCreatedAt": row["created_at"]}
        if accepted.get("deduplicated"):
            run["deduplicated"] = True
        started.append(run)
    return started


def _starting(headers: list[tuple[str, str]], url: str, queue: Queue) -> list[tuple[str, str]]:
    """The headers with those of the workflow protocol that start a run, in the prefix that they use."""
    names = {name.lower() for name, _ in headers}
    prefix = next(
        (known for known in reversed(PREFIXES) if any(name.startswith(known.lower()) for name in names)),
        queue.prefix,
    )
    protocol = (
        ("Workflow-Init", "true"),
        ("Workflow-RunId", new_id("wfr")),
        ("Workflow-Url", url),
        ("Feature-Set", "LazyFetch,InitialBody"),
        (f"Forward-{prefix}Workflow-Sdk-Version", "1"),
    )
    named = [(f"{prefix}{name}", value) for name, value in protocol]
    return headers + [(name, value) for name, value in named if name.lower() not in names]


async def _addressed(
    queue: Queue, destination: str, headers: list[tuple[str, str]], body: bytes, origin: Origin
) -> list[Publish]:
    """The publish to a URL, or to each endpoint of the URL group of this name."""
    group = NAMES.fullmatch(destination) is not None
    endpoints = await queue.store.read(url_groups.destinations, destination) if group else []
    url = endpoints[0]["url"] if group else destination
    publish = replace(read_publish(url, headers, body, prefix=queue.prefix), origin=origin)
    return url_groups.spread(publish, destination, endpoints) if group else [publish]


async def _accept(queue: Queue, publishes: Sequence[list[Publish]], request: Request) -> list[Published]:
    """Accept all in one transaction; those to a URL group are a list of the response."""
    await _check_destinations(queue, [item for several in publishes for item in several])

    def work(tx: QueueWrite) -> list[Published]:
        accepted = [
            [accept(tx, item, caller_ip=caller(request)) for item in several] for several in publishes
        ]
        return [made if made[0].get("url") else made[0] for made in accepted]

    return await queue.write(work)


async def _check_destinations(queue: Queue, publishes: Sequence[Publish]) -> None:
    """Raise an `ApiError` for a destination or a callback that may not be called."""
    settings = [part for item in publishes for part in (item.settings, item.callback, item.failure_callback)]
    for url in dict.fromkeys(part.url for part in settings if part is not None):
        await queue.destinations.address(url)


def destination_of(request: Request, route: str) -> str:
    """The destination as it was sent: not decoded, with its query, without our token."""
    raw: str = request.scope["raw_path"].decode("latin-1")
    url = raw[len(route) :]
    if _ENCODED_SCHEME.match(url):
        url = unquote(url)
    query: str = request.scope["query_string"].decode("latin-1")
    own = [part for part in query.split("&") if part.partition("=")[0] not in TOKEN_PARAMETERS]
    return f"{url}?{'&'.join(own)}" if any(own) else url


async def _read_items(request: Request) -> list[Any]:
    items = await read_json(request)
    if not isinstance(items, list):
        raise invalid("body is not an array", type(items).__name__, "an array of messages")
    return items


async def _batch_item(item: BatchItem, queue: Queue) -> list[Publish]:
    raw = _item_body(item, queue)
    name = checked_name(item.queue, "queue") if item.queue else ""
    return await _addressed(queue, item.destination, _item_headers(item), raw, Origin(queue=name))


def _item_headers(item: TriggerItem) -> list[tuple[str, str]]:
    pairs = []
    for name, values in (item.headers or {}).items():
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str):
                raise invalid(f"header {name[:80]!r}", shown(value), "text")
            pairs.append((name, value))
    return pairs


def _item_body(item: TriggerItem, queue: Queue) -> bytes:
    if not isinstance(item.body, str | None):
        raise invalid("body is not text", shown(item.body), "text (JSON as text, too)")
    raw = (item.body or "").encode()
    if len(raw) > queue.max_message:
        raise ApiError(413, f"body too large; got {len(raw)} bytes; expected at most {queue.max_message}")
    return raw


@message_operations(
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


@message_operations.transaction("GET", "/v2/messages/{message_id}", "message", PendingMessage, errors=(404,))
def _show(tx: QueueWrite, message_id: str) -> dict[str, Any]:
    """The stored message."""
    row = tx.first("SELECT spec, due_at, retried FROM messages WHERE id = ?", message_id)
    if row is None:
        raise not_found("message", message_id, _PENDING)
    entry = with_values(message_entry(decode_message(row["spec"])))
    return entry | {"retried": row["retried"], "nextDeliveryTime": row["due_at"]}


@message_operations.transaction(
    "DELETE", "/v2/messages/{message_id}", "cancelMessage", Canceled, status=202, errors=(404,)
)
def cancel(tx: QueueWrite, message_id: str) -> Canceled:
    """Cancel a message.

    A failure callback that is canceled leaves its DLQ entry as CALLBACK_CANCELED.
    """
    row = tx.first("DELETE FROM messages WHERE id = ? RETURNING spec", message_id)
    if row is None:
        raise not_found("message", message_id, _PENDING)
    message = decode_message(row["spec"])
    for state in REQUESTED:
        record(tx, message, state)
    if message.kind == "failure_callback":
        tx.execute("UPDATE dlq SET state = 'CALLBACK_CANCELED' WHERE id = ?", message.about)
    return {"cancelled": 1}


@queue_operations.transaction("GET", "/v2/queues", "queues", list[NamedQueue])
def _queues(tx: QueueWrite) -> list[NamedQueue]:
    """All named queues, by name."""
    return [_queue(tx, row["name"]) for row in tx.rows("SELECT name FROM queues ORDER BY name")]


@queue_operations.transaction(
    "POST", "/v2/queues", "changeQueue", NamedQueue, body=ChangedQueue, errors=(412,)
)
def _change_queue(tx: QueueWrite, body: ChangedQueue) -> NamedQueue:
    """Make a named queue, or change it."""
    name, parallelism = checked_name(body.queue_name, "queueName"), body.parallelism
    if (parallelism or 1) > MAX_PARALLELISM:
        raise invalid(
            "parallelism is over the limit", str(parallelism), f"1 to {MAX_PARALLELISM}", status=412
        )
    ensure_queue(tx, name)
    _update_queue(tx, name, parallelism=parallelism, paused=body.paused)
    return _queue(tx, name)


@queue_operations.transaction("GET", "/v2/queues/{queue_name}", "queue", NamedQueue, errors=(404,))
def _queue(tx: QueueWrite, queue_name: str) -> NamedQueue:
    """A named queue."""
    row: Any = tx.first("SELECT * FROM queues WHERE name = ?", queue_name)
    if row is None:
        raise not_found("queue", queue_name, "one that was made or enqueued to")
    return {
        "name": queue_name,
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
        "parallelism": row["parallelism"],
        "paused": bool(row["paused"]),
        "lag": tx.value("SELECT count(*) FROM messages WHERE queue = ?", queue_name),
    }


@queue_operations.transaction("DELETE", "/v2/queues/{queue_name}", "deleteQueue", errors=(404,))
def _delete_queue(tx: QueueWrite, queue_name: str) -> None:
    """Delete a named queue, and cancel its messages."""
    _queue(tx, queue_name)  # 404 where there is none
    for row in tx.rows("SELECT id FROM messages WHERE queue = ? ORDER BY seq", queue_name):
        cancel(tx, row["id"])
    tx.execute("DELETE FROM queues WHERE name = ?", queue_name)


@queue_operations.transaction("POST", "/v2/queues/{queue_name}/pause", "pauseQueue", errors=(404,))
def _pause_queue(tx: QueueWrite, queue_name: str) -> None:
    """Start no more deliveries of a named queue; those in progress end."""
    _update_queue(tx, queue_name, paused=True)


@queue_operations.transaction("POST", "/v2/queues/{queue_name}/resume", "resumeQueue", errors=(404,))
def _resume_queue(tx: QueueWrite, queue_name: str) -> None:
    """Deliver the messages of a named queue again."""
    _update_queue(tx, queue_name, paused=False)


def _update_queue(
    tx: QueueWrite, name: str, *, parallelism: int | None = None, paused: bool | None = None
) -> None:
    _queue(tx, name)  # 404 where there is none
    tx.execute(
        "UPDATE queues SET parallelism = coalesce(?, parallelism), paused = coalesce(?, paused), "
        "updated_at = ? WHERE name = ?",
        *(parallelism, paused, tx.now_ms, name),
    )
