"""A listing with dates, read in windows: from deliveries to pieces of a load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.errors import MalformedResponseError
from toolkit.loading.identities import identities_of
from toolkit.loading.load import Batch, Work
from toolkit.loading.pacing import Pacing
from toolkit.loading.reading import FetchResult, Reading
from toolkit.loading.settling import MOST_SOUGHT, Partition
from toolkit.loading.stored_entries import EntryRecognizer, PartlyStored
from toolkit.loading.windows import Span, Window, Windows

_ASKED_AGAIN: Final = 2  # times that a malformed page is asked for once more
_OVERLAP = "entries came from two windows of time"
_NO_DATES = "the service did not take the dates of a window of time"
_NOT_SEEN = "entries that were there came from no window of time"
_MANY_NOT_SEEN = f"more than {MOST_SOUGHT} entries that had been there came from no window of time"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A listing with dates.

    Attributes
    ----------
    asked : (int or None, int or None)
        Its first and last millisecond, where it is bounded.
    page : callable
        Given a transport and a window, the window's next page.
    tables : callable
        From the rows of several pages to a table of each. Raises `MalformedResponseError` at the first page
        that turns out to be malformed, behind the tables of those before it.
    exists : callable
        Given a transport and an id, whether there is such an entry.
    key : str
        The column of the id.
    recognizer : EntryRecognizer, optional
        Recognises entries that a snapshot has stored.
    """

    asked: Span
    page: Callable[[Transport, Window], Page]
    tables: Callable[[Sequence[bytes]], Iterator[pa.Table]]
    exists: Callable[[Transport, str], bool]
    key: str
    recognizer: EntryRecognizer | None = None


class Reader:
    """Reads a listing in windows.

    Parameters
    ----------
    listing : Listing
    work : Work
    transport : Transport
        Closed in the end.
    pacing : Pacing or None
        The transport's, if it has ours.
    connections : int
    passes : int
    limit : int or None
        Nothing is split or read ahead for a first look.
    """

    def __init__(
        self,
        listing: Listing,
        work: Work,
        transport: Transport,
        *,
        pacing: Pacing | None,
        connections: int,
        passes: int,
        limit: int | None,
    ) -> None:
        self._listing = listing
        self._work = work
        self._transport = transport
        self._pacing = pacing
        self._partition = Partition(
            listing.asked, work, passes=passes if limit is None else 1, splits=limit is None
        )
        windows = Windows(self._partition.windows, connections=connections, now=int(time.time() * 1000))
        self._reading = Reading(
            windows,
            lambda window: listing.page(transport, window),
            connections=connections,
            width=(lambda: pacing.width) if pacing else (lambda: connections),
            waits=(lambda: pacing.waits) if pacing else (lambda: True),
            ahead=limit is None,
        )

    def batches(self) -> Iterator[Batch]:
        """The rows, as they come. However this ends, no thread of it is left."""
        try:
            while deliveries := self._take():
                yield from self._settled(deliveries)
        finally:
            self._reading.stop()
            if self._pacing is not None:
                self._pacing.stop()
            self._transport.close()
            self._reading.join()

    def _take(self) -> list[FetchResult]:
        """What has come, or what comes of reading once more; nothing when all is done."""
        while True:
            deliveries = self._reading.take()
            if deliveries:
                return deliveries
            reason = self._missing()
            if reason:
                self._fall_back(reason)
            elif following := self._partition.next_pass():
                self._reading.add(following)
            else:
                return []

    def _missing(self) -> str | None:
        """What is wrong with the windows, if rows that were seen before a split were not seen again.

        They may be gone from the listing. One that is still there came from no window.
        """
        awaited = self._partition.awaited
        if len(awaited) > MOST_SOUGHT:
            return _MANY_NOT_SEEN
        for dlq_id in awaited.values():
            self._work.requests += 1
            if self._listing.exists(self._transport, dlq_id):
                return _NOT_SEEN
        awaited.clear()
        return None

    def _settled(self, deliveries: list[FetchResult]) -> Iterator[Batch]:
        decoded = self._decoded([delivery for delivery in deliveries if delivery.page])
        for delivery in deliveries:
            window = delivery.window
            if delivery.page is None:
                if self._refused(delivery):
                    return
                continue
            recognised, table = next(decoded)
            self._work.count(delivery.page)
            if recognised and recognised.stored and not self._work.rows.are_new(recognised.identities):
                # some came with a page in between: the later version has to be looked at
                recognised, (table,) = None, self._listing.tables([delivery.page.rows])
            ids = recognised.ids if recognised else table[self._listing.key].to_pylist()
            found = recognised.identities if recognised else identities_of(ids)
            twice = self._partition.twice(window)
            apart = self._partition.take(delivery, found, ids)
            reread = self._partition.twice(window) == twice or window.again
            if not apart:
                self._fall_back(_NO_DATES if window.probe else _OVERLAP)
            elif delivery.outcome == "end":
                again = self._partition.ended(window)
                if again:
                    self._reading.add([again])
            self._work.position = self._partition.position
            place = float("-inf") if window.last is None else -window.last
            fresh = self._work.rows.add(found)
            if recognised and recognised.stored:
                yield Batch(
                    table=table,
                    order=(place,),
                    identities=recognised.fresh,
                    digests=recognised.digests,
                    stored=recognised.stored,
                    reread=reread,
                )
            else:
                digests = recognised.digests if recognised else []
                yield self._work.batch(table, found, fresh, order=(place,), digests=digests, reread=reread)
            if not apart:
                return  # what else came will come again

    def _decoded(self, deliveries: Sequence[FetchResult]) -> Iterator[tuple[PartlyStored | None, pa.Table]]:
        """What is at rest of each page as it came, where that can be told, and a table of all else."""
        pages = [delivery.page.rows for delivery in deliveries if delivery.page]
        found: Sequence[PartlyStored | None] = [None] * len(pages)
        if self._work.is_stored is not None and self._listing.recognizer is not None:
            are_new, is_stored = self._work.rows.are_new, self._work.is_stored
            found = list(self._listing.recognizer.recognise(pages, are_new=are_new, is_stored=is_stored))
        rows = [one.rows if one else page for page, one in zip(pages, found, strict=True)]
        return zip(found, self._tables(deliveries, rows), strict=True)

    def _tables(self, deliveries: Sequence[FetchResult], rows: list[bytes]) -> Iterator[pa.Table]:
        """A table of each page. One that turns out to be malformed only here is asked for again."""
        done = asked = 0
        while done < len(rows):
            try:
                for table in self._listing.tables(rows[done:]):
                    yield table
                    done, asked = done + 1, 0
            except MalformedResponseError as error:
                asked += 1
                if asked > _ASKED_AGAIN:
                    raise
                rows[done] = self._asked_again(deliveries[done], error)

    def _asked_again(self, delivery: FetchResult, error: MalformedResponseError) -> bytes:
        window = delivery.window
        page = self._listing.page(self._transport, Window(*window.span, cursor=delivery.asked))
        self._work.requests += page.tries
        if page.cursor != delivery.cursor:
            raise error  # where it leads was not to be trusted, and what was read behind it neither
        return page.rows

    def _refused(self, delivery: FetchResult) -> bool:
        """Go on without a page; whether all else that came counts for nothing, too."""
        self._work.requests += 1
        if delivery.outcome == "lost" and delivery.error is not None:
            self._reading.add([self._partition.lost(delivery.window, delivery.error)])
            return False
        self._fall_back(_NO_DATES)
        return True

    def _fall_back(self, reason: str) -> None:
        self._reading.only(self._partition.fall_back(reason))
