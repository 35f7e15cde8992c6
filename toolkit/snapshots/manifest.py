"""The JSON files of a snapshot, each stored with a hash of the JSON.

``_manifest.json`` lists every file of the snapshot. Because of the underscore, readers of whole folders skip
it. ``_checkpoint.json`` stores the progress of a load, for one generation, service and scope.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from typing import Annotated, Any, Final, Literal

import msgspec

from toolkit.base.errors import InputError, SnapshotDamagedError, SnapshotError
from toolkit.base.own_tokens import masked
from toolkit.signatures.signing import RULES_VERSION, Learned
from toolkit.snapshots.binding import AccountTag
from toolkit.snapshots.coverage import Coverage
from toolkit.snapshots.store import SnapshotStore
from toolkit.tables.receipt import Pause, Receipt, checked_instant
from toolkit.version import __version__

MANIFEST: Final = "_manifest.json"
CHECKPOINT: Final = "_checkpoint.json"
HEARTBEAT: Final = "_heartbeat.json"
"""The last action of a schedule, stored next to the snapshot that it syncs; not a part of the snapshot."""

WATCHED: Final = "_watched.json"
"""States of groups that a watch has reported."""

WATCHED_LOCK: Final = f".{WATCHED}.lock"
"""The lock of `private_files.changing` for the states."""

JUDGED: Final = "_judged.json"
"""The times when reports could judge the snapshot, stored next to it; not a part of the snapshot."""

FORMAT: Final = 3
"""Version of the layout: names, manifest and index. 2 added `accounts` and `coverage` to the manifest; a
manifest of format 1 is read as a manifest without them. 3 replaced `index`, one file, by `indexes`."""

SCHEMA_VERSION: Final = 7
"""Version of the columns, of the fingerprints of rows, and of the index. Snapshots of every older version are
read (see `data_files.current_columns`), and become current when they are written."""

INDEX_VERSION: Final = 7  # the first schema version with the current form of the index
CHECKPOINT_VERSION: Final = 2  # 2 added the account, which is unknown for version 1
MOST_AGE: Final = timedelta(days=1)
"""A load does not resume from an older checkpoint, because the queue has changed since."""

KEPT_RECEIPTS: Final = 50  # receipts of the latest commits that the manifest keeps

REPAIRED: Final = "repaired: "
"""Beginning of the note of a receipt that describes a repair."""

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
    """A file of the snapshot, with a relative path. Files are never changed after they were listed."""

    path: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{DATA_NAME}|{INDEX_NAME})\Z")]
    rows: _Count
    bytes: _Count
    sha256: _Sha256

    @property
    def day(self) -> str:
        """Return the day on which the rows of a data file of failures were first seen."""
        return self.path.split("/")[1]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One generation of a snapshot, counted from 1; generation 0 is an unfinished first write.

    The snapshot is bound to `source` (the address of the service) and `scope`. `complete_at` is when the
    latest complete load of failures began. `learned` are the words that signatures have learned, so that
    later signatures are the same. Failures are also bound to `accounts`, with one tag per masking key;
    `coverage` lists the gaps. `indexes` is one index of all rows, or one index per data file, in the order of
    the files; formats 1 and 2 had `index`.
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
    indexes: tuple[ListedFile, ...] = ()

    @property
    def index_files(self) -> tuple[ListedFile, ...]:
        """Return the files of the index, of any format."""
        if self.index is None:
            return self.indexes
        return (self.index,)

    @property
    def index_of_each(self) -> dict[str, ListedFile]:
        """Return the index of each data file by path; empty if one index has all rows."""
        if len(self.indexes) != len(self.files):
            return {}

        paths = (file.path for file in self.files)
        return dict(zip(paths, self.indexes, strict=True))

    @property
    def rows(self) -> int:
        """Return the number of rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def slices(self) -> Iterator[tuple[ListedFile, slice]]:
        """Yield each data file, and the positions of its rows in the index."""
        start = 0
        for file in self.files:
            yield file, slice(start, start := start + file.rows)

    @property
    def listed(self) -> tuple[ListedFile, ...]:
        """Return the data files, and the files of the index if the snapshot has one."""
        return (*self.files, *self.index_files)

    @property
    def is_older(self) -> bool:
        """Return whether it was written in an older schema version, or signed by older rules."""
        return (
            self.schema_version < SCHEMA_VERSION
            or self.learned.rules_version != RULES_VERSION
        )


class PendingFile(ListedFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file before the commit: a data file that will be called `name`, or a file of a checkpoint ("")."""

    path: Annotated[
        str, msgspec.Meta(pattern=rf"\A(?:{PENDING_NAME}|{_DRAFT_NAME}|{DATA_NAME})\Z")
    ]
    name: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{DATA_NAME})?\Z")] = ""

    @property
    def as_listed(self) -> ListedFile:
        """Return the file as the manifest lists it after the commit."""
        return ListedFile(
            path=self.name, rows=self.rows, bytes=self.bytes, sha256=self.sha256
        )


class StoredCheckpoint(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The progress of a load into the snapshot of a `generation`.

    `identities` are the ids of the rows that the load has yielded (16 bytes each), `files` are the pending
    rows, `later` the rows that were read again with new content, and `seen` has one bit per stored row.
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
        """Return all files of the checkpoint."""
        files = (*self.identities, *self.files, *self.later)
        if self.seen is None:
            return files

        return (*files, self.seen)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the checkpoint and of all files of it."""
        # a stopped commit may have named some
        finished = (file.name for file in self.files if file.name)
        return frozenset((CHECKPOINT, *(file.path for file in self.listed), *finished))

    def mismatch_reason(self, *, expected: dict[str, Any], now: datetime) -> str:
        """Return why a load of `expected` (some of the attributes) cannot resume from it; "" if it can."""
        if self.schema_version != SCHEMA_VERSION:
            return "of another version of the toolkit"

        if any(
            getattr(self, name) != value for name, value in as_stored(expected).items()
        ):
            return "of another service or scope"

        age = now - datetime.fromisoformat(self.written_at)
        if age > MOST_AGE:
            return "older than a day"
        if age < timedelta():
            return "from the future"

        return ""


def as_stored(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value after a round trip through JSON. For example, tuples become lists."""
    stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return stored


def kept_receipts(receipts: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return the latest receipts, and every older receipt of a repair: losses stay on record."""
    older = (receipt for receipt in receipts[:-KEPT_RECEIPTS] if repairs((receipt,)))
    return (*older, *receipts[-KEPT_RECEIPTS:])


def repairs(receipts: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return the descriptions of repairs in receipts."""
    notes = chain.from_iterable(receipt.get("notes") or () for receipt in receipts)
    return tuple(
        note.removeprefix(REPAIRED) for note in notes if note.startswith(REPAIRED)
    )


def stored_retention(receipts: Sequence[dict[str, Any]]) -> timedelta | None:
    """Return how long the queue keeps entries, from the latest receipt that records it."""
    for receipt in reversed(receipts):
        retention = Receipt.from_dict(receipt).retention
        if retention is not None:
            return retention

    return None


def stored_pauses(receipts: Sequence[dict[str, Any]]) -> tuple[Pause, ...]:
    """Return the pauses between syncs that the latest receipt with some of them names."""
    for receipt in reversed(receipts):
        pauses = Receipt.from_dict(receipt).pauses
        if pauses:
            return pauses

    return ()


def with_receipt(
    receipts: tuple[dict[str, Any], ...], receipt: dict[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Return the receipts with another one.

    The manifest has gaps once, in its coverage, and pauses once, in the latest receipt that names them.
    """
    if receipt.get("pauses"):
        receipts = tuple(earlier | {"pauses": []} for earlier in receipts)
    return kept_receipts((*receipts, receipt | {"gaps": []}))


def write_manifest(store: SnapshotStore, manifest: Manifest) -> bytes:
    """Replace the manifest atomically, which is the commit. Return the written bytes."""
    body = msgspec.json.encode(manifest)
    envelope = _Envelope(hashlib.sha256(body).hexdigest(), msgspec.Raw(body))
    content = msgspec.json.encode(envelope) + b"\n"
    store.replace(MANIFEST, content)

    return content


def read_manifest(store: SnapshotStore) -> Manifest | None:
    """Return the manifest, or None if it does not exist; raises as `decode_manifest`."""
    content = manifest_bytes(store)
    if content is None:
        return None

    return decode_manifest(store, content)


def manifest_bytes(store: SnapshotStore) -> bytes | None:
    """Return the bytes of the manifest, or None if it does not exist."""
    with suppress(FileNotFoundError):
        return store.content(MANIFEST)
    return None


def decode_manifest(store: SnapshotStore, content: bytes) -> Manifest:
    """Decode a manifest. Raise SnapshotError if it is damaged, or written by a newer toolkit."""
    doing = f"reading the manifest {MANIFEST!r} of the snapshot {store}"
    try:
        envelope = _ENVELOPE.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(
            doing, f"{len(content):,} bytes that are not a manifest ({error})"
        ) from None

    if hashlib.sha256(bytes(envelope.manifest)).hexdigest() != envelope.sha256:
        raise _damaged(doing, "JSON that does not match the hash in the file")

    try:
        version = _VERSIONS.decode(envelope.manifest)
        if version.format > FORMAT or version.schema_version > SCHEMA_VERSION:
            raise SnapshotError(
                doing,
                got=f"format {version.format}, schema version {version.schema_version}, of a newer toolkit",
                expected=f"at most format {FORMAT}, schema version {SCHEMA_VERSION}, as toolkit "
                f"{__version__} reads",
                next_step="Upgrade: pip install --upgrade workflow-vector-toolkit (in a clone: git pull).",
            )

        manifest = _MANIFEST.decode(envelope.manifest)
        _check(manifest)
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        InputError,
        RecursionError,
    ) as error:
        raise _damaged(doing, f"an inconsistent manifest ({error})") from None

    return manifest


def _check(manifest: Manifest) -> None:
    """Raise InputError for values that are not allowed although the JSON types are right."""
    checked_instant("written_at", manifest.written_at)
    if manifest.complete_at is not None:
        checked_instant("complete_at", manifest.complete_at)
    if manifest.coverage is not None:
        for name, instant in manifest.coverage.instants:
            checked_instant(name, instant)

    for receipt in manifest.receipts:
        Receipt.from_dict(receipt)
    paths = Counter(file.path for file in manifest.listed)

    repeated = [path for path, count in paths.items() if count > 1]
    if repeated:
        raise InputError(
            "reading a manifest",
            got=f"{min(repeated)} twice",
            expected="unique names of files",
        )

    columns = manifest.scope.get("columns", [])
    if not isinstance(columns, list) or not all(
        isinstance(name, str) for name in columns
    ):
        raise InputError(
            "reading a manifest",
            got=f"the columns {columns!r:.80}",
            expected="a list of names",
        )


def _damaged(doing: str, got: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(
        doing,
        got=got,
        expected="the manifest as it was written",
        next_step="Restore the folder, or load into a new one.",
    )


def write_checkpoint(store: SnapshotStore, checkpoint: StoredCheckpoint) -> None:
    """Replace the checkpoint. The files that it lists have to be on the disk."""
    # a cursor that contains one of the own tokens is masked, and cannot be used: the range is read again
    body = masked(msgspec.json.encode(checkpoint).decode()).encode()
    store.sync(*(file.path for file in checkpoint.listed))
    store.replace(CHECKPOINT, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def read_checkpoint(store: SnapshotStore) -> tuple[StoredCheckpoint | None, str]:
    """Return the checkpoint, and a problem. It is None if it does not exist, or with a problem."""
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
        counts = msgspec.convert(checkpoint.counts, _StoredCounts)
        for instant in (checkpoint.began_at, checkpoint.written_at, counts.started_at):
            checked_instant("a time", instant)
        msgspec.convert(checkpoint.position, _Position)
    except (msgspec.DecodeError, UnicodeDecodeError, InputError, RecursionError):
        return None, "damaged"

    return checkpoint, ""


class _StoredCounts(msgspec.Struct, frozen=True):
    """The form of the counts of a load (`toolkit.loading.load.LoadState.counts`)."""

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
    clocks: list[tuple[str, int, _Count]] = []


class _Position(msgspec.Struct, frozen=True):
    """The form of the position of a load: of the DLQ in windows, or of vectors in ranges."""

    passes: _Count = msgspec.field(name="pass", default=1)
    alone: bool = False
    done: list[tuple[int | None, int | None]] = []
    open: list[
        tuple[int | None, int | None, str | None, _Count, _Count, bool, bool, _Count]
    ] = []
    ranges: list[tuple[str, str | None, _Count, str | None, _Count, _Count]] = []


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


class _Versions(msgspec.Struct, frozen=True):
    """Versions of a manifest or checkpoint. If one is missing, decoding the rest fails."""

    format: int = FORMAT
    schema_version: int = SCHEMA_VERSION
    version: int = CHECKPOINT_VERSION


# made here because the first use of a struct is not safe if several threads do it at once
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_VERSIONS: Final = msgspec.json.Decoder(_Versions)
_MANIFEST: Final = msgspec.json.Decoder(Manifest)
_CHECKPOINT: Final = msgspec.json.Decoder(StoredCheckpoint)
