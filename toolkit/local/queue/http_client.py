"""HTTP/1.1 to destinations: one exchange at a time over a connection, and a pool of idle connections.

No redirects, no proxies, no cookies, no decoding: a delivery is cheap, and exactly what was published.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Self, TypeAlias, cast
from urllib.parse import urlsplit

import h11
import msgspec

from toolkit.local.queue.messages import DestinationResponse

HeaderPairs: TypeAlias = list[tuple[bytes, bytes]]

_MOST_HEAD: Final = 100 * 1024  # bytes of the status line and headers of a response
_LONGEST_IDLE: Final = 2.0  # seconds: less than after which servers commonly close
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_WITH_LENGTH: Final = ("POST", "PUT", "PATCH")


class Target(msgspec.Struct, frozen=True):
    """Scheme, host and port of a URL to connect to, and the request's Host header and target."""

    secure: bool
    host: str
    port: int
    host_header: bytes
    path: bytes

    @classmethod
    def of(cls, url: str) -> Self:
        """The target of a checked URL. Path and query stay as they are, byte for byte."""
        parts = urlsplit(url)
        default = _DEFAULT_PORTS[parts.scheme]
        host = parts.hostname or ""
        named = f"[{host}]" if ":" in host else host
        path = url.partition("#")[0].partition("://")[2][len(parts.netloc) :]
        return cls(
            secure=parts.scheme == "https",
            host=host,
            port=parts.port or default,
            host_header=(named if parts.port in (None, default) else f"{named}:{parts.port}").encode("ascii"),
            path=(path if path.startswith("/") else f"/{path}").encode("ascii"),
        )


class HttpConnection(asyncio.Protocol):
    """One connection, opened by `connect`: one exchange after the other."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._transport: asyncio.Transport
        self._response: asyncio.Future[None] | None = None
        self._status, self._most = 0, 0
        self._headers: HeaderPairs = []
        self._body = bytearray()
        self._usable = True

    @classmethod
    async def connect(cls, address: str, target: Target, tls: ssl.SSLContext | None) -> Self:
        """Connect to an address of the target's host; an `OSError` when that fails."""
        loop = asyncio.get_running_loop()
        named = target.host if tls else None
        _, made = await loop.create_connection(cls, address, target.port, ssl=tls, server_hostname=named)
        return made

    @property
    def usable(self) -> bool:
        """Whether it can be used: open, and no exchange or unexpected data on it."""
        return self._usable and not self._transport.is_closing()

    async def exchange(
        self, method: str, target: Target, headers: HeaderPairs, body: bytes, *, most: int
    ) -> DestinationResponse:
        """Send a request and read at most `most` bytes of the body of its response.

        An `OSError` or `h11.ProtocolError` means that the response is incomplete.
        """
        self._usable = False
        self._status, self._headers, self._body, self._most = 0, [], bytearray(), most
        length = [(b"Content-Length", b"%d" % len(body))] if body or method in _WITH_LENGTH else []
        request = h11.Request(
            method=method, target=target.path, headers=[(b"Host", target.host_header), *headers, *length]
        )
        parts = [self._http.send(event) for event in (request, h11.Data(body), h11.EndOfMessage())]
        self._response = asyncio.get_running_loop().create_future()
        # not awaited: a response may arrive before the whole request has been sent
        self._transport.write(b"".join(part for part in parts if part))
        await self._response
        shown = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers)
        return DestinationResponse(self._status, shown, bytes(self._body[:most]))

    def close(self) -> None:
        """Close the connection."""
        self._usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read more of a response; unexpected data makes the connection unusable."""
        if self._response is None or self._response.done():
            self._usable = False
        else:
            self._read_more(self._response, data)

    def eof_received(self) -> None:
        """Read the end: of a response without a length, or too early."""
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the exchange, if there is one."""
        self._usable = False
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionResetError("closed before the end of the response"))

    def _read_more(self, response: asyncio.Future[None], data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while len(self._body) < self._most or not self._status:
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    self._status, self._headers = event.status_code, event.headers.raw_items()
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    self._end_exchange()
                    break
                elif event is h11.NEED_DATA:
                    return
        except h11.ProtocolError as error:
            response.set_exception(error)
        else:
            response.set_result(None)

    def _end_exchange(self) -> None:
        """Prepare for the next exchange, when both sides allow one and all has been sent and read."""
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if done and not self._http.trailing_data[0] and not self._transport.get_write_buffer_size():
            self._http.start_next_cycle()
            self._usable = True


class ConnectionPool:
    """Idle connections by destination, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: dict[HttpConnection, tuple[tuple[object, ...], asyncio.TimerHandle]] = {}
        self._tls: ssl.SSLContext | None = None  # slow to create, and loopback seldom needs it

    async def exchange(
        self, address: str, method: str, target: Target, headers: HeaderPairs, body: bytes, *, most: int
    ) -> DestinationResponse:
        """`HttpConnection.exchange` over an idle or a new connection; `Unreachable` without one."""
        destination = (address, target.port, target.secure, target.host)
        connection = self._take(destination)
        if connection is None:
            try:
                connection = await HttpConnection.connect(address, target, self._context(target))
            except OSError as error:
                raise Unreachable from error
        try:
            return await connection.exchange(method, target, headers, body, most=most)
        finally:
            if connection.usable:
                self._keep(destination, connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in list(self._idle):
            self._drop(connection)

    def _take(self, destination: tuple[object, ...]) -> HttpConnection | None:
        """The idle connection to this destination that was used last."""
        now = asyncio.get_running_loop().time()
        for connection, (connected_to, closing) in reversed(self._idle.items()):
            if connected_to == destination and connection.usable and closing.when() > now:
                closing.cancel()
                del self._idle[connection]
                return connection
        return None

    def _keep(self, destination: tuple[object, ...], connection: HttpConnection) -> None:
        """Keep a connection for a short time: a destination may accept only one."""
        if len(self._idle) >= self._most:
            for other in [other for other in self._idle if not other.usable]:
                self._drop(other)
        if len(self._idle) >= self._most:
            connection.close()
            return
        closing = asyncio.get_running_loop().call_later(_LONGEST_IDLE, self._drop, connection)
        self._idle[connection] = destination, closing

    def _drop(self, connection: HttpConnection) -> None:
        self._idle.pop(connection)[1].cancel()
        connection.close()

    def _context(self, target: Target) -> ssl.SSLContext | None:
        if not target.secure:
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class Unreachable(Exception):  # noqa: N818 - a property of a destination
    """No connection to the destination could be made."""
