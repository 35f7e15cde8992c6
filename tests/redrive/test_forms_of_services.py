"""An application fails in ten forms: each new error is reported, and refused failures stay."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pandas as pd
import pytest

import toolkit as tk
from tests.accuracy.service_bodies import FORMS
from toolkit.cli import main
from toolkit.cli.exit_status import ExitStatus
from toolkit_service.demo.local_service import LocalService

TEN = [
    form
    for form in FORMS
    if form.name
    in {
        "Google JSON", "S3 XML", "Spring Boot", "FastAPI validation", "Werkzeug page", "Cloudflare page",
        "MongoDB", "Stripe", "Go panic", "Korean, Thai, Arabic and Hebrew",
    }
]  # fmt: skip
REFUSED = {
    "header": (489, "the card was closed", {"Upstash-NonRetryable-Error": "true"}),
    "field": (500, '{"message": "the account is frozen", "nonRetryable": true}', {}),
}
"""Responses that ask not to be retried, by the place of the marker."""


class Application:
    """Workflows at `/flows/NAME`. They fail with the responses in `responses`; deliveries are counted."""

    def __init__(self) -> None:
        self.url = ""
        self.responses: dict[str, tuple[int, str, dict[str, str]]] = {}
        self.deliveries: Counter[str] = Counter()


@contextmanager
def running_application() -> Iterator[Application]:
    """Serve an application on this machine."""
    application = Application()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            name = self.path.rsplit("/", 1)[-1]
            application.deliveries[name] += 1
            status, text, headers = application.responses[name]
            body = text.encode()
            self.send_response(status)
            for header, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(header, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}
    )
    thread.start()
    application.url = f"http://127.0.0.1:{server.server_port}/flows"
    try:
        yield application
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def application() -> Iterator[Application]:
    """An application of one test."""
    with running_application() as running:
        yield running


def connect(queue: LocalService) -> tk.Service:
    """Return a connection to the queue."""
    return tk.connect(queue_url=queue.url, queue_token=queue.token)


def start(queue: LocalService, application: Application, name: str) -> None:
    """Start a run of a workflow without retries."""
    headers = {"Authorization": f"Bearer {queue.token}", "Service-Retries": "0"}
    address = f"{queue.url}/v2/trigger/{application.url}/{name}"
    httpx.request("POST", address, content="{}", headers=headers).raise_for_status()


def wait_for(queue: LocalService, application: Application, count: int) -> pd.DataFrame:
    """Return the failures of an application, when there are so many."""
    address = f"{queue.url}/v2/workflows/dlq?count=100"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        listed = httpx.get(
            address, headers={"Authorization": f"Bearer {queue.token}"}
        ).json()["messages"]
        if (
            sum(entry["workflowUrl"].startswith(application.url) for entry in listed)
            >= count
        ):
            failures = tk.load_failures(connect(queue), progress=False)
            return failures[failures["workflow_url"].str.startswith(application.url)]
        time.sleep(0.05)
    raise AssertionError(f"waited for {count} failures")


@pytest.mark.slow
def test_each_new_error_is_reported(
    queue, application, tmp_path: Path, monkeypatch, capsys
) -> None:
    """`--fail-on new` counts ten new groups for ten new errors, and none if the errors are old."""
    monkeypatch.chdir(tmp_path)
    for number, form in enumerate(TEN):
        for group in ("a", "b"):
            application.responses[f"{number}-{group}"] = (
                form.status,
                form.groups[group][-1],
                {},
            )
        start(queue, application, f"{number}-a")
    tk.write_snapshot(wait_for(queue, application, len(TEN)), tmp_path / "before")
    for number in range(len(TEN)):
        start(queue, application, f"{number}-b")
    tk.write_snapshot(wait_for(queue, application, 2 * len(TEN)), tmp_path / "after")

    report = [
        "report",
        "--snapshot",
        "after",
        "--fail-on",
        "new",
        "--output",
        "report.json",
        "--previous",
    ]
    assert main([*report, "before"]) == ExitStatus.NEW
    assert f"({len(TEN)} new groups)" in capsys.readouterr().out.splitlines()[-1]
    assert main([*report, "after"]) == ExitStatus.DONE


def test_refused_failures_are_not_sent_again(
    queue, application, tmp_path: Path
) -> None:
    """A redrive delivers the run without a marker again, and none of those that asked not to be retried."""
    application.responses = {**REFUSED, "busy": (503, "the warehouse is busy", {})}
    for name in application.responses:
        start(queue, application, name)
    failures = wait_for(queue, application, len(application.responses))
    assert application.deliveries == {"header": 1, "field": 1, "busy": 1}

    plan = tk.plan_redrive(failures)
    result = tk.run_redrive(
        connect(queue),
        plan,
        ledger=tmp_path / "ledger.sqlite",
        confirm=plan.confirmation,
        progress=False,
    )
    assert result.finished
    assert application.deliveries == {"header": 1, "field": 1, "busy": 2}
    actions = Counter(
        entry["action"] for entry in json.loads(plan.to_json())["entries"]
    )
    assert actions == {"leave": 2, "resume": 1}
