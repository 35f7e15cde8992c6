"""Errors of the SQLite files of the service: they name the file, the cause and the next step."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from toolkit.base.errors import LocalServiceError
from toolkit_service.damaged_values import DamagedValue

QUEUE_FILE: Final = "queue/queue.sqlite"
"""The file of the queue in the data folder."""
INTERNAL_ERROR: Final = "the service failed; got an internal error; expected a response"
"""The message of an error that nothing explains."""
_FULL: Final = (
    "got a full disk; expected free space; free some, then send the request again"
)
_TOO_LARGE: Final = (
    "got a limit on the size of files ({limit:,} bytes); expected room for a larger file; "
    "raise the limit (ulimit -f), then start the service again"
)
_REFUSED: Final = (
    "got a disk that refuses to read or write ({name}); expected one that works and has no exhausted quota; "
    "look at the log of the system, then send the request again"
)
_DAMAGED: Final = (
    "got a damaged database; expected one of this service; stop the service, and put a copy of the file back "
    "or start it with another --data-dir"
)
_UNUSABLE: Final = (
    "got an error of SQLite ({name}); expected a file that can be read and written"
)
_REMOVE_ROW: Final = (
    "stop the service, and put a copy of the file back,"
    " or correct or remove that row with an SQLite shell"
)
# bytes: SQLite needs room for some pages of 4 or 8 KB at once
_LEAST_ROOM: Final = 64 * 1024


def storage_problem(error: sqlite3.Error, file: str, path: Path) -> str:
    """Return the message about a file that cannot be used: the cause, the expected state and the next step.

    `file` is the name in the data folder, for the message; `path` is the place on the disk.
    """
    return f"the service cannot use its file {file!r}; {_cause(error, path)}"


def damage_problem(damage: DamagedValue, file: str) -> str:
    """Return the message about a damaged value: the place, the expected form and the next step."""
    return f"the service cannot use its file {file!r}; {damage}; {_REMOVE_ROW}"


def may_be_a_damaged_value(error: Exception) -> bool:
    """Return True if an error can come from a value in the database, not from the disk or the file."""
    if not isinstance(error, sqlite3.Error):
        return True

    # JSON and functions of this package inside SQL fail with the general code, as do comparisons of types
    return _primary_code(error) in {
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
    }


def damaged_file(path: Path, got: object) -> LocalServiceError:
    """Return the error of a file that cannot be opened as a database of this service."""
    return LocalServiceError(
        f"opening the service's file {str(path)!r}",
        got=str(got),
        expected="a database of this service",
        next_step="Put a copy of it back, move it away to begin anew, or use another --data-dir.",
    )


def _cause(error: sqlite3.Error, path: Path) -> str:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return _FULL
    if code == sqlite3.SQLITE_IOERR:
        return _cause_of_refusal(name, path)
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return _DAMAGED

    return _UNUSABLE.format(name=name)


def _cause_of_refusal(name: str, path: Path) -> str:
    """Return why the system refused a read or write: SQLite keeps its error number to itself.

    SQLite reports a full disk as such, but not for all of its files, and a limit on the size of files not at
    all. Both can be looked up.
    """
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return _REFUSED.format(name=name)

    if disk.f_bavail * disk.f_frsize < _LEAST_ROOM:
        return _FULL

    limit = _limit_on_file_size()
    if limit is not None and _largest_size(path) + _LEAST_ROOM > limit:
        return _TOO_LARGE.format(limit=limit)

    return _REFUSED.format(name=name)


def _limit_on_file_size() -> int | None:
    """Return the limit that the system sets for files of this process; None if there is none."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if limit == resource.RLIM_INFINITY else limit


def _largest_size(path: Path) -> int:
    """Return the size of a database file or of its write-ahead log, whichever is larger."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return max((file.stat().st_size for file in files if file.exists()), default=0)


def _primary_code(error: sqlite3.Error) -> int:
    """Return the primary code of SQLite, which is the low byte of an extended code."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
