"""Read stack traces of Java, Kotlin, Scala, Groovy and Clojure.

For example, the trace

    java.lang.IllegalStateException: no total        error 1
        at com.acme.OrderService.total(Orders.java:7)   frame of error 1
        at com.acme.Main.main(Main.java:3)              frame of error 1
    Caused by: java.io.IOException: closed           error 2, the root cause
        at com.acme.Store.read(Store.java:31)           frame of error 2
        ... 1 more                                      the last frame of error 1

has two errors, and the frame is `com.acme.Store.read`. A cause leaves out the frames that it shares with the
exception above it: `... 1 more` stands for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from toolkit.signatures.frame_names import plain_name
from toolkit.signatures.remembering import Memo
from toolkit.signatures.trace_frames import (
    Error,
    Frame,
    StackTrace,
    error_in,
    reader_of,
    trace_of,
)

_FRAME: Final = re.compile(
    # without a module, as most frames; then with a loader and a module, such as app//shop@1.2/
    r"\s*at (?:([\w.$<>\-]+)\([^()]*\)|(?:[\w.\-@]+/(?:[\w.\-@]*/)?)([\w.$<>\-]+)\([^()]*\))"
)
_HEAD: Final = re.compile(
    r"^(?:Exception in thread \"[^\"]*\" |Caused by: |\s*Suppressed: |Wrapped by: |.*?\s)??"
    r"((?:[a-z_][\w]*\.)+[A-Z$][\w$]*|[A-Z]\w*(?:Exception|Error|Throwable))(?:: (.*))?$"
)
_OMITTED: Final = re.compile(
    r"^\s*\.\.\. ([1-9]\d{0,5}) (?:more|common frames omitted)"
)


def read_java(lines: list[str]) -> StackTrace:
    """Read a trace: the line of each error is followed by the frames of the error."""
    reader = _JavaReader()
    frames: list[Any] = list(map(_FRAME_OF_LINE.__getitem__, lines))
    other_lines = [place for place, frame in enumerate(frames) if frame is None]

    # most lines are frames, which are added together: up to the next line that is none
    first_frame = 0
    for other_line in other_lines:
        reader.add_frames(frames[first_frame:other_line])
        reader.read_other_line(lines[other_line])
        first_frame = other_line + 1
        if reader.is_complete:
            break
    else:
        reader.add_frames(frames[first_frame:])

    reader.complete_error()
    return trace_of("java", reader.errors, reader.frames)


class _JavaReader:
    """The errors of a trace, and the frames of the last of them, while lines are read."""

    def __init__(self) -> None:
        self.errors: list[Error] = []
        self.frames: list[Frame] = []
        self.head = ""
        """The first line of an error whose frames follow; "" while frames are read."""
        self.is_complete = False
        self._frames_above: list[Frame] = []
        """Frames of the error that the last one caused."""

    def add_frames(self, frames: Sequence[Frame]) -> None:
        """Add frames, which belong to the error whose head was read before."""
        if frames:
            self.complete_error()
            self.frames += frames

    def read_other_line(self, line: str) -> None:
        """Read the head of an error, or the number of frames that were left out."""
        omitted = _OMITTED.match(line)
        if omitted is not None:
            # without frames before it, all frames of the cause are left out
            self.complete_error()
            self.frames += self._frames_above[-int(omitted[1]) :]
        elif self._is_head(line):
            self.complete_error()
            self.head = line
        elif line.lstrip().startswith("Suppressed: "):
            # an error while resources were closed, not the cause
            self.is_complete = True

    def _is_head(self, line: str) -> bool:
        """Return whether a line begins an error: the first one, or a cause."""
        if line.startswith("Caused by: "):
            return True
        if self.errors or self.head:
            return False

        return _ERROR_OF_LINE[line] is not None

    def complete_error(self) -> None:
        """Add the error that `head` begins, and begin the list of frames. Without a head, do nothing."""
        if not self.head:
            return

        self._frames_above = self.frames
        self.frames = []
        error = _ERROR_OF_LINE[self.head]
        if error is not None:
            self.errors.append(error)
        self.head = ""


def _error(head: re.Match[str]) -> Error:
    kind, message = error_in(head)
    return plain_name(kind), message


def _frame(found: re.Match[str]) -> Frame:
    return Frame(found[1] or found[2])


_ERROR_OF_LINE: Final = Memo(reader_of(_HEAD, _error))
_FRAME_OF_LINE: Final = Memo(reader_of(_FRAME, _frame))
