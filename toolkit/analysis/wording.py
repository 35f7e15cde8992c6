"""Numbers, shares, spans and times as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

_SIZES: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
_SPANS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_TENS: Final = 10


def short_number(value: float) -> str:
    """A count in at most four characters or so.

    >>> short_number(999), short_number(1234), short_number(2_000_000)
    ('999', '1.2k', '2M')
    """
    for size, sign in _SIZES:
        # 1M, not 1000k
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.1f}".removesuffix(".0") + sign if abs(scaled) < _TENS else f"{scaled:.0f}{sign}"
    return f"{value:g}"


def fitting_numbers(counts: Iterable[int], limit: int) -> list[str]:
    """Counts in full where each takes at most `room` characters, else all of them short.

    >>> fitting_numbers([5166, 30], 5), fitting_numbers([5166, 30], 4)
    (['5,166', '30'], ['5.2k', '30'])
    """
    numbers = list(counts)
    full = [f"{number:,}" for number in numbers]
    return full if max(map(len, full), default=0) <= limit else [short_number(number) for number in numbers]


def percent(share: float) -> str:
    """A share of 1 in whole percent, but never 0 % of something nor 100 % of not quite all.

    >>> percent(0.347), percent(0.0004), percent(0.9996), percent(1.0)
    ('35 %', '<1 %', '>99 %', '100 %')
    """
    whole = round(share * 100)
    if whole == 0 and share > 0:
        return "<1 %"
    if whole == 100 and share < 1:  # noqa: PLR2004 - percent
        return ">99 %"
    return f"{whole} %"


def span(length: timedelta) -> str:
    """A span of time in its one or two largest units.

    >>> span(timedelta(hours=3)), span(timedelta(days=1, hours=6)), span(timedelta(seconds=90))
    ('3 h', '1 d 6 h', '1 min 30 s')
    """
    seconds = round(abs(length.total_seconds()))
    for number, (sign, size) in enumerate(_SPANS):
        if seconds >= size:
            whole, seconds_left = divmod(seconds, size)
            smaller = _SPANS[number + 1] if number + 1 < len(_SPANS) else None
            second = seconds_left // smaller[1] if smaller and whole < _TENS else 0
            return f"{whole} {sign} {second} {smaller[0]}" if smaller and second else f"{whole} {sign}"
    return "0 s"


def elapsed(seconds: float) -> str:
    """What took so many seconds, with parts of a second where it took few.

    >>> elapsed(0.02), elapsed(90)
    ('0.02 s', '1 min 30 s')
    """
    return f"{seconds:.3g} s" if seconds < _TENS else span(timedelta(seconds=seconds))


def time_text(when: datetime) -> str:
    """A time in UTC, to the minute.

    >>> time_text(datetime(2026, 3, 1, 9, 5, tzinfo=UTC))
    '2026-03-01 09:05 UTC'
    """
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def counted(number: int, thing: str) -> str:
    """A number with its noun.

    >>> counted(1, "failure"), counted(1200, "failure")
    ('1 failure', '1,200 failures')
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def shorten(text: str, longest: int) -> str:
    """A text of at most so many characters; a longer one loses its end.

    >>> shorten("connection refused", 11)
    'connection…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
