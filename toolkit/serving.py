"""HTTP/1.1 servers on this machine, bounded before it is known who calls.

uvicorn's own protocol accepts whatever comes, waits for ever for a head that never ends, and responds to each
bad one with 400 as plain text. This one keeps only so many connections whose callers have not shown who they
are, the oldest of which gives way to the next; gives each head and each request a time within which it must
have arrived (408); and tells a head that is too large (431) from one that is malformed (400).
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

from toolkit.errors import LocalServiceError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST: Final = "127.0.0.1"
"""The one address that is listened on."""

MAX_HEAD: Final = 64 * 1024
"""Largest request line and headers together, in bytes."""

HEAD_TIMEOUT: Final = 10.0
"""Seconds within which request line and headers must have arrived."""

ACCEPTED_AT_ONCE: Final = 32
"""Connections taken from the system's queue before others give way to them: the backlog of `uvicorn.Config`.

It is the queue's length, too, until `listen_longer`.
"""

CALLER: Final = "toolkit.caller"
"""Name of the ASGI extension under which a request finds the `BoundedHttp` it came over."""

_QUEUE: Final = 1024  # connections that wait in the system's queue
_MOST_STRANGERS: Final = 256
_TOO_LARGE: Final = 431
_LINGER: Final = 1.0  # seconds in which a sender may still read why it was refused

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # not what callers do wrong: they are told


class Strangers:
    """The connections of one server whose callers are not known yet: with too many, the oldest gives way.

    Parameters
    ----------
    most : int
        Connections at most. A quarter of the files that this process may open is never exceeded.
    """

    def __init__(self, most: int = _MOST_STRANGERS) -> None:
        self._most = max(1, min(most, _open_files() // 4))
        self._waiting: dict[BoundedHttp, None] = {}  # in the order in which they came

    def add(self, connection: BoundedHttp) -> None:
        """A connection was made."""
        self._waiting[connection] = None
        if len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.drop()

    def discard(self, connection: BoundedHttp) -> None:
        """A connection ended, or its caller is known now."""
        self._waiting.pop(connection, None)


class BoundedHttp(H11Protocol):
    """One connection; made by uvicorn, from a subclass of the server's own.

    Attributes
    ----------
    strangers : Strangers
        Those of the server.
    request_timeout : float
        Seconds within which a request, head and body, must have arrived.
    """

    strangers: Strangers
    request_timeout: float

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conn = h11.Connection(h11.SERVER, MAX_HEAD)
        self.logger = _log
        self._arriving: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._leaving = False
        inner = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["extensions"] = self.extensions()
            await inner(scope, receive, send)

        self.app = app

    def extensions(self) -> dict[str, Any]:
        """The ASGI extensions of a request over this connection."""
        return {CALLER: self}

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""
        return not self.transport.is_closing()

    def admit(self) -> None:
        """The caller has shown who it is: this connection does not give way any more."""
        self.strangers.discard(self)

    def drop(self) -> None:
        """End the connection at once."""
        self.take_over()
        self._expect_nothing()
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller is there: its first request must come in time."""
        super().connection_made(transport)
        self._expect()
        self.strangers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller is gone."""
        self.strangers.discard(self)
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request."""
        if self._leaving:
            return
        super().data_received(data)
        between = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not between:
            self._expect()
        else:
            self._expect_nothing()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request whose head or framing cannot be read."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == _TOO_LARGE:
            wanted = f"expected at most {MAX_HEAD} bytes"
            self.refuse(_TOO_LARGE, f"request line and headers too large; got more; {wanted}")
        else:
            reason = str(error or msg).partition(":")[0]  # behind it stands what was sent: a token, perhaps
            self.refuse(400, f"request cannot be read; got {reason[:80]!r}; expected HTTP/1.1")

    def take_over(self) -> None:
        """From here on the answer is not uvicorn's business."""
        self._leaving = True
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def refuse(self, status: int, message: str, *headers: str) -> None:
        """Say no before the request has been read, or where no application can answer any more; then close.

        Parameters
        ----------
        status : int
        message : str
            What is wrong.
        *headers : str
            Further lines of the head.
        """
        if self._leaving:
            return  # it has its response, or somebody else makes it
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        body = self.error_body(status, message)
        self.take_over()
        self._expect_nothing()
        if begun:
            self.transport.abort()
            return
        head = [
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            *headers,
        ]
        only_head = self.scope is not None and self.scope["method"] == "HEAD"
        self.transport.write("\r\n".join([*head, "", ""]).encode() + (b"" if only_head else body))
        # closing at once would reset the connection while the caller still sends, and the answer with it
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.close)

    def error_body(self, status: int, message: str) -> bytes:  # noqa: ARG002 - subclasses repeat the status
        """The JSON of a refusal."""
        return json.dumps({"error": message}).encode()

    def _expect(self) -> None:
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
        """Seconds for what is expected now: the head, or the whole request."""
        head = self.conn.their_state is h11.IDLE
        return min(HEAD_TIMEOUT, self.request_timeout) if head else self.request_timeout

    def _expect_nothing(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _too_slow(self) -> None:
        self._arriving = None
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.close()  # nothing was asked
        else:
            wanted = f"expected all of it within {self._allowed:g} s"
            self.refuse(408, f"request did not arrive; got a part of it; {wanted}")


class Background:
    """A server in a thread of its own, with an event loop of its own; `close` ends it.

    Parameters
    ----------
    app : ASGI application
    listening : socket.socket
        From `listen`; closed with the server.
    name : str
        Of the thread.
    connections : int
        Of callers that are not known, at most.
    request_timeout : float
        Seconds within which a request must have arrived.
    """

    def __init__(
        self, app: ASGIApp, listening: socket.socket, *, name: str, connections: int, request_timeout: float
    ) -> None:
        class Connection(BoundedHttp):
            strangers = Strangers(connections)

        Connection.request_timeout = request_timeout
        self._server = _Server(
            uvicorn.Config(
                app,
                http=Connection,
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
            target=self._server.run, kwargs={"sockets": [listening]}, name=name, daemon=True
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
        """Cut what is under way first: nobody waits for callers that may be slow on purpose."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedHttp):
                connection.drop()
        await super().shutdown(sockets)


def listen(port: int) -> socket.socket:
    """A socket that listens on a port of this machine; 0 takes a free one.

    Raises
    ------
    LocalServiceError
        When the port is taken.
    """
    # asyncio switches Nagle's delay off only for sockets that are TCP by name: 40 ms an answer otherwise
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
            next_step="Use port 0: a free one is taken.",
        ) from None
    return listening


def listen_longer(listening: socket.socket) -> None:
    """Let more connections wait in the system's queue than asyncio accepts at once; once it has begun."""
    listening.listen(_QUEUE)


def _open_files() -> int:
    """Files and sockets that this process may have open."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return 4 * _MOST_STRANGERS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 4 * _MOST_STRANGERS if limit == resource.RLIM_INFINITY else limit
