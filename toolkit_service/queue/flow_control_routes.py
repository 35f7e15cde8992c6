"""Operations on flow-control keys: list them, pause and resume them, and pin their limits."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypedDict

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.base.times import DAY_MS
from toolkit_service.api import invalid
from toolkit_service.operations import Query, read_query
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.flow_control import (
    NO_LIMITS,
    NO_SETTINGS,
    KeySettings,
    stored_settings,
)
from toolkit_service.queue.listing import not_found
from toolkit_service.queue.messages import decode_message
from toolkit_service.queue.queue_operations import QueueOperations

if TYPE_CHECKING:
    from toolkit_service.queue.scheduler import Queue

MAX_LIMIT: Final = 999_999_999
MAX_KEYS: Final = 1000
"""Largest number of keys that can be paused or pinned at once."""
_LONGEST_KEY: Final = 1024
_ACTIONS: Final = (b"pause", b"resume", b"pin", b"unpin", b"resetRate")


class FlowControlKey(TypedDict):
    """A key: the limits (0: none), and how much of them is used. The start of the period is in Unix ms."""

    flowControlKey: str
    waitListSize: int
    parallelismMax: int
    parallelismCount: int
    rateMax: int
    rateCount: int
    ratePeriod: int
    ratePeriodStart: int
    isPaused: bool
    isPinnedParallelism: bool
    isPinnedRate: bool


class GlobalParallelism(TypedDict):
    """The largest number of concurrent deliveries, and the current number."""

    parallelismMax: int
    parallelismCount: int


Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
Flag = Annotated[
    Literal["true", "false"], Meta(description="Whether to unpin this limit (false).")
]


class PinQuery(Query):
    """Limits of a key that replace the limits of the messages."""

    parallelism: Limit | None = None
    rate: Limit | None = None
    period: (
        Annotated[int, Meta(ge=1, le=7 * DAY_MS // 1000, description="Seconds (1).")]
        | None
    ) = None


class UnpinQuery(Query):
    """Limits of a key that the messages determine again."""

    parallelism: Flag = "false"
    rate: Flag = "false"


flow_control_operations: Final = QueueOperations()
"""The operations below ``/v2/flowControl``, and on the parallelism of all deliveries."""


@flow_control_operations(
    "GET", "/v2/flowControl", "flowControlKeys", list[FlowControlKey]
)
async def _list(queue: Queue, _: Request, __: Query) -> Response:
    """List the keys that have messages, counted deliveries or settings."""
    return JSONResponse(await queue.store.read(_shown, queue))


@flow_control_operations(
    "GET",
    "/v2/flowControl/{flow_key:path}",
    "flowControlKey",
    FlowControlKey,
    query=None,
    errors=(404,),
)
async def _one(queue: Queue, request: Request, _: None) -> Response:
    """Return a flow-control key."""
    if (
        request.scope["raw_path"].removeprefix(b"/v2/flowControl/").partition(b"/")[2]
        in _ACTIONS
    ):
        # this route also matches the paths of the operations below, which have no GET
        raise HTTPException(405)

    read_query(request, Query)
    key = request.path_params["flow_key"]

    keys = await queue.store.read(_shown, queue, key)
    if not keys:
        raise not_found(
            "flow-control key",
            key,
            "one that has messages, counted deliveries or settings",
        )

    return JSONResponse(keys[0])


@flow_control_operations(
    "POST",
    "/v2/flowControl/{flow_key:path}/pause",
    "pauseFlowControlKey",
    errors=(412,),
)
async def _pause(queue: Queue, request: Request, _: Query) -> Response:
    """Start no more deliveries of a key; deliveries in progress continue."""
    return await _configured(queue, request, paused=True)


@flow_control_operations(
    "POST",
    "/v2/flowControl/{flow_key:path}/resume",
    "resumeFlowControlKey",
    errors=(412,),
)
async def _resume(queue: Queue, request: Request, _: Query) -> Response:
    """Deliver the messages of a key again."""
    return await _configured(queue, request, paused=False)


@flow_control_operations(
    "POST",
    "/v2/flowControl/{flow_key:path}/pin",
    "pinFlowControlKey",
    errors=(412,),
    query=PinQuery,
)
async def _pin(queue: Queue, request: Request, query: PinQuery) -> Response:
    """Replace limits of a key, also for messages to come."""
    pinned: dict[str, int] = {}
    if query.parallelism is not None:
        pinned["parallelism"] = query.parallelism
    if query.rate is not None:
        pinned["rate"] = query.rate
        pinned["period_ms"] = (query.period or 1) * 1000
    elif query.period is not None and pinned:
        raise invalid("period has no rate", "period alone", "a rate as well")

    if not pinned:
        got = "neither parallelism nor rate"
        raise invalid("nothing is pinned", got, "one of them; period belongs to a rate")

    return await _configured(queue, request, **pinned)


@flow_control_operations(
    "POST",
    "/v2/flowControl/{flow_key:path}/unpin",
    "unpinFlowControlKey",
    errors=(412,),
    query=UnpinQuery,
)
async def _unpin(queue: Queue, request: Request, query: UnpinQuery) -> Response:
    """Let messages determine the limits of a key again."""
    unpinned: list[str] = []
    if query.parallelism == "true":
        unpinned.append("parallelism")
    if query.rate == "true":
        unpinned += ["rate", "period_ms"]
    if not unpinned:
        raise invalid(
            "nothing is unpinned",
            "neither parallelism=true nor rate=true",
            "one of them",
        )

    return await _configured(queue, request, **dict.fromkeys(unpinned))


@flow_control_operations(
    "POST", "/v2/flowControl/{flow_key:path}/resetRate", "resetRate"
)
async def _reset_rate(queue: Queue, request: Request, _: Query) -> Response:
    """Begin a new rate period of a key."""
    key = _checked_key(request)
    # messages that are due now belong to the period that ends
    await queue.start_due()
    queue.flow.reset_rate(key)
    await queue.write(QueueWrite.execute, "DELETE FROM rates WHERE flow_key = ?", key)

    return Response()


@flow_control_operations(
    "GET", "/v2/globalParallelism", "globalParallelism", GlobalParallelism
)
async def _global(queue: Queue, _: Request, __: Query) -> Response:
    """Return the largest and the current number of concurrent deliveries, with and without a key."""
    return JSONResponse(
        {"parallelismMax": queue.concurrency, "parallelismCount": queue.in_progress}
    )


async def _configured(
    queue: Queue, request: Request, **changed: bool | int | None
) -> Response:
    key = _checked_key(request)
    settings = await queue.store.write(_store, key, changed)
    queue.flow.configure(key, settings)
    queue.wake()

    return Response()


def _checked_key(request: Request) -> str:
    key: str = request.path_params["flow_key"]
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise invalid(
            "flow-control key is not usable",
            f"{len(key)} characters",
            f"1 to {_LONGEST_KEY}",
        )

    return key


def _store(
    tx: QueueWrite, key: str, changed: dict[str, bool | int | None]
) -> KeySettings:
    settings = replace(stored_settings(tx).get(key, NO_SETTINGS), **changed)
    tx.execute("DELETE FROM flow_keys WHERE flow_key = ?", key)
    if settings != NO_SETTINGS:
        tx.insert("flow_keys", flow_key=key, **msgspec.structs.asdict(settings))
        tx.check_count("flow_keys", MAX_KEYS, "keys have settings")

    return settings


def _shown(
    tx: QueueWrite, queue: Queue, wanted: str | None = None
) -> list[FlowControlKey]:
    """Return the wanted key, or all keys, as listings show them."""
    settings = stored_settings(tx)
    waiting = _waiting(tx, wanted)
    counted = {
        key
        for (key,) in tx.rows("SELECT flow_key FROM rates WHERE until > ?", tx.now_ms)
    }
    keys = {*waiting, *counted, *settings}
    if wanted is not None:
        keys &= {wanted}
    return [
        _shown_key(tx, queue, key, settings.get(key, NO_SETTINGS), waiting.get(key))
        for key in sorted(keys)
    ]


def _waiting(tx: QueueWrite, wanted: str | None) -> dict[str, sqlite3.Row]:
    """Return the message accepted last and the number of due messages, per key."""
    # the message accepted last has the highest seq: with max(seq), SQLite takes `spec` from that row
    rows = tx.rows(
        "SELECT flow_key, max(seq), spec, sum(due_at <= ?1) AS due FROM messages "
        "WHERE flow_key IS NOT NULL AND (?2 IS NULL OR flow_key = ?2) GROUP BY flow_key",
        *(tx.now_ms, wanted),
    )
    return {row["flow_key"]: row for row in rows}


def _shown_key(
    tx: QueueWrite,
    queue: Queue,
    key: str,
    settings: KeySettings,
    waiting: sqlite3.Row | None,
) -> FlowControlKey:
    use = queue.flow.use_of(key)
    message_limits = use.limits
    due_messages = 0
    if waiting is not None:
        due_messages = waiting["due"]
        message_limits = message_limits or decode_message(waiting["spec"]).settings.flow

    limits = settings.applied_to(message_limits) or NO_LIMITS

    counted_until = [time for time in use.counting if time > tx.now_ms]
    period_start = 0
    if counted_until:
        period_start = counted_until[0] - round(limits.period_ms / tx.factor)
    return {
        "flowControlKey": key,
        "waitListSize": max(0, due_messages - use.running),
        "parallelismMax": limits.parallelism or 0,
        "parallelismCount": use.running,
        "rateMax": limits.rate or 0,
        "rateCount": len(counted_until),
        "ratePeriod": limits.period_ms // 1000,
        "ratePeriodStart": period_start,
        "isPaused": settings.paused,
        "isPinnedParallelism": settings.parallelism is not None,
        "isPinnedRate": settings.rate is not None,
    }
