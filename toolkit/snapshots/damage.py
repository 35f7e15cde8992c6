"""Which files of a snapshot are lost: missing, of another size, or changed since they were written.

Every sync asks before it trusts the rows that are stored. Existence and size cost one look at each file. A
file that was changed after the manifest was written, as the toolkit never does, is compared by its hash.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from toolkit.errors import SnapshotDamagedError
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.hashing import digest
from toolkit.snapshots.manifest import MANIFEST, ListedFile, Manifest

_NAMED: Final = 3


@dataclass(frozen=True)
class Damage:
    """A listed file that is lost.

    Attributes
    ----------
    listed : ListedFile
    problem : str
        What is wrong with it.
    present : bool
        Whether there is a file with bytes in it.
    """

    listed: ListedFile
    problem: str
    present: bool

    @property
    def is_index(self) -> bool:
        """Whether it holds no rows: a repair makes it again from them."""
        return self.listed.path.startswith("_index")

    def __str__(self) -> str:
        return f"{self.listed.path} ({self.problem})"


def damages(folder: SnapshotStore, manifest: Manifest, *, every_byte: bool = False) -> tuple[Damage, ...]:
    """The listed files of a snapshot that are lost.

    Parameters
    ----------
    folder : SnapshotStore
    manifest : Manifest
    every_byte : bool
        Whether to compare the hash of each file, not only of those changed since the manifest was written.
    """
    listed = (*manifest.files, *((manifest.index,) if manifest.index else ()))
    states = folder.states([MANIFEST, *(file.path for file in listed)])
    committed = states[MANIFEST].changed_at if MANIFEST in states else -1
    found = []
    for file in listed:
        state = states.get(file.path)
        if state is None:
            found.append(Damage(file, "missing", present=False))
        elif state.problem or state.bytes != file.bytes:
            problem = state.problem or f"{state.bytes:,} bytes instead of {file.bytes:,}"
            found.append(Damage(file, problem, present=state.bytes > 0))
        elif (every_byte or state.changed_at > committed) and (problem := _other_bytes(folder, file)):
            found.append(Damage(file, problem, present=True))
    return tuple(found)


def refuse(folder: SnapshotStore, manifest: Manifest, lost: tuple[Damage, ...]) -> None:
    """Raise where files are lost.

    Raises
    ------
    SnapshotDamagedError
        Says which, with how many rows, of which days, and how to bring them back.
    """
    if not lost:
        return
    data = [damage.listed for damage in lost if not damage.is_index]
    rows = sum(file.rows for file in data)
    named = "; ".join(str(damage) for damage in lost[:_NAMED])
    more = f"; and {len(lost) - _NAMED:,} more" if len(lost) > _NAMED else ""
    count = f"{len(data):,} of {len(manifest.files):,} data files"
    raise SnapshotDamagedError(
        f"syncing the snapshot {folder}",
        got=f"{count} lost, with {rows:,} of {manifest.rows:,} rows{_days(data)}: {named}{more}"
        if data
        else f"the index lost: {named}",
        expected="every file as it was written",
        next_step="Restore it from a backup, or sync with repair=True (toolkit snapshot failures --repair): "
        "that keeps every row which can still be read, adds again what is still in the queue, and records "
        "what stays lost.",
    )


def _days(files: Iterable[ListedFile]) -> str:
    """On which days the rows of files were first seen; "" where the manifest does not say."""
    found = sorted({file.path.split("/")[1] for file in files if "/" in file.path})
    if not found:
        return ""
    return f" first seen {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else "")


def _other_bytes(folder: SnapshotStore, listed: ListedFile) -> str:
    """What is wrong with the content of a file that is there; "" where it is as it was written."""
    try:
        with folder.open(listed.path) as file:
            found, size = digest(file)
    except FileNotFoundError:
        return "missing"
    except SnapshotDamagedError as error:
        return error.got or "no regular file"
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return "unreadable: the disk reports an input/output error"
    return "" if (found, size) == (listed.sha256, listed.bytes) else "other bytes than were written"
