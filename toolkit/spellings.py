"""Text as whoever reads it understands it: escapes decoded, each character traced to where it was written.

A secret may be written with the escapes of JSON, HTML or URLs. It is looked for in the decoded text, and
masked where it stands in the original, whose other characters stay as they are.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

MASK: Final = re.compile(r"\[masked len=\d+ tag=[0-9a-f]{8}\]")
MASKED: Final = "\x1f"
"""What stands for a mask in a `View`: white space to regular expressions, which no secret goes across."""

_ESCAPE: Final = re.compile(
    r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[/\"'\\nrtbf])"
    r"|&(?:\#[0-9]{1,7};?|\#[xX][0-9a-fA-F]{1,6};?|[A-Za-z]{2,31};)"
    r"|%[0-9a-fA-F]{2}"
)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class View:
    r"""A text, decoded, and where in the original each of its characters begins.

    Examples
    --------
    >>> view = View(r"say \u0042earer").decoded()
    >>> view.text, view.place(4), view.place(5)
    ('say Bearer', 4, 10)
    """

    __slots__ = ("_before", "_ends", "_places", "_starts", "text")

    def __init__(
        self, text: str, before: View | None = None, pieces: Sequence[Sequence[int]] = ((), (), ())
    ) -> None:
        self.text = text
        self._before = before
        self._starts, self._places, self._ends = (
            pieces  # in this text; and from where to where in the one before
        )

    def without_masks(self) -> View:
        """The same with `MASKED` in place of each mask."""
        return self._replaced(MASK, lambda _: MASKED) if "[masked len=" in self.text else self

    def decoded(self) -> View | None:
        """The same with one layer of escapes decoded; None where there are none."""
        return self._replaced(_ESCAPE, _meant) if _ESCAPE.search(self.text) else None

    def place(self, index: int) -> int:
        """Where in the original text the character at this place begins; behind the last one, its end."""
        if self._before is None:
            return index
        piece = bisect_right(self._starts, index) - 1
        within = self._places[piece] + index - self._starts[piece]
        return self._before.place(min(within, self._ends[piece]))

    def _replaced(self, pattern: re.Pattern[str], meant: Callable[[str], str]) -> View:
        """Pieces that are as they were, and between them what was replaced."""
        parts, starts, places, ends, length, end = [], [], [], [], 0, 0
        for found in pattern.finditer(self.text):
            for written, start, stop in (
                (self.text[end : found.start()], end, found.start()),
                (meant(found[0]), found.start(), found.end()),
            ):
                if written:
                    parts.append(written)
                    starts.append(length)
                    places.append(start)
                    ends.append(stop)
                    length += len(written)
            end = found.end()
        rest = self.text[end:]
        pieces = ([*starts, length], [*places, end], [*ends, len(self.text)])
        return View("".join((*parts, rest)), self, pieces)


def _meant(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[0] == "&":
        return html.unescape(escape)
    kind, digits = escape[1], escape[2:]
    return chr(int(digits, 16)) if digits else _CONTROLS.get(kind, kind)
