"""A server on loopback that writes its responses byte by byte, so that it can damage any of them."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

_RESET = struct.pack("ii", 1, 0)  # close at once, with a reset
_BACKLOG = 128


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Exchange:
    """A response in progress: what faults change before it is written.

    Attributes
    ----------
    coding : str
        "", "gzip", "members" (two of them), a spoilt one ("corrupt", "crc", "trailer"), "zstd", "zstd cut".
    stop : float or None
        The share of the response's bytes after which it stops: of the head below 0 (-1 is its first byte), of
        the body from 0.
    reset : bool
        Whether it stops with a reset; else the connection is closed in order.
    dawdle : callable or None
        Called in the middle of the body.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    coding: str = ""
    chunked: bool = False
    stop: float | None = None
    reset: bool = False
    surplus: int = 0
    dawdle: Callable[[], None] | None = None
    close: bool = False


class Server:
    """Listens for as long as the process lives; `respond` is what it says at the time."""

    def __init__(self) -> None:
        self.respond: Callable[[Request], Exchange] = lambda _: Exchange(status=404)
        # keeps the port ours while nobody listens on it
        self._keeper = _bound(0)
        self.port = self._keeper.getsockname()[1]
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.listen()

    def listen(self) -> None:
        """Accept connections."""
        with self._lock:
            if self._listener is None:
                self._listener = _bound(self.port)
                self._listener.listen(_BACKLOG)
                threading.Thread(
                    target=self._accept, args=(self._listener,), daemon=True
                ).start()

    def refuse(self, until: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Refuse connections, and drop the open ones; `until` receives a function that accepts them again."""
        with self._lock:
            if until is not None:
                until(self.listen)  # waits for the lock, however early it is called
            listener, self._listener = self._listener, None
            dropped, self._open = self._open, set()
            if listener is not None:
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
                listener.close()
        for connection in dropped:
            _reset(connection)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            left = b""
            while True:
                request, left = _read(connection, left)
                if request is None or not _write(connection, self.respond(request)):
                    break
        with self._lock:
            self._open.discard(connection)


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RD)
    connection.close()


def _read(connection: socket.socket, left: bytes) -> tuple[Request | None, bytes]:
    while (end := left.find(b"\r\n\r\n")) < 0:
        piece = connection.recv(65536)
        if not piece:
            return None, b""
        left += piece
    first, *lines = left[:end].decode("latin-1").split("\r\n")
    left = left[end + 4 :]
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in lines)
    }
    length = int(headers.get("content-length", 0))
    while len(left) < length:
        piece = connection.recv(65536)
        if not piece:
            return None, b""
        left += piece
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    return Request(method, path, query, headers, left[:length]), left[length:]


def _write(connection: socket.socket, exchange: Exchange) -> bool:
    """Write the response; whether the connection can be kept."""
    body = _coded(exchange.body, exchange.coding)
    headers: dict[str, Any] = {"Content-Type": "application/json", **exchange.headers}
    if exchange.coding:
        headers["Content-Encoding"] = (
            "zstd" if exchange.coding.startswith("zstd") else "gzip"
        )
    if exchange.chunked:
        headers["Transfer-Encoding"] = "chunked"
        third = len(body) // 3 + 1
        pieces = [body[start : start + third] for start in range(0, len(body), third)]
        body = b"".join(
            f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in (*pieces, b"")
        )
    elif not exchange.close:
        headers["Content-Length"] = len(body) + exchange.surplus
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {exchange.status} Whatever\r\n{lines}\r\n".encode("latin-1")
    if exchange.stop is not None:
        if exchange.stop < 0:
            sent = head[: int(len(head) * (1 + exchange.stop))]
        else:
            sent = head + body[: int(len(body) * exchange.stop)]
        connection.sendall(sent)
        if exchange.reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return False
    if exchange.dawdle is not None:
        middle = len(body) // 2
        connection.sendall(head + body[:middle])
        exchange.dawdle()
        connection.sendall(body[middle:])
    else:
        connection.sendall(head + body)
    return not (exchange.surplus or exchange.close)


def _coded(body: bytes, coding: str) -> bytes:
    if not coding:
        return body
    if coding.startswith("zstd"):
        packed = pa.Codec("zstd").compress(body, asbytes=True)
        return packed[:-3] if coding == "zstd cut" else packed
    if coding == "members":
        middle = len(body) // 2
        return gzip.compress(body[:middle], 1) + gzip.compress(body[middle:], 1)
    packed = gzip.compress(body, 1)
    if coding == "corrupt":
        middle = len(packed) // 2
        return (
            packed[:middle]
            + bytes(255 - byte for byte in packed[middle : middle + 4])
            + packed[middle + 4 :]
        )
    if coding == "crc":
        return packed[:-8] + struct.pack("<II", zlib.crc32(body) ^ 1, len(body))
    return packed[:-8] if coding == "trailer" else packed
