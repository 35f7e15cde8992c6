"""A proxy that loses requests and responses of a kind: before the service has seen them, or after."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

import httpx

Loss = Literal["request", "response"] | None


@dataclass
class LossyProxy:
    """What is lost is what `decide` says of the method and path of each request; `lost` counts it."""

    target: str
    decide: Callable[[str, str], Loss] = lambda _method, _path: None
    url: str = ""
    lost: list[tuple[str, str, str]] = field(default_factory=list)


@contextmanager
def proxy(target: str) -> Iterator[LossyProxy]:
    """A proxy in front of a service."""
    opened = LossyProxy(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            loss = opened.decide(self.command, self.path)
            if loss is not None:
                opened.lost.append((loss, self.command, self.path))
            if loss == "request":
                return self._close()
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() != "host"
            }
            url = opened.target + self.path
            response = httpx.request(self.command, url, content=body, headers=headers)
            if loss == "response":
                return self._close()
            self.send_response(response.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)
            return None

        def _close(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - http.server's own names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    opened.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield opened
    finally:
        server.shutdown()
        server.server_close()
