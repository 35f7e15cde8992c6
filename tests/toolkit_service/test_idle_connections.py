"""Thousands of idle or slow connections do not block the embedded service."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit_service.demo.local_service import LocalService

FILES = 1024  # what a shell usually allows a process
SOCKETS = 3000
SENT = {
    "nothing": b"",
    "a part of a head": b"GET / HTTP/1.1\r\nHost:",
    "no token": b"POST /v2/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nx",
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    """A service that may open 1,024 files, and more of them for this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < SOCKETS + 500:
        pytest.fail(
            f"needs a hard limit of {SOCKETS + 500} open files; got {before[1]}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, before[1]))
    try:
        with LocalService(tmp_path / "data") as running:
            resource.setrlimit(resource.RLIMIT_NOFILE, (SOCKETS + 500, before[1]))
            yield running
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def open_files(service: LocalService) -> int:
    """Files and sockets that the service has open."""
    return len([*Path(f"/proc/{service.pid}/fd").iterdir()])


def ask(service: LocalService) -> float:
    """Seconds of an authenticated request over a new connection."""
    begun = time.monotonic()
    host = service.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request(
        "GET", "/v2/dlq", headers={"Authorization": f"Bearer {service.token}"}
    )
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["messages"]) == (200, [])
    connection.close()
    return time.monotonic() - begun


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_idle_connections_are_closed_for_new_ones(
    service: LocalService, sent: bytes
) -> None:
    """With 1,024 files and 3,000 idle sockets each authenticated request is served; then all are closed."""
    ask(service)
    files = open_files(service)
    address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    idle: list[socket.socket] = []
    try:
        for number in range(SOCKETS):
            connection = socket.create_connection(address, timeout=10)
            idle.append(connection)
            if sent:
                connection.send(sent)
            if number % 500 == 499:
                assert ask(service) < 3
        for _ in range(20):
            assert ask(service) < 3
        assert open_files(service) < FILES // 2
    finally:
        for connection in idle:
            connection.close()
    assert ask(service) < 3
    deadline = time.monotonic() + 60
    while open_files(service) > files + 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert open_files(service) <= files + 5


def test_authenticated_connections_are_not_closed(service: LocalService) -> None:
    """An authenticated connection stays usable while others are opened and closed."""
    host = service.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.connect()
    first, idle = connection.sock, list[socket.socket]()
    try:
        for _ in range(4):
            connection.request(
                "GET", "/v2/dlq", headers={"Authorization": f"Bearer {service.token}"}
            )
            assert connection.getresponse().read()
            assert connection.sock is first
            port = int(service.url.rpartition(":")[2])
            idle += [
                socket.create_connection(("127.0.0.1", port), timeout=10)
                for _ in range(400)
            ]
    finally:
        connection.close()
        for item in idle:
            item.close()


@pytest.mark.slow
def test_a_connection_that_says_nothing_is_closed(service: LocalService) -> None:
    """Within ten seconds, whatever the request timeout, and without a response."""
    port = int(service.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
        begun = time.monotonic()
        assert connection.recv(1) == b""
        assert 9 < time.monotonic() - begun < 13
