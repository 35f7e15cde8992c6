"""Error responses, strict JSON and the conversion of JSON to types, for all routes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, get_args

import msgspec

from toolkit.base.own_tokens import masked
from toolkit.base.times import DAY_MS

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_MESSAGE: Final = 10 * 1024 * 1024
"""Largest body of a message, in bytes. Longer bodies of responses are truncated to this size."""
RETENTION_MS: Final = 90 * DAY_MS
"""How long DLQ entries, ended runs and events are kept by default: the longest time of the public plans."""
MAX_BODY: Final = 64 * 1024 * 1024  # bytes of a request
# seconds within which a request, head and body, must have arrived
REQUEST_TIMEOUT: Final = 30.0
TOKEN_PARAMETERS: Final = ("queue_token", "qstash_token")
"""Query parameters that may contain the token instead of the Authorization header."""

NAME_PATTERN: Final = r"^[^\x00]*$"
NAMESPACE_PATTERN: Final = r"^(?!([^\x00]*/)?\.\.?(/|$))[^\x00]*$"
NAMES: Final = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.-]{1,256}")
"""Names of URL groups, named queues, schedules and events; clients remove '.' and '..' from paths."""
CURSOR_PATTERN: Final = r"^[0-9]{0,18}$"
PATTERNS: Final = {
    NAME_PATTERN: "text without NUL",
    NAMESPACE_PATTERN: "text without NUL and without '.' or '..' as a part between slashes",
    CURSOR_PATTERN: "'0', '' or a nextCursor of this index",
}
"""Descriptions of the patterns in request types, for error messages."""

T = TypeVar("T")
_MAX_DIGITS: Final = 400  # of an integer; converting 5,000 digits is slow
_MAX_DEPTH: Final = 200  # levels of arrays and objects
# a JSON string, with an atomic repetition: no backtracking
_STRING: Final = r'"(?>(?:[^"\\]|\\.)*)"'
_SHOWN: Final = 80  # characters of a value in a message
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_IN_WORDS: Final = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false",
    "array": "an array", "object": "a JSON object",
}  # fmt: skip
_TOKENS: Final = re.compile(rf"{_STRING}|[\[\]{{}}:]", re.DOTALL)


class ApiError(Exception):
    """An error response: a status and a masked message.

    A `verbatim` message is the message of the public service, which clients may compare.
    """

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
    """Read the body of a request as JSON. If it is not strict JSON, the error names the offset."""
    return parse_json(await read_body(request))


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """Read the raw body of a request. Raise an `ApiError` with 413 if it is larger than `limit` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise invalid(
                "body too large", f"more than {limit} bytes", "at most that", status=413
            )

    return bytes(body)


def error_body(status: int, message: str, path: str) -> bytes:
    """Return the JSON of an error response, without the token. Below ``/vector`` it repeats the status."""
    content: dict[str, Any] = {"error": masked(message)}
    if path == "/vector" or path.startswith("/vector/"):
        content["status"] = status
    return json.dumps(content).encode()


def parse_json(body: bytes) -> Any:
    """Parse strict JSON: UTF-8, no byte order mark, no NaN, no duplicate names, limited nesting and digits.

    For example, ``{"a": 1, "a": 2}`` raises an `ApiError` with the offset of the second name.
    """
    text = _utf_8(body)
    hooks = _Hooks(text)
    try:
        document = json.loads(
            text,
            object_pairs_hook=hooks.unique_names,
            parse_int=hooks.whole_number,
            parse_float=hooks.finite_number,
            parse_constant=hooks.finite_number,
        )
    except json.JSONDecodeError as error:
        got = repr(text[error.pos]) if error.pos < len(text) else "its end"
        raise invalid(
            "body is not JSON", f"{got} at offset {error.pos}", f"JSON: {error.msg}"
        ) from None
    except RecursionError:
        got = f"deeper nesting at offset {_depth_offset(text)}"
        raise invalid(
            "body is nested too deep", got, f"at most {_MAX_DEPTH} levels"
        ) from None

    # "\ud800" alone is valid JSON, but no text that can be stored or sent
    if _SURROGATE.search(text):
        _check_surrogates(document)
    return document


def _utf_8(body: bytes) -> str:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"byte {body[error.start]:#04x} at offset {error.start}"
        raise invalid("body is not UTF-8", got, "JSON in UTF-8") from None

    if text.startswith("\ufeff"):
        raise invalid(
            "body is not JSON", "a byte order mark at offset 0", "plain UTF-8"
        )

    return text


class _Hooks:
    """Checks that Python's parser calls while it reads a document.

    The parser does not tell them the offset: it is searched for after an error, which is slow but rare.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def unique_names(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the object of these names and values."""
        result = dict(pairs)
        if len(result) != len(pairs):
            name, offset = _duplicate_name(self._text)
            raise invalid(
                "body is ambiguous",
                f"{name[:80]!r} a second time at offset {offset}",
                "it once",
            )

        return result

    def whole_number(self, digits: str) -> int:
        """Return an integer of a limited number of digits."""
        if len(digits) > _MAX_DIGITS:
            expected = f"whole numbers of at most {_MAX_DIGITS}"
            raise _number_error(self._text, digits, f"{len(digits)} digits", expected)
        return int(digits)

    def finite_number(self, digits: str) -> float:
        """Return a float; NaN, Infinity and 1e400 are errors."""
        number = float(digits)
        if not math.isfinite(number):
            raise _number_error(
                self._text, digits, digits[:40], "finite 64-bit numbers"
            )

        return number


def _check_surrogates(document: Any) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise invalid(
            "body is not text", "a lone surrogate", "text that UTF-8 can encode"
        ) from None


def _depth_offset(text: str) -> int:
    """Return the offset of the bracket that exceeds `_MAX_DEPTH`."""
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1

        if depth > _MAX_DEPTH:
            return token.start()

    return len(text)


def _duplicate_name(text: str) -> tuple[str, int]:
    """Return the first name that occurs twice in one object, and the offset of the second occurrence.

    Only strings, brackets and colons matter: the string before a colon is a name of the innermost object.
    """
    names_by_level: list[set[str]] = []
    last: re.Match[str] | None = None
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            names_by_level.append(set())
        elif token[0] in "]}":
            names_by_level.pop()
        elif token[0] == ":" and last is not None:
            name = str(json.loads(last[0]))
            if name in names_by_level[-1]:
                return name, last.start()
            names_by_level[-1].add(name)

        last = token

    return "", len(text)


def _number_error(text: str, literal: str, got: str, expected: str) -> ApiError:
    # strings are matched as well, and skipped: they can contain the same digits
    matches = re.finditer(rf"{_STRING}|{re.escape(literal)}(?![\w.])", text, re.DOTALL)
    offsets = (match.start() for match in matches if not match[0].startswith('"'))
    offset = next(offsets, len(text))

    return invalid(
        "body contains an unusable number", f"{got} at offset {offset}", expected
    )


def read_as(document: Any, kind: type[T], source: str = "body") -> T:
    """Convert JSON values to a type that msgspec checks.

    Raise an `ApiError` with 400 that names the field, or `source` if the document itself has a wrong type.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise ApiError(
            400, _explained(document, kind, problem, path.strip("`."), source)
        ) from None


def _explained(document: Any, kind: Any, problem: str, path: str, source: str) -> str:
    """Translate a message of msgspec: the field; the received value; the expected value.

    For example, "Expected `int`, got `str`" at the path "topK" becomes "topK; got 'five'; expected a whole
    number".
    """
    missing = _MISSING.fullmatch(problem)
    if missing:
        parent = f"{path}." if path else ""
        return f"{parent}{missing[1]}; got none; expected it in {source}"

    name = path or source
    received = _at_path(document, path)
    if problem.startswith("Invalid enum value"):
        return f"{name}; got {shown(received)}; expected one of {', '.join(_choices(kind, path))}"
    if not problem.startswith("Expected "):
        return f"{name}; got {shown(received)}; expected a number of at most 64 bits"

    expected = problem.removeprefix("Expected ").partition(", got ")[0]
    expected = _without_pattern(re.sub(r"`([^`]+)`", _in_words, expected))
    if "length" not in expected:
        return f"{name}; got {shown(received)}; expected {expected}"

    unit = "characters" if isinstance(received, str) else "items"
    return f"{name}; got {len(received)} {unit}; expected {expected}"


def _at_path(document: Any, path: str) -> Any:
    """Return the value at a path of msgspec, for example ``vectors[0].id``."""
    for key in re.findall(r"\w+", path):
        is_array = isinstance(document, list | tuple)
        document = document[int(key)] if is_array else document.get(key)
    return document


def _choices(kind: Any, path: str) -> list[str]:
    """Return the values of the Literal type of a field, which may be None as well."""
    field = next(
        field for field in msgspec.structs.fields(kind) if field.encode_name == path
    )
    choices: list[str] = []
    for option in get_args(field.type):
        choices += get_args(option)
    return choices


def _without_pattern(expected: str) -> str:
    """Replace an expectation that quotes a regular expression by the description of it."""
    for pattern, description in PATTERNS.items():
        if repr(pattern) in expected:
            return description
    return expected


def _in_words(types: re.Match[str]) -> str:
    names = [name for name in types[1].split(" | ") if name != "null"]
    return " or ".join(_IN_WORDS.get(name, name) for name in names)


def shown(content: Any) -> str:
    """Return a value for a message: the size of an array or object, and at most 80 characters of text."""
    if isinstance(content, dict):
        return f"an object of {len(content)}"
    if isinstance(content, list | tuple):
        return f"an array of {len(content)}"

    if isinstance(content, str):
        # before repr, which is slow for long text
        content = content[: _SHOWN + 1]

    text = repr(content)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def invalid(problem: str, got: str, expected: str, *, status: int = 400) -> ApiError:
    """Return an error in the usual form: the problem; the received value; the expected value."""
    return ApiError(status, f"{problem}; got {got}; expected {expected}")


def checked_name(text: str, source: str) -> str:
    """Return the text if it is a valid name. Otherwise raise an `ApiError` that names `source`."""
    if not NAMES.fullmatch(text):
        expected = (
            "letters, digits, '-', '_' and '.', at most 256, and more than '.' or '..'"
        )
        raise invalid(f"{source} is not usable", repr(text[:80]), expected)

    return text


@contextmanager
def naming(item: str) -> Iterator[None]:
    """Add the name of an item of an array, for example ``message 3:``, to the message of an `ApiError`."""
    try:
        yield
    except ApiError as error:
        if error.verbatim:
            raise
        raise ApiError(error.status, f"{item}{error.message}") from None
