"""The embedded service's application: both halves behind one guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolkit.local.answers import ApiError, refusal_body
from toolkit.local.faults.answering import Faults
from toolkit.local.faults.routes import fault_routes
from toolkit.local.faults.script import FaultScript
from toolkit.local.guard import FAILED, TOKEN_PARAMETERS, Guard
from toolkit.local.openapi.document import described, document
from toolkit.local.queue.dlq_routes import dlq_routes
from toolkit.local.queue.log_routes import log_routes
from toolkit.local.queue.message_routes import message_routes
from toolkit.local.queue.publish_routes import publish_routes
from toolkit.local.queue.run_routes import run_routes
from toolkit.local.queue.service import Queue
from toolkit.local.status import status_page
from toolkit.local.vectors.registry import IndexRegistry
from toolkit.local.vectors.vector_routes import vector_routes
from toolkit.redaction import Secret

_METHODS = ("get", "post", "put", "patch", "delete")


def build_app(
    queue: Queue, registry: IndexRegistry, token: Secret, *, faults: FaultScript | None = None
) -> ASGIApp:
    """The application. While it runs, messages are delivered.

    Parameters
    ----------
    queue : Queue
        Served at the root.
    registry : IndexRegistry
        Its indexes are served at ``/vector/<name>``.
    token : Secret
        The one token of both halves.
    faults : FaultScript, optional
        What goes wrong on purpose. Default: nothing, until it is said at ``/admin/faults``.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with queue.running():
            yield

    script = FaultScript() if faults is None else faults
    routes: list[BaseRoute] = [
        Route("/", status_page(queue, registry), methods=["GET"]),
        Route("/openapi.json", described, methods=["GET"]),
        *fault_routes(script),
        *publish_routes(),
        *dlq_routes(),
        *run_routes(),
        *log_routes(),
        *message_routes(),
        *vector_routes(registry),
    ]
    described_paths = document()["paths"]
    for route in routes:
        if isinstance(route, Route):
            route.app = _KnownParameters(route, described_paths[route.path.replace(":path}", "}")])
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={ApiError: _refused, HTTPException: _not_there, Exception: _failed},
    )
    app.router.redirect_slashes = False
    app.state.queue = queue
    return Guard(Faults(app, script), token)


class _KnownParameters:
    """ASGI middleware of one route: query parameters that its description does not name are refused.

    A misspelt filter would otherwise be ignored, and the request would be about everything.
    """

    def __init__(self, route: Route, described: Mapping[str, Any]) -> None:
        self._app = route.app
        # what follows the destination of a publish is the destination's own query
        self._open = "{destination:path}" in route.path
        self._known = {
            method.upper(): [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            for method, operation in described.items()
            if method in _METHODS
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or let the route respond."""
        known = self._known.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if scope["query_string"] and known is not None and not self._open:
            allowed = [*sorted(known), *TOKEN_PARAMETERS]
            for name in QueryParams(scope["query_string"]):
                if name not in allowed:
                    expected = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
                    raise ApiError(400, f"unknown query parameter; got {name[:80]!r}; expected {expected}")
        await self._app(scope, receive, send)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return _answer(request, error.status, error.message)


async def _failed(request: Request, _: Exception) -> Response:
    return _answer(request, 500, FAILED)


async def _not_there(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    allowed = _allowed(request)
    if request.method == "OPTIONS" and allowed:
        return Response(status_code=204, headers={"Allow": allowed})
    asked = f"{request.method} {request.url.path[:200]}"
    message = (
        f"{asked} is not served here; got {error.status_code} {error.detail}; expected a documented route"
    )
    answer = _answer(request, error.status_code, message)
    if error.status_code == 405:  # noqa: PLR2004 - RFC 9110 wants this header with it
        answer.headers["Allow"] = allowed
    return answer


def _allowed(request: Request) -> str:
    """The methods of a path, over all routes that it matches: one route alone does not know the others'."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            named = route.methods or {name.upper() for name in _METHODS if hasattr(route.endpoint, name)}
            found |= {*named, "OPTIONS"}
    return ", ".join(sorted(found | ({"HEAD"} if "GET" in found else set())))


def _answer(request: Request, status: int, message: str) -> Response:
    return Response(refusal_body(status, message, request.url.path), status, media_type="application/json")
