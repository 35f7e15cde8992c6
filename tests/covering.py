"""Choose cases of a product of two lists, so that each value meets its share of the others.

A product of 49 odd frames and 15 functions has 735 cases. All functions read a frame by the same few lines:
a mistake in reading a frame fails in several functions, and a mistake in a function fails for several frames.
Therefore each frame meets every third function, and the next frame meets the next third:

    >>> [in_turn("abcdef", number, of=3) for number in range(3)]
    [['a', 'd'], ['b', 'e'], ['c', 'f']]

With `ALL_CASES=1` among the environment variables, every value meets every other. `make soak` does this.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

ALL_CASES = os.environ.get("ALL_CASES") == "1"
"""Whether tests run full products."""


def in_turn(values: Iterable[T], number: int, *, of: int) -> list[T]:
    """Return the values whose turn it is: one of each ``of`` values, or all with `ALL_CASES`.

    Parameters
    ----------
    values
        Values of one list.
    number
        The place of the value of the other list, counted from 0.
    of
        The number of turns after which each pair was tried.
    """
    listed = list(values)
    if ALL_CASES:
        return listed
    return listed[number % of :: of]
