"""Define the states of a time window and the events that lead from one to the next.

A window is read page by page until it ends. After some events it has to be read once more, in another state::

                        CURSOR_LOST     ROWS_CHANGED    NEXT_PASS
    FIRST_READING       REREADING       COMPARING       COMPARING
    REREADING           REREADING       COMPARING       COMPARING
    COMPARING           COMPARING       COMPARING       COMPARING

A window that is split ends, and its parts begin in the same state. If the load falls back to a single cursor,
all windows are DROPPED and the requested span begins as one window in the state REREADING. A PROBE is read
once.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class WindowState(Enum):
    """Reason why a window is read. It decides which rows are a sign of a problem."""

    FIRST_READING = auto()
    """Nothing of the window is known, except rows of an earlier load or of a window that was split."""
    REREADING = auto()
    """Read from the start once more. Known rows are expected."""
    COMPARING = auto()
    """Read once more to see if entries changed. Known rows are expected, and new rows are a change."""
    PROBE = auto()
    """A window in the future, which must be empty. Any row shows that the service ignores dates."""
    DROPPED = auto()
    """Not wanted any more. Pages that still arrive are ignored."""

    @property
    def expects_known_rows(self) -> bool:
        """Return True if known rows are no sign of overlapping windows."""
        return self in (WindowState.REREADING, WindowState.COMPARING)

    @property
    def compares(self) -> bool:
        """Return True if new rows show that entries changed while they were read."""
        return self is WindowState.COMPARING

    def after(self, event: Event) -> WindowState:
        """Return the state in which the window is read again."""
        return _TRANSITIONS[self, event]

    @classmethod
    def from_flags(cls, *, expects_known_rows: bool, compares: bool) -> WindowState:
        """Return the state that a checkpoint stores as two flags."""
        if compares:
            return cls.COMPARING
        if expects_known_rows:
            return cls.REREADING

        return cls.FIRST_READING


class Event(Enum):
    """Reason why a window has to be read again."""

    CURSOR_LOST = auto()
    """The service does not accept the cursor any more."""
    ROWS_CHANGED = auto()
    """Rows came twice, or new rows came while comparing."""
    NEXT_PASS = auto()
    """The caller asked for another pass over everything."""


_TRANSITIONS: Final = {
    (WindowState.FIRST_READING, Event.CURSOR_LOST): WindowState.REREADING,
    (WindowState.REREADING, Event.CURSOR_LOST): WindowState.REREADING,
    (WindowState.COMPARING, Event.CURSOR_LOST): WindowState.COMPARING,
    (WindowState.FIRST_READING, Event.ROWS_CHANGED): WindowState.COMPARING,
    (WindowState.REREADING, Event.ROWS_CHANGED): WindowState.COMPARING,
    (WindowState.COMPARING, Event.ROWS_CHANGED): WindowState.COMPARING,
    (WindowState.FIRST_READING, Event.NEXT_PASS): WindowState.COMPARING,
    (WindowState.REREADING, Event.NEXT_PASS): WindowState.COMPARING,
    (WindowState.COMPARING, Event.NEXT_PASS): WindowState.COMPARING,
}


class Origin(Enum):
    """Place where a row of a page was read before."""

    NEW = "not read before"
    SAME_WINDOW = "read from the same window"
    BEFORE_SPLIT = "read from a window that was then split"
    EARLIER_READING = "expected, because the window is read again"
    EARLIER_LOAD = "read by an earlier load that was interrupted"
    OTHER_WINDOW = "read from another window"
