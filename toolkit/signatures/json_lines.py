"""Read a log of JSON objects, one per line, and choose the line that states the error.

For example, of the lines

    {"level": "info", "msg": "start"}
    {"level": "error", "msg": "no stock left"}
    {"level": "info", "msg": "done"}

the second states the error. Loggers name the level by a word, or by a number: pino and bunyan use 40 for
warnings, 50 for errors and 60 for fatal errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from toolkit.signatures.document import Document
from toolkit.signatures.json_errors import document_of_json

_LEVEL_KEYS: Final = ("level", "severity", "levelname", "log.level", "lvl", "@l")
_WARNING, _ERROR, _FATAL = 1, 2, 3
_SEVERITIES: Final = {
    **dict.fromkeys(("warn", "warning", "40"), _WARNING),
    **dict.fromkeys(("error", "err", "severe", "50"), _ERROR),
    **dict.fromkeys(
        ("fatal", "critical", "crit", "alert", "emergency", "panic", "60"), _FATAL
    ),
}
"""Levels of warnings and errors."""
_ERROR_KEYS: Final = ("error", "err", "exception", "exc_info", "@x")
"""Keys of an error, in logs without a level."""
_USUAL_KEYS: Final = {
    "event": "message",
    "@m": "message",
    "@mt": "message",
    "@x": "exception",
    "exc_info": "exception",
}
"""Keys of structlog, Serilog and python-json-logger, which have another meaning outside of logs."""
_MOST_LINES: Final = 2_000


def read_json_lines(text: str, read: Callable[[str], Document]) -> Document | None:
    r"""Return the error of a log of JSON objects; None for another text. `read` reads bodies in fields of it.

    >>> from toolkit.signatures.reading import read_document
    >>> read_json_lines('{"level": "info"}\n{"level": "error", "msg": "no stock"}', read_document)
    Document(kind='json', messages=('no stock',))
    """
    first_line, _, others = text.partition("\n")
    # a single object is often printed on several lines, and then begins with "{" alone
    is_log = first_line.rstrip().endswith("}") and others.lstrip().startswith("{")
    if not is_log or _object_of(first_line) is None:
        return None

    lines = list(_objects_in(text))
    has_one_object = len(lines) == 1
    if has_one_object:
        return None

    line = max(lines, key=_severity)  # the first of several
    usual = {_USUAL_KEYS.get(key, key): value for key, value in reversed(line.items())}
    return document_of_json(usual | line, read)


def _objects_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the object of each line. Other lines, for example a line that was cut off, are left out."""
    for line in text.splitlines()[:_MOST_LINES]:
        found = _object_of(line)
        if found is not None:
            yield found


def _object_of(line: str) -> dict[str, Any] | None:
    try:
        value = _DECODE(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None

    return value if isinstance(value, dict) else None


_DECODE: Final = msgspec.json.Decoder().decode


def _severity(line: dict[str, Any]) -> int:
    """Return how severe a line is; 0 if it is neither an error nor a warning."""
    for key in _LEVEL_KEYS:
        level = line.get(key)
        if isinstance(level, str | int):
            return _SEVERITIES.get(str(level).lower(), 0)

    has_error = any(map(line.get, _ERROR_KEYS))
    return _ERROR if has_error else 0
