"""The JSON files of a snapshot, each with a hash of its text.

``_manifest.json`` lists every file of the snapshot; the underscore keeps readers of whole folders from taking
it for data. ``_checkpoint.json`` says how far a load has read, for one generation, service and scope.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec

from toolkit.errors import InputError, SnapshotDamagedError, SnapshotError
from toolkit.own_tokens import masked
from toolkit.receipt import Receipt, checked_instant
from toolkit.signatures.signing import RULES_VERSION, Learned
from toolkit.snapshots.binding import AccountTag
from toolkit.snapshots.coverage import Coverage
from toolkit.snapshots.store import SnapshotStore
from toolkit.version import __version__

MANIFEST: Final = "_manifest.json"
CHECKPOINT: Final = "_checkpoint.json"
HEARTBEAT: Final = "_heartbeat.json"
"""What a schedule last did, next to the snapshot that it syncs; no part of the snapshot."""

JUDGED: Final = "_judged.json"
"""When reports could judge the snapshot, next to it; no part of it."""

FORMAT: Final = 2
"""Version of the layout: names, manifest and index. 2 added `accounts` and `coverage` to the manifest; a
manifest of format 1 is read as one that has neither."""

SCHEMA_VERSION: Final = 6
"""Version of the columns, of what is hashed to recognise a changed row, and of what the index holds.
Snapshots of every older version are read (see `data_files.current_columns`), and become current when they are
written."""

INDEX_VERSION: Final = 5  # the first schema version whose index is as today's
CHECKPOINT_VERSION: Final = 2  # 2 added the account; one of version 1 is of an unknown account
MOST_AGE: Final = timedelta(days=1)
"""A load does not resume from an older checkpoint: what it has seen says little about what is there now."""

KEPT_RECEIPTS: Final = 50  # receipts of the latest commits that the manifest keeps

REPAIRED: Final = "repaired: "
"""How the note of a receipt begins that says what a repair restored and what stayed lost."""

Kind = Literal["frame", "failures", "vectors"]

DAYS: Final = "first_seen"
DATA_NAME: Final = r"(?:first_seen/\d{4}-\d\d-\d\d/)?part-\d{6,}-[0-9a-f]{16}\.parquet"
INDEX_NAME: Final = r"_index-\d{6,}-[0-9a-f]{16}\.bin"
PENDING_NAME: Final = r"_checkpoint-\d{6,}-[0-9a-f]{16}\.(?:arrow|bin)"
_DRAFT_NAME: Final = r"_part-\d{6,}-[0-9a-f]{16}\.parquet\.[0-9a-f]{16}\.tmp"

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
_Version = Annotated[int, msgspec.Meta(ge=1)]
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class ListedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the snapshot (path relative to it), which is never changed once it is listed."""

    path: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{DATA_NAME}|{INDEX_NAME})\Z")]
    rows: _Count
    bytes: _Count
    sha256: _Sha256

    @property
    def day(self) -> str:
        """The day on which the rows of a data file of failures were first seen."""
        return self.path.split("/")[1]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a snapshot is, in one of its generations, counted from 1; 0 is an unfinished first write.

    `source` (the service's address) and `scope` bind the snapshot. `complete_at` is when the latest complete
    load of failures began. `learned` is what signatures taught, so that later ones are the same. Failures are
    also bound to `accounts`, one tag per masking key; `coverage` says of which times there are entries.
    """

    format: _Version
    schema_version: _Version
    kind: Kind
    generation: _Count
    source: str
    scope: dict[str, Any]
    written_at: str
    complete_at: str | None = None
    files: tuple[ListedFile, ...] = ()
    index: ListedFile | None = None
    receipts: tuple[dict[str, Any], ...] = ()
    learned: Learned = Learned()
    accounts: tuple[AccountTag, ...] = ()
    coverage: Coverage | None = None

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def slices(self) -> Iterator[tuple[ListedFile, slice]]:
        """Each data file, and where its rows are in the index."""
        start = 0
        for file in self.files:
            yield file, slice(start, start := start + file.rows)

    @property
    def listed(self) -> tuple[ListedFile, ...]:
        """Data files and index."""
        return (*self.files, *((self.index,) if self.index else ()))

    @property
    def is_older(self) -> bool:
        """Whether it was written in an older schema version, or signed by older rules."""
        return self.schema_version < SCHEMA_VERSION or self.learned.rules_version != RULES_VERSION


class PendingFile(ListedFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file pending its commit: a data file to be called `name`, or one of the checkpoint ("")."""

    path: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{PENDING_NAME}|{_DRAFT_NAME}|{DATA_NAME})\Z")]
    name: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{DATA_NAME})?\Z")] = ""

    @property
    def as_listed(self) -> ListedFile:
        """How the manifest lists it."""
        return ListedFile(path=self.name, rows=self.rows, bytes=self.bytes, sha256=self.sha256)


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The progress of a load into the snapshot of a `generation`.

    `identities` are the ids it has yielded (16 bytes each), `files` and `later` the pending rows and those
    read again with new content, `seen` a bit for each stored row.
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
    identities: tuple[PendingFile, ...]
    files: tuple[PendingFile, ...] = ()
    later: tuple[PendingFile, ...] = ()
    seen: PendingFile | None = None
    account: AccountTag | None = None

    @property
    def listed(self) -> tuple[PendingFile, ...]:
        """All its files."""
        return (*self.identities, *self.files, *self.later, *((self.seen,) if self.seen else ()))

    @property
    def names(self) -> frozenset[str]:
        """Names of the checkpoint and of all its files."""
        finished = (file.name for file in self.files if file.name)  # a stopped commit may have named some
        return frozenset((CHECKPOINT, *(file.path for file in self.listed), *finished))

    def mismatch_reason(self, *, expected: dict[str, Any], now: datetime) -> str:
        """Why a load of `expected` (some of the attributes) cannot resume from it; "" where it can."""
        if self.schema_version != SCHEMA_VERSION:
            return "of another version of the toolkit"
        if any(getattr(self, name) != value for name, value in as_stored(expected).items()):
            return "of another service or scope"
        age = now - datetime.fromisoformat(self.written_at)
        if age > MOST_AGE:
            return "older than a day"
        return "from the future" if age < timedelta() else ""


def as_stored(value: dict[str, Any]) -> dict[str, Any]:
    """The value after a round trip through JSON: tuples compare as the lists they are stored as."""
    stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return stored


def kept_receipts(receipts: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """The latest receipts, and every older one that tells of a repair: what was lost stays on record."""
    older = (receipt for receipt in receipts[:-KEPT_RECEIPTS] if repairs((receipt,)))
    return (*older, *receipts[-KEPT_RECEIPTS:])


def repairs(receipts: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """What receipts say of repairs."""
    notes = (note for receipt in receipts for note in receipt.get("notes") or ())
    return tuple(note.removeprefix(REPAIRED) for note in notes if note.startswith(REPAIRED))


def stored_retention(receipts: Sequence[dict[str, Any]]) -> timedelta | None:
    """Return how long the queue keeps entries, as the latest sync that knew it was told."""
    for receipt in reversed(receipts):
        retention = Receipt.from_dict(receipt).retention
        if retention is not None:
            return retention
    return None


def write_manifest(store: SnapshotStore, manifest: Manifest) -> bytes:
    """Replace the manifest atomically, which is the commit. The bytes written."""
    body = msgspec.json.encode(manifest)
    envelope = _Envelope(hashlib.sha256(body).hexdigest(), msgspec.Raw(body))
    content = msgspec.json.encode(envelope) + b"\n"
    store.replace(MANIFEST, content)
    return content


def read_manifest(store: SnapshotStore) -> Manifest | None:
    """The manifest, or None where there is none; raises as `decode_manifest`."""
    content = manifest_bytes(store)
    return None if content is None else decode_manifest(store, content)


def manifest_bytes(store: SnapshotStore) -> bytes | None:
    """The manifest as it is stored, or None where there is none."""
    with suppress(FileNotFoundError):
        return store.content(MANIFEST)
    return None


def decode_manifest(store: SnapshotStore, content: bytes) -> Manifest:
    """The manifest of these bytes; a `SnapshotError` when it is damaged, or of a newer toolkit."""
    doing = f"reading the manifest {MANIFEST!r} of the snapshot {store}"
    try:
        envelope = _ENVELOPE.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(doing, f"{len(content):,} bytes that are not a manifest ({error})") from None
    if hashlib.sha256(bytes(envelope.manifest)).hexdigest() != envelope.sha256:
        raise _damaged(doing, "a text that does not have the hash it was written with")
    try:
        version = _VERSIONS.decode(envelope.manifest)
        if version.format > FORMAT or version.schema_version > SCHEMA_VERSION:
            raise SnapshotError(
                doing,
                got=f"format {version.format}, schema version {version.schema_version}, of a newer toolkit",
                expected=f"at most format {FORMAT}, schema version {SCHEMA_VERSION}, which toolkit "
                f"{__version__} reads",
                next_step="Upgrade: pip install --upgrade workflow-vector-toolkit (in a clone: git pull).",
            )
        manifest = _MANIFEST.decode(envelope.manifest)
        _check(manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, InputError, RecursionError) as error:
        raise _damaged(doing, f"an inconsistent manifest ({error})") from None
    return manifest


def _check(manifest: Manifest) -> None:
    """Raise `InputError` for values that their JSON type allows and a manifest does not."""
    checked_instant("written_at", manifest.written_at)
    if manifest.complete_at is not None:
        checked_instant("complete_at", manifest.complete_at)
    for name, instant in manifest.coverage.instants if manifest.coverage else ():
        checked_instant(name, instant)
    for receipt in manifest.receipts:
        Receipt.from_dict(receipt)
    paths = [file.path for file in manifest.listed]
    repeated = [path for path, count in Counter(paths).items() if count > 1]
    columns = manifest.scope.get("columns", [])
    if repeated or not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise InputError(
            "reading a manifest",
            got=f"{min(repeated)} twice" if repeated else "columns that are not a list of names",
            expected="each file once, and names of columns",
        )


def _damaged(doing: str, got: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(
        doing,
        got=got,
        expected="the manifest as it was written",
        next_step="Restore the folder, or load into a new one.",
    )


def write_checkpoint(store: SnapshotStore, checkpoint: StoredCheckpoint) -> None:
    """Replace the checkpoint; what it lists has to be on the disk."""
    # a cursor that held one of our tokens is unusable once it is masked: its range is read again
    body = masked(msgspec.json.encode(checkpoint).decode()).encode()
    store.sync(*(file.path for file in checkpoint.listed))
    store.replace(CHECKPOINT, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def read_checkpoint(store: SnapshotStore) -> tuple[StoredCheckpoint | None, str]:
    """The checkpoint, None without one that can be read, and what is wrong with it."""
    try:
        content = store.content(CHECKPOINT)
    except FileNotFoundError:
        return None, ""
    except SnapshotDamagedError:
        return None, "damaged"
    digest, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None, "damaged"
    try:
        if _VERSIONS.decode(body).version > CHECKPOINT_VERSION:
            return None, "of another version of the toolkit"
        checkpoint = _CHECKPOINT.decode(body)
        counts = msgspec.convert(checkpoint.counts, _Counts)
        for text in (checkpoint.began_at, checkpoint.written_at, counts.started_at):
            checked_instant("a time", text)
        msgspec.convert(checkpoint.position, _Position)
    except (msgspec.DecodeError, UnicodeDecodeError, InputError, RecursionError):
        return None, "damaged"
    return checkpoint, ""


class _Counts(msgspec.Struct, frozen=True):
    """What the counts of a load have to be (`toolkit.loading.load.LoadState.counts`)."""

    started_at: str
    resumed: _Count = 0
    pages: _Count = 0
    requests: _Count = 0
    bytes: _Count = 0
    windows: _Count = 0
    filtered_here: _Count = 0
    reread: _Count = 0
    duplicates: _Count = 0
    unsettled: list[str] = []
    notes: list[str] = []


class _Position(msgspec.Struct, frozen=True):
    """What the position of a load has to be: of the DLQ in windows, or of vectors in ranges."""

    passes: _Count = msgspec.field(name="pass", default=1)
    alone: bool = False
    done: list[tuple[int | None, int | None]] = []
    open: list[tuple[int | None, int | None, str | None, _Count, _Count, bool, bool, _Count]] = []
    ranges: list[tuple[str, str | None, _Count, str | None, _Count, _Count]] = []


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


class _Versions(msgspec.Struct, frozen=True):
    """Versions stated by a manifest or checkpoint; where one is missing, decoding the whole fails."""

    format: int = FORMAT
    schema_version: int = SCHEMA_VERSION
    version: int = CHECKPOINT_VERSION


# made here, because the first use of a struct is not safe when several threads do it at once
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_VERSIONS: Final = msgspec.json.Decoder(_Versions)
_MANIFEST: Final = msgspec.json.Decoder(Manifest)
_CHECKPOINT: Final = msgspec.json.Decoder(StoredCheckpoint)
