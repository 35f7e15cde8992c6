"""The embedded service's application: both halves behind one guard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from toolkit.local.answers import Refusal, refusal_body
from toolkit.local.guard import FAILED, Guard
from toolkit.local.queue.dlq_routes import dlq_routes
from toolkit.local.queue.publish_routes import publish_routes
from toolkit.local.queue.run_routes import run_routes
from toolkit.local.queue.service import Queue
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.routes import vector_routes
from toolkit.redaction import Secret


def build_app(queue: Queue, registry: IndexRegistry, token: Secret) -> ASGIApp:
    """The application. While it runs, messages are delivered.

    Parameters
    ----------
    queue : Queue
        Served at the root.
    registry : IndexRegistry
        Its indexes are served at ``/vector/<name>``.
    token : Secret
        The one token of both halves.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with queue.running():
            yield

    routes: list[BaseRoute] = [*publish_routes(), *dlq_routes(), *run_routes(), *vector_routes(registry)]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={Refusal: _refused, HTTPException: _not_there, Exception: _failed},
    )
    app.router.redirect_slashes = False
    app.state.queue = queue
    return Guard(app, token)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return _answer(request, error.status, error.message)


async def _failed(request: Request, _: Exception) -> Response:
    return _answer(request, 500, FAILED)


async def _not_there(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    asked = f"{request.method} {request.url.path[:200]}"
    message = (
        f"{asked} is not served here; got {error.status_code} {error.detail}; expected a documented route"
    )
    answer = _answer(request, error.status_code, message)
    answer.headers.update(error.headers or {})
    return answer


def _answer(request: Request, status: int, message: str) -> Response:
    return Response(refusal_body(status, message, request.url.path), status, media_type="application/json")
