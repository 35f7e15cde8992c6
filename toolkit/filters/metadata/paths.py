"""Where a field lies in nested metadata: ``address.city``, ``tags[0]``, ``events[#-1].code``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolkit.errors import InputError

MISSING: Final = object()
"""What `resolve` gives where nothing is."""

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_\-]*"
_PLACE: Final = r"\[(?:#-)?[0-9]{1,9}\]"
_PATH: Final = re.compile(rf"{_NAME}(?:{_PLACE})*(?:\.{_NAME}(?:{_PLACE})*)*", re.ASCII)
_STEP: Final = re.compile(rf"({_NAME})|\[(#-)?([0-9]+)\]", re.ASCII)


def parse_path(field: str) -> tuple[str | int, ...]:
    """The steps of a field: names as text, places as numbers, counted from the end where negative.

    Raises
    ------
    InputError
        When the text is no field.

    Examples
    --------
    >>> parse_path("events[#-1].code")
    ('events', -1, 'code')
    """
    if not isinstance(field, str) or not _PATH.fullmatch(field):
        raise InputError(
            "reading a metadata field",
            got=repr(field)[:80],
            expected="names joined by dots, with places in arrays such as [0] or, from the end, [#-1]",
        )
    steps: list[str | int] = []
    for name, from_end, place in _STEP.findall(field):
        if from_end and not int(place):
            raise InputError(
                f"reading the metadata field {field!r}", got="[#-0]", expected="[#-1] for the last element"
            )
        steps.append(name or (-int(place) if from_end else int(place)))
    return tuple(steps)


def is_path(field: str) -> bool:
    """Whether a text is a field of the language.

    >>> is_path("tags[0]"), is_path("two words")
    (True, False)
    """
    return _PATH.fullmatch(field) is not None


def resolve(metadata: Any, path: tuple[str | int, ...]) -> Any:
    """What lies at a path, or `MISSING`.

    >>> resolve({"events": [{"code": 3}, {"code": 4}]}, ("events", -1, "code"))
    4
    """
    value = metadata
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, Mapping) or step not in value:
                return MISSING
        elif not isinstance(value, list | tuple) or not -len(value) <= step < len(value):
            return MISSING
        value = value[step]
    return value
