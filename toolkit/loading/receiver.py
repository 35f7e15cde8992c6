"""A small HTTP server on this machine that callbacks can be sent to, for notebooks and tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any, Final, Self

import msgspec

from toolkit.arguments import instance, text, whole, wrong
from toolkit.client.signatures import ReplayGuard, region_in, signature_in, verify_signature
from toolkit.errors import InputError, LocalServiceError, SignatureError, ToolkitError
from toolkit.redaction import Redactor
from toolkit.settings.service import Service
from toolkit.tables.callbacks import ReceivedCallback, callback_fields

_HOST: Final = "127.0.0.1"
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_BYTES_KEPT: Final = 512 * 1024 * 1024
_PATIENCE: Final = 15.0  # seconds a sender may be silent
_POLL: Final = 0.05  # seconds within which closing takes effect


class CallbackReceiver:
    """Receives callbacks on this machine and keeps their bodies in memory, for `load_callbacks`.

    With a service that knows its signing keys, every request must carry a signature that verifies, once, with
    the keys of the region that its ``Upstash-Region`` names, where they are known; others are answered 401.
    Without keys, whoever can reach the port can send; ``verified`` is then null. A callback that was answered
    200 is kept. When there is no more room, callbacks are answered 503, so that the service tries again.

    Parameters
    ----------
    service : Service, optional
        Whose signing keys verify, and whose redactor masks.
    port : int
        0 takes a free one.
    keep : int
        Callbacks kept at most; their bodies also have 16 MB each and 512 MB together at most.
    path : str
        Where callbacks are expected.
    public_url : str, optional
        The address the service calls, where that differs from the one on this machine (a tunnel).
    clock : callable
        Unix seconds, for signatures and ``received_at``.

    Attributes
    ----------
    refused : int
        Requests refused: unsigned, wrongly signed, or no callback body.
    turned_away : int
        Callbacks answered 503 for want of room.
    last_refusal : str or None
        Why the last refused request was.

    Raises
    ------
    InputError
        For options that cannot be used.
    LocalServiceError
        On entering, when the port cannot be had.

    Examples
    --------
    >>> import requests
    >>> with CallbackReceiver() as receiver:
    ...     answer = requests.post(receiver.url, json={"status": 200, "sourceMessageId": "msg_1"})
    ...     answer.status_code, receiver.wait(1, timeout=5), len(receiver)
    (200, True, 1)
    """

    def __init__(
        self,
        service: Service | None = None,
        *,
        port: int = 0,
        keep: int = 10_000,
        path: str = "/callbacks",
        public_url: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if service is not None:
            instance("service", service, Service, "a Service, as connect() returns, or None")
        port = whole("port", port, least=0, most=65_535)
        keep = whole("keep", keep)
        if not text("path", path).startswith("/"):
            raise wrong("path", path, "a path that starts with a slash")
        if public_url is not None:
            text("public_url", public_url, empty=False)
        if not callable(clock):
            raise wrong("clock", clock, "a callable that returns Unix seconds")
        self.refused = 0
        self.turned_away = 0
        self.last_refusal: str | None = None
        self._service = service
        self._half = service.queue if service and service.queue and service.queue.secrets[1:] else None
        self._port = port
        self._keep = keep
        self._path = path
        self._public_url = public_url
        self._clock = clock
        self._seen = ReplayGuard()
        self._changed = Condition()
        self._kept: list[ReceivedCallback] = []
        self._size = 0
        self._server: ThreadingHTTPServer | None = None
        self._thread: Thread | None = None

    def start(self) -> Self:
        """Listen, in a thread of its own. ``with`` does it too.

        Raises
        ------
        LocalServiceError
            When the port is taken.
        """
        if self._server is None:
            try:
                self._server = _Server((_HOST, self._port), _handler(self))
            except OSError as error:
                reason = error.strerror
            else:
                self._port = self._server.server_address[1]
                self._thread = Thread(
                    target=self._server.serve_forever, name="callback-receiver", daemon=True
                )
                self._thread.start()
                return self
            raise LocalServiceError(
                f"listening on port {self._port} of this machine",
                got=str(reason),
                expected="a free port",
                next_step="Leave port=0: a free one is taken.",
            )
        return self

    def close(self) -> None:
        """Stop listening. What was received stays."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address to publish as callback."""
        if self._public_url is not None:
            return self._public_url
        if not self._port:
            raise InputError(
                "reading a receiver's address",
                got="a receiver that does not listen yet",
                expected="one that was started",
                next_step="Use it in a with statement, or call start().",
            )
        return f"http://{_HOST}:{self._port}{self._path}"

    @property
    def redactor(self) -> Redactor | None:
        """The service's own, where there is a service."""
        return self._service.redactor if self._service else None

    def wait(self, count: int = 1, timeout: float = 30.0) -> bool:
        """Wait until `count` callbacks are there, at most `timeout` seconds; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._kept) >= count, timeout)

    def received(self) -> list[ReceivedCallback]:
        """What is there now, in the order it came."""
        with self._changed:
            return list(self._kept)

    def clear(self) -> None:
        """Forget what was received, and make room. Signatures stay remembered."""
        with self._changed:
            self._kept.clear()
            self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __bool__(self) -> bool:
        return True  # also when nothing has come yet

    def __repr__(self) -> str:
        if self._public_url is not None or self._port:
            url = (self.redactor or Redactor()).url(self.url)
        else:
            url = "not started"
        signatures = "signatures verified" if self._half else "signatures not verified: no keys known"
        counts = [f"{len(self)} received"]
        counts += [f"{self.refused} refused"] if self.refused else []
        counts += [f"{self.turned_away} turned away"] if self.turned_away else []
        state = [] if self._server else ["closed"] if self._port else []
        return f"CallbackReceiver({', '.join([repr(url), *counts, *state, signatures])})"

    def _take(self, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, str | None]:
        """Judge one request: the status to answer, and what is wrong."""
        if path.partition("?")[0] != self._path:
            return 404, f"callbacks are expected at {self._path}"
        moment = self._clock()
        try:
            if self._half:
                signature = signature_in(headers)
                if signature is None:
                    raise SignatureError("verifying a signature", got="none", expected="one signature header")
                keys = self._half.keys_of(region_in(headers))
                verify_signature(signature, body, url=self.url, keys=keys, now=moment, seen=self._seen)
            callback_fields(body)
        except ToolkitError as error:
            with self._changed:
                self.refused += 1
                self.last_refusal = str(error)
            return (401 if isinstance(error, SignatureError) else 400), str(error)
        with self._changed:
            if len(self._kept) >= self._keep or self._size + len(body) > _MOST_BYTES_KEPT:
                self.turned_away += 1
                return 503, "there is no more room"
            whole_ms = datetime.fromtimestamp(round(moment * 1000) / 1000, UTC)
            self._kept.append(
                ReceivedCallback(body=body, received_at=whole_ms, verified=True if self._half else None)
            )
            self._size += len(body)
            self._changed.notify_all()
        return 200, None


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing on standard error: a sender that went away is answered by nobody."""


def _handler(receiver: CallbackReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "toolkit"
        sys_version = ""
        timeout = _PATIENCE

        def do_POST(self) -> None:
            """Take a callback."""
            lengths = set(self.headers.get_all("Content-Length") or ())
            length = lengths.pop() if len(lengths) == 1 else ""
            if not (length.isascii() and length.isdigit()) or self.headers.get("Transfer-Encoding"):
                self._answer(411, "a body of a stated length is expected")
            elif len(length) > 9 or int(length) > _MOST_BYTES:  # noqa: PLR2004 - digits of a large number
                self._answer(413, f"a body has at most {_MOST_BYTES} bytes")
            else:
                body = self.rfile.read(int(length))
                if len(body) == int(length):
                    self._answer(*receiver._take(self.path, self.headers.items(), body))  # noqa: SLF001 - its own

        do_PUT = do_PATCH = do_POST  # noqa: N815 - the names the server looks for

        def do_GET(self) -> None:
            """Refuse what is no callback."""
            self._answer(405, "callbacks are sent with POST")

        do_HEAD = do_DELETE = do_OPTIONS = do_GET  # noqa: N815

        def _answer(self, status: int, problem: str | None) -> None:
            content = msgspec.json.encode({"error": problem} if problem else {})
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            if status == 405:  # noqa: PLR2004 - method not allowed
                self.send_header("Allow", "POST, PUT, PATCH")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it overrides
            """Write no access log: addresses may carry secrets."""

    return Handler
