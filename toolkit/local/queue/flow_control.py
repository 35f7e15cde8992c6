"""Flow control: limits that messages of one key share, and what pauses keys and pins their limits."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypedDict

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolkit.local.api import invalid
from toolkit.local.operations import Query, read_query
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.listing import QueueOperations, not_found
from toolkit.local.queue.messages import FlowLimits, Message, decode_message
from toolkit.times import DAY_MS

if TYPE_CHECKING:
    from toolkit.local.queue.scheduler import Queue

MAX_LIMIT: Final = 999_999_999
MAX_KEYS: Final = 1000
"""Most keys that are paused or pinned."""
_LONGEST_KEY: Final = 1024
_ACTIONS: Final = (b"pause", b"resume", b"pin", b"unpin", b"resetRate")


class KeySettings(msgspec.Struct, frozen=True):
    """What was set for a key: a pause, and limits that replace those of its messages."""

    paused: bool = False
    parallelism: int | None = None
    rate: int | None = None
    period_ms: int | None = None

    def applied_to(self, limits: FlowLimits | None) -> FlowLimits | None:
        """The limits of a message under these settings."""
        if self.parallelism is None and self.rate is None:
            return limits
        limits = limits or FlowLimits()
        if self.parallelism is not None:
            limits = replace(limits, parallelism=self.parallelism)
        if self.rate is not None:
            limits = replace(limits, rate=self.rate, period_ms=self.period_ms or 1000)
        return limits


class KeyUse(msgspec.Struct):
    """What is known of a key: its settings, the limits of the message admitted last, and its deliveries."""

    settings: KeySettings = KeySettings()
    limits: FlowLimits | None = None
    running: int = 0
    counting: deque[int] = msgspec.field(default_factory=deque)  # until when, earliest first
    resets: int = 0

    def is_free(self, now_ms: int) -> bool:
        """Whether its limits allow another delivery."""
        while self.counting and self.counting[0] <= now_ms:
            self.counting.popleft()
        most = self.limits or FlowLimits()
        if most.rate and len(self.counting) >= most.rate:
            return False
        return most.parallelism is None or self.running < most.parallelism


class FlowControl:
    """Decides which flow-control keys may deliver now, by concurrency and by rate.

    The limits of a key are those of the message last admitted under it, unless they are pinned. After a
    restart, deliveries counted by rates are restored, and parallelism begins at 0.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._keys: defaultdict[str, KeyUse] = defaultdict(KeyUse)

    def restore(self, counting: Iterable[tuple[str, int]], settings: dict[str, KeySettings]) -> None:
        """Count deliveries that were started before the restart, each until its time; earliest first."""
        for key, until in counting:
            self._keys[key].counting.append(until)
        for key, stored in settings.items():
            self._keys[key].settings = stored

    def configure(self, key: str, settings: KeySettings) -> None:
        """Replace the settings of a key."""
        use = self._keys[key]
        use.settings, use.limits = settings, None  # limits: those of the next message, under the new settings

    def reset_rate(self, key: str) -> None:
        """Forget the deliveries that count against the rate of a key."""
        self._keys[key].counting.clear()
        self._keys[key].resets += 1

    def use_of(self, key: str | None) -> KeyUse:
        """What is known of a key."""
        return self._keys.get(key or "", KeyUse())

    def resets(self, message: Message) -> int:
        """How often the rate of its key was reset: a delivery from before the last reset no longer counts."""
        return self.use_of(_key_of(message)).resets

    def blocked(self, now_ms: int) -> list[str]:
        """The keys that are paused or at their limit."""
        blocked = []
        for key, use in list(self._keys.items()):
            if use.settings.paused or not use.is_free(now_ms):
                blocked.append(key)
            if not use.running and not use.counting:
                use.limits = None
                if use.settings == KeySettings():
                    del self._keys[key]
        return blocked

    def admit(self, message: Message, now_ms: int) -> bool:
        """Count a delivery as started, when its key is free."""
        key, limits = _key_of(message), self._limits_of(message)
        if key is None:
            return True
        use = self._keys[key]
        if use.settings.paused:
            return False
        use.limits = limits or use.limits
        if limits and not use.is_free(now_ms):
            return False
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
        """When the first of the keys at their rate may deliver again."""
        times = [
            use.counting[0]
            for use in self._keys.values()
            if use.limits and use.limits.rate and len(use.counting) >= use.limits.rate
        ]
        return max(now_ms, min(times)) if times else None

    def counts_until(self, message: Message, now_ms: int) -> int | None:
        """Until when a delivery that starts now counts against the rate of its key, if that has one."""
        limits = self._limits_of(message)
        return now_ms + max(1, round(limits.period_ms / self._factor)) if limits and limits.rate else None

    def _limits_of(self, message: Message) -> FlowLimits | None:
        key = _key_of(message)
        return None if key is None else self.use_of(key).settings.applied_to(message.settings.flow)


def _key_of(message: Message) -> str | None:
    """The key of a message; one that only waits for an event is not delivered, and has none."""
    return None if message.kind == "wait" else message.settings.flow_key


def counting(tx: QueueWrite) -> list[tuple[str, int]]:
    """Key and time of all deliveries that still count against a rate, earliest time first."""
    return [tuple(row) for row in tx.rows("SELECT flow_key, until FROM rates ORDER BY until")]


def stored_settings(tx: QueueWrite) -> dict[str, KeySettings]:
    """The settings of all keys that have some."""
    rows = tx.rows("SELECT flow_key, paused, parallelism, rate, period_ms FROM flow_keys")
    return {row["flow_key"]: KeySettings(bool(row["paused"]), *tuple(row)[2:]) for row in rows}


class FlowControlKey(TypedDict):
    """A key: its limits (0: none), and how much of them is used. The start of its period is in Unix ms."""

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
    """How many deliveries there may be at once, and how many there are."""

    parallelismMax: int
    parallelismCount: int


Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
Flag = Annotated[Literal["true", "false"], Meta(description="Whether this one (false).")]


class PinQuery(Query):
    """The limits of a key, whatever its messages say."""

    parallelism: Limit | None = None
    rate: Limit | None = None
    period: Annotated[int, Meta(ge=1, le=7 * DAY_MS // 1000, description="Seconds (1).")] | None = None


class UnpinQuery(Query):
    """The limits of a key that its messages give again."""

    parallelism: Flag = "false"
    rate: Flag = "false"


flow_control_operations: Final = QueueOperations()
"""The operations below ``/v2/flowControl``, and on the parallelism of all deliveries."""


@flow_control_operations("GET", "/v2/flowControl", "flowControlKeys", list[FlowControlKey])
async def _list(queue: Queue, _: Request, __: Query) -> Response:
    """The keys that have messages, counted deliveries or settings."""
    return JSONResponse(await queue.store.read(_shown, queue))


@flow_control_operations(
    "GET", "/v2/flowControl/{flow_key:path}", "flowControlKey", FlowControlKey, query=None, errors=(404,)
)
async def _one(queue: Queue, request: Request, _: None) -> Response:
    """A key."""
    if request.scope["raw_path"].removeprefix(b"/v2/flowControl/").partition(b"/")[2] in _ACTIONS:
        raise HTTPException(405)  # the paths of the operations below have no GET
    read_query(request, Query)
    key = request.path_params["flow_key"]
    keys = await queue.store.read(_shown, queue, key)
    if not keys:
        raise not_found("flow-control key", key, "one that has messages, counted deliveries or settings")
    return JSONResponse(keys[0])


@flow_control_operations(
    "POST", "/v2/flowControl/{flow_key:path}/pause", "pauseFlowControlKey", errors=(412,)
)
async def _pause(queue: Queue, request: Request, _: Query) -> Response:
    """Start no more deliveries of a key; those in progress end."""
    return await _configured(queue, request, paused=True)


@flow_control_operations(
    "POST", "/v2/flowControl/{flow_key:path}/resume", "resumeFlowControlKey", errors=(412,)
)
async def _resume(queue: Queue, request: Request, _: Query) -> Response:
    """Deliver the messages of a key again."""
    return await _configured(queue, request, paused=False)


@flow_control_operations(
    "POST", "/v2/flowControl/{flow_key:path}/pin", "pinFlowControlKey", errors=(412,), query=PinQuery
)
async def _pin(queue: Queue, request: Request, query: PinQuery) -> Response:
    """Replace limits of a key, also those of messages to come."""
    if query.parallelism is None and query.rate is None:
        raise invalid(
            "nothing is pinned", "neither parallelism nor rate", "one of them; period is of the rate"
        )
    if query.period is not None and query.rate is None:
        raise invalid("period has no rate", "period alone", "a rate as well")
    pinned = {} if query.parallelism is None else {"parallelism": query.parallelism}
    if query.rate is not None:
        pinned |= {"rate": query.rate, "period_ms": (query.period or 1) * 1000}
    return await _configured(queue, request, **pinned)


@flow_control_operations(
    "POST", "/v2/flowControl/{flow_key:path}/unpin", "unpinFlowControlKey", errors=(412,), query=UnpinQuery
)
async def _unpin(queue: Queue, request: Request, query: UnpinQuery) -> Response:
    """Let messages give the limits of a key again."""
    if query.parallelism == query.rate == "false":
        raise invalid("nothing is unpinned", "neither parallelism=true nor rate=true", "one of them")
    names = ["parallelism"] * (query.parallelism == "true") + ["rate", "period_ms"] * (query.rate == "true")
    return await _configured(queue, request, **dict.fromkeys(names))


@flow_control_operations("POST", "/v2/flowControl/{flow_key:path}/resetRate", "resetRate")
async def _reset_rate(queue: Queue, request: Request, _: Query) -> Response:
    """Begin a new period of a key's rate."""
    key = _checked_key(request)
    await queue.start_due()  # what is due by now belongs to the period that ends
    queue.flow.reset_rate(key)
    await queue.write(QueueWrite.execute, "DELETE FROM rates WHERE flow_key = ?", key)
    return Response()


@flow_control_operations("GET", "/v2/globalParallelism", "globalParallelism", GlobalParallelism)
async def _global(queue: Queue, _: Request, __: Query) -> Response:
    """How many deliveries there may be at once, of all keys and without one."""
    return JSONResponse({"parallelismMax": queue.concurrency, "parallelismCount": queue.in_progress})


async def _configured(queue: Queue, request: Request, **changed: bool | int | None) -> Response:
    key = _checked_key(request)
    settings = await queue.store.write(_store, key, changed)
    queue.flow.configure(key, settings)
    queue.wake()
    return Response()


def _checked_key(request: Request) -> str:
    key: str = request.path_params["flow_key"]
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise invalid("flow-control key is not usable", f"{len(key)} characters", f"1 to {_LONGEST_KEY}")
    return key


def _store(tx: QueueWrite, key: str, changed: dict[str, bool | int | None]) -> KeySettings:
    settings = replace(stored_settings(tx).get(key, KeySettings()), **changed)
    tx.execute("DELETE FROM flow_keys WHERE flow_key = ?", key)
    if settings != KeySettings():
        tx.insert("flow_keys", flow_key=key, **msgspec.structs.asdict(settings))
        tx.check_count("flow_keys", MAX_KEYS, "keys have settings")
    return settings


def _shown(tx: QueueWrite, queue: Queue, wanted: str | None = None) -> list[FlowControlKey]:
    settings = stored_settings(tx)
    # the message accepted last has the highest number, and with it SQLite takes its other columns
    latest = {
        row["flow_key"]: row
        for row in tx.rows(
            "SELECT flow_key, max(seq), spec, sum(due_at <= ?1) AS due FROM messages "
            "WHERE flow_key IS NOT NULL AND (?2 IS NULL OR flow_key = ?2) GROUP BY flow_key",
            *(tx.now_ms, wanted),
        )
    }
    counted = {row[0] for row in tx.rows("SELECT flow_key FROM rates WHERE until > ?", tx.now_ms)}
    known = {*latest, *counted, *settings}
    shown: list[FlowControlKey] = []
    for key in sorted(known if wanted is None else known & {wanted}):
        row, given = latest.get(key), settings.get(key, KeySettings())
        use = queue.flow.use_of(key)
        last = use.limits or (decode_message(row["spec"]).settings.flow if row else None)
        limits = given.applied_to(last) or FlowLimits()
        until = [time for time in use.counting if time > tx.now_ms]
        start = until[0] - round(limits.period_ms / tx.factor) if until else 0
        shown.append(
            {
                "flowControlKey": key,
                "waitListSize": max(0, (row["due"] if row else 0) - use.running),
                "parallelismMax": limits.parallelism or 0,
                "parallelismCount": use.running,
                "rateMax": limits.rate or 0,
                "rateCount": len(until),
                "ratePeriod": limits.period_ms // 1000,
                "ratePeriodStart": start,
                "isPaused": given.paused,
                "isPinnedParallelism": given.parallelism is not None,
                "isPinnedRate": given.rate is not None,
            }
        )
    return shown
