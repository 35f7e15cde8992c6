"""Servers of pre-rendered rows in a process of their own: what is measured is the reader, not the service.

Both respond after a latency, and enforce a rate limit as the service does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import socket
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from multiprocessing.connection import Connection
from random import Random
from typing import Any
from urllib.parse import parse_qsl

from protocol import Http, Send

Parts = tuple[bytes | memoryview, ...]
Respond = Callable[[str, dict[str, str], bytes], Parts]
"""From path, query and body to the JSON of a response."""

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@dataclass(frozen=True)
class Listing:
    """A DLQ: entries newest first, in pages behind a cursor, and between two times where requested.

    Attributes
    ----------
    timestamps : sequence of int
        ``createdAt`` of each entry in Unix milliseconds, falling.
    entries : sequence of bytes
        JSON of each.
    """

    timestamps: Sequence[int]
    entries: Sequence[bytes]

    def responding(self) -> Respond:
        """The function that makes the body of a response."""
        rising = [-timestamp for timestamp in self.timestamps]
        between = _joined(self.entries)

        def respond(_: str, query: dict[str, str], __: bytes) -> Parts:
            first = (
                bisect_left(rising, -int(query["toDate"])) if "toDate" in query else 0
            )
            last = (
                bisect_left(rising, -int(query["fromDate"]) + 1)
                if "fromDate" in query
                else len(rising)
            )
            start = int(query["cursor"][1:]) if query.get("cursor") else first
            end = min(last, start + int(query.get("count", 100)))
            after = f"c{end}" if end < last else ""
            return (
                b'{"messages": [',
                between(start, end),
                b'], "cursor": "%s"}' % after.encode(),
            )

        return respond


@dataclass(frozen=True)
class Endless:
    """A DLQ of any length: entries of a sample under ids and times of their own, rendered when requested.

    Attributes
    ----------
    rows : int
    end, step : int
        ``createdAt`` of the newest entry, and the milliseconds between two.
    sample : sequence of dict
        Entries as the service sends them.
    """

    rows: int
    end: int
    step: int
    sample: Sequence[dict[str, Any]]

    def responding(self) -> Respond:
        """The function that makes the body of a response."""
        own = {"dlqId", "createdAt", "workflowCreatedAt"}
        rest = [
            json.dumps({k: v for k, v in entry.items() if k not in own}).encode()
            for entry in self.sample
        ]

        def entry(number: int) -> bytes:
            at = self.end - number * self.step
            head = b'{"dlqId": "dlq_%010d", "createdAt": %d, "workflowCreatedAt": %d, '
            return head % (number, at, at - 1000) + rest[number % len(rest)][1:]

        def respond(_: str, query: dict[str, str], __: bytes) -> Parts:
            first = (
                max(0, -((int(query["toDate"]) - self.end) // self.step))
                if "toDate" in query
                else 0
            )
            last = (
                (self.end - int(query["fromDate"])) // self.step + 1
                if "fromDate" in query
                else self.rows
            )
            last = min(last, self.rows)
            start = int(query["cursor"][1:]) if query.get("cursor") else first
            end = max(start, min(last, start + int(query.get("count", 100))))
            after = b"c%d" % end if end < last else b""
            return (
                b'{"messages": [',
                b", ".join(map(entry, range(start, end))),
                b'], "cursor": "%s"}' % after,
            )

        return respond


@dataclass(frozen=True)
class Range:
    """An index: rows made from a few blocks of numbers under ids of their own, with metadata and text.

    Attributes
    ----------
    rows, dimension : int
    blocks : int
        Distinct vectors; they come again and again, as making numbers is slow and reading them is the same.
    """

    rows: int
    dimension: int = 768
    blocks: int = 200
    seed: int = 920202

    def row(self, number: int, vectors: Sequence[str]) -> bytes:
        """The JSON of a row."""
        text = (
            f"Paragraph {number} of the handbook says what to do when a workflow has failed. "
            * 3
        )
        meta = f'{{"source": "handbook", "page": {number}, "tags": ["a", "b"], "weight": {number / 7:.6f}}}'
        return (
            f'{{"id": "row-{number:07d}", "vector": {vectors[number % len(vectors)]}, '
            f'"metadata": {meta}, "data": "{text}"}}'
        ).encode()

    def responding(self) -> Respond:
        """The function that makes the body of a response."""
        random = Random(self.seed)
        vectors = [
            "["
            + ", ".join(
                f"{random.uniform(-0.2, 0.2):.8g}" for _ in range(self.dimension)
            )
            + "]"
            for _ in range(self.blocks)
        ]
        info = json.dumps(
            {
                "result": {
                    "vectorCount": self.rows,
                    "pendingVectorCount": 0,
                    "indexSize": self.rows * 10_000,
                    "dimension": self.dimension,
                    "similarityFunction": "COSINE",
                    "namespaces": {
                        "": {"vectorCount": self.rows, "pendingVectorCount": 0}
                    },
                }
            }
        ).encode()
        kept = self.rows <= _KEPT
        between = _joined(
            [self.row(number, vectors) for number in range(self.rows)] if kept else []
        )

        def respond(path: str, _: dict[str, str], body: bytes) -> Parts:
            if not path.startswith("/range"):
                return (info,)
            received = json.loads(body)
            start, limit = int(received["cursor"] or 0), int(received["limit"])
            end = min(self.rows, start + limit)
            head = b'{"result": {"nextCursor": "%s", "vectors": [' % (
                b"%d" % end if end < self.rows else b""
            )
            if kept:
                return head, between(start, end), b"]}}"
            rows = b", ".join(
                [self.row(number, vectors) for number in range(start, end)]
            )
            return head, rows, b"]}}"

        return respond


_KEPT = 50_000
"""Rows that are rendered once, at most; of larger indexes, each is rendered when it is requested."""


def _joined(rows: Sequence[bytes]) -> Callable[[int, int], memoryview]:
    """All rows joined once; returns those between two numbers without joining them again."""
    whole = memoryview(b", ".join(rows))
    starts = [0, *itertools.accumulate(len(row) + 2 for row in rows)]
    return lambda start, end: whole[starts[start] : max(starts[start], starts[end] - 2)]


@dataclass
class Replay:
    """A running server."""

    url: str
    _received: int = field(default=0, repr=False)

    def counts(self) -> tuple[int, int]:
        """Requests since this was last asked, and how many of them were refused."""
        with urllib.request.urlopen(f"{self.url}/counts", timeout=30) as response:  # noqa: S310 - our own address
            received, refused = json.load(response)
        return received, refused


@contextmanager
def replaying(
    site: Listing | Endless | Range,
    *,
    latency: float = 0.0,
    a_second: int | None = None,
) -> Iterator[Replay]:
    """Serve rows on loopback, each response after `latency` seconds, at most `a_second` requests a second."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, latency, a_second)
    )
    process.start()
    theirs.close()
    try:
        ours.send(site)
        yield Replay(f"http://127.0.0.1:{ours.recv()}")
    finally:
        ours.close()
        process.join(10)


class _Server:
    def __init__(self, respond: Respond, latency: float, a_second: int | None) -> None:
        self._respond = respond
        self._latency = latency
        self._a_second = a_second
        self._received = self._refused = 0
        self._second, self._in_second = 0, 0

    def handle(self, target: str, body: bytes, send: Send) -> None:
        path, _, query = target.partition("?")
        if path == "/counts":
            counts = json.dumps([self._received, self._refused]).encode()
            self._received = self._refused = 0
            send(_HEAD % len(counts) + counts)
            return
        self._received += 1
        given = self._refusal()
        if given is None:
            parts = self._respond(path, dict(parse_qsl(query)), body)
            given = b"".join((_HEAD % sum(map(len, parts)), *parts))
        if self._latency:
            asyncio.get_running_loop().call_later(self._latency, send, given)
        else:
            send(given)

    def _refusal(self) -> bytes | None:
        if self._a_second is None:
            return None
        now = int(time.time())
        if now != self._second:
            self._second, self._in_second = now, 0
        self._in_second += 1
        if self._in_second <= self._a_second:
            return None
        self._refused += 1
        lines = (
            "HTTP/1.1 429 Too Many Requests",
            f"Date: {formatdate(now, usegmt=True)}",
            f"Burst-RateLimit-Limit: {self._a_second}",
            "Burst-RateLimit-Remaining: 0",
            f"Burst-RateLimit-Reset: {now + 1}",
            "Content-Length: 2",
        )
        return "\r\n".join((*lines, "", "{}")).encode()


def _serve(pipe: Connection, latency: float, a_second: int | None) -> None:
    served = _Server(pipe.recv().responding(), latency, a_second)

    async def main() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), ended.set)
        # TCP by name: asyncio switches Nagle's delay off only then
        listening = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )
        listening.bind(("127.0.0.1", 0))
        server = await asyncio.get_running_loop().create_server(
            lambda: Http(served.handle), sock=listening, backlog=1024
        )
        pipe.send(listening.getsockname()[1])
        # readable once the parent has closed its end
        await ended.wait()
        server.close()

    asyncio.run(main())
