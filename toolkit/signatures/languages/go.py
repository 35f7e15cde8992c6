"""Read panics of Go: the lines of the panic, then the stack of the goroutine that panicked.

For example, the panic

    panic: runtime error: index out of range [5] with length 3
    goroutine 1 [running]:
    main.total(...)                    frame
        /src/orders.go:17 +0x1d        file of the frame

has the error "runtime error" and the frame `main.total`. Other goroutines follow, and are not read.
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

_PANIC: Final = re.compile(r"^(?:panic|fatal error): (.*?)(?: \[recovered\].*)?$")
_FRAME: Final = re.compile(r"^((?:[\w.\-]+/)*[\w\-]+\.[\w.()*\[\]\-{}]+)\(.*\)$")
_PANICKING: Final = ("panic(", "runtime.gopanic", "runtime.panic", "runtime.sigpanic")
"""Beginnings of frames of the runtime that panics. The frames above are deferred functions."""
_RUNTIME_ERROR: Final = "runtime error: "


def read_go(lines: list[str]) -> StackTrace:
    """Read the lines of a panic up to the second goroutine."""
    reader = _GoReader(lines)
    for number, line in enumerate(lines):
        error = _error(line)
        if error is not None:
            reader.errors.append(error)
        elif line.startswith("goroutine "):
            reader.routines += 1
        else:
            reader.read_frame(number, line)

        if reader.routines > 1:
            break

    if reader.frames and not reader.errors:
        reader.errors.append(("panic", ""))
    return trace_of("go", reader.errors, reader.frames)


class _GoReader:
    """The errors and frames of a panic, while lines are read."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.errors: list[Error] = []
        self.frames: list[Frame] = []
        self.routines = 0

    def read_frame(self, number: int, line: str) -> None:
        """Add the frame of a line. A frame of the panic itself removes the deferred functions above it."""
        if line.startswith(_PANICKING):
            self.frames = []
            return
        if not line.endswith(")"):
            return

        found = _FRAME.match(line.removeprefix("created by "))
        if found is not None:
            function = found[1].rpartition("/")[2]
            self.frames.append(Frame(function, line_after(self._lines, number)))


def line_after(lines: list[str], number: int) -> str:
    """Return the next line without blanks around it; "" after the last line."""
    if number + 1 == len(lines):
        return ""
    return lines[number + 1].strip()


def _error(line: str) -> Error | None:
    """Return the type and message of a panic, or None if the line is none."""
    if ": " not in line:
        return None

    found = _PANIC.match(line.strip())
    if found is None:
        return None

    message = found[1]
    if message.startswith(_RUNTIME_ERROR):
        return "runtime error", message.removeprefix(_RUNTIME_ERROR)
    if line.lstrip().startswith("panic"):
        return "panic", message

    return "fatal error", message
