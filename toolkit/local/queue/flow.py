"""Flow control by key: how many deliveries at once, and how many a period."""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterable

from toolkit.local.queue.message import Flow, Message


class FlowControl:
    """Decides which keys may deliver now.

    The limits of a key are those of the message last admitted under it. What counts against a rate is kept in
    the database by who starts the delivery, and handed to `restore` after a restart; what was under way then
    is under way no more, so that parallelism begins at nothing.

    Parameters
    ----------
    factor : float
        The time factor; divides periods, as it divides waits.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._limits: dict[str, Flow] = {}
        self._running: defaultdict[str, int] = defaultdict(int)
        self._counting: defaultdict[str, deque[int]] = defaultdict(deque)  # until when, earliest first

    def restore(self, counting: Iterable[tuple[str, int]]) -> None:
        """Count deliveries that were started before, each until its moment; earliest first."""
        for key, until in counting:
            self._counting[key].append(until)

    def blocked(self, now_ms: int) -> list[str]:
        """The keys at their limit."""
        found = [key for key, limit in self._limits.items() if not self._has_room(key, limit, now_ms)]
        for key in [key for key in self._limits if not self._running[key] and not self._counting[key]]:
            for table in (self._running, self._counting, self._limits):
                table.pop(key, None)
        return found

    def admit(self, message: Message, now_ms: int) -> bool:
        """Count a delivery as started, when its key has room."""
        key, limit = message.settings.flow_key, limits_of(message)
        if key is None or limit is None:
            return True
        self._limits[key] = limit
        if not self._has_room(key, limit, now_ms):
            return False
        self._running[key] += 1
        if limit.rate:
            self._counting[key].append(self.counts_until(limit, now_ms))
        return True

    def release(self, message: Message) -> None:
        """Count an admitted delivery as ended."""
        key = message.settings.flow_key
        if key is not None and limits_of(message) is not None:
            self._running[key] -= 1

    def next_release(self, now_ms: int) -> int | None:
        """When the first of the keys at their rate has room again."""
        moments = [
            self._counting[key][0]
            for key, limit in self._limits.items()
            if limit.rate and len(self._counting[key]) >= limit.rate
        ]
        return max(now_ms, min(moments)) if moments else None

    def counts_until(self, limit: Flow, now_ms: int) -> int:
        """Until when a delivery that starts now counts against the rate."""
        return now_ms + max(1, round(limit.period_ms / self._factor))

    def _has_room(self, key: str, limit: Flow, now_ms: int) -> bool:
        counting = self._counting[key]
        while counting and counting[0] <= now_ms:
            counting.popleft()
        if limit.rate and len(counting) >= limit.rate:
            return False
        return limit.parallelism is None or self._running[key] < limit.parallelism


def limits_of(message: Message) -> Flow | None:
    """The limits under which a message is delivered; one that only waits for an event is not delivered."""
    return None if message.kind == "wait" else message.settings.flow


def write_down(connection: sqlite3.Connection, message: Message, until_ms: int) -> None:
    """Keep that a delivery counts against the rate of its key."""
    connection.execute("INSERT INTO rates VALUES (?, ?)", (message.settings.flow_key, until_ms))


def counting(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Key and moment of all deliveries that may still count against a rate, earliest moment first."""
    rows = connection.execute("SELECT flow_key, until FROM rates ORDER BY until")
    return [(row["flow_key"], row["until"]) for row in rows]


def expire(connection: sqlite3.Connection, now_ms: int) -> None:
    """Forget what counts no more."""
    connection.execute("DELETE FROM rates WHERE until <= ?", (now_ms,))
