"""HTTP to destinations over real sockets: responses split anywhere, and reusable connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit_service.queue import http_connections
from toolkit_service.queue.destinations import Target
from toolkit_service.queue.http_connections import ConnectionPool, Unreachable
from toolkit_service.queue.messages import DestinationResponse

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"


class Destination:
    """A destination whose every connection is handled by a function."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.opened = 0
        self.target = Target.of("http://127.0.0.1/")

    async def accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Count and handle a connection."""
        self.opened += 1
        try:
            await self.handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def ask(
        self,
        pool: ConnectionPool,
        body: bytes = b"",
        *,
        method: str = "POST",
        most: int = 1000,
    ) -> DestinationResponse:
        """Send it a request."""
        return await pool.exchange(
            "127.0.0.1", method, self.target, [(b"X-A", b"1")], body, most=most
        )


@asynccontextmanager
async def listening(handler: Handler) -> Any:
    """A destination, and connections to it."""
    destination, pool = Destination(handler), ConnectionPool(4)
    server = await asyncio.start_server(destination.accept, "127.0.0.1", 0)
    destination.target = Target.of(
        f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a?b=%2F"
    )
    try:
        yield destination, pool
    finally:
        pool.close()
        server.close()
        await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One request: its head and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    _, _, after = head.lower().partition(b"content-length:")
    return head, await reader.readexactly(int(after.partition(b"\r\n")[0] or 0))


def answering(*responses: bytes, close: bool = False) -> Handler:
    """Respond to the requests of a connection one after the other; the last response is repeated."""

    async def handle(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for number in range(100):
            await read_request(reader)
            writer.write(responses[min(number, len(responses) - 1)])
            if close:
                return

    return handle


def test_exchanges_one_after_the_other_share_a_connection() -> None:
    """Ten sequential requests use one connection; two concurrent ones use two."""

    async def run() -> tuple[int, int]:
        async with listening(answering(FINE)) as (destination, pool):
            for _ in range(10):
                assert (await destination.ask(pool, b"body")).body == b"fine"
            alone = destination.opened
            await asyncio.gather(destination.ask(pool), destination.ask(pool))
            return alone, destination.opened

    assert asyncio.run(run()) == (1, 2)


def test_requests_are_sent_as_specified() -> None:
    """Method, path and query byte for byte, Host, our headers, and a length where there may be a body."""

    async def run() -> list[bytes]:
        heads = []

        async def handle(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            while True:
                head, body = await read_request(reader)
                heads.append(head + body)
                writer.write(b"HTTP/1.1 204 No\r\n\r\n")

        async with listening(handle) as (destination, pool):
            await destination.ask(pool, b"\x00\xff")
            await destination.ask(pool, method="GET")
            await destination.ask(pool, method="PUT")
            return [
                head.replace(b":%d" % destination.target.port, b"") for head in heads
            ]

    assert asyncio.run(run()) == [
        b"POST /a?b=%2F HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: 1\r\nContent-Length: 2\r\n\r\n\x00\xff",
        b"GET /a?b=%2F HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: 1\r\n\r\n",
        b"PUT /a?b=%2F HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n",
    ]


@pytest.mark.parametrize(
    "unexpected", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"]
)
def test_a_connection_that_ended_or_sent_data_while_idle_is_not_used_again(
    unexpected: bytes,
) -> None:
    """Unexpected data is not a response; the next exchange uses a new connection."""

    async def run() -> tuple[list[int], int]:
        async def handle(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await read_request(reader)
            writer.write(FINE)
            await writer.drain()
            await response_sent.wait()
            response_sent.clear()
            writer.write(unexpected)

        response_sent = asyncio.Event()
        async with asyncio.timeout(30), listening(handle) as (destination, pool):
            statuses = []
            for _ in range(3):
                statuses.append((await destination.ask(pool)).status)
                idle = list(pool._idle)
                response_sent.set()
                while any(connection.usable for connection in idle):  # noqa: ASYNC110 - no event signals it
                    await asyncio.sleep(0.001)
            return statuses, destination.opened

    assert asyncio.run(run()) == ([200, 200, 200], 3)


def test_a_connection_that_has_been_idle_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other side may be closing it concurrently."""
    monkeypatch.setattr(http_connections, "_LONGEST_IDLE", 0.01)

    async def run() -> int:
        async with listening(answering(FINE)) as (destination, pool):
            await destination.ask(pool)
            await asyncio.sleep(0.03)
            await destination.ask(pool)
            return destination.opened

    assert asyncio.run(run()) == 2


def test_idle_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination that handles one connection at a time is free again for others."""
    monkeypatch.setattr(http_connections, "_LONGEST_IDLE", 0.01)

    async def run() -> None:
        ended = asyncio.Event()

        async def handle(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await read_request(reader)
            writer.write(FINE)
            await reader.read()
            ended.set()

        async with listening(handle) as (destination, pool):
            await destination.ask(pool)
            await asyncio.wait_for(ended.wait(), 5)

    asyncio.run(run())


def test_unusable_connections_are_replaced() -> None:
    """Idle connections to a destination that has ended do not prevent keeping those to another."""

    async def run() -> int:
        async with (
            listening(answering(FINE)) as (first, pool),
            listening(answering(FINE)) as (second, _),
        ):
            await asyncio.gather(*(first.ask(pool) for _ in range(4)))
            for connection in pool._idle:
                connection._transport.abort()
            for _ in range(3):
                await second.ask(pool)
            return second.opened

    assert asyncio.run(run()) == 1


def test_a_response_before_the_end_of_the_request_counts() -> None:
    """A destination that refuses a large body unread is heard; the connection is not used again."""

    async def run() -> tuple[int, int]:
        async def handle(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await asyncio.sleep(0.2)

        async with listening(handle) as (destination, pool):
            status = (await destination.ask(pool, b"x" * 30_000_000)).status
            await destination.ask(pool)
            return status, destination.opened

    assert asyncio.run(run()) == (413, 2)


def test_no_more_is_read_than_requested() -> None:
    """An endless response is truncated, and its connection closed."""

    async def run() -> tuple[int, int]:
        async def handle(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not writer.is_closing():
                writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                await writer.drain()

        async with listening(handle) as (destination, pool):
            length = len((await destination.ask(pool, most=5000)).body)
            await destination.ask(pool)
            return length, destination.opened

    assert asyncio.run(run()) == (5000, 2)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_malformed_responses_are_errors(response: bytes) -> None:
    """Truncated anywhere, contradictory, with endless headers, or not HTTP at all."""

    async def run() -> None:
        async with listening(answering(response, close=True)) as (destination, pool):
            with pytest.raises((OSError, h11.ProtocolError)):
                await asyncio.wait_for(destination.ask(pool), 5)

    asyncio.run(run())


def test_a_refused_connection_is_an_error() -> None:
    """A refused connection, and one whose other side does not speak TLS."""

    async def run() -> None:
        async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(FINE)

        pool = ConnectionPool(1)
        with pytest.raises(Unreachable):
            await pool.exchange(
                "127.0.0.1", "GET", Target.of("http://127.0.0.1:9/"), [], b"", most=1
            )
        async with listening(handle) as (destination, pool):
            secure = Target.of(f"https://127.0.0.1:{destination.target.port}/")
            with pytest.raises(Unreachable):
                await pool.exchange("127.0.0.1", "GET", secure, [], b"", most=1)

    asyncio.run(run())


BODY = bytes(range(256)) * 3
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nX-Case: A\r\nx-case: b\r\nContent-Length: %d\r\n\r\n"
    % len(BODY)
    + BODY,
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX-Case: A\r\nx-case: b\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"100\r\n"
    + BODY[:256]
    + b"\r\n200;x=y\r\n"
    + BODY[256:]
    + b"\r\n0\r\nTrailer: z\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nX-Case: A\r\nx-case: b\r\n\r\n" + BODY,
]


@settings(max_examples=60, deadline=None)
@given(
    response=st.sampled_from(ANSWERS), cuts=st.lists(st.integers(1, 900), max_size=6)
)
def test_responses_are_the_same_however_they_are_split(
    response: bytes, cuts: list[int]
) -> None:
    """With a length, in chunks after interim responses, and up to the end of the connection."""

    async def run() -> DestinationResponse:
        async def handle(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await read_request(reader)
            places = sorted(
                {0, len(response), *(cut for cut in cuts if cut < len(response))}
            )
            for start, end in pairwise(places):
                writer.write(response[start:end])
                await writer.drain()
                await asyncio.sleep(0.0005)

        async with listening(handle) as (destination, pool):
            return await asyncio.wait_for(destination.ask(pool, b"x"), 5)

    received = asyncio.run(run())
    assert (received.status, received.body) == (200, BODY)
    assert received.headers[:2] == (("X-Case", "A"), ("x-case", "b"))


@pytest.mark.parametrize(
    ("url", "host", "path", "port"),
    [
        ("http://a.example", b"a.example", b"/", 80),
        ("http://A.example:80?x=1", b"a.example", b"/?x=1", 80),
        ("https://a.example:443/p/../q;r?#f", b"a.example", b"/p/../q;r?", 443),
        (
            "http://a.example:8080/%7Ea//b?c?d=%",
            b"a.example:8080",
            b"/%7Ea//b?c?d=%",
            8080,
        ),
        ("http://[::1]:81/", b"[::1]:81", b"/", 81),
        ("https://[::1]/", b"[::1]", b"/", 443),
    ],
)
def test_targets_say_where_and_what(
    url: str, host: bytes, path: bytes, port: int
) -> None:
    """The port is named when it is not the scheme's own; the path is unchanged."""
    target = Target.of(url)
    assert (target.host_header, target.path, target.port) == (host, path, port)
