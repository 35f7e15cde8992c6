"""One load: an iterator of tables with rows unique by id, and afterwards the receipt.

A load knows nothing of what it loads: it is given pages as tables, watches ids, counts work, and says at the
end whether everything was read.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.pages import Page
from toolkit.errors import IncompleteLoadError, IncompleteLoadWarning, InputError, ToolkitError
from toolkit.loading.progress import Progress
from toolkit.receipt import Receipt
from toolkit.tables.frames import to_frame

T = TypeVar("T")


@dataclass
class Work:
    """What a load has done so far."""

    pages: int = 0
    requests: int = 0
    bytes: int = 0
    filtered_here: int = 0

    def count(self, page: Page) -> None:
        """Add a page's work."""
        self.pages += 1
        self.requests += page.tries
        self.bytes += page.size


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


@dataclass
class Load:
    """An iterator of `pyarrow.Table`: the rows of a collection, unique by id across the whole load.

    Attributes
    ----------
    plan : Plan
    work : Work
    again : list of pyarrow.Table
        Rows that came again, after the first. Their entries moved or changed while they were read.
    """

    plan: Plan
    tables: Callable[[Work], Iterator[pa.Table]]
    progress: Callable[[], Progress]
    work: Work = field(default_factory=Work)
    again: list[pa.Table] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set, repr=False)
    _rows: int = 0
    _started: str = ""
    _ended: str = ""
    _reached_limit: bool = False

    def __iter__(self) -> Iterator[pa.Table]:
        """Read. A load can be read once."""
        if self._started:
            raise InputError("reading a load", got="a load that was read before", expected="a new one")
        self._started = _now()
        with self.progress() as progress:
            for page in self.tables(self.work):
                table = self._unique(page)
                if self.plan.limit is not None and self._rows + table.num_rows >= self.plan.limit:
                    table = table.slice(0, self.plan.limit - self._rows)
                    self._reached_limit = True
                self._rows += table.num_rows
                progress.add(table.num_rows)
                if table.num_rows:
                    yield table
                if self._reached_limit:
                    break
        self._ended = _now()

    @property
    def receipt(self) -> Receipt:
        """What the load did. Asked before the end, it says that it did not end."""
        twice = sum(table.num_rows for table in self.again)
        reasons = []
        if not self._ended:
            reasons.append("the load did not end")
        if self._reached_limit:
            reasons.append(f"only the first {self.plan.limit:,} were asked for")
        if twice:
            reasons.append(f"{twice:,} came twice, so entries moved while they were read")
        return Receipt(
            what=self.plan.what,
            source=self.plan.source,
            scope=self.plan.scope,
            started_at=self._started or _now(),
            ended_at=self._ended or _now(),
            pages=self.work.pages,
            requests=self.work.requests,
            retries=self.work.requests - self.work.pages,
            rows=self._rows,
            duplicates=twice,
            filtered_here=self.work.filtered_here,
            bytes=self.work.bytes,
            limit=self.plan.limit,
            assumptions=self.plan.assumptions,
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
        tables: list[pa.Table] = []
        try:
            tables.extend(self)
        except (ToolkitError, KeyboardInterrupt) as error:
            if not tables:
                raise
            partial = to_frame(pa.concat_tables(tables), self.receipt)
            reason = str(error) if isinstance(error, ToolkitError) else "an interrupt"
            raise IncompleteLoadError(
                f"loading {self.plan.what}",
                partial=partial,
                got=f"{len(partial):,} and then {reason}",
                next_step="The exception's .partial holds them; it is not the whole. Call again for all.",
            ) from error
        whole = pa.concat_tables(tables) if tables else self.plan.schema.empty_table()
        receipt = self.receipt
        if self.again:
            whole, changed = self._latest(whole)
            receipt = replace(receipt, duplicates=receipt.duplicates - changed, changed=changed)
        frame = to_frame(whole, receipt)
        if not receipt.complete and not self._reached_limit:
            warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=3)
        return frame

    def _unique(self, table: pa.Table) -> pa.Table:
        """The rows whose id is new; the others are kept aside."""
        fresh = []
        for identity in _identities(table, self.plan.key):
            fresh.append(identity not in self._seen)
            self._seen.add(identity)
        if all(fresh):
            return table
        mask = pa.array(fresh, pa.bool_())
        self.again.append(table.filter(pc.invert(mask)))
        return table.filter(mask)

    def _latest(self, whole: pa.Table) -> tuple[pa.Table, int]:
        """The rows, with those that came again replaced in place, and how many had new content."""
        places = {identity: place for place, identity in enumerate(_identities(whole, self.plan.key))}
        order = list(range(whole.num_rows))
        both = pa.concat_tables([whole, *self.again])
        changed = 0
        for number, identity in enumerate(_identities(both, self.plan.key)):
            if number >= whole.num_rows and identity in places:
                before = order[places[identity]]
                changed += not both.slice(number, 1).equals(both.slice(before, 1))
                order[places[identity]] = number
        return both.take(pa.array(order, pa.int64())), changed


def _identities(table: pa.Table, key: tuple[str, ...]) -> Iterator[bytes]:
    """16 bytes that stand for each row's id, so that memory does not grow with the ids' length."""
    for parts in zip(*(table[name].to_pylist() for name in key), strict=True):
        yield hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
