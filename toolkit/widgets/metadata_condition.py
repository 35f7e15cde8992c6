"""One condition of a metadata filter as three texts: field, operator, and value as a person types it."""

from __future__ import annotations

import re
from typing import Final

from toolkit.errors import FilterSyntaxError, InputError
from toolkit.filters.metadata import Comparison, Contains, Glob, HasField, Membership, parse
from toolkit.filters.metadata.tree import Condition, Value
from toolkit.redaction import visible
from toolkit.tables.metadata_fields import MetadataField

COMPARING: Final = ("=", "!=", "<", "<=", ">", ">=")
WITHOUT_VALUE: Final = ("HAS FIELD", "HAS NOT FIELD")
_AMONG: Final = ("IN", "NOT IN")
_PATTERN: Final = ("GLOB", "NOT GLOB")
_HOLDING: Final = ("CONTAINS", "NOT CONTAINS")

OPERATORS: Final = (*COMPARING, *_AMONG, *_HOLDING, *_PATTERN, *WITHOUT_VALUE)
"""Every operator, as the language writes it."""

# in one order, so that the same one stands at the same place whatever the field: a list is told by its place,
# and may change while somebody chooses
_FITTING: Final = {
    "text": (*COMPARING, *_AMONG, *_PATTERN),
    "number": (*COMPARING, *_AMONG),
    "boolean": ("=", "!="),
    "array": _HOLDING,
}
_ITEM: Final = re.compile(r"\s*('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[^,'\"][^,]*|['\"][^,]*)\s*(?:,|$)")


def fitting(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """The operators that fit values of these kinds; all, where nothing is known.

    >>> fitting(("boolean",))
    ('=', '!=', 'HAS FIELD', 'HAS NOT FIELD')
    """
    if not kinds:
        return OPERATORS
    found = [operator for kind in kinds for operator in _FITTING.get(kind, ())]
    return (*dict.fromkeys(found), *WITHOUT_VALUE)


def condition(field: str, operator: str, typed: str) -> Condition:
    """The condition that three texts make.

    Parameters
    ----------
    field : str
    operator : str
        One of `OPERATORS`.
    typed : str
        A number, ``true`` or ``false``, text in quotes as in the language, or any other text as it is.
        Several after IN, with commas. A pattern after GLOB is always text.

    Raises
    ------
    InputError

    Examples
    --------
    >>> condition("year", "IN", "2024, 'the year, before'").text()
    "year IN (2024, 'the year, before')"
    """
    negated = "NOT" in operator
    if operator in WITHOUT_VALUE:
        return HasField(field, negated)
    if operator in _AMONG:
        return Membership(field, tuple(map(value_typed, _items(typed))), negated)
    if operator in _PATTERN:
        value = value_typed(typed) if typed[:1] in ("'", '"') else typed
        return Glob(field, str(value), negated)
    if operator in _HOLDING:
        return Contains(field, value_typed(typed), negated)
    return Comparison(field, operator, value_typed(typed))  # type: ignore[arg-type] # it checks itself


def texts(made: Condition) -> tuple[str, str, str]:
    """The three texts of a condition: `condition` makes an equal one of them.

    >>> texts(parse("name NOT IN ('a', '1')"))
    ('name', 'NOT IN', "a, '1'")
    """
    if isinstance(made, Comparison):
        return made.field, made.op, typed(made.value)
    negated = "NOT " if getattr(made, "negated", False) else ""
    if isinstance(made, Membership):
        return made.field, f"{negated}IN", ", ".join(map(typed, made.values))
    if isinstance(made, Contains):
        return made.field, f"{negated}CONTAINS", typed(made.value)
    if isinstance(made, Glob):
        plain = made.pattern == made.pattern.strip() == visible(made.pattern) and "\n" not in made.pattern
        quoted = not plain or made.pattern[:1] in ("'", '"', "")
        return made.field, f"{negated}GLOB", _quoted(made.pattern) if quoted else made.pattern
    return made.field, f"HAS {negated}FIELD", ""


def typed(value: Value) -> str:
    """How a person would type a value: text bare where it is read as the same text, else in quotes.

    >>> typed("Izmir"), typed("3"), typed(3), typed(True)
    ('Izmir', "'3'", '3', 'true')
    """
    if not isinstance(value, str):
        return literal(value)
    odd = not value or value != value.strip() or not value.isprintable() or "," in value
    return _quoted(value) if odd or value[0] in "'\"" or not _is_bare(value) else value


def literal(value: Value) -> str:
    """A value as the language writes it."""
    return Comparison("x", "=", value).text().removeprefix("x = ")


def value_typed(text: str) -> Value:
    """The value that a text stands for.

    Raises
    ------
    InputError
        For a quotation that does not end.
    """
    try:
        found = parse(f"x = {text}")
    except FilterSyntaxError:
        found = None
    # what goes on after the value, as "1 AND y = 2", is no value of the language but a text
    if isinstance(found, Comparison):
        return found.value
    if text[:1] in ("'", '"'):
        raise InputError(
            "reading a value",
            got=text[:60],
            expected=f"text that ends with {text[0]}",
            next_step=f"Inside, {text[0]} is written twice.",
        )
    return text


def offered(field: MetadataField) -> list[str]:
    """The frequent values of a field, as they are typed."""
    return [typed(value) for value, _ in field.frequent]


def _items(text: str) -> list[str]:
    items = []
    place = 0
    while place < len(text):
        found = _ITEM.match(text, place)
        if found is None or not found[1].strip():
            raise InputError("reading values", got=text[place : place + 40], expected="values between commas")
        items.append(found[1].strip())
        place = found.end()
    return items


def _is_bare(text: str) -> bool:
    try:
        return value_typed(text) == text
    except InputError:
        return False


def _quoted(text: str) -> str:
    return literal(text)
