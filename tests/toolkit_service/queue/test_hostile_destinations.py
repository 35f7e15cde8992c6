"""A destination with any response at all: each message is delivered as often as allowed, and no more."""

from __future__ import annotations

import re
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolkit_service.demo.local_service import LocalService

pytestmark = pytest.mark.slow

Service = Any
Server = Any

WAITS = [
    "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
    "Mon, 01 Jan 2024 00:00:00 -99999999999999999999",
    "Fri, 31 Dec 9999 23:59:59 -9999",
    "Mon, 01 Jan 0001 00:00:00 +9999",
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    "Mon, 99 Jan 2024 99:99:99 GMT",
    "Mon, 01 Jan 2024",
    ", , , ,",
    *(
        "9" * 12,
        "9" * 400,
        "9" * 5000,
        "-1",
        "-" + "9" * 5000,
        "1e9",
        "1e999",
        "0.5",
        "5.",
    ),
    *(
        "inf",
        "-inf",
        "nan",
        "NaN",
        "soon",
        "\xb2",
        "9" * 9 + "d",
        "9" * 400 + "d",
        "6M5S",
        "",
        " ",
    ),
]
EMPTY = "Content-Length: 0\r\nConnection: close"
ANSWERS = {
    **{
        f"/{name}/{number}": f"HTTP/1.1 429 Wait\r\n{name}: {value}\r\n{EMPTY}\r\n\r\n"
        for name in [
            "Retry-After",
            *(f"X-RateLimit-Reset{of}" for of in ("", "-Requests", "-Tokens")),
        ]
        for number, value in enumerate(WAITS)
    },
    **{
        f"/framing/{number}": f"HTTP/1.1 {head}\r\n\r\n"
        for number, head in enumerate(
            [
                "200 OK\r\nContent-Length: " + "9" * 5000,
                "200 OK\r\nContent-Length: -1",
                "200 OK\r\nContent-Length: 1\r\nContent-Length: 2",
                "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + "f" * 5000,
                "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1",
                "200 OK\r\nTransfer-Encoding: gzip, chunked",
                "101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade",
                "000 Nothing",
                "999 Much",
                "99999999 More",
                "500 \x00",
                "500 Much\r\nX: " + "x" * 200_000,
                "500 Date\r\n"
                + EMPTY
                + "\r\nDate: Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
                "489 Never\r\n"
                + EMPTY
                + "\r\nService-NonRetryable-Error: "
                + "true" * 2000,
                "500 Latin\r\n" + EMPTY + "\r\nX: \xff\xfe\x80",
            ]
        )
    },
}


class Destination(socketserver.ThreadingTCPServer):
    """Responds to each path with its own bytes, and counts the requests."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        super().__init__(("127.0.0.1", 0), _Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            piece = self.request.recv(65_536)
            if not piece:
                return
            request += piece
        path = request.split(b" ", 2)[1].decode()
        self.server.requests[path] += 1
        self.request.sendall(ANSWERS[path].encode("latin-1"))


@pytest.fixture
def destination() -> Iterator[Destination]:
    """A hostile destination, listening."""
    with Destination() as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def listed(http: httpx.Client) -> list[str]:
    """The paths of all entries of the DLQ."""
    actual: list[str] = []
    cursor = ""
    while True:
        page = http.get(
            "/v2/dlq",
            params={"count": 100, "cursor": cursor} if cursor else {"count": 100},
        ).json()
        actual += [
            re.sub("^http://[^/]*", "", entry["url"]) for entry in page["messages"]
        ]
        cursor = page.get("cursor", "")
        if not cursor:
            return actual


def wait_for(http: httpx.Client, count: int) -> list[str]:
    """The DLQ once it holds so many entries, or after 20 s."""
    deadline = time.monotonic() + 20
    while len(actual := listed(http)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return actual


def client(service: LocalService) -> httpx.Client:
    """A client with the service's token."""
    return httpx.Client(
        base_url=service.url,
        headers={"Authorization": f"Bearer {service.token}"},
        timeout=10,
    )


def test_retries_are_finite_for_any_response_of_a_destination(
    tmp_path: Path, destination: Destination
) -> None:
    """Each response is a failed attempt: two deliveries and a DLQ entry each, and no more after a restart."""
    service = LocalService(tmp_path / "data", time_factor=1e6, indexes=[])
    with service, client(service) as http:
        for path in ANSWERS:
            response = http.post(
                f"/v2/publish/{destination.url}{path}", headers={"Service-Retries": "1"}
            )
            assert response.status_code == 200
        actual = wait_for(http, len(ANSWERS))
        assert sorted(actual) == sorted(ANSWERS)
        assert {
            path: received
            for path, received in destination.requests.items()
            if received != 2
        } == {}
        service.kill()
        service.start()
        with client(service) as again:
            assert len(listed(again)) == len(ANSWERS)
            time.sleep(0.3)
        assert destination.requests.total() == 2 * len(ANSWERS)


def test_a_try_counts_also_when_the_service_is_killed_meanwhile(
    tmp_path: Path, destination: Destination
) -> None:
    """Killed while an impossible date is retried, the message has its attempts once, and ends."""
    path = "/Retry-After/0"
    service = LocalService(tmp_path / "data", time_factor=1e3, indexes=[])
    with service:
        with client(service) as http:
            http.post(
                f"/v2/publish/{destination.url}{path}",
                headers={"Service-Retries": "3", "Service-Retry-Delay": "400000"},
            )
            deadline = time.monotonic() + 60
            while destination.requests[path] < 2 and time.monotonic() < deadline:
                time.sleep(0.005)
        time.sleep(0.1)  # for the second try to be recorded
        service.kill()
        service.start()
        with client(service) as http:
            assert wait_for(http, 1) == [path]
    # one that is not recorded when the kill comes is sent again
    assert destination.requests[path] in (
        4,
        5,
    )


def test_a_try_that_cannot_be_settled_with_its_reports_is_settled_without(
    service: Service, server: Server
) -> None:
    """When the database rejects a callback, failed attempts count and the message ends in the DLQ."""
    server.always(b"oops", 500)
    message = service.publish(
        f"{server.url}/", Delay="1h", Retries="2", Callback=f"{server.url}/callback"
    )
    service.store.database.submit(
        lambda connection: connection.execute(
            "CREATE TRIGGER nothing_more BEFORE INSERT ON messages "
            "BEGIN SELECT RAISE(ABORT, 'no callbacks here'); END"
        )
    ).result()
    (entry,) = service.run_out(service.dlq)
    assert entry["messageId"] == message["messageId"]
    assert "could not be recorded (IntegrityError)" in entry["responseBody"]
    assert [received.headers["Retried"] for received in server.requests] == [
        "0",
        "1",
        "2",
    ]
