"""The manifest: the one file that says what a snapshot is. What it does not list is not part of the snapshot.

``_manifest.json`` holds the manifest and the hash of its exact text. The underscore keeps readers of whole
folders (``pyarrow.parquet.read_table``, Spark, Dask) from taking it for data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec

from toolkit.errors import InputError, SnapshotDamagedError, SnapshotError
from toolkit.receipt import Receipt, checked_instant
from toolkit.snapshots.folder import SnapshotStore
from toolkit.version import __version__

MANIFEST: Final = "_manifest.json"
FORMAT: Final = 1
"""Version of the layout: names, manifest and index."""

SCHEMA_VERSION: Final = 5
"""Version of the columns, of what is hashed to tell a changed row, and of what the index holds.
Snapshots of every older version are read (see `toolkit.snapshots.versions`), and become current when they are
written."""

KEPT_RECEIPTS: Final = 50
"""Receipts of the latest commits that the manifest keeps."""

REPAIRED: Final = "repaired: "
"""How the note of a receipt begins that says what a repair brought back and what stayed lost."""

Kind = Literal["frame", "failures", "vectors"]

DAYS: Final = "first_seen"
DATA_NAME: Final = r"(?:first_seen/\d{4}-\d\d-\d\d/)?part-\d{6,}-[0-9a-f]{16}\.parquet"
INDEX_NAME: Final = r"_index-\d{6,}-[0-9a-f]{16}\.bin"

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
_Version = Annotated[int, msgspec.Meta(ge=1)]
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class ListedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the snapshot, which is never changed once it is listed.

    Attributes
    ----------
    path : str
        Relative to the snapshot.
    rows, bytes : int
    sha256 : str
        Of its bytes, in hex.
    """

    path: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{DATA_NAME}|{INDEX_NAME})\Z")]
    rows: _Count
    bytes: _Count
    sha256: _Sha256


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a snapshot is, in one of its generations.

    Attributes
    ----------
    format, schema_version : int
    kind : {"frame", "failures", "vectors"}
        What wrote it: `write_snapshot`, `sync_failures` or `export_vectors`.
    generation : int
        Counts the commits from 1. 0: a first writer began and has not finished.
    source : str
        Address of the service, without secrets.
    scope : dict
        What was asked for there. Source and scope bind the snapshot.
    written_at : str
        ISO 8601, UTC.
    complete_at : str or None
        When the latest complete load of a failure snapshot began.
    files : tuple of ListedFile
    index : ListedFile or None
        Hashes of ids and rows (failures only).
    receipts : tuple of dict
        Receipts of the latest commits, the latest last.
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

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)


def kept_receipts(receipts: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """The latest receipts, and every older one that tells of a repair: what was lost stays on record."""
    older = (receipt for receipt in receipts[:-KEPT_RECEIPTS] if repairs((receipt,)))
    return (*older, *receipts[-KEPT_RECEIPTS:])


def repairs(receipts: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """What receipts say of repairs."""
    notes = (note for receipt in receipts for note in receipt.get("notes") or ())
    return tuple(note.removeprefix(REPAIRED) for note in notes if note.startswith(REPAIRED))


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


def write_manifest(folder: SnapshotStore, manifest: Manifest) -> bytes:
    """Replace the manifest atomically. This is the commit. The bytes as they rest."""
    body = msgspec.json.encode(manifest)
    envelope = _Envelope(hashlib.sha256(body).hexdigest(), msgspec.Raw(body))
    content = msgspec.json.encode(envelope) + b"\n"
    folder.replace(MANIFEST, content)
    return content


def read_manifest(folder: SnapshotStore) -> Manifest | None:
    """The manifest, or None where there is none; raises as `decode_manifest`."""
    content = manifest_bytes(folder)
    return None if content is None else decode_manifest(folder, content)


def manifest_bytes(folder: SnapshotStore) -> bytes | None:
    """The manifest as it rests, or None where there is none."""
    try:
        return folder.content(MANIFEST)
    except FileNotFoundError:
        return None


def decode_manifest(folder: SnapshotStore, content: bytes) -> Manifest:
    """The manifest of these bytes.

    Raises
    ------
    SnapshotDamagedError
        When it was cut or edited.
    SnapshotError
        When a newer version of the toolkit wrote it. Every older one is read.
    """
    doing = f"reading the manifest {MANIFEST!r} of the snapshot {folder}"
    try:
        envelope = _ENVELOPE.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(doing, f"{len(content):,} bytes that are no manifest ({error})") from None
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
        raise _damaged(doing, f"a manifest that breaks its own rules ({error})") from None
    return manifest


def _check(manifest: Manifest) -> None:
    """See that values which are more than their JSON type are what they have to be.

    Raises
    ------
    InputError
    """
    checked_instant("written_at", manifest.written_at)
    if manifest.complete_at is not None:
        checked_instant("complete_at", manifest.complete_at)
    for receipt in manifest.receipts:
        Receipt.from_dict(receipt)
    paths = [file.path for file in (*manifest.files, *((manifest.index,) if manifest.index else ()))]
    repeated = {path for path in paths if paths.count(path) > 1} if len({*paths}) < len(paths) else set()
    columns = manifest.scope.get("columns", [])
    if repeated or not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise InputError(
            "reading a manifest",
            got=f"{min(repeated)} twice" if repeated else "columns that are no list of names",
            expected="each file once, and names of columns",
        )


class _Versions(msgspec.Struct, frozen=True):
    format: int
    schema_version: int


# made here, because the first look at a struct is not safe when several threads take it at once
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_VERSIONS: Final = msgspec.json.Decoder(_Versions)
_MANIFEST: Final = msgspec.json.Decoder(Manifest)


def _damaged(doing: str, got: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(
        doing,
        got=got,
        expected="the manifest as it was written",
        next_step="Restore the folder, or load into a new one.",
    )
