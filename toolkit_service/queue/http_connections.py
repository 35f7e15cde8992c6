"""Exchange requests and responses over HTTP/1.1, one after the other on each connection.

Redirects, proxies, cookies and content encodings are not supported: a destination receives exactly the
request that was published, and a delivery costs little.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Self, TypeAlias, cast

import h11

from toolkit_service.queue.destinations import Target
from toolkit_service.queue.messages import (
    DestinationResponse,
)

HeaderPairs: TypeAlias = list[tuple[bytes, bytes]]
_MOST_HEAD: Final = 100 * 1024  # bytes of the status line and headers of a response
# seconds; servers commonly close idle connections after five or more
_LONGEST_IDLE: Final = 2.0
_WITH_LENGTH: Final = ("POST", "PUT", "PATCH")


class HttpConnection(asyncio.Protocol):
    """One connection, opened by `connect`. It carries one exchange after the other.

    h11 parses the response. This class passes bytes to it and collects the events.
    """

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._transport: asyncio.Transport
        self._response: asyncio.Future[None] | None = None
        self._status = 0
        self._headers: HeaderPairs = []
        self._body = bytearray()
        self._most = 0
        self._usable = True

    @classmethod
    async def connect(
        cls, address: str, target: Target, tls: ssl.SSLContext | None
    ) -> Self:
        """Connect to an address of the host of a target. Raise OSError if that fails."""
        loop = asyncio.get_running_loop()
        server_hostname = target.host if tls else None
        _, connection = await loop.create_connection(
            cls, address, target.port, ssl=tls, server_hostname=server_hostname
        )

        return connection

    @property
    def usable(self) -> bool:
        """Return True if the connection is open, without an exchange or unexpected data."""
        return self._usable and not self._transport.is_closing()

    async def exchange(
        self,
        method: str,
        target: Target,
        headers: HeaderPairs,
        body: bytes,
        *,
        most: int,
    ) -> DestinationResponse:
        """Send a request, and read at most `most` bytes of the body of the response.

        An `OSError` or `h11.ProtocolError` means that the response is incomplete.
        """
        # False until `_end_exchange`, so that the connection is closed if the exchange is cancelled
        self._usable = False
        self._status, self._headers, self._body, self._most = 0, [], bytearray(), most
        sent_headers = [(b"Host", target.host_header), *headers]
        if body or method in _WITH_LENGTH:
            sent_headers.append((b"Content-Length", b"%d" % len(body)))
        request = h11.Request(method=method, target=target.path, headers=sent_headers)
        parts = [
            self._http.send(event)
            for event in (request, h11.Data(body), h11.EndOfMessage())
        ]
        self._response = asyncio.get_running_loop().create_future()
        # not awaited: a response may arrive before the whole request has been sent
        self._transport.write(b"".join(part for part in parts if part))
        await self._response
        received = tuple(
            (name.decode("latin-1"), text.decode("latin-1"))
            for name, text in self._headers
        )

        return DestinationResponse(self._status, received, bytes(self._body[:most]))

    def close(self) -> None:
        """Close the connection."""
        self._usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport to write to."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read more of a response; unexpected data makes the connection unusable."""
        if self._response is None or self._response.done():
            self._usable = False
        else:
            self._read_more(self._response, data)

    def eof_received(self) -> None:
        """Read the end of the stream: the end of a response without a length, or a response cut short."""
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the exchange, if one is in progress."""
        self._usable = False
        if self._response is not None and not self._response.done():
            self._response.set_exception(
                exc or ConnectionResetError("closed before the end of the response")
            )

    def _read_more(self, response: asyncio.Future[None], data: bytes) -> None:
        try:
            self._http.receive_data(data)
            complete = self._take_events()
        except h11.ProtocolError as error:
            response.set_exception(error)
            return

        if complete:
            response.set_result(None)

    def _take_events(self) -> bool:
        """Collect what h11 has parsed. Return True if the response is complete or has enough bytes."""
        while not self._has_enough():
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return False
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._headers = event.headers.raw_items()
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._end_exchange()
                return True

            # other events are informational responses (1xx), which are skipped
        return True

    def _has_enough(self) -> bool:
        """Return True if the status and as much of the body as requested have been read."""
        return bool(self._status) and len(self._body) >= self._most

    def _end_exchange(self) -> None:
        """Prepare for the next exchange, if both sides allow one and all data was sent and read."""
        states = (self._http.our_state, self._http.their_state)
        unread = self._http.trailing_data[0]
        unsent = self._transport.get_write_buffer_size()
        if states == (h11.DONE, h11.DONE) and not unread and not unsent:
            self._http.start_next_cycle()
            self._usable = True


class ConnectionPool:
    """Idle connections by destination, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: dict[
            HttpConnection, tuple[tuple[object, ...], asyncio.TimerHandle]
        ] = {}
        # slow to create, and loopback seldom needs it
        self._tls: ssl.SSLContext | None = None

    async def exchange(
        self,
        address: str,
        method: str,
        target: Target,
        headers: HeaderPairs,
        body: bytes,
        *,
        most: int,
    ) -> DestinationResponse:
        """Exchange a request and a response over an idle or a new connection.

        Raise `Unreachable` if no connection can be made, and the errors of `HttpConnection.exchange`.
        """
        destination = (address, target.port, target.secure, target.host)
        connection = self._take(destination)
        if connection is None:
            try:
                connection = await HttpConnection.connect(
                    address, target, self._context(target)
                )
            except OSError as error:
                raise Unreachable from error

        try:
            return await connection.exchange(method, target, headers, body, most=most)
        finally:
            # also after an error: a connection whose response was cut is not usable
            if connection.usable:
                self._keep(destination, connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in list(self._idle):
            self._drop(connection)

    def _take(self, destination: tuple[object, ...]) -> HttpConnection | None:
        """Return the idle connection to this destination that was used last."""
        now = asyncio.get_running_loop().time()
        for connection, (connected_to, closing) in reversed(self._idle.items()):
            if connected_to != destination:
                continue
            if connection.usable and closing.when() > now:
                closing.cancel()
                del self._idle[connection]
                return connection

        return None

    def _keep(
        self, destination: tuple[object, ...], connection: HttpConnection
    ) -> None:
        """Keep a connection for a short time: a destination may accept only one."""
        if len(self._idle) >= self._most:
            self._drop_unusable()
        if len(self._idle) >= self._most:
            connection.close()
            return

        closing = asyncio.get_running_loop().call_later(
            _LONGEST_IDLE, self._drop, connection
        )
        self._idle[connection] = destination, closing

    def _drop_unusable(self) -> None:
        unusable = [connection for connection in self._idle if not connection.usable]
        for connection in unusable:
            self._drop(connection)

    def _drop(self, connection: HttpConnection) -> None:
        _, closing = self._idle.pop(connection)
        closing.cancel()
        connection.close()

    def _context(self, target: Target) -> ssl.SSLContext | None:
        if not target.secure:
            return None

        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])

        return self._tls


class Unreachable(Exception):  # noqa: N818 - a property of a destination
    """No connection to a destination could be made."""
