"""Let 200 callers read and write an embedded service at once, and compare its memory with that before.

    .venv/bin/python tests/soak/service_memory.py [--clients 200] [--seconds 20] [--most 200]

The callers publish messages, list the DLQ and the events, put in text, search, and read pages of vectors,
each over a connection that stays open. The exit status is 0 if the service has grown by at most `--most` MB
once all is quiet. Resident memory is read from ``/proc``: Linux alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from toolkit_service.demo.local_service import LocalService

QUIET = 2.0  # seconds after the last response
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ROWS = 20  # put in per request


def requests_of(caller: int, number: int) -> tuple[str, str, bytes]:
    """The request that a caller sends next: method, path and body."""
    text = json.dumps({"data": f"hello {number}", "topK": 100, "includeVectors": True})
    rows = json.dumps(
        [{"id": f"{caller}-{row}", "data": f"hello {row}"} for row in range(_ROWS)]
    )
    page = json.dumps({"cursor": "0", "limit": 1000, "includeVectors": True})
    kinds = (
        ("POST", "/vector/docs/query-data", text),
        ("POST", "/vector/docs/range", page),
        ("POST", "/vector/docs/upsert-data", rows),
        ("GET", "/v2/dlq?count=100", ""),
        ("GET", "/v2/logs?count=100", ""),
        ("POST", "/v2/publish/http://127.0.0.1:9/nobody", "x" * 10_000),
    )
    method, path, body = kinds[caller % len(kinds)]
    return method, path, body.encode()


async def call(
    port: int, token: str, caller: int, until: float, statuses: Counter[int]
) -> None:
    """Send requests over one connection until a time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.monotonic() < until:
        method, path, body = requests_of(caller, number)
        lines = (
            f"{method} {path} HTTP/1.1",
            "host: 127.0.0.1",
            f"authorization: Bearer {token}",
            f"content-length: {len(body)}",
            "service-delay: 1h",
        )
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode() + body)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        await reader.readexactly(int(length[1]) if length else 0)
        statuses[int(head[9:12])] += 1
        number += 1
    writer.close()


def resident_mb(process: int) -> float:
    """Memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


async def load(service: LocalService, clients: int, seconds: float) -> Counter[int]:
    """Let so many callers work; returns how many responses had which status."""
    statuses, until = Counter[int](), time.monotonic() + seconds
    port = int(service.url.rpartition(":")[2])
    await asyncio.gather(
        *(
            call(port, service.token, caller, until, statuses)
            for caller in range(clients)
        )
    )
    await asyncio.sleep(QUIET)
    return statuses


def main() -> int:
    """Load the service, and print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--clients", type=int, default=200, help="callers at once (200)"
    )
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long they work (20)"
    )
    parser.add_argument(
        "--most", type=float, default=200, help="MB that the service may grow by (200)"
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalService(Path(folder), sample=True) as service,
    ):
        before = resident_mb(service.pid)
        statuses = asyncio.run(load(service, options.clients, options.seconds))
        after = resident_mb(service.pid)
    grown = after - before
    wrong = grown > options.most or set(statuses) - {200}
    sys.stdout.write(
        f"{options.clients} callers, {statuses.total():,} requests in {options.seconds:g} s, statuses "
        f"{dict(statuses)}: {before:.0f} MB before, {after:.0f} MB after, grown by {grown:.0f} MB\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
