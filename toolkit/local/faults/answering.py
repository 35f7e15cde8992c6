"""ASGI middleware that lets requests meet the faults of a script."""

from __future__ import annotations

import json
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkit.errors import LocalServiceError
from toolkit.local.answers import read_body, refusal_body
from toolkit.local.faults.listing import Listings
from toolkit.local.faults.script import Fault, FaultScript, PageFault
from toolkit.local.faults.sending import Answer, send
from toolkit.local.protocol import WIRE, Wire

ADMIN: Final = "/admin/"
"""Paths below this are never struck: they are how a script is taken back."""


class Faults:
    """Lets requests meet what a script has for them; all others pass unchanged.

    Parameters
    ----------
    app : ASGI application
    script : FaultScript
    """

    def __init__(self, app: ASGIApp, script: FaultScript) -> None:
        self._app = app
        self._script = script
        self._listings = Listings()
        self._given = script.given

    async def __call__(self, scope: Scope, receive: Receive, send_on: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"].startswith(ADMIN):
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
        # all of it, also where nobody reads it: closing on a caller that still sends is a reset
        body = await read_body(Request(scope, receive))
        cursor = ""
        if remembered:
            cursor, scope["query_string"], body = self._listings.asked(scope["query_string"], body)
        if fault is not None and not fault.asks:
            status = 200 if fault.status is None else fault.status
            own = fault.own_body
            answer = Answer(status, {}, refusal_body(status, _SCRIPTED, path) if own is None else own)
        else:
            answer = await self._ask(scope, body)
            if remembered:
                page = fault.page if fault else None
                answer.body = self._page(path, cursor, answer, page)
        if fault is None:
            await _pass_on(answer, send_on)
            return
        answer.body = _changed(answer.body, fault)
        await send(answer, fault, _wire(scope), head_only=method == "HEAD")

    def _page(self, path: str, cursor: str, answer: Answer, page: PageFault | None) -> bytes:
        if answer.status != 200:  # noqa: PLR2004 - pages come with success alone
            return answer.body
        return self._listings.answered(path, cursor, answer.body, page)

    async def _ask(self, scope: Scope, body: bytes) -> Answer:
        """The service's own answer."""
        given, status, headers, answer = False, 500, dict[str, str](), bytearray()
        if "content-length" in dict(scope["headers"]):
            scope["headers"] = [
                (name, value) for name, value in scope["headers"] if name != b"content-length"
            ]

        async def receive() -> Message:
            nonlocal given
            if given:
                return {"type": "http.disconnect"}
            given = True
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
                answer.extend(message.get("body", b""))

        await self._app(scope, receive, keep)
        return Answer(status, headers, bytes(answer))


_SCRIPTED: Final = "a scripted fault; got what the script says; expected the unexpected"


def _changed(body: bytes, fault: Fault) -> bytes:
    if fault.drop:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if isinstance(found, dict):
            kept = {name: value for name, value in found.items() if name not in fault.drop}
            body = json.dumps(kept).encode()
    for replacement in fault.replace:
        body = body.replace(replacement.text.encode(), replacement.instead)
    return body


async def _pass_on(answer: Answer, send_on: Send) -> None:
    headers = answer.headers | {"content-length": str(len(answer.body))}
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send_on({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send_on({"type": "http.response.body", "body": answer.body})


def _wire(scope: Scope) -> Wire:
    wire = scope.get("extensions", {}).get(WIRE)
    if not isinstance(wire, Wire):
        raise LocalServiceError(
            "letting a request meet a fault",
            got="a server that does not hand out its connections",
            expected="uvicorn with toolkit.local.protocol.Http",
        )
    return wire
