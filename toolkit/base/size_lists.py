"""Divide items into lists by their size, for work that is cheaper for many items at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def lists_by_size(
    items: Iterable[_T], size_of: Callable[[_T], int], size: int
) -> Iterator[list[_T]]:
    """Yield the items in lists, each of which ends with the item that reaches a size.

    >>> list(lists_by_size(["ann", "bob", "eve", "x"], len, 5))
    [['ann', 'bob'], ['eve', 'x']]
    """
    collected: list[_T] = []
    collected_size = 0
    for item in items:
        collected.append(item)
        collected_size += size_of(item)
        if collected_size >= size:
            yield collected
            collected = []
            collected_size = 0

    if collected:
        yield collected
