"""A server of pre-rendered pages in a process of its own: what is measured is the reader, not the service."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from urllib.parse import parse_qs, urlsplit


@contextmanager
def replaying(pages: Mapping[str, bytes]) -> Iterator[str]:
    """Serve one page a cursor ("" is the first) on loopback; gives the base address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(dict(pages), theirs))
    process.start()
    theirs.close()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        ours.close()
        process.join(10)


def _serve(pages: dict[str, bytes], pipe: Connection) -> None:
    heads = {
        cursor: b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(page)
        for cursor, page in pages.items()
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            query = parse_qs(urlsplit(line.split()[1].decode()).query)
            cursor = query.get("cursor", [""])[0]
            writer.write(heads[cursor] + pages[cursor])
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        # recv raises once the parent has closed its end
        await asyncio.get_running_loop().run_in_executor(None, _wait_for_end, pipe)
        server.close()

    asyncio.run(main())


def _wait_for_end(pipe: Connection) -> None:
    try:
        pipe.recv()
    except EOFError:
        return
