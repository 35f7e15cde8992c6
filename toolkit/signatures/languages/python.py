"""Read stack traces of Python, with chains of exceptions and exception groups.

For example, the trace

    Traceback (most recent call last):
      File "/app/store.py", line 31, in read        frame of error 1, the root cause
        return self.file.read()
    OSError: closed                                 error 1

    The above exception was the direct cause of the following exception:

    Traceback (most recent call last):
      File "/app/orders.py", line 7, in total       frame of error 2
        self.store.read()
    OrderError: no total                            error 2

has two errors, and the frame is `store.read`. If the second error occurred while the first one was handled,
it can be the root cause itself: see `python_handlers`. The members of a group are printed after the group and
between bars, for example `  | ValueError: no price`.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final

from toolkit.signatures.languages.python_handlers import Raised, is_own_failure
from toolkit.signatures.remembering import Memo
from toolkit.signatures.trace_frames import (
    Frame,
    StackTrace,
    error_in,
    reader_of,
    trace_of,
)

TITLE: Final = "Traceback (most recent call last)"

_FRAME: Final = re.compile(r'\s*File "([^"]*)", line \d+(?:, in (.+))?')
_REPEATED: Final = re.compile(r"\s*\[Previous line repeated (\d{1,9}) more times?\]")
_MOST_REPEATED: Final = 4_000
"""Repetitions of a frame that are counted. A recursion has more, and none of them tells anything new."""
_BAR: Final = re.compile(r"^[ |+\-]*[|+] ?(?:-+ \d+ -+)?")
_ERROR: Final = re.compile(
    r"^((?:[A-Za-z_$][\w$]*[.:\\]{1,2})*[A-Za-z_$][\w$]*)(?: \[[\w.]+\])?(?:: ?(.*))?$",
    re.DOTALL,
)
_HANDLING: Final = "During handling of the above exception"
_AFTER_MESSAGE: Final = (" ", "\t", "Traceback", "During", "The above", "|", "+")
"""Beginnings of lines that do not belong to the message of an exception."""
_MORE_LINES: Final = 2
"""Lines of a message that are read after the first one."""


def read_python(lines: list[str]) -> StackTrace | None:
    """Read a trace: frames, then the error. Exceptions of a chain and of a group follow one another."""
    reader = _PythonReader(list(map(_without_bar, lines)))
    for number, line in enumerate(reader.lines):
        if TITLE in line:
            reader.begin_trace(line)
        elif reader.is_in_trace:
            reader.read_line(number, line)
        elif line.startswith(_HANDLING):
            reader.is_while_handling = True

    return reader.trace()


class _PythonReader:
    """The errors of a trace and the frames of the current one, while lines are read."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.is_in_trace = False
        self.is_while_handling = False
        self._is_group = False
        self._frames: list[Frame] = []
        """Frames of the error that was not read yet, in printed order."""
        self._chain: list[Raised] = []
        """Each error with the frames, in printed order."""

    def begin_trace(self, title: str) -> None:
        """Begin the frames of another error."""
        self._frames = []
        self.is_in_trace = True
        if "Exception Group" in title:
            self._is_group = True

    def read_line(self, number: int, line: str) -> None:
        """Read a frame, a repetition of frames, or the error. Other lines are code."""
        frame = _FRAME_OF_LINE[line]
        if frame is not None:
            self._frames.append(frame)
            return

        repetitions = _repetitions(line)
        if repetitions and self._frames:
            self._frames += self._frames[-1:] * repetitions
        elif line[:1].strip():
            self._read_error(number)

    def _read_error(self, number: int) -> None:
        """Add the error that ends a trace, with the lines of the message."""
        following = self.lines[number + 1 : number + 1 + _MORE_LINES]
        error = _error(_message_lines(self.lines[number], following).strip())
        if error is not None:
            code = self._code_before(number) if self.is_while_handling else ""
            raised = Raised(error, self._frames[::-1], code, self.is_while_handling)
            self._chain.append(raised)
        self.is_in_trace = False
        self.is_while_handling = False

    def _code_before(self, error: int) -> str:
        """Return the code of the last frame before an error; "" if the trace does not print it."""
        for number in range(error - 1, -1, -1):
            if _FRAME_OF_LINE[self.lines[number]] is not None:
                has_code = number + 1 < error
                return self.lines[number + 1] if has_code else ""

        return ""

    def trace(self) -> StackTrace | None:
        """Return the trace of all lines; None without an error."""
        if not self._chain:
            return None

        chain = self._chain
        if not self._is_group:
            # the root cause is printed first, but the members of a group are printed last
            chain = chain[_root_cause(chain) :][::-1]

        errors = [raised.error for raised in chain]
        return trace_of("python", errors, chain[-1].frames)


def _root_cause(chain: list[Raised]) -> int:
    """Return the place of the root cause in a chain: the first error, unless it was expected and handled."""
    place = 0
    while place + 1 < len(chain) and chain[place + 1].while_handling:
        if not is_own_failure(chain[place], chain[place + 1]):
            break
        place += 1

    return place


def _frame(found: re.Match[str]) -> Frame:
    return Frame(found[2] or "", found[1])


_FRAME_OF_LINE: Final = Memo(reader_of(_FRAME, _frame))


def _repetitions(line: str) -> int:
    """Return how often a recursion repeated the last frame; 0 if the line does not tell it."""
    if "[Previous line repeated" not in line:
        return 0

    repeated = _REPEATED.match(line)
    if repeated is None:
        return 0

    return min(int(repeated[1]), _MOST_REPEATED)


def _without_bar(line: str) -> str:
    """Return a line without the bars that mark the members of a group."""
    if line.lstrip().startswith(("|", "+")):
        return _BAR.sub("", line)
    return line


def _message_lines(first: str, following: list[str]) -> str:
    """Return the line of an error with the following lines of the message."""
    more = takewhile(_continues_message, following)
    return " ".join([first, *more])


def _continues_message(line: str) -> bool:
    return bool(line.strip(" -")) and not line.startswith(_AFTER_MESSAGE)


_error: Final = reader_of(_ERROR, error_in)
"""Reads ``package.Type: message``."""
