"""Filter metadata with trees of frozen conditions.

`parse` makes a tree from text. You can also make conditions by hand and combine them with ``&`` and ``|``.

The service leaves some meanings open. This module assumes the following:

- A missing or null field matches no condition, as in SQL. For example, ``{}`` matches neither ``age = 3`` nor
  ``age != 3``. There are two exceptions: ``HAS NOT FIELD`` is true if the field is missing, and ``HAS FIELD``
  is true for null.
- Booleans are the numbers 1 and 0. Integers and floats compare exactly.
- Strings are ordered by code point. Values of different kinds (for example a string and a number, or an array
  and a string) are never equal or ordered: ``=`` ``<`` ``<=`` ``>`` ``>=`` are false, ``!=`` is true.
- A NOT form is true if the field has a value and the plain form is false.
- ``GLOB`` applies to strings only, ``CONTAINS`` to arrays only.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from toolkit.base.arguments import plain
from toolkit.base.errors import InputError
from toolkit.filters.glob_pattern import GlobPattern

Value = str | int | float | bool
Operator = Literal["=", "!=", "<", "<=", ">", ">="]

MAX_DEPTH: Final = 100
"""Deepest nesting of conditions."""

_OPERATORS: Final = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

MISSING: Final = object()
"""Returned by `resolve` for a field that is missing."""

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_\-]*"
_INDEX: Final = r"\[(?:#-)?[0-9]{1,9}\]"
_PATH: Final = re.compile(rf"{_NAME}(?:{_INDEX})*(?:\.{_NAME}(?:{_INDEX})*)*", re.ASCII)
_STEP: Final = re.compile(
    rf"(?P<name>{_NAME})|\[(?P<from_end>#-)?(?P<index>[0-9]+)\]", re.ASCII
)


def parse_path(field: str) -> tuple[str | int, ...]:
    """Split a field into names and indexes. A negative index counts from the end.

    >>> parse_path("events[#-1].code")
    ('events', -1, 'code')
    """
    if not isinstance(field, str) or not is_path(field):
        raise InputError(
            "reading a metadata field",
            got=repr(field)[:80],
            expected="names joined by dots, and array indexes, for example items[0].price or items[#-1]",
        )

    return tuple(_step(match, field) for match in _STEP.finditer(field))


def _step(match: re.Match[str], field: str) -> str | int:
    """Return one step of a field: a name or an index."""
    if match["name"] is not None:
        return match["name"]

    index = int(match["index"])
    if match["from_end"] is None:
        return index

    if index == 0:
        raise InputError(
            f"reading the metadata field {field!r}",
            got="[#-0]",
            expected="[#-1] for the last element",
        )

    return -index


def is_path(field: str) -> bool:
    """Return True if the string is a field of the filter language, for example ``tags[0]``."""
    return _PATH.fullmatch(field) is not None


def resolve(metadata: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at a path, or `MISSING`."""
    current = metadata
    for step in path:
        if not _has_step(current, step):
            return MISSING
        current = current[step]

    return current


def _has_step(container: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(container, Mapping) and step in container
    if not isinstance(container, list | tuple):
        return False

    return -len(container) <= step < len(container)


class MetadataFilter(ABC):
    """A filter over metadata. Two filters are equal if they have the same tree.

    Examples
    --------
    >>> izmir = Comparison("city", "=", "Izmir") & (HasField("visits") | Comparison("age", ">", 3))
    >>> izmir.text()
    "city = 'Izmir' AND (HAS FIELD visits OR age > 3)"
    >>> izmir.matches({"city": "Izmir", "age": 4})
    True
    """

    @abstractmethod
    def text(self) -> str:
        """Return the filter in the language of the service, in a canonical form that `parse_filter` reads."""

    @abstractmethod
    def matches(self, metadata: Any) -> bool:
        """Return True if the metadata (JSON values, or None) match."""

    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Return the compared fields without duplicates, in the order of the text."""

    @property
    def depth(self) -> int:
        """Return the depth of the tree. A single condition has depth 1."""
        return 1

    def __and__(self, other: MetadataFilter) -> And:
        return And((self, other))

    def __or__(self, other: MetadataFilter) -> Or:
        return Or((self, other))


@dataclass(frozen=True)
class Condition(MetadataFilter):
    """One condition on one field."""

    field: str
    _path: tuple[str | int, ...] = dataclasses.field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_path", parse_path(self.field))

    def accepts(self, actual: Any) -> bool:
        """Return True if a field with this value (a JSON value or `MISSING`) matches."""
        if actual is MISSING or actual is None:
            return False
        return self._is_true(actual)

    def matches(self, metadata: Any) -> bool:
        return self.accepts(resolve(metadata, self._path))

    @abstractmethod
    def _is_true(self, actual: Any) -> bool:
        """Return True if a value that is neither missing nor null matches."""

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
            operators = " ".join(get_args(Operator))
            raise _filter_error(f"the operator {self.op!r}", f"one of {operators}")

        object.__setattr__(self, "value", _checked_value(self.value))

    def text(self) -> str:
        return f"{self.field} {self.op} {_literal(self.value)}"

    def _is_true(self, actual: Any) -> bool:
        # A string is unequal to a number, and neither less nor greater.
        if not _same_kind(actual, self.value):
            return self.op == "!="

        compare = _OPERATORS[self.op]
        return bool(compare(actual, self.value))


@dataclass(frozen=True)
class Membership(Condition):
    """``field IN (values)`` or ``field NOT IN (values)``."""

    values: tuple[Value, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.values, tuple) or not self.values:
            raise _filter_error(
                f"{self.values!r} after IN", "a tuple with at least one value"
            )

        object.__setattr__(self, "values", tuple(map(_checked_value, self.values)))

    def text(self) -> str:
        values = ", ".join(map(_literal, self.values))
        return f"{self.field} {_negation(self.negated)}IN ({values})"

    def _is_true(self, actual: Any) -> bool:
        is_member = any(_equal(actual, value) for value in self.values)
        return is_member != self.negated


@dataclass(frozen=True)
class Contains(Condition):
    """``field CONTAINS value`` or ``field NOT CONTAINS value``, for arrays."""

    value: Value
    negated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "value", _checked_value(self.value))

    def text(self) -> str:
        return f"{self.field} {_negation(self.negated)}CONTAINS {_literal(self.value)}"

    def _is_true(self, actual: Any) -> bool:
        if not isinstance(actual, list | tuple):
            return self.negated

        is_contained = any(_equal(element, self.value) for element in actual)
        return is_contained != self.negated


@dataclass(frozen=True)
class Glob(Condition):
    """``field GLOB pattern`` or ``field NOT GLOB pattern``. See `GlobPattern` for the patterns."""

    pattern: str
    negated: bool = False
    _compiled: GlobPattern = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.pattern, str):
            raise _filter_error(f"{type(self.pattern).__name__} after GLOB", "a string")

        object.__setattr__(self, "_compiled", GlobPattern(self.pattern))

    def text(self) -> str:
        return f"{self.field} {_negation(self.negated)}GLOB {_literal(self.pattern)}"

    def _is_true(self, actual: Any) -> bool:
        if not isinstance(actual, str):
            return self.negated
        return self._compiled.matches(actual) != self.negated


@dataclass(frozen=True)
class HasField(Condition):
    """``HAS FIELD field`` or ``HAS NOT FIELD field``."""

    negated: bool = False

    def text(self) -> str:
        return f"HAS {_negation(self.negated)}FIELD {self.field}"

    def accepts(self, actual: Any) -> bool:
        """Return True if the field exists, or with `negated`, if it is missing."""
        return (actual is MISSING) == self.negated

    def _is_true(self, actual: Any) -> bool:
        return self.accepts(actual)


@dataclass(frozen=True)
class _Combination(MetadataFilter):
    """A combination of filters. Nested combinations of the same kind are flattened."""

    parts: tuple[MetadataFilter, ...]
    _depth: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        flat: list[MetadataFilter] = []
        for part in self.parts:
            flat.extend(self._flattened(part))
        deepest = max((part.depth for part in flat), default=0)

        depth = 1 + deepest
        if len(flat) < 2 or depth > MAX_DEPTH:  # noqa: PLR2004 - a group joins
            raise _filter_error(
                f"{len(flat)} parts, {depth} deep",
                f"at least 2 parts, at most {MAX_DEPTH} deep",
            )

        object.__setattr__(self, "parts", tuple(flat))
        object.__setattr__(self, "_depth", depth)

    def _flattened(self, part: object) -> tuple[MetadataFilter, ...]:
        """Return the parts of a part: (a AND b) AND c is the same as a AND b AND c."""
        if isinstance(part, type(self)):
            return part.parts
        if isinstance(part, MetadataFilter):
            return (part,)

        raise _filter_error(f"{type(part).__name__} in a group", "metadata filters")

    @property
    def depth(self) -> int:
        return self._depth

    def fields(self) -> tuple[str, ...]:
        # a dict keeps the order, a set would not
        unique_fields: dict[str, None] = {}
        for part in self.parts:
            unique_fields.update(dict.fromkeys(part.fields()))
        return tuple(unique_fields)


@dataclass(frozen=True)
class And(_Combination):
    """Match if all parts match."""

    def text(self) -> str:
        return " AND ".join(map(_as_operand, self.parts))

    def matches(self, metadata: Any) -> bool:
        return all(part.matches(metadata) for part in self.parts)


@dataclass(frozen=True)
class Or(_Combination):
    """Match if at least one part matches."""

    def text(self) -> str:
        return " OR ".join(part.text() for part in self.parts)

    def matches(self, metadata: Any) -> bool:
        return any(part.matches(metadata) for part in self.parts)


def _as_operand(part: MetadataFilter) -> str:
    """Return a part of an AND as text. AND binds more tightly than OR, so an OR needs parentheses."""
    if isinstance(part, Or):
        return f"({part.text()})"
    return part.text()


def _negation(negated: bool) -> str:  # noqa: FBT001 - the only argument
    if negated:
        return "NOT "
    return ""


def _same_kind(actual: Any, value: Value) -> bool:
    """Return True if both values are strings, or both are numbers or booleans."""
    comparable: Any = int | float
    if isinstance(value, str):
        comparable = str
    return isinstance(actual, comparable)


def _equal(actual: Any, value: Value) -> bool:
    if not _same_kind(actual, value):
        return False
    return bool(actual == value)


def filter_literal(value: object) -> str:
    """Return a value as it is written in a metadata filter, with quotes inside texts doubled.

    Parameters
    ----------
    value : str, int, float or bool
        For example the input of a user. Scalars of numpy are accepted.

    Returns
    -------
    str
        Text for a filter, whatever the value contains: it cannot end the text or add conditions.

    Raises
    ------
    InputError
        If the value is of another type, or not a finite number.

    Examples
    --------
    >>> import toolkit as tk
    >>> title = "it's new"
    >>> filter_literal(title), filter_literal(0.5)
    ("'it''s new'", '0.5')
    >>> tk.parse_filter(f"title = {filter_literal(title)}").matches({"title": title})
    True
    """
    try:
        return _literal(_checked_value(value))
    except InputError as error:
        raise InputError(
            f"reading value ({error.doing})", got=error.got, expected=error.expected
        ) from None


def _literal(value: Value) -> str:
    """Return a value as it is written in a filter.

    >>> _literal("it's"), _literal(True), _literal(0.5)
    ("'it''s'", 'true', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"

    return repr(value)


def _checked_value(argument: object) -> Value:
    """Return a value to compare with as a Python type. Raise InputError if it cannot be compared."""
    value = plain(argument)
    if not isinstance(value, str | int | float):
        raise _filter_error(
            f"a value of type {type(argument).__name__}",
            "a string, a number or a boolean",
        )

    if isinstance(value, float) and not math.isfinite(value):
        raise _filter_error(f"the number {value}", "a finite number")

    return value


def _filter_error(got: str, expected: str) -> InputError:
    return InputError("making a metadata filter", got=got, expected=expected)
