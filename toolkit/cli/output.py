"""Write results to standard output, and messages to standard error.

A message is a plain line, a line that begins with the time, or a JSON object. You choose the form with
``--log-format``, for example ``--log-format json`` for a log collector.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TextIO

from toolkit.base.errors import ToolkitError, UnexpectedResultWarning
from toolkit.base.own_tokens import masked
from toolkit.cli.exit_status import ExitStatus

if TYPE_CHECKING:
    # only a type here: its import doubles the time of help and of mistakes in a command line
    from toolkit.tables.receipt import Receipt

LogFormat = Literal["plain", "time", "json"]

Progress = Callable[[int, int | None], None]
"""The `progress=` of a loader or a redrive: called with the finished rows and, if known, the total."""

# A context variable, so that no function needs a parameter for it. Threads may start with an empty context,
# so a log handler that they call copies the context of the command.
_FORMAT: ContextVar[LogFormat] = ContextVar("_FORMAT", default="plain")
_LONGEST: Final = 2_000  # characters of a message: a terminal shows a screen of them
_END: Final = 400  # of them from the end, where the next step is
_LAST_STREAM: Final = 2  # number of standard error
_PROGRESS: Final = 30.0  # seconds between two lines of progress


class OutputError(ToolkitError):
    """Standard output cannot be written, for example because the disk is full."""


@contextmanager
def log_format(chosen: LogFormat) -> Iterator[None]:
    """Write messages in this format for a while."""
    before = _FORMAT.set(chosen)
    try:
        yield
    finally:
        _FORMAT.reset(before)


def print_result(text: str) -> None:
    """Print a result. Raise `BrokenPipeError` if the reader has ended, else `OutputError`."""
    try:
        # flushed here, so that a full disk or a closed pipe raises now and not when the interpreter exits
        print(text, flush=True)  # noqa: T201 - the result
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            "writing to standard output",
            got=error.strerror,
            expected="room for the result",
            next_step="Files that were saved are complete.",
        ) from None


def write(content: bytes) -> None:
    """Write the bytes of a result, whatever the encoding of the output, for a file or another program."""
    # printed text may still wait in the buffer of the text layer, above the buffer of bytes
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def print_message(text: str, *, event: str = "message", **facts: object) -> None:
    """Write a message about the command to standard error; `facts` are added in the JSON form.

    If a message cannot be written, it is lost: no command fails because nobody reads the messages.
    """
    write_line(sys.stderr, message_line(text, event=event, **facts))


def message_line(text: str, *, event: str, **facts: object) -> str:
    """Return a message in the chosen format."""
    chosen = _FORMAT.get()
    text = shortened(text)
    if chosen == "plain":
        return f"toolkit: {text}"

    now = datetime.now(UTC).isoformat(timespec="seconds")
    if chosen == "time":
        return f"{now} toolkit: {text}"

    return masked(
        json.dumps(
            {"time": now, "event": event, "message": text, **facts}, ensure_ascii=False
        )
    )


def has_events() -> bool:
    """Return whether messages are JSON objects."""
    return _FORMAT.get() == "json"


def write_line(stream: TextIO, line: str) -> bool:
    """Write a line of a log. Return False if it is lost: the pipe is closed, or the disk is full."""
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except (OSError, ValueError):  # ValueError: the stream was closed
        return False

    return True


def shortened(text: str) -> str:
    """Return a message without the middle if it is longer than a screen.

    >>> shortened("short")
    'short'
    >>> len(shortened("x" * 13_107)) < 2_100
    True
    """
    if len(text) <= _LONGEST:
        return text

    left_out = len(text) - _LONGEST
    return f"{text[: _LONGEST - _END]} … ({left_out:,} characters left out) … {text[-_END:]}"


def open_closed_streams() -> None:
    """Open the null device instead of standard streams that were closed, for example by ``>&-``.

    Python has None for them. The next file that is opened would get the number of such a stream, so that the
    output of another program would end up in it.
    """
    streams = {"stdin": "r", "stdout": "w", "stderr": "w"}
    closed = [name for name in streams if getattr(sys, name) is None]
    if not closed:
        return

    # files get the lowest free number
    while (number := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        os.set_inheritable(number, True)
    os.close(number)
    for name in closed:
        stream = Path(os.devnull).open(streams[name], encoding="utf-8")  # noqa: SIM115 - open to the end
        setattr(sys, name, stream)


def abandon_broken_streams() -> None:
    """Keep the interpreter from complaining on exit about output that nobody can read."""
    # At exit, the interpreter flushes both streams again, and ends with status 120 if that fails. What is
    # left in the buffer of a broken stream goes to /dev/null instead.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def progress_lines(unit: str) -> Progress | None:
    """Return a `progress=` that writes a line now and then, or None for the bar of a terminal."""
    if sys.stderr.isatty():
        return None

    def describe(done: int, total: int | None, seconds: float) -> str:
        if total is None:
            return f"{done:,} {unit} after {seconds:,.0f} s"
        return f"{done:,} of {total:,} {unit} after {seconds:,.0f} s"

    return logged_progress(describe, every=_PROGRESS, first_after=_PROGRESS)


def logged_progress(
    describe: Callable[[int, int | None, float], str],
    *,
    every: float,
    first_after: float,
) -> Progress:
    """Return a `progress=` that writes at most one line per interval.

    Parameters
    ----------
    describe : callable
        Returns the line for the number of finished rows, the total if it is known, and the elapsed seconds.
    every, first_after : float
        Seconds between two lines, and before the first one.
    """
    began = time.monotonic()
    next_line = began + first_after

    def report(done: int, total: int | None) -> None:
        nonlocal next_line
        now = time.monotonic()
        if now < next_line:
            return

        next_line = now + every
        seconds = now - began
        text = describe(done, total, seconds)
        print_message(
            text, event="progress", rows=done, total=total, seconds=round(seconds, 1)
        )

    return report


def status_of(receipt: Receipt, *, what: str = "") -> ExitStatus:
    """Print the receipt of a load, after the words of `what`. Return the exit status."""
    print_message(
        f"{what}{receipt}", event="loaded", rows=receipt.rows, seconds=receipt.seconds
    )
    if receipt.complete:
        return ExitStatus.DONE

    return ExitStatus.NOT_COMPLETE


@contextmanager
def unknown_names_end(*, begin: str = "", then: str = "") -> Iterator[None]:
    """Turn a warning about an unknown name into an error.

    Parameters
    ----------
    begin : str
        How the message of the warning begins. Default: any.
    then : str
        What follows for the command, which is added to the message.
    """
    with warnings.catch_warnings():
        # the filter is a regular expression that has to match at the start of the message
        warnings.filterwarnings("error", re.escape(begin), UnexpectedResultWarning)
        try:
            yield
        except UnexpectedResultWarning as warning:
            raise UnexpectedResultWarning(f"{warning}{then}") from None
