"""How the embedded service says no, and how it reads JSON: strictly, with the place of what is wrong."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_BODY: Final = 64 * 1024 * 1024
"""Largest request body that is read, in bytes."""

_MAX_DIGITS: Final = 400
_MAX_DEPTH: Final = 200
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class Refusal(Exception):  # noqa: N818 - an answer to the caller, not an error of this program
    """An answer that says no.

    Parameters
    ----------
    status : int
        HTTP status of the answer.
    message : str
        What is wrong; what was got; what was expected.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


async def read_json(request: Request) -> Any:
    """The request's body as JSON values; anything that is not strict JSON is refused with its offset."""
    return parse_json(await read_body(request))


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """The request's body as it came; more than `limit` bytes are refused with 413."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise Refusal(413, f"body too large; got more than {limit} bytes; expected at most that")
    return bytes(body)


def refusal_body(status: int, message: str, path: str) -> bytes:
    """The JSON of an answer that says no; on the vector half it repeats the status."""
    on_vectors = path == "/vector" or path.startswith("/vector/")
    return json.dumps({"error": message} | ({"status": status} if on_vectors else {})).encode()


def parse_json(body: bytes) -> Any:
    """Strict JSON: UTF-8, no byte order mark, no NaN, no duplicate keys, bounded nesting and digits."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(
            400, f"body is not UTF-8; got byte {body[error.start]:#04x} at offset {error.start}"
        ) from None
    if text.startswith("\ufeff"):
        raise Refusal(400, "body starts with a byte order mark at offset 0; expected plain UTF-8 JSON")
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as error:
        raise Refusal(400, f"body is not JSON; {error.msg} at offset {error.pos}") from None
    except RecursionError:
        raise Refusal(
            400, f"body is nested more than {_MAX_DEPTH} deep at offset {_too_deep(body)}"
        ) from None


def _too_deep(body: bytes) -> int:
    """The offset at which nesting exceeds `_MAX_DEPTH`; only asked once the parser has given up."""
    depth = 0
    for found in _TOKENS.finditer(body):
        token = found[0]
        depth += 1 if token in b"[{" else -1 if token in b"]}" else 0
        if depth > _MAX_DEPTH:
            return found.start()
    return len(body)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal(400, f"body names {twice[:80]!r} twice in one object; expected unique names")
    return found


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise Refusal(
            400, f"body holds a whole number of {len(digits)} digits; expected at most {_MAX_DIGITS}"
        )
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise Refusal(400, f"body holds {digits[:40]}, which is too large; expected a 64-bit number")
    return value


def _no_constant(name: str) -> NoReturn:
    raise Refusal(400, f"body holds {name}, which JSON does not know; expected a number")
