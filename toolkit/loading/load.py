"""One load: batches of rows unique by id, and the receipt that says whether everything was read.

A load knows nothing of what it loads: its reader yields batches, and it counts rows, keeps to the limit, and
records where a later load can resume.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.pages import Page
from toolkit.errors import IncompleteLoadError, IncompleteLoadWarning, InputError, ToolkitError
from toolkit.loading.accounts import Account
from toolkit.loading.identities import Identities, IsStored, identities, row_keys
from toolkit.loading.options import ProgressBar
from toolkit.loading.paging import ProgressGuard
from toolkit.own_tokens import masked_value
from toolkit.receipt import Receipt, utc_now
from toolkit.tables.frames import to_frame

_Identities = list[bytes]
_COUNTS: Final = ("pages", "requests", "bytes", "filtered_here", "windows", "reread", "duplicates")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a load is about, as its receipt repeats it.

    `key` names the columns that identify a row. With `rereads`, the reader reads again what changed while it
    was read, and says what may be incomplete; otherwise every row that comes twice makes the load doubtful.
    `account` is set if several accounts share the source.
    """

    what: str
    source: str
    scope: dict[str, Any]
    schema: pa.Schema
    key: tuple[str, ...]
    limit: int | None = None
    assumptions: tuple[str, ...] = ()
    rereads: bool = False
    account: Account | None = None

    def __post_init__(self) -> None:
        """Mask our own tokens: snapshots and checkpoints are bound to a source and a scope."""
        for name in ("source", "scope"):
            object.__setattr__(self, name, masked_value(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A table of new rows, and what is known of them."""

    table: pa.Table
    order: tuple[Any, ...] = ()  # sort key in a frame of the whole; of equal keys, the earlier batch is first
    identities: list[bytes] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)  # of the rows' raw bytes; empty where unknown
    stored: list[bytes] = field(default_factory=list)  # further new rows, stored in a snapshot in these bytes
    later_versions: pa.Table | None = None  # of rows that were yielded before
    reread: bool = False  # requested again, so known rows are not a sign of a concurrent modification

    @property
    def rows(self) -> int:
        """How many rows are new, those that are stored included."""
        return int(self.table.num_rows) + len(self.stored)

    def first(self, count: int) -> Batch:
        """The first rows of its table alone."""
        table, rows = self.table.slice(0, count), slice(count)
        return replace(self, table=table, identities=self.identities[rows], digests=self.digests[rows])


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Batches of a load as one, with zeros for the digests of rows that have none."""
    tables = [batch.table for batch in batches if batch.table.num_rows]
    later = [batch.later_versions for batch in batches if batch.later_versions is not None]
    return Batch(
        table=pa.concat_tables(tables or [batches[0].table]),
        identities=[identity for batch in batches for identity in batch.identities],
        digests=[
            digest for batch in batches for digest in batch.digests or [bytes(16)] * batch.table.num_rows
        ],
        stored=[identity for batch in batches for identity in batch.stored],
        later_versions=pa.concat_tables(later) if later else None,
    )


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that a later load needs to resume where an earlier one stopped."""

    position: dict[str, Any]  # what has been read up to the last batch yielded; JSON-able
    identities: bytes = field(repr=False)  # 16 bytes for each row yielded, in order
    receipt: dict[str, Any]  # counts so far, number of resumptions, when the first load began; JSON-able


@dataclass
class LoadState:
    """What a load has done so far: the counts of its `Receipt`, and what its reader needs to know."""

    pages: int = 0
    requests: int = 0
    bytes: int = 0
    filtered_here: int = 0
    windows: int = 0
    reread: int = 0
    duplicates: int = 0
    readings: int = 0  # that were begun, by which known rows may come again
    filtered_identities: _Identities = field(default_factory=list)  # of a page's entries, dropped here
    unsettled: list[str] = field(default_factory=list)  # reasons why the result may be incomplete
    notes: list[str] = field(default_factory=list)
    # JSON-able; replaced, never changed in place, before the batch is yielded that it includes
    position: dict[str, Any] = field(default_factory=dict)
    rows: Identities = field(default_factory=Identities)  # that were yielded so far
    is_stored: IsStored | None = None  # a reader may leave entries undecoded that are stored

    def count(self, page: Page) -> None:
        """Count a page."""
        self.pages += 1
        self.requests += page.tries
        self.bytes += page.size

    def counts(self) -> dict[str, Any]:
        """What has been counted so far, as JSON-able values."""
        counted = {name: getattr(self, name) for name in _COUNTS}
        return counted | {"unsettled": [*self.unsettled], "notes": [*self.notes]}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Count on from where an earlier load stopped."""
        self.position = checkpoint.position
        self.rows = Identities(checkpoint.identities)
        for name, value in self.counts().items():
            setattr(self, name, value + checkpoint.receipt.get(name, type(value)()))

    def batch(self, table: pa.Table, row_ids: _Identities, is_new: list[bool] | None, **known: Any) -> Batch:
        """The batch of a table whose rows have these identities; `is_new` is what adding them returned."""
        batch = Batch(table=table, identities=row_ids, **known)
        if is_new is None:
            return batch
        mask = pa.array(is_new, pa.bool_())
        later = table.filter(pc.invert(mask))
        if not batch.reread:
            self.duplicates += later.num_rows
        return replace(
            batch,
            table=table.filter(mask),
            later_versions=later,
            identities=list(compress(row_ids, is_new)),
            digests=list(compress(batch.digests, is_new)),
        )


@dataclass
class Load:
    """An iterable of `pyarrow.Table`: the rows of a collection, unique by id across the whole load."""

    plan: Plan
    read: Callable[[LoadState], Generator[pa.Table | Batch]]
    progress: Callable[[], ProgressBar]
    clock: Callable[[], str] = utc_now
    state: LoadState = field(default_factory=LoadState, init=False)
    # after a batch: its number, position, rows and counts
    _progress: tuple[int, dict[str, Any], int, dict[str, Any]] = field(
        default=(0, {}, 0, {}), init=False, repr=False
    )
    _resumed: int = field(default=0, init=False)
    _rows: int = field(default=0, init=False)
    _started: str = field(default="", init=False)
    _ended: str = field(default="", init=False)
    _reached_limit: bool = field(default=False, init=False)

    def __iter__(self) -> Iterator[pa.Table]:
        """Read. A load can be read once."""
        with closing(self.batches()) as batches:
            for batch in batches:
                if batch.table.num_rows:
                    yield batch.table

    def batches(
        self, *, resume: Checkpoint | None = None, is_stored: IsStored | None = None
    ) -> Generator[Batch]:
        """Read, and yield rows with what is known about them, and later versions of rows.

        `resume` is the checkpoint of an earlier load of the same service and scope: its rows are known and do
        not come again. `is_stored` says which entries a snapshot has stored in the same bytes.
        """
        if self._started:
            raise InputError("reading a load", got="a load that was read before", expected="a new one")
        self._started = self.clock()
        self.state.is_stored = is_stored
        if resume is not None:
            self.state.resume(resume)
            self._started = resume.receipt.get("started_at") or self._started
            self._resumed = int(resume.receipt.get("resumed", 0)) + 1
            self._rows = len(self.state.rows)
            self._progress = (0, self.state.position, self._rows, self.state.counts())
        limit, number = self.plan.limit, 0
        guard = ProgressGuard(self.plan.what)
        with _interrupts_reraised(), self.progress() as progress, closing(self.read(self.state)) as tables:
            for item in tables:
                batch = item if isinstance(item, Batch) else self._unique(item)
                position = self.state.position
                if limit is not None and self._rows + batch.table.num_rows >= limit:
                    batch = batch.first(limit - self._rows)
                    self._reached_limit = True
                self._rows += batch.rows
                known, self.state.filtered_identities = self.state.filtered_identities, []
                if not batch.rows and batch.later_versions is not None:
                    known += identities(batch.later_versions, self.plan.key)
                guard.page(new=bool(batch.rows), known=known, reading=self.state.readings)
                progress.add(batch.rows, retries=max(0, self.state.requests - self.state.pages))
                number += 1
                current = (number, position, self._rows, self.state.counts())
                # no call in between: an interrupt finds both done, or neither
                self._progress = current
                yield batch
                if self._reached_limit:
                    break
        self._ended = self.clock()

    @property
    def batches_yielded(self) -> int:
        """How many batches were yielded: those that `checkpoint` covers."""
        return self._progress[0]

    def checkpoint(self) -> Checkpoint:
        """The progress of the load: valid whenever it waits for its consumer, has raised, or has ended."""
        _, position, rows, counts = self._progress
        receipt = counts | {"started_at": self._started or self.clock(), "resumed": self._resumed}
        return Checkpoint(position=position, identities=self.state.rows.first(rows), receipt=receipt)

    @property
    def receipt(self) -> Receipt:
        """What the load did. Before its end, it says that it did not end."""
        counts = self.state.counts()
        reasons = []
        if not self._ended:
            reasons.append("the load did not end")
        if self._reached_limit:
            reasons.append(f"only the first {self.plan.limit:,} were requested")
        if self.state.duplicates and not self.plan.rereads:
            reasons.append(f"{self.state.duplicates:,} were read twice, so entries changed while being read")
        reasons += counts.pop("unsettled")
        return Receipt(
            what=self.plan.what,
            source=self.plan.source,
            scope=self.plan.scope,
            started_at=self._started or self.clock(),
            ended_at=self._ended or self.clock(),
            rows=self._rows,
            retries=self.state.requests - self.state.pages,
            resumed=self._resumed,
            limit=self.plan.limit,
            assumptions=self.plan.assumptions,
            complete=not reasons,
            reasons=tuple(reasons),
            **counts | {"windows": max(1, self.state.windows), "notes": tuple(self.state.notes)},
        )

    def frame(
        self, *, resume: Checkpoint | None = None, after_batch: Callable[[], None] | None = None
    ) -> pd.DataFrame:
        """Read everything into one frame, with its receipt; `after_batch` is called when a batch was kept."""
        read: list[Batch] = []
        try:
            with closing(self.batches(resume=resume)) as batches:
                for batch in batches:
                    read.append(batch)
                    if after_batch is not None:
                        after_batch()
        except (ToolkitError, KeyboardInterrupt) as error:
            if not any(batch.table.num_rows for batch in read):
                raise
            partial = to_frame(pa.concat_tables(_in_order(read)), self.receipt)
            reason = str(error) if isinstance(error, ToolkitError) else "an interrupt"
            raise IncompleteLoadError(
                f"loading {self.plan.what}",
                partial=partial,
                got=f"{len(partial):,} rows, then {reason}",
                next_step="The exception's .partial holds them; it is not the whole. Call again for all.",
            ) from error
        whole = pa.concat_tables(_in_order(read)) if read else self.plan.schema.empty_table()
        receipt = self.receipt
        if later := [batch for batch in read if batch.later_versions is not None]:
            whole, changed, unexpected = self._latest(whole, later)
            receipt = replace(receipt, duplicates=max(0, receipt.duplicates - unexpected), changed=changed)
        frame = to_frame(whole, receipt)
        if not receipt.complete and not self._reached_limit:
            warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=3)
        return frame

    def _unique(self, table: pa.Table) -> Batch:
        row_ids = identities(table, self.plan.key)
        return self.state.batch(table, row_ids, self.state.rows.add(row_ids))

    def _latest(self, whole: pa.Table, later: list[Batch]) -> tuple[pa.Table, int, int]:
        """The rows with later versions in place; how many changed, and how many of these unexpectedly."""
        again = pa.concat_tables(batch.later_versions for batch in later)
        known = pc.index_in(row_keys(again, self.plan.key), value_set=row_keys(whole, self.plan.key))
        if known.null_count == 0 and whole.take(known).equals(again):
            return whole, 0, 0
        unexpected = [not batch.reread for batch in later for _ in range(len(batch.later_versions or ()))]
        order = list(range(whole.num_rows))
        changed, changed_unexpectedly = set[int](), 0
        both = pa.concat_tables([whole, again])
        for number, position in enumerate(known.to_pylist()):
            # a row beyond the limit is not in the whole
            row = whole.num_rows + number
            if position is not None and not both.slice(row, 1).equals(both.slice(order[position], 1)):
                order[position] = row
                changed.add(position)
                changed_unexpectedly += unexpected[number]
        return both.take(pa.array(order, pa.int64())), len(changed), changed_unexpectedly


def _in_order(batches: list[Batch]) -> list[pa.Table]:
    return [batch.table for batch in sorted(batches, key=lambda batch: batch.order)]


@contextmanager
def _interrupts_reraised() -> Iterator[None]:
    """Raise Ctrl-C as what it is: between two steps of `Condition.wait` it becomes an error of its lock."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
