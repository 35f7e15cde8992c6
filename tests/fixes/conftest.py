"""An application on this machine that records requests and answers as told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Received:
    """One request, as it arrived."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class Application:
    """Requests that arrived, and the response to the next ones."""

    url: str = ""
    status: int = 200
    body: bytes = b"{}"
    location: str | None = None
    received: list[Received] = field(default_factory=list)


@pytest.fixture
def application() -> Iterator[Application]:
    """Run the application on a free port of this machine."""
    app = Application()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            app.received.append(
                Received(self.command, self.path, list(self.headers.items()), body)
            )
            self.send_response(app.status)
            if app.location:
                self.send_header("Location", app.location)
            self.send_header("Content-Length", str(len(app.body)))
            self.end_headers()
            self.wfile.write(app.body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    app.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield app
    server.shutdown()
    thread.join()
    server.server_close()
