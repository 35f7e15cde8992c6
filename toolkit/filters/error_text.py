r"""The one line of a response body that says what went wrong, and the same line with its particulars masked.

Bodies are JSON, HTML pages, stack traces of several languages, plain text. The rules are simple, to group
equal failures.
"""

from __future__ import annotations

import html
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

import msgspec

from toolkit.arguments import wrong

Kind = Literal["json", "html", "trace", "text", "empty", "binary"]

LONGEST_READ: Final = 200_000  # characters of a body that are looked at
_TEXT: Final = 2_000  # characters of a line that are kept
_DEPTH: Final = 4
_NAMES: Final = ("error", "message", "detail", "title", "reason", "msg", "description", "errors")

_TAG: Final = re.compile(r"<[^<>]{0,300}>")
_SPACE: Final = re.compile(r"\s+")
_PYTHON: Final = "Traceback (most recent call last)"
_NO_ERRORS: Final = ("Traceback", "During", "The above")
_FRAME: Final = re.compile(r"\s+(?:at\s|\.\.\. \d+ (?:more|common))")
_PYTHON_ERROR: Final = re.compile(r"[A-Za-z_][\w.]*(?::\s|$)")

# In this order: each is applied to the result of the ones before.
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
    """What went wrong, as one line of at most 2,000 characters, neither masked nor escaped."""

    kind: Kind
    text: str


def error_text(body: str | None) -> ErrorText:
    r"""Find the line of a response body that says what went wrong, in its first 200,000 characters.

    JSON: the value under ``error``, ``message``, ``detail`` or the like, within four levels, ``error`` and
    ``message`` together where both are text. HTML: title, else first heading. Stack traces: the line with the
    error of Python, and of JavaScript and Java the line above the first frame, or the last ``Caused by``.
    Else the first line that is not empty.

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
        When it is not text.

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
        raise wrong("body", body, "a text or None")
    text = (body or "")[:LONGEST_READ].strip().lstrip("\ufeff")
    if not text:
        return ErrorText("empty", "empty body")
    if text[0] in '{["':
        result = _from_json(text)
        if result:
            return ErrorText("json", _line(_from_trace(result) or _first_line(result)))
    if text[0] == "<":
        result = _from_html(text)
        if result:
            return ErrorText("html", _line(result))
    trace = _from_trace(text)
    return ErrorText("trace", _line(trace)) if trace else ErrorText("text", _line(_first_line(text)))


def binary_line(encoded: str) -> str:
    """Replaces a body that is not UTF-8.

    >>> binary_line("/w==")
    'binary, 1 bytes'
    """
    return f"binary, {len(encoded) * 3 // 4 - encoded.count('='):,} bytes"


def mask_text(text: str) -> str:
    """The line without its particulars, so that equal failures are equal: their pattern.

    Parameters
    ----------
    text : str
        A line, such as the one that `error_text` finds.

    Returns
    -------
    str
        The line with numbers, quoted texts, ids and times replaced by names in angle brackets.

    Raises
    ------
    InputError
        When it is not text.

    Examples
    --------
    >>> mask_text("user 17 not found in 'eu' after 0.25 s at 2026-01-01T10:00:00Z")
    'user <n> not found in <str> after <n> s at <time>'
    """
    if not isinstance(text, str):
        raise wrong("text", text, "a text")
    for pattern, sign in _MASKS:
        text = pattern.sub(sign, text)
    return _SPACE.sub(" ", text).strip()


def _line(text: str) -> str:
    line = " ".join(text.split())
    if not line.isascii():  # JSON can spell half of a surrogate pair, which is not text for Arrow or a file
        line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= _TEXT else line[: _TEXT - 1] + "…"


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), text)


def _from_json(text: str) -> str | None:
    for decode in (msgspec.json.decode, json.loads):  # of which the slower one reads NaN and lone surrogates
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return _message(decode(text), _DEPTH)
    return None


def _message(value: Any, depth: int) -> str | None:
    if isinstance(value, str):
        return value.strip() or None
    if depth and isinstance(value, list):
        return next(filter(None, (_message(item, depth - 1) for item in value[:5])), None)
    if not depth or not isinstance(value, dict):
        return None
    folded = {name.lower(): item for name, item in value.items()}
    error, message = folded.get("error"), folded.get("message")
    if isinstance(error, str) and isinstance(message, str) and error.strip() and message.strip():
        return message if error in message else f"{error}: {message}"
    named = (_message(folded.get(name), depth - 1) for name in _NAMES)
    nested = (_message(item, depth - 1) for item in folded.values() if isinstance(item, dict))
    return next(filter(None, chain(named, nested)), None)


def _from_html(text: str) -> str | None:
    # by searching, not with one expression, which many unclosed tags would make quadratic
    lowered = text.lower()
    for tag in ("title", "h1", "h2"):
        start = lowered.find(f"<{tag}")
        opened = lowered.find(">", start) if start >= 0 else -1
        closed = lowered.find(f"</{tag}", opened) if opened >= 0 else -1
        if closed >= 0 and len(lowered) == len(text):
            result = html.unescape(_TAG.sub(" ", text[opened + 1 : closed])).strip()
            if result:
                return result
    plain = html.unescape(_TAG.sub(" ", text)).strip()
    return _first_line(plain) if plain else None


def _from_trace(text: str) -> str | None:
    lines = text.splitlines()
    if _PYTHON in text:
        errors = (line for line in reversed(lines) if _PYTHON_ERROR.match(line))
        return next((line for line in errors if not line.startswith(_NO_ERRORS)), None)
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return None
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    return next((line for line in reversed(lines[: frames[0]]) if line.strip()), None)
