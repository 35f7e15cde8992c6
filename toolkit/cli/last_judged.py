"""Remember when ``report --fail-on`` last judged a snapshot, so that no day is skipped.

A report judges the last 24 hours. If the report of last night could not judge, for example because a clock
was wrong, nobody would hear of an error of that day. A report that judges a local snapshot therefore notes
the time in a small file next to the manifest. The next report also counts groups as new that were first seen
after that time.

For example, reports run at midnight, and the report of day 11 fails. A group that was first seen on day 10 at
noon is new in the report of day 12.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from toolkit.base.errors import InputError, ToolkitError
from toolkit.snapshots.manifest import JUDGED
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.store import SnapshotStore

_LONGEST: Final = timedelta(days=30)
"""How far back a report looks at most: after months without reports, everything would be new."""

_KEPT: Final = 10
"""Times that are kept. If a clock was ahead, the latest are in the future, and an earlier one is used."""


class Judged(msgspec.Struct, frozen=True):
    """Times until which reports have judged a snapshot, the latest last."""

    times: tuple[datetime, ...] = ()
    format: int = 1


# created here: msgspec's first inspection of a struct is not thread-safe
_JUDGED: Final = msgspec.json.Decoder(Judged)


def last_judged(path: str, now: datetime | None = None) -> datetime | None:
    """Return the time until which a snapshot was last judged; None if no time in the past is known."""
    if now is None:
        now = datetime.now(UTC)
    past = [time for time in _read(_store(path)) if time <= now]
    if not past:
        return None

    # not the last one: after a clock was corrected, the times are not in order
    return max(*past, now - _LONGEST)


def note_judged(path: str, until: datetime) -> None:
    """Note the time until which a snapshot was judged. If the folder cannot be written, do nothing."""
    store = _store(path)
    if store is None:
        return

    times = (*_read(store), until.astimezone(UTC))[-_KEPT:]
    with suppress(OSError, ToolkitError):
        store.replace(JUDGED, msgspec.json.encode(Judged(times)) + b"\n")


def _read(store: SnapshotStore | None) -> tuple[datetime, ...]:
    """Return the noted times; none if the file is missing or damaged."""
    if store is None:
        return ()

    with suppress(OSError, ValueError, ToolkitError):
        times = _JUDGED.decode(store.content(JUDGED)).times
        # a time without a zone cannot be compared with others
        return tuple(time for time in times if time.tzinfo is not None)

    return ()


def _store(path: str) -> SnapshotStore | None:
    """Return the folder of a local snapshot; None for an object store, which has no file for notes."""
    with suppress(InputError):
        store = open_store(path, None)
        if store.exclusive:
            return store

    return None
