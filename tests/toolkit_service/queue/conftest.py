"""A queue served in this process, with a clock that tests advance."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from toolkit.secrets.redaction import Secret
from toolkit_service.app import build_app
from toolkit_service.queue.scheduler import Queue
from toolkit_service.queue.state import Store, SystemClock
from toolkit_service.vectors.index_registry import IndexRegistry

TOKEN = "token-of-the-queue-tests"
KEYS = ("sig_current_" + "c" * 32, "sig_next_" + "n" * 32)


class ManualClock:
    """A clock that changes only when a test advances it."""

    def __init__(self) -> None:
        self._now = SystemClock().now_ms()

    def now_ms(self) -> int:
        """Its time."""
        return self._now

    def advance(self, *, seconds: float) -> None:
        """Advance it."""
        self._now += round(seconds * 1000)

    async def sleep_until(self, until_ms: int) -> None:
        """Return once it has been advanced that far."""
        while self._now < until_ms:  # noqa: ASYNC110 - advanced from another thread
            await asyncio.sleep(0.002)


def wait_until(condition: Callable[[], Any], *, seconds: float = 10) -> Any:
    """The first true value of the condition; fails on a timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.004)
    raise AssertionError("waited in vain")


@dataclass
class Service:
    """A running queue: an authenticated client, and the parts that tests inspect."""

    http: httpx.Client
    clock: ManualClock
    store: Store
    url: str

    def publish(self, url: str, body: bytes = b"", **headers: str) -> dict[str, Any]:
        """Publish with ``Service-`` headers, given as keywords; returns the response."""
        named = {
            f"Service-{name.replace('_', '-')}": value
            for name, value in headers.items()
        }
        response = self.http.post(f"/v2/publish/{url}", content=body, headers=named)
        assert response.status_code == 200, response.text
        return response.json()

    def dlq(self, kind: str = "dlq", **parameters: Any) -> list[dict[str, Any]]:
        """The entries of one page; `kind` is "dlq" or "workflows/dlq"."""
        response = self.http.get(f"/v2/{kind}", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()["messages"]

    def events(self, message_id: str) -> list[str]:
        """The states a message went through, in order."""
        response = self.http.get("/v2/logs", params={"messageId": message_id})
        return [event["state"] for event in reversed(response.json()["events"])]

    def wait(self, condition: Callable[[], Any]) -> Any:
        """The first true value of the condition."""
        return wait_until(condition)

    def run_out(self, done: Callable[[], Any], *, step: float = 3600) -> Any:
        """Advance the clock until the condition holds."""

        def turned() -> Any:
            if value := done():
                return value
            self.clock.advance(seconds=step)
            return None

        return wait_until(turned)


def _no_certificates() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def serving(
    folder: Path,
    *,
    retention_ms: int = 90 * 86_400_000,
    clock: ManualClock | None = None,
    **options: Any,
) -> Iterator[Service]:
    """A queue served by a thread of this process."""
    clock = clock or ManualClock()
    store = Store(
        folder / "queue", clock=clock, retention_ms=retention_ms, signing_keys=KEYS
    )
    registry = IndexRegistry(folder / "vectors")
    app = build_app(Queue(store, **options), registry, Secret(TOKEN))
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        # a context without certificates: loading them is slow, and nothing here is TLS
        with httpx.Client(
            base_url=url, headers=bearer, timeout=10, verify=_no_certificates()
        ) as client:
            yield Service(client, clock, store, url)
    finally:
        server.should_exit = True
        thread.join()
        registry.close()
        store.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start a queue with options of `Store` and `Queue`; ended after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(serving(tmp_path, **options))


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., AbstractContextManager[Service]]:
    """Serve a queue inside a ``with`` block, each time on the same data; options of `Store` and `Queue`."""
    return lambda **options: serving(tmp_path, **options)


@pytest.fixture
def service(start: Callable[..., Service]) -> Service:
    """A queue with default options."""
    return start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A queue shared by the tests of a module that do not change it."""
    with serving(tmp_path_factory.mktemp("shared")) as running:
        yield running
