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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from toolkit.errors import InputError
from toolkit.filters.metadata.globbing import GlobPattern

Value = str | int | float | bool
Operator = Literal["=", "!=", "<", "<=", ">", ">="]

MAX_DEPTH: Final = 100
"""How deep conditions may be nested."""


_ORDERED: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

MISSING: Final = object()
"""Returned by `resolve` for a field that is missing."""

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_\-]*"
_INDEX: Final = r"\[(?:#-)?[0-9]{1,9}\]"
_PATH: Final = re.compile(rf"{_NAME}(?:{_INDEX})*(?:\.{_NAME}(?:{_INDEX})*)*", re.ASCII)
_STEP: Final = re.compile(rf"({_NAME})|\[(#-)?([0-9]+)\]", re.ASCII)


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

    def text(self) -> str:
        """The filter in the service's language, in one canonical form, which `parse_filter` reads back."""
        return self._text()

    def matches(self, metadata: Any) -> bool:
        """Whether metadata passes: JSON values, None where there is none."""
        return self._passes(metadata)

    def fields(self) -> tuple[str, ...]:
        """The fields it compares, each once, in the order of the text."""
        return tuple(dict.fromkeys(self._fields()))

    @abstractmethod
    def _text(self) -> str:
        """See `text`."""

    @abstractmethod
    def _passes(self, metadata: Any) -> bool:
        """See `matches`."""

    @abstractmethod
    def _fields(self) -> Iterator[str]:
        """See `fields`; with repetitions."""

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

    def _passes(self, metadata: Any) -> bool:
        return self.accepts(resolve(metadata, self._path))

    @abstractmethod
    def _holds(self, actual: Any) -> bool:
        """Whether a value that is not missing or null passes."""

    def _fields(self) -> Iterator[str]:
        yield self.field


@dataclass(frozen=True)
class Comparison(Condition):
    """``field op value``, for a field such as ``address.city`` or ``tags[0]``."""

    op: Operator
    value: Value

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.op not in get_args(Operator):
            raise _refusal(f"the operator {self.op!r}", f"one of {' '.join(get_args(Operator))}")
        _check_value(self.value)

    def _text(self) -> str:
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
        for value in self.values:
            _check_value(value)

    def _text(self) -> str:
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
        _check_value(self.value)

    def _text(self) -> str:
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

    def _text(self) -> str:
        return f"{self.field} {'NOT ' * self.negated}GLOB {_literal(self.pattern)}"

    def _holds(self, actual: Any) -> bool:
        return (isinstance(actual, str) and self._compiled.matches(actual)) != self.negated


@dataclass(frozen=True)
class HasField(Condition):
    """``HAS FIELD field`` or ``HAS NOT FIELD field``."""

    negated: bool = False

    def _text(self) -> str:
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

    def _fields(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.fields()


@dataclass(frozen=True)
class And(_Combination):
    """All parts pass."""

    def _text(self) -> str:
        return " AND ".join(
            f"({part.text()})" if isinstance(part, Or) else part.text() for part in self.parts
        )

    def _passes(self, metadata: Any) -> bool:
        return all(part.matches(metadata) for part in self.parts)


@dataclass(frozen=True)
class Or(_Combination):
    """At least one part passes."""

    def _text(self) -> str:
        return " OR ".join(part.text() for part in self.parts)

    def _passes(self, metadata: Any) -> bool:
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


def _check_value(value: object) -> None:
    if not isinstance(value, str | int | float):
        raise _refusal(f"a value of type {type(value).__name__}", "text, a number, or a boolean")
    if isinstance(value, float) and not math.isfinite(value):
        raise _refusal(f"the number {value}", "a finite number")


def _refusal(got: str, expected: str) -> InputError:
    return InputError("making a metadata filter", got=got, expected=expected)
