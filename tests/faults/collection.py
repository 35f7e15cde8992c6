"""What a service holds, and the ledger of what was there when: the truth a load is judged by."""

from __future__ import annotations

import base64
import json
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Position = tuple[Any, ...]
"""Where an item is in the listing; a cursor holds the position of the last item returned."""


@dataclass(frozen=True)
class Version:
    """An item with one content.

    Attributes
    ----------
    item : str
        Its id.
    position : tuple
        Where it is in the listing; the same for all versions of an item.
    wire : bytes
        As the service sends it.
    expected : dict
        What the columns of its row have to hold.
    facts : dict
        What a filter may test.
    """

    item: str
    position: Position
    wire: bytes = field(repr=False)
    expected: dict[str, Any] = field(repr=False)
    facts: dict[str, Any] = field(default_factory=dict)


class Collection:
    """Items in the order of the listing, and what happened to them since the ledger was opened.

    Attributes
    ----------
    counts : bool
        Whether a cursor holds how many items were returned, instead of the position of the last one.
    beyond : tuple
        A position after all items.
    """

    counts: bool = False
    beyond: Position = ("~", "~")

    def __init__(self) -> None:
        self.current: dict[str, Version] = {}
        self._order: list[Position] = []
        self._at: dict[Position, str] = {}
        self.open_ledger()

    def open_ledger(self) -> None:
        """From here on, remember what was there."""
        self.throughout = set(self.current)
        self.ever = set(self.current)
        self.versions: dict[str, list[Version]] = defaultdict(list)
        for name, version in self.current.items():
            self.versions[name].append(version)

    def put(self, version: Version) -> None:
        """Add an item, or set its next content."""
        if version.item not in self.current:
            insort(self._order, version.position)
            self._at[version.position] = version.item
        self.current[version.item] = version
        self.ever.add(version.item)
        self.versions[version.item].append(version)

    def remove(self, name: str) -> None:
        """Remove an item."""
        version = self.current.pop(name)
        self._order.remove(version.position)
        del self._at[version.position]
        self.throughout.discard(name)

    def page(
        self,
        after: Position | None,
        count: int,
        chosen: Callable[[Version], bool],
        *,
        back: int = 0,
    ) -> tuple[list[Version], bool]:
        """At most so many items after a position, and whether more follow.

        With `back`, the page begins so many items before the position.
        """
        start = skipped = 0
        if after is not None and self.counts:
            skipped = max(0, after[0] - back)
        elif after is not None:
            start = max(0, bisect_right(self._order, after) - back)
        found: list[Version] = []
        for position in self._order[start:]:
            version = self.current[self._at[position]]
            if not chosen(version):
                continue
            if skipped:
                skipped -= 1
            elif len(found) == count:
                return found, True
            else:
                found.append(version)
        return found, False

    def behind(
        self, found: list[Version], after: Position | None, *, back: int = 0
    ) -> Position:
        """The position after a page that began after a position, or so many items before it."""
        return (
            (max(0, (after[0] if after else 0) - back) + len(found),)
            if self.counts
            else found[-1].position
        )


def token(position: Position | None, number: int) -> str:
    """A cursor: a position, and the number of the request that returned it, so that no two are equal."""
    text = json.dumps([number, position]).encode()
    return base64.urlsafe_b64encode(text).decode()


def position_of(cursor: str) -> tuple[Position | None, int]:
    """The position in a cursor, and the number of the request that returned it."""
    number, position = json.loads(base64.urlsafe_b64decode(cursor))
    return None if position is None else tuple(position), number
