"""Named queues: their messages are delivered in order, so many at a time as the queue's parallelism says."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import ApiError, checked_name, read_as, read_json
from toolkit.local.operations import Declared, Operation, Query
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.publish_routes import cancel
from toolkit.local.queue.steps import ensure_queue

if TYPE_CHECKING:
    from toolkit.local.queue.scheduler import Queue

MAX_PARALLELISM: Final = 1000


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


def heads(tx: QueueWrite, claimed: Mapping[int, str]) -> tuple[list[sqlite3.Row], list[int]]:
    """The due messages at the heads of the queues, and when others will be due.

    A message keeps its place until it is delivered or has failed: those behind it wait for its retries.
    `claimed` are the deliveries in progress, by the numbers of their messages: the names of their queues.
    """
    rows, later = list[sqlite3.Row](), list[int]()
    running = Counter(claimed.values())
    for name, parallelism in tx.rows(
        "SELECT name, parallelism FROM queues WHERE NOT paused "
        "AND EXISTS (SELECT 1 FROM messages WHERE queue = queues.name)"
    ):
        first = tx.rows(
            "SELECT seq, retried, due_at, flow_key, spec FROM messages WHERE queue = ? AND joins_at <= ? "
            "ORDER BY joins_at, seq LIMIT ?",
            *(name, tx.now_ms, parallelism),
        )
        due = [row for row in first if row["due_at"] <= tx.now_ms and row["seq"] not in claimed]
        rows += due[: max(0, parallelism - running[name])]
        later += [row["due_at"] for row in first if row["due_at"] > tx.now_ms]
        sql = "SELECT min(joins_at) FROM messages WHERE queue = ? AND joins_at > ?"
        (joins_at,) = tx.rows(sql, name, tx.now_ms)[0]
        later += [] if joins_at is None else [joins_at]
    return rows, later


_operation: Declared[Queue] = Declared()


def queue_operations(queue: Queue) -> list[Operation]:
    """The operations below ``/v2/queues``."""
    return _operation.of(queue)


@_operation("GET", "/v2/queues", "queues", list[NamedQueue])
async def _list(queue: Queue, _: Request, __: Query) -> Response:
    """All named queues, by name."""

    def read(tx: QueueWrite) -> list[NamedQueue]:
        return [_shown(tx, row["name"]) for row in tx.rows("SELECT name FROM queues ORDER BY name")]

    return JSONResponse(await queue.store.read(read))


@_operation("POST", "/v2/queues", "changeQueue", NamedQueue, body=ChangedQueue, errors=(412,))
async def _change(queue: Queue, request: Request, _: Query) -> Response:
    """Make a named queue, or change it."""
    body = read_as(await read_json(request), ChangedQueue)
    name = checked_name(body.queue_name, "queueName")
    if (body.parallelism or 1) > MAX_PARALLELISM:
        raise ApiError(
            412, f"parallelism is over the limit; got {body.parallelism}; expected 1 to {MAX_PARALLELISM}"
        )

    def work(tx: QueueWrite) -> NamedQueue:
        ensure_queue(tx, name)
        sql = (
            "UPDATE queues SET parallelism = coalesce(?, parallelism), paused = coalesce(?, paused), "
            "updated_at = ? WHERE name = ?"
        )
        tx.execute(sql, body.parallelism, body.paused, tx.now_ms, name)
        return _shown(tx, name)

    return JSONResponse(await queue.write(work))


@_operation("GET", "/v2/queues/{queue_name}", "queue", NamedQueue, errors=(404,))
async def _one(queue: Queue, request: Request, _: Query) -> Response:
    """A named queue."""
    return JSONResponse(await queue.store.read(_shown, request.path_params["queue_name"]))


@_operation("DELETE", "/v2/queues/{queue_name}", "deleteQueue", errors=(404,))
async def _delete(queue: Queue, request: Request, _: Query) -> Response:
    """Delete a named queue, and cancel its messages."""
    await queue.write(_deleted, request.path_params["queue_name"])
    return Response()


@_operation("POST", "/v2/queues/{queue_name}/pause", "pauseQueue", errors=(404,))
async def _pause(queue: Queue, request: Request, _: Query) -> Response:
    """Start no more deliveries of a named queue; those in progress end."""
    await queue.write(_set_paused, request.path_params["queue_name"], paused=True)
    return Response()


@_operation("POST", "/v2/queues/{queue_name}/resume", "resumeQueue", errors=(404,))
async def _resume(queue: Queue, request: Request, _: Query) -> Response:
    """Deliver the messages of a named queue again."""
    await queue.write(_set_paused, request.path_params["queue_name"], paused=False)
    return Response()


def _set_paused(tx: QueueWrite, name: str, *, paused: bool) -> None:
    _shown(tx, name)  # 404 where there is none
    tx.execute("UPDATE queues SET paused = ?, updated_at = ? WHERE name = ?", paused, tx.now_ms, name)


def _deleted(tx: QueueWrite, name: str) -> None:
    _shown(tx, name)
    for row in tx.rows("SELECT id FROM messages WHERE queue = ? ORDER BY seq", name):
        cancel(tx, row["id"])
    tx.execute("DELETE FROM queues WHERE name = ?", name)


def _shown(tx: QueueWrite, name: str) -> NamedQueue:
    row: Any = tx.first("SELECT * FROM queues WHERE name = ?", name)
    if row is None:
        raise ApiError(404, f"queue {name[:80]!r} is not here; expected one that was made or enqueued to")
    (lag,) = tx.rows("SELECT count(*) FROM messages WHERE queue = ?", name)[0]
    return {
        "name": name,
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
        "parallelism": row["parallelism"],
        "paused": bool(row["paused"]),
        "lag": lag,
    }
