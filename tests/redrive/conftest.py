"""A shop whose workflows fail until they are mended, and the embedded service that runs them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pandas as pd
import pytest

import toolkit as tk
from toolkit_service.demo.local_service import LocalService


@dataclass
class Shop:
    """Workflows at ``/NAME``, each failing in a way of its own until it is mended; deliveries are counted."""

    queue: LocalService
    url: str = ""
    mended: set[str] = field(default_factory=set)
    otherwise: set[str] = field(default_factory=set)
    # seconds that a delivery takes
    slow: dict[str, float] = field(default_factory=dict)
    # deliveries wait for it
    held: dict[str, threading.Event] = field(default_factory=dict)
    delivered: Counter[str] = field(default_factory=Counter)
    # failure functions, by the id of the entry
    called: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def service(self) -> tk.Service:
        """A connection to the queue."""
        return tk.connect(queue_url=self.queue.url, queue_token=self.queue.token)

    def fail(self, name: str, count: int, **headers: str) -> pd.DataFrame:
        """Start runs of a workflow, and wait until all have failed; returns them."""
        given = {"Retries": "0", "Content-Type": "application/json"} | headers
        for number in range(count):
            self.request(
                "POST",
                f"/v2/trigger/{self.url}/{name}",
                json.dumps({"order": number}),
                given,
            )
        return self.failures(name, count)

    def fail_with_function(self, name: str, count: int) -> pd.DataFrame:
        """Start runs that fail, as do their failure functions; return the entries after the calls."""
        function = {
            "Failure-Callback": f"{self.url}/function",
            "Failure-Callback-Retries": "0",
        }
        failed, until = self.fail(name, count, **function), time.monotonic() + 60
        while set(failed["failure_function_state"]) != {"CALLBACK_FAIL"}:
            assert time.monotonic() < until, (
                f"waited for the failure functions of {name}"
            )
            failed = self.failures(name, count)
        self.called.clear()
        return failed

    def failures(self, name: str, count: int) -> pd.DataFrame:
        """The failures of a workflow, once there are so many."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            wanted = tk.FailureFilter(workflow_url=[f"{self.url}/{name}"])
            found = (
                tk.load_failures(self.service, wanted, progress=False)
                if self._any(name)
                else None
            )
            if found is not None and len(found) == count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited for {count} failures of {name}")

    def _any(self, name: str) -> bool:
        listed = self.request(
            "GET", f"/v2/workflows/dlq?count=1&workflowUrl={self.url}/{name}"
        )
        return bool(json.loads(listed)["messages"])

    def runs(self, name: str) -> list[dict[str, object]]:
        """The run log of a workflow."""
        found, cursor = [], ""
        while True:
            path = f"/v2/workflows/logs?workflowUrl={self.url}/{name}&count=100&cursor={cursor}"
            page = json.loads(self.request("GET", path))
            found += page["runs"]
            cursor = page["cursor"]
            if not cursor:
                return found

    def request(
        self,
        method: str,
        path: str,
        body: str = "",
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """Send a request to the queue; headers but Content-Type get its prefix."""
        named = {
            name if name == "Content-Type" else f"Service-{name}": value
            for name, value in (headers or {}).items()
        }
        headers = {"Authorization": f"Bearer {self.queue.token}", **named}
        response = httpx.request(
            method, self.queue.url + path, content=body, headers=headers
        )
        response.raise_for_status()
        return response.content

    def deliver(self, name: str, run_id: str) -> tuple[int, bytes]:
        """Respond to a delivery."""
        with self._lock:
            self.delivered[run_id] += 1
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            time.sleep(self.slow.get(name, 0))
            if name in self.held:
                self.held[name].wait(60)
            if name in self.mended:
                self.request(
                    "DELETE", f"/v2/workflows/runs/{run_id}?cancel=false", "done"
                )
                return 200, b"{}"
            if name in self.otherwise:
                return 503, json.dumps(
                    {"error": "the warehouse is closed", "code": "CLOSED"}
                ).encode()
            return 500, json.dumps(
                {"error": f"{name} has no stock", "code": name.upper()}
            ).encode()
        finally:
            with self._lock:
                self._now -= 1


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own, in which runs claim entries."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """The embedded service of a module's tests."""
    with LocalService(
        tmp_path_factory.mktemp("queue"), indexes=["plain:dense:2:COSINE"]
    ) as running:
        yield running


@pytest.fixture
def shop(queue: LocalService) -> Iterator[Shop]:
    """A shop that is open, with names of its own in its URL."""
    with open_shop(queue) as opened:
        yield opened


@contextmanager
def open_shop(queue: LocalService) -> Iterator[Shop]:
    """A shop whose workflows the queue runs."""
    opened = Shop(queue)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            name, run_id = (
                self.path.rsplit("/", 1)[-1],
                self.headers.get("Service-Workflow-RunId", ""),
            )
            if name == "function":
                opened.called[json.loads(sent)["dlqId"]] += 1
            status, body = opened.deliver(name, run_id)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    opened.url = f"http://127.0.0.1:{server.server_port}/flows"
    try:
        yield opened
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where a ledger is written."""
    return tmp_path / "redrive.sqlite"
