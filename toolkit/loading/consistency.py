"""Consistency checks of windows: whether they are a partition, and whether entries changed while being read.

The windows are a partition by whatever the service compares their dates with. That is checked, not believed:
the probe is empty, no row comes from two windows, and every row that was read before a window was split comes
again in its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.client.failures import Span
from toolkit.errors import ResponseError
from toolkit.loading.identities import Identities
from toolkit.loading.load import LoadState
from toolkit.loading.paging import MOST_READINGS
from toolkit.loading.windows import FetchResult, Window, merge_spans, uncovered
from toolkit.times import from_milliseconds


class Partition:
    """Which windows of the span `requested` have been read, which are left, and which are read again."""

    def __init__(self, requested: Span, state: LoadState, *, passes: int = 1, splits: bool = True) -> None:
        before = state.position
        self._requested = requested
        self._state = state
        self._passes = passes
        self._pass = int(before.get("pass", 1))
        self._alone = bool(before.get("alone")) or not splits
        self._leaves: list[Span] = [(first, last) for first, last in before.get("done", ())]
        self._done = self._leaves.copy()
        self._open: dict[Window, list[Any]] = {}
        self.not_seen_again: dict[bytes, str] = {}
        """Identities and ids of rows that were read before a window was split, and not since."""
        self._resumes_whole = False
        self._earlier = Identities(state.rows.first(len(state.rows)))
        self.windows = [*self._resumed(before.get("open", ())), *self._unread()]

    def _resumed(self, position: Sequence[Sequence[Any]]) -> list[Window]:
        """The windows that an earlier load had started to read."""
        left = []
        for first, last, cursor, pages, reading, again, compares, repeated in position:
            # its cursor may be lost by now, however often that has happened: it can be read once more
            number = min(reading, MOST_READINGS - 1)
            window = self._window((first, last), again=again, compares=compares, reading=number)
            window.cursor, window.pages, window.repeated = cursor, pages, repeated
            left.append(window)
            self._resumes_whole |= window.whole and cursor is not None
            self._note(window, cursor, pages)
        return left

    def _unread(self) -> list[Window]:
        """Windows for everything that was neither read nor started."""
        again = self._pass > 1
        covered = [*self._leaves, *(window.span for window in self._open)]
        spans = uncovered(self._requested, covered)
        return [self._window(span, again=again, compares=again) for span in spans]

    def _window(self, span: Span, *, again: bool, compares: bool, reading: int = 1) -> Window:
        return Window(
            *span,
            whole=span == self._requested,
            splits=not self._alone,
            again=again,
            compares=compares,
            reading=reading,
        )

    @property
    def position(self) -> dict[str, Any]:
        """What has been read so far, as a JSON-able value."""
        return {
            "pass": self._pass,
            "alone": self._alone,
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
        """Take a page's rows, of these identities and ids; whether all is consistent with a partition."""
        window = result.window
        if window.probe:
            return not identities
        consistent = True
        if is_new is None:
            window.new += len(identities)
        else:
            consistent = self._take_known(window, identities, is_new)
        if window.again or not self._alone:
            window.add(identities, ids)
        self._note(window, result.cursor, result.number)
        if result.outcome == "split":
            self.not_seen_again.update(window.rows)
            self._state.readings += 1
            self._open.pop(window)
        return consistent

    def _take_known(self, window: Window, identities: Sequence[bytes], is_new: Sequence[bool]) -> bool:
        """Count repeated rows of a page that has some; whether none of its rows is from another window."""
        consistent = True
        # the whole, never split, read on from a cursor that an earlier load had reached
        resumes = window.whole and self._resumes_whole
        rows, here = window.rows, set[bytes]()
        for identity, new in zip(identities, is_new, strict=True):
            if new:
                window.new += 1
            elif identity in here or identity in rows:
                window.repeated += 1
            elif identity in self.not_seen_again:
                del self.not_seen_again[identity]
            elif not window.again and (resumes or identity not in self._earlier):
                # with a single window, every known row was read from it, if only before a stop
                consistent = self._alone or resumes
                window.repeated += consistent
            here.add(identity)
        return consistent

    def ended(self, window: Window) -> Window | None:
        """A window was read to its end; the same window, if it has to be read again."""
        if window.probe:
            return None
        changed = window.repeated or (window.compares and window.new)
        if changed and window.reading < MOST_READINGS:
            return self._again(window, compares=True)
        if changed:
            reason = (
                f"{window.repeated:,} were read twice, so entries changed while they were read"
                if window.repeated
                else f"{window.new:,} more were found when it was read again"
            )
            self._state.unsettled.append(f"{reason} ({_named(window.span)}, {window.reading} readings)")
        self._open.pop(window, None)
        self._leaves.append(window.span)
        self._done = merge_spans([*self._done, window.span])
        self._state.windows += 1
        return None

    def lost(self, window: Window, error: ResponseError) -> Window:
        """The same window from its start, as the service has lost its cursor; raises when that is no help."""
        if window.reading >= MOST_READINGS:
            raise error
        return self._again(window, compares=window.compares)

    def _again(self, window: Window, *, compares: bool) -> Window:
        following = self._window(window.span, again=True, compares=compares, reading=window.reading + 1)
        self._open.pop(window, None)
        self._note(following, None, 0)
        self._state.reread += 1
        self._state.readings += 1
        return following

    def fall_back(self, reason: str) -> Window:
        """Read the whole with a single cursor from now on, because the windows are not a partition."""
        self._state.notes.append(f"read with a single cursor, because {reason}")
        self._alone = True
        self._done, self._leaves = [], []
        self._open.clear()
        self.not_seen_again.clear()
        self._state.windows = 0
        self._state.readings += 1
        whole = self._window(self._requested, again=True, compares=False)
        self._note(whole, None, 0)
        return whole

    def next_pass(self) -> list[Window]:
        """Everything has been read: the windows to read once more, where that was requested."""
        if self._pass >= self._passes:
            return []
        self._pass += 1
        leaves, self._done, self._leaves = self._leaves, [], []
        self._state.reread += len(leaves)
        self._state.readings += 1
        self._state.windows = 0
        return [self._window(span, again=True, compares=True) for span in leaves]

    def _note(self, window: Window, cursor: str | None, pages: int) -> None:
        """Keep how far a window has been read, as `_resumed` reads it."""
        how = [cursor, pages, window.reading, window.again, window.compares, window.repeated]
        self._open[window] = [*window.span, *how]


def _named(span: Span) -> str:
    if span == (None, None):
        return "all of it"
    first, last = (None if at is None else from_milliseconds(at).isoformat() for at in span)
    return f"{first or 'the oldest'} to {last or 'the newest'}"
