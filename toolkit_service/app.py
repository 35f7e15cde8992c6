"""The application: operations, the status page, authentication, and the responses to errors.

A request needs one valid token, in a header or in the URL. Other tokens in the request do not matter.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache, partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl, urlsplit

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkit.base.serving import CALLER, MAX_HEAD
from toolkit.secrets.redaction import Secret, escape_html
from toolkit.version import __version__
from toolkit_service.api import TOKEN_PARAMETERS, ApiError, error_body, invalid
from toolkit_service.operations import Operation, Query, document
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.dlq import dlq_operations
from toolkit_service.queue.flow_control_routes import flow_control_operations
from toolkit_service.queue.named_queue_routes import queue_operations
from toolkit_service.queue.publish_routes import message_operations
from toolkit_service.queue.run_routes import run_operations
from toolkit_service.queue.schedule_routes import schedule_operations
from toolkit_service.queue.scheduler import Queue
from toolkit_service.queue.url_group_routes import url_group_operations
from toolkit_service.storage_errors import INTERNAL_ERROR
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import IndexSpec
from toolkit_service.vectors.vector_routes import vector_operations

if TYPE_CHECKING:
    from jinja2 import Template

# without a token they show no stored data
_WITHOUT_TOKEN: Final = frozenset({"/", "/openapi.json"})
_OUR_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_HOST: Final = re.compile(r"[\w.:\[\]%\-]*", re.ASCII)
_BEARER: Final = re.compile(r"(?i)bearer +(\S+) *")

_log = logging.getLogger(__name__)
_public = partial(Operation, tag="service", without_token=True)


class Interception(Protocol):
    """Middleware in front of the application that adds operations, for example scripted faults."""

    def operations(self) -> Iterable[Operation]:
        """Return the operations that are served and described together with the operations of the service."""

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return an application that intercepts the requests to another one."""


def build_app(
    queue: Queue,
    registry: IndexRegistry,
    token: Secret,
    *,
    interception: Interception | None = None,
) -> ASGIApp:
    """Return the application: the queue at the root, and each index at ``/vector/<name>``.

    While it runs, the queue delivers messages.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with queue.running():
            yield

    operations = all_operations(queue, registry, interception)
    app = Starlette(
        routes=[operation.route() for operation in operations],
        lifespan=lifespan,
        exception_handlers=error_handlers(registry, queue),
    )
    app.router.redirect_slashes = False

    return Guard(app if interception is None else interception.wrap(app), token)


def all_operations(
    queue: Queue, registry: IndexRegistry, interception: Interception | None = None
) -> list[Operation]:
    """Return all operations, including the operation that returns the OpenAPI document."""

    async def described(_: Request, __: Query) -> Response:
        return JSONResponse(document(operations))

    of_interception = () if interception is None else interception.operations()
    operations = [
        status_operation(queue, registry),
        _public(
            "GET",
            "/openapi.json",
            "document",
            "Return this document.",
            described,
            dict[str, Any],
        ),
        *of_interception,
        *message_operations.of(queue),
        *dlq_operations(queue),
        *run_operations.of(queue),
        *url_group_operations.of(queue),
        *queue_operations.of(queue),
        *schedule_operations.of(queue),
        *flow_control_operations.of(queue),
        *vector_operations(registry),
    ]

    return operations


def error_handlers(
    registry: IndexRegistry, queue: Queue | None = None
) -> dict[Any, Any]:
    """Return the functions with which Starlette turns errors into responses.

    If an error is unexpected, the database is checked, so that the response can name a damaged value.
    """

    async def unexpected(request: Request, error: Exception) -> Response:
        problem = INTERNAL_ERROR
        index = request.path_params.get("index")
        if index is not None:
            problem = await registry.run(registry.problem, index, error)
        elif queue is not None:
            problem = await queue.store.problem(error)

        return _error_response(request.url.path, 500, problem)

    return {ApiError: _api_error, HTTPException: _not_served, Exception: unexpected}


async def _api_error(request: Request, error: ApiError) -> Response:
    return _error_response(request.url.path, error.status, error.message)


async def _not_served(request: Request, error: HTTPException) -> Response:
    """Return the response for an unknown path or method, or to OPTIONS."""
    path, allowed = request.url.path, _allowed_methods(request)
    if request.method == "OPTIONS" and allowed:
        return Response(status_code=204, headers={"Allow": allowed})

    got = f"{error.status_code} {error.detail}"
    message = f"{request.method} {path[:200]} is not served here; got {got}; expected a documented route"
    response = _error_response(path, error.status_code, message)
    if error.status_code == 405:  # noqa: PLR2004 - RFC 9110 requires this header with it
        response.headers["Allow"] = allowed
    return response


def _allowed_methods(request: Request) -> str:
    """Return the methods of a path, over all routes that match it."""
    methods: set[str] = set()
    for route in request.app.routes:
        if (
            isinstance(route, Route)
            and route.matches(request.scope)[0] is not Match.NONE
        ):
            methods |= {*(route.methods or ()), "OPTIONS"}

    return ", ".join(sorted(methods))


def _error_response(path: str, status: int, message: str) -> Response:
    # RFC 9110 requires this header with 401
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}  # noqa: PLR2004
    body = error_body(status, message, path)
    return Response(body, status, headers, media_type="application/json")


class Guard:
    """ASGI middleware: 403 for foreign hosts and origins, 401 for wrong tokens, 500 for internal errors."""

    def __init__(self, app: ASGIApp, token: Secret) -> None:
        self._app = app
        # a reference: while it exists, the token is masked in all responses
        self._secret = token
        self._token = token.reveal().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or send an error."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        begun = ended = False

        async def watched(message: Message) -> None:
            nonlocal begun, ended
            begun = True
            ended = message["type"] == "http.response.body" and not message.get(
                "more_body", False
            )
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, watched)
        except ApiError as error:
            await _error_response(scope["path"], error.status, error.message)(
                scope, receive, watched
            )
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - any error; the service continues
            _log_failure(scope["method"], error)
            if begun and not ended:
                raise Abort from None
            if not begun:
                await _error_response(scope["path"], 500, INTERNAL_ERROR)(
                    scope, receive, watched
                )

    def _check(self, scope: Scope) -> None:
        """Raise an `ApiError` if the request is too large, from elsewhere or without a valid token."""
        _check_size(scope)
        headers = Headers(scope=scope)
        _check_hosts(headers)
        # all tokens are compared, so that the duration reveals nothing
        tokens = _tokens(scope, headers)
        is_right = [
            hmac.compare_digest(token.encode(), self._token) for token in tokens
        ]

        scope[KNOWN] = any(is_right)
        if scope[KNOWN]:
            caller = scope.get("extensions", {}).get(CALLER)
            if caller is not None:
                caller.admit()
        elif is_right:
            expected = "the token of the service in one of the places"
            raise invalid("token is not valid", "another one", expected, status=401)
        elif scope["path"] not in _WITHOUT_TOKEN:
            expected = "'Authorization: Bearer …' or the parameter queue_token"
            raise invalid("no token", "none", expected, status=401)


def _log_failure(method: str, error: Exception) -> None:
    """Log type and line of an error, not the message, which may contain data of the request."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    failed = (method, type(error).__name__, frame.f_code.co_filename, line)
    _log.error("responding to %s failed: %s at %s:%s", *failed)


def _check_size(scope: Scope) -> None:
    # the server does not limit a head that arrives in one read
    head = len(scope["raw_path"]) + len(scope["query_string"])
    for name, text in scope["headers"]:
        head += len(name) + len(text) + 4
    if head > MAX_HEAD:
        raise invalid(
            "headers too large", f"{head} bytes", f"at most {MAX_HEAD}", status=431
        )


def _check_hosts(headers: Headers) -> None:
    """Refuse requests that a foreign page sends, for example by a name that resolves to this machine."""
    host, origin = headers.get("host", ""), headers.get("origin")
    ours = "127.0.0.1 or localhost"
    if _hostname(f"//{host}") not in _OUR_HOSTS:
        # quoted only if it is a host name: the value can include a folded line with other data
        got = (
            repr(host)[:80] if _HOST.fullmatch(host) else "text that is not a host name"
        )
        raise invalid("Host is not this machine", got, ours, status=403)

    if origin is not None and _hostname(origin) not in _OUR_HOSTS:
        raise invalid(
            "Origin is not this machine",
            repr(origin)[:80],
            f"none, or {ours}",
            status=403,
        )


def _tokens(scope: Scope, headers: Headers) -> list[str]:
    """Return the tokens of a request, from headers and the query string."""
    tokens = []
    for text in headers.getlist("authorization"):
        match = _BEARER.fullmatch(text)
        if match:
            tokens.append(match[1])

    query = parse_qsl(scope["query_string"].decode("latin-1"))
    tokens += [text for name, text in query if name in TOKEN_PARAMETERS]
    return tokens


class Abort(Exception):  # noqa: N818 - ends a connection, not an error
    """A response cannot be finished. The connection is closed: the response must not look complete."""


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


KNOWN: Final = "toolkit.known"
"""The key of the ASGI scope that tells whether the request was authenticated."""

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_COUNTS: Final = {
    "messages waiting or on their way": "SELECT count(*) FROM messages",
    "failed workflow runs in the DLQ": "SELECT count(*) FROM dlq WHERE workflow AND entered_at >= :since",
    "failed messages in the DLQ": "SELECT count(*) FROM dlq WHERE NOT workflow AND entered_at >= :since",
    "workflow runs in progress": "SELECT count(*) FROM runs WHERE state = 'RUN_STARTED'",
    "workflow runs succeeded": "SELECT count(*) FROM runs WHERE state = 'RUN_SUCCESS'",
    "workflow runs failed": "SELECT count(*) FROM runs WHERE state = 'RUN_FAILED'",
    "workflow runs canceled": "SELECT count(*) FROM runs WHERE state = 'RUN_CANCELED'",
}


def status_operation(queue: Queue, registry: IndexRegistry) -> Operation:
    """Return the operation that shows the state of the queue and the indexes."""

    def vector_counts() -> list[tuple[IndexSpec, int]]:
        return [
            (spec, sum(registry.get(spec.name).namespaces().values()))
            for spec in registry.specs()
        ]

    async def page(request: Request, _: Query) -> Response:
        counts = await queue.store.read(_counted, queue.store.expired_before)
        indexes = await registry.run(vector_counts)
        counts += [
            ("vector indexes", len(indexes)),
            ("vectors", sum(count for _, count in indexes)),
        ]
        # names of indexes are shown to authenticated callers only
        shown_indexes = indexes if request.scope.get(KNOWN) else None
        html = _status_template().render(
            counts=counts, version=__version__, indexes=shown_indexes
        )

        return HTMLResponse(html, headers=_HEADERS)

    return _public("GET", "/", "status", "Return the status page.", page, str)


@cache
def _status_template() -> Template:
    """Return the template of the status page, which most services never show."""
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415 - a service starts faster without it

    return Environment(
        loader=PackageLoader("toolkit_service", "templates"),
        finalize=lambda content: Markup(escape_html(content)),  # noqa: S704 - escaped right here
        autoescape=True,
        trim_blocks=True,
    ).get_template("status.html")


def _counted(tx: QueueWrite, since: int) -> list[tuple[str, int]]:
    counts = []
    for description, sql in _COUNTS.items():
        (count,) = tx.connection.execute(sql, {"since": since}).fetchone()
        counts.append((description, count))

    return counts
