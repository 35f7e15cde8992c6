"""Yield other forms of a condition that may be meant: for lists, for other types, in another spelling.

For example, ``tags = "ml"`` matches no list, and ``tags CONTAINS "ml"`` may be meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from toolkit.base.errors import InputError
from toolkit.filters.conditions import (
    Comparison,
    Condition,
    Contains,
    Glob,
)

_BOOLEANS: Final[dict[str, tuple[bool]]] = {"true": (True,), "false": (False,)}


def frequent_texts(values: list[Any]) -> list[str]:
    """Return the strings of a field, or of the lists in it, the most frequent first."""
    counts: Counter[str] = Counter()
    for value in values:
        items = value
        if not isinstance(value, list):
            items = [value]
        counts.update(item for item in items if isinstance(item, str))

    return [text for text, _ in counts.most_common()]


def compared_values(condition: Condition) -> tuple[Any, ...]:
    """Return the values of a condition that is no pattern; None for one without a value."""
    value = getattr(condition, "value", None)
    return tuple(getattr(condition, "values", (value,)))


def other_forms(condition: Condition, values: list[Any]) -> Iterator[Condition]:
    """Yield forms of a condition that may be meant: for lists, for other types, in another spelling."""
    if isinstance(condition, Glob):
        yield from _globs(condition)
        return

    known = frequent_texts(values)
    for value in compared_values(condition):
        candidates = (value, *_other_types(value), *_other_spellings(value, known))
        for candidate in candidates:
            yield from _forms_with(condition, candidate)


def _forms_with(condition: Condition, value: Any) -> Iterator[Condition]:
    """Yield a condition with another value, as a comparison and, if it compares for equality, for lists."""
    operator: Any = getattr(condition, "op", "=")
    with suppress(InputError):
        yield Comparison(condition.field, operator, value)
        if operator == "=":
            yield Contains(condition.field, value)


def _globs(condition: Glob) -> Iterator[Condition]:
    """Yield the pattern in lower case, with a wildcard at both ends, and for lists."""
    for pattern in (condition.pattern.lower(), f"*{condition.pattern}*"):
        with suppress(InputError):
            yield Glob(condition.field, pattern)
    yield Contains(condition.field, condition.pattern)


def _other_types(value: Any) -> Iterator[Any]:
    """Yield a value as the other types that metadata may have: "3" as 3, and 3 as "3"."""
    if isinstance(value, bool):
        yield str(value).lower()
        yield int(value)
    elif isinstance(value, int | float):
        yield repr(value)
        yield f"{value:g}"
    elif isinstance(value, str):
        with suppress(ValueError):
            yield int(value)
        with suppress(ValueError):
            yield float(value)
        yield from _BOOLEANS.get(value.lower(), ())


def _other_spellings(value: Any, known: list[str]) -> Iterator[str]:
    """Yield the known strings that differ from a value only in case or in spaces around it."""
    if not isinstance(value, str):
        return

    folded = value.strip().casefold()
    for text in known:
        if text.strip().casefold() == folded:
            yield text
