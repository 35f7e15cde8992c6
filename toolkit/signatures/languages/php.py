"""Read stack traces of PHP: the root cause and the frames first, "Next" before each error that it caused.

For example, in the trace

    PHP Fatal error:  Uncaught PDOException: closed in /app/store.php:31     error 1, the root cause
    Stack trace:
    #0 /app/orders.php(7): Store->read()                                     frame of error 1
    #1 {main}
    Next OrderException: no total in /app/orders.php:9                       error 2

the frame is `Store.read`.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.signatures.trace_frames import (
    Error,
    Frame,
    StackTrace,
    trace_of,
)

_HEAD: Final = re.compile(
    r"(?:PHP )?(?:Fatal|Parse|Recoverable fatal)? ?(?:error: +)?(?:Uncaught )?((?:\w+\\)*\w*(?:Error"
    r"|Exception)\w*):? (.*?) in (\S+?)(?::\d+| on line \d+)"
)
_FRAME: Final = re.compile(
    r"^#\d+ (?:(\S.*?)\(\d+\)|(\[internal function\]|\{main\})):? ?(.*)$"
)


def read_php(lines: list[str]) -> StackTrace:
    """Read a trace. Only the frames of the root cause are read."""
    errors: list[Error] = []
    frames: list[Frame] = []
    for line in lines:
        error = _error(line.removeprefix("Next "))
        if error is not None:
            errors.append(error)
        elif len(errors) <= 1:
            frames += _frames(line)

    return trace_of("php", errors[::-1], frames)


def _error(line: str) -> Error | None:
    if " in " not in line:
        return None

    head = _HEAD.search(line)
    if head is None:
        return None

    return head[1], head[2]


def _frames(line: str) -> list[Frame]:
    """Return the frame of a line, if it has one with a function."""
    found = _FRAME.match(line.removeprefix("Next "))
    if found is None:
        return []

    path, without_path, call = found.groups()
    function = call.partition("(")[0].replace("->", ".").replace("::", ".")
    if not function:
        return []

    return [Frame(function, path or without_path or "")]
