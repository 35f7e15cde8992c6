"""The application of the soak of redrives: workflows whose runs fail until they are mended, by a file.

``python redrive_shop.py PORT STATE`` serves ``/NAME``: the file names what is mended, what is mended for
every second order, and where the queue is; the most deliveries at once are written beside it.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

NOT_RETRIED = 489  # with a header: the run fails at once, while deliveries that a kill interrupts are retried
_LOCK = threading.Lock()
_NOW = [0, 0]


def main() -> None:
    """Serve until killed."""
    port, path = int(sys.argv[1]), Path(sys.argv[2])
    queue = httpx.Client(timeout=20)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state = json.loads(path.read_bytes())
            with _LOCK:
                _NOW[0] += 1
                if _NOW[0] > _NOW[1]:
                    _NOW[1] = _NOW[0]
                    most = path.with_name("most.json")
                    known = json.loads(most.read_bytes()) if most.exists() else 0
                    # which a kill may leave half written
                    draft = most.with_suffix(".tmp")
                    draft.write_text(
                        json.dumps(max(known, _NOW[1]) if state["counting"] else 0)
                    )
                    draft.replace(most)
            try:
                time.sleep(state["seconds"])
                self._respond(
                    *_response(queue, state, self.path.strip("/"), body, self.headers)
                )
            finally:
                with _LOCK:
                    _NOW[0] -= 1

        def _respond(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == NOT_RETRIED:
                self.send_header("Service-NonRetryable-Error", "true")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Listening(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing of a service that was killed while it waited for a response."""

    server = Listening(("127.0.0.1", port), Handler)
    print(server.server_port, flush=True)  # noqa: T201 - the parent reads it
    server.serve_forever()


def _response(
    queue: httpx.Client, state: dict, name: str, body: bytes, headers
) -> tuple[int, bytes]:  # type: ignore[no-untyped-def, type-arg]
    if name.startswith("poison"):
        return NOT_RETRIED, json.dumps(
            {"error": f"ValidationError: {name} must be a number"}
        ).encode()
    order = json.loads(body)
    if isinstance(order, list):  # the run's history: its first item is the payload
        order = json.loads(base64.b64decode(order[0]["body"]))
    number = order["order"]
    if name in state["mended"] or (name in state["half"] and number % 2):
        run = headers.get("Service-Workflow-RunId", "")
        try:
            ended = queue.delete(
                f"{state['queue']}/v2/workflows/runs/{run}",
                params={"cancel": "false"},
                headers={"Authorization": f"Bearer {state['token']}"},
            )
        except httpx.TransportError:  # the service is being killed
            return 503, b'{"error": "queue"}'
        # 404: a delivery that comes twice finds the run ended
        return (
            (200, b"{}")
            if ended.status_code in (200, 404)
            else (503, b'{"error": "queue"}')
        )
    return NOT_RETRIED, json.dumps(
        {"error": f"{name} has no stock", "code": name.upper()}
    ).encode()


if __name__ == "__main__":
    main()
