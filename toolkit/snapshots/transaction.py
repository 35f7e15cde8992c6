"""One transaction of a snapshot, from acquiring the lock to removing superseded files.

Data is written to drafts, flushed to disk and read again. At the commit the drafts get their names, and
the manifest is replaced atomically: from then on readers see the new generation, before it the old one. What
a writer that stops leaves behind, the next one removes.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.errors import SnapshotBindingError, SnapshotConflictError, SnapshotDamagedError, SnapshotError
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
    Kind,
    ListedFile,
    Manifest,
    PendingFile,
    StoredCheckpoint,
    as_stored,
    decode_manifest,
    kept_receipts,
    manifest_bytes,
    read_checkpoint,
    write_checkpoint,
    write_manifest,
)
from toolkit.snapshots.store import LOCK, HashingFile, SnapshotStore

_DATA: Final = re.compile(rf"\A(?:{DATA_NAME})\Z")
_FINISHED: Final = re.compile(rf"\A(?:{DATA_NAME}|{INDEX_NAME})\Z")
_UNFINISHED: Final = re.compile(
    rf"\A(?:{re.escape(CHECKPOINT)}|{PENDING_NAME}|(?:{DAYS}/\d{{4}}-\d\d-\d\d/)?"
    r"_(?:part|index|manifest|checkpoint|heartbeat)[-.0-9a-z]*\.[0-9a-f]{16}\.tmp)\Z"
)
_NAMED: Final = 3  # damaged files that an error names


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How a snapshot is written, so that tests can do it with small numbers and another clock."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    every: float = 30.0
    """Seconds between checkpoints: what a kill loses at most, and what a short load does without."""
    batch_bytes: int = 8 << 20
    """Bytes of Arrow data that are written at a time: each call has a cost of its own."""
    spool_bytes: int = 64 << 20
    """Most bytes of Arrow data buffered in memory."""
    group_bytes: int = 64 << 20
    """A row group is written when this many bytes of Arrow data are waiting."""
    part_bytes: int = PART_BYTES


class Transaction:
    """A writer's hold on a snapshot of one kind; see `begin`."""

    def __init__(self, store: SnapshotStore, kind: Kind, options: WriteOptions) -> None:
        self.store = store
        self.kind = kind
        self.options = options
        self._before, self._found = self._begin()
        self.generation = self._before.generation
        self.previous = self._before if self.generation else None
        self.checkpoint, self.checkpoint_problem = read_checkpoint(store)
        if self.checkpoint and self.checkpoint.generation != self.generation:
            self.checkpoint = None  # what it was for has been committed
        self._kept_names = self.checkpoint.names if self.checkpoint else frozenset()
        self._parts: list[Part] = []
        self._drafts: list[str] = []
        self._naming = False

    def _begin(self) -> tuple[Manifest, bytes]:
        """The manifest, and its bytes as they are stored; a first writer writes one of generation 0."""
        stored = manifest_bytes(self.store)
        if stored is None:
            _refuse_others(self.store)
            # generation 0: data files without a manifest mean an interrupted first write, not a lost manifest
            manifest = self._manifest(generation=0, source="", scope={})
            return manifest, write_manifest(self.store, manifest)
        manifest = decode_manifest(self.store, stored)
        if manifest.generation and manifest.kind != self.kind:
            raise SnapshotBindingError(
                f"writing the snapshot {self.store}",
                got=f"rows for a snapshot of kind {self.kind!r}",
                expected=f"rows for one of kind {manifest.kind!r}, which it is",
                next_step="Use another folder: this one's history would be lost.",
            )
        return manifest, stored

    def _manifest(self, **facts: Any) -> Manifest:
        now = self.options.clock().isoformat(timespec="milliseconds")
        return Manifest(format=FORMAT, schema_version=SCHEMA_VERSION, kind=self.kind, written_at=now, **facts)

    def remove_leftovers(self) -> None:
        """Remove what a stopped writer left. Not before a repair: lost rows may be in it."""
        if self.store.exclusive:  # elsewhere it may belong to another writer that is running
            _clear(self.store, self._before, kept=self._kept_names)

    def leftovers(self) -> list[str]:
        """Data files that no manifest lists: superseded, or named by a stopped commit; the latest first."""
        known = _listed(self._before) | self._kept_names
        names = (name for name in self.store.names() if name not in known and _DATA.match(name))
        return sorted(names, key=lambda name: name.rpartition("/")[2], reverse=True)

    def new_part(self, schema: pa.Schema, *, day: str | None = None) -> Part:
        """Begin a data file, in the folder of the day first seen where there is one."""
        name = self._name("part", "parquet", f"{DAYS}/{day}/" if day else "")
        part = Part(self.store, name, schema, self.kind, group_bytes=self.options.group_bytes)
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

    def pending_file(self, ending: str, rows: int, write: Callable[[HashingFile], object]) -> PendingFile:
        """Write a file of the checkpoint, flush it to disk, and check that the disk returns it."""
        path = self._name("_checkpoint", ending)
        file = self._new_file(path, write)
        return PendingFile(path=path, rows=rows, bytes=file.bytes, sha256=file.sha256)

    def save_checkpoint(self, checkpoint: StoredCheckpoint) -> None:
        """Replace the checkpoint. What it lists stays on the disk until a commit."""
        write_checkpoint(self.store, checkpoint)
        superseded, self._kept_names = self._kept_names - checkpoint.names, checkpoint.names
        for name in superseded:
            self.store.remove(name)

    def located(self, checkpoint: StoredCheckpoint) -> StoredCheckpoint:
        """The checkpoint, with its data files where they are: a stopped commit may have named some."""
        there = set(self.store.names())
        files = tuple(
            msgspec.structs.replace(file, path=file.name)
            if file.name in there and file.path not in there
            else file
            for file in checkpoint.files
        )
        return msgspec.structs.replace(checkpoint, files=files)

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint that an earlier load left, and its files."""
        removed, self._kept_names, self.checkpoint = self._kept_names, frozenset(), None
        for name in sorted(removed, key=lambda name: name != CHECKPOINT):
            self.store.remove(name)

    @property
    def learned(self) -> Learned:
        """What the signatures of earlier generations taught; nothing where other rules made them."""
        known = self.previous.learned if self.previous else Learned()
        return known if known.rules_version == RULES_VERSION else Learned()

    def bind(self, source: str, scope: dict[str, Any]) -> None:
        """Raise `SnapshotBindingError` when the snapshot belongs to another service or scope."""
        before = self.previous
        if before is not None and (before.source, current_scope(before)) != (source, as_stored(scope)):
            raise SnapshotBindingError(
                f"writing the snapshot {self.store}",
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
        parts: Sequence[PendingFile],
        kept: tuple[ListedFile, ...] = (),
        index: ListedFile | list[npt.NDArray[np.void]] | None = None,
        complete_at: str | None = None,
        learned: Learned | None = None,
        accounts: tuple[AccountTag, ...] = (),
        coverage: Coverage | None = None,
    ) -> Manifest:
        """Make the files kept and the finished parts, in this order, the snapshot."""
        receipts = self.previous.receipts if self.previous else ()
        if receipt:  # the manifest has gaps once, in its coverage
            receipts = kept_receipts((*receipts, receipt | {"gaps": []}))
        files = (*kept, *(part.as_listed for part in parts))
        named = [(part.path, part.name) for part in parts]
        if isinstance(index, list):
            draft, index = self._index(index, sum(file.rows for file in files))
            named.append((draft, index.path))
        manifest = self._manifest(
            generation=self.generation + 1,
            source=source,
            scope=scope,
            complete_at=complete_at,
            files=files,
            index=index,
            receipts=receipts,
            learned=learned or Learned(),
            accounts=accounts,
            coverage=coverage,
        )
        if manifest_bytes(self.store) != self._found:
            raise _conflict(self.store)
        if kept and self.previous:
            remaining = msgspec.structs.replace(self.previous, files=kept, index=None)
            raise_for_damage(self.store, remaining, damages(self.store, remaining))
        self._naming = True
        for draft, name in named:
            if draft != name:
                self.store.rename(draft, name)
        self.store.sync(*(name for _, name in named))
        content = write_manifest(self.store, manifest)
        if not self.store.exclusive:  # another writer may have committed at the same time
            replaced = manifest_bytes(self.store) != content
            if replaced or not _listed(manifest) <= set(self.store.names()):
                raise _conflict(self.store)  # before anything of either is removed
        _clear(self.store, manifest)
        return manifest

    def close(self) -> None:
        """Close what is open, and remove the drafts unless they began to get their names."""
        for part in self._parts:
            part.close()
        if not self._naming:
            # what cannot be removed now, the next writer removes
            with suppress(OSError):
                for draft in self._drafts:
                    if draft not in self._kept_names:
                        self.store.remove(draft)

    def _name(self, stem: str, ending: str, folder: str = "") -> str:
        return f"{folder}{stem}-{self.generation + 1:06d}-{secrets.token_hex(8)}.{ending}"

    def _index(self, entries: list[npt.NDArray[np.void]], rows: int) -> tuple[str, ListedFile]:
        name = self._name("_index", "bin")
        draft = self.store.draft_of(name)
        file = self._new_file(draft, lambda file: [file.write(some.tobytes()) for some in entries])
        return draft, ListedFile(path=name, rows=rows, bytes=file.bytes, sha256=file.sha256)

    def _new_file(self, path: str, write: Callable[[HashingFile], object]) -> HashingFile:
        self._drafts.append(path)
        with self.store.new_file(path) as file:
            write(file)
            file.sync()
            check_written(self.store, path, sha256=file.sha256)
        return file


@contextmanager
def begin(store: SnapshotStore, kind: Kind, options: WriteOptions) -> Iterator[Transaction]:
    """Hold a snapshot for one transaction. Without a call of `Transaction.commit`, it stays as it was."""
    with store.os_errors_named("writing"):
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
    """Files in the store that are not part of the snapshot."""
    checkpoint, _ = read_checkpoint(store)
    pending = checkpoint.names if checkpoint else ()
    listed = {MANIFEST, LOCK, HEARTBEAT, JUDGED, *_listed(manifest), *pending}
    return tuple(sorted(name for name in store.names() if name not in listed))


def _clear(store: SnapshotStore, manifest: Manifest, *, kept: frozenset[str] = frozenset()) -> None:
    """Remove our own files that the manifest does not list: superseded, or left by a stopped writer."""
    listed = _listed(manifest) | kept
    ours = (name for name in store.names() if _FINISHED.match(name) or _UNFINISHED.match(name))
    # the checkpoint first: it may not list what is no longer there
    for name in sorted(ours, key=lambda name: name != CHECKPOINT):
        if name not in listed:
            store.remove(name)


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
    of_jobs = {LOCK, HEARTBEAT, JUDGED}
    names = [name for name in store.names() if name not in of_jobs and not _UNFINISHED.match(name)]
    if any(_FINISHED.match(name) for name in names):
        raise SnapshotDamagedError(
            f"writing the snapshot {store}",
            got=f"data files without the manifest {MANIFEST!r}",
            expected="both, or an empty folder",
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
    """A listed file that is lost, what is wrong with it, and whether there is a file with bytes in it."""

    listed: ListedFile
    problem: str
    present: bool

    @property
    def is_index(self) -> bool:
        """Whether it holds no rows: a repair makes it again from them."""
        return self.listed.path.startswith("_index")

    def __str__(self) -> str:
        return f"{self.listed.path} ({self.problem})"


def damages(store: SnapshotStore, manifest: Manifest, *, every_byte: bool = False) -> tuple[Damage, ...]:
    """The listed files that are lost: missing, of another size, or changed since they were written.

    The hash is compared of files that changed after the manifest was written (no file of ours does), or of
    all.
    """
    states = store.states([MANIFEST, *(file.path for file in manifest.listed)])
    committed = states[MANIFEST].changed_at if MANIFEST in states else -1
    damages = []
    for file in manifest.listed:
        state = states.get(file.path)
        if state is None:
            damages.append(Damage(file, "missing", present=False))
        elif state.problem or state.bytes != file.bytes:
            problem = state.problem or f"{state.bytes:,} bytes instead of {file.bytes:,}"
            damages.append(Damage(file, problem, present=state.bytes > 0))
        elif (every_byte or state.changed_at > committed) and (problem := problem_of(store, file)):
            damages.append(Damage(file, problem, present=True))
    return tuple(damages)


def raise_for_damage(store: SnapshotStore, manifest: Manifest, lost: tuple[Damage, ...]) -> None:
    """Raise `SnapshotDamagedError` where files are lost: which, with how many rows, of which days."""
    if not lost:
        return
    data = [damage.listed for damage in lost if not damage.is_index]
    rows = sum(file.rows for file in data)
    named = "; ".join(str(damage) for damage in lost[:_NAMED])
    more = f"; and {len(lost) - _NAMED:,} more" if len(lost) > _NAMED else ""
    count = f"{len(data):,} of {len(manifest.files):,} data files"
    days = sorted({file.day for file in data if "/" in file.path})
    seen = f" first seen {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
    raise SnapshotDamagedError(
        f"syncing the snapshot {store}",
        got=f"{count} lost, with {rows:,} of {manifest.rows:,} rows{seen}: {named}{more}"
        if data
        else f"the index lost: {named}",
        expected="every file as it was written",
        next_step="Restore it from a backup, or sync with repair=True (toolkit snapshot failures --repair): "
        "that keeps every row which can still be read, adds again what is still in the queue, and records "
        "what stays lost.",
    )
