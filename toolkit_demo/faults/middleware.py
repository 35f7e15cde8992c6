"""`Faults`: middleware that applies scripted faults to requests of the embedded service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Self, TypedDict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkit.errors import InputError, LocalServiceError, SettingsError
from toolkit.local.api import ApiError, error_body, parse_json, read_body, read_json
from toolkit.local.operations import Operation, Query
from toolkit.serving import CALLER, BoundedHttp
from toolkit_demo.faults.page_faults import Listings
from toolkit_demo.faults.script import Fault, FaultScript
from toolkit_demo.faults.sending import ScriptedResponse, send

_ADMIN: Final = "/admin/"  # paths below this meet no faults: they are how a script is removed
_SCRIPTED: Final = "a scripted fault; got a fault of the script; expected no regular response"


class NewScript(TypedDict):
    """The faults that replace those of before."""

    faults: list[Fault]


class CountedFault(TypedDict):
    """A fault, how many requests it has seen, and to how many it was applied."""

    fault: Fault
    requests: int
    struck: int


class CountedFaults(TypedDict):
    """The faults with their counts."""

    faults: list[CountedFault]


class Faults:
    """The faults of a service, given to `toolkit.local.app.build_app` as its interception."""

    def __init__(self, script: FaultScript | None = None) -> None:
        self.script = script or FaultScript()

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """The faults of a file; none without one. Raises `SettingsError` when it is malformed."""
        faults = cls()
        if file is not None:
            try:
                faults.script.put(parse_json(file.read_bytes()))
            except (OSError, ApiError, InputError) as error:
                raise SettingsError(
                    f"reading the fault script {file.name!r}",
                    got=error.strerror if isinstance(error, OSError) else str(error),
                    expected="a JSON file as toolkit_demo.faults describes it",
                ) from None
        return faults

    def operations(self) -> tuple[Operation, ...]:
        """Look at the script, replace it, clear it."""
        declared = (
            ("GET", "faults", "The fault script and its counts.", self._show, None),
            ("PUT", "putFaults", "Replace the fault script.", self._put, NewScript),
            ("DELETE", "clearFaults", "Clear the fault script.", self._clear, None),
        )
        return tuple(
            Operation(method, "/admin/faults", name, summary, run, CountedFaults, tag="service", body=body)
            for method, name, summary, run, body in declared
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
        """The application behind the faults."""
        return _FaultyApp(app, self.script)


class _FaultyApp:
    """ASGI middleware: requests that a fault is due for get its response, all others pass unchanged."""

    def __init__(self, app: ASGIApp, script: FaultScript) -> None:
        self._app = app
        self._script = script
        self._listings = Listings()
        self._given = script.given

    async def __call__(self, scope: Scope, receive: Receive, send_on: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_ADMIN):
            await self._app(scope, receive, send_on)
            return
        if self._given != self._script.given:
            self._given, self._listings = self._script.given, Listings()
        method, path = scope["method"], scope["path"]
        fault = self._script.strike(method, path)
        remembered = self._script.has_pages(method, path)
        if fault is None and not remembered:
            await self._app(scope, receive, send_on)
            return
        # all of it, also when it is not used: closing on a caller that still sends is a reset
        body = await read_body(Request(scope, receive))
        cursor = ""
        if remembered:
            cursor, scope["query_string"], body = self._listings.translated(scope["query_string"], body)
        if fault is not None and not fault.calls_service:
            status = 200 if fault.status is None else fault.status
            own = fault.own_body
            response = ScriptedResponse(
                status, {}, error_body(status, _SCRIPTED, path) if own is None else own
            )
        else:
            response = await self._call(scope, body)
            if remembered and response.status == 200:  # noqa: PLR2004 - only successful responses have pages
                page = fault.page if fault else None
                response.body = self._listings.with_fault(path, cursor, response.body, page)
        if fault is None:
            await _pass_on(response, send_on)
            return
        response.body = _changed(response.body, fault)
        await send(response, fault, _connection(scope), head_only=method == "HEAD")

    async def _call(self, scope: Scope, body: bytes) -> ScriptedResponse:
        """The service's own response."""
        sent, status, headers, content = False, 500, dict[str, str](), bytearray()
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"content-length"]

        async def receive() -> Message:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.update(
                    (name.decode("latin-1").lower(), value.decode("latin-1"))
                    for name, value in message.get("headers", [])
                )
            else:
                content.extend(message.get("body", b""))

        await self._app(scope, receive, keep)
        return ScriptedResponse(status, headers, bytes(content))


def _changed(body: bytes, fault: Fault) -> bytes:
    if fault.drop:
        try:
            found: Any = json.loads(body)
        except ValueError:
            found = None
        if isinstance(found, dict):
            kept = {name: value for name, value in found.items() if name not in fault.drop}
            body = json.dumps(kept).encode()
    for replacement in fault.replace:
        body = body.replace(replacement.text.encode(), replacement.instead)
    return body


async def _pass_on(response: ScriptedResponse, send_on: Send) -> None:
    headers = response.headers | {"content-length": str(len(response.body))}
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send_on({"type": "http.response.start", "status": response.status, "headers": pairs})
    await send_on({"type": "http.response.body", "body": response.body})


def _connection(scope: Scope) -> BoundedHttp:
    connection = scope.get("extensions", {}).get(CALLER)
    if not isinstance(connection, BoundedHttp):
        raise LocalServiceError(
            "letting a request meet a fault",
            got="a server that does not expose its connections",
            expected="uvicorn with toolkit.serving.BoundedHttp",
        )
    return connection
