"""One load: an iterator of tables with rows unique by id, and afterwards the receipt.

A load knows nothing of what it loads: it is given pages as tables, watches ids, counts work, and says at the
end whether everything was read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import compress
from typing import Any, NamedTuple, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import IncompleteLoadError, IncompleteLoadWarning, InputError, ToolkitError
from toolkit.loading.identities import identities, keys
from toolkit.loading.paging import Idleness
from toolkit.loading.progress import Progress
from toolkit.loading.work import Checkpoint, Piece, Work
from toolkit.own_tokens import masked_value
from toolkit.receipt import Receipt
from toolkit.tables.frames import to_frame

T = TypeVar("T")

__all__ = ["Checkpoint", "Load", "Piece", "Plan", "Work"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a load is about: what its receipt repeats.

    Attributes
    ----------
    what, source, scope, assumptions
        As in `Receipt`.
    schema : pyarrow.Schema
    key : tuple of str
        Columns whose values tell rows apart.
    limit : int or None
    """

    what: str
    source: str
    scope: dict[str, Any]
    schema: pa.Schema
    key: tuple[str, ...]
    limit: int | None = None
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Mask our own tokens: snapshots and checkpoints are bound to a source and a scope."""
        for name in ("source", "scope"):
            object.__setattr__(self, name, masked_value(getattr(self, name)))


class _Given(NamedTuple):
    """Where a load is with a piece: its number, position, rows and counts, all of the same moment."""

    pieces: int
    position: dict[str, Any]
    rows: int
    counts: dict[str, Any]


@dataclass
class Load:
    """An iterator of `pyarrow.Table`: the rows of a collection, unique by id across the whole load.

    Attributes
    ----------
    plan : Plan
    tables : callable
        Given the load's `Work`, reads: an iterator of tables, or of `Piece`. It is closed when the load ends,
        however it ends.
    resumed_from : Checkpoint, optional
        Of the load that this one goes on with. Its rows are known and do not come again.
    work : Work
    """

    plan: Plan
    tables: Callable[[Work], Iterator[pa.Table | Piece]]
    progress: Callable[[], Progress]
    resumed_from: Checkpoint | None = None
    work: Work = field(default_factory=Work)
    _given: _Given = field(default_factory=lambda: _Given(0, {}, 0, {}), repr=False)
    _rows: int = 0
    _started: str = ""
    _ended: str = ""
    _reached_limit: bool = False

    def __iter__(self) -> Iterator[pa.Table]:
        """Read. A load can be read once."""
        with closing(self.pieces()) as pieces:
            for piece in pieces:
                if piece.table.num_rows:
                    yield piece.table

    def pieces(self) -> Generator[Piece]:
        """Read, and hand on what is known of the rows beside them, and later versions of rows."""
        with closing(self._pieces()) as pieces:
            for piece, given in pieces:
                # no call in between: an interrupt finds both done, or neither
                self._given = given
                yield piece

    @property
    def given(self) -> int:
        """How many pieces were given out: those that `checkpoint` speaks of."""
        return self._given.pieces

    def checkpoint(self) -> Checkpoint:
        """Where the load is: valid whenever it waits for its reader, has raised, or has ended."""
        _, position, rows, counts = self._given
        before = self.resumed_from.receipt if self.resumed_from else {}
        return Checkpoint(
            position=position,
            identities=self.work.rows.first(rows),
            receipt=counts
            | {"started_at": before.get("started_at") or self._started or _now(), "resumed": self._resumed},
        )

    @property
    def receipt(self) -> Receipt:
        """What the load did. Asked before the end, it says that it did not end."""
        work, before = self.work, self.resumed_from.receipt if self.resumed_from else {}
        reasons = []
        if not self._ended:
            reasons.append("the load did not end")
        if self._reached_limit:
            reasons.append(f"only the first {self.plan.limit:,} were asked for")
        if work.duplicates and not work.settles:
            reasons.append(f"{work.duplicates:,} came twice, so entries moved while they were read")
        reasons.extend(work.unsettled)
        return Receipt(
            what=self.plan.what,
            source=self.plan.source,
            scope=self.plan.scope,
            started_at=before.get("started_at") or self._started or _now(),
            ended_at=self._ended or _now(),
            windows=max(1, work.windows),
            pages=work.pages,
            requests=work.requests,
            retries=work.requests - work.pages,
            rows=self._rows,
            duplicates=work.duplicates,
            reread=work.reread,
            resumed=self._resumed,
            filtered_here=work.filtered_here,
            bytes=work.bytes,
            limit=self.plan.limit,
            assumptions=self.plan.assumptions,
            notes=tuple(work.notes),
            complete=not reasons,
            reasons=tuple(reasons),
        )

    def frame(self) -> pd.DataFrame:
        """Read everything into one frame, with its receipt.

        Raises
        ------
        IncompleteLoadError
            When the load ends short; what was read is its `.partial`.
        """
        read: list[Piece] = []
        later: list[Piece] = []
        try:
            with closing(self.pieces()) as pieces:
                for piece in pieces:
                    if piece.later is not None:
                        later.append(piece)
                    if piece.table.num_rows:
                        read.append(piece)
        except (ToolkitError, KeyboardInterrupt) as error:
            if not read:
                raise
            partial = to_frame(pa.concat_tables(_in_order(read)), self.receipt)
            reason = str(error) if isinstance(error, ToolkitError) else "an interrupt"
            raise IncompleteLoadError(
                f"loading {self.plan.what}",
                partial=partial,
                got=f"{len(partial):,} and then {reason}",
                next_step="The exception's .partial holds them; it is not the whole. Call again for all.",
            ) from error
        whole = pa.concat_tables(_in_order(read)) if read else self.plan.schema.empty_table()
        receipt = self.receipt
        if later:
            whole, changed, unasked = self._latest(whole, later)
            receipt = replace(receipt, duplicates=max(0, receipt.duplicates - unasked), changed=changed)
        frame = to_frame(whole, receipt)
        if not receipt.complete and not self._reached_limit:
            warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=3)
        return frame

    @property
    def _resumed(self) -> int:
        return int(self.resumed_from.receipt.get("resumed", 0)) + 1 if self.resumed_from else 0

    def _pieces(self) -> Generator[tuple[Piece, _Given]]:
        """The pieces with their new rows alone, and where the load is with each."""
        if self._started:
            raise InputError("reading a load", got="a load that was read before", expected="a new one")
        self._started = _now()
        if self.resumed_from is not None:
            self.work.go_on(self.resumed_from)
            self._rows = len(self.work.rows)
            self._given = _Given(0, self.work.position, self._rows, self.work.counts())
        limit, number = self.plan.limit, 0
        idleness, before = Idleness(self.plan.what), self.work.filtered_here
        with self.progress() as progress, _closing(self.tables(self.work)) as tables:
            for item in tables:
                piece = self._unique(item if isinstance(item, Piece) else Piece(table=item))
                position, table = self.work.position, piece.table
                if limit is not None and self._rows + table.num_rows >= limit:
                    table = table.slice(0, limit - self._rows)
                    rows = slice(table.num_rows)
                    found, digests = (piece.found or [])[rows], piece.digests[rows]
                    piece = replace(piece, table=table, found=found, digests=digests)
                    self._reached_limit = True
                count = table.num_rows + len(piece.known)
                self._rows += count
                here = self.work.filtered_here
                idleness.page(new=bool(count) or here > before, seen=self._rows + here)
                before = here
                progress.add(count, retries=max(0, self.work.requests - self.work.pages))
                number += 1
                yield piece, _Given(number, position, self._rows, self.work.counts())
                if self._reached_limit:
                    break
        self._ended = _now()

    def _unique(self, piece: Piece) -> Piece:
        """The piece with the rows whose id is new in its table, and the others as later ones."""
        found = identities(piece.table, self.plan.key) if piece.found is None else piece.found
        fresh = self.work.rows.add([*piece.known, *found])
        if fresh is None:
            return replace(piece, found=found)
        if piece.known:
            raise InputError(
                f"loading {self.plan.what}",
                got="rows at rest in a piece with rows that came before",
                expected="such a piece with all its rows in its table",
            )
        mask = pa.array(fresh, pa.bool_())
        later = piece.table.filter(pc.invert(mask))
        if not piece.asked_again:
            self.work.duplicates += later.num_rows
        return replace(
            piece,
            table=piece.table.filter(mask),
            later=later,
            found=list(compress(found, fresh)),
            digests=list(compress(piece.digests, fresh)),
        )

    def _latest(self, whole: pa.Table, later: list[Piece]) -> tuple[pa.Table, int, int]:
        """The rows, later versions in place; how many there are, and how many came unasked."""
        again = pa.concat_tables(piece.later for piece in later)
        known = pc.index_in(keys(again, self.plan.key), value_set=keys(whole, self.plan.key))
        if known.null_count == 0 and whole.take(known).equals(again):
            return whole, 0, 0
        unasked = [
            not piece.asked_again for piece in later if piece.later for _ in range(piece.later.num_rows)
        ]
        order = list(range(whole.num_rows))
        changed, changed_unasked = set[int](), 0
        both = pa.concat_tables([whole, again])
        for number, place in enumerate(known.to_pylist()):
            # a row beyond a limit has come, but is not in the whole
            row = whole.num_rows + number
            if place is not None and not both.slice(row, 1).equals(both.slice(order[place], 1)):
                order[place] = row
                changed.add(place)
                changed_unasked += unasked[number]
        return both.take(pa.array(order, pa.int64())), len(changed), changed_unasked


@contextmanager
def _closing(tables: Iterator[T]) -> Iterator[Iterator[T]]:
    """Close a generator in the end; other iterators have nothing to close."""
    try:
        yield tables
    finally:
        close = getattr(tables, "close", None)
        if close is not None:
            close()


def _in_order(pieces: list[Piece]) -> list[pa.Table]:
    return [piece.table for piece in sorted(pieces, key=lambda piece: piece.place)]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
