"""Read the parts of a request that is a publish: headers, sender and destination, as they were sent."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request

from toolkit_service.api import TOKEN_PARAMETERS

_ENCODED_SCHEME: Final = re.compile(r"https?%3a", re.IGNORECASE)


def header_pairs(request: Request) -> list[tuple[str, str]]:
    """Return the headers of a request as received, in order."""
    return [
        (name.decode("latin-1"), text.decode("latin-1"))
        for name, text in request.headers.raw
    ]


def caller(request: Request) -> str:
    """Return the IP address of the sender of a request."""
    return request.client.host if request.client else ""


def destination_of(request: Request, route: str) -> str:
    """Return the destination as it was sent: not decoded, with the query, without the token.

    For example, ``/v2/publish/http://127.0.0.1/a%2Fb?c=1`` has the destination ``http://127.0.0.1/a%2Fb?c=1``.
    """
    raw_path: str = request.scope["raw_path"].decode("latin-1")
    url = raw_path[len(route) :]
    if _ENCODED_SCHEME.match(url):
        url = unquote(url)
    raw_query: str = request.scope["query_string"].decode("latin-1")
    own_parts = [
        part
        for part in raw_query.split("&")
        if part.partition("=")[0] not in TOKEN_PARAMETERS
    ]
    if not any(own_parts):
        return url

    return f"{url}?{'&'.join(own_parts)}"
