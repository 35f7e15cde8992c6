"""The destination of a soak's messages: responds as their bodies say, and records every arrival."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Arrival:
    """One request as it arrived, and the status of its response: 0 when the connection was cut instead."""

    path: str
    message_id: str
    retried: int
    digest: str
    status: int
    told: dict[str, Any]


@dataclass
class Destination:
    """A destination, listening. `arrivals` grows in the order in which requests were read."""

    url: str = ""
    arrivals: list[Arrival] = field(default_factory=list)

    def handle(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[Arrival, float]:
        """Record a request; returns also the seconds to wait before the response."""
        settings = json.loads(body.partition(b"\n")[0])
        message_id, retried = headers["service-message-id"], int(headers["retried"])
        delay = 0.0
        if path == "/work":
            fails, delay = settings["fails"], settings["takes"]
            status = (
                200
                if fails is not None and retried >= fails
                else 0
                if settings["drops"]
                else 500
            )
        else:  # callbacks: the first attempt of some fails
            status = (
                500
                if retried == 0 and zlib.crc32(message_id.encode()) % 8 == 0
                else 200
            )
        digest = hashlib.sha256(body).hexdigest()
        arrival = Arrival(path, message_id, retried, digest, status, settings)
        self.arrivals.append(arrival)
        return arrival, delay


@contextmanager
def listening() -> Iterator[Destination]:
    """Run a destination in a thread."""
    destination = Destination()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(
        loop.create_server(lambda: _Speaking(destination), "127.0.0.1", 0)
    )
    destination.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield destination
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


class _Speaking(asyncio.Protocol):
    """Reads requests with a Content-Length, one after the other."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._held = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, found, rest = self._held.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers["content-length"])
        if len(rest) < length:
            return
        self._held = rest[length:]
        arrival, delay = self._destination.handle(
            first.split()[1], headers, rest[:length]
        )
        asyncio.get_running_loop().call_later(delay, self._respond, arrival.status)

    def _respond(self, status: int) -> None:
        if status:
            self._transport.write(
                b"HTTP/1.1 %d So\r\nContent-Length: 2\r\n\r\nso" % status
            )
        else:
            self._transport.abort()
