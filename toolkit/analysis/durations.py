"""Spans of time as people write them: ``7d``, ``1d12h``, ``90min``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from toolkit.errors import InputError

_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART: Final = re.compile(r"(\d{1,6})\s*(min|[smhdw])\s*")
_LONGEST: Final = timedelta(days=36_500)


def parse_duration(value: str | timedelta, *, name: str = "duration") -> timedelta:
    """A span of time from text.

    Parameters
    ----------
    value : str or timedelta
        Whole numbers with the units ``s``, ``m`` or ``min``, ``h``, ``d``, ``w``, one after another. More
        than nothing, at most 36,500 days.
    name : str
        What the span is, for the error.

    Returns
    -------
    datetime.timedelta

    Raises
    ------
    InputError
        When it cannot be read, or is out of bounds.

    Examples
    --------
    >>> parse_duration("1d12h")
    datetime.timedelta(days=1, seconds=43200)
    """
    span = value if isinstance(value, timedelta) else _read(value)
    if span is None or not timedelta(0) < span <= _LONGEST:
        raise InputError(
            f"reading {name}",
            got=repr(value),
            expected="a span such as '90min', '12h', '7d' or '1d12h', of at most 36,500 days",
        )
    return span


def _read(text: object) -> timedelta | None:
    if not isinstance(text, str) or not re.fullmatch(f"(?:{_PART.pattern})+", text.strip()):
        return None
    total = timedelta(0)
    for amount, unit in _PART.findall(text.strip()):
        total += int(amount) * _UNITS[unit]
    return total
