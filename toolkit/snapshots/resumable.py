"""Loads into a snapshot that can be stopped, resumed and repeated.

A checkpoint contains exactly the batches that were added to the sink. If that is in doubt, for example after
an error of the disk, no checkpoint is written, and the previous one stays. Rows that wait for the end of a
load are spooled: first in memory, then in files.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from types import FrameType
from typing import Any, Final, Protocol

import pyarrow as pa

from toolkit.base.errors import SnapshotError
from toolkit.base.own_tokens import MASK
from toolkit.loading.identities import Identities, IsStored
from toolkit.loading.load import Batch, Checkpoint, Load, join_batches
from toolkit.snapshots.binding import any_is_there, may_be_other, tag_of
from toolkit.snapshots.data_files import damage_error, problem_of, read_checked
from toolkit.snapshots.manifest import (
    CHECKPOINT_VERSION,
    SCHEMA_VERSION,
    PendingFile,
    StoredCheckpoint,
)
from toolkit.snapshots.row_index import WIDTH, Mask
from toolkit.snapshots.store import HashingFile
from toolkit.snapshots.transaction import Transaction
from toolkit.tables.receipt import Receipt

_STORED_BYTES: Final = 64  # bytes of memory for the identity of a stored row
_REQUESTED: Final = 5  # entries of a checkpoint that are requested, to tell whose it is

_Handler = Callable[[int, FrameType | None], object]


class Spool:
    """Tables in order of arrival, numbered by their rows; `files` were written by an earlier run."""

    def __init__(
        self,
        transaction: Transaction,
        schema: pa.Schema,
        files: tuple[PendingFile, ...] = (),
    ) -> None:
        self.files = files
        self._transaction = transaction
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(file.rows for file in self.files) + sum(
            int(table.num_rows) for table in self._waiting
        )

    def add(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._transaction.options.spool_bytes:
            self.save()

    def save(self) -> tuple[PendingFile, ...]:
        """Flush the tables in memory to the disk, and return all files, in order."""
        if self._waiting:
            waiting = sum(table.num_rows for table in self._waiting)
            written = self._transaction.pending_file("arrow", waiting, self._write)
            self.files, self._waiting, self._waiting_bytes = (
                (*self.files, written),
                [],
                0,
            )

        return self.files

    def _write(self, file: HashingFile) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(file, self._schema, options=options) as stream:
            for table in self._waiting:
                # one record batch per table, so that they can be read again one by one
                stream.write_batch(table.combine_chunks().to_batches()[0])

    def tables(self, chosen: Mask | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of the first row of each table, and the table.

        Files without chosen rows are not read.
        """
        start = 0
        for listed in self.files:
            if chosen is not None and not chosen[start : start + listed.rows].any():
                start += listed.rows
                continue
            for batch in self._record_batches(listed):
                yield start, pa.Table.from_batches([batch])
                start += len(batch)

        for table in self._waiting:
            yield start, table
            start += table.num_rows

    def _record_batches(self, listed: PendingFile) -> Iterator[pa.RecordBatch]:
        store = self._transaction.store
        with store.open(listed.path) as file:
            try:
                with closing(pa.ipc.open_stream(file)) as stream:
                    if not stream.schema.equals(self._schema):
                        raise damage_error(
                            store,
                            listed,
                            "other columns or types",
                            "the columns of the load",
                        )

                    yield from stream
            except (pa.ArrowException, OSError) as error:
                raise damage_error(
                    store, listed, str(error), "an Arrow stream"
                ) from None


class RowSink(Protocol):
    """A destination for the rows of a load."""

    @property
    def rows(self) -> int:
        """Return the number of rows added, including the rows of the checkpoint that it resumes from."""

    def add(self, batch: Batch) -> None:
        """Add rows whose ids are new."""

    def add_later(self, table: pa.Table) -> None:
        """Add later versions of rows that were added before."""

    def save(self) -> dict[str, Any]:
        """Write all rows to disk, and return `files`, `later` and `seen` of a checkpoint."""


class ResumableLoad:
    """One load into a snapshot, which resumes from the checkpoint of an interrupted load if it fits.

    A repair neither resumes nor writes `checkpoints`: it has to read rows again that a checkpoint counts as
    seen.
    """

    def __init__(
        self, transaction: Transaction, load: Load, *, checkpoints: bool = True
    ) -> None:
        self._transaction = transaction
        self._options = transaction.options
        self._load = load
        self._saved_at = self._options.monotonic()
        self._added = 0
        self._busy = False
        self._note = ""
        self._checkpoints = checkpoints
        self._waiting: list[Batch] = []
        self._waiting_bytes = 0
        self.checkpoint = self._fitting() if checkpoints else None
        self.began = self._options.clock()

        self._identities: tuple[PendingFile, ...] = ()
        self._resume: Checkpoint | None = None
        if self.checkpoint:
            self.began = datetime.fromisoformat(self.checkpoint.began_at)
            self._identities = self.checkpoint.identities
            self._resume = Checkpoint(
                position=self.checkpoint.position,
                identities=b"".join(
                    read_checked(transaction.store, file) for file in self._identities
                ),
                receipt=self.checkpoint.counts,
            )

    def read(self, sink: RowSink, *, is_stored: IsStored | None = None) -> Receipt:
        """Read the load to the end, and return the receipt, with a note if a checkpoint was not used."""
        with delayed_signals() as delayed:
            try:
                with closing(
                    self._load.batches(resume=self._resume, is_stored=is_stored)
                ) as batches:
                    for batch in batches:
                        with delayed:
                            self._add(sink, batch)

                with delayed:
                    self._flush(sink)
                    if self._due or self.checkpoint:
                        self._save(sink)
            except BaseException:
                # if adding or saving failed, the added rows are in doubt: the previous checkpoint stays
                if not self._busy:
                    with delayed, suppress(SnapshotError, OSError):
                        self._flush(sink)
                        self._save(sink)

                raise

        receipt = self._load.receipt
        # the commit needs the memory, and nothing asks for them again
        self._load.state.rows = Identities()
        if self._note:
            return replace(receipt, notes=(*receipt.notes, self._note))

        return receipt

    @property
    def _due(self) -> bool:
        return self._options.monotonic() - self._saved_at >= self._options.every

    def _add(self, sink: RowSink, batch: Batch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += _size(batch)
        due = self._due
        if due or self._waiting_bytes >= self._options.batch_bytes:
            self._flush(sink)
        if due:
            self._save(sink)

    def _flush(self, sink: RowSink) -> None:
        self._busy = True
        if self._waiting:
            batch = join_batches(self._waiting)
            sink.add(batch)
            if batch.later_versions is not None:
                sink.add_later(batch.later_versions)
            self._added += len(self._waiting)
            self._waiting, self._waiting_bytes = [], 0

        self._busy = False

    def _save(self, sink: RowSink) -> None:
        """Write a checkpoint, unless the load yielded other batches or counts other rows than were added."""
        checkpoint = self._load.checkpoint()
        # The checkpoint would skip entries that it counts as read. If the sink does not have exactly these
        # rows, resuming from it would lose the difference.
        same = (
            self._added == self._load.batches_yielded
            and len(checkpoint.identities) == WIDTH * sink.rows
        )
        if not same or not sink.rows or not self._checkpoints:
            return

        self._busy = True
        # Only the ids since the last checkpoint are written, so that a load of hours
        # does not write all ids every 30 seconds.
        new = checkpoint.identities[
            WIDTH * sum(file.rows for file in self._identities) :
        ]
        if new:
            written = self._transaction.pending_file(
                "bin", len(new) // WIDTH, lambda file: file.write(new)
            )
            self._identities += (written,)

        self.checkpoint = StoredCheckpoint(
            version=CHECKPOINT_VERSION,
            schema_version=SCHEMA_VERSION,
            **self._binding,
            generation=self._transaction.generation,
            began_at=self.began.isoformat(),
            written_at=self._options.clock().isoformat(),
            position=checkpoint.position,
            counts=checkpoint.receipt,
            identities=self._identities,
            account=tag_of(self._load.plan.account),
            **sink.save(),
        )
        self._transaction.save_checkpoint(self.checkpoint)
        self._saved_at = self._options.monotonic()
        self._busy = False

    @property
    def _binding(self) -> dict[str, Any]:
        """Return the attributes that a checkpoint needs so that this load can resume from it."""
        plan, kind = self._load.plan, self._transaction.kind
        return {
            "kind": kind,
            "source": plan.source,
            "scope": plan.scope,
            "columns": str(plan.schema),
        }

    def _fitting(self) -> StoredCheckpoint | None:
        """Return the checkpoint of an interrupted load if this load can resume from it, or remove it."""
        checkpoint = self._transaction.checkpoint
        problem = self._transaction.checkpoint_problem
        if checkpoint is None and not problem:
            return None

        if checkpoint is not None:
            located = self._transaction.located(checkpoint)
            problem = self._mismatch(checkpoint, located)
            if not problem:
                return located

        self._transaction.remove_checkpoint()
        self._note = f"a checkpoint was not resumed: it is {problem}"
        return None

    def _mismatch(self, checkpoint: StoredCheckpoint, located: StoredCheckpoint) -> str:
        """Return the reason why the load cannot resume from a checkpoint; "" if it can."""
        problem = checkpoint.mismatch_reason(
            expected=self._binding, now=self._options.clock()
        )
        if problem:
            return problem
        if any(problem_of(self._transaction.store, file) for file in located.listed):
            return "damaged"
        if self._is_of_other_account(located):
            return "of another token, and none of the entries in it are in the queue"

        return ""

    def _is_of_other_account(self, checkpoint: StoredCheckpoint) -> bool:
        """Return whether none of the rows read last before the stop are visible with the current token."""
        account = self._load.plan.account
        if account is None or not may_be_other(checkpoint.account, account):
            return False

        for file in reversed(checkpoint.files):
            dlq_ids: list[str] = []
            for _, table in Spool(
                self._transaction, self._load.plan.schema, (file,)
            ).tables():
                dlq_ids += table["dlq_id"].to_pylist()

            # The service does not know a masked id, so only other ids can be requested.
            unmasked = [dlq_id for dlq_id in dlq_ids if not MASK.search(dlq_id)]
            if unmasked:
                return not any_is_there(account, reversed(unmasked[-_REQUESTED:]))

        return True


def _size(batch: Batch) -> int:
    """Return about how many bytes of memory a batch takes: the bytes of the buffers are cheap to count."""
    size = int(batch.table.get_total_buffer_size()) + _STORED_BYTES * len(batch.stored)
    if batch.later_versions is not None:
        size += int(batch.later_versions.get_total_buffer_size())
    return size


@contextmanager
def _handled(handlers: Mapping[int, _Handler]) -> Iterator[None]:
    """Handle signals during the block, on the main thread only: other threads have no handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = {
        number: signal.signal(number, handler) for number, handler in handlers.items()
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def delayed_signals() -> Iterator[DelayedSignals]:
    """Handle Ctrl-C and SIGTERM during the block; ``with delayed:`` delays them until an inner block ends."""
    handlers = {
        int(number): signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    # `getsignal` returns a constant, not a function, for a signal that is ignored or has the default action.
    delayed = DelayedSignals(
        {number: handler for number, handler in handlers.items() if callable(handler)}
    )
    with _handled(dict.fromkeys(delayed.handlers, delayed.received)):
        yield delayed


class DelayedSignals:
    """Delays signals that arrive inside a block, then calls the handler of the first one."""

    def __init__(self, handlers: Mapping[int, _Handler]) -> None:
        self.handlers = handlers
        self._inside = False
        self._delayed: list[tuple[int, FrameType | None]] = []

    def received(self, number: int, frame: FrameType | None) -> None:
        """Delay the signal until the end of the block, or handle it at once outside of a block."""
        if self._inside:
            self._delayed.append((number, frame))
        else:
            self.handlers[number](number, frame)

    def __enter__(self) -> None:
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False
        if self._delayed:
            number, frame = self._delayed[0]
            self._delayed = []
            self.handlers[number](number, frame)
