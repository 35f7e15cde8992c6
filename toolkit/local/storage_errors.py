"""Errors of the service's SQLite files, in words that tell which file it is and what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from toolkit.errors import LocalServiceError

QUEUE_FILE: Final = "queue/queue.sqlite"
"""The queue's file in the data folder."""
_FULL: Final = "got a full disk; expected free space; free some, then send the request again"
_DAMAGED: Final = (
    "got a damaged database; expected one of this service; stop the service, and put a copy of the file back "
    "or start it with another --data-dir"
)
_UNUSABLE: Final = "got an error of SQLite ({}); expected a file that can be read and written"
_CAUSES: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    # a write that the system refuses with anything but ENOSPC, such as a limit on the size of a file
    sqlite3.SQLITE_IOERR_WRITE: _FULL,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


def storage_problem(error: sqlite3.Error, file: str) -> str:
    """Return what happened to a file of the service, with what was expected and what to do."""
    code = getattr(error, "sqlite_errorcode", 0)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    # the low byte of an extended code is its primary code
    cause = _CAUSES.get(code) or _CAUSES.get(code & 0xFF) or _UNUSABLE.format(name)
    return f"the service cannot use its file {file!r}; {cause}"


def logged_problem(error: Exception, file: str) -> str:
    """Return the same for the log; of an error that is not SQLite's, its type alone."""
    return storage_problem(error, file) if isinstance(error, sqlite3.Error) else type(error).__name__


def damaged_file(path: Path, got: object) -> LocalServiceError:
    """Return the error of a file that cannot be opened as a database of this service."""
    return LocalServiceError(
        f"opening the service's file {str(path)!r}",
        got=str(got),
        expected="a database of this service",
        next_step="Put a copy of it back, move it away to begin anew, or use another --data-dir.",
    )
