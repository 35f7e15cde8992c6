"""Flow control: limits that messages of one key share, and operations that pause keys and pin limits.

For example, with the key ``mail`` and ``parallelism=2, rate=10, period=1m``, at most two messages of that key
are delivered at once, and at most ten start per minute.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterable
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
from toolkit_service.queue.listing import QueueOperations, not_found
from toolkit_service.queue.messages import FlowLimits, Message, decode_message

if TYPE_CHECKING:
    from toolkit_service.queue.scheduler import Queue

MAX_LIMIT: Final = 999_999_999
MAX_KEYS: Final = 1000
"""Largest number of keys that can be paused or pinned at once."""
_LONGEST_KEY: Final = 1024
_ACTIONS: Final = (b"pause", b"resume", b"pin", b"unpin", b"resetRate")


_NO_LIMITS: Final = FlowLimits()


class KeySettings(msgspec.Struct, frozen=True):
    """The settings of a key: a pause, and limits that replace the limits of the messages."""

    paused: bool = False
    parallelism: int | None = None
    rate: int | None = None
    period_ms: int | None = None

    def applied_to(self, limits: FlowLimits | None) -> FlowLimits | None:
        """Return the limits of a message under these settings."""
        pinned: dict[str, int] = {}
        if self.parallelism is not None:
            pinned["parallelism"] = self.parallelism
        if self.rate is not None:
            pinned["rate"] = self.rate
            pinned["period_ms"] = self.period_ms or 1000
        if not pinned:
            return limits
        # limits that are not pinned stay as the message has them
        message_limits = limits or _NO_LIMITS
        return replace(message_limits, **pinned)


_NO_SETTINGS: Final = KeySettings()


class KeyUse(msgspec.Struct):
    """The state of a key: settings, the limits of the message admitted last, and deliveries."""

    settings: KeySettings = _NO_SETTINGS
    limits: FlowLimits | None = None
    running: int = 0
    # the times when deliveries stop counting
    counting: deque[int] = msgspec.field(default_factory=deque)
    resets: int = 0

    def is_free(self, now_ms: int) -> bool:
        """Return True if the limits allow another delivery."""
        # a sliding window: each delivery counts for one period after the start
        while self.counting and self.counting[0] <= now_ms:
            self.counting.popleft()
        return not self.is_at_rate and not self.is_at_parallelism

    @property
    def is_at_rate(self) -> bool:
        """Return True if as many deliveries count as the rate allows."""
        rate = (self.limits or _NO_LIMITS).rate
        return rate is not None and len(self.counting) >= rate

    @property
    def is_at_parallelism(self) -> bool:
        """Return True if as many deliveries are in progress as the parallelism allows."""
        parallelism = (self.limits or _NO_LIMITS).parallelism
        return parallelism is not None and self.running >= parallelism

    @property
    def is_idle(self) -> bool:
        """Return True if no delivery is in progress or counts against the rate."""
        return not self.running and not self.counting


class FlowControl:
    """Decides which flow-control keys may deliver now, by concurrency and by rate.

    The limits of a key are the limits of the message admitted last, unless they are pinned. After a restart,
    deliveries that count against a rate are restored, and parallelism begins at 0.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._keys: defaultdict[str, KeyUse] = defaultdict(KeyUse)

    def restore(
        self, counting: Iterable[tuple[str, int]], settings: dict[str, KeySettings]
    ) -> None:
        """Count deliveries that started before the restart, each until a time; the earliest time is first."""
        for key, until in counting:
            self._keys[key].counting.append(until)
        for key, stored in settings.items():
            self._keys[key].settings = stored

    def configure(self, key: str, settings: KeySettings) -> None:
        """Replace the settings of a key."""
        use = self._keys[key]
        use.settings = settings
        # unknown until the next message is admitted under the new settings
        use.limits = None

    def reset_rate(self, key: str) -> None:
        """Forget the deliveries that count against the rate of a key."""
        self._keys[key].counting.clear()
        self._keys[key].resets += 1

    def use_of(self, key: str | None) -> KeyUse:
        """Return the state of a key."""
        return self._keys.get(key or "", KeyUse())

    def resets(self, message: Message) -> int:
        """Return how often the rate of the key of a message was reset.

        A delivery that began before the last reset no longer counts.
        """
        return self.use_of(_key_of(message)).resets

    def blocked(self, now_ms: int) -> list[str]:
        """Return the keys that are paused or at a limit, and forget the keys that are no longer needed."""
        blocked = []
        for key, use in list(self._keys.items()):
            is_free = use.is_free(now_ms)
            if use.settings.paused or not is_free:
                blocked.append(key)
            if use.is_idle:
                self._forget(key)
        return blocked

    def _forget(self, key: str) -> None:
        """Forget the limits of an idle key, and the key itself unless it has settings."""
        use = self._keys[key]
        # the next message brings limits again
        use.limits = None
        if use.settings == _NO_SETTINGS:
            del self._keys[key]

    def admit(self, message: Message, now_ms: int) -> bool:
        """Count a delivery as started if the key is free. Return False if it is not."""
        key = _key_of(message)
        if key is None:
            return True
        use = self._keys[key]
        if use.settings.paused:
            return False
        limits = self._limits_of(message)
        if limits:
            use.limits = limits
            if not use.is_free(now_ms):
                return False

        # now the delivery counts against both limits, until it ends and until the period is over
        until = self.counts_until(message, now_ms)
        if until is not None:
            use.counting.append(until)
        use.running += 1
        return True

    def release(self, message: Message) -> None:
        """Count an admitted delivery as ended."""
        key = _key_of(message)
        if key is not None:
            self._keys[key].running -= 1

    def next_release(self, now_ms: int) -> int | None:
        """Return the earliest time when a key that has reached the rate may deliver again."""
        times = [use.counting[0] for use in self._keys.values() if use.is_at_rate]
        return max(now_ms, min(times)) if times else None

    def counts_until(self, message: Message, now_ms: int) -> int | None:
        """Return the time until which a delivery that starts now counts against the rate.

        Return None if the key of the message has no rate.
        """
        limits = self._limits_of(message)
        if limits is None or not limits.rate:
            return None
        period_ms = round(limits.period_ms / self._factor)
        return now_ms + max(1, period_ms)

    def _limits_of(self, message: Message) -> FlowLimits | None:
        key = _key_of(message)
        if key is None:
            return None
        return self.use_of(key).settings.applied_to(message.settings.flow)


def _key_of(message: Message) -> str | None:
    """Return the key of a message. A message that only waits for an event is not delivered: it has none."""
    return None if message.kind == "wait" else message.settings.flow_key


def counting(tx: QueueWrite) -> list[tuple[str, int]]:
    """Return key and time of all deliveries that count against a rate, the earliest time first."""
    return [
        tuple(row)
        for row in tx.rows("SELECT flow_key, until FROM rates ORDER BY until")
    ]


def stored_settings(tx: QueueWrite) -> dict[str, KeySettings]:
    """Return the settings of all keys that have some."""
    settings = {}
    for key, paused, *limits in tx.rows(
        "SELECT flow_key, paused, parallelism, rate, period_ms FROM flow_keys"
    ):
        settings[key] = KeySettings(bool(paused), *limits)
    return settings


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
    settings = replace(stored_settings(tx).get(key, _NO_SETTINGS), **changed)
    tx.execute("DELETE FROM flow_keys WHERE flow_key = ?", key)
    if settings != _NO_SETTINGS:
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
        _shown_key(tx, queue, key, settings.get(key, _NO_SETTINGS), waiting.get(key))
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
    limits = settings.applied_to(message_limits) or _NO_LIMITS

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
