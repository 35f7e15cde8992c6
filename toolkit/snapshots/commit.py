"""One change of a snapshot, from taking the lock to removing what was superseded.

Data is written to hidden drafts, brought to the disk and read again. At the commit the drafts get their
names, the folders are brought to the disk, and the manifest is replaced atomically: from then on readers see
the new generation, before it the old one. Only then do superseded files go. A writer that stops anywhere
leaves one of the two whole; what else it leaves, the next writer clears away.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.errors import SnapshotBindingError, SnapshotDamagedError, SnapshotError
from toolkit.snapshots.datafiles import GROUP_BYTES, RowWriter, facts, missing, prove
from toolkit.snapshots.folder import LOCK, Folder, draft_of
from toolkit.snapshots.hashing import HashingFile
from toolkit.snapshots.manifest import (
    DATA_NAME,
    DAYS,
    FORMAT,
    INDEX_NAME,
    KEPT_RECEIPTS,
    MANIFEST,
    SCHEMA_VERSION,
    Kind,
    ListedFile,
    Manifest,
    read_manifest,
    write_manifest,
)

Clock = Callable[[], datetime]

_FINISHED: Final = re.compile(rf"\A(?:{DATA_NAME}|{INDEX_NAME})\Z")
_DRAFT: Final = re.compile(
    rf"\A(?:{DAYS}/\d{{4}}-\d\d-\d\d/)?_(?:part|index|manifest)[-.0-9a-z]*\.[0-9a-f]{{16}}\.tmp\Z"
)


def utc_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


class Part:
    """A data file in the making.

    Attributes
    ----------
    path : str
        The name it will have.
    """

    def __init__(self, path: str, draft: str, file: HashingFile, schema: pa.Schema, group_bytes: int) -> None:
        self.path = path
        self.draft = draft
        self.file = file
        self.writer = RowWriter(file, schema, group_bytes=group_bytes)

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self.writer.rows

    def write(self, table: pa.Table) -> None:
        """Add rows; the table has the part's columns."""
        self.writer.write(table)

    def give_up(self) -> None:
        """Let the encoder go without another byte on the disk."""
        self.file.discard()
        self.writer.give_up()


class Change:
    """A writer's hold on a snapshot. Made by `changing`.

    Attributes
    ----------
    folder : Folder
    previous : Manifest or None
        The snapshot as it was; None for the first write.
    """

    def __init__(
        self, folder: Folder, kind: Kind, previous: Manifest | None, clock: Clock, group_bytes: int
    ) -> None:
        self.folder = folder
        self.previous = previous
        self._kind = kind
        self._clock = clock
        self._group_bytes = group_bytes
        self._generation = previous.generation + 1 if previous else 1
        self._files = ExitStack()
        self._parts: list[Part] = []
        self._named: list[tuple[str, str]] = []
        self._naming = False

    def new_part(self, schema: pa.Schema, *, day: str | None = None) -> Part:
        """Begin a data file, in the folder of the day first seen where there is one."""
        name = self._name("part", "parquet", f"{DAYS}/{day}/" if day else "")
        draft = draft_of(name)
        part = Part(name, draft, self._new_file(name, draft), schema, self._group_bytes)
        self._parts.append(part)
        return part

    def bind(self, source: str, scope: dict[str, Any]) -> None:
        """See that the snapshot belongs to this service and scope.

        Raises
        ------
        SnapshotBindingError
            When it belongs to another.
        """
        before = self.previous
        asked = msgspec.json.decode(msgspec.json.encode(scope))  # tuples compare as the lists they rest as
        if before is not None and (before.source, before.scope) != (source, asked):
            raise SnapshotBindingError(
                f"writing the snapshot {self.folder}",
                got=f"rows of {source or 'an unnamed source'} with the scope {scope}",
                expected=f"rows of {before.source or 'an unnamed source'} with the scope {before.scope}",
                next_step="Use a folder of its own for each service and filter.",
            )

    def commit(
        self,
        *,
        source: str,
        scope: dict[str, Any],
        receipt: dict[str, Any] | None,
        kept: tuple[ListedFile, ...] = (),
        index: ListedFile | bytes | None = None,
        complete_at: str | None = None,
    ) -> Manifest:
        """Make the files kept and the parts written, in this order, the snapshot.

        Parameters
        ----------
        source, scope
            What the snapshot is bound to; see `bind`.
        receipt : dict or None
            Of the load that brought the rows.
        kept : tuple of ListedFile
            Files of the previous generation that stay.
        index : ListedFile or bytes, optional
            The previous index, or the content of a new one.
        complete_at : str, optional
            When the latest complete load began.

        Returns
        -------
        Manifest
        """
        receipts = self.previous.receipts if self.previous else ()
        files = (*kept, *(self._finished(part, receipt) for part in self._parts))
        manifest = Manifest(
            format=FORMAT,
            schema_version=SCHEMA_VERSION,
            kind=self._kind,
            generation=self._generation,
            source=source,
            scope=scope,
            written_at=self._clock().isoformat(timespec="milliseconds"),
            complete_at=complete_at,
            files=files,
            index=self._index(index, sum(file.rows for file in files)) if isinstance(index, bytes) else index,
            receipts=(*receipts, receipt)[-KEPT_RECEIPTS:] if receipt else receipts,
        )
        self._naming = True
        for draft, name in self._named:
            self.folder.rename(draft, name)
        self.folder.sync(*(name for _, name in self._named))
        write_manifest(self.folder, manifest)
        clear(self.folder, manifest)
        return manifest

    def close(self) -> None:
        """Close what is open, and remove the drafts unless they began to get their names."""
        for part in self._parts:
            part.give_up()
        self._files.close()
        if not self._naming:
            # what cannot be removed now, the next writer removes
            with suppress(OSError):
                for draft, _ in self._named:
                    self.folder.remove(draft)

    def _name(self, stem: str, ending: str, folder: str = "") -> str:
        return f"{folder}{stem}-{self._generation:06d}-{secrets.token_hex(8)}.{ending}"

    def _new_file(self, name: str, draft: str) -> HashingFile:
        self._named.append((draft, name))
        return self._files.enter_context(self.folder.new_file(draft))

    def _finished(self, part: Part, receipt: dict[str, Any] | None) -> ListedFile:
        part.writer.finish(facts(self._kind, receipt))
        part.file.sync()
        prove(self.folder, part.draft, rows=part.rows, sha256=part.file.sha256)
        return ListedFile(path=part.path, rows=part.rows, bytes=part.file.bytes, sha256=part.file.sha256)

    def _index(self, content: bytes, rows: int) -> ListedFile:
        name = self._name("_index", "bin")
        draft = draft_of(name)
        file = self._new_file(name, draft)
        file.write(content)
        file.sync()
        prove(self.folder, draft, sha256=file.sha256)
        return ListedFile(path=name, rows=rows, bytes=file.bytes, sha256=file.sha256)


@contextmanager
def changing(
    folder: Folder, kind: Kind, *, clock: Clock = utc_now, group_bytes: int = GROUP_BYTES
) -> Iterator[Change]:
    """Hold a snapshot for one change. Without a call of `Change.commit`, it stays as it was.

    Parameters
    ----------
    folder : Folder
        Made where it is missing.
    kind : {"frame", "failures", "vectors"}
    clock : callable
        Gives the time, with a time zone.
    group_bytes : int
        Bytes of Arrow data in a row group.

    Raises
    ------
    SnapshotLockedError
        When another writer holds it.
    SnapshotDamagedError
        When its manifest cannot be believed; then nothing is cleared away either.
    SnapshotBindingError
        When it is a snapshot of another kind.
    SnapshotError
        When the folder holds something else, or the disk refuses.
    """
    with folder.failures_named("writing"):
        folder.make()
        with folder.locked():
            previous = _previous(folder, kind, clock)
            change = Change(folder, kind, previous, clock, group_bytes)
            try:
                yield change
            except FileNotFoundError as error:
                raise missing(folder, error) from None
            finally:
                change.close()


def clear(folder: Folder, manifest: Manifest) -> None:
    """Remove our own files that the manifest does not list: superseded, or left by a stopped writer."""
    listed = {file.path for file in (*manifest.files, *((manifest.index,) if manifest.index else ()))}
    for name in list(folder.names()):
        if name not in listed and (_FINISHED.match(name) or _DRAFT.match(name)):
            folder.remove(name)


def unlisted(folder: Folder, manifest: Manifest) -> tuple[str, ...]:
    """Files in the folder that are not part of the snapshot."""
    listed = {MANIFEST, LOCK, *(file.path for file in manifest.files)}
    if manifest.index:
        listed.add(manifest.index.path)
    return tuple(sorted(name for name in folder.names() if name not in listed))


def _previous(folder: Folder, kind: Kind, clock: Clock) -> Manifest | None:
    """The snapshot as it was, cleared of leftovers; a first writer leaves word that it began."""
    manifest = read_manifest(folder)
    if manifest is None:
        _refuse_others(folder)
        # generation 0: data files beside it are an interrupted first write's, not those of a lost manifest
        manifest = Manifest(
            format=FORMAT, schema_version=SCHEMA_VERSION, kind=kind, generation=0, source="", scope={},
            written_at=clock().isoformat(timespec="milliseconds"),
        )  # fmt: skip
        write_manifest(folder, manifest)
    if manifest.generation and manifest.kind != kind:
        raise SnapshotBindingError(
            f"writing the snapshot {folder}",
            got=f"rows for a snapshot of kind {kind!r}",
            expected=f"rows for one of kind {manifest.kind!r}, which it is",
            next_step="Use another folder: this one's history would be lost.",
        )
    clear(folder, manifest)
    return manifest if manifest.generation else None


def _refuse_others(folder: Folder) -> None:
    names = [name for name in folder.names() if name != LOCK and not _DRAFT.match(name)]
    if any(_FINISHED.match(name) for name in names):
        raise SnapshotDamagedError(
            f"writing the snapshot {folder}",
            got=f"data files without the manifest {MANIFEST!r}",
            expected="both, or an empty folder",
            next_step="Restore the manifest, or use another folder; nothing was removed.",
        )
    if names:
        raise SnapshotError(
            f"writing the snapshot {folder}",
            got=f"a folder with other files, such as {names[0]!r}",
            expected="a snapshot, or an empty folder",
            next_step="Use another folder.",
        )
