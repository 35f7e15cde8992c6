"""Who may use the embedded service: callers on this machine, with the token in a header or in the URL.

One valid token is enough, wherever it is and whatever stands in the other places.
"""

from __future__ import annotations

import hmac
import logging
import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkit.local.answers import ApiError, refusal_body
from toolkit.redaction import Secret
from toolkit.serving import CALLER, MAX_HEAD

TOKEN_PARAMETERS: Final = ("queue_token", "qstash_token")
"""Query parameters that may carry the token, beside the Authorization header."""

OPEN_PATHS: Final = frozenset({"/", "/openapi.json"})
"""What is answered without a token, too: nothing that anybody put into the service."""

KNOWN: Final = "toolkit.known"
"""Key of the ASGI scope that says whether the caller showed the token."""

FAILED: Final = "the service failed; got an error of its own; expected an answer"
"""What callers are told of a failure of ours: nothing about its insides."""

_OUR_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_HOST: Final = re.compile(r"[\w.:\[\]%\-]*", re.ASCII)
_BEARER: Final = re.compile(r"(?i)bearer +(\S+) *")

_log = logging.getLogger(__name__)


class Guard:
    """ASGI middleware: foreign hosts and origins get 403, wrong tokens 401, and failures of ours a plain 500.

    Parameters
    ----------
    app : ASGI application
    token : Secret
        The one token of both halves.
    """

    def __init__(self, app: ASGIApp, token: Secret) -> None:
        self._app = app
        self._secret = token  # which keeps it known as ours, so that no answer shows it
        self._token = token.reveal().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        begun = ended = False

        async def watched(message: Message) -> None:
            nonlocal begun, ended
            begun = True
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, watched)
        except ApiError as refusal:
            await _answer(scope, watched, refusal.status, refusal.message)
        except ClientDisconnect:
            return  # nobody is there to be answered
        except Exception as error:  # noqa: BLE001 - whatever it is, the service goes on
            # its type and place alone: messages may hold what was sent here
            place = _innermost(error)
            _log.error("answering %s failed: %s at %s", scope["method"], type(error).__name__, place)
            if begun and not ended:
                raise Abort from None
            if not begun:
                await _answer(scope, watched, 500, FAILED)

    def _check(self, scope: Scope) -> None:
        target = len(scope["raw_path"]) + len(scope["query_string"])
        head = target + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if head > MAX_HEAD:  # one that came in one piece is not measured before
            raise ApiError(431, f"headers too large; got {head} bytes; expected at most {MAX_HEAD}")
        headers = Headers(scope=scope)
        if _hostname(f"//{headers.get('host', '')}") not in _OUR_HOSTS:
            # a folded line after it is a part of its value: what is no host name is not quoted
            host = headers.get("host", "")
            got = repr(host)[:80] if _HOST.fullmatch(host) else "text that is no host name"
            raise ApiError(403, f"Host is not this machine; got {got}; expected 127.0.0.1 or localhost")
        origin = headers.get("origin")
        if origin is not None and _hostname(origin) not in _OUR_HOSTS:
            got = repr(origin)[:80]
            raise ApiError(
                403, f"Origin is not this machine; got {got}; expected none, or 127.0.0.1 or localhost"
            )
        tokens = [
            found[1] for value in headers.getlist("authorization") if (found := _BEARER.fullmatch(value))
        ]
        query = scope["query_string"].decode("latin-1")
        tokens += [value for name, value in parse_qsl(query) if name in TOKEN_PARAMETERS]
        # every one is compared, so that the time taken tells nothing
        right = [hmac.compare_digest(token.encode(), self._token) for token in tokens]
        scope[KNOWN] = any(right)
        caller = scope.get("extensions", {}).get(CALLER)
        if any(right) and caller is not None:
            caller.admit()
        if right and not any(right):
            raise ApiError(
                401, "token is not valid; got another one; expected the service's own in one of the places"
            )
        if not right and scope["path"] not in OPEN_PATHS:
            raise ApiError(
                401,
                "no token; got none; expected 'Authorization: Bearer …' or the parameter queue_token",
            )


class Abort(Exception):  # noqa: N818 - ends a connection, says nothing
    """An answer that had begun cannot be finished: the connection is cut instead of looking whole."""


async def _answer(scope: Scope, send: Send, status: int, message: str) -> None:
    body = refusal_body(status, message, scope["path"])
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:  # noqa: PLR2004 - RFC 9110 wants this header with it
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _innermost(error: BaseException) -> str:
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    return f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "an unknown place"
