"""GLOB patterns in bounded time: ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[^a-z]``; case sensitive.

A pattern is split at its stars. Each segment has a fixed length and is searched for once, as its leftmost
match is as good as any later one. Where text and segment are both long, all positions are tried at once with
bit masks, one bit a position and one AND a character of the segment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError

MAX_PATTERN: Final = 1000
"""Longest pattern, in characters."""

# a set may begin with a "]" that belongs to it, as in []a] and [^]]
_TOKEN: Final = re.compile(r"\[(\^?)(\]?[^\]]*)\]|(.)", re.DOTALL)
_FEW_STEPS: Final = 16_384  # characters of a text times those of a segment, up to which `re` is fast enough


class _Characters(NamedTuple):
    """The characters that one position matches: in, or not in, some ranges (both ends included)."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    @property
    def expression(self) -> str:
        """As a regular expression."""
        parts = (
            re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"
            for low, high in self.ranges
        )
        return f"[{'^' * self.negated}{''.join(parts)}]" if self.ranges else "."


_ANY: Final = _Characters((), negated=True)


class GlobPattern:
    """A compiled pattern of at most `MAX_PATTERN` characters; a literal ``*`` is written ``[*]``.

    >>> GlobPattern("run-[0-9]*.log").matches("run-7-final.log")
    True
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise _refusal(f"{len(pattern)} characters", f"at most {MAX_PATTERN}")
        self._first, *others = [_Segment(characters) for characters in _segments(pattern)]
        self._between, self._last = others[:-1], others[-1] if others else None

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        first, last = self._first, self._last
        if not first.compiled.match(text):
            return False
        if last is None:
            return len(text) == first.length
        position, end = first.length, len(text) - last.length
        if self._between:
            positions = _Positions(text)
            for segment in self._between:
                index = segment.find(positions, position, end)
                if index < 0:
                    return False
                position = index + segment.length
        return position <= end and last.compiled.match(text, end) is not None


class _Segment:
    """The part of a pattern between two stars."""

    def __init__(self, characters: Sequence[_Characters]) -> None:
        self._characters = characters
        self.length = len(characters)
        self.compiled = re.compile("".join(item.expression for item in characters), re.DOTALL)

    def find(self, positions: _Positions, start: int, end: int) -> int:
        """The first match from `start` on that ends before `end`; -1 where there is none."""
        if (end - start) * self.length <= _FEW_STEPS:
            match = self.compiled.search(positions.text, start, max(start, end))
            return match.start() if match else -1
        possible = (1 << max(0, end - start - self.length + 1)) - 1
        for offset, characters in enumerate(self._characters):
            possible &= positions.bits(characters) >> (start + offset)
            if not possible:
                return -1
        return start + (possible & -possible).bit_length() - 1


class _Positions:
    """A text, and the positions of characters in it as the bits of an integer."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._known: dict[_Characters, int] = {}

    def bits(self, characters: _Characters) -> int:
        """An integer whose bit n says whether one of the characters is at position n."""
        mask = self._known.get(characters)
        if mask is None:
            inside = np.zeros(len(self.text), dtype=np.bool_)
            for low, high in characters.ranges:
                inside |= (self._codes >= ord(low)) & (self._codes <= ord(high))
            packed = np.packbits(~inside if characters.negated else inside, bitorder="little")
            mask = self._known[characters] = int.from_bytes(packed.tobytes(), "little")
        return mask

    @cached_property
    def _codes(self) -> NDArray[np.uint32]:
        return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _segments(pattern: str) -> list[list[_Characters]]:
    """The segments between the stars, as the characters that each position matches."""
    segments: list[list[_Characters]] = [[]]
    for match in _TOKEN.finditer(pattern):
        negated, members, single = match[1], match[2], match[3]
        if single is None:
            segments[-1].append(_set(negated, members))
        elif single == "*":
            segments.append([])
        elif single == "[":
            raise _refusal(
                f"a '[' that is not closed at character {match.start()}",
                "']' after the characters of the set",
            )
        else:
            segments[-1].append(_ANY if single == "?" else _Characters(((single, single),)))
    # repeated stars leave empty segments, which match anywhere
    return [segments[0], *(segment for segment in segments[1:-1] if segment), *segments[1:][-1:]]


def _set(negated: str, members: str) -> _Characters:
    if not members:
        raise _refusal("an empty set", "characters between '[' and ']'")
    ranges: list[tuple[str, str]] = []
    index = 0
    while index < len(members):
        low = high = members[index]
        if members[index + 1 : index + 2] == "-" and index + 2 < len(members):
            high = members[index + 2]
            index += 2
        if low > high:
            raise _refusal(f"the range {low}-{high}", "its lower end first")
        ranges.append((low, high))
        index += 1
    return _Characters(tuple(ranges), negated=bool(negated))


def _refusal(got: str, expected: str) -> InputError:
    return InputError("reading a GLOB pattern", got=got, expected=expected)
