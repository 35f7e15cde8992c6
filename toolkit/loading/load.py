"""Run one load: yield batches of rows that are unique by id, and report in a receipt if everything was read.

A load does not know the kind of its rows. The reader yields batches; the load counts the rows, stops at the
limit, and records where a later load can resume.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, compress, repeat
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.errors import (
    IncompleteLoadError,
    IncompleteLoadWarning,
    InputError,
    ToolkitError,
)
from toolkit.base.own_tokens import masked_value
from toolkit.base.progress import ProgressBar
from toolkit.loading.accounts import Account
from toolkit.loading.identities import (
    DIGEST_BYTES,
    Identities,
    IsStored,
    identities,
    row_keys,
)
from toolkit.loading.paging import ProgressGuard
from toolkit.service.pages import Page
from toolkit.tables.failure_times import ClockErrors
from toolkit.tables.frames import to_frame
from toolkit.tables.receipt import ClockError, Receipt, utc_now
from toolkit.tables.schemas import STATED_FAILED_AT

_Identities = list[bytes]
_COUNTS: Final = (
    "pages",
    "requests",
    "bytes",
    "filtered_here",
    "windows",
    "reread",
    "duplicates",
)


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """Description of a load, as the receipt repeats it.

    `key` names the columns that identify a row. With `rereads`, the reader itself reads changed rows again
    and reports what may be incomplete. Otherwise every row that comes twice makes the load doubtful.
    `account` is set if several accounts share the source.
    """

    what: str
    source: str
    scope: dict[str, Any]
    schema: pa.Schema
    key: tuple[str, ...]
    limit: int | None = None
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rereads: bool = False
    account: Account | None = None

    def __post_init__(self) -> None:
        """Mask our own tokens: snapshots and checkpoints are bound to a source and a scope."""
        for name in ("source", "scope"):
            object.__setattr__(self, name, masked_value(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A table of new rows, with identities and other facts about them."""

    table: pa.Table
    order: tuple[
        Any, ...
    ] = ()  # sort key of the batch in the complete frame; the sort is stable
    identities: list[bytes] = field(default_factory=list)
    # digests of the raw rows; empty if unknown
    digests: list[bytes] = field(default_factory=list)
    # more new rows, which a snapshot stores in equal bytes
    stored: list[bytes] = field(default_factory=list)
    # newer versions of rows that were yielded before
    later_versions: pa.Table | None = None
    reread: bool = False  # the page was requested again, so known rows are expected

    @property
    def rows(self) -> int:
        """Return the number of new rows, including rows that a snapshot stores."""
        return int(self.table.num_rows) + len(self.stored)

    def first(self, count: int) -> Batch:
        """Return a batch with only the first rows of the table."""
        return replace(
            self,
            table=self.table.slice(0, count),
            identities=self.identities[:count],
            digests=self.digests[:count],
        )


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Join the batches of a load. Rows without a digest get zeros."""
    with_rows = [batch.table for batch in batches if batch.table.num_rows]
    later = [
        batch.later_versions for batch in batches if batch.later_versions is not None
    ]
    later_versions = None
    if later:
        later_versions = pa.concat_tables(later)
    return Batch(
        table=pa.concat_tables(with_rows or [batches[0].table]),
        identities=_joined(batch.identities for batch in batches),
        digests=_joined(map(_digests, batches)),
        stored=_joined(batch.stored for batch in batches),
        later_versions=later_versions,
    )


def _joined(lists: Iterable[Iterable[bytes]]) -> list[bytes]:
    return list(chain.from_iterable(lists))


def _digests(batch: Batch) -> list[bytes]:
    no_digest = bytes(DIGEST_BYTES)
    return batch.digests or list(repeat(no_digest, batch.table.num_rows))


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything that a later load needs to resume an interrupted load."""

    position: dict[str, Any]
    """Progress up to the last batch yielded, as JSON values."""
    identities: bytes = field(repr=False)
    """16 bytes per row yielded, in order."""
    receipt: dict[str, Any]
    """Counts, number of resumptions, and start of the first load, as JSON values."""


@dataclass
class LoadState:
    """Progress of a load: the counts of the `Receipt`, and the position of the reader."""

    pages: int = 0
    requests: int = 0
    bytes: int = 0
    filtered_here: int = 0
    windows: int = 0
    reread: int = 0
    duplicates: int = 0
    # number of readings started again; known rows may come again in each
    readings: int = 0
    # entries of a page that a filter dropped
    filtered_identities: _Identities = field(default_factory=list)
    # reasons why the result may be incomplete
    unsettled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # of failures with an impossible time
    clocks: ClockErrors = field(default_factory=ClockErrors)
    # JSON values. The dict is replaced, never changed in place, before the batch that it includes is yielded.
    position: dict[str, Any] = field(default_factory=dict)
    rows: Identities = field(default_factory=Identities)  # rows yielded so far
    # a reader does not have to decode entries that are stored
    is_stored: IsStored | None = None

    def count(self, page: Page) -> None:
        """Count a page."""
        self.pages += 1
        self.requests += page.tries
        self.bytes += page.size

    def counts(self) -> dict[str, Any]:
        """Return the counts so far as JSON values."""
        counted = {name: getattr(self, name) for name in _COUNTS}
        lists = {
            "unsettled": [*self.unsettled],
            "notes": [*self.notes],
            "clocks": self.clocks.counts,
        }
        return counted | lists

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue the counts of an interrupted load."""
        self.position = checkpoint.position
        self.rows = Identities(checkpoint.identities)
        counts = {
            name: value + checkpoint.receipt.get(name, type(value)())
            for name, value in self.counts().items()
        }
        self.clocks = ClockErrors(counts.pop("clocks"))
        for name, value in counts.items():
            setattr(self, name, value)

    def batch(
        self,
        table: pa.Table,
        row_ids: _Identities,
        is_new: list[bool] | None,
        **known: Any,
    ) -> Batch:
        """Return the batch of a table.

        `row_ids` are the identities of the rows, `is_new` is the result of adding them.
        """
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

    plan: LoadPlan
    read: Callable[[LoadState], Generator[pa.Table | Batch]]
    progress: Callable[[], ProgressBar]
    clock: Callable[[], str] = utc_now
    state: LoadState = field(default_factory=LoadState, init=False)
    # Number, position, rows and counts after the last batch. One attribute, so that an interrupt cannot split
    # it.
    _progress: tuple[int, dict[str, Any], int, dict[str, Any]] = field(
        default=(0, {}, 0, {}), init=False, repr=False
    )
    _resumed: int = field(default=0, init=False)
    _rows: int = field(default=0, init=False)
    _started: str = field(default="", init=False)
    _ended: str = field(default="", init=False)
    _reached_limit: bool = field(default=False, init=False)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the tables. A load can be read once."""
        with closing(self.batches()) as batches:
            for batch in batches:
                if batch.table.num_rows:
                    yield batch.table

    def batches(
        self, *, resume: Checkpoint | None = None, is_stored: IsStored | None = None
    ) -> Generator[Batch]:
        """Yield batches of new rows, with later versions of rows that were yielded before.

        `resume` is the checkpoint of an interrupted load of the same service and scope. The rows of that load
        do not come again. `is_stored` returns which entries a snapshot stores in equal bytes.
        """
        if self._started:
            raise InputError(
                "reading a load",
                got="a load that was read before",
                expected="a new load",
            )

        self._started = self.clock()
        self.state.is_stored = is_stored
        if resume is not None:
            self.state.resume(resume)
            self._started = resume.receipt.get("started_at") or self._started
            self._resumed = int(resume.receipt.get("resumed", 0)) + 1
            self._rows = len(self.state.rows)
            self._progress = (0, self.state.position, self._rows, self.state.counts())

        limit = self.plan.limit
        number = 0
        guard = ProgressGuard(self.plan.what)

        with (
            _interrupts_reraised(),
            self.progress() as progress,
            closing(self.read(self.state)) as tables,
        ):
            for item in tables:
                batch = item
                if not isinstance(item, Batch):
                    batch = self._unique(item)
                position = self.state.position
                if limit is not None and self._rows + batch.table.num_rows >= limit:
                    batch = batch.first(limit - self._rows)
                    self._reached_limit = True

                self._rows += batch.rows
                if STATED_FAILED_AT in batch.table.column_names:
                    self.state.clocks.add(batch.table)
                known, self.state.filtered_identities = (
                    self.state.filtered_identities,
                    [],
                )
                if not batch.rows and batch.later_versions is not None:
                    known += identities(batch.later_versions, self.plan.key)
                guard.page(
                    new=bool(batch.rows), known=known, reading=self.state.readings
                )
                progress.add(
                    batch.rows, retries=max(0, self.state.requests - self.state.pages)
                )
                number += 1
                current = (number, position, self._rows, self.state.counts())
                # No call between the assignment and the yield, so that an interrupt cannot separate them.
                self._progress = current
                yield batch
                if self._reached_limit:
                    break

        self._ended = self.clock()

    @property
    def batches_yielded(self) -> int:
        """Return the number of batches yielded, which is also the number that `checkpoint` covers."""
        return self._progress[0]

    def checkpoint(self) -> Checkpoint:
        """Return the progress.

        It is valid while the load waits for the consumer, and after it ended or raised.
        """
        _, position, rows, counts = self._progress
        receipt = counts | {
            "started_at": self._started or self.clock(),
            "resumed": self._resumed,
        }

        return Checkpoint(
            position=position, identities=self.state.rows.first(rows), receipt=receipt
        )

    @property
    def receipt(self) -> Receipt:
        """Return the receipt. Before the end of the load, it is incomplete for this reason."""
        counts = self.state.counts()
        reasons = []
        if not self._ended:
            reasons.append("the load did not end")
        if self._reached_limit:
            reasons.append(f"only the first {self.plan.limit:,} were requested")
        if self.state.duplicates and not self.plan.rereads:
            reasons.append(
                f"{self.state.duplicates:,} were read twice, so entries changed while being read"
            )

        reasons += counts.pop("unsettled")
        del counts["clocks"]

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
            clocks=tuple(
                ClockError(*error) for error in self.state.clocks.by_destination
            ),
            **counts
            | {
                "windows": max(1, self.state.windows),
                "notes": (*self.plan.notes, *self.state.notes),
            },
        )

    def frame(
        self,
        *,
        resume: Checkpoint | None = None,
        after_batch: Callable[[], None] | None = None,
    ) -> pd.DataFrame:
        """Read everything into one frame with a receipt. `after_batch` is called after each batch."""
        batches: list[Batch] = []
        try:
            with closing(self.batches(resume=resume)) as incoming:
                for batch in incoming:
                    batches.append(batch)
                    if after_batch is not None:
                        after_batch()
        except (ToolkitError, KeyboardInterrupt) as error:
            if not any(batch.table.num_rows for batch in batches):
                raise
            raise self._interrupted(batches, error) from error

        table, receipt = self._joined(batches)
        if not receipt.complete and not self._reached_limit:
            warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=3)
        return to_frame(table, receipt)

    def _joined(self, batches: list[Batch]) -> tuple[pa.Table, Receipt]:
        """Return the rows of all batches in their latest versions, and the receipt."""
        receipt = self.receipt
        if not batches:
            return self.plan.schema.empty_table(), receipt

        table = pa.concat_tables(_in_order(batches))
        later = [batch for batch in batches if batch.later_versions is not None]
        if not later:
            return table, receipt

        table, changed, unexpected = self._latest(table, later)
        duplicates = max(0, receipt.duplicates - unexpected)
        return table, replace(receipt, duplicates=duplicates, changed=changed)

    def _interrupted(
        self, batches: list[Batch], error: BaseException
    ) -> IncompleteLoadError:
        """Return the error of a load that stopped after some rows, with these rows as `partial`."""
        partial = to_frame(pa.concat_tables(_in_order(batches)), self.receipt)
        reason = "an interrupt"
        if isinstance(error, ToolkitError):
            reason = str(error)
        return IncompleteLoadError(
            f"loading {self.plan.what}",
            partial=partial,
            got=f"{len(partial):,} rows, then {reason}",
            next_step="The rows read so far are in .partial of the exception. Call again to load everything.",
        )

    def _unique(self, table: pa.Table) -> Batch:
        row_ids = identities(table, self.plan.key)
        return self.state.batch(table, row_ids, self.state.rows.add(row_ids))

    def _latest(self, table: pa.Table, later: list[Batch]) -> tuple[pa.Table, int, int]:
        """Replace rows by their later versions.

        Return the table, the number of rows that changed, and the number of changes that were not expected.
        """
        versions = pa.concat_tables(batch.later_versions for batch in later)
        new_keys = row_keys(versions, self.plan.key)
        replaced = pc.index_in(new_keys, value_set=row_keys(table, self.plan.key))
        # Mostly no row has changed: compare all at once before comparing one by one.
        if replaced.null_count == 0 and table.take(replaced).equals(versions):
            return table, 0, 0

        is_unexpected = _are_unexpected(later)
        candidates = pa.concat_tables([table, versions])
        chosen_rows = list(range(table.num_rows))

        changed: set[int] = set()
        changed_unexpectedly = 0
        for number, position in enumerate(replaced.to_pylist()):
            if position is None:  # the row is beyond the limit
                continue
            candidate = table.num_rows + number

            current_row = candidates.slice(chosen_rows[position], 1)
            if not candidates.slice(candidate, 1).equals(current_row):
                chosen_rows[position] = candidate
                changed.add(position)
                changed_unexpectedly += is_unexpected[number]

        latest = candidates.take(pa.array(chosen_rows, pa.int64()))
        return latest, len(changed), changed_unexpectedly


def _are_unexpected(later: list[Batch]) -> list[bool]:
    """Return for each later version whether it came without a second request for the page."""
    flags: list[bool] = []
    for batch in later:
        count = len(batch.later_versions or ())
        flags += repeat(not batch.reread, count)

    return flags


def _in_order(batches: list[Batch]) -> list[pa.Table]:
    return [batch.table for batch in sorted(batches, key=lambda batch: batch.order)]


@contextmanager
def _interrupts_reraised() -> Iterator[None]:
    """Raise Ctrl-C as KeyboardInterrupt.

    An interrupt between two steps of `Condition.wait` becomes a RuntimeError of the lock.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
