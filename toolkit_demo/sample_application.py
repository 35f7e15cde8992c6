"""The application of the sample's workflows, on this machine: half of it is repaired.

The sample's entries name an address of ``shop.example.com``. While the embedded service runs with
``--sample``, deliveries to that host come here instead. A repaired workflow ends its run. Another one fails
with the error of its entry, and is retried without a delay, so that a redrive ends within seconds.
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

from toolkit.redaction import Secret
from toolkit_demo.causes import cause
from toolkit_demo.history import APPLICATION
from toolkit_demo.stories import occurrences

REPAIRED: Final = frozenset({
    "orders/fulfil", "stock/reserve", "invoices/send", "accounts/welcome", "exports/nightly",
    "payments/capture",
})  # fmt: skip
"""Workflows whose cause is repaired: a redriven run succeeds."""

_RETRIED_AT_ONCE: Final = {"Retry-After": "0"}
_RUN_ID: Final = "-workflow-runid"  # after the prefix of either dialect
_TIMEOUT: Final = 20.0


@contextmanager
def sample_application(queue_url: str, token: Secret) -> Iterator[Mapping[str, int]]:
    """Serve the application on loopback until the block ends; yield its port by the host it stands for."""
    causes = {item.number: item.cause for item in occurrences()}
    queue = urlsplit(queue_url)
    flows = urlsplit(APPLICATION)

    def end_run(run_id: str) -> None:
        connection = HTTPConnection(queue.hostname or "", queue.port, timeout=_TIMEOUT)
        try:
            headers = {"Authorization": f"Bearer {token.reveal()}"}
            connection.request("DELETE", f"/v2/workflows/runs/{run_id}?cancel=false", b"{}", headers)
            connection.getresponse().read()
        finally:
            connection.close()

    class Handler(BaseHTTPRequestHandler):
        """Responds to deliveries."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """End a repaired run, or respond with the error of the entry."""
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            workflow = urlsplit(self.path).path.removeprefix(f"{flows.path}/")
            names = [name for name in self.headers if name.lower().endswith(_RUN_ID)]
            if workflow == "failed":  # the failure function
                self.respond(200, "application/json", b"{}")
            elif workflow in REPAIRED:
                if names:  # the last is the service's own; a header of the first run may come before it
                    end_run(str(self.headers[names[-1]]))
                self.respond(200, "application/json", b"{}")
            else:
                number = _order_number(body)
                found = cause(causes.get(number, "html_error"))
                self.respond(found.status or 500, found.content_type, found.body(number), **_RETRIED_AT_ONCE)

        def respond(self, status: int, content_type: str, body: bytes, **headers: str) -> None:
            """Send a response."""
            self.send_response(status)
            for name, value in {"Content-Type": content_type, **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, name="sample application", daemon=True)
    serving.start()
    try:
        yield {str(flows.hostname): server.server_port}
    finally:
        server.shutdown()
        server.server_close()


def _order_number(body: bytes) -> int:
    """Read the order number out of the payload of a run, the first item of its history; 0 without one.

    >>> _order_number(b'[{"body": "eyJvcmRlciI6IDd9"}]')
    7
    """
    try:
        history = json.loads(body)
        return int(json.loads(base64.b64decode(history[0]["body"]))["order"])
    except (ValueError, KeyError, TypeError, IndexError):
        return 0
