"""Metadata filters as trees of frozen values: made by `parse`, or by hand, combined with ``&`` and ``|``.

Where the service does not say what a condition means, these are the assumptions:

- A field that is missing or null matches no condition, not even ``!=`` and the NOT forms, as in SQL. The only
  exceptions: ``HAS NOT FIELD`` is true where the field is missing, and ``HAS FIELD`` is true for null.
- Booleans are the numbers 1 and 0. Numbers compare exactly, whole or not.
- Text is ordered by code point. Values of different kinds (text and number, or anything and an object or an
  array) are never equal or ordered: ``=`` ``<`` ``<=`` ``>`` ``>=`` are false, ``!=`` is true.
- The NOT forms are true exactly where the field has a value and the plain form is false.
- ``GLOB`` applies to text only, ``CONTAINS`` to arrays only.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from toolkit.arguments import plain
from toolkit.errors import InputError

Value = str | int | float | bool
Operator = Literal["=", "!=", "<", "<=", ">", ">="]

MAX_DEPTH: Final = 100
"""How deep conditions may be nested."""

MAX_PATTERN: Final = 1000
"""Longest pattern of GLOB, in characters."""

_ORDERED: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

MISSING: Final = object()
"""Returned by `resolve` for a field that is missing."""

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_\-]*"
_INDEX: Final = r"\[(?:#-)?[0-9]{1,9}\]"
_PATH: Final = re.compile(rf"{_NAME}(?:{_INDEX})*(?:\.{_NAME}(?:{_INDEX})*)*", re.ASCII)
_STEP: Final = re.compile(rf"({_NAME})|\[(#-)?([0-9]+)\]", re.ASCII)

_PATTERN: Final = "reading a GLOB pattern"
# a set may begin with a "]" that belongs to it, as in []a] and [^]]
_GLOB_TOKEN: Final = re.compile(r"\[(\^?)(\]?[^\]]*)\]|(.)", re.DOTALL)
_RANGE: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_FEW_STEPS: Final = 16_384  # characters of a text times those of a segment, up to which `re` is fast enough


def parse_path(field: str) -> tuple[str | int, ...]:
    """The steps of a field: names, and indexes that count from the end where negative.

    >>> parse_path("events[#-1].code")
    ('events', -1, 'code')
    """
    if not isinstance(field, str) or not _PATH.fullmatch(field):
        raise InputError(
            "reading a metadata field",
            got=repr(field)[:80],
            expected="names joined by dots, with indexes of arrays such as [0] or, from the end, [#-1]",
        )
    steps: list[str | int] = []
    for name, from_end, index in _STEP.findall(field):
        if from_end and not int(index):
            raise InputError(
                f"reading the metadata field {field!r}", got="[#-0]", expected="[#-1] for the last element"
            )
        steps.append(name or (-int(index) if from_end else int(index)))
    return tuple(steps)


def is_path(field: str) -> bool:
    """Whether a text is a field of the language."""
    return _PATH.fullmatch(field) is not None


def resolve(metadata: Any, path: tuple[str | int, ...]) -> Any:
    """The value at a path, or `MISSING`."""
    value = metadata
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, Mapping) or step not in value:
                return MISSING
        elif not isinstance(value, list | tuple) or not -len(value) <= step < len(value):
            return MISSING
        value = value[step]
    return value


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

    def positions(self, text: str) -> NDArray[np.bool_]:
        """Which positions of a text have one of the characters."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        inside = np.zeros(len(codes), np.bool_)
        for low, high in self.ranges:
            inside |= (codes >= ord(low)) & (codes <= ord(high))
        return ~inside if self.negated else inside


_ANY: Final = _Characters((), negated=True)


class GlobPattern:
    """A compiled pattern: ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[^a-z]``; case sensitive.

    It has at most `MAX_PATTERN` characters; a literal ``*`` is written ``[*]``. A pattern is split at its
    stars. Each segment has a fixed length and is searched for once, as its leftmost match is as good as any
    later one, so that the time is bounded.

    >>> GlobPattern("run-[0-9]*.log").matches("run-7-final.log")
    True
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise _refusal(f"{len(pattern)} characters", f"at most {MAX_PATTERN}", doing=_PATTERN)
        self._first, *others = map(_Segment, _segments(pattern))
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
            positions = cache(lambda characters: characters.positions(text))
            for segment in self._between:
                index = segment.find(text, position, end, positions)
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

    def find(
        self, text: str, start: int, end: int, positions: Callable[[_Characters], NDArray[np.bool_]]
    ) -> int:
        """The first match from `start` on that ends before `end`; -1 where there is none."""
        if (end - start) * self.length <= _FEW_STEPS:
            match = self.compiled.search(text, start, max(start, end))
            return match.start() if match else -1
        # all positions at once, where backtracking would try each
        possible = np.ones(max(0, end - start - self.length + 1), np.bool_)
        for at, characters in enumerate(self._characters, start):
            possible &= positions(characters)[at : at + len(possible)]
        return start + int(possible.argmax()) if possible.any() else -1


def _segments(pattern: str) -> list[list[_Characters]]:
    """The segments between the stars, as the characters that each position matches."""
    segments: list[list[_Characters]] = [[]]
    for match in _GLOB_TOKEN.finditer(pattern):
        negated, members, single = match.groups()
        if single is None:
            segments[-1].append(_Characters(_ranges(members), negated=bool(negated)))
        elif single == "*":
            segments.append([])
        elif single == "[":
            got = f"a '[' that is not closed at character {match.start()}"
            raise _refusal(got, "']' after the characters of the set", doing=_PATTERN)
        else:
            segments[-1].append(_ANY if single == "?" else _Characters(((single, single),)))
    # repeated stars leave empty segments, which match anywhere
    return [segments[0], *(segment for segment in segments[1:-1] if segment), *segments[1:][-1:]]


def _ranges(members: str) -> tuple[tuple[str, str], ...]:
    if not members:
        raise _refusal("an empty set", "characters between '[' and ']'", doing=_PATTERN)
    found = _RANGE.findall(members)
    for low, high, _ in found:
        if low > high:
            raise _refusal(f"the range {low}-{high}", "its lower end first", doing=_PATTERN)
    return tuple((low or single, high or single) for low, high, single in found)


class MetadataFilter(ABC):
    """A filter over metadata. Two filters are equal when they have the same tree.

    Examples
    --------
    >>> chosen = Comparison("city", "=", "Izmir") & (HasField("visits") | Comparison("age", ">", 3))
    >>> chosen.text()
    "city = 'Izmir' AND (HAS FIELD visits OR age > 3)"
    >>> chosen.matches({"city": "Izmir", "age": 4})
    True
    """

    @abstractmethod
    def text(self) -> str:
        """The filter in the service's language, in one canonical form, which `parse_filter` reads back."""

    @abstractmethod
    def matches(self, metadata: Any) -> bool:
        """Whether metadata passes: JSON values, None where there is none."""

    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The fields it compares, each once, in the order of the text."""

    @property
    def depth(self) -> int:
        """How deep it is nested; a single condition is 1."""
        return 1

    def __and__(self, other: MetadataFilter) -> And:
        return And((self, other))

    def __or__(self, other: MetadataFilter) -> Or:
        return Or((self, other))


@dataclass(frozen=True)
class Condition(MetadataFilter):
    """One condition on one field."""

    field: str
    _path: tuple[str | int, ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_path", parse_path(self.field))

    def accepts(self, actual: Any) -> bool:
        """Whether metadata with this value in the field passes: a JSON value, or `MISSING`."""
        return actual is not MISSING and actual is not None and self._holds(actual)

    def matches(self, metadata: Any) -> bool:
        return self.accepts(resolve(metadata, self._path))

    @abstractmethod
    def _holds(self, actual: Any) -> bool:
        """Whether a value that is not missing or null passes."""

    def fields(self) -> tuple[str, ...]:
        return (self.field,)


@dataclass(frozen=True)
class Comparison(Condition):
    """``field op value``, for a field such as ``address.city`` or ``tags[0]``."""

    op: Operator
    value: Value

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.op not in get_args(Operator):
            raise _refusal(f"the operator {self.op!r}", f"one of {' '.join(get_args(Operator))}")
        object.__setattr__(self, "value", _checked_value(self.value))

    def text(self) -> str:
        return f"{self.field} {self.op} {_literal(self.value)}"

    def _holds(self, actual: Any) -> bool:
        if self.op in {"=", "!="}:
            return _equal(actual, self.value) == (self.op == "=")
        return _same_kind(actual, self.value) and bool(_ORDERED[self.op](actual, self.value))


@dataclass(frozen=True)
class Membership(Condition):
    """``field IN (values)`` or ``field NOT IN (values)``."""

    values: tuple[Value, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.values, tuple) or not self.values:
            raise _refusal(f"{self.values!r} after IN", "a tuple of at least one value")
        object.__setattr__(self, "values", tuple(map(_checked_value, self.values)))

    def text(self) -> str:
        values = ", ".join(_literal(value) for value in self.values)
        return f"{self.field} {'NOT ' * self.negated}IN ({values})"

    def _holds(self, actual: Any) -> bool:
        return any(_equal(actual, value) for value in self.values) != self.negated


@dataclass(frozen=True)
class Contains(Condition):
    """``field CONTAINS value`` or ``field NOT CONTAINS value``: whether an array contains a value."""

    value: Value
    negated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "value", _checked_value(self.value))

    def text(self) -> str:
        return f"{self.field} {'NOT ' * self.negated}CONTAINS {_literal(self.value)}"

    def _holds(self, actual: Any) -> bool:
        held = isinstance(actual, list | tuple) and any(_equal(item, self.value) for item in actual)
        return held != self.negated


@dataclass(frozen=True)
class Glob(Condition):
    """``field GLOB pattern`` or ``field NOT GLOB pattern``; patterns as `GlobPattern` describes them."""

    pattern: str
    negated: bool = False
    _compiled: GlobPattern = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.pattern, str):
            raise _refusal(f"{type(self.pattern).__name__} after GLOB", "text")
        object.__setattr__(self, "_compiled", GlobPattern(self.pattern))

    def text(self) -> str:
        return f"{self.field} {'NOT ' * self.negated}GLOB {_literal(self.pattern)}"

    def _holds(self, actual: Any) -> bool:
        return (isinstance(actual, str) and self._compiled.matches(actual)) != self.negated


@dataclass(frozen=True)
class HasField(Condition):
    """``HAS FIELD field`` or ``HAS NOT FIELD field``."""

    negated: bool = False

    def text(self) -> str:
        return f"HAS {'NOT ' * self.negated}FIELD {self.field}"

    def accepts(self, actual: Any) -> bool:
        """Whether the field exists, with any value, or does not."""
        return (actual is MISSING) == self.negated

    def _holds(self, actual: Any) -> bool:
        return self.accepts(actual)


@dataclass(frozen=True)
class _Combination(MetadataFilter):
    """Several filters combined. Nested groups of the same kind become one."""

    parts: tuple[MetadataFilter, ...]
    _depth: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        flat: list[MetadataFilter] = []
        for part in self.parts:
            if not isinstance(part, MetadataFilter):
                raise _refusal(f"{type(part).__name__} in a group", "metadata filters")
            flat += part.parts if isinstance(part, type(self)) else (part,)
        depth = 1 + max((part.depth for part in flat), default=0)
        if len(flat) < 2 or depth > MAX_DEPTH:  # noqa: PLR2004 - a group joins
            raise _refusal(f"{len(flat)} parts, {depth} deep", f"at least 2 parts, at most {MAX_DEPTH} deep")
        object.__setattr__(self, "parts", tuple(flat))
        object.__setattr__(self, "_depth", depth)

    @property
    def depth(self) -> int:
        return self._depth

    def fields(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(field for part in self.parts for field in part.fields()))


@dataclass(frozen=True)
class And(_Combination):
    """All parts pass."""

    def text(self) -> str:
        return " AND ".join(
            f"({part.text()})" if isinstance(part, Or) else part.text() for part in self.parts
        )

    def matches(self, metadata: Any) -> bool:
        return all(part.matches(metadata) for part in self.parts)


@dataclass(frozen=True)
class Or(_Combination):
    """At least one part passes."""

    def text(self) -> str:
        return " OR ".join(part.text() for part in self.parts)

    def matches(self, metadata: Any) -> bool:
        return any(part.matches(metadata) for part in self.parts)


def _same_kind(actual: Any, value: Value) -> bool:
    if isinstance(value, str):
        return isinstance(actual, str)
    return isinstance(actual, int | float)


def _equal(actual: Any, value: Value) -> bool:
    return _same_kind(actual, value) and bool(actual == value)


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _checked_value(given: object) -> Value:
    value = plain(given)
    if not isinstance(value, str | int | float):
        raise _refusal(f"a value of type {type(given).__name__}", "text, a number, or a boolean")
    if isinstance(value, float) and not math.isfinite(value):
        raise _refusal(f"the number {value}", "a finite number")
    return value


def _refusal(got: str, expected: str, *, doing: str = "making a metadata filter") -> InputError:
    return InputError(doing, got=got, expected=expected)
