"""The application of the sample workflows, on this machine: half of the workflows are fixed.

The entries of the sample name an address of ``shop.example.com``. While the embedded service runs with
``--sample``, deliveries to that host come here instead. A fixed workflow ends the run. Another workflow fails
with the error of the entry, and is retried without a delay, so that a redrive ends within seconds.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from toolkit.secrets.redaction import Secret
from toolkit_service.demo.causes import cause
from toolkit_service.demo.history import APPLICATION
from toolkit_service.demo.stories import occurrences

REPAIRED: Final = frozenset({
    "orders/fulfil", "stock/reserve", "invoices/send", "accounts/welcome", "exports/nightly",
    "payments/capture",
})  # fmt: skip
"""Workflows whose cause is fixed: a redriven run succeeds."""

_RETRIED_AT_ONCE: Final = {"Retry-After": "0"}
_FAILURE_FUNCTION: Final = "failed"
# the end of the header name, after the prefix of either dialect
_RUN_ID: Final = "-workflow-runid"
_TIMEOUT: Final = 20.0  # seconds per request to the queue


@contextmanager
def sample_application(queue_url: str, token: Secret) -> Iterator[Mapping[str, int]]:
    """Serve the application on loopback until the block ends. Yield the port per host that it replaces."""
    causes = {item.number: item.cause for item in occurrences()}
    queue = urlsplit(queue_url)
    flows = urlsplit(APPLICATION)

    def end_run(run_id: str) -> None:
        connection = HTTPConnection(queue.hostname or "", queue.port, timeout=_TIMEOUT)
        try:
            headers = {"Authorization": f"Bearer {token.reveal()}"}
            connection.request(
                "DELETE", f"/v2/workflows/runs/{run_id}?cancel=false", b"{}", headers
            )
            connection.getresponse().read()
        finally:
            connection.close()

    class Handler(BaseHTTPRequestHandler):
        """Responds to deliveries."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """End a fixed run, or respond with the error of the entry."""
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            workflow = urlsplit(self.path).path.removeprefix(f"{flows.path}/")
            if workflow in REPAIRED:
                self.end_run_of_request()
            if workflow in REPAIRED or workflow == _FAILURE_FUNCTION:
                self.respond(200, "application/json", b"{}")
                return

            number = _order_number(body)
            failure = cause(causes.get(number, "html_error"))
            status = failure.status or 500
            self.respond(
                status, failure.content_type, failure.body(number), **_RETRIED_AT_ONCE
            )

        def end_run_of_request(self) -> None:
            """End the run that the headers name."""
            names = [name for name in self.headers if name.lower().endswith(_RUN_ID)]
            if names:
                # the last header is from the service; a forwarded header of the first run may precede it
                end_run(str(self.headers[names[-1]]))

        def respond(
            self, status: int, content_type: str, body: bytes, **headers: str
        ) -> None:
            """Send a response."""
            self.send_response(status)
            for name, text in {"Content-Type": content_type, **headers}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    # the standard library is enough here, and starts faster than an ASGI server
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(
        target=server.serve_forever, name="sample application", daemon=True
    )
    serving.start()

    try:
        yield {str(flows.hostname): server.server_port}
    finally:
        server.shutdown()
        server.server_close()


def _order_number(body: bytes) -> int:
    """Read the order number from the payload of a run, the first item of the history; 0 without one.

    >>> _order_number(b'[{"body": "eyJvcmRlciI6IDd9"}]')
    7
    """
    try:
        history = json.loads(body)
        return int(json.loads(base64.b64decode(history[0]["body"]))["order"])
    except (ValueError, KeyError, TypeError, IndexError):
        return 0
