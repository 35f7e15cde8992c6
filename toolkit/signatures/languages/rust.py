"""Read panics of Rust, with or without a backtrace.

For example, the panic

    thread 'main' panicked at src/orders.rs:17:5:
    index out of bounds
    stack backtrace:
       2: shop::total                  frame
                at ./src/orders.rs:17  file of the frame

has the message "index out of bounds" and the frame `shop::total`. Without a backtrace, the file that panicked
stands for the frame. Old versions print the message in the first line.

If an error of `anyhow` or `eyre` was unwrapped, its causes are listed after the message (see `causes`). They
are part of the message, and no frames.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.signatures.causes import Causes, causes_in
from toolkit.signatures.frame_names import file_stem
from toolkit.signatures.languages.go import line_after
from toolkit.signatures.trace_frames import (
    Error,
    Frame,
    StackTrace,
    trace_of,
)

PANICKED: Final = "panicked at "
_PANIC: Final = re.compile(
    r"^thread '[^']*' (?:\(\d+\) )?panicked at (?:'(.*)', )?(.*?)(?::\d+)?(?::\d+)?:?$"
)
_FRAME: Final = re.compile(
    r"^\s*+\d+: +(?:0x[0-9a-f]+ - )?(\S.*?)(?:::h[0-9a-f]{16})?$"
)


def read_rust(lines: list[str]) -> StackTrace:
    """Read the lines of a panic, then the frames of the backtrace."""
    causes = causes_in(lines)
    reader = _RustReader(lines, causes)
    for number, line in enumerate(lines):
        if causes.title <= number < causes.end:
            continue
        panic = None
        if PANICKED in line:
            panic = _PANIC.match(line.strip())
        if panic is not None:
            reader.add_panic(number, panic)
        elif reader.errors:
            reader.read_frame(number, line)

    return reader.trace()


class _RustReader:
    """The errors and frames of a panic, while lines are read."""

    def __init__(self, lines: list[str], causes: Causes) -> None:
        self._lines = lines
        self._causes = causes
        self.errors: list[Error] = []
        self._frames: list[Frame] = []
        self._source = ""
        """The file that panicked."""

    def add_panic(self, number: int, panic: re.Match[str]) -> None:
        """Add the error of a line, whose message can be in the next line."""
        message: str | None = panic[1]
        if message is None:
            message = line_after(self._lines, number)
        if number < self._causes.title:
            message = self._causes.after(message.strip())
        self.errors.append(("panic", message.strip()))
        self._source = panic[2]

    def read_frame(self, number: int, line: str) -> None:
        """Add the frame of a line, if it has one."""
        found = _FRAME.match(line)
        if found is not None:
            path = line_after(self._lines, number).removeprefix("at ")
            self._frames.append(Frame(found[1], path))

    def trace(self) -> StackTrace:
        """Return the trace of all lines."""
        frames = self._frames
        if not frames and self._source:
            frames = [Frame("", self._source)]
        trace = trace_of("rust", self.errors, frames)
        if self._source and not trace.frame:
            return StackTrace("rust", trace.errors, file_stem(self._source), ())

        return trace
