"""`Faults`: middleware that applies scripted faults to requests of the embedded service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Self, TypedDict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkit.base.errors import InputError, LocalServiceError, SettingsError
from toolkit.base.serving import CALLER, BoundedHttp
from toolkit_service.api import ApiError, error_body, parse_json, read_body, read_json
from toolkit_service.demo.faults.page_faults import Listings
from toolkit_service.demo.faults.script import Fault, FaultScript
from toolkit_service.demo.faults.sending import ScriptedResponse, send
from toolkit_service.operations import Operation, Query

# no faults for paths below this, so that a script can be removed
_ADMIN: Final = "/admin/"
_SCRIPTED: Final = (
    "a scripted fault; got a fault of the script; expected no regular response"
)


class NewScript(TypedDict):
    """The faults that replace the previous ones."""

    faults: list[Fault]


class CountedFault(TypedDict):
    """A fault, the number of requests that matched, and the number of requests with the fault."""

    fault: Fault
    requests: int
    struck: int


class CountedFaults(TypedDict):
    """The faults and the counts of each."""

    faults: list[CountedFault]


class Faults:
    """The faults of a service, for the argument `interception` of `toolkit_service.app.build_app`."""

    def __init__(self, script: FaultScript | None = None) -> None:
        self.script = script or FaultScript()

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """Read the faults of a file, if it is given. Raise SettingsError if it is malformed."""
        faults = cls()
        if file is None:
            return faults

        try:
            faults.script.put(parse_json(file.read_bytes()))
        except (OSError, ApiError, InputError) as error:
            raise SettingsError(
                f"reading the fault script {file.name!r}",
                got=error.strerror if isinstance(error, OSError) else str(error),
                expected="a JSON file as toolkit_service.demo.faults describes it",
            ) from None

        return faults

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations that show, replace and clear the script."""
        path = "/admin/faults"
        shown = "Show the fault script with counts."

        return (
            Operation(
                "GET", path, "faults", shown, self._show, CountedFaults, tag="service"
            ),
            Operation(
                "PUT",
                path,
                "putFaults",
                "Replace the fault script.",
                self._put,
                CountedFaults,
                tag="service",
                body=NewScript,
            ),
            Operation(
                "DELETE",
                path,
                "clearFaults",
                "Clear the fault script.",
                self._clear,
                CountedFaults,
                tag="service",
            ),
        )

    async def _show(self, _: Request, __: Query) -> Response:
        return JSONResponse(self.script.shown())

    async def _put(self, request: Request, _: Query) -> Response:
        try:
            self.script.put(await read_json(request))
        except InputError as error:
            raise ApiError(400, str(error)) from None

        return JSONResponse(self.script.shown())

    async def _clear(self, _: Request, __: Query) -> Response:
        self.script.clear()
        return JSONResponse(self.script.shown())

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return an application that adds the faults to another one."""
        return _FaultyApp(app, self.script)


class _FaultyApp:
    """ASGI middleware: a request gets the response of the fault that is due; others pass unchanged."""

    def __init__(self, app: ASGIApp, script: FaultScript) -> None:
        self._app = app
        self._script = script
        self._listings = Listings()
        self._listings_since = script.given

    async def __call__(self, scope: Scope, receive: Receive, send_on: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_ADMIN):
            await self._app(scope, receive, send_on)
            return

        if self._listings_since != self._script.given:
            # a new script begins with new listings
            self._listings_since, self._listings = self._script.given, Listings()

        method, path = scope["method"], scope["path"]
        fault = self._script.strike(method, path)
        has_pages = self._script.has_pages(method, path)
        if fault is None and not has_pages:
            await self._app(scope, receive, send_on)
            return

        # the whole body, even if it is not used: closing a connection that still receives is a reset
        body = await read_body(Request(scope, receive))
        cursor = ""
        if has_pages:
            cursor, scope["query_string"], body = self._listings.translated(
                scope["query_string"], body
            )

        if fault is not None and not fault.calls_service:
            response = _scripted(fault, path)
        else:
            response = await self._call(scope, body)
            if has_pages and response.status == 200:  # noqa: PLR2004 - only successful responses have pages
                page = fault.page if fault else None
                response.body = self._listings.with_fault(
                    path, cursor, response.body, page
                )

        if fault is None:
            await _pass_on(response, send_on)
            return

        # the server would correct some faults: the response is written to the connection directly
        response.body = _changed(response.body, fault)
        await send(response, fault, _connection(scope), head_only=method == "HEAD")

    async def _call(self, scope: Scope, body: bytes) -> ScriptedResponse:
        """Return the response of the service itself."""
        # an ASGI conversation: one message with the whole body, and the response in parts
        sent, status, headers, content = False, 500, dict[str, str](), bytearray()
        scope["headers"] = [
            (name, text) for name, text in scope["headers"] if name != b"content-length"
        ]

        async def receive() -> Message:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}

            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Message) -> None:
            nonlocal status
            if message["type"] != "http.response.start":
                content.extend(message.get("body", b""))
                return

            status = message["status"]
            for name, text in message.get("headers", []):
                headers[name.decode("latin-1").lower()] = text.decode("latin-1")

        await self._app(scope, receive, keep)

        return ScriptedResponse(status, headers, bytes(content))


def _scripted(fault: Fault, path: str) -> ScriptedResponse:
    """Return a response that the script determines, without the service."""
    status = 200 if fault.status is None else fault.status
    body = fault.own_body
    if body is None:
        body = error_body(status, _SCRIPTED, path)
    return ScriptedResponse(status, {}, body)


def _changed(body: bytes, fault: Fault) -> bytes:
    """Return a body without the dropped fields, and with the replacements."""
    if fault.drop:
        body = _without_fields(body, fault.drop)
    for replacement in fault.replace:
        body = body.replace(replacement.text.encode(), replacement.instead)
    return body


def _without_fields(body: bytes, names: tuple[str, ...]) -> bytes:
    try:
        content: Any = json.loads(body)
    except ValueError:
        return body

    if not isinstance(content, dict):
        return body

    for name in names:
        content.pop(name, None)
    return json.dumps(content).encode()


async def _pass_on(response: ScriptedResponse, send_on: Send) -> None:
    headers = response.headers | {"content-length": str(len(response.body))}
    pairs = [
        (name.encode("latin-1"), text.encode("latin-1"))
        for name, text in headers.items()
    ]
    await send_on(
        {"type": "http.response.start", "status": response.status, "headers": pairs}
    )
    await send_on({"type": "http.response.body", "body": response.body})


def _connection(scope: Scope) -> BoundedHttp:
    connection = scope.get("extensions", {}).get(CALLER)
    if not isinstance(connection, BoundedHttp):
        raise LocalServiceError(
            "letting a request meet a fault",
            got="a server that does not expose its connections",
            expected="uvicorn with toolkit.base.serving.BoundedHttp",
        )

    return connection
