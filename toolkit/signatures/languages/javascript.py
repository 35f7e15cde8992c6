"""Read stack traces of JavaScript: Node, Deno, Bun and browsers, with causes and codes.

For example, the trace

    OrderError: no total                              error 1
        at total (/app/orders.js:7:3)                 frame of error 1
        at main (/app/main.js:1:1) {
      [cause]: Error: closed                          error 2, the root cause
          at Store.read (/app/store.js:31:9)          frame of error 2
        code: 'ECLOSED'                               code of error 2

has two errors, and the frame is `store.Store.read`. After the frames, Node prints the properties of the
error. `code: 'P2002'` of a database client belongs to the error, because the messages of different codes can
be equal.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.signatures.remembering import Memo
from toolkit.signatures.trace_frames import (
    Error,
    Frame,
    StackTrace,
    trace_of,
)

_FRAME: Final = re.compile(
    r"^\s+at (?:async )?(?:(.+?) (?:\[as [^\]]+\] )?)?\(?((?:[a-z\-]+:)?[^()\s]*?|native"
    r"|<anonymous>)(?::\d+)?(?::(\d+))?\)?$"
)
# the form of most frames, with the groups of the pattern above; this pattern is several times as fast
_USUAL_FRAME: Final = re.compile(
    r"^\s+at (?:async )?(?!async )([\w$.<>]+) \((?![a-z\-]+:\d+:\d+\)$)([^()\s]*):\d+:(\d+)\)$"
)
_GECKO_FRAME: Final = re.compile(
    r"^([^@\s(]*)@((?:https?|file|webpack|resource):[^\s]*?)(?::\d+)?(?::(\d+))?$"
)
_CAUSE: Final = re.compile(r"^\s*(?:\[cause\]|\[errors\]|Caused by):? ?\[?(.*)$")
_ERROR: Final = re.compile(
    r"^(?:error: )?(?:Uncaught (?:\(in promise\) )?)?((?:[A-Z][\w$]*\.)*[A-Z][\w$]*(?:Error|Exception"
    r"|Rejection)?)(?: \[(\w+)\])?(?:: ?(.*))?$"
)
_CODE: Final = re.compile(r"^\s+code: '([\w\-]{1,60})',?$")
_MOST_MESSAGE: Final = 60
"""Lines of a message. Validators print a list of problems in it, as JSON."""
_MOST_DIGITS: Final = 99
"""Digits of a column: Python refuses to make a number from some thousands."""


def read_javascript(lines: list[str]) -> StackTrace | None:
    """Read a trace: a line with the error, more lines of the message, then frames."""
    reader = _JavaScriptReader()
    for line, frame in zip(lines, map(_FRAME_OF_LINE.__getitem__, lines), strict=True):
        if frame is None:
            reader.read_other_line(line)
        else:
            reader.read_frame(frame)

    if not reader.frames and not reader.errors:
        return None

    return trace_of("javascript", reader.errors, reader.frames)


class _JavaScriptReader:
    """The errors of a trace, and the frames of the last of them, while lines are read."""

    def __init__(self) -> None:
        self.errors: list[Error] = []
        self.frames: list[Frame] = []
        self._head = ""
        """The first line of an error whose first frame was not read yet."""
        self._message_lines: list[str] = []
        self._awaits_frame = True

    def read_frame(self, frame: Frame) -> None:
        """Add a frame. The first one after the lines of an error completes the error."""
        if self._awaits_frame:
            self._complete_error()
        self.frames.append(frame)

    def _complete_error(self) -> None:
        error = _error(self._head, self._message_lines)
        if error is not None:
            self.errors.append(error)
            self.frames = []

        self._awaits_frame = False

    def read_other_line(self, line: str) -> None:
        """Read a line that is no frame, for example a cause, a part of a message, or a property."""
        head = line.removesuffix(" {")
        cause = _CAUSE.match(head)
        if cause and self.errors:
            self._begin(cause[1])
            return

        begins_error = _begins_error(head)
        is_before_frames = self._awaits_frame or begins_error
        if is_before_frames and line.strip():
            self._read_head(line, head, begins_error=begins_error)
        elif self.errors:
            self._read_code(head)

    def _read_head(self, line: str, head: str, *, begins_error: bool) -> None:
        """Read the first line of an error, or one more line of the message."""
        if begins_error or not _begins_error(self._head):
            self._begin(head)
        elif len(self._message_lines) < _MOST_MESSAGE:
            self._message_lines.append(line)

    def _begin(self, head: str) -> None:
        self._head = head
        self._message_lines = []
        self._awaits_frame = True

    def _read_code(self, line: str) -> None:
        """Add the property `code` to the type of the last error, unless Node printed it there already."""
        code = _CODE.match(line)
        if code is None:
            return

        kind, message = self.errors[-1]
        if f"[{code[1]}]" not in kind:
            self.errors[-1] = (f"{kind} [{code[1]}]", message)


def _begins_error(line: str) -> bool:
    return _ERROR.match(line.strip()) is not None


def _frame(line: str) -> Frame | None:
    # ` {` begins the properties of an error, after the last frame
    line = line.removesuffix(" {")
    found = _USUAL_FRAME.match(line) or _FRAME.match(line)
    if not found and "@" in line:
        found = _GECKO_FRAME.match(line)
    if not found:
        return None

    column = int((found[3] or "0")[:_MOST_DIGITS])
    return Frame(found[1] or "", found[2] or "", column)


_FRAME_OF_LINE: Final = Memo(_frame)


def _error(line: str, message_lines: list[str]) -> Error | None:
    """Return the type and message of an error. Later lines belong to the message if the first has little."""
    line = line.strip()
    if not line:
        return None

    found = _ERROR.match(line)
    if found is None:
        return "Error", line

    kind, code, rest = found.groups()
    if code:
        kind = f"{kind} [{code}]"
    message = (rest or "").strip(" {")
    if message in ("", "["):
        message = "\n".join([message, *message_lines]).strip()
    return kind, message
