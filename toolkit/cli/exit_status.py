"""The exit statuses of all commands, in one table."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self


class ExitStatus(IntEnum):
    """How a command ended. Each has its meaning, as help and documentation show it."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Make a status that knows its meaning."""
        status = int.__new__(cls, value)
        status._value_ = value
        status.meaning = meaning
        return status

    DONE = 0, "done"
    FAILED = 1, "an error, or a name that is not there; standard error explains it"
    USAGE = 2, "the command line is not understood"
    NOT_COMPLETE = 3, "done, but a load is not complete, or a redrive is not; standard error explains it"
    NEW = 4, "with --fail-on new: a group of failures was never seen before"
    WORSE = 5, "with --fail-on worse: failures come at a higher rate than before"
    INTERRUPTED = 130, "interrupted before its end, by Ctrl-C or SIGTERM"


EXIT_HELP: Final = """\
exit status: 0 done, 1 error, 2 command line not understood, 3 load or redrive not complete, 4 new and
5 worse (with --fail-on, before 3), 130 interrupted"""
