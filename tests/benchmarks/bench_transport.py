"""What a request costs: the transport beside requests' own session, and beside the standard library.

    .venv/bin/python tests/benchmarks/bench_transport.py [--entries 500] [--rounds 9] [--quick]

So many pages of 100 entries, one after the other over one connection; and CPU seconds, which a busy machine
does not stretch.
"""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import requests
from listings import TOKEN, listing
from measuring import against, in_turns, options
from replay import replaying

import toolkit as tk
from toolkit.service.transport import Request, Transport

PATH = "/v2/workflows/dlq"


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__, entries=500, quick=100, rounds=9)
    print(
        f"one request after the other: {chosen.entries:,} pages, {chosen.rounds} rounds"
    )
    cpu: dict[str, list[float]] = {}
    with replaying(listing(100)) as server:
        service = tk.connect(queue_url=server.url, queue_token=TOKEN)
        plain = http.client.HTTPConnection(urlsplit(server.url).netloc)
        request = Request(
            doing="reading", method="GET", path=PATH, query=(("count", "100"),)
        )
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with Transport.to(service, "queue") as door, requests.Session() as session:
            session.headers.update(headers)

            def standard() -> None:
                plain.request("GET", f"{PATH}?count=100", headers=headers)
                plain.getresponse().read()

            asking: dict[str, Callable[[], object]] = {
                "http.client": standard,
                "requests.Session": lambda: (
                    session.get(
                        f"{server.url}{PATH}", params={"count": 100}, timeout=60
                    ).content
                ),
                "Transport": lambda: door.send(request),
            }

            def counted(name: str) -> Callable[[], int]:
                def run() -> int:
                    start = time.process_time()
                    for _ in range(chosen.entries):
                        asking[name]()
                    cpu.setdefault(name, []).append(time.process_time() - start)
                    return chosen.entries

                return run

            in_turns(
                {name: counted(name) for name in asking}, chosen.rounds, chosen.entries
            )
        plain.close()
    a_request = {
        name: 1e6 * statistics.median(taken) / chosen.entries
        for name, taken in cpu.items()
    }
    print(
        "  CPU a request: "
        + ", ".join(f"{name} {taken:.0f} us" for name, taken in a_request.items())
    )
    against(
        "CPU of Transport / requests.Session",
        a_request["Transport"] / a_request["requests.Session"],
        at_most=0.6,
    )
    print(
        f"  CPU of Transport / http.client {a_request['Transport'] / a_request['http.client']:.2f}"
    )


if __name__ == "__main__":
    main()
