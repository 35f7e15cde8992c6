"""Flow control: limits that messages of one key share.

For example, with the key ``mail`` and ``parallelism=2, rate=10, period=1m``, at most two messages of that key
are delivered at once, and at most ten start per minute.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.messages import FlowLimits, Message

NO_LIMITS: Final = FlowLimits()


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
        message_limits = limits or NO_LIMITS
        return replace(message_limits, **pinned)


NO_SETTINGS: Final = KeySettings()


class KeyUse(msgspec.Struct):
    """The state of a key: settings, the limits of the message admitted last, and deliveries."""

    settings: KeySettings = NO_SETTINGS
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
        rate = (self.limits or NO_LIMITS).rate
        return rate is not None and len(self.counting) >= rate

    @property
    def is_at_parallelism(self) -> bool:
        """Return True if as many deliveries are in progress as the parallelism allows."""
        parallelism = (self.limits or NO_LIMITS).parallelism
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
        if use.settings == NO_SETTINGS:
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
