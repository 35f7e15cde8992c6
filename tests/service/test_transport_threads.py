"""The door used by many threads: paced, watched, and ended from outside."""

from __future__ import annotations

import signal
import socket
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from toolkit import errors
from toolkit.secrets.redaction import Redactor
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Request, Transport

GET = Request(doing="reading a thing", method="GET", path="/thing")
TOKEN = "queue-token-of-the-test"
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class Recorder:
    """A rate limiter that lets everything pass and writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def start(self) -> None:
        """A try begins."""
        self.heard.append("start")

    def end(self, error: errors.ServiceError | None, seconds: float) -> None:
        """A try has ended."""
        assert seconds >= 0
        self.heard.append(
            error and (type(error).__name__, getattr(error, "wait", None))
        )


@contextmanager
def silent(said: bytes = b"") -> Iterator[tuple[str, threading.Semaphore]]:
    """A server that sends only these bytes to each request; the semaphore counts requests."""
    came, taken = threading.Semaphore(0), []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                taken.append(peer)
                peer.recv(65536)
                peer.sendall(said)
                came.release()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", came
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for peer in taken:
                peer.close()


def test_many_threads_share_one_transport(server):
    """Each of 16 threads gets the responses to its own requests, over at most 16 connections."""
    server.responding(lambda asked: asked.path.encode() * 5000)
    service = server.service()
    with (
        Transport.to(service, "queue", connections=16) as door,
        ThreadPoolExecutor(16) as pool,
    ):

        def ask(number: int) -> bool:
            path = f"/thing/{number}"
            return (
                door.send(Request(doing="x", method="GET", path=path)).body
                == path.encode() * 5000
            )

        assert all(pool.map(ask, range(200)))
        assert door._pool.num_connections <= 16


def test_one_connection_serves_one_thread(server):
    """Request after request goes over the same connection, compressed or not, refused or not."""
    with Transport(server.url, redactor=Redactor(key=b"test")) as door:
        for status in (200, 404, 200, 400, 200):
            server.json(b'{"a": 1}', status)
            try:
                assert door.send(GET).body == b'{"a": 1}'
            except errors.ResponseError as error:
                assert error.status == status  # noqa: PT017 - either way is right, by status
        assert door._pool.num_connections == 1


def test_a_watcher_sees_the_head_before_the_rest_has_arrived():
    """What has arrived is shown at once: here the rest is only sent after the watcher has seen the head."""
    body, seen = b'{"cursor": "next"' + b" " * 300_000 + b"}", threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(HEAD % len(body) + body[:20])
                seen.wait(30)
                peer.sendall(body[20:])

        thread = threading.Thread(target=serve)
        thread.start()
        shown = []

        def watch(so_far: bytearray) -> bool:
            shown.append(bytes(so_far))
            seen.set()
            return b"cursor" in so_far

        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Transport(url, redactor=Redactor(key=b"test")) as door:
            assert door.send(GET, watch=watch).body == body
        thread.join()
    assert shown == [body[:20]]


def test_a_watcher_waits_for_no_byte_of_an_empty_body():
    """The connection stays open, and says nothing more: the response is complete nevertheless."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(HEAD % 0)
                done.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        policy = RetryPolicy(tries=1, deadline=5.0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Transport(url, redactor=Redactor(key=b"test"), policy=policy) as door:
            assert door.send(GET, watch=lambda _: None).body == b""
        done.set()
        thread.join()


def test_a_watcher_starts_again_with_the_next_try(server):
    """After a truncated response the watcher is shown the new one from its start, whatever it saw before."""
    server.raw(HEAD % 100 + b"the first")
    server.json(b"the second, whole")
    shown = []
    policy = RetryPolicy(first_delay=0.0)
    with Transport(server.url, redactor=Redactor(key=b"test"), policy=policy) as door:
        response = door.send(GET, watch=lambda so_far: shown.append(bytes(so_far)))
    assert (response.body, response.tries) == (b"the second, whole", 2)
    assert shown == [b"the first", b"the second, whole"]


def test_an_error_of_a_watcher_is_raised(server):
    """An error of the watcher's own is no failure of the network: it comes out, and the door stays usable."""
    server.always(b'{"a": 1}')

    def fail(_: bytearray) -> None:
        raise OSError("mine")

    with Transport(server.url, redactor=Redactor(key=b"test")) as door:
        with pytest.raises(OSError, match="mine"):
            door.send(GET, watch=fail)
        assert door.send(GET).body == b'{"a": 1}'
    assert len(server.requests) == 2


def test_each_try_is_paced_and_its_end_reported(server):
    """The limiter is consulted before every try and learns of each end, with the delay of a rate limit."""
    server.json(b"{}", 429, Retry_After="2")
    server.raw(b"")
    server.json(b"{}")
    limiter, waits = Recorder(), []
    with Transport.to(
        server.service(), "queue", limiter=limiter, sleep=waits.append
    ) as door:
        assert door.send(GET).tries == 3
    assert limiter.heard == [
        "start",
        ("RateLimitError", 2.0),
        "start",
        ("TransportError", None),
        "start",
        None,
    ]
    assert waits[0] == 2.0


def test_waiting_for_the_pace_is_not_counted(server):
    """A limiter that delays requests for long does not use up their time limit."""
    now = [0.0]

    class Slow(Recorder):
        def start(self) -> None:
            now[0] += 1000.0

    server.json(b"{}", 503)
    server.json(b"{}")
    with Transport.to(
        server.service(),
        "queue",
        limiter=Slow(),
        sleep=lambda _: None,
        monotonic=lambda: now[0],
    ) as door:
        assert door.send(GET).tries == 2


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200", HEAD % 100, HEAD % 100 + b"the start"]
)
def test_closing_ends_the_requests_of_other_threads(said):
    """Threads that wait for a head or a body get an error at once when the transport is closed."""
    with silent(said) as (url, came), ThreadPoolExecutor(4) as pool:
        door = Transport(url, redactor=Redactor(key=b"test"))
        waiting = [pool.submit(door.send, GET) for _ in range(4)]
        for _ in waiting:
            assert came.acquire(timeout=30)
        door.close()
        for item in waiting:
            with pytest.raises(errors.TransportError, match="a closed transport"):
                item.result(30)


def test_closing_ends_a_delay_before_the_next_try(server):
    """A thread that waits before its next try stops waiting, and sends no other request."""
    server.always(b"{}", 503)
    requested = threading.Event()
    give = server.respond
    server.respond = lambda request: requested.set() or give(request)
    policy = RetryPolicy(first_delay=500.0, longest_delay=500.0, total=5000.0)
    door = Transport(server.url, redactor=Redactor(key=b"test"), policy=policy)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(door.send, GET)
        assert requested.wait(30)
        door.close()
        with pytest.raises(errors.ServiceError):
            waiting.result(30)
    assert len(server.requests) == 1
    with pytest.raises(errors.TransportError, match="a closed transport"):
        door.send(GET)


def test_an_interrupt_ends_the_exchange_and_shows_no_token(server):
    """Ctrl-C while waiting for a response comes out at once, without the token, and the door stays usable."""
    service, limiter = server.service(), Recorder()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main, give = threading.main_thread().ident, threading.Event()

    def interrupting(_: object) -> bytes:
        signal.pthread_kill(main, signal.SIGINT)
        give.wait(30)
        return b'"late"'

    try:
        server.responding(interrupting)
        with Transport.to(service, "queue", limiter=limiter) as door:
            with pytest.raises(KeyboardInterrupt) as raised:
                door.send(GET)
            give.set()
            server.always(b'"fine"')
            assert door.send(GET).body == b'"fine"'
    finally:
        signal.signal(signal.SIGINT, before)
        give.set()
    stack = traceback.TracebackException.from_exception(
        raised.value, capture_locals=True
    ).stack
    # the test's own frame knows what the server was sent
    inner = [repr(frame.locals) for frame in stack if frame.filename != __file__]
    assert any("reading a thing" in shown for shown in inner)
    assert all(TOKEN not in shown for shown in inner)
    assert limiter.heard == ["start", None, "start", None]
