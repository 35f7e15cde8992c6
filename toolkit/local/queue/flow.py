"""Flow control by key: how many deliveries at once, and how many a period."""

from __future__ import annotations

from collections import defaultdict, deque

from toolkit.local.queue.message import Flow, Message


class FlowControl:
    """Decides which keys may deliver now.

    The limits of a key are those of the message last admitted under it. Counts are kept in memory: after a
    restart a period begins anew.

    Parameters
    ----------
    factor : float
        The time factor; divides periods, as it divides waits.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._limits: dict[str, Flow] = {}
        self._running: defaultdict[str, int] = defaultdict(int)
        self._started: defaultdict[str, deque[int]] = defaultdict(deque)

    def blocked(self, now_ms: int) -> list[str]:
        """The keys at their limit."""
        found = [key for key, limit in self._limits.items() if not self._has_room(key, limit, now_ms)]
        for key in [key for key in self._limits if not self._running[key] and not self._started[key]]:
            for table in (self._running, self._started, self._limits):
                table.pop(key, None)
        return found

    def admit(self, message: Message, now_ms: int) -> bool:
        """Count a delivery as started, when its key has room."""
        key, limit = message.settings.flow_key, message.settings.flow
        if key is None or limit is None:
            return True
        self._limits[key] = limit
        if not self._has_room(key, limit, now_ms):
            return False
        self._running[key] += 1
        if limit.rate:
            self._started[key].append(now_ms)
        return True

    def release(self, message: Message) -> None:
        """Count an admitted delivery as ended."""
        key = message.settings.flow_key
        if key is None or message.settings.flow is None:
            return
        self._running[key] -= 1

    def next_release(self, now_ms: int) -> int | None:
        """When the first of the keys at their rate has room again."""
        moments = [
            self._started[key][0] + self._period(limit)
            for key, limit in self._limits.items()
            if limit.rate and len(self._started[key]) >= limit.rate
        ]
        return max(now_ms, min(moments)) if moments else None

    def _has_room(self, key: str, limit: Flow, now_ms: int) -> bool:
        started = self._started[key]
        while started and started[0] + self._period(limit) <= now_ms:
            started.popleft()
        if limit.rate and len(started) >= limit.rate:
            return False
        return limit.parallelism is None or self._running[key] < limit.parallelism

    def _period(self, limit: Flow) -> int:
        return max(1, round(limit.period_ms / self._factor))
