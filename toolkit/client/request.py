"""What is sent and what comes back: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from toolkit.errors import MalformedResponseError


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request below a base address.

    Attributes
    ----------
    doing : str
        What this is for, as the start of an error's sentence.
    method : str
    path : str
        Below the base address; starts with a slash, already quoted.
    query, headers : tuple of (name, value)
    body : bytes or None
    repeatable : bool
        Whether sending it twice does no harm. Others are not sent again once they may have arrived.
    """

    doing: str
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    repeatable: bool = True


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer with a success status.

    Attributes
    ----------
    status : int
    headers : mapping
        Names compare without case.
    body : bytes
        Decompressed.
    tries : int
        How often the request was sent.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    tries: int


def not_as_specified(request: Request, *, got: str, expected: str, next_step: str | None = None) -> NoReturn:
    """Raise a `MalformedResponseError` for a response that is not what the specification says."""
    raise MalformedResponseError(
        request.doing,
        request=f"{request.method} {request.path.split('?', maxsplit=1)[0][:80]}",
        got=got,
        expected=expected,
        next_step=next_step or "Is this the address of the service, and not of a proxy or a web page?",
    )
