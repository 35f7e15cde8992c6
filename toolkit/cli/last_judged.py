"""When ``report --fail-on`` last could judge a snapshot.

A report judges the last 24 hours. If the one of last night could not judge, as a clock was wrong or the mail
server was down, nobody would hear of an error of that day. So a report of a local snapshot that could judge
notes the time in a small file next to the manifest, and the next one also counts as new what was first seen
since then.

For example, reports at midnight of days 10 and 12, and one of day 11 that failed: a group that was first seen
on day 10 at noon is new in the report of day 12.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from toolkit.errors import InputError, ToolkitError
from toolkit.snapshots.manifest import JUDGED
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.store import SnapshotStore

_LONGEST: Final = timedelta(days=30)
"""How far back a report looks at most: after months without reports, everything would be new."""

_KEPT: Final = 10
"""Times that are kept. If a clock was ahead, the latest are in the future, and an earlier one is used."""


class Judged(msgspec.Struct, frozen=True):
    """Until when reports have judged a snapshot, the latest last."""

    times: tuple[datetime, ...] = ()
    format: int = 1


# created here: msgspec's first inspection of a struct is not thread-safe
_JUDGED: Final = msgspec.json.Decoder(Judged)


def last_judged(path: str, now: datetime | None = None) -> datetime | None:
    """Return until when a report last could judge a snapshot; None if no time of the past is known."""
    now = now or datetime.now(UTC)
    past = [time for time in _read(path) if time <= now]
    if not past:
        return None
    return max(*past, now - _LONGEST)


def note_judged(path: str, until: datetime) -> None:
    """Note until when a report has judged a snapshot. A folder that cannot be written stays as it is."""
    store = _store(path)
    if store is None:
        return
    times = (*_read(path), until.astimezone(UTC))[-_KEPT:]
    try:
        store.replace(JUDGED, msgspec.json.encode(Judged(times)) + b"\n")
    except (OSError, ToolkitError):
        return


def _read(path: str) -> tuple[datetime, ...]:
    store = _store(path)
    if store is None:
        return ()
    try:
        times = _JUDGED.decode(store.content(JUDGED)).times
    except (OSError, ValueError, ToolkitError):  # there is no such file yet, or it is damaged
        return ()
    return tuple(time for time in times if time.tzinfo is not None)


def _store(path: str) -> SnapshotStore | None:
    """Return the folder of a local snapshot; an object store has no such file, as it has no heartbeat."""
    try:
        store = open_store(path, None)
    except InputError:
        return None
    return store if store.exclusive else None
