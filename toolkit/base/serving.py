"""HTTP/1.1 servers on this machine, with limits for callers that are not authenticated.

The protocol of uvicorn accepts every connection, waits forever for the end of a request head, and answers
each malformed one with 400 as plain text. This module limits the number of unauthenticated connections: the
oldest is closed if a new one exceeds the limit. It sets timeouts for each head and each request (408), and
distinguishes a head that is too large (431) from a malformed head (400).
"""

from __future__ import annotations

import asyncio
import http
import json
import logging
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolkit.base.errors import LocalServiceError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST: Final = "127.0.0.1"  # servers listen on this address only

MAX_HEAD: Final = 64 * 1024  # largest request line and headers together, in bytes

HEAD_TIMEOUT: Final = 10.0  # seconds for the arrival of request line and headers

ACCEPTED_AT_ONCE: Final = 32
"""Connections accepted from the queue of the system at once: the backlog of `uvicorn.Config`.

It is also the length of that queue until `listen_longer` is called.
"""

CALLER: Final = "toolkit.caller"  # name of the ASGI extension that contains the `BoundedHttp` of a request
# bytes read at once: they may be thousands of tiny chunks to parse
_READ_OF_STRANGERS: Final = 8 * 1024
_QUEUE: Final = 1024  # length of the queue of connections in the system
_MOST_STRANGERS: Final = 256
_TOO_LARGE: Final = 431
_LINGER: Final = 1.0  # seconds that a sender has to read the error

_log = logging.getLogger(__name__)
# uvicorn warns of malformed requests: the response is enough
_log.setLevel(logging.ERROR)


class Strangers:
    """The unauthenticated connections of one server. If there are more than `most`, the oldest is closed."""

    def __init__(self, most: int = _MOST_STRANGERS) -> None:
        self._most = max(1, min(most, _open_files() // 4))
        self._waiting: dict[BoundedHttp, None] = {}  # in order of arrival

    def add(self, connection: BoundedHttp) -> None:
        """Add a new connection."""
        self._waiting[connection] = None
        if len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.drop()

    def discard(self, connection: BoundedHttp) -> None:
        """Remove a connection that has ended or is authenticated."""
        self._waiting.pop(connection, None)


class BoundedHttp(H11Protocol):
    """One connection. uvicorn makes it from a subclass, which sets the attributes for the server."""

    strangers: Strangers
    request_timeout: float

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conn = h11.Connection(h11.SERVER, MAX_HEAD)
        self.logger = _log
        self._arriving: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._leaving = False
        self._usual_read = 0
        inner = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["extensions"] = {CALLER: self}
            await inner(scope, receive, send)

        self.app = app

    @property
    def is_open(self) -> bool:
        """Return True if the response can still be sent."""
        return not self.transport.is_closing()

    def admit(self) -> None:
        """Keep the connection: the caller is authenticated."""
        self.strangers.discard(self)
        self.transport.max_size = self._usual_read  # type: ignore[attr-defined]

    def drop(self) -> None:
        """End the connection at once."""
        self.take_over()
        self._expect_nothing()
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._usual_read = getattr(transport, "max_size", 0)
        transport.max_size = _READ_OF_STRANGERS  # type: ignore[attr-defined] # asyncio's own, not in its types
        self._expect()
        self.strangers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self.strangers.discard(self)
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, and start or stop the timeout."""
        if self._leaving:
            return

        super().data_received(data)
        if self._is_between_requests():
            self._expect_nothing()
        elif self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._expect()
        else:
            self._expect_nothing()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request with a malformed head or framing."""
        error = sys.exception()
        if (
            isinstance(error, h11.RemoteProtocolError)
            and error.error_status_hint == _TOO_LARGE
        ):
            wanted = f"expected at most {MAX_HEAD} bytes"
            self.refuse(
                _TOO_LARGE, f"request line and headers too large; got more; {wanted}"
            )
            return

        # only the part before the colon: after it, h11 quotes the request, perhaps with a token
        reason = str(error or msg).partition(":")[0]
        self.refuse(
            400, f"request cannot be read; got {reason[:80]!r}; expected HTTP/1.1"
        )

    def take_over(self) -> None:
        """Stop uvicorn from sending more: the caller of this method writes the response."""
        self._leaving = True
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def refuse(self, status: int, message: str, *headers: str) -> None:
        """Send an error, and close the connection.

        It is for errors that no application can send, for example before a request has been read.
        """
        if self._leaving:
            return

        cycle = self.cycle
        is_responding = (
            cycle is not None and cycle.response_started and not cycle.response_complete
        )
        body = self.error_body(status, message)
        self.take_over()
        self._expect_nothing()

        if is_responding:
            # a second response inside the first would be read as data
            self.transport.abort()
            return

        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            *headers,
            "",
            "",
        )
        self.transport.write("\r\n".join(head).encode())
        only_head = self.scope is not None and self.scope["method"] == "HEAD"
        if not only_head:
            self.transport.write(body)
        # closing at once would reset the connection while the caller still sends, and lose the response
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.close)

    def error_body(self, status: int, message: str) -> bytes:  # noqa: ARG002 - subclasses repeat the status
        """Return the JSON of an error response."""
        return json.dumps({"error": message}).encode()

    def _is_between_requests(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _expect(self) -> None:
        """Start the timeout, or move it if another part of the request is expected."""
        if self._leaving:
            return

        if self._arriving is None:
            self._began = self.loop.time()
        due = self._began + self._allowed
        if self._arriving is None or self._arriving.when() != due:
            self._expect_nothing()
            self._arriving = self.loop.call_at(due, self._too_slow)

    @property
    def _allowed(self) -> float:
        """Return the seconds for the head, or for the whole request."""
        if self.conn.their_state is h11.IDLE:
            return min(HEAD_TIMEOUT, self.request_timeout)
        return self.request_timeout

    def _expect_nothing(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _too_slow(self) -> None:
        self._arriving = None
        if self._is_between_requests():
            # a connection that is kept for the next request: nothing is pending
            self.transport.close()
            return

        wanted = f"expected all of it within {self._allowed:g} s"
        self.refuse(408, f"request did not arrive; got a part of it; {wanted}")


class Background:
    """A server in a thread with a separate event loop, on a socket from `listen`, until `close` is called."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        name: str,
        connections: int,
        request_timeout: float,
    ) -> None:
        class OwnConnection(BoundedHttp):
            strangers = Strangers(connections)

        OwnConnection.request_timeout = request_timeout
        self._server = _Server(
            uvicorn.Config(
                app,
                http=OwnConnection,
                loop="asyncio",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
                backlog=ACCEPTED_AT_ONCE,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [listening]},
            name=name,
            daemon=True,
        )
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.001)
        listen_longer(listening)

    def close(self) -> None:
        """Stop listening, end every connection, and wait for the thread."""
        self._server.should_exit = True
        self._thread.join()


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections first: callers may be slow on purpose, and are not waited for."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedHttp):
                connection.drop()
        await super().shutdown(sockets)


def listen(port: int) -> socket.socket:
    """Return a socket that listens on a port of this machine; 0 picks a free one.

    Raise LocalServiceError if you cannot listen on the port, for example because it is in use.
    """
    # with IPPROTO_TCP, asyncio switches off Nagle's algorithm: 40 ms per response otherwise
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(_QUEUE)
    except OSError as error:
        listening.close()
        raise LocalServiceError(
            f"listening on port {port}",
            got=str(error.strerror),
            expected="a free port",
            next_step="Use port 0 to pick a free one.",
        ) from None

    return listening


def listen_longer(listening: socket.socket) -> None:
    """Lengthen the queue of connections, which asyncio shortens at the start of a server."""
    listening.listen(_QUEUE)


def _open_files() -> int:
    """Return the number of files and sockets that this process may have open."""
    enough = 4 * _MOST_STRANGERS
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return enough

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return enough

    return limit
