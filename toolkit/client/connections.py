"""Connections that can be given a deadline for a whole answer, and ended from another thread.

The HTTP library's own read timeout is for one read: a server that sends a byte now and then would never meet
it. And a thread that waits for an answer waits, whatever happens elsewhere, unless its socket is shut down.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool


class Connections:
    """Every connection that a pool opens: what they may take, and how to end them all.

    Parameters
    ----------
    pool : urllib3.HTTPConnectionPool
        From now on, its connections are of this kind.
    monotonic : callable
        Clock, in seconds.
    """

    def __init__(self, pool: HTTPConnectionPool, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._current = threading.local()
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._ended = False
        pool.ConnectionCls = _kept_by(self, pool.ConnectionCls)

    def allow(self, seconds: float) -> None:
        """From now on, this thread's exchange may take so many seconds, head and body."""
        self._current.allowed, self._current.until = seconds, self._monotonic() + seconds

    @property
    def allowed(self) -> float:
        """Seconds this thread's exchange may take."""
        return float(self._current.allowed)

    @property
    def left(self) -> float:
        """Seconds that are left of them; raises `TimeoutError` when none are."""
        seconds = float(self._current.until - self._monotonic())
        if seconds <= 0:
            raise TimeoutError("the time for the whole answer is over")
        return seconds

    @property
    def overdue(self) -> bool:
        """Whether this thread's exchange has taken longer than it may."""
        return bool(self._monotonic() >= self._current.until)

    def keep(self, sock: socket.socket) -> None:
        """Remember a socket that was opened."""
        with self._lock:
            self._sockets.add(sock)
            ended = self._ended
        if ended:
            _shut_down(sock)

    def end(self) -> None:
        """Shut all sockets down: whoever waits on one gets an error at once."""
        with self._lock:
            self._ended = True
            sockets = list(self._sockets)
        for sock in sockets:
            _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    try:
        # not the TLS socket's own method, which takes its state from the thread that reads
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # closed, or never connected


def _kept_by(connections: Connections, kind: Any) -> Any:
    """The pool's kind of connection, with its sockets kept and its steps limited."""

    class Response(http.client.HTTPResponse):
        fp = None  # type: ignore[assignment] # one that an interrupt left half made is closed, too

        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
            super().__init__(_Source(sock, connections), *args, **options)  # type: ignore[arg-type]

    class Connection(kind):  # type: ignore[misc]
        response_class = Response

        def connect(self) -> None:
            super().connect()
            connections.keep(self.sock)

        def send(self, data: Any) -> None:
            if self.sock is not None:
                self.sock.settimeout(connections.left)
            super().send(data)

    return Connection


class _Source:
    """A socket as a response takes it: something that makes one file."""

    def __init__(self, sock: socket.socket, connections: Connections) -> None:
        self._sock = sock
        self._connections = connections

    def makefile(self, mode: Literal["rb"]) -> io.BufferedReader:
        raw = self._sock.makefile(mode, buffering=0)
        return io.BufferedReader(_Limited(raw, self._sock, self._connections))


class _Limited(io.RawIOBase):
    """What a socket gives, until the time for the whole answer is over."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, connections: Connections) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._connections = connections

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._connections.left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
