"""Format results for people: numbers, shares, spans and times as text.

This module imports neither pandas nor numpy, so that commands that need no frame start fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

ROWS_SHOWN: Final = 20
"""Rows of a table that a notebook or a terminal shows unless all are requested."""

_SIZES: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
_SPANS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_TENS: Final = 10


def short_number(value: float) -> str:
    """Return a count in about four characters.

    >>> short_number(999), short_number(1234), short_number(2_000_000)
    ('999', '1.2k', '2M')
    """
    for size, sign in _SIZES:
        # 1M, not 1000k
        if abs(value) >= size * 0.9995:
            scaled = value / size
            if abs(scaled) >= _TENS:
                return f"{scaled:.0f}{sign}"
            return f"{scaled:.1f}".removesuffix(".0") + sign

    return f"{value:g}"


def fitting_numbers(counts: Iterable[int], limit: int) -> list[str]:
    """Return counts in full if each takes at most `limit` characters; otherwise all of them shortened.

    >>> fitting_numbers([5166, 30], 5), fitting_numbers([5166, 30], 4)
    (['5,166', '30'], ['5.2k', '30'])
    """
    numbers = list(counts)
    full = list(map("{:,}".format, numbers))
    if max(map(len, full), default=0) <= limit:
        return full

    return list(map(short_number, numbers))


def percent(share: float) -> str:
    """Return a share of 1 in whole percent, but "0 %" only for nothing and "100 %" only for all.

    >>> percent(0.347), percent(0.0004), percent(0.9996), percent(1.0)
    ('35 %', '<1 %', '>99 %', '100 %')
    """
    whole = round(share * 100)
    if whole == 0 and share > 0:
        return "<1 %"
    if whole == 100 and share < 1:  # noqa: PLR2004 - percent
        return ">99 %"

    return f"{whole} %"


def describe_condition(condition: dict[str, Any]) -> str:
    """Return a condition as text.

    A signature is called a group: under the name "signature", the id would be masked as a signed token is.

    >>> describe_condition({"region": "eu", "signature": "s5-703ae1747355"})
    'region = eu and group = s5-703ae1747355'
    """
    names = {"signature": "group"}
    stated = " and ".join(
        f"{names.get(name, name)} = {value}" for name, value in condition.items()
    )
    return stated or "all failures"


def span(length: timedelta) -> str:
    """Return a span of time in one or two units, the largest that fit.

    >>> span(timedelta(hours=3)), span(timedelta(days=1, hours=6)), span(timedelta(seconds=90))
    ('3 h', '1 d 6 h', '1 min 30 s')
    """
    seconds = round(abs(length.total_seconds()))
    for (sign, size), (smaller_sign, smaller_size) in pairwise(_SPANS):
        if seconds >= size:
            count, rest = divmod(seconds, size)
            smaller_count = rest // smaller_size
            # the second unit of "12 d 5 h" tells little
            if smaller_count and count < _TENS:
                return f"{count} {sign} {smaller_count} {smaller_sign}"
            return f"{count} {sign}"

    return f"{seconds} s"


def elapsed(seconds: float) -> str:
    """Return a duration, with parts of a second if it is below ten seconds.

    >>> elapsed(0.02), elapsed(90)
    ('0.02 s', '1 min 30 s')
    """
    if seconds < _TENS:
        return f"{seconds:.3g} s"
    return span(timedelta(seconds=seconds))


def value_text(value: object) -> str:
    """Return a value of a column as text. An integer that pandas converted to a float has no ``.0``.

    >>> value_text(500.0), value_text("a b"), value_text(True)
    ('500', 'a b', 'True')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def counted(number: int, thing: str) -> str:
    """Return a number with a noun.

    >>> counted(1, "failure"), counted(1200, "failure")
    ('1 failure', '1,200 failures')
    """
    if number == 1:
        return f"{number:,} {thing}"
    return f"{number:,} {thing}s"


def shorten(text: str, longest: int) -> str:
    """Cut the end of a string that is longer than `longest` characters.

    >>> shorten("connection refused", 11)
    'connection…'
    """
    if len(text) <= longest:
        return text
    return f"{text[: longest - 1]}…"


def headline(verdict: str, rows: int) -> str:
    """Return the sentence above a table of the first rows of `.groups`, with the number of all rows.

    >>> headline("Done", 20), headline("Done", 1_200)
    ('Done', 'Done; 20 of 1,200 rows of .groups:')
    """
    if rows <= ROWS_SHOWN:
        return verdict
    return f"{verdict}; {ROWS_SHOWN} of {rows:,} rows of .groups:"
