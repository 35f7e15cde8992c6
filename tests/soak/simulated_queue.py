"""A dead letter queue of two accounts at one address that keeps failures for three days of simulated time."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

RETENTION: Final = timedelta(days=3)
OTHER_ACCOUNT: Final = "token-of-another-account"
_OTHER_ENTRIES: Final = 40


@dataclass(frozen=True)
class Failure:
    """An entry of the queue."""

    number: int
    time: datetime
    text: str

    def row(self, account: str) -> dict[str, Any]:
        """Return the entry as the queue lists it."""
        return {
            "dlqId": f"{account}-{self.number}",
            "url": "https://shop.example/pay",
            "workflowUrl": "https://shop.example/pay",
            "workflowRunId": f"wfr_{account}_{self.number}",
            "createdAt": round(self.time.timestamp() * 1000),
            "responseStatus": 500,
            "responseBody": self.text,
        }


@dataclass
class SimulatedQueue:
    """What the queue has at a time, and which token is valid.

    Attributes
    ----------
    failures : sequence of Failure
        Those of all times, the earliest first.
    time : datetime
        The time by a clock that is right.
    token : str
        The valid token of the account. `OTHER_ACCOUNT` is always valid, and that of another account.
    """

    failures: Sequence[Failure]
    time: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    token: str = ""
    url: str = field(default="", init=False)

    def answer(self, token: str, first: int, last: int) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of a response to a listing, for times in ms."""
        if token == OTHER_ACCOUNT:
            entries = [
                Failure(
                    number, self.time - timedelta(hours=number), "mail server is down"
                ).row("other")
                for number in range(1, _OTHER_ENTRIES + 1)
            ]
        elif token == self.token:
            entries = [failure.row("ours") for failure in self._kept()]
        else:
            return 401, {"error": "invalid token"}
        return 200, {
            "messages": [
                entry for entry in entries if first <= entry["createdAt"] <= last
            ]
        }

    def _kept(self) -> Sequence[Failure]:
        times = [failure.time for failure in self.failures]
        oldest, newest = (
            bisect_right(times, self.time - RETENTION),
            bisect_right(times, self.time),
        )
        return self.failures[oldest:newest]


@contextmanager
def listening(queue: SimulatedQueue) -> Iterator[None]:
    """Serve the queue at `queue.url` for a while; again at the same port if it was served before."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            first = int(query.get("fromDate", ["0"])[0])
            last = int(query.get("toDate", [str(2**60)])[0])
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            status, content = queue.answer(token, first, last)
            body = json.dumps(content).encode()
            # without a date, which would be that of the real clock
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    port = urlsplit(queue.url).port or 0
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    queue.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
