"""How a metadata filter can go on from where a person is typing: fields, operators, values, AND and OR."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from toolkit.errors import FilterSyntaxError
from toolkit.filters.metadata import parse
from toolkit.redaction import visible
from toolkit.tables.metadata_fields import MetadataField
from toolkit.widgets.metadata_condition import fitting, literal

_MOST: Final = 40
_PLACE: Final = re.compile(r"\[(?:#-)?\d+\]")
_FIELD: Final = r"[A-Za-z_][\w.\[\]#-]*"
_REST_OF_WORD: Final = re.compile(r"^[\w.\[\]#-]*")
_REST_OF_TEXT: Final = re.compile(r"^[^'\"]*['\"]?")
_STARTING: Final = re.compile(rf"(?:^|\(|\b(?:and|or|field)\s)\s*({_FIELD})?$", re.IGNORECASE)
_OPERATOR: Final = re.compile(rf"(?:^|[\s(])({_FIELD})\s+([a-z ]*)$", re.IGNORECASE)
_VALUE: Final = re.compile(
    rf"({_FIELD})\s*(?:!=|<=|>=|=|<|>|\s(?:not\s+)?contains\s|\s(?:not\s+)?in\s*\((?:[^()]*,)?)"
    r"\s*('[^']*|\"[^\"]*|[\w.+-]*)$",
    re.IGNORECASE,
)


def known_as(fields: Iterable[MetadataField], name: str) -> MetadataField | None:
    """The field of this name; for another place of an array, what is known of its first.

    >>> known_as([MetadataField("tags[0]", ("text",), 1, ())], "tags[7]").kinds
    ('text',)
    """
    named = {field.name: field for field in fields}
    return named.get(name) or named.get(_PLACE.sub("[0]", name))


def offers(text: str, head: str, fields: Sequence[MetadataField]) -> list[tuple[str, str, str]]:
    """What can follow at the caret of a text: the word, and the text before and after the caret with it.

    What is left of a word that the caret stands in goes with it.

    >>> fields = [MetadataField("city", ("text",), 2, ())]
    >>> offers("cx = 1", "c", fields)
    [('city', 'city', ' = 1')]
    """
    begun, endings = _continued(head, fields)
    kept, rest = head[: len(head) - len(begun)], text[len(head) :]
    if begun:
        rest = (_REST_OF_TEXT if begun[0] in "'\"" else _REST_OF_WORD).sub("", rest, count=1)
    return [
        (ending.strip(), f"{kept}{ending.rstrip() if rest.startswith(' ') else ending}", rest)
        for ending in endings
    ]


def _continued(text: str, fields: Sequence[MetadataField]) -> tuple[str, list[str]]:
    """The word begun at the end of a text, and the words that it can become."""
    if text.count("'") % 2 == 0 and text.count('"') % 2 == 0:
        found = _STARTING.search(text)
        if found:
            if re.search(r"field\s+\S*$", text, re.IGNORECASE):
                return _fitting(found[1] or "", [field.name for field in fields])
            names = [f"{field.name} " for field in fields]
            return _fitting(found[1] or "", [*names, "HAS FIELD ", "HAS NOT FIELD "])
    found = _VALUE.search(text)
    if found:
        field = known_as(fields, found[1])
        return _fitting(found[2], [literal(value) for value, _ in field.frequent] if field else [])
    if text.endswith(" ") and _whole(text):
        return "", ["AND ", "OR "]
    found = _OPERATOR.search(text)
    if found and found[1].lower() not in ("and", "or"):
        field = known_as(fields, found[1])
        operators = [
            f"{operator} " for operator in fitting(field.kinds if field else ()) if "HAS" not in operator
        ]
        return _fitting(found[2], operators)
    return "", []


def _fitting(begun: str, endings: Iterable[str]) -> tuple[str, list[str]]:
    """Those of the endings that go on from what is begun, values in either quotes.

    None that cannot be shown as it is: chosen, it would be another text.
    """
    sought = begun.replace('"', "'").casefold()
    found = [
        ending
        for ending in endings
        if ending.casefold().startswith(sought) or (sought and ending.casefold().startswith(f"'{sought}"))
    ]
    return begun, [ending for ending in found if ending != begun and visible(ending) == ending][:_MOST]


def _whole(text: str) -> bool:
    try:
        parse(text)
    except FilterSyntaxError:
        return False
    return True
