"""Store ledgers in SQLite files that are complete without the journal next to them.

After a kill, a ledger may be copied to another machine: that one file, without a journal. SQLite alone does
not promise that such a file is readable, because a commit that is interrupted between two pages is undone by
the journal. This layout needs no journal after a kill:

1. The rows of a plan are made before anything is sent, in a new file that then replaces the old one.
2. The step of an entry is JSON, padded with spaces to `STEP_BYTES`. To store the next step overwrites bytes
   of one page (and the change counter in the first page); no page is split, moved or freed.
3. If a process is killed between the two writes, the step is stored or not stored, and the file is complete.

SQLite's rollback journal is kept for power failures, which may leave a part of a page.

Reading changes nothing: a file is looked at with ``immutable=1`` first, and another program's is left alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from toolkit.base.private_files import check_unchanged, sync_folder

APPLICATION_ID: Final = 0x746B6C67  # "tklg"
VERSION: Final = 2
# six fit into a page; room for the longest ids and some 300 bytes of a reason
STEP_BYTES: Final = 600
_REASON_BYTES: Final = 300  # of a group that was stopped
_FIRST_VERSION: Final = 1  # without an application id, in write-ahead mode
_FIRST_TABLES: Final = {"plans", "entries", "stopped"}
_TIMEOUT: Final = 30  # seconds, for a writer that commits
_NEXT_TO_IT: Final = ("-wal", "-journal")
_NEEDS_A_WRITER: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)

# The views are for people: they have the columns of the first version.
_TABLES: Final = """
BEGIN;
CREATE TABLE plans (hash TEXT PRIMARY KEY, plan BLOB NOT NULL, began_at INTEGER NOT NULL);
CREATE TABLE planned (
  id INTEGER PRIMARY KEY, plan TEXT NOT NULL, dlq_id TEXT NOT NULL, grouped TEXT NOT NULL,
  action TEXT NOT NULL, origin_run TEXT, UNIQUE (plan, dlq_id)
);
CREATE TABLE steps (id INTEGER PRIMARY KEY, step TEXT NOT NULL);
CREATE TABLE groups (
  id INTEGER PRIMARY KEY, plan TEXT NOT NULL, grouped TEXT NOT NULL, UNIQUE (plan, grouped)
);
CREATE TABLE stops (id INTEGER PRIMARY KEY, reason TEXT NOT NULL);
CREATE VIEW entries AS
  SELECT plan, dlq_id, grouped, action, json_extract(step, '$.run_id') AS run_id, origin_run,
    json_extract(step, '$.state') AS state, json_extract(step, '$.intended_at') AS intended_at,
    json_extract(step, '$.ended_at') AS ended_at, json_extract(step, '$.new_dlq_id') AS new_dlq_id,
    json_extract(step, '$.new_group') AS new_group, json_extract(step, '$.reason') AS reason
  FROM planned JOIN steps USING (id) WHERE step LIKE '{%';
CREATE VIEW stopped AS
  SELECT plan, grouped, trim(reason) AS reason FROM groups JOIN stops USING (id) WHERE trim(reason) <> '';
"""

State = Literal[
    "intended", "started", "succeeded", "called", "deleted", "failed again", "failed otherwise", "running",
    "unknown", "refused", "skipped",
]  # fmt: skip
STATES: Final[tuple[str, ...]] = get_args(State)
# milliseconds, until the year 2248
_Time = Annotated[int, msgspec.Meta(ge=0, le=2**43)]
Kind = Literal["missing", "empty", "ledger", "first version"]


class Step(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Contain the last step of an entry; times are in milliseconds."""

    state: State
    run_id: str | None = None
    intended_at: _Time | None = None
    ended_at: _Time | None = None
    new_dlq_id: str | None = None
    new_group: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a step that no run stores; decoders raise their own error for it."""
        if self.intended_at is None and self.state != "skipped":
            raise ValueError(f"{self.state} without the time at which it was intended")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Contain an entry of a plan, and the last step if there is one."""

    plan: str
    dlq_id: str
    grouped: str
    action: str
    origin_run: str | None
    step: Step | None = None

    @property
    def row(self) -> dict[str, Any]:
        """Return the entry and the step as one row."""
        row = msgspec.structs.asdict(self)
        step = row.pop("step")
        if step is None:
            return row

        return row | msgspec.structs.asdict(step)


class Content(msgspec.Struct, kw_only=True):
    """Contain everything of a ledger: plans as JSON by hash, entries, and why groups were stopped."""

    plans: dict[str, bytes] = {}
    began_at: dict[str, int] = {}
    entries: dict[tuple[str, str], Entry] = {}
    stopped: dict[tuple[str, str], str | None] = {}


class NotALedgerError(Exception):
    """The file is of another kind, damaged, or of a newer version, as the message tells."""


# created here: msgspec's first inspection of a struct is not thread-safe
_STEP: Final = msgspec.json.Decoder(Step)


def look(path: Path) -> Kind:
    """Return what kind of file is at a path, without changing it; raise `NotALedgerError` or `OSError`."""
    try:
        check_unchanged(path)
    except FileNotFoundError:
        return "missing"

    if not path.stat().st_size:
        return "empty"

    with _sqlite_errors(), closing(_connect(path, "immutable=1")) as database:
        application = _pragma(database, "application_id")
        version = _pragma(database, "user_version")
        tables = _tables(database)
        is_first_version = _is_first_version(database)

    if application == APPLICATION_ID:
        if version > VERSION:
            raise NotALedgerError(f"version {version}, which a newer toolkit wrote")
        return "ledger"

    is_blank = (application, version, tables) == (0, 0, set())
    if is_blank and _next_to(path, "-wal").is_file():
        # killed before the first checkpoint: everything is in the write-ahead log
        with _sqlite_errors(), _copied(path) as database:
            is_first_version = _is_first_version(database)

    if is_first_version:
        return "first version"

    raise NotALedgerError("an SQLite file of another program")


def _is_first_version(database: sqlite3.Connection) -> bool:
    """Return whether a file has the form of version 1, which had no application id."""
    if _pragma(database, "application_id") != 0:
        return False

    return (
        _pragma(database, "user_version") == _FIRST_VERSION
        and _tables(database) >= _FIRST_TABLES
    )


def read(path: Path) -> Content:
    """Return the content of a ledger, also while a run writes it; no file is changed or made."""
    kind = look(path)
    if kind == "missing":
        raise FileNotFoundError(2, "No such file or directory", str(path))
    if kind == "empty":
        raise NotALedgerError("an empty file")

    with _sqlite_errors():
        if kind == "first version":
            with _copied(path) as database:
                return _first_content(database)

        try:
            with closing(_connect(path, "mode=ro")) as database:
                return content_of(database)
        except sqlite3.OperationalError as error:
            # errors that Python raises by itself have no code
            code = getattr(error, "sqlite_errorcode", 0)
            needs_writer = code & 0xFF in _NEEDS_A_WRITER
            if not needs_writer:
                raise

        # a commit was interrupted, and the journal is still there: SQLite undoes it in the copy
        with _copied(path) as database:
            return content_of(database)


def convert_first(path: Path) -> Content:
    """Merge the write-ahead log of a ledger of the first version into the file; return the content."""
    with _sqlite_errors(), closing(sqlite3.connect(path, timeout=_TIMEOUT)) as database:
        if database.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
            raise NotALedgerError("a ledger that another program has open")
        return _first_content(database)


def open_file(path: Path) -> sqlite3.Connection:
    """Open a ledger to store steps in it; SQLite undoes an interrupted commit."""
    database = sqlite3.connect(
        path, timeout=_TIMEOUT, check_same_thread=False, isolation_level=None
    )
    try:
        database.execute("PRAGMA journal_mode = PERSIST")
        # a step that was stored must still be stored after a power failure
        database.execute("PRAGMA synchronous = FULL")
    except BaseException:
        database.close()
        raise

    return database


def replace_file(path: Path, content: Content) -> None:
    """Write a new file with this content, and put it in place of the old one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        # which follows no link
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as database:
            # a draft that was interrupted is not used
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.executescript(_TABLES)
            _insert(database, content)
            database.execute("COMMIT")

        draft.replace(path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _insert(database: sqlite3.Connection, content: Content) -> None:
    plans = ((key, plan, content.began_at[key]) for key, plan in content.plans.items())
    database.executemany("INSERT INTO plans VALUES (?, ?, ?)", plans)
    for number, entry in enumerate(content.entries.values()):
        fixed = (
            number,
            entry.plan,
            entry.dlq_id,
            entry.grouped,
            entry.action,
            entry.origin_run,
        )
        database.execute("INSERT INTO planned VALUES (?, ?, ?, ?, ?, ?)", fixed)
        database.execute(
            "INSERT INTO steps VALUES (?, ?)", (number, padded_step(entry.step))
        )

    for number, ((plan, group), reason) in enumerate(content.stopped.items()):
        database.execute("INSERT INTO groups VALUES (?, ?, ?)", (number, plan, group))
        database.execute(
            "INSERT INTO stops VALUES (?, ?)", (number, padded_reason(reason))
        )


def padded_step(step: Step | None) -> str:
    """Return a step as JSON of `STEP_BYTES` bytes; a reason that does not fit is cut."""
    if step is None:
        return "".ljust(STEP_BYTES)

    encoded = msgspec.json.encode(step)
    while len(encoded) > STEP_BYTES and step.reason:
        # each character takes at least one byte
        kept = max(0, len(step.reason) - (len(encoded) - STEP_BYTES))
        step = msgspec.structs.replace(step, reason=step.reason[:kept])
        encoded = msgspec.json.encode(step)

    return encoded.ljust(STEP_BYTES).decode()


def padded_reason(reason: str | None) -> str:
    """Return why a group was stopped, as text of a fixed number of bytes."""
    encoded = (reason or "").encode()[:_REASON_BYTES]
    # the cut may have left a part of a character
    whole = encoded.decode(errors="ignore").encode()
    return whole.ljust(_REASON_BYTES).decode()


def content_of(database: sqlite3.Connection) -> Content:
    """Return everything that an open ledger contains; raise `NotALedgerError` if a value is damaged."""
    content = Content()
    # one transaction, so that all tables are from the same moment while a run writes
    database.execute("BEGIN")
    try:
        _read_plans(database, content)
        columns = "id, plan, dlq_id, grouped, action, origin_run, step"
        for number, *fixed, step in database.execute(
            f"SELECT {columns} FROM planned LEFT JOIN steps USING (id) ORDER BY id"  # noqa: S608 - names above
        ):
            if number != len(content.entries):
                raise NotALedgerError(
                    f"a damaged entry {number}: entries before it are missing"
                )

            _add_entry(content, fixed, _decoded_step(step, number))

        for number, plan, group, reason in database.execute(
            "SELECT id, plan, grouped, reason FROM groups LEFT JOIN stops USING (id) ORDER BY id"
        ):
            if number != len(content.stopped):
                raise NotALedgerError(
                    f"a damaged group {number}: groups before it are missing"
                )

            _check_texts(plan, group, reason)
            content.stopped[plan, group] = reason.strip(" ") or None
    finally:
        database.execute("ROLLBACK")

    return content


def _first_content(database: sqlite3.Connection) -> Content:
    """Return the content of a ledger of the first version."""
    content = Content()
    _read_plans(database, content)
    names = (
        "state",
        "run_id",
        "intended_at",
        "ended_at",
        "new_dlq_id",
        "new_group",
        "reason",
    )

    columns = f"plan, dlq_id, grouped, action, origin_run, {', '.join(names)}"
    for (
        *fixed,
        state,
        run_id,
        intended,
        ended,
        new_dlq_id,
        new_group,
        reason,
    ) in database.execute(
        f"SELECT {columns} FROM entries ORDER BY coalesce(intended_at, ended_at), dlq_id"  # noqa: S608 - names above
    ):
        values = (state, run_id, intended, ended, new_dlq_id, new_group, reason)
        try:
            step = msgspec.convert(dict(zip(names, values, strict=True)), Step)
        except msgspec.ValidationError as error:
            raise NotALedgerError(f"a damaged entry: {error}") from None

        _add_entry(content, fixed, step)

    for plan, group, reason in database.execute(
        "SELECT plan, grouped, reason FROM stopped"
    ):
        _check_texts(plan, group, reason)
        content.stopped[plan, group] = reason

    return content


def _read_plans(database: sqlite3.Connection, content: Content) -> None:
    for key, plan, began_at in database.execute(
        "SELECT hash, plan, began_at FROM plans ORDER BY began_at, hash"
    ):
        if not (
            isinstance(key, str)
            and isinstance(plan, bytes)
            and isinstance(began_at, int)
        ):
            raise NotALedgerError("a damaged plan: values of other types")

        content.plans[key] = plan
        content.began_at[key] = began_at


def _add_entry(content: Content, fixed: list[Any], step: Step | None) -> None:
    names = ("plan", "dlq_id", "grouped", "action", "origin_run")
    try:
        values = dict(zip(names, fixed, strict=True), step=step)
        entry = msgspec.convert(values, Entry, from_attributes=True)
    except msgspec.ValidationError as error:
        raise NotALedgerError(f"a damaged entry: {error}") from None

    content.entries[entry.plan, entry.dlq_id] = entry


def _decoded_step(step: object, number: int) -> Step | None:
    if not isinstance(step, str):
        raise NotALedgerError(f"a damaged step of entry {number}: no text")
    if not step.strip(" "):
        return None

    try:
        return _STEP.decode(step)
    except msgspec.DecodeError as error:
        raise NotALedgerError(f"a damaged step of entry {number}: {error}") from None


def _check_texts(*values: object) -> None:
    if not all(isinstance(value, str) for value in values):
        raise NotALedgerError("a damaged group: values of other types")


def _connect(path: Path, how: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=_TIMEOUT, isolation_level=None)


def _pragma(database: sqlite3.Connection, name: str) -> int:
    return int(database.execute(f"PRAGMA {name}").fetchone()[0])


def _tables(database: sqlite3.Connection) -> set[object]:
    rows: Iterable[tuple[object]] = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table'"
    )
    return {name for (name,) in rows}


def _next_to(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@contextmanager
def _copied(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a file and of the log or journal next to it; remove the copy afterwards."""
    with TemporaryDirectory(prefix="ledger-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder, "ledger")
        shutil.copyfile(path, copy)
        for suffix in _NEXT_TO_IT:
            companion = _next_to(path, suffix)
            if companion.is_file() and not companion.is_symlink():
                shutil.copyfile(companion, _next_to(copy, suffix))

        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            yield database


@contextmanager
def _sqlite_errors() -> Iterator[None]:
    """Raise errors of SQLite and of invalid UTF-8 as `NotALedgerError`."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise NotALedgerError(str(error)) from None
