"""What strangers can cost a receiver, in connections, threads, time and memory, measured in a child."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

import toolkit as tk

pytestmark = pytest.mark.slow

KEYS = ("sig_current_" + "a" * 32, "sig_next_" + "b" * 32)
MB = 1024 * 1024
SOCKETS = 4000
LARGE = 15 * MB


class Receiving:
    """A receiver in a child process that may open 1,024 files."""

    def __init__(self, *keys: str) -> None:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        try:
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name("receiving_process.py")),
                    *keys,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        self.url = self._child.stdout.readline().strip()
        self.port = int(self.url.split("/")[2].rpartition(":")[2])

    def used(self, *, clear: bool = False) -> dict[str, float]:
        """What it uses now, its peak of resident memory in bytes, and its seconds of processor time."""
        self._child.stdin.write("clear\n" if clear else "\n")
        self._child.stdin.flush()
        return json.loads(self._child.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._child.stdin.close()
        assert self._child.wait(20) == 0
        self._child.stdout.close()


@pytest.fixture
def signed() -> Iterator[Receiving]:
    """A receiver that knows its signing keys."""
    result = Receiving(*KEYS)
    yield result
    result.close()


@pytest.fixture
def unsigned() -> Iterator[Receiving]:
    """A receiver that accepts everything."""
    result = Receiving()
    yield result
    result.close()


def head(length: int) -> bytes:
    """The head of a callback with a body of this length."""
    return b"POST /callbacks HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length


def connect(receiver: Receiving) -> socket.socket:
    """A connection to it."""
    return socket.create_connection(("127.0.0.1", receiver.port), timeout=10)


def stalled(receiver: Receiving, body: bytes, length: int) -> socket.socket:
    """A connection over which as much of a body was sent as was accepted in half a second."""
    connection = connect(receiver)
    connection.settimeout(0.5)
    with contextlib.suppress(TimeoutError, ConnectionError):
        connection.sendall(head(length) + body)
    return connection


def callback(receiver: Receiving, number: int = 1) -> int:
    """The status for one honest callback."""
    body = {"sourceMessageId": f"msg_{number}", "status": 200}
    return requests.post(receiver.url, json=body, timeout=10).status_code


def test_idle_sockets_cost_neither_threads_nor_files(unsigned: Receiving) -> None:
    """With 4,000 of them and 1,024 files, callbacks are accepted by one thread, then and afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOCKETS + 500, before[1]))
    idle: list[socket.socket] = []
    try:
        for number in range(SOCKETS):
            idle.append(connect(unsigned))
            if number % 1000 == 999:
                assert callback(unsigned, number) == 200
        used = unsigned.used()
        assert used["threads"] == 2
        assert used["files"] < 300
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert callback(unsigned) == 200
    time.sleep(0.5)
    used = unsigned.used()
    assert used["files"] < 30
    assert used["received"] == SOCKETS // 1000 + 1


def test_unsigned_bodies_are_refused_unread(signed: Receiving) -> None:
    """120 bodies of 15 MB without a signature cost a few megabytes, and each response says why."""
    before = signed.used()["peak"]

    def send(_: int) -> int:
        with connect(signed) as connection:
            connection.sendall(head(LARGE))
            response = connection.recv(100)
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection.sendall(b"x" * LARGE)
            return int(response.split()[1])

    with ThreadPoolExecutor(24) as senders:
        assert set(senders.map(send, range(120))) == {401}
    used = signed.used()
    assert used["peak"] - before < 48 * MB
    assert used["refused"] == 120


def test_tiny_chunks_cost_little(unsigned: Receiving) -> None:
    """Of 60 bodies in 200,000 chunks of a byte, which are refused, only the first kilobytes are parsed."""
    tiny = (
        b"POST /callbacks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\nx\r\n" * 200_000
    )
    before = unsigned.used()["cpu"]

    def send(_: int) -> None:
        with (
            connect(unsigned) as connection,
            contextlib.suppress(TimeoutError, ConnectionError),
        ):
            connection.settimeout(1)
            connection.sendall(tiny)

    with ThreadPoolExecutor(20) as senders:
        list(senders.map(send, range(60)))
    assert callback(unsigned) == 200
    # 7 where each is read as far as the system has it
    assert unsigned.used()["cpu"] - before < 3


def test_bodies_that_arrive_share_64_megabytes(unsigned: Receiving) -> None:
    """Of 120 senders that stop before the end of 15 MB few may send; a small callback passes them."""
    before = unsigned.used()["peak"]
    body = b"x" * (LARGE - 1)
    with ThreadPoolExecutor(40) as senders:
        waiting = list(
            senders.map(lambda _: stalled(unsigned, body, LARGE), range(120))
        )
    assert callback(unsigned) == 200
    used = unsigned.used()
    assert used["peak"] - before < 96 * MB
    assert used["turned away"] == 120 - 2 - 64  # two may send, 64 may wait
    for connection in waiting:
        connection.close()
    assert (
        requests.post(unsigned.url, data=b"{}" + b" " * LARGE, timeout=20).status_code
        == 200
    )


# the bodies are made by their test: the collection of tests would make them in each worker
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (lambda: b'{"a":[' + b"[]," * (LARGE // 3) + b"[]]}", 200),
        (
            lambda: (
                b"{"
                + b",".join(b'"%d":0' % number for number in range(LARGE // 11))
                + b"}"
            ),
            200,
        ),
        (lambda: b'{"a":[' + b"[]," * (LARGE // 3) + b"NaN]}", 400),
        (lambda: b"[" * LARGE, 400),
        (lambda: b'{"a":"\xff' + b"\\u0001" * (LARGE // 6) + b'"}', None),
    ],
    ids=["arrays", "members", "no strict JSON", "brackets", "bytes that are not text"],
)
def test_json_that_would_become_many_values_costs_its_bytes(
    unsigned: Receiving, body: Callable[[], bytes], status: int | None
) -> None:
    """15 MB of small values are checked and not made: the peak grows by copies of the body."""
    before = unsigned.used()["peak"]
    result = requests.post(unsigned.url, data=body(), timeout=20).status_code
    assert result in (200, 400) if status is None else result == status
    assert unsigned.used()["peak"] - before < 80 * MB


def test_kept_bodies_have_512_megabytes(unsigned: Receiving) -> None:
    """Of 45 bodies of 15 MB those that fit are kept; the others are turned away; clear() makes space."""
    before = unsigned.used()["peak"]
    body = b'{"body":"' + b"x" * LARGE + b'"}'
    with requests.Session() as session:
        result = [
            session.post(unsigned.url, data=body, timeout=20).status_code
            for _ in range(45)
        ]
        fitting = 512 * MB // len(body)
        assert result == [200] * fitting + [503] * (45 - fitting)
        used = unsigned.used(clear=True)
        assert used["peak"] - before < (512 + 64) * MB
        assert session.post(unsigned.url, data=body, timeout=20).status_code == 200


def test_a_request_has_a_total_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that come one by one end with 408 at the time for a whole request, which they do not prolong."""
    monkeypatch.setattr("toolkit.loading.receiver._REQUEST_TIMEOUT", 1.0)
    with tk.CallbackReceiver() as receiver:
        port = int(receiver.url.split("/")[2].rpartition(":")[2])
        for sent in (b"POST", head(1000)):
            with socket.create_connection(
                ("127.0.0.1", port), timeout=10
            ) as connection:
                begun = time.monotonic()
                connection.sendall(sent)
                connection.settimeout(0.1)
                response = b""
                while not response and time.monotonic() - begun < 5:
                    try:
                        connection.sendall(b"x")
                        response = connection.recv(1000)
                    except TimeoutError:
                        continue
                assert b" 408 " in response
                assert time.monotonic() - begun < 3
        assert (
            requests.post(receiver.url, json={"status": 200}, timeout=60).status_code
            == 200
        )


def test_a_receiver_serves_while_an_event_loop_of_its_owner_runs() -> None:
    """As in a notebook: made and closed in a coroutine, its thread and its socket are gone afterwards."""

    async def cell() -> tuple[int, int]:
        with tk.CallbackReceiver() as receiver:
            response = await asyncio.to_thread(
                requests.post, receiver.url, json={"status": 200}, timeout=60
            )
            return response.status_code, len(receiver)

    assert asyncio.run(cell()) == (200, 1)
    assert [
        thread.name
        for thread in threading.enumerate()
        if thread.name == "callback-receiver"
    ] == []


def test_closing_does_not_wait_for_senders(unsigned: Receiving) -> None:
    """Idle and half-sent connections are cut: closing takes less than two seconds."""
    waiting = [connect(unsigned) for _ in range(20)] + [stalled(unsigned, b"{", 100)]
    begun = time.monotonic()
    unsigned.close()
    assert time.monotonic() - begun < 4  # with the end of the process
    for connection in waiting:
        connection.close()


def test_without_its_server_the_receiver_names_the_package() -> None:
    """The HTTP server is of an extra: an error says how to install it, and nothing else needs it."""
    script = """
import sys
sys.modules["uvicorn"] = None
import toolkit as tk
try:
    tk.CallbackReceiver().start()
except tk.errors.LocalServiceError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "pip install uvicorn" in done.stdout
