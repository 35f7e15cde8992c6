"""Find the language of a stack trace, and read the trace.

A trace is reduced to the chain of exceptions and to one frame, the first of the application in the root
cause (see `trace_frames`). Line numbers, paths, argument values, addresses and generated names differ between
occurrences of a failure, so none of them is kept.

Three steps read a trace:

1. `_LANGUAGES` tells the language by words and a pattern.
2. The parser of the language (see `languages`) reads the lines: a line is a frame, the beginning of an error,
   a part of a message, or is skipped.
3. `trace_of` chooses the frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from toolkit.signatures.languages.dotnet import read_dotnet
from toolkit.signatures.languages.go import read_go
from toolkit.signatures.languages.java import read_java
from toolkit.signatures.languages.javascript import read_javascript
from toolkit.signatures.languages.native import read_native
from toolkit.signatures.languages.php import read_php
from toolkit.signatures.languages.python import TITLE, read_python
from toolkit.signatures.languages.ruby import read_ruby
from toolkit.signatures.languages.rust import read_rust
from toolkit.signatures.trace_frames import StackTrace

_STARTS: Final = (600, 2_000)
"""Characters at the start of a trace that show the language, of most traces and of nearly all traces."""
MAX_LINES: Final = 4_000
"""Lines of a trace that are read. A longer trace is a recursion: the start and the end tell enough."""


def stack_trace(text: str) -> StackTrace | None:
    r"""Return the first stack trace of a message, or None if the message has no trace.

    >>> found = stack_trace("Traceback (most recent call last):\n"
    ...     '  File "/app/orders.py", line 12, in total\n    return 1 / 0\nZeroDivisionError: no division')
    >>> found.errors, found.frame
    ((('ZeroDivisionError', 'no division'),), 'orders.total')
    """
    for length in _STARTS:
        if length < len(text):
            trace = _find_trace(text[:length], text)
            if trace is not None:
                return trace

    return _find_trace(text, text)


def _find_trace(part: str, text: str) -> StackTrace | None:
    """Return the trace of the first language whose sign is in a part of a message."""
    for word, is_sign, read in _SIGNS:
        if word in part and is_sign(part):
            trace = read(_lines(text))
            if trace is not None and trace.errors:
                return trace

    return None


def _lines(text: str) -> list[str]:
    """Return the lines of a trace that are read."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        return lines[: MAX_LINES // 2] + lines[-MAX_LINES // 2 :]

    return lines


class _Language(NamedTuple):
    """The signs of a language, and the parser.

    A trace of the language contains one of the words, and `is_sign` is true for it. The words are searched
    first, because this is much faster: a message without them is of another language. A rare sign, such as
    "#", is found in a fifth of the time of a word.
    """

    words: tuple[str, ...]
    is_sign: Callable[[str], object]
    read: Callable[[list[str]], StackTrace | None]


def _language(
    words: tuple[str, ...],
    pattern: str,
    read: Callable[[list[str]], StackTrace | None],
) -> _Language:
    """Return a language whose traces match a pattern."""
    return _Language(words, re.compile(pattern, re.MULTILINE).search, read)


def _language_of_frames(
    words: tuple[str, ...],
    pattern: str,
    read: Callable[[list[str]], StackTrace | None],
) -> _Language:
    """Return a language whose traces have a line of "at " and a pattern."""
    frame = re.compile(_AT + pattern, re.MULTILINE)
    return _Language(words, partial(_has_frame, frame), read)


def _has_frame(frame: re.Pattern[str], part: str) -> bool:
    """Return whether a line matches a pattern that begins with "at " after blanks.

    The first "at " of each line is searched, which is much faster than the pattern.
    """
    word = part.find("at ")
    while word >= 0:
        # if "at " begins a line, the line break is the blank before it, and the match begins above
        start_of_line = part.rfind("\n", 0, max(0, word - 1)) + 1
        if frame.match(part, start_of_line):
            return True
        end_of_line = part.find("\n", word)
        if end_of_line < 0:
            return False
        word = part.find("at ", end_of_line)

    return False


# the line before it may be empty; if all empty lines were read, it would take the square of their number
_AT: Final = r"[^\S\n]*\sat "

# More specific signs come first. For example, "at " begins the frames of three languages.
_LANGUAGES: Final = (
    _language(
        ("Sanitizer",),
        r"\b(?:Address|Leak|Memory|Thread|UndefinedBehavior|HWAddress)Sanitizer\b",
        read_native,
    ),
    _language(("==",), r"==\d+== ?ERROR: libFuzzer", read_native),
    _language((": runtime error: ",), r"^\S+:\d+:\d+: runtime error: ", read_native),
    _language(("==",), r"^==\d+== +at 0x[0-9A-Fa-f]+: ", read_native),
    _language((TITLE,), re.escape(TITLE), read_python),
    _language(
        ("panic: ", "fatal error: ", "goroutine "),
        r"^(?:panic: |fatal error: )|^goroutine \d+ \[",
        read_go,
    ),
    _language(
        ("panicked at ",), r"^thread '[^']*' (?:\(\d+\) )?panicked at ", read_rust
    ),
    _language(("#",), r"^#0 .*(?:\(\d+\)|\{main\}|\[internal function\])", read_php),
    _language(("`", ":in '"), r":\d+:in [`']", read_ruby),
    _language_of_frames(
        (":line ",), r"[\w.<>`+\[\],$ ]+\((?>.*?\) in ).*:line \d+", read_dotnet
    ),
    _language(("--- End of ",), r"^[^\S\n]*--- End of ", read_dotnet),
    _language_of_frames(
        ("at System.", "at Microsoft."), r"(?:System|Microsoft)\.", read_dotnet
    ),
    _language_of_frames(
        (".java", ".kt", ".scala", ".groovy", ".clj"),
        r"[\w.$/<>@\-]+\([\w$\-]+\.(?:java|kt|scala|groovy|clj)",
        read_java,
    ),
    _language_of_frames(
        ("(Native Method", "(Unknown Source", "(<generated>"),
        r"[\w.$/<>@\-]+\((?:Native Method|Unknown Source|<generated>)",
        read_java,
    ),
    _language_of_frames(
        ("at ",),
        r".*(?::\d+:\d+\)?|\((?:<anonymous>|native)\))$",
        read_javascript,
    ),
    _language(
        ("@http", "@file:", "@webpack:"),
        r"^[^@\s]*@(?:https?|file|webpack):\S+:\d+",
        read_javascript,
    ),
    _language_of_frames(("at ",), r"(?:[A-Z]\w*\.)+[\w<>`]+\(", read_dotnet),
)


_SIGNS: Final = [
    (word, language.is_sign, language.read)
    for language in _LANGUAGES
    for word in language.words
]
"""Each word with the test and the parser."""
