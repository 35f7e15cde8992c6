"""What the routes read from a request in the same way."""

from __future__ import annotations

from starlette.requests import Request


def header_pairs(request: Request) -> list[tuple[str, str]]:
    """Its headers as received, in order."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]


def caller(request: Request) -> str:
    """The IP address that it came from."""
    return request.client.host if request.client else ""
