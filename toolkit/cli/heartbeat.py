"""Write and read the heartbeat of a schedule: a small JSON file with the last run and the time of the next.

The file is next to the manifest of a local snapshot, under a name that readers of Parquet folders ignore, or
you name it with ``--heartbeat``. ``toolkit status`` reads it. For example, if a schedule was killed,
``next_run_at`` is in the past, and the status reports that the next run is overdue.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from toolkit.base.errors import InputError, SnapshotError, ToolkitError
from toolkit.base.own_tokens import masked
from toolkit.base.private_files import read_file, write_file
from toolkit.snapshots.manifest import HEARTBEAT, MANIFEST
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.store import LOCK, SnapshotStore
from toolkit.tables.receipt import checked_instant

FORMAT: Final = 1
"""Version of the names and meanings in the file."""

_LONGEST: Final = 36_500 * 86_400
"""Seconds of the longest interval that `--every` accepts."""

_Interval = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST)]

State = Literal["running", "waiting", "stopped", "ended with an error"]
"""State of a schedule: during a run, between runs, or after the end."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a schedule. Times are ISO 8601 in UTC.

    `every` is the number of seconds between runs, None for a single run. `rows` is the number of rows in the
    snapshot after the last complete sync. `failures_in_a_row` counts the failed runs since the last success.
    """

    format: int = FORMAT
    path: str
    pid: int
    state: State
    every: _Interval | None = None
    started_at: str
    last_run_at: str | None = None
    last_complete_at: str | None = None
    rows: int | None = None
    failures_in_a_row: int = 0
    last_error: str | None = None
    last_error_at: str | None = None
    next_run_at: str | None = None


# created here: msgspec's first inspection of a struct is not thread-safe
_HEARTBEAT: Final = msgspec.json.Decoder(Heartbeat)


def heartbeat_file(path: str, chosen: Path | None) -> Callable[[Heartbeat], bool]:
    """Return a function that writes the heartbeat of a snapshot. It returns False if writing fails.

    If no file is chosen, an object store and a folder of other files have no heartbeat.
    """
    if chosen is not None:
        return partial(_write, partial(_replace, chosen))
    return partial(_write, partial(_replace_in_snapshot, path))


def read_heartbeat(path: str, chosen: Path | None) -> Heartbeat | None:
    """Return the heartbeat of a snapshot, or None if it has no heartbeat.

    Raises
    ------
    SnapshotError
        If the file is not a heartbeat.
    """
    try:
        content = _content(path, chosen)
        if content is None:
            return None
        heartbeat = _HEARTBEAT.decode(content)
        # `toolkit status` subtracts these times from now: without a zone, this would raise a TypeError.
        times = (
            heartbeat.last_complete_at,
            heartbeat.last_error_at,
            heartbeat.next_run_at,
        )
        for time in filter(None, (heartbeat.started_at, *times)):
            checked_instant("a time", time)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise SnapshotError(
            f"reading the heartbeat {str(chosen or Path(path) / HEARTBEAT)!r}",
            got=str(error),
            expected="a heartbeat as toolkit snapshot writes it",
            next_step="Remove the file: the next run of the schedule writes another.",
        ) from None

    return heartbeat


def timestamp(time: datetime) -> str:
    """Return a time as the heartbeat has it."""
    return time.astimezone(UTC).isoformat(timespec="seconds")


def _content(path: str, chosen: Path | None) -> bytes | None:
    """Return the bytes of a heartbeat; None for an object store, which has no heartbeat."""
    if chosen is not None:
        return read_file(chosen)

    store = open_store(path, None)
    if not store.exclusive:
        return None

    return store.content(HEARTBEAT)


def _has_other_files(store: SnapshotStore) -> bool:
    """Return whether a folder has files, and none of them belongs to a snapshot."""
    if not store.path.exists():
        return False

    names = {file.name for file in store.path.iterdir()}
    return bool(names) and names.isdisjoint((MANIFEST, LOCK, HEARTBEAT))


def _replace_in_snapshot(path: str, content: bytes) -> None:
    store = open_store(path, None)
    if not store.exclusive or _has_other_files(store):
        return

    store.make()
    store.replace(HEARTBEAT, content)


def _replace(path: Path, content: bytes) -> None:
    write_file(path, lambda file: file.write(content))


def _write(replace: Callable[[bytes], None], heartbeat: Heartbeat) -> bool:
    # `last_error` is the message of any error, which may contain one of our own tokens
    content = masked(msgspec.json.encode(heartbeat).decode()).encode() + b"\n"
    try:
        replace(content)
    except (
        OSError,
        InputError,
        ToolkitError,
    ):
        # for example, the disk is full or not mounted: the schedule goes on
        return False

    return True
