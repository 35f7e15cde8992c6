"""One transaction of a snapshot, from taking the lock to removing what was superseded.

Data is written to hidden drafts, brought to the disk and read again. At the commit the drafts get their
names, the folders are brought to the disk, and the manifest is replaced atomically: from then on readers see
the new generation, before it the old one. Only then do superseded files go. A writer that stops anywhere
leaves one of the two whole; what else it leaves, the next writer clears away.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.errors import SnapshotBindingError, SnapshotConflictError, SnapshotDamagedError, SnapshotError
from toolkit.snapshots.checkpoint import (
    CHECKPOINT,
    RESTING_NAME,
    Resting,
    RestingFile,
    read_checkpoint,
    write_checkpoint,
)
from toolkit.snapshots.damage import damages, refuse
from toolkit.snapshots.datafiles import GROUP_BYTES, facts, missing, prove
from toolkit.snapshots.folder import LOCK, SnapshotStore
from toolkit.snapshots.manifest import (
    DATA_NAME,
    DAYS,
    FORMAT,
    INDEX_NAME,
    MANIFEST,
    SCHEMA_VERSION,
    Kind,
    ListedFile,
    Manifest,
    decode_manifest,
    kept_receipts,
    manifest_bytes,
    write_manifest,
)
from toolkit.snapshots.parts import CheckpointFile, Part
from toolkit.snapshots.versions import current_scope

Clock = Callable[[], datetime]

_FINISHED: Final = re.compile(rf"\A(?:{DATA_NAME}|{INDEX_NAME})\Z")
_DRAFT: Final = re.compile(
    rf"\A(?:{DAYS}/\d{{4}}-\d\d-\d\d/)?_(?:part|index|manifest|checkpoint)[-.0-9a-z]*\.[0-9a-f]{{16}}\.tmp\Z"
)
_RESTING: Final = re.compile(rf"\A(?:{re.escape(CHECKPOINT)}|{RESTING_NAME})\Z")


def utc_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


class Transaction:
    """A writer's hold on a snapshot. Made by `changing`.

    Attributes
    ----------
    folder : SnapshotStore
    previous : Manifest or None
        The snapshot as it was; None for the first write.
    generation : int
        Of the snapshot as it was; 0 for the first write.
    resting : Resting, str or None
        The checkpoint that an earlier load left, or what is wrong with it.
    """

    def __init__(self, folder: SnapshotStore, kind: Kind, clock: Clock, group_bytes: int) -> None:
        self.folder = folder
        before, self._found = _previous(folder, kind, clock)
        self.generation = before.generation
        self.previous = before if before.generation else None
        self.resting = read_checkpoint(folder)
        if isinstance(self.resting, Resting) and self.resting.generation != self.generation:
            self.resting = None  # what it was for has been committed
        self.kind = kind
        self._clock = clock
        self._group_bytes = group_bytes
        self._spared = self.resting.names if isinstance(self.resting, Resting) else frozenset[str]()
        self._parts: list[Part | RestingFile] = []
        self._drafts: list[str] = []
        self._naming = False
        self._before = before

    def tidy(self) -> None:
        """Remove what a stopped writer left. Where rows are lost, this waits: they may be in what it left."""
        if self.folder.exclusive:  # elsewhere, what looks left behind may be another writer's, under way
            clear(self.folder, self._before, spared=self._spared)

    def leftovers(self) -> list[str]:
        """Data files that no manifest lists: superseded, or named by a stopped commit; the latest first."""
        known = _listed(self._before) | self._spared
        data = re.compile(rf"\A(?:{DATA_NAME})\Z")
        return sorted(
            (name for name in self.folder.names() if name not in known and data.match(name)),
            key=lambda name: name.rpartition("/")[2],
            reverse=True,
        )

    def new_part(self, schema: pa.Schema, *, day: str | None = None) -> Part:
        """Begin a data file, in the folder of the day first seen where there is one."""
        name = self._name("part", "parquet", f"{DAYS}/{day}/" if day else "")
        part = Part(self.folder, name, schema, self._group_bytes)
        self._drafts.append(part.draft)
        self._parts.append(part)
        return part

    def adopt(self, file: RestingFile) -> None:
        """Take over a data file that an earlier load finished."""
        self._parts.append(file)

    def substitute(self, old: Part | RestingFile, new: Part) -> None:
        """Let a part that was written anew stand where an earlier one stood."""
        self._parts.remove(new)
        self._parts[self._parts.index(old)] = new

    def finish(self, part: Part | RestingFile, receipt: dict[str, Any] | None) -> RestingFile:
        """Bring a part to the disk as a whole; its metadata holds the receipt."""
        return part if isinstance(part, RestingFile) else part.finish(facts(self.kind, receipt))

    def settle(self, part: Part) -> ListedFile:
        """Finish a part and give it its name before the commit, which may list it as one of those kept."""
        finished = self.finish(part, None)
        if finished.path != finished.name:
            self.folder.rename(finished.path, finished.name)
            self.folder.sync(finished.name)
            self._drafts.append(finished.name)
        part.close()
        self._parts.remove(part)
        return finished.listed

    @contextmanager
    def new_resting(self, ending: str) -> Iterator[CheckpointFile]:
        """Begin a file of the checkpoint."""
        name = self._name("_checkpoint", ending)
        self._drafts.append(name)
        with self.folder.new_file(name) as file:
            yield CheckpointFile(self.folder, name, file)

    def rest(self, resting: Resting) -> None:
        """Replace the checkpoint. What it lists stays on the disk until a commit."""
        write_checkpoint(self.folder, resting)
        superseded, self._spared = self._spared - resting.names, resting.names
        for name in superseded:
            self.folder.remove(name)

    def located(self, resting: Resting) -> Resting:
        """The checkpoint, with its data files where they are: a stopped commit may have named some."""
        there = set(self.folder.names())
        files = tuple(
            msgspec.structs.replace(file, path=file.name)
            if file.name in there and file.path not in there
            else file
            for file in resting.files
        )
        return msgspec.structs.replace(resting, files=files)

    def forget(self) -> None:
        """Clear the checkpoint away that an earlier load left."""
        forgotten, self._spared, self.resting = self._spared, frozenset(), None
        for name in sorted(forgotten, key=lambda name: name != CHECKPOINT):
            self.folder.remove(name)

    def bind(self, source: str, scope: dict[str, Any]) -> None:
        """See that the snapshot belongs to this service and scope.

        Raises
        ------
        SnapshotBindingError
            When it belongs to another.
        """
        before = self.previous
        asked = msgspec.json.decode(msgspec.json.encode(scope))  # tuples compare as the lists they rest as
        if before is not None and (before.source, current_scope(before)) != (source, asked):
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

        Raises
        ------
        SnapshotConflictError
            When another writer has changed the snapshot since this transaction began.
        SnapshotDamagedError
            When a file that stays was lost meanwhile.
        """
        receipts = self.previous.receipts if self.previous else ()
        finished = [self.finish(part, receipt) for part in self._parts]
        files = (*kept, *(file.listed for file in finished))
        named = [(file.path, file.name) for file in finished]
        if isinstance(index, bytes):
            draft, index = self._index(index, sum(file.rows for file in files))
            named.append((draft, index.path))
        manifest = Manifest(
            format=FORMAT,
            schema_version=SCHEMA_VERSION,
            kind=self.kind,
            generation=self.generation + 1,
            source=source,
            scope=scope,
            written_at=self._clock().isoformat(timespec="milliseconds"),
            complete_at=complete_at,
            files=files,
            index=index,
            receipts=kept_receipts((*receipts, receipt)) if receipt else receipts,
        )
        if manifest_bytes(self.folder) != self._found:
            raise _conflict(self.folder)
        if kept and self.previous:
            remaining = msgspec.structs.replace(self.previous, files=kept, index=None)
            refuse(self.folder, remaining, damages(self.folder, remaining))
        self._naming = True
        for draft, name in named:
            if draft != name:
                self.folder.rename(draft, name)
        self.folder.sync(*(name for _, name in named))
        content = write_manifest(self.folder, manifest)
        if not self.folder.exclusive:
            _see_alone(self.folder, manifest, content)
        clear(self.folder, manifest)
        return manifest

    def close(self) -> None:
        """Close what is open, and remove the drafts unless they began to get their names."""
        for part in self._parts:
            if isinstance(part, Part):
                part.close()
        if not self._naming:
            # what cannot be removed now, the next writer removes
            with suppress(OSError):
                for draft in self._drafts:
                    if draft not in self._spared:
                        self.folder.remove(draft)

    def _name(self, stem: str, ending: str, folder: str = "") -> str:
        return f"{folder}{stem}-{self.generation + 1:06d}-{secrets.token_hex(8)}.{ending}"

    def _index(self, content: bytes, rows: int) -> tuple[str, ListedFile]:
        name = self._name("_index", "bin")
        draft = self.folder.draft_of(name)
        self._drafts.append(draft)
        with self.folder.new_file(draft) as file:
            file.write(content)
            file.sync()
            prove(self.folder, draft, sha256=file.sha256)
            return draft, ListedFile(path=name, rows=rows, bytes=file.bytes, sha256=file.sha256)


@contextmanager
def changing(
    folder: SnapshotStore, kind: Kind, *, clock: Clock = utc_now, group_bytes: int = GROUP_BYTES
) -> Iterator[Transaction]:
    """Hold a snapshot for one transaction. Without a call of `Transaction.commit`, it stays as it was.

    Parameters
    ----------
    folder : SnapshotStore
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
    SnapshotConflictError
        When another writer changed it meanwhile, where there is no lock.
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
            transaction = Transaction(folder, kind, clock, group_bytes)
            try:
                yield transaction
            except FileNotFoundError as error:
                raise missing(folder, error) from None
            finally:
                transaction.close()


def clear(folder: SnapshotStore, manifest: Manifest, *, spared: frozenset[str] = frozenset()) -> None:
    """Remove our own files that the manifest does not list: superseded, or left by a stopped writer."""
    listed = _listed(manifest) | spared
    ours = (_RESTING, _FINISHED, _DRAFT)
    # the checkpoint goes first: it may not list what is no longer there
    for name in sorted(folder.names(), key=lambda name: name != CHECKPOINT):
        if name not in listed and any(pattern.match(name) for pattern in ours):
            folder.remove(name)


def unlisted(folder: SnapshotStore, manifest: Manifest) -> tuple[str, ...]:
    """Files in the folder that are not part of the snapshot."""
    resting = read_checkpoint(folder)
    waiting = resting.names if isinstance(resting, Resting) else ()
    listed = {MANIFEST, LOCK, *_listed(manifest), *waiting}
    return tuple(sorted(name for name in folder.names() if name not in listed))


def _listed(manifest: Manifest) -> set[str]:
    return {file.path for file in (*manifest.files, *((manifest.index,) if manifest.index else ()))}


def _see_alone(folder: SnapshotStore, manifest: Manifest, content: bytes) -> None:
    """Raise where another writer committed in the same moment, before anything of either is removed."""
    if manifest_bytes(folder) != content or not _listed(manifest) <= set(folder.names()):
        raise _conflict(folder)


def _conflict(folder: SnapshotStore) -> SnapshotConflictError:
    return SnapshotConflictError(
        f"writing the snapshot {folder}",
        got="a manifest that another writer has replaced meanwhile",
        expected="one writer at a time",
        next_step="See that only one writes, verify the snapshot, and call again.",
    )


def _previous(folder: SnapshotStore, kind: Kind, clock: Clock) -> tuple[Manifest, bytes]:
    """The snapshot as it was, and its manifest as it rests; a first writer leaves word that it began."""
    found = manifest_bytes(folder)
    if found is None:
        _refuse_others(folder)
        # generation 0: data files beside it are an interrupted first write's, not those of a lost manifest
        manifest = Manifest(
            format=FORMAT, schema_version=SCHEMA_VERSION, kind=kind, generation=0, source="", scope={},
            written_at=clock().isoformat(timespec="milliseconds"),
        )  # fmt: skip
        found = write_manifest(folder, manifest)
    else:
        manifest = decode_manifest(folder, found)
    if manifest.generation and manifest.kind != kind:
        raise SnapshotBindingError(
            f"writing the snapshot {folder}",
            got=f"rows for a snapshot of kind {kind!r}",
            expected=f"rows for one of kind {manifest.kind!r}, which it is",
            next_step="Use another folder: this one's history would be lost.",
        )
    return manifest, found


def _refuse_others(folder: SnapshotStore) -> None:
    ours = (_DRAFT, _RESTING)
    names = [name for name in folder.names() if name != LOCK and not any(one.match(name) for one in ours)]
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
