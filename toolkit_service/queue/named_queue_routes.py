"""Operations on named queues: list, make, change, pause, resume and delete them."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta

from toolkit_service.api import checked_name, invalid
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.listing import not_found
from toolkit_service.queue.publish_routes import cancel
from toolkit_service.queue.queue_operations import QueueOperations
from toolkit_service.queue.steps import ensure_queue

MAX_PARALLELISM: Final = 1000


class NamedQueue(TypedDict):
    """A named queue; `lag` is the number of messages that are neither delivered nor failed."""

    name: str
    createdAt: int
    updatedAt: int
    parallelism: int
    paused: bool
    lag: int


class ChangedQueue(msgspec.Struct, rename="camel"):
    """A queue to make or to change; omitted fields stay as they are."""

    queue_name: str
    parallelism: Annotated[int, Meta(ge=1)] | None = None
    paused: bool | None = None


queue_operations: Final = QueueOperations()
"""The operations below ``/v2/queues``."""


@queue_operations.transaction("GET", "/v2/queues", "queues", list[NamedQueue])
def _queues(tx: QueueWrite) -> list[NamedQueue]:
    """List all named queues, by name."""
    return [
        _queue(tx, row["name"])
        for row in tx.rows("SELECT name FROM queues ORDER BY name")
    ]


@queue_operations.transaction(
    "POST", "/v2/queues", "changeQueue", NamedQueue, body=ChangedQueue, errors=(412,)
)
def _change_queue(tx: QueueWrite, body: ChangedQueue) -> NamedQueue:
    """Make a named queue, or change it."""
    name = checked_name(body.queue_name, "queueName")
    parallelism = body.parallelism
    if parallelism is not None and parallelism > MAX_PARALLELISM:
        expected = f"1 to {MAX_PARALLELISM}"
        raise invalid(
            "parallelism is over the limit", str(parallelism), expected, status=412
        )

    ensure_queue(tx, name)
    _update_queue(tx, name, parallelism=parallelism, paused=body.paused)
    return _queue(tx, name)


@queue_operations.transaction(
    "GET", "/v2/queues/{queue_name}", "queue", NamedQueue, errors=(404,)
)
def _queue(tx: QueueWrite, queue_name: str) -> NamedQueue:
    """Return a named queue."""
    row: Any = tx.first("SELECT * FROM queues WHERE name = ?", queue_name)
    if row is None:
        raise not_found("queue", queue_name, "a queue that was made or enqueued to")

    return {
        "name": queue_name,
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
        "parallelism": row["parallelism"],
        "paused": bool(row["paused"]),
        "lag": tx.value("SELECT count(*) FROM messages WHERE queue = ?", queue_name),
    }


@queue_operations.transaction(
    "DELETE", "/v2/queues/{queue_name}", "deleteQueue", errors=(404,)
)
def _delete_queue(tx: QueueWrite, queue_name: str) -> None:
    """Delete a named queue, and cancel the messages in it."""
    _queue(tx, queue_name)  # 404 if it does not exist
    for row in tx.rows(
        "SELECT id FROM messages WHERE queue = ? ORDER BY seq", queue_name
    ):
        cancel(tx, row["id"])

    tx.execute("DELETE FROM queues WHERE name = ?", queue_name)


@queue_operations.transaction(
    "POST", "/v2/queues/{queue_name}/pause", "pauseQueue", errors=(404,)
)
def _pause_queue(tx: QueueWrite, queue_name: str) -> None:
    """Start no more deliveries of a named queue; deliveries in progress continue."""
    _update_queue(tx, queue_name, paused=True)


@queue_operations.transaction(
    "POST", "/v2/queues/{queue_name}/resume", "resumeQueue", errors=(404,)
)
def _resume_queue(tx: QueueWrite, queue_name: str) -> None:
    """Deliver the messages of a named queue again."""
    _update_queue(tx, queue_name, paused=False)


def _update_queue(
    tx: QueueWrite,
    name: str,
    *,
    parallelism: int | None = None,
    paused: bool | None = None,
) -> None:
    _queue(tx, name)  # 404 if it does not exist
    tx.execute(
        "UPDATE queues SET parallelism = coalesce(?, parallelism), paused = coalesce(?, paused), "
        "updated_at = ? WHERE name = ?",
        *(parallelism, paused, tx.now_ms, name),
    )
