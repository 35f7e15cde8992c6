"""Operations on messages: publish, batch, trigger, show, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NotRequired,
    TypeAlias,
    TypedDict,
)
from urllib.parse import unquote

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit_service.api import (
    NAMES,
    ApiError,
    checked_name,
    invalid,
    naming,
    read_as,
    read_body,
    read_json,
    shown,
)
from toolkit_service.operations import Query, Texts, Timestamp
from toolkit_service.queue import url_groups
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.listing import (
    FlowKey,
    MostCanceled,
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
from toolkit_service.queue.messages import (
    NO_ORIGIN,
    Origin,
    PendingMessage,
    decode_message,
    message_entry,
    new_id,
    with_values,
)
from toolkit_service.queue.publishing import (
    PREFIXES,
    PUBLISH_HEADERS,
    Publish,
    read_publish,
)
from toolkit_service.queue.queue_operations import QueueOperations
from toolkit_service.queue.request_parts import caller, destination_of, header_pairs
from toolkit_service.queue.steps import (
    REQUESTED,
    PublishedMessage,
    accept,
    record,
)

if TYPE_CHECKING:
    from toolkit_service.queue.scheduler import Queue

Published: TypeAlias = PublishedMessage | list[PublishedMessage]

_PENDING: Final = "a message that still has to be delivered"
_HEADER: Final = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
}


class TriggerItem(msgspec.Struct):
    """A run to start."""

    destination: str
    headers: dict[str, Annotated[Any, Meta(extra_json_schema=_HEADER)]] | None = None
    body: Annotated[Any, Meta(extra_json_schema={"type": "string"})] = None


class BatchItem(TriggerItem):
    """A message of a batch, to a URL or a URL group."""

    queue: str | None = None


def _field(path: str) -> str:
    """Return the SQL of a field of a stored message."""
    return f"json_extract(message_json(spec), '$.{path}')"


class MessagesQuery(Span):
    """The messages to cancel."""

    from_date: Annotated[Timestamp, sql(f"{_field('created_at')} >= {{}}")] | None = (
        None
    )
    to_date: Annotated[Timestamp, sql(f"{_field('created_at')} <= {{}}")] | None = None
    count: MostCanceled | None = None
    message_ids: Annotated[Texts, sql("id IN ({})")] = ()
    flow_control_key: FlowKey = ()
    url: Annotated[Texts, sql(f"{_field('settings.url')} IN ({{}})")] = ()
    host: Annotated[Texts, of_host(_field("settings.url"))] = ()
    path: Annotated[Texts, of_path(_field("settings.url"))] = ()
    label: Annotated[
        Texts, sql(any_label("message_json(spec), '$.settings.labels'"))
    ] = ()
    caller_ip: Annotated[Texts, sql(f"{_field('caller_ip')} IN ({{}})")] = ()
    topic_name: Annotated[Texts, sql(f"{_field('origin.topic')} IN ({{}})")] = ()
    queue_name: Annotated[Texts, sql(f"{_field('origin.queue')} IN ({{}})")] = ()
    schedule_id: Annotated[Texts, sql(f"{_field('origin.schedule')} IN ({{}})")] = ()


class MessageIds(msgspec.Struct, rename="camel"):
    """Messages by their ids."""

    message_ids: TextOrTexts = []


class Canceled(TypedDict):
    """The number of cancelled messages or runs."""

    cancelled: int


class Triggered(TypedDict, total=False):
    """A run that was started, a message that was deduplicated, or a message that starts no run."""

    workflowRunId: str
    messageId: str
    deduplicated: bool


class TriggeredRun(TypedDict):
    """A run of a batch; `deduplicated` if one of this id was started before."""

    workflowRunId: str
    workflowCreatedAt: int
    deduplicated: NotRequired[bool]


message_operations: Final = QueueOperations()
"""The operations that publish, show and cancel messages."""
_publishing = partial(
    message_operations,
    query=None,
    body=bytes,
    headers=PUBLISH_HEADERS,
    errors=(404, 412),
)


@_publishing("POST", "/v2/publish/{destination:path}", "publish", Published)
async def _publish(queue: Queue, request: Request, _: None) -> Response:
    """Publish a message to a URL, or to each URL of a group. Headers may have the prefix Upstash-."""
    return await _published(
        queue, request, destination_of(request, "/v2/publish/"), NO_ORIGIN
    )


@_publishing(
    "POST", "/v2/enqueue/{queue_name}/{destination:path}", "enqueue", Published
)
async def _enqueue(queue: Queue, request: Request, _: None) -> Response:
    """Publish a message to a named queue, and make the queue if it is new."""
    # the path as it was sent: Starlette has decoded path_params, including the destination
    encoded_name = request.scope["raw_path"].decode("latin-1").split("/", 4)[3]
    name = checked_name(unquote(encoded_name), "name of the queue")
    destination = destination_of(request, f"/v2/enqueue/{encoded_name}/")

    return await _published(queue, request, destination, Origin(queue=name))


async def _published(
    queue: Queue, request: Request, destination: str, origin: Origin
) -> Response:
    body = await read_body(request, queue.max_message)
    publishes = await _addressed(
        queue, destination, header_pairs(request), body, origin
    )
    (published,) = await _accept(queue, [publishes], request)

    return JSONResponse(published)


@message_operations(
    "POST",
    "/v2/batch",
    "batch",
    list[Published],
    body=list[BatchItem],
    errors=(404, 412),
)
async def _batch(queue: Queue, request: Request, _: Query) -> Response:
    """Publish all messages of an array, or none if one of them is malformed."""
    publishes = []
    for position, item in enumerate(await _read_items(request)):
        with naming(f"message {position}: "):
            publishes.append(
                await _batch_item(read_as(item, BatchItem, "message"), queue)
            )

    return JSONResponse(await _accept(queue, publishes, request))


@_publishing("POST", "/v2/trigger/{destination:path}", "trigger", Triggered)
async def _trigger(queue: Queue, request: Request, _: None) -> Response:
    """Start a workflow run."""
    url = destination_of(request, "/v2/trigger/")
    body = await read_body(request, queue.max_message)
    publish = read_publish(
        url, _starting(header_pairs(request), url, queue), body, prefix=queue.prefix
    )
    (accepted,) = await _accept(queue, [[publish]], request)
    if isinstance(accepted, dict) and accepted.get("workflowRunId"):
        return JSONResponse({"workflowRunId": accepted["workflowRunId"]})

    # deduplicated, or the headers name another kind of message
    return JSONResponse(accepted)


@message_operations(
    "POST",
    "/v2/batch/trigger",
    "batchTrigger",
    list[TriggeredRun],
    body=list[TriggerItem],
    errors=(404, 412),
)
async def _batch_trigger(queue: Queue, request: Request, _: Query) -> Response:
    """Start a workflow run per item of an array, or none if one of them is malformed."""
    publishes = []
    for position, raw_item in enumerate(await _read_items(request)):
        with naming(f"message {position}: "):
            item = read_as(raw_item, TriggerItem, "message")
            headers = _starting(_item_headers(item), item.destination, queue)
            body = _item_body(item, queue)
            publishes.append(
                read_publish(item.destination, headers, body, prefix=queue.prefix)
            )

    await _check_destinations(queue, publishes)
    return JSONResponse(await queue.write(_start_runs, publishes, caller(request)))


def _start_runs(
    tx: QueueWrite, publishes: list[Publish], caller_ip: str
) -> list[TriggeredRun]:
    started = []
    for publish in publishes:
        accepted = accept(tx, publish, caller_ip=caller_ip)
        # the message may be deduplicated: then the run is that of an earlier message
        row = tx.first(
            "SELECT id, created_at FROM runs WHERE id = (SELECT run_id FROM steps WHERE message_id = ?)",
            accepted["messageId"],
        )
        if row is None:
            # a header of the item overrides Workflow-Init: the message is not the first of a run
            raise invalid(
                "item starts no run",
                repr(publish.settings.url[:80]),
                "headers of a new run",
            )

        run: TriggeredRun = {
            "workflowRunId": row["id"],
            "workflowCreatedAt": row["created_at"],
        }
        if accepted.get("deduplicated"):
            run["deduplicated"] = True
        started.append(run)

    return started


def _starting(
    headers: list[tuple[str, str]], url: str, queue: Queue
) -> list[tuple[str, str]]:
    """Add the headers of the workflow protocol that start a run, unless the request has them."""
    names = {name.lower() for name, _ in headers}
    prefix = _prefix_of(names) or queue.prefix
    protocol = (
        ("Workflow-Init", "true"),
        ("Workflow-RunId", new_id("wfr")),
        ("Workflow-Url", url),
        ("Feature-Set", "LazyFetch,InitialBody"),
        (f"Forward-{prefix}Workflow-Sdk-Version", "1"),
    )
    completed = list(headers)

    for short_name, text in protocol:
        name = f"{prefix}{short_name}"
        if name.lower() not in names:
            completed.append((name, text))

    return completed


def _prefix_of(names: set[str]) -> str | None:
    """Return the prefix that header names in lower case have, the public one first."""
    for prefix in reversed(PREFIXES):
        if any(name.startswith(prefix.lower()) for name in names):
            return prefix
    return None


async def _addressed(
    queue: Queue,
    destination: str,
    headers: list[tuple[str, str]],
    body: bytes,
    origin: Origin,
) -> list[Publish]:
    """Return the publish to a URL, or to each endpoint of the URL group of this name."""
    if NAMES.fullmatch(destination) is None:
        publish = read_publish(destination, headers, body, prefix=queue.prefix)
        return [replace(publish, origin=origin)]

    endpoints = await queue.store.read(url_groups.destinations, destination)
    first_url = endpoints[0]["url"]
    publish = read_publish(first_url, headers, body, prefix=queue.prefix)

    return url_groups.spread(replace(publish, origin=origin), destination, endpoints)


async def _accept(
    queue: Queue, publishes: Sequence[list[Publish]], request: Request
) -> list[Published]:
    """Accept all publishes in one transaction. A publish to a URL group becomes a list of the response."""
    await _check_destinations(queue, list(chain.from_iterable(publishes)))
    caller_ip = caller(request)

    def work(tx: QueueWrite) -> list[Published]:
        published: list[Published] = []
        for to_one_destination in publishes:
            accepted = [
                accept(tx, item, caller_ip=caller_ip) for item in to_one_destination
            ]
            # only messages to the endpoints of a group name a URL
            is_group = "url" in accepted[0]
            published.append(accepted if is_group else accepted[0])

        return published

    return await queue.write(work)


async def _check_destinations(queue: Queue, publishes: Sequence[Publish]) -> None:
    """Raise an `ApiError` if a destination or a callback may not be called."""
    urls: dict[str, None] = {}
    for publish in publishes:
        settings = (publish.settings, publish.callback, publish.failure_callback)
        urls |= dict.fromkeys(part.url for part in settings if part is not None)

    for url in urls:
        await queue.destinations.address(url)


async def _read_items(request: Request) -> list[Any]:
    items = await read_json(request)
    if not isinstance(items, list):
        raise invalid(
            "body is not an array", type(items).__name__, "an array of messages"
        )

    return items


async def _batch_item(item: BatchItem, queue: Queue) -> list[Publish]:
    body = _item_body(item, queue)
    queue_name = ""
    if item.queue:
        queue_name = checked_name(item.queue, "queue")
    return await _addressed(
        queue, item.destination, _item_headers(item), body, Origin(queue=queue_name)
    )


def _item_headers(item: TriggerItem) -> list[tuple[str, str]]:
    """Return the headers of an item as pairs. A header can have one value or an array of values."""
    pairs = []
    for name, listed in (item.headers or {}).items():
        header_values = listed if isinstance(listed, list) else [listed]
        for header_value in header_values:
            if not isinstance(header_value, str):
                raise invalid(f"header {name[:80]!r}", shown(header_value), "text")
            pairs.append((name, header_value))

    return pairs


def _item_body(item: TriggerItem, queue: Queue) -> bytes:
    if not isinstance(item.body, str | None):
        raise invalid("body is not text", shown(item.body), "text, also for JSON")

    body = (item.body or "").encode()
    if len(body) > queue.max_message:
        problem = f"body too large; got {len(body)} bytes"
        raise ApiError(413, f"{problem}; expected at most {queue.max_message}")

    return body


@message_operations(
    "DELETE",
    "/v2/messages",
    "cancelMessages",
    Canceled,
    query=MessagesQuery,
    body=MessageIds,
    body_required=False,
)
async def _cancel_many(
    queue: Queue, request: Request, query: MessagesQuery
) -> Response:
    """Cancel the messages with these ids or filters, or all messages; with `count`, only the oldest."""
    condition, bound = where(*conditions(await with_ids(request, query, MessageIds)))
    limit = -1 if query.count is None else query.count

    def work(tx: QueueWrite) -> int:
        rows = tx.rows(
            f"SELECT id FROM messages WHERE {condition} ORDER BY seq LIMIT ?",  # noqa: S608 - SQL of this package, values bound
            *bound,
            limit,
        )
        for row in rows:
            cancel(tx, row["id"])
        return len(rows)

    return JSONResponse({"cancelled": await queue.write(work)})


@message_operations.transaction(
    "GET", "/v2/messages/{message_id}", "message", PendingMessage, errors=(404,)
)
def _show(tx: QueueWrite, message_id: str) -> dict[str, Any]:
    """Return a message that still has to be delivered."""
    row = tx.first(
        "SELECT spec, due_at, retried FROM messages WHERE id = ?", message_id
    )
    if row is None:
        raise not_found("message", message_id, _PENDING)

    entry = with_values(message_entry(decode_message(row["spec"])))
    return entry | {"retried": row["retried"], "nextDeliveryTime": row["due_at"]}


@message_operations.transaction(
    "DELETE",
    "/v2/messages/{message_id}",
    "cancelMessage",
    Canceled,
    status=202,
    errors=(404,),
)
def cancel(tx: QueueWrite, message_id: str) -> Canceled:
    """Cancel a message.

    If it is a failure callback, the state of the DLQ entry becomes CALLBACK_CANCELED.
    """
    row = tx.first("DELETE FROM messages WHERE id = ? RETURNING spec", message_id)
    if row is None:
        raise not_found("message", message_id, _PENDING)

    # the row is deleted first: of two requests, only one cancels the message
    message = decode_message(row["spec"])
    for state in REQUESTED:
        record(tx, message, state)
    if message.kind == "failure_callback":
        tx.execute(
            "UPDATE dlq SET state = 'CALLBACK_CANCELED' WHERE id = ?", message.about
        )

    return {"cancelled": 1}
