"""Read stack traces of Ruby, in three forms: of a program, of a log of Rails, and of a web server.

For example, in the trace

    /app/orders.rb:7:in `total': no price (KeyError)     error and frame
        from /app/main.rb:1:in `main'                    frame

the error is in the line of the first frame. In a log of Rails, it is in the line above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolkit.signatures.frame_names import plain_name
from toolkit.signatures.trace_frames import (
    Error,
    Frame,
    StackTrace,
    reader_of,
    trace_of,
)

_FRAME: Final = re.compile(
    r"^\s*(?:from |\d+: from )?(\S+?\.(?:rb|erb|rake|ru)|<internal:[^>]+>"
    r"|\S+):\d+:in [`'](.+?)'(?:: (.*?)(?: \(([\w:]+)\))?)?$"
)
_HEAD: Final = re.compile(
    r"^((?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception|NotFound|Invalid|Timeout|Failed)?) ?(?:\((.*)\)"
    r"|: ?(.*))?:?$"
)
_CLASS: Final = re.compile(r"^.*[#.](?=\w)")
"""The class before the name of a method, as Ruby 3.4 prints it."""


def read_ruby(lines: list[str]) -> StackTrace:
    """Read a trace, with the error in the line of the first frame or in the line above."""
    errors: list[Error] = []
    frames: list[Frame] = []
    line_above = ""
    for line in lines:
        found = _FRAME.match(line)
        if found is None:
            line_above = line.strip() or line_above
            continue

        path, function, message, kind = found.groups()
        if kind:
            errors.append((kind, message or ""))
            frames = []
        elif not frames and not errors:
            errors += _errors_above(line_above)

        method = _CLASS.sub("", plain_name(function))
        frames.append(Frame(method, path))

    return trace_of("ruby", errors, frames)


def _errors_above(line: str) -> Iterator[Error]:
    """Return the error of the line above the first frame, if it states one."""
    return filter(None, [_error(line)])


def _error_of(head: re.Match[str]) -> Error:
    message = head[2] or head[3] or ""
    return head[1], message.strip()


_error: Final = reader_of(_HEAD, _error_of)
