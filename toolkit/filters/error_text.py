"""Find the line of a response body that describes the error, and mask the parts of it that vary.

Bodies are JSON, HTML pages, stack traces of several languages, or plain text. The rules are simple. They
serve to group equal failures, for example all failures with the line ``user <n> not found``.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard

import msgspec

from toolkit.arguments import wrong

Kind = Literal["json", "html", "trace", "text", "empty", "binary"]

LONGEST_READ: Final = 200_000
"""Characters of a body that are searched. An error message stands near the start."""

_LONGEST_LINE: Final = 2_000
_DEEPEST_MEMBER: Final = 4  # levels of JSON that are searched
_MOST_ITEMS: Final = 5  # items of a JSON array that are searched
_MESSAGE_MEMBERS: Final = ("error", "message", "detail", "title", "reason", "msg", "description", "errors")

_TAG: Final = re.compile(r"<[^<>]{0,300}>")
_SPACE: Final = re.compile(r"\s+")
_PYTHON_TRACE: Final = "Traceback (most recent call last)"
# Lines of a Python trace that look like an error, for example "The above exception was the direct cause of".
_TRACE_HEADINGS: Final = ("Traceback", "During", "The above")
_PYTHON_ERROR: Final = re.compile(r"[A-Za-z_][\w.]*(?::\s|$)")
# A frame of JavaScript or Java: "    at run (app.js:3:1)", "    ... 12 more".
_FRAME: Final = re.compile(r"\s+(?:at\s|\.\.\. \d+ (?:more|common))")

# Applied in this order, each to the result of the one before.
_MASKS: Final = (
    (re.compile(r"\[masked len=\d+ tag=[0-9a-f]{8}\]"), "<secret>"),
    (re.compile(r'"[^"\n]{0,300}"|(?<!\w)\'[^\'\n]{0,300}\'(?!\w)|`[^`\n]{0,300}`'), "<str>"),
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?\b"
            r"|\b\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?\b"
        ),
        "<time>",
    ),
    (re.compile(r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b0x[0-9a-f]+\b"), "<id>"),
    (re.compile(r"\b[A-Za-z]{2,8}_(?=[A-Za-z]*\d)[A-Za-z0-9]{8,}\b"), "<id>"),
    (re.compile(r"(?i)\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\b(?=[a-z]*\d)[a-z0-9]{16,}\b"), "<id>"),
    (re.compile(r"(?<![A-Za-z_<])\d+(?:[.,]\d+)*"), "<n>"),
)


@dataclass(frozen=True)
class ErrorText:
    """The error of a body, as one line of at most 2,000 characters, neither masked nor escaped."""

    kind: Kind
    text: str


def error_text(body: str | None) -> ErrorText:
    r"""Find the line of a response body that describes the error, in the first 200,000 characters.

    In JSON, it is the value of ``error``, ``message``, ``detail`` or a similar member, within four levels. If
    ``error`` and ``message`` are both strings, they are joined. In HTML, it is the title, else the first
    heading. In a stack trace of Python, it is the line with the error. In a stack trace of JavaScript or
    Java, it is the last ``Caused by``, else the line above the first frame. In other bodies, it is the first
    line that is not empty.

    Parameters
    ----------
    body : str or None
        The body of a response, decoded.

    Returns
    -------
    ErrorText
        The kind of the body (``json``, ``html``, ``trace``, ``text`` or ``empty``) and the line.

    Raises
    ------
    InputError
        If the body is not a string.

    Examples
    --------
    >>> error_text('{"error": {"message": "no such user 17"}}')
    ErrorText(kind='json', text='no such user 17')
    >>> error_text("<html><title>502 Bad Gateway</title><h1>502</h1></html>").text
    '502 Bad Gateway'
    >>> error_text("TypeError: x is undefined\n    at run (app.js:3:1)").text
    'TypeError: x is undefined'
    """
    if not isinstance(body, str | None):
        raise wrong("body", body, "a string or None")
    text = (body or "")[:LONGEST_READ].strip().lstrip("\ufeff")
    if not text:
        return ErrorText("empty", "empty body")
    if text[0] in '{["':
        message = _from_json(text)
        if message:
            return ErrorText("json", _line(_from_trace(message) or _first_line(message)))
    if text[0] == "<":
        heading = _from_html(text)
        if heading:
            return ErrorText("html", _line(heading))
    trace_error = _from_trace(text)
    if trace_error:
        return ErrorText("trace", _line(trace_error))
    return ErrorText("text", _line(_first_line(text)))


def binary_line(encoded: str) -> str:
    """Return the line that stands for a body that is not UTF-8.

    >>> binary_line("/w==")
    'binary, 1 bytes'
    """
    return f"binary, {len(encoded) * 3 // 4 - encoded.count('='):,} bytes"


def mask_text(text: str) -> str:
    """Replace the parts of a line that vary, so that equal failures have equal lines.

    Parameters
    ----------
    text : str
        A line, for example the one that `error_text` finds.

    Returns
    -------
    str
        The line with numbers, quoted strings, ids and times replaced by names in angle brackets.

    Raises
    ------
    InputError
        If the line is not a string.

    Examples
    --------
    >>> mask_text("user 17 not found in 'eu' after 0.25 s at 2026-01-01T10:00:00Z")
    'user <n> not found in <str> after <n> s at <time>'
    """
    if not isinstance(text, str):
        raise wrong("text", text, "a string")
    masked = text
    for pattern, placeholder in _MASKS:
        masked = pattern.sub(placeholder, masked)
    return _SPACE.sub(" ", masked).strip()


def _line(text: str) -> str:
    """Return an error message on one line of at most `_LONGEST_LINE` characters that can be stored."""
    line = " ".join(text.split())
    if not line.isascii():
        # JSON can escape half of a surrogate pair, which neither Arrow nor a file can store
        line = line.encode("utf-8", "backslashreplace").decode()
    if len(line) > _LONGEST_LINE:
        line = line[: _LONGEST_LINE - 1] + "…"
    return line


def _first_line(text: str) -> str:
    """Return the first line that is not blank."""
    return next(filter(str.strip, text.splitlines()), text)


def _from_json(text: str) -> str | None:
    """Return the error message of a JSON value, or None if the text is not JSON or has no message."""
    # The standard library is slower, but reads NaN and lone surrogates.
    for decode in (msgspec.json.decode, json.loads):
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return _message(decode(text), _DEEPEST_MEMBER)
    return None


def _message(value: Any, depth: int) -> str | None:
    """Return the first error message of a JSON value, searching `depth` levels."""
    if isinstance(value, str):
        return value.strip() or None
    if depth == 0:
        return None
    if isinstance(value, list):
        return _first_message(value[:_MOST_ITEMS], depth - 1)
    if isinstance(value, dict):
        return _member_message(value, depth)
    return None


def _first_message(values: Iterable[Any], depth: int) -> str | None:
    messages = (_message(value, depth) for value in values)
    return next(filter(None, messages), None)


def _member_message(members: dict[str, Any], depth: int) -> str | None:
    """Return the error message of a JSON object: of a member with a known name, else of a nested object."""
    by_name = {name.lower(): value for name, value in members.items()}
    error, message = by_name.get("error"), by_name.get("message")
    if _is_filled(error) and _is_filled(message):
        # {"error": "Not Found", "message": "no user 17"}, but also {"error": "x", "message": "failed: x"}
        return message if error in message else f"{error}: {message}"
    named = [by_name.get(name) for name in _MESSAGE_MEMBERS]
    nested = [value for value in by_name.values() if isinstance(value, dict)]
    return _first_message([*named, *nested], depth - 1)


def _is_filled(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _from_html(text: str) -> str | None:
    """Return the title of an HTML page, else the first heading, else the first line without tags."""
    for tag in ("title", "h1", "h2"):
        content = _element_text(text, tag)
        if content:
            return content
    visible = _without_tags(text)
    return _first_line(visible) if visible else None


def _element_text(text: str, tag: str) -> str:
    """Return the text in the first element of a kind, or "".

    This searches for three strings. One regular expression would take quadratic time on a page with many tags
    that are not closed.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters get longer, so that positions would not be equal
        return ""
    start = lowered.find(f"<{tag}")
    if start < 0:
        return ""
    content_start = lowered.find(">", start)
    content_end = lowered.find(f"</{tag}", content_start)
    if content_start < 0 or content_end < 0:
        return ""
    return _without_tags(text[content_start + 1 : content_end])


def _without_tags(text: str) -> str:
    return html.unescape(_TAG.sub(" ", text)).strip()


def _from_trace(text: str) -> str | None:
    """Return the line of a stack trace that names the error, or None if the text is not a stack trace."""
    lines = text.splitlines()
    if _PYTHON_TRACE in text:
        return next(filter(_is_python_error, reversed(lines)), None)
    first_frame = next((number for number, line in enumerate(lines) if _FRAME.match(line)), None)
    if first_frame is None:
        return None
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    # In JavaScript and Java, the error stands directly above the first frame.
    above = reversed(lines[:first_frame])
    return next(filter(str.strip, above), None)


def _is_python_error(line: str) -> bool:
    return bool(_PYTHON_ERROR.match(line)) and not line.startswith(_TRACE_HEADINGS)
