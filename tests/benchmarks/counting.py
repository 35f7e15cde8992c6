"""Servers in processes of their own: a destination that counts, and the barest application on uvicorn."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import uvicorn
from protocol import Http, Send

_RESPONSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
)
_Main: TypeAlias = Callable[[socket.socket, Connection], None]


class Destination:
    """A destination that responds to everything with 200 and counts it.

    Parameters
    ----------
    url : str
    pipe : Connection
        To its process: a number sent asks for a response once so many requests have come.
    """

    def __init__(self, url: str, pipe: Connection) -> None:
        self.url = url
        self._pipe = pipe
        self._expected = 0

    def wait_for(self, more: int) -> None:
        """Wait for this many requests more than before."""
        self._expected += more
        self._pipe.send(self._expected)
        if not self._pipe.poll(120):
            raise SystemExit(
                f"the destination did not get {more:,} messages within two minutes"
            )
        self._pipe.recv()


@contextmanager
def counting() -> Iterator[Destination]:
    """Run a counting destination."""
    with _process(_count) as (url, pipe):
        yield Destination(url, pipe)


@contextmanager
def bare_application() -> Iterator[str]:
    """Run uvicorn with an application that reads a body and responds; returns its base address."""
    with _process(_serve_bare) as (url, _):
        yield url


@contextmanager
def _process(main: _Main) -> Iterator[tuple[str, Connection]]:
    ours, theirs = multiprocessing.Pipe()
    # TCP by name: asyncio switches Nagle's delay off only then
    with socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    ) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        process = multiprocessing.get_context("spawn").Process(
            target=main, args=(listening, theirs)
        )
        process.start()
        port = listening.getsockname()[1]
    theirs.close()
    try:
        yield f"http://127.0.0.1:{port}", ours
    finally:
        ours.close()
        process.join(10)


def _count(listening: socket.socket, pipe: Connection) -> None:
    got = wanted = 0

    def stop() -> None:
        nonlocal wanted
        try:
            wanted = pipe.recv()
        except EOFError:
            loop.stop()
            return
        check()

    def check() -> None:
        nonlocal wanted
        if wanted and got >= wanted:
            wanted = 0
            pipe.send(got)

    def handle(_: str, __: bytes, send: Send) -> None:
        nonlocal got
        send(_RESPONSE)
        got += 1
        check()

    loop = asyncio.new_event_loop()
    loop.add_reader(pipe.fileno(), stop)
    server = loop.run_until_complete(
        loop.create_server(lambda: Http(handle), sock=listening)
    )
    loop.run_forever()
    server.close()


def _serve_bare(listening: socket.socket, pipe: Connection) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    config = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)

    async def main() -> None:
        asyncio.get_running_loop().add_reader(
            pipe.fileno(), lambda: setattr(server, "should_exit", True)
        )
        await server.serve(sockets=[listening])

    asyncio.run(main())
