"""Consistency checks of windows: whether they are a partition, and whether entries changed while being read.

The windows are a partition by whatever the service compares their dates with. That is checked, not believed:
the probe is empty, no row comes from two windows, and every row that was read before a window was split comes
again in its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from toolkit.errors import ResponseError
from toolkit.loading.identities import Identities
from toolkit.loading.load import Work
from toolkit.loading.paging import MOST_READINGS
from toolkit.loading.windows import FetchResult, Span, Window, joined, uncovered

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _WindowReading:
    """One reading of a window: its rows, and the signs of a concurrent modification among them."""

    repeated: int = 0
    new: int = 0
    _rows: dict[bytes, str] = field(default_factory=dict)
    _pages: list[tuple[Sequence[bytes], Sequence[str]]] = field(default_factory=list)

    def add(self, identities: Sequence[bytes], ids: Sequence[str]) -> None:
        """Remember a page's rows."""
        self._pages.append((identities, ids))

    @property
    def rows(self) -> dict[bytes, str]:
        """Its rows so far: identities and ids. Made on demand, as it is seldom needed."""
        for identities, ids in self._pages:
            self._rows.update(zip(identities, ids, strict=True))
        self._pages.clear()
        return self._rows


class Partition:
    """Which windows of the span `requested` have been read, which are left, and which are read again."""

    def __init__(self, requested: Span, work: Work, *, passes: int = 1, splits: bool = True) -> None:
        before = work.position
        self._requested = requested
        self._work = work
        self._passes = passes
        self._pass = int(before.get("pass", 1))
        self._alone = bool(before.get("alone")) or not splits
        self._leaves: list[Span] = [(first, last) for first, last in before.get("done", ())]
        self._done = self._leaves.copy()
        self._open: dict[Window, list[Any]] = {}
        self._readings: dict[Window, _WindowReading] = {}
        self._awaited: dict[bytes, str] = {}
        self._resumes_whole = False
        self._earlier = Identities(work.rows.first(len(work.rows)))
        self.windows = [*self._resumed(before.get("open", ())), *self._unread()]

    def _resumed(self, position: Sequence[Sequence[Any]]) -> list[Window]:
        """The windows that an earlier load had started to read."""
        left = []
        for first, last, cursor, pages, reading, again, compares, repeated in position:
            window = Window(
                first,
                last,
                whole=(first, last) == self._requested,
                splits=not self._alone,
                again=again,
                compares=compares,
                # its cursor may be lost by now, however often that has happened: it can be read once more
                reading=min(reading, MOST_READINGS - 1),
                cursor=cursor,
                pages=pages,
            )
            left.append(window)
            self._resumes_whole |= window.whole and cursor is not None
            self._readings[window] = _WindowReading(repeated)
            self._note(window, cursor, pages)
        return left

    def _unread(self) -> list[Window]:
        """Windows for everything that was neither read nor started."""
        again = self._pass > 1
        covered = [*self._leaves, *(window.span for window in self._open)]
        spans = uncovered(self._requested, covered)
        return [self._window(span, again=again, compares=again) for span in spans]

    def _window(self, span: Span, *, again: bool, compares: bool, reading: int = 1) -> Window:
        whole = span == self._requested
        splits = not self._alone
        return Window(*span, whole=whole, splits=splits, again=again, compares=compares, reading=reading)

    @property
    def position(self) -> dict[str, Any]:
        """What has been read so far, as a JSON-able value."""
        return {
            "pass": self._pass,
            "alone": self._alone,
            "done": [list(span) for span in self._done],
            "open": list(self._open.values()),
        }

    @property
    def awaited(self) -> dict[bytes, str]:
        """Identities and ids of rows that were read before a window was split, and not since."""
        return self._awaited

    def take(
        self,
        result: FetchResult,
        identities: Sequence[bytes],
        ids: Sequence[str],
        fresh: Sequence[bool] | None,
    ) -> bool:
        """Take a page's rows, of these identities and ids; whether all is consistent with a partition."""
        window = result.window
        if window.probe:
            return not identities
        reading = self._readings.setdefault(window, _WindowReading())
        consistent = True
        if fresh is None:
            reading.new += len(identities)
        else:
            consistent = self._take_known(window, reading, identities, fresh)
        if window.again or not self._alone:
            reading.add(identities, ids)
        self._note(window, result.cursor, result.number)
        if result.outcome == "split":
            self._awaited.update(reading.rows)
            self._work.readings += 1
            self._forget(window)
        return consistent

    def _take_known(
        self, window: Window, reading: _WindowReading, identities: Sequence[bytes], fresh: Sequence[bool]
    ) -> bool:
        """Count repeated rows of a page that has some; whether none of its rows is from another window."""
        consistent = True
        rows = reading.rows
        here = set[bytes]()
        for identity, new in zip(identities, fresh, strict=True):
            if new:
                reading.new += 1
            elif identity in here or identity in rows:
                reading.repeated += 1
            elif identity in self._awaited:
                del self._awaited[identity]
            elif not window.again and (self._resumes(window) or identity not in self._earlier):
                # with a single window, every known row was read from it, if only before a stop
                consistent = self._alone or self._resumes(window)
                reading.repeated += consistent
            here.add(identity)
        return consistent

    def _resumes(self, window: Window) -> bool:
        """Whether it is the whole, never split, read on from a cursor that an earlier load had reached."""
        return window.whole and self._resumes_whole

    def repeated(self, window: Window) -> int:
        """Rows that were repeated in the current reading of a window."""
        reading = self._readings.get(window)
        return reading.repeated if reading else 0

    def ended(self, window: Window) -> Window | None:
        """A window was read to its end; the same window, if it has to be read again."""
        if window.probe:
            return None
        reading = self._readings.get(window, _WindowReading())
        changed = reading.repeated or (window.compares and reading.new)
        if changed and window.reading < MOST_READINGS:
            return self._again(window, compares=True)
        if changed:
            reason = (
                f"{reading.repeated:,} were read twice, so entries changed while they were read"
                if reading.repeated
                else f"{reading.new:,} more were found when it was read again"
            )
            self._work.unsettled.append(f"{reason} ({_named(window.span)}, {window.reading} readings)")
        self._forget(window)
        self._leaves.append(window.span)
        self._done = joined([*self._done, window.span])
        self._work.windows += 1
        return None

    def lost(self, window: Window, error: ResponseError) -> Window:
        """The same window from its start, as the service has lost its cursor; raises when that is no help."""
        if window.reading >= MOST_READINGS:
            raise error
        return self._again(window, compares=window.compares)

    def _again(self, window: Window, *, compares: bool) -> Window:
        following = self._window(window.span, again=True, compares=compares, reading=window.reading + 1)
        self._forget(window)
        self._note(following, None, 0)
        self._work.reread += 1
        self._work.readings += 1
        return following

    def fall_back(self, reason: str) -> Window:
        """Read the whole with a single cursor from now on, because the windows are no partition."""
        self._work.notes.append(f"read with a single cursor, because {reason}")
        self._alone = True
        self._done, self._leaves = [], []
        self._open.clear()
        self._readings.clear()
        self._awaited.clear()
        self._work.windows = 0
        self._work.readings += 1
        whole = self._window(self._requested, again=True, compares=False)
        self._note(whole, None, 0)
        return whole

    def next_pass(self) -> list[Window]:
        """Everything has been read: the windows to read once more, where that was requested."""
        if self._pass >= self._passes:
            return []
        self._pass += 1
        leaves, self._done, self._leaves = self._leaves, [], []
        self._work.reread += len(leaves)
        self._work.readings += 1
        self._work.windows = 0
        return [self._window(span, again=True, compares=True) for span in leaves]

    def _note(self, window: Window, cursor: str | None, pages: int) -> None:
        """Keep how far a window has been read, as `_resumed` reads it."""
        how = [cursor, pages, window.reading, window.again, window.compares, self.repeated(window)]
        self._open[window] = [*window.span, *how]

    def _forget(self, window: Window) -> None:
        self._open.pop(window, None)
        self._readings.pop(window, None)


def _named(span: Span) -> str:
    if span == (None, None):
        return "all of it"
    first, last = (None if at is None else (_EPOCH + timedelta(milliseconds=at)).isoformat() for at in span)
    return f"{first or 'the oldest'} to {last or 'the newest'}"
