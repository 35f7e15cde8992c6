"""Remember the results of functions of short strings, for example of the lines of stack traces.

Bodies of one kind consist of the same few words, frames and messages. So most results are known already, and
looking one up takes a tenth of the time of computing it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")

LONGEST: Final = 300
"""Characters of a string that is remembered. Longer strings would fill the memory, and seldom repeat."""
MOST: Final = 1 << 14
"""Strings that are remembered: at most about 10 MB per function."""


class Memo(dict[str, _T], Generic[_T]):
    """The results of a function, computed when they are looked up for the first time.

    A lookup of a known result runs no Python code, so `map(memo.__getitem__, lines)` is the fastest way to
    read many lines.

    >>> lengths = Memo(len)
    >>> lengths["order"], lengths["order"], len(lengths)
    (5, 5, 1)
    """

    def __init__(
        self, function: Callable[[str], _T], *, longest: int = LONGEST, most: int = MOST
    ) -> None:
        super().__init__()
        self._function = function
        self._longest = longest
        self._most = most

    def __missing__(self, text: str) -> _T:
        """Compute the result, and remember it."""
        result = self._function(text)
        self.remember(text, result)
        return result

    def remember(self, text: str, result: _T) -> None:
        """Remember a result if the string is short. A full memory begins again."""
        if len(text) > self._longest:
            return

        if len(self) >= self._most:
            self.clear()
        self[text] = result


def cached(
    function: Callable[[str], _T], *, longest: int = LONGEST, most: int = MOST
) -> Callable[[str], _T]:
    """Return the function with a `Memo` of the results."""
    result_of = Memo(function, longest=longest, most=most).__getitem__

    @wraps(function)
    def call(text: str) -> _T:
        return result_of(text)

    return call
