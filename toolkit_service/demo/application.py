"""The small application that fails: workflow endpoints, a failure function and a callback endpoint over HTTP.

``python -m toolkit_service.demo.application`` serves it on a free loopback port, for the queue that the
environment names. The first line on standard output is a JSON object with the address.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from toolkit.base.errors import SignatureError
from toolkit.service.connecting import connect
from toolkit.service.settings import Endpoint
from toolkit.service.signatures import region_in, signature_in, verify_signature
from toolkit_service.demo.protocol import WorkflowEndpoint
from toolkit_service.demo.workflows import (
    BROKEN_FAILURE_FUNCTION,
    FAILURE_FUNCTION,
    WORKFLOWS,
)

LOOPBACK: Final = "127.0.0.1"
_KEPT: Final = 5000  # most callbacks that are listed
_TIMEOUT: Final = 20.0  # seconds per request to the queue


def application(queue: Endpoint) -> Starlette:
    """Return the application: workflows, failure functions and callbacks.

    Workflows are at ``/flows/<workflow>``, for example ``/flows/orders/prices``. ``/callback`` receives
    callbacks, ``/orders`` echoes a request, and ``/received`` lists callbacks and failure callbacks. If the
    queue has signing keys, unsigned deliveries and callbacks are refused.
    """
    received: deque[dict[str, Any]] = deque(maxlen=_KEPT)
    http = httpx.AsyncClient(
        timeout=_TIMEOUT, limits=httpx.Limits(max_connections=64), trust_env=False
    )

    async def workflow(request: Request) -> Response:
        endpoint = endpoints[request.url.path.removeprefix("/flows/")]
        if endpoint.is_delivery(request):
            refusal = await _refusal(request, queue)
            if refusal:
                return refusal

        # the start of a run comes from a user, without a signature
        return await endpoint(request)

    async def failure_function(request: Request) -> Response:
        if refusal := await _refusal(request, queue):
            return refusal

        await keep(request, "failure")
        if request.url.path.endswith(BROKEN_FAILURE_FUNCTION):
            return JSONResponse({"error": "the failure function failed too"}, 500)

        return JSONResponse({"ok": True})

    async def callback(request: Request) -> Response:
        if refusal := await _refusal(request, queue):
            return refusal

        await keep(request, "callback")
        return JSONResponse({"ok": True})

    async def keep(request: Request, kind: str) -> None:
        # bodies of callbacks can be large: only the fields that the demo reports are kept
        body = await request.json()
        shown = {
            name: body.get(name)
            for name in ("status", "url", "dlqId", "workflowRunId", "retried")
        }
        received.append({"kind": kind, **shown})

    async def echo(request: Request) -> Response:
        return Response(
            await request.body(), media_type=request.headers.get("content-type")
        )

    async def show(_: Request) -> Response:
        return JSONResponse(list(received))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with http:
            yield

    endpoints = {
        sample.name: WorkflowEndpoint(sample, queue, http) for sample in WORKFLOWS
    }
    routes = [Route(f"/flows/{name}", workflow, methods=["POST"]) for name in endpoints]
    routes += [
        Route(f"/{FAILURE_FUNCTION}", failure_function, methods=["POST"]),
        Route(f"/{BROKEN_FAILURE_FUNCTION}", failure_function, methods=["POST"]),
        Route("/callback", callback, methods=["POST"]),
        Route("/orders", echo, methods=["POST"]),
        Route("/received", show, methods=["GET"]),
    ]

    return Starlette(routes=routes, lifespan=lifespan)


async def _refusal(request: Request, queue: Endpoint) -> Response | None:
    """Return the error response to an unsigned request, or None if it is signed or no keys are known."""
    keys = queue.keys_of(region_in(request.headers.items()))
    if not keys:
        return None

    signature = signature_in(request.headers.items()) or ""
    try:
        verify_signature(
            signature, await request.body(), url=str(request.url), keys=keys
        )
    except SignatureError as error:
        return PlainTextResponse(str(error), 401)

    return None


class _Announced(uvicorn.Server):
    """A server that prints the address on standard output when it is ready."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            address = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
            print(json.dumps({"url": address, "pid": os.getpid()}), flush=True)  # noqa: T201 - the parent reads it


async def serve(queue: Endpoint, *, with_parent: bool) -> None:
    """Serve until a signal or, `with_parent`, the end of standard input."""
    listening = socket.create_server((LOOPBACK, 0), backlog=512)
    server = _Announced(
        uvicorn.Config(
            application(queue),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=4,
        )
    )
    if with_parent:

        def end() -> None:
            # not sys.stdin: a thread that waits in it would keep the lock to the end
            while os.read(0, 4096):
                pass
            server.should_exit = True

        threading.Thread(target=end, daemon=True).start()

    await server.serve(sockets=[listening])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the application; see the docstring of the module."""
    parser = argparse.ArgumentParser(
        prog="python -m toolkit_service.demo.application",
        description="A small application that fails.",
    )
    parser.add_argument(
        "--with-parent", action="store_true", help="end when standard input closes"
    )
    asyncio.run(
        serve(
            connect().need("queue"),
            with_parent=parser.parse_args(arguments).with_parent,
        )
    )

    return 0


if __name__ == "__main__":
    raise SystemExit(main())
