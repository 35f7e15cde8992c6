"""One transaction of a snapshot, from acquiring the lock to removing superseded files.

Data is written to drafts, flushed to disk and read again. The commit renames the drafts and then replaces the
manifest atomically: before that readers see the old generation, and afterwards the new one. If a writer
stops, for example because the process is killed, the next writer removes the remaining files.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.base.errors import (
    SnapshotBindingError,
    SnapshotConflictError,
    SnapshotDamagedError,
    SnapshotError,
)
from toolkit.signatures.signing import RULES_VERSION, Learned
from toolkit.snapshots.binding import AccountTag
from toolkit.snapshots.coverage import Coverage
from toolkit.snapshots.data_files import (
    PART_BYTES,
    Part,
    check_written,
    current_scope,
    missing_file_error,
    problem_of,
)
from toolkit.snapshots.manifest import (
    CHECKPOINT,
    DATA_NAME,
    DAYS,
    FORMAT,
    HEARTBEAT,
    INDEX_NAME,
    JUDGED,
    MANIFEST,
    PENDING_NAME,
    SCHEMA_VERSION,
    WATCHED,
    WATCHED_LOCK,
    Kind,
    ListedFile,
    Manifest,
    PendingFile,
    StoredCheckpoint,
    as_stored,
    decode_manifest,
    manifest_bytes,
    read_checkpoint,
    with_receipt,
    write_checkpoint,
    write_manifest,
)
from toolkit.snapshots.store import LOCK, WRITING, HashingFile, SnapshotStore

_DATA: Final = re.compile(rf"\A(?:{DATA_NAME})\Z")
_FINISHED: Final = re.compile(rf"\A(?:{DATA_NAME}|{INDEX_NAME})\Z")
_UNFINISHED: Final = re.compile(
    rf"\A(?:{re.escape(CHECKPOINT)}|{PENDING_NAME}|(?:{DAYS}/\d{{4}}-\d\d-\d\d/)?"
    r"_(?:part|index|manifest|checkpoint|heartbeat)[-.0-9a-z]*\.[0-9a-f]{16}\.tmp)\Z"
)
_OF_JOBS: Final = frozenset({LOCK, HEARTBEAT, JUDGED, WATCHED, WATCHED_LOCK})
"""Files next to a snapshot that are no part of it."""
_NAMED: Final = 3  # damaged files that an error names; further ones are counted


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Sizes and clocks of writing, which tests replace by small numbers and other clocks."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    every: float = 30.0
    """Seconds between checkpoints. A kill loses at most the work of this time; shorter loads write none."""
    batch_bytes: int = 8 << 20
    """Bytes of Arrow data that are written at a time, because each call has a cost."""
    spool_bytes: int = 64 << 20
    """Most bytes of Arrow data buffered in memory."""
    group_bytes: int = 16 << 20
    """A row group is written when this many bytes of Arrow data are waiting. A small group is read alone if
    a question is about a short time, and is a small partition of Dask."""
    part_bytes: int = PART_BYTES
    chunk_bytes: int = 32 << 20
    """Most bytes of Arrow data in a file of an export. A changed vector makes one such file new."""
    index_rows: int = 10_000
    """A snapshot of at most this number of rows has one index, which each sync writes again."""


class IndexPart(NamedTuple):
    """The index entries of one data file, and the stored index that has the same entries, if any."""

    entries: npt.NDArray[np.void]
    stored: ListedFile | None = None


class Transaction:
    """Exclusive access of a writer to a snapshot of one kind; see `begin`."""

    def __init__(self, store: SnapshotStore, kind: Kind, options: WriteOptions) -> None:
        self.store = store
        self.kind = kind
        self.options = options
        self._before, self._stored_manifest = self._begin()
        self.generation = self._before.generation
        self.previous = self._before if self.generation else None
        self.checkpoint, self.checkpoint_problem = read_checkpoint(store)
        if self.checkpoint and self.checkpoint.generation != self.generation:
            self.checkpoint = None  # the load of this checkpoint has been committed
        self._kept_names: frozenset[str] = frozenset()
        if self.checkpoint:
            self._kept_names = self.checkpoint.names
        self._parts: list[Part] = []
        self._drafts: list[str] = []
        self._naming = False

    def _begin(self) -> tuple[Manifest, bytes]:
        """Return the manifest, and the stored bytes of it. A first writer writes one of generation 0."""
        stored = manifest_bytes(self.store)
        if stored is None:
            _refuse_others(self.store)
            # with it, data files of an interrupted first write differ from a snapshot with a lost manifest
            manifest = self._manifest(generation=0, source="", scope={})
            return manifest, write_manifest(self.store, manifest)

        manifest = decode_manifest(self.store, stored)
        if manifest.generation and manifest.kind != self.kind:
            raise SnapshotBindingError(
                f"writing the snapshot {self.store}",
                got=f"rows for a snapshot of kind {self.kind!r}",
                expected=f"rows of its kind {manifest.kind!r}",
                next_step="Use another folder: the history in this one would be lost.",
            )

        return manifest, stored

    def _manifest(self, **facts: Any) -> Manifest:
        now = self.options.clock().isoformat(timespec="milliseconds")
        return Manifest(
            format=FORMAT,
            schema_version=SCHEMA_VERSION,
            kind=self.kind,
            written_at=now,
            **facts,
        )

    def remove_leftovers(self) -> None:
        """Remove files of a stopped writer. Do not call it before a repair: they can contain lost rows."""
        if self.store.exclusive:
            # without a lock, the files may belong to another writer that is running
            _clear(self.store, self._before, kept=self._kept_names)

    def leftovers(self) -> list[str]:
        """Return data files that no manifest lists, the latest first.

        They are superseded, or were named by a commit that was stopped.
        """
        known = _listed(self._before) | self._kept_names
        names = (
            name
            for name in self.store.names()
            if name not in known and _DATA.match(name)
        )
        return sorted(names, key=lambda name: name.rpartition("/")[2], reverse=True)

    def new_part(self, schema: pa.Schema, *, day: str | None = None) -> Part:
        """Begin a data file, in the folder of the day when the rows were first seen, if `day` is given."""
        name = self._name("part", "parquet", f"{DAYS}/{day}/" if day else "")
        part = Part(
            self.store, name, schema, self.kind, group_bytes=self.options.group_bytes
        )
        self._drafts.append(part.draft)
        self._parts.append(part)

        return part

    def publish(self, part: Part) -> ListedFile:
        """Finish a part and rename it before the commit, which may list it among the files kept."""
        finished = part.finish()
        if finished.path != finished.name:
            self.store.rename(finished.path, finished.name)
            self.store.sync(finished.name)
            self._drafts.append(finished.name)

        return finished.as_listed

    def pending_file(
        self, ending: str, rows: int, write: Callable[[HashingFile], object]
    ) -> PendingFile:
        """Write a file of the checkpoint, flush it to disk, and check that the disk returns it."""
        path = self._name("_checkpoint", ending)
        file = self._new_file(path, write)
        return PendingFile(path=path, rows=rows, bytes=file.bytes, sha256=file.sha256)

    def save_checkpoint(self, checkpoint: StoredCheckpoint) -> None:
        """Replace the checkpoint. The files that it lists stay on the disk until a commit."""
        write_checkpoint(self.store, checkpoint)
        superseded = self._kept_names - checkpoint.names
        self._kept_names = checkpoint.names
        for name in superseded - _listed(self._before):
            self.store.remove(name)

    def located(self, checkpoint: StoredCheckpoint) -> StoredCheckpoint:
        """Return the checkpoint with the present paths of files: a stopped commit may have renamed some."""
        existing = set(self.store.names())
        files = []
        for file in checkpoint.files:
            # A commit renames first and replaces the manifest afterwards. If it was stopped in
            # between, the file has the final name already.
            was_renamed = file.name in existing and file.path not in existing
            files.append(
                msgspec.structs.replace(file, path=file.name) if was_renamed else file
            )

        return msgspec.structs.replace(checkpoint, files=tuple(files))

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint of an earlier load, and the files of it that the snapshot does not have."""
        removed = self._kept_names - _listed(self._before)
        self._kept_names = frozenset()
        self.checkpoint = None
        for name in _checkpoint_first(removed):
            self.store.remove(name)

    @property
    def learned(self) -> Learned:
        """Return the words that signatures of earlier generations have learned with the current rules."""
        if (
            self.previous is None
            or self.previous.learned.rules_version != RULES_VERSION
        ):
            return Learned()

        return self.previous.learned

    def bind(
        self, source: str, scope: dict[str, Any], *, may_widen: bool = False
    ) -> None:
        """Raise SnapshotBindingError if the snapshot belongs to another service or scope.

        With `may_widen`, the snapshot may have had some namespaces of the scope, because all rows are
        replaced.
        """
        before = self.previous
        if before is None:
            return

        stored, requested = current_scope(before), as_stored(scope)
        if may_widen and isinstance(stored.get("namespaces"), list):
            stored = stored | {"namespaces": requested["namespaces"]}
        if (before.source, stored) != (source, requested):
            raise SnapshotBindingError(
                f"writing the snapshot {self.store}",
                got=f"rows of {source or 'an unnamed source'} with the scope {scope}",
                expected=f"rows of {before.source or 'an unnamed source'} with the scope {before.scope}",
                next_step="Use a separate folder for each service and filter.",
            )

    def commit(
        self,
        *,
        source: str,
        scope: dict[str, Any],
        receipt: dict[str, Any] | None,
        parts: Sequence[PendingFile],
        kept: tuple[ListedFile, ...] = (),
        index: Sequence[IndexPart] = (),
        kept_indexes: tuple[ListedFile, ...] = (),
        complete_at: str | None = None,
        learned: Learned | None = None,
        accounts: tuple[AccountTag, ...] = (),
        coverage: Coverage | None = None,
    ) -> Manifest:
        """Commit a generation of the kept files and the finished parts, in this order.

        The index consists of `kept_indexes` if no row has changed, or else of one part per file.
        """
        # The index has one entry per row, in the order of these files.
        files = (*kept, *(part.as_listed for part in parts))
        renamed = [(part.path, part.name) for part in parts]
        indexes = [*kept_indexes]

        for part in self._joined_if_small(index):
            listed = part.stored
            if listed is None:
                draft, listed = self._index(part.entries)
                renamed.append((draft, listed.path))

            indexes.append(listed)

        manifest = self._manifest(
            generation=self.generation + 1,
            source=source,
            scope=scope,
            complete_at=complete_at,
            files=files,
            indexes=tuple(indexes),
            receipts=self._receipts_with(receipt),
            learned=learned or Learned(),
            accounts=accounts,
            coverage=coverage,
        )
        # The order of the steps makes the commit atomic; a writer can be killed after any of them:
        # 1. The manifest is still the one that this transaction began with, and the kept files are intact.
        # 2. The drafts get their final names. No manifest lists them yet, so readers do not see them.
        # 3. The folders are flushed, so that a power cut cannot lose a name that the manifest lists.
        # 4. The manifest is replaced: now readers see the new generation.
        # 5. Files that the new manifest does not list are removed.
        if manifest_bytes(self.store) != self._stored_manifest:
            raise _conflict(self.store)

        if kept and self.previous:
            remaining = msgspec.structs.replace(
                self.previous, files=kept, index=None, indexes=()
            )
            raise_for_damage(self.store, remaining, damages(self.store, remaining))

        # If the commit stops after this, nobody knows whether the manifest was replaced. So `close` removes
        # nothing; the next writer does, by the manifest that it finds.
        self._naming = True
        for draft, name in renamed:
            if draft != name:
                self.store.rename(draft, name)

        self.store.sync(*(name for _, name in renamed))
        content = write_manifest(self.store, manifest)
        self._raise_for_other_writer(manifest, content)
        _clear(self.store, manifest)

        return manifest

    def _receipts_with(
        self, receipt: dict[str, Any] | None
    ) -> tuple[dict[str, Any], ...]:
        """Return the receipts of the next manifest."""
        receipts: tuple[dict[str, Any], ...] = ()
        if self.previous:
            receipts = self.previous.receipts
        if not receipt:
            return receipts

        return with_receipt(receipts, receipt)

    def _raise_for_other_writer(self, manifest: Manifest, content: bytes) -> None:
        """Raise SnapshotConflictError if another writer has committed at the same time.

        Nothing of either commit has been removed then.
        """
        if self.store.exclusive:
            return

        was_replaced = manifest_bytes(self.store) != content
        if was_replaced or not _listed(manifest) <= set(self.store.names()):
            raise _conflict(self.store)

    def close(self) -> None:
        """Close open files, and remove the drafts unless a commit began to rename them."""
        for part in self._parts:
            part.close()
        if self._naming:
            return

        # if a draft cannot be removed now, the next writer removes it
        with suppress(OSError):
            for draft in self._drafts:
                if draft not in self._kept_names:
                    self.store.remove(draft)

    def _name(self, stem: str, ending: str, folder: str = "") -> str:
        # The random part keeps the names of two writers apart in a store
        # without a lock, and no name is used twice.
        return (
            f"{folder}{stem}-{self.generation + 1:06d}-{secrets.token_hex(8)}.{ending}"
        )

    def _joined_if_small(self, index: Sequence[IndexPart]) -> Sequence[IndexPart]:
        """Return one part for all rows if these are few: small files would cost more than they save."""
        rows = sum(len(part.entries) for part in index)
        if not index or rows > self.options.index_rows:
            return index

        return [IndexPart(np.concatenate([part.entries for part in index]))]

    def _index(self, entries: npt.NDArray[np.void]) -> tuple[str, ListedFile]:
        name = self._name("_index", "bin")
        draft = self.store.draft_of(name)
        file = self._new_file(draft, lambda file: file.write(entries.tobytes()))

        return draft, ListedFile(
            path=name, rows=len(entries), bytes=file.bytes, sha256=file.sha256
        )

    def _new_file(
        self, path: str, write: Callable[[HashingFile], object]
    ) -> HashingFile:
        self._drafts.append(path)
        with self.store.new_file(path) as file:
            write(file)
            file.sync()
            check_written(self.store, path, sha256=file.sha256)

        return file


@contextmanager
def begin(
    store: SnapshotStore, kind: Kind, options: WriteOptions
) -> Iterator[Transaction]:
    """Lock a snapshot for one transaction. Without a call of `Transaction.commit`, it does not change."""
    with store.os_errors_named(WRITING):
        store.make()
        with store.locked():
            transaction = Transaction(store, kind, options)
            try:
                yield transaction
            except FileNotFoundError as error:
                raise missing_file_error(store, error) from None
            finally:
                transaction.close()


def unlisted(store: SnapshotStore, manifest: Manifest) -> tuple[str, ...]:
    """Return the files in the store that are not part of the snapshot."""
    checkpoint, _ = read_checkpoint(store)
    pending: frozenset[str] = frozenset()
    if checkpoint:
        pending = checkpoint.names
    listed = {MANIFEST, *_OF_JOBS, *pending}
    listed |= {*_listed(manifest)}

    return tuple(sorted(name for name in store.names() if name not in listed))


def _clear(
    store: SnapshotStore, manifest: Manifest, *, kept: frozenset[str] = frozenset()
) -> None:
    """Remove files of the toolkit that the manifest does not list, for example superseded data files."""
    listed = _listed(manifest) | kept
    own_files = (
        name
        for name in store.names()
        if _FINISHED.match(name) or _UNFINISHED.match(name)
    )
    for name in _checkpoint_first(own_files):
        if name not in listed:
            store.remove(name)


def _checkpoint_first(names: Iterable[str]) -> list[str]:
    """Return names in the order of removal: a checkpoint must not list files that are already removed."""
    return sorted(names, key=lambda name: name != CHECKPOINT)


def _listed(manifest: Manifest) -> set[str]:
    return {file.path for file in manifest.listed}


def _conflict(store: SnapshotStore) -> SnapshotConflictError:
    return SnapshotConflictError(
        f"writing the snapshot {store}",
        got="a manifest that another writer has replaced meanwhile",
        expected="one writer at a time",
        next_step="Make sure that only one process writes, verify the snapshot, and call again.",
    )


def _refuse_others(store: SnapshotStore) -> None:
    """Raise an error if a folder without a manifest contains data files, or files of others."""
    names = [
        name
        for name in store.names()
        if name not in _OF_JOBS and not _UNFINISHED.match(name)
    ]
    if any(_FINISHED.match(name) for name in names):
        raise SnapshotDamagedError(
            f"writing the snapshot {store}",
            got=f"data files without the manifest {MANIFEST!r}",
            expected="data files with their manifest, or an empty folder",
            next_step="Restore the manifest, or use another folder; nothing was removed.",
        )

    if names:
        raise SnapshotError(
            f"writing the snapshot {store}",
            got=f"a folder with other files, such as {names[0]!r}",
            expected="a snapshot, or an empty folder",
            next_step="Use another folder.",
        )


@dataclass(frozen=True)
class Damage:
    """A listed file that is lost, the problem, and whether a file with some bytes is present."""

    listed: ListedFile
    problem: str
    present: bool

    @property
    def is_index(self) -> bool:
        """Return whether it is the index, which a repair makes again from the rows."""
        return self.listed.path.startswith("_index")

    def __str__(self) -> str:
        return f"{self.listed.path} ({self.problem})"


def damages(
    store: SnapshotStore, manifest: Manifest, *, every_byte: bool = False
) -> tuple[Damage, ...]:
    """Return the listed files that are lost: missing, of another size, or changed since they were written.

    Hashes are compared of files that changed after the manifest was written, as the toolkit never changes
    one. If `every_byte`, the hashes of all files are compared.
    """
    states = store.states([MANIFEST, *(file.path for file in manifest.listed)])
    # The manifest is written last. If a file changed later, somebody changed it or copied it here. It is
    # hashed once: the next commit writes a newer manifest.
    committed = states[MANIFEST].changed_at if MANIFEST in states else -1

    damages = []
    for file in manifest.listed:
        state = states.get(file.path)
        if state is None:
            damages.append(Damage(file, "missing", present=False))
        elif state.problem or state.bytes != file.bytes:
            problem = (
                state.problem or f"{state.bytes:,} bytes instead of {file.bytes:,}"
            )
            damages.append(Damage(file, problem, present=state.bytes > 0))
        elif every_byte or state.changed_at > committed:
            problem = problem_of(store, file)
            if problem:
                damages.append(Damage(file, problem, present=True))

    return tuple(damages)


def raise_for_damage(
    store: SnapshotStore, manifest: Manifest, lost: tuple[Damage, ...]
) -> None:
    """Raise SnapshotDamagedError if files are lost. It names the files, the number of rows and the days."""
    if not lost:
        return

    named = "; ".join(str(damage) for damage in lost[:_NAMED])
    if len(lost) > _NAMED:
        named += f"; and {len(lost) - _NAMED:,} more"
    data_files = [damage.listed for damage in lost if not damage.is_index]
    got = f"the index lost: {named}"

    if data_files:
        rows = sum(file.rows for file in data_files)
        got = (
            f"{len(data_files):,} of {len(manifest.files):,} data files lost, with {rows:,} of "
            f"{manifest.rows:,} rows{_days_text(data_files)}: {named}"
        )

    raise SnapshotDamagedError(
        f"syncing the snapshot {store}",
        got=got,
        expected="every file as it was written",
        next_step="Restore it from a backup, or sync with repair=True (toolkit snapshot failures --repair): "
        "that keeps every row that can still be read, adds the entries that are still in the queue again, "
        "and records the rows that stay lost.",
    )


def _days_text(files: list[ListedFile]) -> str:
    """Return when the rows of files were first seen, for example " first seen 2026-11-01 to 2026-11-03"."""
    days = sorted({file.day for file in files if "/" in file.path})
    if not days:
        return ""
    if days[0] == days[-1]:
        return f" first seen {days[0]}"

    return f" first seen {days[0]} to {days[-1]}"
