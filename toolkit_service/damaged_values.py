"""Find the value that makes the service fail: a value that the service cannot have stored.

A file of SQLite can be in order and still contain values that the service never writes, for example after
somebody edited it: text in a column of numbers, or JSON that is cut. A request that meets such a value fails
somewhere in the service. Only then the tables are searched, so requests that succeed cost nothing more.

A value is damaged in one of three ways, which are checked in this order:

1. The type is not the type of the column. SQLite only prefers the declared types, it does not enforce them.
2. It is longer than any request of the service (`LONGEST`).
3. It cannot be read in the form that the service stores there, for example as JSON.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Reader: TypeAlias = Callable[[Any], object]
"""Reads a stored value; raises an error if the value is not in the form that the service stores."""

LONGEST: Final = 512 * 1024 * 1024
"""Bytes of a value: more than any request can bring, also with its body encoded as base64 in JSON."""
_SEARCH_SECONDS: Final = 5.0  # other reads of the same file wait meanwhile
_TYPES: Final = ("INTEGER", "TEXT", "BLOB")


class DamagedValue(NamedTuple):
    """The place of a damaged value, the found value and the expected form."""

    table: str
    row: str
    """A condition of SQL that selects the row, for example ``seq = 3``."""
    column: str
    got: str
    expected: str

    def __str__(self) -> str:
        """Return the found value and the expected form, as parts of a message."""
        place = f"the column {self.column!r} of the table {self.table!r}, in the row with {self.row}"
        return f"got {self.got} in {place}; expected {self.expected}"


class _Column(NamedTuple):
    name: str
    type: str
    may_be_null: bool


def damaged_value(
    connection: sqlite3.Connection,
    readers: Mapping[tuple[str, str], tuple[Reader, str]],
) -> DamagedValue | None:
    """Return the first damaged value of a database, or None if there is none or the search takes too long.

    `readers` are by table and column; each comes with a description of the form that it expects.
    """
    until = time.monotonic() + _SEARCH_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        return next(_damaged_values(connection, readers, until), None)
    except sqlite3.Error:
        # the search took too long, or the file itself is damaged, which has a message of its own
        return None
    finally:
        connection.set_progress_handler(None, 0)


def _damaged_values(
    connection: sqlite3.Connection,
    readers: Mapping[tuple[str, str], tuple[Reader, str]],
    until: float,
) -> Iterator[DamagedValue]:
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    )
    for table in [str(name) for (name,) in tables.fetchall()]:
        columns, key = _described(connection, table)
        for column in columns:
            yield from _of_another_type(connection, table, column, key)
        for column in columns:
            read, expected = readers.get((table, column.name), (None, ""))
            if read is None:
                continue

            names = ", ".join((*key, column.name))
            for *keys, stored in connection.execute(f"SELECT {names} FROM {table}"):  # noqa: S608 - names of the tables
                if time.monotonic() > until:
                    return
                if stored is not None and not _is_readable(read, stored):
                    got = "a value that cannot be read"
                    yield DamagedValue(
                        table, _row(key, keys), column.name, got, expected
                    )


def _described(
    connection: sqlite3.Connection, table: str
) -> tuple[list[_Column], list[str]]:
    """Return the typed columns of a table and the columns of the key."""
    columns: list[_Column] = []
    key: list[tuple[int, str]] = []
    for _, name, declared, not_null, _, place in connection.execute(
        f"PRAGMA table_info({table})"
    ):
        if place:
            key.append((place, name))
        if declared in _TYPES:
            columns.append(_Column(name, declared, may_be_null=not (not_null or place)))

    return columns, [name for _, name in sorted(key)] or ["rowid"]


def _of_another_type(
    connection: sqlite3.Connection, table: str, column: _Column, key: list[str]
) -> Iterator[DamagedValue]:
    allowed = f"typeof({column.name}) = '{column.type.lower()}'"
    if column.may_be_null:
        allowed = f"({allowed} OR {column.name} IS NULL)"
    if table == "kept":
        # bytes and the version, a number; both are checked when the file is opened
        allowed = "1"

    found = connection.execute(
        f"SELECT {', '.join(key)}, typeof({column.name}), length({column.name}) FROM {table} "  # noqa: S608 - names of the tables
        f"WHERE NOT {allowed} OR length({column.name}) > {LONGEST} LIMIT 1"
    )
    for *keys, stored_type, length in found:
        got = {
            "null": "NULL",
            "real": "a fraction",
            "blob": "bytes",
            "integer": "a number",
        }.get(stored_type, "text")
        if stored_type == column.type.lower():
            got = f"{length:,} bytes or characters"
        expected = {"INTEGER": "a number", "TEXT": "text", "BLOB": "bytes"}[column.type]
        yield DamagedValue(table, _row(key, keys), column.name, got, expected)


def _is_readable(read: Reader, stored: object) -> bool:
    try:
        read(stored)
    except Exception:  # noqa: BLE001 - whatever a reader raises, the value is not in its form
        return False

    return True


def _row(key: list[str], values: list[object]) -> str:
    shown = [
        repr(value) if not isinstance(value, str) else repr(value[:80])
        for value in values
    ]
    return " AND ".join(
        f"{name} = {value}" for name, value in zip(key, shown, strict=True)
    )
