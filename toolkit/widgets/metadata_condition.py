"""Read conditions of a metadata filter as a person types them, and complete a filter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from toolkit.base.errors import FilterSyntaxError, InputError
from toolkit.filters.conditions import Condition, Value
from toolkit.filters.metadata import (
    Comparison,
    Contains,
    Glob,
    HasField,
    Membership,
    parse,
)
from toolkit.secrets.redaction import visible
from toolkit.tables.metadata_fields import MetadataField
from toolkit.widgets.fields import Completion

_COMPARING: Final = ("=", "!=", "<", "<=", ">", ">=")
WITHOUT_VALUE: Final = ("HAS FIELD", "HAS NOT FIELD")
_AMONG: Final = ("IN", "NOT IN")
_PATTERN: Final = ("GLOB", "NOT GLOB")
_HOLDING: Final = ("CONTAINS", "NOT CONTAINS")

OPERATORS: Final = (*_COMPARING, *_AMONG, *_HOLDING, *_PATTERN, *WITHOUT_VALUE)
"""Every operator, as the language writes it."""

# in one order, so that an operator has the same position for every field
_FITTING: Final = {
    "text": (*_COMPARING, *_AMONG, *_PATTERN),
    "number": (*_COMPARING, *_AMONG),
    "boolean": ("=", "!="),
    "array": _HOLDING,
}
_ITEM: Final = re.compile(
    r"\s*('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[^,'\"][^,]*|['\"][^,]*)\s*(?:,|$)"
)
_COMPLETIONS: Final = 40
_INDEX: Final = re.compile(r"\[(?:#-)?\d+\]")
_FIELD: Final = r"[A-Za-z_][\w.\[\]#-]*"
_REST_OF_WORD: Final = re.compile(r"^[\w.\[\]#-]*")
_REST_OF_TEXT: Final = re.compile(r"^[^'\"]*['\"]?")
_STARTING: Final = re.compile(
    rf"(?:^|\(|\b(?:and|or|field)\s)\s*({_FIELD})?$", re.IGNORECASE
)
_OPERATOR: Final = re.compile(rf"(?:^|[\s(])({_FIELD})\s+([a-z ]*)$", re.IGNORECASE)
_HAS_FIELD: Final = re.compile(r"field\s+\S*$", re.IGNORECASE)
_VALUE: Final = re.compile(
    rf"({_FIELD})\s*(?:!=|<=|>=|=|<|>|\s(?:not\s+)?contains\s|\s(?:not\s+)?in\s*\((?:[^()]*,)?)"
    r"\s*('[^']*|\"[^\"]*|[\w.+-]*)$",
    re.IGNORECASE,
)


def field_named(fields: Iterable[MetadataField], name: str) -> MetadataField | None:
    """Return the field of this name. If it names an item of an array, return the field of the first item.

    >>> field_named([MetadataField("tags[0]", ("text",), 1, ())], "tags[7]").kinds
    ('text',)
    """
    named = {field.name: field for field in fields}
    return named.get(name) or named.get(_INDEX.sub("[0]", name))


def fitting(field: MetadataField | None) -> tuple[str, ...]:
    """Return the operators that fit the values of a field, or all operators if the values are unknown.

    >>> fitting(MetadataField("open", ("boolean",), 2, ()))
    ('=', '!=', 'HAS FIELD', 'HAS NOT FIELD')
    """
    if field is None or not field.kinds:
        return OPERATORS

    operators = chain.from_iterable(_FITTING.get(kind, ()) for kind in field.kinds)
    return (*dict.fromkeys(operators), *WITHOUT_VALUE)


def condition(field: str, operator: str, typed: str) -> Condition:
    """Return the condition of a field, one of `OPERATORS` and a typed value. Raise InputError if invalid.

    The value is a number, ``true`` or ``false``, text in quotes, or any other text. IN has several values. A
    pattern after GLOB is always text.

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


def typed_condition(made: Condition) -> tuple[str, str, str]:
    """Return field, operator and typed value of a condition. `condition` returns an equal one for them."""
    negated = "NOT " if getattr(made, "negated", False) else ""
    match made:
        case Comparison():
            return made.field, made.op, typed_value(made.value)
        case Membership():
            return made.field, f"{negated}IN", ", ".join(map(typed_value, made.values))
        case Contains():
            return made.field, f"{negated}CONTAINS", typed_value(made.value)
        case Glob(pattern=pattern):
            plain = (
                pattern == pattern.strip() == visible(pattern) and "\n" not in pattern
            )
            quoted = not plain or pattern[:1] in ("'", '"', "")
            return (
                made.field,
                f"{negated}GLOB",
                _literal(pattern) if quoted else pattern,
            )

    return made.field, f"HAS {negated}FIELD", ""


def typed_value(value: Value) -> str:
    """Return a value as a person would type it. Text is in quotes only if it would be read as another value.

    >>> typed_value("Izmir"), typed_value("3"), typed_value(3), typed_value(True)
    ('Izmir', "'3'", '3', 'true')
    """
    if not isinstance(value, str):
        return _literal(value)

    misplaced = (
        not value or value != value.strip() or not value.isprintable() or "," in value
    )
    return (
        _literal(value)
        if misplaced or value[0] in "'\"" or value_typed(value) != value
        else value
    )


def _literal(value: Value) -> str:
    """Return a value as the language writes it."""
    return Comparison("x", "=", value).text().removeprefix("x = ")


def value_typed(text: str) -> Value:
    """Return the value of typed text. Raise InputError if a quotation does not end."""
    try:
        # The parser of the language decides what a value is: `7` is a number, `'7'` and `seven` are strings.
        parsed = parse(f"x = {text}")
    except FilterSyntaxError:
        parsed = None

    # if more follows the value, as in "1 AND y = 2", everything is one string
    if isinstance(parsed, Comparison):
        return parsed.value

    if text[:1] in ("'", '"'):
        raise InputError(
            "reading a value",
            got=text[:60],
            expected=f"text that ends with {text[0]}",
            next_step=f"Inside, {text[0]} is written twice.",
        )

    return text


def _items(text: str) -> list[str]:
    items = []
    start = 0
    while start < len(text):
        match = _ITEM.match(text, start)
        if match is None or not match[1].strip():
            raise InputError(
                "reading values",
                got=text[start : start + 40],
                expected="values between commas",
            )

        items.append(match[1].strip())
        start = match.end()

    return items


def completions(
    text: str, head: str, fields: Sequence[MetadataField]
) -> list[Completion]:
    """Return completions at the caret, after the part `head`. They also replace the rest of the word."""
    begun, endings = _continued(head, fields)
    kept, rest = head[: len(head) - len(begun)], text[len(head) :]
    if begun:
        rest_of_word = _REST_OF_WORD
        if begun[0] in "'\"":
            rest_of_word = _REST_OF_TEXT
        rest = rest_of_word.sub("", rest, count=1)

    completed: list[Completion] = []
    for ending in endings:
        inserted = ending
        if rest.startswith(" "):
            inserted = ending.rstrip()
        completed.append((ending.strip(), kept + inserted, rest))

    return completed


def _continued(text: str, fields: Sequence[MetadataField]) -> tuple[str, list[str]]:
    """Return the word that begins at the end of the filter so far, and the words that can complete it.

    For example, ``city = 'Iz`` ends with ``'Iz``, which ``'Izmir'`` completes.
    """
    # An odd number of quotation marks means that the caret is inside of a string.
    quoted = text.count("'") % 2 or text.count('"') % 2
    starting = _STARTING.search(text)
    if starting is not None and not quoted:
        return _matching(starting[1] or "", _names_after(text, fields))

    value = _VALUE.search(text)
    if value is not None:
        return _matching(value[2], _values_of(field_named(fields, value[1])))

    if text.endswith(" ") and _parses(text):
        return "", ["AND ", "OR "]

    operator = _OPERATOR.search(text)
    if operator is not None and operator[1].lower() not in ("and", "or"):
        fit = fitting(field_named(fields, operator[1]))
        operators = [f"{name} " for name in fit if name not in WITHOUT_VALUE]
        return _matching(operator[2], operators)

    return "", []


def _names_after(text: str, fields: Sequence[MetadataField]) -> list[str]:
    """Return the words that can begin a condition, or the fields alone after "HAS FIELD"."""
    names = [field.name for field in fields]
    if _HAS_FIELD.search(text):
        return names
    return [*(f"{name} " for name in names), "HAS FIELD ", "HAS NOT FIELD "]


def _values_of(field: MetadataField | None) -> list[str]:
    """Return the frequent values of a field, as a filter spells them."""
    if field is None:
        return []
    return [_literal(value) for value, _ in field.frequent]


def _matching(begun: str, endings: Iterable[str]) -> tuple[str, list[str]]:
    """Return the endings that begin with `begun`, in either quotes, without invisible characters."""
    sought = begun.replace('"', "'").casefold()
    matches = [
        ending
        for ending in endings
        if ending.casefold().startswith(sought)
        or (sought and ending.casefold().startswith(f"'{sought}"))
    ]

    return begun, [
        ending for ending in matches if ending != begun and visible(ending) == ending
    ][:_COMPLETIONS]


def _parses(text: str) -> bool:
    try:
        parse(text)
    except FilterSyntaxError:
        return False

    return True
