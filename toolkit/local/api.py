"""Error responses, strict JSON parsing and its conversion to types, shared by all routes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, get_args

import msgspec

from toolkit.own_tokens import masked
from toolkit.times import DAY_MS

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_MESSAGE: Final = 10 * 1024 * 1024
"""Largest message body that is accepted, and most of a response's body that is kept, in bytes."""
RETENTION_MS: Final = 90 * DAY_MS
"""How long DLQ entries, ended runs and events are kept by default: the longest of the public plans."""
MAX_BODY: Final = 64 * 1024 * 1024  # bytes of a request
REQUEST_TIMEOUT: Final = 30.0  # seconds within which a request, head and body, must have arrived
TOKEN_PARAMETERS: Final = ("queue_token", "qstash_token")
"""Query parameters that may carry the token, beside the Authorization header."""

NAME_PATTERN: Final = r"^[^\x00]*$"
NAMESPACE_PATTERN: Final = r"^(?!([^\x00]*/)?\.\.?(/|$))[^\x00]*$"
NAMES: Final = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.-]{1,256}")
"""Names of URL groups, named queues, schedules and events; clients resolve '.' and '..' in a path away."""
CURSOR_PATTERN: Final = r"^[0-9]{0,18}$"
PATTERNS: Final = {
    NAME_PATTERN: "text without NUL",
    NAMESPACE_PATTERN: "text without NUL and without '.' or '..' as a part between slashes",
    CURSOR_PATTERN: "'0', '' or a nextCursor of this index",
}
"""What the patterns of request types mean."""

T = TypeVar("T")
_MAX_DIGITS: Final = 400
_MAX_DEPTH: Final = 200
_STRING: Final = r'"(?:[^"\\]|\\.)*+"'
_SHOWN: Final = 80
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_IN_WORDS: Final = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false",
    "array": "an array", "object": "a JSON object",
}  # fmt: skip
_TOKENS: Final = re.compile(rf"{_STRING}|[\[\]{{}}:]", re.DOTALL)


class ApiError(Exception):
    """An error response: a status and a masked message; a `verbatim` one is in the public service's words."""

    def __init__(self, status: int, message: str, *, verbatim: bool = False) -> None:
        self.status = status
        self.verbatim = verbatim
        self.message = masked(message)
        super().__init__(self.message)


class ErrorBody(TypedDict):
    """The error message."""

    error: str


class VectorErrorBody(ErrorBody):
    """The error message, and the status again."""

    status: int


async def read_json(request: Request) -> Any:
    """The request's body as JSON values; anything that is not strict JSON is an error with its offset."""
    return parse_json(await read_body(request))


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """The raw request body; a 413 error when it is larger than `limit` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise invalid("body too large", f"more than {limit} bytes", "at most that", status=413)
    return bytes(body)


def error_body(status: int, message: str, path: str) -> bytes:
    """The JSON of an error response, without our token; below ``/vector`` it repeats the status."""
    on_vectors = path == "/vector" or path.startswith("/vector/")
    return json.dumps({"error": masked(message)} | ({"status": status} if on_vectors else {})).encode()


def parse_json(body: bytes) -> Any:
    """Strict JSON: UTF-8, no byte order mark, no NaN, no duplicate keys, bounded nesting and digits."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"byte {body[error.start]:#04x} at offset {error.start}"
        raise invalid("body is not UTF-8", got, "JSON in UTF-8") from None
    if text.startswith("\ufeff"):
        raise invalid("body is not JSON", "a byte order mark at offset 0", "plain UTF-8")

    # the parser's hooks get no offsets: positions are searched for only after an error
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            name, offset = _duplicate_name(text)
            raise invalid("body is ambiguous", f"{name[:80]!r} a second time at offset {offset}", "it once")
        return result

    def whole(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            expected = f"whole numbers of at most {_MAX_DIGITS}"
            raise _number_error(text, digits, f"{len(digits)} digits", expected)
        return int(digits)

    def finite(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise _number_error(text, digits, digits[:40], "finite 64-bit numbers")
        return value

    try:
        value = json.loads(
            text, object_pairs_hook=unique, parse_int=whole, parse_float=finite, parse_constant=finite
        )
    except json.JSONDecodeError as error:
        got = repr(text[error.pos]) if error.pos < len(text) else "its end"
        raise invalid("body is not JSON", f"{got} at offset {error.pos}", f"JSON: {error.msg}") from None
    except RecursionError:
        got = f"deeper nesting at offset {_depth_offset(text)}"
        raise invalid("body is nested too deep", got, f"at most {_MAX_DEPTH} levels") from None
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise invalid("body is not text", "a lone surrogate", "text that UTF-8 can hold") from None
    return value


def _depth_offset(text: str) -> int:
    """The offset at which nesting exceeds `_MAX_DEPTH`."""
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += 1 if token[0] in "[{" else -1 if token[0] in "]}" else 0
        if depth > _MAX_DEPTH:
            return token.start()
    return len(text)


def _duplicate_name(text: str) -> tuple[str, int]:
    """The first name that occurs twice in one object, and the offset of its second occurrence."""
    names: list[set[str]] = []
    last: re.Match[str] | None = None
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            names.append(set())
        elif token[0] in "]}":
            names.pop()
        elif token[0] == ":" and last is not None:
            name = str(json.loads(last[0]))
            if name in names[-1]:
                return name, last.start()
            names[-1].add(name)
        last = token
    return "", len(text)


def _number_error(text: str, literal: str, got: str, expected: str) -> ApiError:
    matches = re.finditer(rf"{_STRING}|{re.escape(literal)}(?![\w.])", text, re.DOTALL)
    offset = next((match.start() for match in matches if not match[0].startswith('"')), len(text))
    return invalid("body contains an unusable number", f"{got} at offset {offset}", expected)


def read_as(value: Any, kind: type[T], what: str = "body") -> T:
    """JSON values as a type that msgspec checks; an `ApiError` with 400 names the field, or `what`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise ApiError(400, _explained(value, kind, problem, path.strip("`."), what)) from None


def _explained(value: Any, kind: Any, problem: str, path: str, what: str) -> str:
    """Msgspec's message in our form: which field; what it is; what was expected."""
    name = path or what
    if missing := _MISSING.fullmatch(problem):
        return f"{f'{path}.' * bool(path)}{missing[1]}; got none; expected it in {what}"
    for key in re.findall(r"\w+", path):
        value = value[int(key)] if isinstance(value, list | tuple) else value.get(key)
    if problem.startswith("Invalid enum value"):
        field = next(field for field in msgspec.structs.fields(kind) if field.encode_name == path)
        choices = [choice for option in get_args(field.type) for choice in get_args(option)]
        return f"{name}; got {shown(value)}; expected one of {', '.join(choices)}"
    if not problem.startswith("Expected "):
        return f"{name}; got {shown(value)}; expected a number of at most 64 bits"
    expected = re.sub(r"`([^`]+)`", _in_words, problem.removeprefix("Expected ").partition(", got ")[0])
    expected = next((words for pattern, words in PATTERNS.items() if repr(pattern) in expected), expected)
    size = (
        f"{len(value)} {'characters' if isinstance(value, str) else 'items'}" if "length" in expected else ""
    )
    return f"{name}; got {size or shown(value)}; expected {expected}"


def _in_words(kinds: re.Match[str]) -> str:
    return " or ".join(_IN_WORDS.get(kind, kind) for kind in kinds[1].split(" | ") if kind != "null")


def shown(value: Any) -> str:
    """A value as a message shows it: containers by their size, text truncated when long."""
    if isinstance(value, list | tuple | dict):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def invalid(what: str, got: str, expected: str, *, status: int = 400) -> ApiError:
    """An error in the form of all: what is wrong; what was got; what was expected."""
    return ApiError(status, f"{what}; got {got}; expected {expected}")


def checked_name(text: str, what: str) -> str:
    """The text, when it is a name; `what` says of what."""
    if not NAMES.fullmatch(text):
        expected = "letters, digits, '-', '_' and '.', at most 256, and more than '.' or '..'"
        raise invalid(f"{what} is not usable", repr(text[:80]), expected)
    return text


@contextmanager
def naming(item: str) -> Iterator[None]:
    """Name an item of an array before the message of an `ApiError`."""
    try:
        yield
    except ApiError as error:
        raise error if error.verbatim else ApiError(error.status, f"{item}{error.message}") from None
