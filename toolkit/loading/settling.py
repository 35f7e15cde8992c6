"""What the pages of many windows make up: rows that are expected, signs of movement, what to read again.

The windows are a partition by whatever the service compares their dates with. That is checked, not believed:
what lies in no window comes from none, no row comes from two, and every row that was seen before a window was
split is seen again in its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from toolkit.errors import ResponseError
from toolkit.loading.identities import Identities
from toolkit.loading.load import Work
from toolkit.loading.reading import FetchResult
from toolkit.loading.windows import Span, Window, joined, uncovered

MOST_READINGS: Final = 3
"""Readings of a window until it counts as moving."""

MOST_SOUGHT: Final = 20
"""Rows that are asked for one by one, when they were not seen again after a split."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _WindowReading:
    """One reading of a window: its rows so far, and the signs of movement among them."""

    rows: dict[bytes, str] = field(default_factory=dict)  # but for a single window's first reading
    twice: int = 0
    new: int = 0


class Partition:
    """Keeps the account of a load's windows.

    Parameters
    ----------
    asked : (int or None, int or None)
        The whole.
    work : Work
        Whose position may be that of an earlier load.
    passes : int
        How often everything is read.
    splits : bool
        Whether the whole may be split.
    """

    def __init__(self, asked: Span, work: Work, *, passes: int = 1, splits: bool = True) -> None:
        before = work.position
        self._asked = asked
        self._work = work
        self._passes = passes
        self._pass = int(before.get("pass", 1))
        self._alone = bool(before.get("alone")) or not splits
        self._done = [list(span) for span in before.get("done", ())]
        self._leaves: list[Span] = [(first, last) for first, last in self._done]
        self._open: dict[Window, list[Any]] = {}
        self._readings: dict[Window, _WindowReading] = {}
        self._awaited: dict[bytes, str] = {}
        self._goes_on = False
        self._earlier = Identities(work.rows.first(len(work.rows)))
        self.windows = self._resumed(before)

    def _resumed(self, before: dict[str, Any]) -> list[Window]:
        """What is left to read."""
        left = []
        for entry in before.get("open", ()):
            first, last, cursor, pages, reading, again, compares, twice = entry
            window = Window(
                first,
                last,
                whole=(first, last) == self._asked,
                splits=not self._alone,
                again=again,
                compares=compares,
                # its cursor may be lost by now, however often that has happened: it can be read once more
                reading=min(reading, MOST_READINGS - 1),
                cursor=cursor,
                pages=pages,
            )
            left.append(window)
            self._goes_on |= window.whole and cursor is not None
            self._readings[window] = _WindowReading(twice=twice)
            self._note(window, cursor, pages)
        covered = [*self._leaves, *(window.span for window in left)]
        again = self._pass > 1
        for first, last in uncovered(self._asked, covered):
            whole = (first, last) == self._asked
            left.append(Window(first, last, whole=whole, splits=not self._alone, again=again, compares=again))
        return left

    @property
    def position(self) -> dict[str, Any]:
        """What has been taken so far, as a JSON-able value."""
        return {
            "pass": self._pass,
            "alone": self._alone,
            "done": self._done,
            "open": list(self._open.values()),
        }

    @property
    def awaited(self) -> dict[bytes, str]:
        """Rows that were seen before a window was split, and not since: their identities and ids."""
        return self._awaited

    def take(self, delivery: FetchResult, found: Sequence[bytes], ids: Sequence[str]) -> bool:
        """Take a page's rows.

        Parameters
        ----------
        delivery : FetchResult
        found : sequence of bytes
            The rows' identities.
        ids : sequence of str
            Their ids.

        Returns
        -------
        bool
            Whether none of them comes from another window, and none from where nothing can be.
        """
        window = delivery.window
        if window.probe:
            return not found
        reading = self._readings.setdefault(window, _WindowReading())
        apart = True
        if self._work.rows.are_new(found):
            reading.new += len(found)
        else:
            apart = self._sorted_out(window, reading, found)
        if window.again or not self._alone:
            reading.rows.update(zip(found, ids, strict=True))
        self._note(window, delivery.cursor, delivery.number)
        if delivery.outcome == "split":
            self._awaited.update(reading.rows)
            self._forget(window)
        return apart

    def _sorted_out(self, window: Window, reading: _WindowReading, found: Sequence[bytes]) -> bool:
        """Tell rows that come twice in a window from those that are expected, and from another window's."""
        apart = True
        met = set[bytes]()
        for identity in found:
            if identity in met or identity in reading.rows:
                reading.twice += 1
            elif identity not in self._work.rows:
                reading.new += 1
            elif identity in self._awaited:
                del self._awaited[identity]
            elif not window.again and (self._went_on(window) or identity not in self._earlier):
                # with a single window, what is known has come in this one, be it before a stop
                apart = self._alone or self._went_on(window)
                reading.twice += apart
            met.add(identity)
        return apart

    def _went_on(self, window: Window) -> bool:
        """Whether it is the whole, never split, and goes on behind what was read of it before a stop."""
        return window.whole and self._goes_on

    def twice(self, window: Window) -> int:
        """Rows that came twice in the reading of a window that goes on."""
        reading = self._readings.get(window)
        return reading.twice if reading else 0

    def ended(self, window: Window) -> Window | None:
        """A window was read to its end; the same window, if it has to be read again."""
        if window.probe:
            return None
        reading = self._readings.get(window, _WindowReading())
        moved = reading.twice or (window.compares and reading.new)
        if moved and window.reading < MOST_READINGS:
            return self._again(window, compares=True)
        if moved:
            reason = (
                f"{reading.twice:,} came twice, so entries moved while they were read"
                if reading.twice
                else f"{reading.new:,} more came when it was read again"
            )
            self._work.unsettled.append(f"{reason} ({_named(window.span)}, {window.reading} readings)")
        self._forget(window)
        self._leaves.append(window.span)
        done = joined([*((first, last) for first, last in self._done), window.span])
        self._done = [list(span) for span in done]
        self._work.windows += 1
        return None

    def lost(self, window: Window, error: ResponseError) -> Window:
        """The service does not know a window's cursor any more: the same window, from its start.

        Raises
        ------
        ResponseError
            When that has happened too often.
        """
        if window.reading >= MOST_READINGS:
            raise error
        return self._again(window, compares=window.compares)

    def _again(self, window: Window, *, compares: bool) -> Window:
        following = window.once_more(compares=compares)
        self._forget(window)
        self._note(following, None, 0)
        self._work.reread += 1
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
        first, last = self._asked
        whole = Window(first, last, whole=True, splits=False, again=True)
        self._note(whole, None, 0)
        return whole

    def next_pass(self) -> list[Window]:
        """Everything is read: the windows to read once more, where that was asked for."""
        if self._pass >= self._passes:
            return []
        self._pass += 1
        leaves, self._done, self._leaves = self._leaves, [], []
        self._work.reread += len(leaves)
        self._work.windows = 0
        return [
            Window(
                first,
                last,
                whole=(first, last) == self._asked,
                splits=not self._alone,
                again=True,
                compares=True,
            )
            for first, last in leaves
        ]

    def _note(self, window: Window, cursor: str | None, pages: int) -> None:
        """Keep where a window is, as what `_resumed` reads."""
        how = [cursor, pages, window.reading, window.again, window.compares, self.twice(window)]
        self._open[window] = [*window.span, *how]

    def _forget(self, window: Window) -> None:
        self._open.pop(window, None)
        self._readings.pop(window, None)


def _named(span: Span) -> str:
    if span == (None, None):
        return "all of it"
    first, last = (None if at is None else (_EPOCH + timedelta(milliseconds=at)).isoformat() for at in span)
    return f"{first or 'the oldest'} to {last or 'the newest'}"
