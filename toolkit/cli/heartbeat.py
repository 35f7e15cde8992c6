"""The heartbeat of a schedule: a small JSON file that tells what it last did and when it runs next.

It is next to the manifest of a local snapshot, under a name that readers of Parquet folders leave out, or in
the file that ``--heartbeat`` names. ``toolkit status`` reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from toolkit.errors import InputError, SnapshotError, ToolkitError
from toolkit.own_tokens import masked
from toolkit.private_files import read_file, write_file
from toolkit.receipt import checked_instant
from toolkit.snapshots.manifest import HEARTBEAT, MANIFEST
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.store import LOCK, SnapshotStore

FORMAT: Final = 1
"""Version of the names and meanings in the file."""

State = Literal["running", "waiting", "stopped", "ended with an error"]
"""What a schedule does: a run, nothing until the next run, or nothing any more."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule last did. Times are ISO 8601 in UTC.

    `every` are the seconds between runs, None for a single run. `rows` are those of the snapshot after the
    last complete sync. `failures_in_a_row` counts the runs that failed since the last one that did not.
    """

    format: int = FORMAT
    path: str
    pid: int
    state: State
    every: float | None = None
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
    """Return a function that writes the heartbeat of a snapshot; it returns False if it cannot.

    Without a chosen file there is none for an object store, and none in a folder of other files.
    """
    if chosen is not None:
        return lambda heartbeat: _write(lambda content: _replace(chosen, content), heartbeat)

    def beat(heartbeat: Heartbeat) -> bool:
        store = open_store(path, None)
        if not store.exclusive:
            return True
        if store.path.exists() and any(store.path.iterdir()) and not _is_ours(store):
            return True
        store.make()
        return _write(lambda content: store.replace(HEARTBEAT, content), heartbeat)

    return beat


def read_heartbeat(path: str, chosen: Path | None) -> Heartbeat | None:
    """Return the heartbeat of a snapshot, or None if there is none.

    Raises
    ------
    SnapshotError
        If the file is not a heartbeat.
    """
    try:
        if chosen is not None:
            content = read_file(chosen)
        else:
            store = open_store(path, None)
            if not store.exclusive:
                return None
            content = store.content(HEARTBEAT)
        heartbeat = _HEARTBEAT.decode(content)
        for time in (heartbeat.last_complete_at, heartbeat.last_error_at, heartbeat.next_run_at):
            checked_instant("a time", time or heartbeat.started_at)
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


def _is_ours(store: SnapshotStore) -> bool:
    return any((store.path / name).exists() for name in (MANIFEST, LOCK, HEARTBEAT))


def _replace(path: Path, content: bytes) -> None:
    write_file(path, lambda file: file.write(content))


def _write(replace: Callable[[bytes], None], heartbeat: Heartbeat) -> bool:
    content = masked(msgspec.json.encode(heartbeat).decode()).encode() + b"\n"
    try:
        replace(content)
    except (OSError, InputError, ToolkitError):  # a full disk, most likely: the schedule goes on
        return False
    return True
