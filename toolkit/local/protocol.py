"""HTTP/1.1 as the embedded service speaks it: `BoundedHttp` with its own refusals, and the `Wire` for faults.

The connection is handed to whoever has to break it on purpose.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final

import h11

from toolkit.local.answers import REQUEST_TIMEOUT, refusal_body
from toolkit.serving import BoundedHttp

WIRE: Final = "toolkit.wire"
"""Name of the ASGI extension under which a request finds the `Wire` it came over."""

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


class Http(BoundedHttp):
    """One connection; made by uvicorn."""

    request_timeout = REQUEST_TIMEOUT

    def extensions(self) -> dict[str, Any]:
        """The ASGI extensions of a request over this connection."""
        return super().extensions() | {WIRE: Wire(self)}

    def refusal_body(self, status: int, message: str) -> bytes:
        """The JSON of a refusal."""
        path = self.scope["path"] if self.scope and self.conn.their_state is h11.SEND_BODY else ""
        return refusal_body(status, message, path)
