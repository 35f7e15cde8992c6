"""Read stack traces of .NET: the exceptions first, the root cause last, then the frames of the root cause.

For example, `System.Exception: no total ---> System.IO.IOException: closed` is a chain of two exceptions. The
frames before `--- End of inner exception stack trace ---` belong to the second one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolkit.signatures.remembering import Memo
from toolkit.signatures.trace_frames import (
    Error,
    Frame,
    StackTrace,
    error_in,
    reader_of,
    trace_of,
)

_ARROW: Final = " ---> "
_MAY_BE_ERROR: Final = re.compile(r"Exception|Error")
_FRAME: Final = re.compile(r"^\s+at ([^()]+)\((?:.*\)|(?>.*?\) in ).*:line \d+)\s*$")
_HEAD: Final = re.compile(
    r"^(?:Unhandled exception\.? ?"
    r"|\s*---> (?:\(Inner Exception #\d+\) )?)?((?:[A-Z]\w*\.)*[A-Z]\w*(?:Exception"
    r"|Error))(?: \(0x[0-9A-F]+\))?(?:: (.*))?$"
)


def read_dotnet(lines: list[str]) -> StackTrace:
    """Read a trace up to the end of the innermost exception."""
    errors: list[Error] = []
    frames: list[Frame] = []
    for line, frame in zip(lines, map(_FRAME_OF_LINE.__getitem__, lines), strict=True):
        if _MAY_BE_ERROR.search(line):
            errors.extend(_errors(line))
        if frame is not None:
            frames.append(frame)
        elif "--- End of inner exception" in line:
            break  # the frames of the outer exceptions follow

    return trace_of("dotnet", errors, frames)


_FRAME_OF_LINE: Final = Memo(reader_of(_FRAME, lambda found: Frame(found[1])))
_error: Final = reader_of(_HEAD, error_in)


def _errors(line: str) -> Iterator[Error]:
    """Return the type and message of each exception in a line."""
    parts = [line]
    if not line.lstrip().startswith("--->") and _ARROW in line:
        parts = list(map(str.strip, line.split(_ARROW)))
    return filter(None, map(_error, parts))
