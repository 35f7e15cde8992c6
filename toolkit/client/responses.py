"""Requests and responses, and readers of small responses.

What is not as specified is a `MalformedResponseError`. An envelope (the object around rows) is taken apart
without reading its rows; a small response is read as a whole. In both, a repeated name is an error: readers
of JSON would silently keep one of the two values and drop the other, rows and all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import msgspec

from toolkit.client.members import Unread, pairs, read, unread_integer
from toolkit.errors import MalformedResponseError
from toolkit.own_tokens import masked

MOST_CURSOR: Final = 4_096
"""Characters of a cursor at most: it goes into an address, of which servers accept 8,000 or so."""

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
SHORTEST: Final = len(',"runs":0')
"""Bytes of the shortest member that an envelope may have twice."""
_SHOWN: Final = 60


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request below a base address."""

    doing: str  # its purpose, as the start of an error's sentence
    method: str
    path: str  # starts with a slash, already quoted
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    repeatable: bool = (
        True  # sending it twice does no harm; others are not retried once they may have arrived
    )


@dataclass(frozen=True, kw_only=True)
class Response:
    """A complete response with a success status: names of headers ignore case, the body is decompressed."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    tries: int


def not_as_specified(request: Request, *, got: str, expected: str, next_step: str | None = None) -> NoReturn:
    """Raise a `MalformedResponseError`."""
    raise MalformedResponseError(
        request.doing,
        request=f"{request.method} {request.path.split('?', maxsplit=1)[0][:80]}",
        got=got,
        expected=expected,
        next_step=next_step or "Is this the address of the service, and not of a proxy or a web page?",
    )


def envelope(request: Request, raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object, undecoded; raises when it is none, or has a name twice."""
    try:
        result = {name: bytes(value) for name, value in _OBJECT.decode(raw).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _exact_envelope(request, raw)
    known = 1 + sum(len(name.encode()) + 4 + len(value) for name, value in result.items())
    # the rest is punctuation, and mostly too short to hide a member that was replaced by another of its name
    return result if len(raw) - known < SHORTEST else _exact_envelope(request, raw)


def _exact_envelope(request: Request, raw: bytes) -> dict[str, bytes]:
    text = raw.decode("utf-8", "surrogateescape")
    try:
        found, end = pairs(text)
        if text[end:].strip():
            raise ValueError("more after the object")  # noqa: TRY301 - as `pairs` does
    except ValueError:
        not_json(request, raw, expected="a JSON object")
    _check_unique(request, [name for name, _ in found])
    return {name: value.encode("utf-8", "surrogateescape") for name, value in found}


def not_json(request: Request, raw: bytes, *, expected: str) -> NoReturn:
    """Raise for a response that is no JSON, or JSON of another kind."""
    try:
        got = kind_of(read(raw))
    except (ValueError, RecursionError):
        start = raw[:_SHOWN].decode("utf-8", "replace")
        got, expected = f"{len(raw):,} bytes that are not JSON, starting {start!r}", "JSON"
    not_as_specified(request, got=got, expected=expected)


def _check_unique(request: Request, names: list[str]) -> None:
    if len(set(names)) < len(names):
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        not_as_specified(request, got=f"{repeated[:_SHOWN]!r} twice in one object", expected="each name once")


def small(request: Request, response: Response) -> dict[str, Any]:
    """A small response, read as a whole: an object without a repeated name at any depth."""

    def made(members: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_unique(request, [name for name, _ in members])
        return dict(members)

    try:
        text = response.body.decode("utf-8", "surrogateescape")
        value = json.loads(text, object_pairs_hook=made, parse_int=unread_integer)
    except (ValueError, RecursionError):
        not_json(request, response.body, expected="a JSON object")
    if not isinstance(value, dict):
        not_as_specified(request, got=kind_of(value), expected="a JSON object")
    return value


def an_object(request: Request, name: str, value: Any, *, required: bool = False) -> dict[str, Any]:
    """The object under a name, or an empty one for null."""
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        not_as_specified(request, got=f"{name!r} of {shown(value)}", expected="an object")
    return value


def a_count(
    request: Request, name: str, *sources: dict[str, Any], most: int = (1 << 63) - 1, required: bool = False
) -> int:
    """The first of these numbers that is not absent, null or 0; a whole number may be written 256.0."""
    there = [source[name] for source in sources if source.get(name) is not None]
    result = next(
        (value for value in there if value is False or value != 0), None if required and not there else 0
    )
    if isinstance(result, float) and result.is_integer():
        result = int(result)
    if isinstance(result, bool) or not isinstance(result, int) or not 0 <= result <= most:
        expected = f"a whole number from 0 to {most:,}"
        not_as_specified(request, got=f"{name!r} of {shown(result)}", expected=expected)
    return result


def a_text(
    request: Request,
    name: str,
    *sources: dict[str, Any],
    required: bool = False,
    next_step: str | None = None,
) -> str:
    """The first of these texts that is not absent, null or empty; a token of ours in it is masked."""
    result = next((source[name] for source in sources if source.get(name) not in (None, "")), "")
    if not isinstance(result, str) or (required and not result):
        got = f"{name!r} of {shown(result)}" if result else f"no {name!r}"
        not_as_specified(request, got=got, expected="text", next_step=next_step)
    return masked(result)


def names(whole: Mapping[str, Any]) -> str:
    """The first names of an object, for errors."""
    return ", ".join(repr(name)[:40] for name in list(whole)[:5]) or "no fields"


def kind_of(value: Any) -> str:
    """The type of a JSON value, in words."""
    kinds = {dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "something nested too deep" if isinstance(value, Unread) else "a number")


def shown(value: Any) -> str:
    """A JSON value in an error."""
    try:
        return repr(value)[:_SHOWN]
    except RecursionError:
        return kind_of(value)
