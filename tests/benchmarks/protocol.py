"""The little of HTTP/1.1 that well-behaved clients need of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Send = Callable[[bytes], None]
"""Sends a response's bytes, now or later, unless the client has disconnected."""


class Http(asyncio.Protocol):
    """Hands on each request with a Content-Length or without a body.

    Parameters
    ----------
    take : callable
        Called with the request's target, its body and a function that sends the response.
    """

    def __init__(self, handle: Callable[[str, bytes, Send], None]) -> None:
        self._handle = handle
        self._held = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport that responses are written to."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand on what is whole by now."""
        self._held += data
        while True:
            head, found, rest = self._held.partition(b"\r\n\r\n")
            if not found:
                return
            _, _, after = head.lower().partition(b"content-length:")
            length = int(after.partition(b"\r\n")[0] or 0)
            if len(rest) < length:
                return
            body, self._held = rest[:length], rest[length:]
            self._handle(head.split(b" ", 2)[1].decode(), body, self._respond)

    def _respond(self, response: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(response)
