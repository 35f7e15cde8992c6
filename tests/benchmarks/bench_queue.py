"""Messages a second through the embedded queue, beside what the same machine does without it.

    .venv/bin/python tests/benchmarks/bench_queue.py [--messages 2000] [--rounds 3]

Every round measures the floors and the queue one after the other, so the ratios hold whatever the machine's
speed. Published means acknowledged, so on disk; delivered means that a destination in another process has it.

Floors: the same client against an application that only reads and responds (bare uvicorn); commits of one
message-sized row, each flushed to disk (bare SQLite); the same client, and httpx, against the destination
itself, one request a message.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from counting import Destination, bare_application, counting

from toolkit_service.demo.local_service import LocalService

BODY = json.dumps({"order": 4711, "note": "x" * 200}).encode()
CONNECTIONS = 16
BATCH = 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--messages", type=int, default=2000, help="a measurement; a multiple of 100"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    count = options.messages
    with (
        counting() as destination,
        bare_application() as bare,
        LocalService() as service,
    ):
        ways = _ways(destination, bare, service, count)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                done = way()
                rates[name].append(done / (time.perf_counter() - start))
    print(
        f"{count:,} messages of {len(BODY)} bytes, medians of {options.rounds} rounds"
    )
    for name, found in rates.items():
        print(f"{name:<58}{statistics.median(found):9,.0f} a second")
    for name, floor in RATIOS:
        ratio = statistics.median(
            ours / bare for ours, bare in zip(rates[name], rates[floor], strict=True)
        )
        print(f"{ratio:6.2f}  {name} / {floor}")


BARE_ONE = "bare uvicorn, one connection"
BARE_MANY = f"bare uvicorn, {CONNECTIONS} connections"
COMMITS = "bare SQLite, a flushed commit a message"
DIRECT = f"straight to the destination, {CONNECTIONS} connections"
HTTPX = f"straight to the destination with httpx, {CONNECTIONS} at once"
PUBLISH_ONE = "published one by one, one connection"
PUBLISH_MANY = f"published one by one, {CONNECTIONS} connections"
PUBLISH_BATCH = f"published in batches of {BATCH}, one connection"
END_TO_END = f"published one by one and delivered, {CONNECTIONS} connections"
END_TO_END_BATCH = f"published in batches of {BATCH} and delivered"
RATIOS = (
    (PUBLISH_ONE, BARE_ONE),
    (PUBLISH_MANY, BARE_MANY),
    (PUBLISH_MANY, COMMITS),
    (PUBLISH_BATCH, COMMITS),
    (END_TO_END, BARE_MANY),
    (END_TO_END_BATCH, BARE_MANY),
    (END_TO_END_BATCH, HTTPX),
)


def _ways(
    destination: Destination, bare: str, service: LocalService, count: int
) -> dict[str, Callable[[], int]]:
    token = {
        "Authorization": f"Bearer {service.token}",
        "Content-Type": "application/json",
    }
    # held back for a day: publishing alone
    held, at_once = {**token, "Service-Delay": "1d"}, token
    publish, batch = (
        f"{service.url}/v2/publish/{destination.url}/a",
        f"{service.url}/v2/batch",
    )

    def items(**headers: str) -> bytes:
        item = {
            "destination": f"{destination.url}/a",
            "body": BODY.decode(),
            "headers": headers,
        }
        return json.dumps([item] * BATCH).encode()

    def batches(**headers: str) -> int:
        return BATCH * post(batch, token, items(**headers), count // BATCH, 1)

    def delivered(published: int) -> int:
        destination.wait_for(count)
        return published

    return {
        BARE_ONE: lambda: post(f"{bare}/a", token, BODY, count, 1),
        BARE_MANY: lambda: post(f"{bare}/a", token, BODY, count, CONNECTIONS),
        COMMITS: lambda: commit(count),
        DIRECT: lambda: delivered(
            post(f"{destination.url}/a", at_once, BODY, count, CONNECTIONS)
        ),
        HTTPX: lambda: delivered(post_with_httpx(f"{destination.url}/a", count)),
        PUBLISH_ONE: lambda: post(publish, held, BODY, count, 1),
        PUBLISH_MANY: lambda: post(publish, held, BODY, count, CONNECTIONS),
        PUBLISH_BATCH: lambda: batches(**{"Service-Delay": "1d"}),
        END_TO_END: lambda: delivered(post(publish, at_once, BODY, count, CONNECTIONS)),
        END_TO_END_BATCH: lambda: delivered(batches()),
    }


def commit(count: int) -> int:
    """Commit rows of a message's size one by one, each flushed to disk as the queue does."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "bare.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE bare (seq INTEGER PRIMARY KEY, body BLOB)")
        for _ in range(count):
            connection.execute("INSERT INTO bare (body) VALUES (?)", (BODY,))
        connection.close()
    return count


def post_with_httpx(url: str, count: int) -> int:
    """Post as an application would that delivers by itself, without anything on disk; returns `count`."""
    left = iter(range(count))

    async def caller(client: httpx.AsyncClient) -> None:
        for _ in left:
            (await client.post(url, content=BODY)).raise_for_status()

    async def callers() -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # noqa: S501 - nothing is TLS
            await asyncio.gather(*(caller(client) for _ in range(CONNECTIONS)))

    asyncio.run(callers())
    return count


def post(
    url: str, headers: dict[str, str], body: bytes, count: int, connections: int
) -> int:
    """Post a request `count` times over some connections, each waiting for its response; returns `count`."""
    parts = urlsplit(url)
    lines = [
        f"POST {url.removeprefix(f'{parts.scheme}://{parts.netloc}')} HTTP/1.1",
        f"Host: {parts.netloc}",
    ]
    lines += [
        f"{name}: {value}"
        for name, value in {**headers, "Content-Length": str(len(body))}.items()
    ]
    request = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    left = iter(range(count))

    async def caller() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for _ in left:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                raise SystemExit(f"{url} responded {head[:60]!r}")
            _, _, after = head.lower().partition(b"content-length:")
            await reader.readexactly(int(after.partition(b"\r\n")[0]))
        writer.close()
        await writer.wait_closed()

    async def callers() -> None:
        await asyncio.gather(*(caller() for _ in range(connections)))

    asyncio.run(callers())
    return count


if __name__ == "__main__":
    main()
