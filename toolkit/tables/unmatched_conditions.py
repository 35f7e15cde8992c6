"""Explain why a metadata filter matches no rows: the conditions that match none, and the values there are.

Method: each condition that is not negated is tried alone on all rows. If it matches none, the types of the
field are compared with the type of the value, and other forms of the condition are tried, for example
``tags CONTAINS 'ml'`` for ``tags = 'ml'``. A form is suggested only if it matches rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from toolkit.base.arguments import nearest
from toolkit.filters.conditions import (
    MISSING,
    And,
    Condition,
    Glob,
    MetadataFilter,
    Or,
    parse_path,
    resolve,
)
from toolkit.secrets.names import is_secret_name
from toolkit.tables.condition_forms import compared_values, frequent_texts, other_forms

_LONGEST: Final = 80  # characters of a value in a message
_KINDS: Final[dict[type, str]] = {
    str: "text", int: "a number", float: "a number", bool: "a boolean",
    list: "a list", dict: "an object",
}  # fmt: skip


def explain_no_match(
    metadata: Iterable[Any], wanted: MetadataFilter, *, only_mistakes: bool = True
) -> list[str]:
    """Return a message per condition that matches no row, or one if the conditions exclude each other.

    With `only_mistakes`, conditions that may well match nothing have no message, for example a number out of
    range, or a value that is like no other.

    >>> from toolkit.filters.metadata import parse
    >>> explain_no_match([{"tags": ["ml"]}, None], parse("tags = 'ml'"))
    ["no metadata matches tags = 'ml': tags is a list, for example ['ml']. Did you mean tags CONTAINS 'ml'?
    It matches 1."]
    """
    rows = list(metadata)
    conditions = list(_conditions(wanted))
    match_counts = [sum(map(condition.matches, rows)) for condition in conditions]
    messages = unknown_fields(rows, wanted)

    for condition, count in zip(conditions, match_counts, strict=True):
        # a condition with NOT matches most rows, so it rarely is the mistake
        if count == 0 and not _is_negated(condition):
            messages += _explained(condition, rows, only_mistakes=only_mistakes)

    if not messages and not only_mistakes:
        messages = _exclusion(wanted, conditions, match_counts)
    return list(dict.fromkeys(messages))


def _exclusion(
    wanted: MetadataFilter, conditions: list[Condition], match_counts: list[int]
) -> list[str]:
    """Return a message if each condition matches rows, but no row matches all; otherwise none."""
    if not isinstance(wanted, And) or 0 in match_counts:
        return []

    counted = zip(conditions, match_counts, strict=True)
    by_text = {condition.text(): count for condition, count in counted}
    listed = ", ".join(f"{text} ({count:,})" for text, count in by_text.items())

    return [f"each condition matches some metadata, but none matches all: {listed}."]


def unknown_fields(metadata: Iterable[Any], wanted: MetadataFilter) -> list[str]:
    """Return a message per field of a filter that no metadata have, with the nearest known field.

    >>> from toolkit.filters.metadata import parse
    >>> unknown_fields([{"city": "Izmir"}, None], parse("citi = 'Izmir' AND city = 'Oslo'"))
    ["no metadata has a field 'citi'. Did you mean 'city'? Known: 'city'."]
    """
    rows = [value for value in metadata if isinstance(value, dict)]
    messages = [_unknown_step(rows, parse_path(field)) for field in wanted.fields()]
    return list(dict.fromkeys(filter(None, messages)))


def _unknown_step(
    rows: list[dict[str, Any]], path: tuple[str | int, ...]
) -> str | None:
    """Return a message about the first name of a path that no metadata have, or None.

    For example, if all metadata have ``address`` and none has ``address.street``, ``street`` is unknown.
    """
    for depth, step in enumerate(path):
        known = _member_names(rows, path[:depth])
        # an index of an array, or a value that is not an object, cannot be checked
        if not known or not isinstance(step, str):
            return None
        if step not in known:
            parent = _place_of_member(path[:depth])
            suggestion = nearest(step, sorted(known))
            return f"no metadata has a field {step!r}{parent}. {suggestion}"

    return None


def _member_names(rows: list[dict[str, Any]], path: tuple[str | int, ...]) -> set[str]:
    """Return the names in all objects at a path, for example of all addresses."""
    names: set[str] = set()
    for row in rows:
        parent = resolve(row, path)
        if isinstance(parent, dict):
            names.update(parent)

    return names


def _place_of_member(path: tuple[str | int, ...]) -> str:
    """Return where a member was expected, for example " in 'address'"; "" for the metadata itself."""
    if not path:
        return ""

    dotted = ".".join(map(str, path))
    return f" in {dotted!r}"


def _conditions(wanted: MetadataFilter) -> Iterator[Condition]:
    """Yield all conditions of a filter."""
    if isinstance(wanted, And | Or):
        for part in wanted.parts:
            yield from _conditions(part)
    elif isinstance(wanted, Condition):
        yield wanted


def _is_negated(condition: Condition) -> bool:
    return getattr(condition, "negated", False) or getattr(condition, "op", "") == "!="


def _explained(
    condition: Condition, rows: list[Any], *, only_mistakes: bool
) -> list[str]:
    """Return a message about a condition that matches no row; none if no row has the field."""
    path = parse_path(condition.field)
    values = list(filter(_is_present, (resolve(row, path) for row in rows)))
    if not values:
        return []

    suggestion = _suggested_form(condition, values)
    if suggestion is not None:
        return [_no_match(condition, values, suggestion)]

    known = frequent_texts(values)
    if known and _can_be_misspelt(condition):
        messages = _unknown_values(condition, known)
        if only_mistakes:
            return list(filter(_has_suggestion, messages))
        return messages

    if only_mistakes and _has_kind(values, _compared(condition)):
        return []

    return [_no_match(condition, values)]


def _no_match(condition: Condition, values: list[Any], suggestion: str = "") -> str:
    """Return that a condition matches nothing, with the reason and the form that may be meant."""
    reason = _reason(condition, values)
    message = f"no metadata matches {_short(condition)}: {reason}. {suggestion}"
    return message.rstrip()


def _is_present(value: Any) -> bool:
    return value is not MISSING and value is not None


def _short(condition: Condition) -> str:
    return condition.text()[: 2 * _LONGEST]


def _suggested_form(condition: Condition, values: list[Any]) -> str | None:
    """Return the first other form of a condition that matches values, with their number; None without one."""
    for form in other_forms(condition, values):
        count = sum(map(form.accepts, values))
        if count:
            return f"Did you mean {_short(form)}? It matches {count:,}."

    return None


def _can_be_misspelt(condition: Condition) -> bool:
    """Return whether a condition names a text exactly; the message then names the nearest, as for columns."""
    if isinstance(condition, Glob) or getattr(condition, "op", "=") != "=":
        return False
    return isinstance(_compared(condition), str)


def _has_suggestion(message: str) -> bool:
    return "Did you mean" in message


def _unknown_values(condition: Condition, known: list[str]) -> list[str]:
    messages = []
    for value in compared_values(condition):
        if isinstance(value, str):
            shown = value[:_LONGEST]
            suggestion = nearest(value, known)
            messages.append(
                f"no metadata has {condition.field} {shown!r}. {suggestion}"
            )

    return messages


def _reason(condition: Condition, values: list[Any]) -> str:
    """Return the types and some values of a field, for example "version is text, for example '1.26'"."""
    kinds = Counter(_KINDS[type(value)] for value in values)
    listed = " or ".join(kind for kind, _ in kinds.most_common())
    reason = f"{condition.field} is {listed}"
    if is_secret_name(condition.field):
        return reason

    if set(kinds) == {_KINDS[float]}:
        least, most = min(values), max(values)
        if least < most:
            return f"{reason} from {least} to {most}"

    example = str(values[0])[:_LONGEST]
    return f"{reason}, for example {example!r}".replace('"', "")


def _has_kind(values: list[Any], compared: Any) -> bool:
    """Return whether any value has the type that a condition compares with."""
    kinds = {_KINDS[type(value)] for value in values}
    return _KINDS.get(type(compared)) in kinds


def _compared(condition: Condition) -> Any:
    """Return the value of a condition, the first one of several, or the pattern."""
    if isinstance(condition, Glob):
        return condition.pattern
    return compared_values(condition)[0]
