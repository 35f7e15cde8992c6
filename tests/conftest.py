"""What all tests share: a clean environment, and a real HTTP server whose responses a test writes."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import certifi
import pytest

import toolkit as tk
from tests.tiers import group_tests, mark_tiers
from toolkit.service.responses import RetryPolicy
from toolkit_service.demo.local_service import LocalService

_PREFIXES = ("TOOLKIT_", "QSTASH_", "UPSTASH_", "US_EAST_1_", "EU_CENTRAL_1_")


# readline, which pytest imports, sets the size of a terminal for child processes, unseen by os.environ
for _size in ("COLUMNS", "LINES"):
    os.environ.pop(_size, None)
    os.unsetenv(_size)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, and never look at the tests again.

    15,000 tests are millions of objects, none of which is garbage before the end. Otherwise the search for
    garbage visits all of them many times, while they are collected and later in each test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Decide which tests are of the second tier, and which share a worker."""
    mark_tiers(items)
    group_tests(items)


LONGEST_ID = 60
"""Characters of a value in the id of a test. Longer ids slow down each report between the workers."""


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten ids made of long values: for example, a body of ten million characters is named by its start.

    The length and a hash tell values with the same beginning apart. None leaves the id to pytest.
    """
    if not isinstance(val, str | bytes) or len(val) <= LONGEST_ID:
        return None
    text = val if isinstance(val, str) else val.decode("latin-1")
    beginning = text[:LONGEST_ID].encode("unicode_escape").decode("ascii")
    return f"{beginning}... {len(val):,} {zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


_HOME_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all homes; pytest lists all of its own folders whenever it makes another."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(scope="session", autouse=True)
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every client of httpx reads all certificates, for 50 ms; no service here speaks TLS to one."""
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----")
    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    path.write_text(first + end, encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(path)


@pytest.fixture(autouse=True)
def clean_environment(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No address or token from outside, a masking key of the test's own, and no figure of an earlier test.

    The home does not exist until something is written there: most of 20,000 tests write nothing.
    """
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
    for name in list(os.environ):
        if name.startswith(_PREFIXES):
            monkeypatch.delenv(name)
    home = homes / str(next(_HOME_NUMBERS))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return home


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    """A response: a status with headers and body, or raw bytes after which the connection is closed."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes | None = None


@dataclass
class ScriptedServer:
    """A real HTTP server on loopback. Queued replies are sent first, then those that `respond` returns."""

    queue: list[Reply] = field(default_factory=list)
    requests: list[Asked] = field(default_factory=list)
    respond: Callable[[Asked], Reply] = field(
        default=lambda _: Reply(status=404, body=b'{"error": "nothing here"}')
    )
    url: str = ""

    def json(self, body: bytes, status: int = 200, **headers: str) -> None:
        """Queue a JSON response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.queue.append(
            Reply(status, {"Content-Type": "application/json", **named}, body)
        )

    def always(self, body: bytes, status: int = 200, **headers: str) -> None:
        """Send this JSON response whenever nothing is queued."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.respond = lambda _: Reply(
            status, {"Content-Type": "application/json", **named}, body
        )

    def responding(self, give: Callable[[Asked], bytes]) -> None:
        """Send what the function makes of a request, as a JSON response."""
        self.respond = lambda asked: Reply(
            200, {"Content-Type": "application/json"}, give(asked)
        )

    def raw(self, data: bytes) -> None:
        """Queue raw bytes."""
        self.queue.append(Reply(raw=data))

    def service(self, **options: Any) -> tk.Service:
        """A connection to this server, both endpoints."""
        return tk.connect(
            queue_url=self.url,
            queue_token="queue-token-of-the-test",
            vector_url=self.url,
            vector_token="vector-token-of-the-test",
            **options,
        )


class _Listening(ThreadingHTTPServer):
    # with the library's five, some of many concurrent connections are refused
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about clients that disconnected before their response."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def listening() -> Iterator[ScriptedServer]:
    """A scripted server, listening."""
    script = ScriptedServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one write: the body need not wait for the head's acknowledgement

        def _do(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            query = parse_qsl(parts.query, keep_blank_values=True)
            request = Asked(
                self.command,
                parts.path,
                query,
                dict(self.headers),
                self.rfile.read(length),
            )
            script.requests.append(request)
            reply = script.queue.pop(0) if script.queue else script.respond(request)
            if reply.raw is not None:
                self.wfile.write(reply.raw)
                self.close_connection = True
                return
            self.send_response_only(reply.status)
            for name, value in {
                "Content-Length": str(len(reply.body)),
                **reply.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = do_DELETE = do_PUT = _do  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    http = _Listening(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    script.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield script
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@pytest.fixture
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow each other at once, where a test is about what comes after the last one."""
    monkeypatch.setattr(RetryPolicy, "delay_before", lambda *_: 0.0)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A scripted server of the test's own."""
    with listening() as script:
        yield script


@pytest.fixture(scope="session")
def indexes_of_session() -> Iterator[dict[str, tk.Service]]:
    """An embedded service with three indexes: dense (2 dimensions), sparse, hybrid; no models."""
    specs = {
        "dense": "dense:dense:2:EUCLIDEAN",
        "sparse": "sparse:sparse",
        "hybrid": "hybrid:hybrid:2:COSINE",
    }
    with LocalService(indexes=list(specs.values())) as running:
        yield {
            name: tk.connect(
                queue_url=running.url,
                queue_token=running.token,
                vector_url=f"{running.url}/vector/{name}",
                vector_token=running.token,
                environ={},
            )
            for name in specs
        }


@pytest.fixture(scope="module")
def local_indexes(
    indexes_of_session: dict[str, tk.Service],
) -> dict[str, tk.Service]:
    """Three indexes to write to, by name: empty when the first test of a module asks for them.

    Which modules share a worker, and in which order, differs from run to run: vectors that another module
    left would make a test depend on it. Tests of one module share the indexes: use a namespace per test.
    """
    for service in indexes_of_session.values():
        for namespace in filter(None, tk.list_namespaces(service)):
            tk.delete_namespace(service, namespace, confirm=True)
        tk.reset_namespace(service, "", confirm=True)
    return indexes_of_session
