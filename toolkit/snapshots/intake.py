"""Taking a load in, piece by piece, with checkpoints: what it gave is kept, and the same call goes on there.

A checkpoint is written every so many seconds, and when the load ends by an exception or an interrupt. It
holds exactly the pieces taken in: where that is in doubt, none is written, and the one before it stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

import pyarrow as pa

from toolkit.errors import SnapshotError
from toolkit.loading.load import Batch, Checkpoint, Load, joined
from toolkit.loading.stored_entries import IsStored
from toolkit.receipt import Receipt
from toolkit.snapshots.checkpoint import VERSION, Resting, RestingFile, misfit, read_whole, whole
from toolkit.snapshots.commit import Clock, Transaction
from toolkit.snapshots.interrupts import Hold, holding
from toolkit.snapshots.manifest import SCHEMA_VERSION

EVERY: Final = 30.0
"""Seconds between checkpoints: what a kill loses at most, and what a short load does without."""

BATCH_BYTES: Final = 8 << 20
"""Bytes of Arrow data taken in at a time: each piece has a cost of its own."""

_MEASURED: Final = 8  # of so many tables, one is measured: it is done column by column
_IDENTITY: Final = 16
_KNOWN_BYTES: Final = 64  # that the identity of a row at rest takes while it waits


class Taker(Protocol):
    """What the rows of a load go to."""

    @property
    def rows(self) -> int:
        """Rows taken so far, those of the checkpoint it goes on from included."""

    def take(self, batch: Batch) -> None:
        """Take rows whose ids are new."""

    def take_later(self, table: pa.Table) -> None:
        """Take rows that came again: the later version of what was taken."""

    def rest(self) -> dict[str, Any]:
        """Bring what was taken to the disk; the values of `files`, `later` and `seen` of a checkpoint."""


class _Waiting:
    """Pieces that wait until they are worth taking, and about how many bytes they hold."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.clear()

    def clear(self) -> None:
        """None waits any more."""
        self.batches.clear()
        self._tables, self._rows, self._row_bytes, self._other_bytes = 0, 0, 0.0, 0

    @property
    def bytes(self) -> float:
        """Estimated from some of the tables."""
        return self._rows * self._row_bytes + self._other_bytes

    def add(self, batch: Batch) -> None:
        """One more waits."""
        self.batches.append(batch)
        self._other_bytes += _KNOWN_BYTES * len(batch.stored)
        if batch.later is not None:
            self._other_bytes += batch.later.nbytes
        rows = batch.table.num_rows
        if rows:
            if self._tables % _MEASURED == 0:
                self._row_bytes = max(self._row_bytes, batch.table.nbytes / rows)
            self._tables += 1
            self._rows += rows


class Intake:
    """One load on its way into a snapshot.

    Parameters
    ----------
    transaction : Transaction
        The hold on the snapshot.
    load : Load
        Not begun yet: it goes on from a checkpoint that fits.
    clock : callable
        Gives the time, with a time zone.
    every : float
        Seconds between checkpoints.
    batch_bytes : int
        Bytes of Arrow data taken in at a time.
    monotonic : callable
        Gives seconds.
    checkpoints : bool
        Whether to resume from a checkpoint and to write some. A repair does neither: the rows it has to
        read again are not those that a checkpoint knows.

    Attributes
    ----------
    resting : Resting or None
        The checkpoint gone on from.
    began : datetime
        When the first of the loads began.
    """

    def __init__(
        self,
        transaction: Transaction,
        load: Load,
        *,
        clock: Clock,
        every: float = EVERY,
        batch_bytes: int = BATCH_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
        checkpoints: bool = True,
    ) -> None:
        self._transaction = transaction
        self._load = load
        self._clock = clock
        self._every = every
        self._batch_bytes = batch_bytes
        self._monotonic = monotonic
        self._saved_at = monotonic()
        self._taken = 0
        self._busy = False
        self.note = ""
        self._checkpoints = checkpoints
        self.resting = self._fitting() if checkpoints else None
        self.began = datetime.fromisoformat(self.resting.began_at) if self.resting else clock()
        self._identities = self.resting.identities if self.resting else ()
        self._resume: Checkpoint | None = None
        if self.resting:
            self._resume = Checkpoint(
                position=self.resting.position,
                identities=b"".join(read_whole(transaction.folder, file) for file in self.resting.identities),
                receipt=self.resting.counts,
            )

    def read(self, taker: Taker, *, is_stored: IsStored | None = None) -> Receipt:
        """Read the load to its end. The receipt says so, and which checkpoint could not be resumed.

        `is_stored` tells the load which entries need not be decoded again.
        """
        with holding() as hold:
            self._read(taker, hold, is_stored)
        receipt = self._load.receipt
        return replace(receipt, notes=(*receipt.notes, self.note)) if self.note else receipt

    def _read(self, taker: Taker, hold: Hold, is_stored: IsStored | None) -> None:
        waiting = _Waiting()
        try:
            with closing(self._load.batches(resume=self._resume, is_stored=is_stored)) as batches:
                for batch in batches:
                    with hold:
                        waiting.add(batch)
                        self._take(taker, waiting)
            with hold:
                self._flush(taker, waiting)
                if self._due or self.resting:
                    self._save(taker)
        except BaseException:
            # where taking or saving failed, what was taken is in doubt: the checkpoint before stays
            if not self._busy:
                with hold, suppress(SnapshotError, OSError):
                    self._flush(taker, waiting)
                    self._save(taker)
            raise

    @property
    def _due(self) -> bool:
        return self._monotonic() - self._saved_at >= self._every

    def _take(self, taker: Taker, waiting: _Waiting) -> None:
        due = self._due
        if due or waiting.bytes >= self._batch_bytes:
            self._flush(taker, waiting)
        if due:
            self._save(taker)

    def _flush(self, taker: Taker, waiting: _Waiting) -> None:
        self._busy = True
        if waiting.batches:
            batch = joined(waiting.batches)
            taker.take(batch)
            if batch.later is not None:
                taker.take_later(batch.later)
            self._taken += len(waiting.batches)
            waiting.clear()
        self._busy = False

    def _save(self, taker: Taker) -> None:
        """Write a checkpoint, unless the load gave out other pieces or counts other rows than were taken."""
        stand = self._load.checkpoint()
        same = self._taken == self._load.yielded and len(stand.identities) == _IDENTITY * taker.rows
        if not same or not taker.rows or not self._checkpoints:
            return
        self._busy = True
        rested = _IDENTITY * sum(file.rows for file in self._identities)
        if len(stand.identities) > rested:
            self._identities += (self._rested(stand.identities[rested:]),)
        plan = self._load.plan
        self.resting = Resting(
            version=VERSION,
            schema_version=SCHEMA_VERSION,
            kind=self._transaction.kind,
            source=plan.source,
            scope=plan.scope,
            columns=str(plan.schema),
            generation=self._transaction.generation,
            began_at=self.began.isoformat(),
            written_at=self._clock().isoformat(),
            position=stand.position,
            counts=stand.receipt,
            identities=self._identities,
            **taker.rest(),
        )
        self._transaction.rest(self.resting)
        self._saved_at = self._monotonic()
        self._busy = False

    def _rested(self, identities: bytes) -> RestingFile:
        with self._transaction.new_resting("bin") as file:
            file.file.write(identities)
            return file.finish(rows=len(identities) // _IDENTITY)

    def _fitting(self) -> Resting | None:
        """The checkpoint that was left, if it is one to go on from; any other is cleared away."""
        found = self._transaction.resting
        if found is None:
            return None
        plan = self._load.plan
        expected = {
            "kind": self._transaction.kind,
            "source": plan.source,
            "scope": plan.scope,
            "columns": str(plan.schema),
        }
        problem = found if isinstance(found, str) else misfit(found, expected=expected, now=self._clock())
        if isinstance(found, Resting) and not problem:
            found = self._transaction.located(found)
            if whole(self._transaction.folder, found.listed):
                return found
            problem = "damaged"
        self._transaction.forget()
        self.note = f"a checkpoint was not gone on from: it is {problem}"
        return None
