"""What a load that stopped leaves beside a snapshot, so that the same call goes on from there.

``_checkpoint.json`` says how far the load came and which files rest for it: rows that are read and not yet
part of the snapshot, and the ids that were seen. The files are on the disk before the checkpoint that lists
them is, and it is replaced as a whole. It belongs to one generation of the snapshot, one service and one
scope; any other, an old or a damaged one is cleared away, and the receipt says so. It is no part of the
snapshot, which stays as it was until the commit, and goes with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from toolkit.errors import InputError, SnapshotDamagedError
from toolkit.own_tokens import masked
from toolkit.receipt import checked_instant
from toolkit.snapshots.datafiles import opened
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.manifest import DATA_NAME, SCHEMA_VERSION, Kind, ListedFile

CHECKPOINT: Final = "_checkpoint.json"
RESTING_NAME: Final = r"_checkpoint-\d{6,}-[0-9a-f]{16}\.(?:arrow|bin)"
_DRAFT_NAME: Final = r"_part-\d{6,}-[0-9a-f]{16}\.parquet\.[0-9a-f]{16}\.tmp"

_Whole = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]

VERSION: Final = 1
MOST_AGE: Final = timedelta(days=1)
"""An older checkpoint is not gone on from: what it has seen says little about what is there now."""


class RestingFile(ListedFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that waits for the commit.

    Attributes
    ----------
    name : str
        Of a finished data file: what it will be called. "" for files that go with the checkpoint.
    """

    path: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{RESTING_NAME}|{_DRAFT_NAME}|{DATA_NAME})\Z")]
    name: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{DATA_NAME})?\Z")] = ""

    @property
    def listed(self) -> ListedFile:
        """How the manifest lists it."""
        return ListedFile(path=self.name, rows=self.rows, bytes=self.bytes, sha256=self.sha256)


class Resting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint as it rests.

    Attributes
    ----------
    version, schema_version : int
    kind, source, scope, columns
        What is being written, of which service and scope, with which columns and types.
    generation : int
        Of the snapshot that it was begun beside.
    began_at, written_at : str
        When the first of the loads began, by the writer's clock, and when this was written. ISO 8601, UTC.
    position, counts : dict
        How far the load came: position and receipt of its `Checkpoint`.
    identities : tuple of RestingFile
        The ids it gave out, 16 bytes each.
    files, later : tuple of RestingFile
        Rows that wait, and those that came again with new content.
    seen : RestingFile or None
        Which rows at rest were seen, a bit each.
    """

    version: int
    schema_version: int
    kind: Kind
    source: str
    scope: dict[str, Any]
    columns: str
    generation: int
    began_at: str
    written_at: str
    position: dict[str, Any]
    counts: dict[str, Any]
    identities: tuple[RestingFile, ...]
    files: tuple[RestingFile, ...] = ()
    later: tuple[RestingFile, ...] = ()
    seen: RestingFile | None = None

    @property
    def listed(self) -> tuple[RestingFile, ...]:
        """All its files."""
        return (*self.identities, *self.files, *self.later, *((self.seen,) if self.seen else ()))

    @property
    def names(self) -> frozenset[str]:
        """Names of the checkpoint and of all its files."""
        finished = (file.name for file in self.files if file.name)  # a stopped commit may have named some
        return frozenset((CHECKPOINT, *(file.path for file in self.listed), *finished))


def write_checkpoint(folder: SnapshotStore, resting: Resting) -> None:
    """Replace the checkpoint; what it lists has to be on the disk."""
    # what holds a token of ours is asked for no more, as a cursor that has expired: its range is read again
    body = masked(msgspec.json.encode(resting).decode()).encode()
    folder.sync(*(file.path for file in resting.listed))
    folder.replace(CHECKPOINT, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def read_checkpoint(folder: SnapshotStore) -> Resting | str | None:
    """The checkpoint; what is wrong with it; or None where there is none."""
    try:
        content = folder.content(CHECKPOINT)
    except FileNotFoundError:
        return None
    except SnapshotDamagedError:
        return "damaged"
    digest, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return "damaged"
    try:
        if _VERSION.decode(body).version != VERSION:
            return "of another version of the toolkit"
        resting = _RESTING.decode(body)
        for name, text in (("began_at", resting.began_at), ("written_at", resting.written_at)):
            checked_instant(name, text)
        checked_instant("started_at", msgspec.convert(resting.counts, _Counts).started_at)
        msgspec.convert(resting.position, _Position)
    except (msgspec.DecodeError, UnicodeDecodeError, InputError, RecursionError):
        return "damaged"
    return resting


class _Counts(msgspec.Struct, frozen=True):
    """What the counts of a load have to be (`toolkit.loading.work.Work.counts`)."""

    started_at: str
    resumed: _Whole = 0
    pages: _Whole = 0
    requests: _Whole = 0
    bytes: _Whole = 0
    windows: _Whole = 0
    filtered_here: _Whole = 0
    reread: _Whole = 0
    duplicates: _Whole = 0
    unsettled: list[str] = []
    notes: list[str] = []


class _Position(msgspec.Struct, frozen=True):
    """What the position of a load has to be: of the DLQ in windows, or of vectors in ranges."""

    passes: _Whole = msgspec.field(name="pass", default=1)
    alone: bool = False
    done: list[tuple[int | None, int | None]] = []
    open: list[tuple[int | None, int | None, str | None, _Whole, _Whole, bool, bool, _Whole]] = []
    ranges: list[tuple[str, str | None, _Whole, str | None, _Whole, _Whole]] = []


class _Version(msgspec.Struct, frozen=True):
    version: int


# made here, because the first look at a struct is not safe when several threads take it at once
_VERSION: Final = msgspec.json.Decoder(_Version)
_RESTING: Final = msgspec.json.Decoder(Resting)


def misfit(resting: Resting, *, expected: dict[str, Any], now: datetime) -> str:
    """Why a checkpoint is not one to go on from; "" where it is.

    Parameters
    ----------
    resting : Resting
    expected : dict
        What it has to be of: `kind`, `source`, `scope`, `columns`.
    now : datetime
        With a time zone.
    """
    if resting.schema_version != SCHEMA_VERSION:
        return "of another version of the toolkit"
    plain = msgspec.json.decode(msgspec.json.encode(expected))  # tuples compare as the lists they rest as
    if any(getattr(resting, name) != value for name, value in plain.items()):
        return "of another service or scope"
    age = now - datetime.fromisoformat(resting.written_at)
    if age > MOST_AGE:
        return "older than a day"
    return "from the future" if age < timedelta() else ""


def whole(folder: SnapshotStore, files: Iterable[ListedFile]) -> bool:
    """Whether each file is as it was written."""
    try:
        for listed in files:
            with opened(folder, listed):
                pass
    except (FileNotFoundError, SnapshotDamagedError):
        return False
    return True


def read_whole(folder: SnapshotStore, listed: ListedFile) -> bytes:
    """The bytes of a file, checked."""
    with opened(folder, listed) as file:
        return file.read()
