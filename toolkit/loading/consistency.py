"""Detect rows that are lost or read twice when a queue is read in time windows.

A queue is read in parallel by splitting the requested span into windows, for example one per day. This is
only complete if every entry belongs to exactly one window. The service does not document which date it
compares (creation or failure), so this module checks it while reading:

1. A probe window in the future must be empty. If it is not, the service ignores the dates.
2. A row that arrives from two windows shows that the windows overlap.
3. After a window is split, the rows that were read from it must arrive again from its parts.

If a check fails, the queue is read again with a single cursor (`Partition.fall_back`). This is slower, but
does not depend on dates.

Entries can also be added or deleted while a window is read. A window with repeated rows is read again, up to
`MOST_READINGS` times. If it is still unstable, the receipt names it.

Each window has one `WindowState`; see ``window_states.py`` for the states and the transitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from toolkit.base.errors import ResponseError
from toolkit.base.times import from_milliseconds
from toolkit.loading.identities import Identities
from toolkit.loading.load import LoadState
from toolkit.loading.paging import MOST_READINGS
from toolkit.loading.window_states import Event, Origin, WindowState
from toolkit.loading.windows import FetchResult, Window, merge_spans, uncovered
from toolkit.service.failures import Span


class Partition:
    """The windows of the requested span: which have been read, which are open, and which are read again."""

    def __init__(
        self, requested: Span, state: LoadState, *, passes: int = 1, splits: bool = True
    ) -> None:
        # Checkpoints on disk have these names and flags ("alone", "done", …): keep them when an attribute is
        # renamed.
        before = state.position
        self._requested = requested
        self._state = state
        self._passes = passes
        self._pass = int(before.get("pass", 1))
        self._single_cursor = bool(before.get("alone")) or not splits
        self._leaves: list[Span] = [
            (first, last) for first, last in before.get("done", ())
        ]
        self._done = self._leaves.copy()
        self._open: dict[Window, list[Any]] = {}
        self.not_seen_again: dict[bytes, str] = {}
        """Identities and ids of rows that were read before a window was split, and have not come again."""
        self._continues_whole_span = False
        # A copy: rows that this load adds to `state.rows` must not count as rows of an earlier load.
        self._earlier = Identities(state.rows.first(len(state.rows)))
        self.windows = [*self._resumed(before.get("open", ())), *self._unread()]

    def _resumed(self, position: Sequence[Sequence[Any]]) -> Iterator[Window]:
        """Yield the windows that an interrupted load had started to read."""
        for first, last, cursor, pages, reading, again, compares, repeated in position:
            window = self._window(
                (first, last),
                WindowState.from_flags(expects_known_rows=again, compares=compares),
                # The cursor may be lost by now. Leave one more reading for this case.
                reading=min(reading, MOST_READINGS - 1),
            )
            window.cursor = cursor
            window.pages = pages
            window.repeated_rows = repeated
            if window.whole and cursor is not None:
                self._continues_whole_span = True
            self._note(window, cursor, pages)
            yield window

    def _unread(self) -> list[Window]:
        """Return windows for all spans that have not been started."""
        started = [*self._leaves, *(window.span for window in self._open)]
        state = WindowState.FIRST_READING
        if self._pass > 1:
            state = WindowState.COMPARING
        unread_spans = uncovered(self._requested, started)

        return [self._window(span, state) for span in unread_spans]

    def _window(self, span: Span, state: WindowState, *, reading: int = 1) -> Window:
        return Window(
            *span,
            whole=span == self._requested,
            splits=not self._single_cursor,
            state=state,
            reading=reading,
        )

    @property
    def position(self) -> dict[str, Any]:
        """Return the progress as a JSON value, for checkpoints."""
        return {
            "pass": self._pass,
            "alone": self._single_cursor,
            "done": [list(span) for span in self._done],
            "open": list(self._open.values()),
        }

    def take(
        self,
        result: FetchResult,
        identities: Sequence[bytes],
        ids: Sequence[str],
        is_new: Sequence[bool] | None,
    ) -> bool:
        """Count the rows of a page. Return False if they show that the windows are not a partition.

        `is_new` is None if all rows are new.
        """
        window = result.window
        if window.state is WindowState.PROBE:
            return not identities

        is_consistent = True
        if is_new is None:
            window.new_rows += len(identities)
        else:
            is_consistent = self._take_known(window, identities, is_new)

        # With a single cursor, a known row cannot come from another window: the rows only help if the window
        # is read again.
        if window.state.expects_known_rows or not self._single_cursor:
            window.add(identities, ids)
        self._note(window, result.cursor, result.number)
        if result.outcome == "split":
            self.not_seen_again.update(window.rows)
            self._state.readings += 1
            self._open.pop(window)

        return is_consistent

    def _take_known(
        self, window: Window, identities: Sequence[bytes], is_new: Sequence[bool]
    ) -> bool:
        """Count the rows of a page with known rows. Return False if a row also belongs to another window."""
        # For example, a page of an open window has a new row, a row of a page before, and a row that was read
        # before the window was split off: NEW, SAME_WINDOW and BEFORE_SPLIT.
        counts: Counter[Origin] = Counter()
        seen_on_page: set[bytes] = set()
        for identity, new in zip(identities, is_new, strict=True):
            origin = Origin.NEW if new else self._origin(window, identity, seen_on_page)
            if origin is Origin.BEFORE_SPLIT:
                del self.not_seen_again[identity]
            counts[origin] += 1
            seen_on_page.add(identity)

        window.new_rows += counts[Origin.NEW]
        window.repeated_rows += counts[Origin.SAME_WINDOW]
        return not counts[Origin.OTHER_WINDOW]

    def _origin(
        self, window: Window, identity: bytes, seen_on_page: set[bytes]
    ) -> Origin:
        """Return where a known row was read before."""
        if identity in seen_on_page or identity in window.rows:
            return Origin.SAME_WINDOW
        if identity in self.not_seen_again:
            return Origin.BEFORE_SPLIT
        if window.state.expects_known_rows:
            return Origin.EARLIER_READING
        if window.whole and self._continues_whole_span:
            # The window was never split, so an earlier load read this row with the same cursor.
            return Origin.SAME_WINDOW
        if identity in self._earlier:
            return Origin.EARLIER_LOAD
        if self._single_cursor:
            # There is no other window.
            return Origin.SAME_WINDOW

        return Origin.OTHER_WINDOW

    def ended(self, window: Window) -> Window | None:
        """Record that a window was read to the end. Return it in the next state if it must be read again."""
        if window.state is WindowState.PROBE:
            return None
        if window.has_changed and window.reading < MOST_READINGS:
            return self._read_again(window, Event.ROWS_CHANGED)

        if window.has_changed:
            self._state.unsettled.append(_change(window))
        self._open.pop(window, None)
        self._leaves.append(window.span)
        self._done = merge_spans([*self._done, window.span])
        self._state.windows += 1

        return None

    def lost(self, window: Window, error: ResponseError) -> Window:
        """Return a window whose cursor was lost in the next state. Raise if it was read too often."""
        if window.reading >= MOST_READINGS:
            raise error
        return self._read_again(window, Event.CURSOR_LOST)

    def _read_again(self, window: Window, event: Event) -> Window:
        following = self._window(
            window.span, window.state.after(event), reading=window.reading + 1
        )
        self._open.pop(window, None)
        self._note(following, None, 0)
        self._state.reread += 1
        self._state.readings += 1

        return following

    def fall_back(self, reason: str) -> Window:
        """Return one window that reads everything with a single cursor, because the check failed."""
        self._state.notes.append(f"read with a single cursor, because {reason}")
        self._single_cursor = True
        self._done = []
        self._leaves = []
        self._open.clear()
        self.not_seen_again.clear()
        self._state.windows = 0
        self._state.readings += 1
        # Rows that were yielded stay in the result. As a rereading expects known rows, they are no
        # contradiction.
        whole_span = self._window(self._requested, WindowState.REREADING)
        self._note(whole_span, None, 0)

        return whole_span

    def next_pass(self) -> list[Window]:
        """Return the windows to compare after everything was read. The list is empty after the last pass."""
        if self._pass >= self._passes:
            return []

        self._pass += 1
        # The same windows as in the first pass, which have the right size already. `_done` has merged them.
        leaves = self._leaves
        self._done = []
        self._leaves = []
        self._state.reread += len(leaves)
        self._state.readings += 1
        self._state.windows = 0
        # Windows of the first reading and of a comparison are compared alike.
        state = WindowState.FIRST_READING.after(Event.NEXT_PASS)

        return [self._window(span, state) for span in leaves]

    def _note(self, window: Window, cursor: str | None, pages: int) -> None:
        """Record the progress of a window for checkpoints, in the form that `_resumed` reads."""
        state = window.state
        self._open[window] = [
            *window.span,
            cursor,
            pages,
            window.reading,
            state.expects_known_rows,
            state.compares,
            window.repeated_rows,
        ]


def _change(window: Window) -> str:
    """Return a sentence for the receipt about a window that did not become stable."""
    reason = f"{window.new_rows:,} more were found when it was read again"
    if window.repeated_rows:
        reason = f"{window.repeated_rows:,} were read twice, so entries changed while they were read"
    return f"{reason} ({_span_name(window.span)}, {window.reading} readings)"


def _span_name(span: Span) -> str:
    """Return a span for a message, for example ``2026-01-01T00:00:00+00:00 to the newest``."""
    first, last = span
    if first is None and last is None:
        return "all of it"

    start = "the oldest"
    if first is not None:
        start = from_milliseconds(first).isoformat()
    end = "the newest"
    if last is not None:
        end = from_milliseconds(last).isoformat()
    return f"{start} to {end}"
