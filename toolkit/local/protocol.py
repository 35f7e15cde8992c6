"""HTTP/1.1 as the embedded service speaks it: bad heads get JSON errors, slow senders an end.

uvicorn's own protocol answers every bad head with 400 as plain text, and waits for ever for one that never
ends. This one tells a head that is too large (431) from one that is malformed (400), gives each request a
time within which it must have arrived (408), and hands the connection to whoever has to break it on purpose.
"""

from __future__ import annotations

import asyncio
import http
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolkit.local.answers import REQUEST_TIMEOUT, refusal_body

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MAX_HEAD: Final = 64 * 1024
"""Largest request line and headers together, in bytes."""

WIRE: Final = "toolkit.wire"
"""Name of the ASGI extension under which a request finds the `Wire` it came over."""

_TOO_LARGE: Final = 431
_LINGER: Final = 1.0  # seconds in which a sender may still read why it was refused
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_SETTLE: Final = 0.03  # seconds for what was written to reach the other side before a reset overtakes it


class Wire:
    """The connection under one request, for answers that no HTTP library would write."""

    def __init__(self, protocol: Http) -> None:
        self._protocol = protocol

    @property
    def is_open(self) -> bool:
        """Whether anything can still be written."""
        return not self._protocol.transport.is_closing()

    async def write(self, data: bytes) -> None:
        """Put these bytes on the wire, and wait until they have left."""
        transport = self._protocol.transport
        if not self.is_open:
            return
        self._protocol.take_over()
        transport.write(data)
        while transport.get_write_buffer_size() and self.is_open:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.002)

    def close(self) -> None:
        """End the connection in an orderly way; the answer may be whole or not."""
        self._protocol.take_over()
        self._protocol.transport.close()

    async def reset(self) -> None:
        """End the connection with a TCP reset."""
        transport = self._protocol.transport
        self._protocol.take_over()
        await asyncio.sleep(_SETTLE)
        if self.is_open:
            raw: socket.socket = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()


class Http(H11Protocol):
    """One connection; made by uvicorn.

    Attributes
    ----------
    request_timeout : float
        Seconds within which a request must have arrived; subclasses may say otherwise.
    """

    request_timeout: float = REQUEST_TIMEOUT

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conn = h11.Connection(h11.SERVER, MAX_HEAD)
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving = False
        inner = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["extensions"] = {WIRE: Wire(self)}
            await inner(scope, receive, send)

        self.app = app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller is there: its first request must come in time."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller is gone."""
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
            self._refuse(_TOO_LARGE, f"request line and headers too large; got more; {wanted}")
        else:
            self._refuse(400, f"request cannot be read; got {str(error or msg)[:80]!r}; expected HTTP/1.1")

    def take_over(self) -> None:
        """From here on the answer is not uvicorn's business."""
        self._leaving = True
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _expect(self) -> None:
        if self._arriving is None and not self._leaving:
            self._arriving = self.loop.call_later(self.request_timeout, self._too_slow)

    def _expect_nothing(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _too_slow(self) -> None:
        self._arriving = None
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.close()  # nothing was asked
        else:
            wanted = f"expected all of it within {self.request_timeout:g} s"
            self._refuse(408, f"request did not arrive; got a part of it; {wanted}")

    def _refuse(self, status: int, message: str) -> None:
        """Say no where no application was asked, or none can answer any more."""
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        path = self.scope["path"] if self.scope and self.conn.their_state is h11.SEND_BODY else ""
        self.take_over()
        self._expect_nothing()
        if begun:
            self.transport.abort()
            return
        body = refusal_body(status, message, path)
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        # closing at once would reset the connection while the caller still sends, and the answer with it
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.close)
