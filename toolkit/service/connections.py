"""Open connections with a deadline for the complete response, and decompress responses.

The read timeout of the HTTP library applies to one read: a server that sends one byte per second would never
reach it. A thread that reads from a socket only stops if the socket is shut down. The HTTP library also
accepts a gzip body without the trailer, so that truncated data would look complete. This module solves all
three.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

ACCEPTED: Final = "gzip, zstd"
"""Offered in ``Accept-Encoding``."""

# bytes that a decoder yields at once, however well they were compressed
_MOST: Final = 1 << 16
# bytes read from a socket at once: each call waits for the interpreter's lock
_BUFFER: Final = 1 << 16
_GZIP: Final = 16 + zlib.MAX_WBITS  # with header and trailer, as zlib counts it


class Connections:
    """The connections of a pool: each thread's exchange has a deadline, and all can be ended at once."""

    def __init__(
        self, pool: HTTPConnectionPool, monotonic: Callable[[], float]
    ) -> None:
        self._monotonic = monotonic
        self._current = threading.local()
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._ended = False
        pool.ConnectionCls = _limited_connection(self, pool.ConnectionCls)

    def set_deadline(self, seconds: float) -> None:
        """Set the deadline of this thread's next exchange, head and body."""
        self._current.allowed, self._current.until = (
            seconds,
            self._monotonic() + seconds,
        )

    @property
    def allowed(self) -> float:
        """Seconds of this thread's exchange."""
        return float(self._current.allowed)

    @property
    def left(self) -> float:
        """Seconds until the deadline; raises `TimeoutError` when it has passed."""
        seconds = float(self._current.until - self._monotonic())
        if seconds <= 0:
            raise TimeoutError("the deadline of the response has passed")

        return seconds

    @property
    def overdue(self) -> bool:
        """Return True if the deadline of the exchange of this thread has passed."""
        return bool(self._monotonic() >= self._current.until)

    def receive(self, response: http.client.HTTPResponse) -> None:
        """Register the response of this thread's exchange."""
        self._current.response = response

    def peek(self) -> bytes:
        """Return the first bytes of the body of this response, without consuming them."""
        return bytes(self._current.response.peek(1))

    def register(self, sock: socket.socket) -> None:
        """Register an open socket."""
        with self._lock:
            self._sockets.add(sock)
            # `end` may have run while this socket was being connected
            ended = self._ended

        if ended:
            _shut_down(sock)

    def end(self) -> None:
        """Shut all sockets down: threads that read from them get an error at once."""
        with self._lock:
            self._ended = True
            sockets = list(self._sockets)

        for sock in sockets:
            _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    try:
        # not the TLS socket's own method, which changes state that the reading thread uses
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # closed, or never connected


def _limited_connection(connections: Connections, kind: Any) -> Any:
    """Return a subclass of the connection of the pool.

    It registers the socket and applies the deadline to each step.
    """

    class LimitedResponse(http.client.HTTPResponse):
        # an interrupt may leave it half made, and it is closed nevertheless
        fp: Any = None

        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
            super().__init__(sock, *args, **options)
            self.fp = io.BufferedReader(
                _Limited(self.fp.detach(), sock, connections), _BUFFER
            )
            connections.receive(self)

    class Connection(kind):  # type: ignore[misc]
        response_class = LimitedResponse

        def connect(self) -> None:
            super().connect()
            connections.register(self.sock)

        def send(self, data: Any) -> None:
            if self.sock is not None:
                self.sock.settimeout(connections.left)
            super().send(data)

    return Connection


class _Limited(io.RawIOBase):
    """Reads from a socket until the deadline."""

    def __init__(
        self, raw: io.RawIOBase, sock: socket.socket, connections: Connections
    ) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._connections = connections

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        # a timeout applies to one read, so the rest of the time is set before each
        self._sock.settimeout(self._connections.left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class CorruptError(Exception):
    """The compressed bytes are truncated or damaged."""


class UnknownEncodingError(Exception):
    """An encoding that was not offered."""


def decoded(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the decoded body. Compressed bodies come in chunks of at most 64 KB."""
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return iter(chunks)
    if name not in _DECODERS:
        raise UnknownEncodingError(encoding)

    return _DECODERS[name](iter(chunks))


def _gunzipped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress one or more gzip members. zlib checks each against the trailer."""
    # Members and chunks end at different places, and a small chunk can decompress to gigabytes. A chunk is
    # decompressed in parts of at most `_MOST` bytes, and a new member may begin in the middle of a chunk:
    #
    #     chunks     |----------|----------|------|
    #     members    |------|------------------|--|
    #
    # `inside` is True from the first byte of a member to the trailer. If the body ends there, it is
    # truncated.
    member, inside = zlib.decompressobj(_GZIP), False
    for arrived in chunks:
        chunk = arrived
        while True:
            inside = inside or bool(chunk)
            try:
                data = member.decompress(chunk, _MOST)
            except zlib.error as error:
                raise CorruptError(str(error)) from None

            if data:
                yield data
            if member.eof:
                chunk = member.unused_data
                member, inside = zlib.decompressobj(_GZIP), False
                if not chunk:
                    break
            else:
                chunk = member.unconsumed_tail
                # a full chunk may be followed by more, although all input was consumed
                if not chunk and len(data) < _MOST:
                    break

    if inside:
        raise CorruptError("gzip without its trailer")


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress one or more zstd frames."""
    stream = pa.CompressedInputStream(pa.PythonFile(_File(chunks), mode="r"), "zstd")
    while True:
        try:
            data = stream.read(_MOST)
        except pa.ArrowException as error:
            raise CorruptError(str(error)) from None
        except OSError as error:
            # Arrow's own; the chunks raise no bare OSError
            if type(error) is not OSError:
                raise
            raise CorruptError(str(error)) from None

        if not data:
            return
        yield data


class _File:
    """The chunks as a file for Arrow."""

    closed = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        data, self._rest = self._rest[:size], self._rest[size:]
        return bytes(data)

    def close(self) -> None:
        """Nothing to close: the connection is the transport's."""


_DECODERS: Final[dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]]] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "zstd": _unzstd,
}
