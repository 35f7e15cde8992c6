"""Writing what a sync found, day by day: rows that stay, rows with new marks, and fresh rows.

Files are immutable. One is written again when a row in it was replaced or went; small files of a day are
merged on that occasion, when the day is over, and when there are too many of them. So a day ends as one file,
or as several large ones, and a sync writes at most one new file for each day it touches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.receipt import Receipt
from toolkit.snapshots.changes import Changes, Piece
from toolkit.snapshots.columns import FAILURES_AT_REST, FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE
from toolkit.snapshots.commit import Transaction
from toolkit.snapshots.datafiles import opened_parquet
from toolkit.snapshots.index import Entries, Index
from toolkit.snapshots.manifest import ListedFile
from toolkit.snapshots.parts import PART_BYTES, Part
from toolkit.snapshots.spool import Spool
from toolkit.snapshots.versions import current_columns, is_older
from toolkit.tables.schemas import TIME

SMALL_BYTES: Final = PART_BYTES // 4
"""Files below this are merged."""

MOST_FILES: Final = 8
"""Small files of the day under way; days that are over have one."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = 86_400_000

_Mask = npt.NDArray[np.bool_]
_STAYS, _ADDED, _CHANGED, _GONE = range(4)


@dataclass(frozen=True)
class Fresh:
    """Rows that a sync brings.

    Attributes
    ----------
    entries : numpy.ndarray
        What is remembered of each.
    chosen, added : numpy.ndarray of bool
        Whether it is to be written, and whether its entry was never seen before.
    spools : tuple of Spool
        Where the rows are, one after another.
    """

    entries: Entries
    chosen: _Mask
    added: _Mask
    spools: tuple[Spool, ...]

    def of(self, chosen: _Mask) -> Iterator[tuple[pa.Table, Entries, _Mask]]:
        """These rows in pieces, with their entries and whether they are added."""
        start = 0
        for spool in self.spools:
            count = spool.rows
            for first, table in spool.tables(chosen[start : start + count]):
                rows = slice(start + first, start + first + table.num_rows)
                if chosen[rows].any():
                    picked = chosen[rows]
                    yield table.filter(pa.array(picked)), self.entries[rows][picked], self.added[rows][picked]
            start += count


class _AtRest(NamedTuple):
    """A file of the snapshot as it was, and where its rows begin in the index."""

    listed: ListedFile
    rows: slice


@dataclass
class _Written:
    """A new file with the entries of its rows, and what became of each."""

    part: Part
    entries: list[Entries]
    kinds: list[npt.NDArray[np.uint8]]

    def pieces(self, kind: int) -> Iterator[Piece]:
        places = np.flatnonzero(np.concatenate(self.kinds) == kind) if self.kinds else np.zeros(0, np.int64)
        if len(places):
            yield Piece(self.part.path, len(places), None if len(places) == self.part.rows else places)


class Merge:
    """The last step of a sync.

    Parameters
    ----------
    transaction : Transaction
    index : Index
        What is at rest.
    replaced, gone : numpy.ndarray of bool
        Which rows at rest are replaced by fresh ones, and which are no longer there.
    fresh : Fresh
    receipt : Receipt
    """

    def __init__(
        self,
        transaction: Transaction,
        index: Index,
        replaced: _Mask,
        gone: _Mask,
        fresh: Fresh,
        receipt: Receipt,
    ) -> None:
        self._transaction = transaction
        self._index = index
        self._replaced = replaced
        self._gone = gone
        self._fresh = fresh
        self._receipt = receipt
        # files of an older version are all written again: a snapshot has one set of columns
        self._older = transaction.previous is not None and is_older(transaction.previous)
        self._kept: list[_AtRest] = []
        self._written: list[_Written] = []

    def commit(self, now: int) -> Changes:
        """Write what is to be written, and commit. `now` is in milliseconds since 1970."""
        today = _day(now)
        files = self._files()
        days = self._fresh.entries["first_seen"] // _DAY
        fresh = {_day(int(day) * _DAY): int(day) for day in np.unique(days[self._fresh.chosen])}
        for day in sorted({*files, *fresh}):
            chosen = self._fresh.chosen & (days == fresh[day]) if day in fresh else None
            self._write_day(day, files.get(day, []), chosen, most=MOST_FILES if day == today else 1)
        if not self._written and not self._kept:
            self._keep_columns(today)
        return self._changes(self._committed())

    def _keep_columns(self, today: str) -> None:
        """Have a file without rows, so that any reader can open the folder."""
        before = self._transaction.previous
        if before and not self._older:
            self._kept += [_AtRest(listed, slice(0, 0)) for listed in before.files[:1]]
        if not self._kept:
            self._part(today)

    def _committed(self) -> int:
        before, receipt = self._transaction.previous, self._receipt
        files = tuple(file.listed for file in self._kept)
        same = before is not None and files == before.files and not (self._written or self._index.has_learnt)
        kept = [self._index.entries[file.rows] for file in self._kept]
        written = [entries for one in self._written for entries in one.entries]
        manifest = self._transaction.commit(
            source=receipt.source,
            scope=receipt.scope,
            receipt=receipt.to_dict(),
            kept=files,
            index=before.index
            if before is not None and same
            else b"".join(entries.tobytes() for entries in (*kept, *written)),
            complete_at=receipt.started_at if receipt.complete else before.complete_at if before else None,
        )
        return manifest.rows

    def _changes(self, rows: int) -> Changes:
        added, changed, gone = (
            tuple(piece for one in self._written for piece in one.pieces(kind))
            for kind in (_ADDED, _CHANGED, _GONE)
        )
        return Changes(
            folder=self._transaction.folder,
            receipt=self._receipt,
            rows=rows,
            added_pieces=added,
            changed_pieces=changed,
            gone_pieces=gone,
        )

    def _files(self) -> dict[str, list[_AtRest]]:
        """The files at rest by day, without those that hold no rows."""
        found: dict[str, list[_AtRest]] = {}
        start = 0
        for listed in self._transaction.previous.files if self._transaction.previous else ():
            rows = slice(start, start := start + listed.rows)
            if listed.rows:
                found.setdefault(listed.path.split("/")[1], []).append(_AtRest(listed, rows))
        return found

    def _write_day(self, day: str, files: list[_AtRest], chosen: _Mask | None, *, most: int) -> None:
        touched = [file for file in files if self._touched(file)]
        writes = bool(touched) or chosen is not None
        small = [file for file in files if file.listed.bytes < SMALL_BYTES and file not in touched]
        if touched or len(small) + writes > most:
            touched += small
        merged = [file for file in files if file in touched]
        self._kept += [file for file in files if file not in merged]
        if not writes and not merged:
            return
        before = len(self._written)
        for file in merged:
            self._write_again(day, before, file)
        for table, entries, added in self._fresh.of(chosen) if chosen is not None else ():
            first_seen = pa.array(entries["first_seen"], pa.int64()).cast(TIME)
            columns = [*table.columns, first_seen, *[pa.nulls(len(entries), TIME)] * 2]
            rows = pa.Table.from_arrays(columns, schema=FAILURES_AT_REST)
            self._write(day, before, rows, entries, np.where(added, _ADDED, _CHANGED))
        for written in self._written[before:]:
            self._transaction.finish(written.part, self._receipt.to_dict())

    def _touched(self, file: _AtRest) -> bool:
        return self._older or bool((self._replaced[file.rows] | self._gone[file.rows]).any())

    def _write_again(self, day: str, first: int, file: _AtRest) -> None:
        complete_at = self._transaction.previous.complete_at if self._transaction.previous else None
        start = file.rows.start
        schema = None if self._older else FAILURES_AT_REST
        with opened_parquet(self._transaction.folder, file.listed, schema) as parquet:
            for stored in parquet.tables():
                table = current_columns(stored, "failures") if self._older else stored
                rows = slice(start, start := start + table.num_rows)
                stays, gone = ~self._replaced[rows], self._gone[rows]
                if stays.any():
                    marked = _mark(table, gone, complete_at, self._receipt.ended_at)
                    entries = self._index.entries[rows][stays].copy()
                    entries["gone"] |= gone[stays]
                    kinds = np.where(gone[stays], _GONE, _STAYS)
                    self._write(day, first, marked.filter(pa.array(stays)), entries, kinds)

    def _write(self, day: str, first: int, rows: pa.Table, entries: Entries, kinds: npt.NDArray[Any]) -> None:
        """Add rows to the file of this day that is being written: one of those from the number `first` on."""
        if len(self._written) == first or self._written[-1].part.bytes >= PART_BYTES:
            self._part(day)
        self._written[-1].part.write(rows)
        self._written[-1].entries.append(entries)
        self._written[-1].kinds.append(kinds.astype(np.uint8))

    def _part(self, day: str) -> None:
        self._written.append(_Written(self._transaction.new_part(FAILURES_AT_REST, day=day), [], []))


def _mark(table: pa.Table, gone: _Mask, complete_at: str | None, missed_at: str) -> pa.Table:
    """The rows, with the times between which those that are gone went."""
    last_seen = table.column(FIRST_SEEN_AT).combine_chunks().cast(pa.int64())
    if complete_at:
        last_seen = pc.max_element_wise(last_seen, _instant(complete_at))
    first_missed = pa.repeat(pa.scalar(_instant(missed_at), pa.int64()), len(table))
    for name, times in ((GONE_AFTER, last_seen), (GONE_BEFORE, first_missed)):
        place = table.schema.get_field_index(name)
        marked = pc.if_else(pa.array(gone), times.cast(TIME), table.column(name))
        table = table.set_column(place, table.schema.field(place), marked)
    return table


def milliseconds(time: datetime) -> int:
    """Whole milliseconds since 1970."""
    return (time - _EPOCH) // _MILLISECOND


def _day(milliseconds: int) -> str:
    return (_EPOCH + milliseconds * _MILLISECOND).date().isoformat()


def _instant(text: str) -> int:
    return milliseconds(datetime.fromisoformat(text))
