"""Reading ranges over vectors: several side by side, ahead of their reader, until what was read has settled.

A range is all vectors of a namespace whose ids begin with a prefix. It is read again where vectors moved
while it was read: an id came twice, a cursor was lost, or fewer came than the index says there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.client.vectors import IndexInfo, list_page, read_info
from toolkit.errors import AuthenticationError, RateLimitError, ResponseError
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch, Work
from toolkit.loading.memory import check_page
from toolkit.loading.page_size import PAGE_BYTES, PageSize, TooLargeError
from toolkit.loading.paging import walk
from toolkit.loading.read_ahead import DEPTH, ReadAhead, Watch, side_by_side
from toolkit.redaction import Redactor
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_vectors

KEY: Final = ("namespace", "id")
"""Columns that tell vectors apart."""

FIRST: Final = "0"
"""The cursor of a range's first page."""

MOST_READINGS: Final = 3
_AT_ONCE: Final = 4  # ranges read side by side
_READINGS_FOR_COUNTS: Final = 2  # counts may lag: they are no reason to try for long
_CLIENT_ERRORS: Final = range(400, 500)


@dataclass(frozen=True, kw_only=True)
class VectorParts:
    """What comes with each id."""

    vectors: bool = True
    metadata: bool = True
    data: bool = True

    @property
    def names(self) -> list[str]:
        """The parts that come, by name."""
        return [name for name in ("vectors", "metadata", "data") if getattr(self, name)]


@dataclass(frozen=True)
class VectorRange:
    """All vectors of a namespace whose ids begin with a prefix."""

    namespace: str
    prefix: str | None = None

    @property
    def title(self) -> str:
        """What it is, for messages."""
        named = f"namespace {self.namespace!r}" if self.namespace else "the default namespace"
        return f"the vectors of {named}" + (f" with prefix {self.prefix!r}" if self.prefix else "")


@dataclass
class _RangeReading:
    """One reading of a range, and what showed in it that vectors moved.

    Attributes
    ----------
    range : VectorRange
    place : int
        Where the range stands among all.
    number : int
        Which reading of the range it is.
    cursor : str or None
        Of the next page; None at the end.
    rows, twice : int
        Rows read so far, each id once; and those whose id came before in this reading.
    more : int
        Rows that no earlier reading had.
    """

    range: VectorRange
    place: int
    number: int = 1
    cursor: str | None = FIRST
    rows: int = 0
    twice: int = 0
    more: int = 0
    _seen: set[bytes] = field(default_factory=set)

    def add(self, found: Sequence[bytes], fresh: Sequence[bool] | None, page: Page) -> None:
        """A page was read, with rows of these identities, all or some of which come for the first time."""
        new = len(found) if fresh is None else fresh.count(True)
        if self.number > 1:
            self.more += new
            before = len(self._seen)
            self._seen.update(found)
            new = len(self._seen) - before
        self.rows += new
        self.twice += len(found) - new
        self.cursor = page.cursor

    def again(self) -> _RangeReading:
        """The next reading of the range, from its start."""
        return _RangeReading(self.range, self.place, number=self.number + 1)

    @property
    def position(self) -> list[Any]:
        """What a later load needs to go on with it; JSON-able."""
        return [self.range.namespace, self.range.prefix, self.number, self.cursor, self.rows, self.twice]

    @classmethod
    def resumed(cls, one: VectorRange, place: int, position: Sequence[Any]) -> _RangeReading:
        """The reading at a position. One that compares with an earlier one begins anew."""
        if not position:
            return cls(one, place)
        number, cursor, rows, twice = position[2:]
        if number > 1 and cursor is not None:
            return cls(one, place, number)
        return cls(one, place, number, cursor, rows, twice)


class RangeReader:
    """Reads ranges into tables of vectors.

    Parameters
    ----------
    sender : Transport
    work : Work
        Where counts, the position, and what has not settled go.
    info : IndexInfo
        What the index said before.
    include : VectorParts
    redactor : Redactor
        Masks our own tokens.
    limit : int, optional
        Rows that are wanted at most, in all.
    connections : int
        Requests under way, at most.
    passes : int
        Readings of each range, at least.
    memory_limit : float, optional
        Bytes that the rows of a page may take. Default: what there is.
    """

    def __init__(
        self,
        sender: Transport,
        work: Work,
        info: IndexInfo,
        *,
        include: VectorParts,
        redactor: Redactor,
        limit: int | None = None,
        connections: int = 16,
        passes: int = 1,
        memory_limit: float | None = None,
    ) -> None:
        self._memory_limit = memory_limit
        self._sender = sender
        self._work = work
        self._info = info
        self._include = include
        self._masker = ColumnMasker(redactor)
        self._limit = limit
        self._passes = passes
        self._dimension = info.dimension or None
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="vectors")
        self._ahead: list[ReadAhead] = []
        self._positions: dict[VectorRange, list[Any]] = {}
        self._page_bytes = PAGE_BYTES

    def batches(self, ranges: Sequence[VectorRange]) -> Iterator[Batch]:
        """All rows of these ranges, a page at a time, going on from where the work's position says."""
        self._positions = {VectorRange(*entry[:2]): entry for entry in self._work.position.get("ranges", ())}
        readings = [
            _RangeReading.resumed(one, place, self._positions.get(one, ()))
            for place, one in enumerate(ranges)
        ]
        unread = [reading for reading in readings if reading.cursor is not None]
        # the more are read at once, the smaller their pages: what waits takes as much memory as with one
        self._page_bytes = PAGE_BYTES // max(1, min(_AT_ONCE, len(unread)))
        yield from side_by_side(unread, self._opened, most=_AT_ONCE)

    def stop(self) -> None:
        """End what is under way, and wait until no thread is left."""
        for ahead in self._ahead:
            ahead.stop()
        self._sender.close()
        self._pool.shutdown(cancel_futures=True)

    def _opened(self, reading: _RangeReading) -> Iterator[Batch]:
        """Start to read a range, and give its tables."""
        numbers = (self._dimension or 0) if self._include.vectors else 0
        size = PageSize(numbers, most=self._limit, page_bytes=self._page_bytes)
        depth = DEPTH if self._limit is None else min(DEPTH, math.ceil(self._limit / size.rows))
        ahead = ReadAhead(self._asking(reading.range, size), self._pool.submit, depth=depth)
        self._ahead.append(ahead)
        ahead.start(reading.cursor or FIRST)
        return self._settled(reading, ahead, size)

    def _settled(self, reading: _RangeReading, ahead: ReadAhead, size: PageSize) -> Iterator[Batch]:
        """The pieces of a range, read again until nothing has moved meanwhile."""
        while True:
            following = None
            try:
                for page in walk(ahead, what=reading.range.title, first=reading.cursor):
                    batch = self._batch(reading, page, size)
                    if page.cursor is None:
                        following = self._following(reading)
                    self._positions[reading.range] = (following or reading).position
                    self._work.position = {"ranges": list(self._positions.values())}
                    yield batch
            except ResponseError as error:
                if not _is_lost(error, reading) or reading.number >= MOST_READINGS:
                    raise
                following = reading.again()
            if following is None:
                break
            self._work.reread += 1
            reading = following
        self._ahead.remove(ahead)

    def _batch(self, reading: _RangeReading, page: Page, size: PageSize) -> Batch:
        self._work.count(page)
        check_page(page.rows, self._dimension, self._memory_limit)
        table = decode_vectors(
            page.rows,
            page.cut,
            namespace=reading.range.namespace,
            dimension=self._dimension,
            want_vectors=self._include.vectors,
        )
        found = identities(table, KEY)
        size.learn(rows=table.num_rows, size=page.size)
        fresh = self._work.rows.add(found)
        reading.add(found, fresh, page)
        table = self._masker.table(table)
        return self._work.batch(table, found, fresh, order=(reading.place,), reread=reading.number > 1)

    def _following(self, reading: _RangeReading) -> _RangeReading | None:
        """The next reading of the range; None when this one is the last."""
        if self._limit is not None:
            return None
        reason, most = self._movement(reading)
        if reason is not None and reading.number >= most:
            self._work.unsettled.append(f"{reason} in {reading.range.title}")
            return None
        if reason is None and reading.number >= self._passes:
            return None
        return reading.again()

    def _movement(self, reading: _RangeReading) -> tuple[str | None, int]:
        """What shows that vectors moved while they were read, and how many readings to try."""
        if reading.twice:
            return f"{reading.twice:,} came twice", MOST_READINGS
        if reading.more and self._passes > 1:
            return f"{reading.more:,} more came with the last reading", MOST_READINGS
        missing = self._missing(reading)
        return (f"{missing:,} fewer came than the index counts" if missing else None), _READINGS_FOR_COUNTS

    def _missing(self, reading: _RangeReading) -> int:
        """Vectors that the index counted before and counts now, and that were not read."""
        name = reading.range.namespace
        before = self._info.namespaces.get(name, 0)
        if reading.range.prefix or self._info.pending_count or reading.rows >= before:
            return 0
        now = read_info(self._sender)
        return 0 if now.pending_count else max(0, min(before, now.namespaces.get(name, 0)) - reading.rows)

    def _asking(self, one: VectorRange, size: PageSize) -> Callable[[str, Watch], Page]:
        """How to ask for a page of a range, with as many rows as make a page of the size aimed at."""

        def ask(cursor: str, watch: Watch) -> Page:
            refused = 0
            while True:
                rows = size.rows

                def watched(body: bytearray, rows: int = rows) -> bool:
                    return all((watch(body), size.watch(rows, len(body))))

                try:
                    page = list_page(
                        self._sender,
                        namespace=one.namespace,
                        cursor=cursor,
                        limit=rows,
                        prefix=one.prefix,
                        include_vectors=self._include.vectors,
                        include_metadata=self._include.metadata,
                        include_data=self._include.data,
                        watch=watched,
                    )
                except TooLargeError:
                    refused += 1
                else:
                    return replace(page, tries=page.tries + refused)

        return ask


def _is_lost(error: ResponseError, reading: _RangeReading) -> bool:
    """Whether the service no longer knows the cursor: the range can be read from its start."""
    refused = error.status in _CLIENT_ERRORS and not isinstance(error, AuthenticationError | RateLimitError)
    return refused and reading.cursor != FIRST
