"""Comparing a load with the failures at rest: what is new, what changed, what is gone.

Rows are written as they come. An older file is rewritten only when a row in it was replaced or went.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import SnapshotError
from toolkit.receipt import Receipt
from toolkit.snapshots.changes import Changes, Piece
from toolkit.snapshots.columns import FAILURES_AT_REST, FIRST_SEEN_AT, GONE, GONE_BETWEEN
from toolkit.snapshots.commit import Change, Part
from toolkit.snapshots.datafiles import opened_parquet, tables
from toolkit.snapshots.fingerprints import fingerprints
from toolkit.snapshots.index import Entries, Index, new_entries
from toolkit.snapshots.manifest import ListedFile
from toolkit.tables.schemas import TIME

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = 86_400_000

_Mask = npt.NDArray[np.bool_]


class Comparison:
    """One sync under way: which rows at rest were seen, and what was written.

    Parameters
    ----------
    change : Change
        The hold on the snapshot.
    index : Index
        What is at rest.
    now : datetime
        When rows seen for the first time are said to be seen.
    """

    def __init__(self, change: Change, index: Index, now: datetime) -> None:
        self._change = change
        self._index = index
        self._now = _milliseconds(now)
        self._seen: _Mask = np.zeros(len(index), dtype=bool)
        self._replaced: _Mask = np.zeros(len(index), dtype=bool)
        self._added: dict[str, Part] = {}
        self._changed: dict[str, Part] = {}
        # by path, in the order the parts began: the order of their rows in the new index
        self._entries: dict[str, list[Entries]] = {}

    def take(self, table: pa.Table) -> None:
        """Compare rows with those at rest; write the new and the changed ones."""
        ids, content = fingerprints(table.select(["dlq_id"])), fingerprints(table)
        places = self._index.find(ids)
        known = places >= 0
        before = self._index.entries[places[known]]
        if self._seen[places[known]].any() or _repeated(places[known]):
            raise self._twice()
        self._seen[places[known]] = True

        entries = new_entries(ids, content, self._now)
        self._write(self._added, table, ~known, entries)
        entries["first_seen"][known] = before["first_seen"]
        # an entry that was marked gone is there again: a new row in its place takes the mark away
        different = np.zeros(len(ids), dtype=bool)
        different[known] = (before["content"] != content[known]) | before["gone"]
        self._replaced[places[different]] = True
        days = entries["first_seen"] // _DAY
        for day in np.unique(days[different]):
            self._write(self._changed, table, different & (days == day), entries)

    def finish(self, receipt: Receipt) -> Changes:
        """Mark what is gone, if the load can tell, and commit."""
        new = [entries["id"] for path in self._path_of(self._added) for entries in self._entries[path]]
        if new and _repeated(np.concatenate(new)):
            raise self._twice()
        before = self._change.previous
        gone = ~self._seen & ~self._index.entries["gone"] & receipt.complete
        kept, gone_pieces = self._rewrite(gone, receipt)
        if not kept and not self._entries:
            # a file without rows still has the columns, so that any reader can open the folder
            self._begin(self._added, _day(self._now))
        files = tuple(listed for listed, _ in kept)
        same = before is not None and files == before.files and not self._entries
        manifest = self._change.commit(
            source=receipt.source,
            scope=receipt.scope,
            receipt=receipt.to_dict(),
            kept=files,
            index=before.index
            if before is not None and same
            else self._new_index([part for _, part in kept]),
            complete_at=receipt.started_at if receipt.complete else before.complete_at if before else None,
        )
        return Changes(
            folder=self._change.folder,
            receipt=receipt,
            rows=manifest.rows,
            added_pieces=_pieces(self._added),
            changed_pieces=_pieces(self._changed),
            gone_pieces=gone_pieces,
        )

    def _rewrite(
        self, gone: _Mask, receipt: Receipt
    ) -> tuple[list[tuple[ListedFile, Entries]], tuple[Piece, ...]]:
        """Write the files again in which a row is replaced or went; the others are kept as they are."""
        before = self._change.previous
        kept: list[tuple[ListedFile, Entries]] = []
        pieces: list[Piece] = []
        start = 0
        for listed in before.files if before else ():
            rows = slice(start, start := start + listed.rows)
            if not (self._replaced[rows].any() or gone[rows].any()):
                kept.append((listed, self._index.entries[rows]))
                continue
            marked = np.flatnonzero(gone[rows][~self._replaced[rows]])
            path = self._rewrite_file(
                listed, self._replaced[rows], gone[rows], self._index.entries[rows], receipt
            )
            if len(marked):
                pieces.append(Piece(path, len(marked), marked))
        if self._entries or any(listed.rows for listed, _ in kept):
            kept = [(listed, entries) for listed, entries in kept if listed.rows]
        return kept, tuple(pieces)

    def _rewrite_file(
        self, listed: ListedFile, replaced: _Mask, gone: _Mask, entries: Entries, receipt: Receipt
    ) -> str:
        parts: dict[str, Part] = {}
        before = self._change.previous
        complete_at = before.complete_at if before else None
        start = 0
        with opened_parquet(self._change.folder, listed, FAILURES_AT_REST) as parquet:
            for table in tables(parquet):
                rows = slice(start, start := start + table.num_rows)
                stays = ~replaced[rows]
                if not stays.any():
                    continue
                marked = _mark(table, gone[rows], complete_at, receipt.ended_at).filter(pa.array(stays))
                remaining = entries[rows][stays].copy()
                remaining["gone"] |= gone[rows][stays]
                part = self._begin(parts, listed.path.split("/")[1])
                part.write(marked)
                self._entries[part.path].append(remaining)
        return next((part.path for part in parts.values()), "")

    def _write(self, parts: dict[str, Part], table: pa.Table, chosen: _Mask, entries: Entries) -> None:
        """Write the chosen rows, all first seen on one day, and remember their entries."""
        if not chosen.any():
            return
        picked = entries[chosen]
        part = self._begin(parts, _day(int(picked["first_seen"][0])))
        first_seen = pa.array(picked["first_seen"], pa.int64()).cast(TIME)
        rows = table.replace_schema_metadata(None).filter(pa.array(chosen))
        at_rest = [*rows.columns, first_seen, pa.nulls(len(picked), GONE)]
        part.write(pa.Table.from_arrays(at_rest, schema=FAILURES_AT_REST))
        self._entries[part.path].append(picked)

    def _begin(self, parts: dict[str, Part], day: str) -> Part:
        """The part of a day, begun when it is first asked for."""
        if day not in parts:
            parts[day] = self._change.new_part(FAILURES_AT_REST, day=day)
            self._entries[parts[day].path] = []
        return parts[day]

    def _new_index(self, kept: list[Entries]) -> bytes:
        written = [entries for several in self._entries.values() for entries in several]
        return b"".join(entries.tobytes() for entries in (*kept, *written))

    @staticmethod
    def _path_of(parts: dict[str, Part]) -> list[str]:
        return [part.path for part in parts.values()]

    def _twice(self) -> SnapshotError:
        return SnapshotError(
            f"syncing the snapshot {self._change.folder}",
            got="an entry twice in one load",
            expected="each dlq_id once",
            next_step="Sync again. The snapshot is as it was.",
        )


def _mark(table: pa.Table, gone: _Mask, complete_at: str | None, missed_at: str) -> pa.Table:
    """The rows, with the times between which those that are gone went."""
    last_seen = table.column(FIRST_SEEN_AT).combine_chunks().cast(pa.int64())
    if complete_at:
        last_seen = pc.max_element_wise(last_seen, _instant(complete_at))
    first_missed = pa.repeat(pa.scalar(_instant(missed_at), pa.int64()), len(table))
    times = pa.StructArray.from_arrays([last_seen.cast(TIME), first_missed.cast(TIME)], fields=list(GONE))
    before = table.column(GONE_BETWEEN).combine_chunks()
    place = table.schema.get_field_index(GONE_BETWEEN)
    return table.set_column(place, table.schema.field(place), pc.if_else(pa.array(gone), times, before))


def _pieces(parts: dict[str, Part]) -> tuple[Piece, ...]:
    return tuple(Piece(part.path, part.rows, None) for part in parts.values())


def _repeated(values: npt.NDArray[Any]) -> bool:
    return len(np.unique(values)) != len(values)


def _milliseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND


def _day(milliseconds: int) -> str:
    return (_EPOCH + milliseconds * _MILLISECOND).date().isoformat()


def _instant(text: str) -> int:
    return _milliseconds(datetime.fromisoformat(text))
