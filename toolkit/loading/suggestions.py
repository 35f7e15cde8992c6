"""Where to split a window of time: suggestions from the moments seen on a page.

Pure. A suggestion decides how fast a load is, never what is in it: any cuts make a partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from toolkit.times import http_date_ms

FAR: Final = 4_102_444_800_000
"""The year 2100, in Unix milliseconds: a bound to calculate with, where a window has none."""

PART: Final = 8
"""Pages that a part of a split window is meant to have, at least."""

_MOST_PARTS: Final = 8
_FEW_PARTS: Final = 2
_LEAPS: Final = 5  # parts that grow with the distance
_MOST_EVEN: Final = 128  # parts' worth of pages in a window that is divided evenly
_MUCH_MORE: Final = 4  # times as many pages as expected: the entries lie otherwise than thought
_SHARE: Final = 0.9  # of the moments that have to agree
_HOUR: Final = 3_600_000
_MILLISECONDS: Final = (
    re.compile(rb'"createdAt": ?(\d{13})\b'),
    re.compile(rb'"workflowCreatedAt": ?(\d{13})\b'),
)
_DATES: Final = re.compile(rb'"[Dd]ate": ?\["([^"\\]{20,40})"')


def moments(rows: bytes, first: int | None, last: int | None) -> list[int] | None:
    """Moments of a page's entries, in the page's order, of a kind that agrees with the window asked for.

    The service does not say which of an entry's times the dates are compared with. Whichever lies in the
    window will do; None where none does.

    >>> moments(b'[{"createdAt": 1767225600000}, {"createdAt": 1767225500000}]', None, None)
    [1767225600000, 1767225500000]
    >>> moments(b'[{"createdAt": 1767225600000}]', 5, 7)
    """
    low, high = first or 0, FAR if last is None else last
    for read in (*map(_numbers, _MILLISECONDS), _dates):
        found = read(rows)
        if found and sum(low <= moment <= high for moment in found) >= _SHARE * len(found):
            return [moment for moment in found if low <= moment <= high]
    return None


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """How a window may be split.

    Attributes
    ----------
    cuts : tuple of int
        Ascending; each is the last millisecond of a part, the next part begins one later. Empty where the
        window cannot be split.
    rest : float or None
        Pages that are left to read behind the page looked at, if what it shows goes on; None when it shows
        nothing.
    expected : tuple of float or None
        Pages each part has, if so: one more than there are cuts.
    """

    cuts: tuple[int, ...] = ()
    rest: float | None = None
    expected: tuple[float | None, ...] = ()


def suggest(
    first: int | None,
    last: int | None,
    seen: Sequence[int] | None,
    *,
    now: int,
    part: float = PART,
    expected: float | None = None,
    ends: bool = False,
) -> Suggestion:
    """Where to split a window.

    Parameters
    ----------
    first, last : int or None
        The window, both ends included.
    seen : sequence of int or None
        The moments of a page of it, in the page's order.
    now : int
        Unix milliseconds, by any clock: where to look first when nothing was seen.
    part : float
        Pages that a part should have.
    expected : float or None
        Pages the window was thought to have when it was made.
    ends : bool
        Also cut right behind one moment seen and right before another: a service that does not include an
        end of a window would then lose an entry that is known to be there.

    Returns
    -------
    Suggestion

    Examples
    --------
    >>> suggest(0, 99_999, range(99_999, 90_000, -100), now=0, expected=10)
    Suggestion(cuts=(49999,), rest=9.1..., expected=(5.0..., 5.0...))
    """
    low = 0 if first is None else first
    high = FAR if last is None else last
    if high <= low:
        return Suggestion()
    if not seen:
        return _blind(low, high, now=now, unbounded=first is None or last is None)
    falls = sum(early >= late for early, late in pairwise(seen))
    rises = sum(early <= late for early, late in pairwise(seen))
    steps = len(seen) - 1
    if falls >= _SHARE * steps:
        return _ahead(low, high, seen, part=part, expected=expected, ends=ends)
    if rises >= _SHARE * steps:
        # the same with time running backwards
        backwards = [-moment for moment in seen]
        mirrored = _ahead(-high, -low, backwards, part=part, expected=expected, ends=ends)
        return Suggestion(
            cuts=tuple(sorted(-cut - 1 for cut in mirrored.cuts)),
            rest=mirrored.rest,
            expected=mirrored.expected[::-1],
        )
    return _sampled(low, high, sorted(seen))


def _ahead(
    low: int, high: int, seen: Sequence[int], *, part: float, expected: float | None, ends: bool
) -> Suggestion:
    """Newest first: what is left lies before the oldest moment seen, and as dense, unless it does not."""
    oldest, newest = min(seen), max(seen)
    span = max(1, newest - oldest)
    rest = (oldest - low) / span
    pages = rest + 1
    as_expected = expected is not None and pages <= min(_MUCH_MORE * expected, _MOST_EVEN * part)
    cuts = set[int]()
    if as_expected or pages <= _MOST_PARTS * part:
        parts = max(_FEW_PARTS, min(_MOST_PARTS, round(pages / part)))
        width = (newest - low) / parts
        cuts = {int(newest - width * number) for number in range(1, parts)}
    else:
        # nothing is known of how far the entries reach: parts that grow with the distance, few as they are
        ratio = max(4.0, (pages / part) ** (1 / _LEAPS))
        distance = span * part
        while newest - distance > low:
            cuts.add(int(newest - distance))
            distance *= ratio
    if ends or newest == oldest:
        lowest, second = (*sorted(set(seen))[:2], oldest)[:2]
        cuts |= {lowest, second - 1}
    return _checked(cuts, low, high, rest=rest, newest=newest, span=span)


def _sampled(low: int, high: int, seen: Sequence[int]) -> Suggestion:
    """In no order: the page is a sample of the window, its quantiles divide the window evenly."""
    picked = [seen[len(seen) * number // _MOST_PARTS] for number in range(1, _MOST_PARTS)]
    # in turns behind a moment and before it, for the sake of both ends
    cuts = {moment - number % 2 for number, moment in enumerate(picked)}
    return _checked(cuts, low, high)


def _blind(low: int, high: int, *, now: int, unbounded: bool) -> Suggestion:
    """Nothing seen: equal parts, or parts that grow with the distance from now."""
    if unbounded:
        distances = [_HOUR * 4**number for number in range(_MOST_PARTS)]
        cuts = {now, *(now - distance for distance in distances)} if low < now <= high else set()
        cuts |= set() if cuts else {low + distance for distance in distances}
    else:
        cuts = {low + (high - low) * number // _MOST_PARTS for number in range(1, _MOST_PARTS)}
        cuts |= {low} if high - low < _MOST_PARTS else set()
    return _checked(cuts, low, high)


def _checked(
    cuts: set[int],
    low: int,
    high: int,
    *,
    rest: float | None = None,
    newest: int = 0,
    span: int | None = None,
) -> Suggestion:
    """The cuts that lie in the window, or its middle, and the pages between them at a page a span."""
    inside = sorted(cut for cut in cuts if low <= cut < high) or [(low + high) // 2]
    bounds = pairwise([low, *inside, newest])
    expected = [None if span is None else max(0, after - before) / span for before, after in bounds]
    return Suggestion(cuts=tuple(inside), rest=rest, expected=tuple(expected))


def _numbers(pattern: re.Pattern[bytes]) -> Callable[[bytes], list[int]]:
    return lambda rows: [int(digits) for digits in pattern.findall(rows)]


def _dates(rows: bytes) -> list[int]:
    found = (http_date_ms(text.decode("latin-1")) for text in _DATES.findall(rows))
    return [moment for moment in found if moment is not None]
