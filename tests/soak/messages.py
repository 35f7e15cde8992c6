"""What a soak publishes: seeded messages whose bodies tell the destination how to respond."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass, field

RETRIES = 5
"""Of messages that are to arrive: more than they are made to fail, so that a broken connection is no end."""
GIVEN_UP_AFTER = 1
"""Retries of messages that fail always."""


@dataclass(frozen=True)
class Planned:
    """One message: how often it fails, and who is told of it."""

    number: int
    body: bytes
    fails: int | None
    callback: bool
    failure_callback: bool
    delayed: bool

    @property
    def digest(self) -> str:
        """The SHA-256 of its body."""
        return hashlib.sha256(self.body).hexdigest()

    def headers(self, destination: str) -> dict[str, str]:
        """The headers of its publish."""
        given = {
            "Service-Deduplication-Id": f"soak {self.number}",
            "Service-Retries": str(GIVEN_UP_AFTER if self.fails is None else RETRIES),
            "Service-Callback-Retries": str(RETRIES),
            "Service-Failure-Callback-Retries": str(RETRIES),
        }
        given |= (
            {"Service-Callback": f"{destination}/callback"} if self.callback else {}
        )
        given |= (
            {"Service-Failure-Callback": f"{destination}/failure"}
            if self.failure_callback
            else {}
        )
        return given | ({"Service-Delay": "30m"} if self.delayed else {})


@dataclass
class Planner:
    """Makes messages. The same seed makes the same ones; numbers are used once.

    Parameters
    ----------
    seed : int
    """

    seed: int
    _next: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"messages {self.seed}")

    def call(self) -> list[Planned]:
        """The messages of the next call: one, or a batch."""
        size = 1 if self._random.random() < 0.7 else self._random.randint(2, 10)
        return [self._message(text=size > 1) for _ in range(size)]

    def _message(self, *, text: bool) -> Planned:
        chance, number = self._random.random, self._next
        self._next += 1
        kind = chance()
        fails = 0 if kind < 0.7 else self._random.randint(1, 2) if kind < 0.85 else None
        told = {
            "n": number,
            "fails": fails,
            "drops": chance() < 0.3,
            "takes": round(chance() * 0.05, 4) if chance() < 0.3 else 0,
        }
        rest = self._random.randbytes(self._random.choice((0, 30, 300, 3000)))
        if text:  # a batch carries text alone
            rest = rest.hex().encode()
        return Planned(
            number=number,
            body=json.dumps(told).encode() + b"\n" + rest,
            fails=fails,
            callback=chance() < 0.2,
            failure_callback=fails is None and chance() < 0.5,
            delayed=chance() < 0.1,
        )
