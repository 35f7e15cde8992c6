"""What is usual at an hour, and named times such as deployments, beside counts over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from toolkit.arguments import text, wrong
from toolkit.errors import InputError
from toolkit.redaction import Redactor
from toolkit.times import parse_time

Markers: TypeAlias = Mapping[str, Any] | Iterable[Any]
"""Names and their times, or pairs of a time and a name."""

_WEEK: Final = timedelta(days=7)
_DAY: Final = timedelta(days=1)
_FEWEST: Final = 2  # earlier bins of the same hour that make a baseline
_MOST: Final = 8  # the latest of them that count
_MARKERS: Final = 200


def usual_counts(counts: NDArray[np.int64], step: timedelta) -> NDArray[np.float64]:
    """What each bin usually holds: the median of the same hour of earlier weeks, or else of earlier days.

    NaN where fewer than two are known, and where bins are no whole part of a day or week.
    """
    usual = np.full(len(counts), np.nan)
    for cycle in (_DAY, _WEEK):  # weeks, where there are enough of them, replace days
        if cycle % step or cycle < step:
            continue
        width = cycle // step
        for number in range(_FEWEST * width, len(counts)):
            usual[number] = np.median(counts[number % width : number : width][-_MOST:])
    return usual


def read_markers(markers: Markers | None, now: datetime | None = None) -> tuple[tuple[datetime, str], ...]:
    """Times and masked names, the earliest first."""
    if markers is None:
        return ()
    expected = "names with their times, or pairs of a time and a name"
    if isinstance(markers, str | bytes) or not isinstance(markers, Iterable):
        raise wrong("markers", markers, expected)
    pairs: list[Any] = list(markers)
    if isinstance(markers, Mapping):
        pairs = [(when, name) for name, when in markers.items()]
    if len(pairs) > _MARKERS:
        raise wrong("markers", markers, f"at most {_MARKERS} markers")
    clean, found = Redactor().text, []
    for pair in pairs:
        if isinstance(pair, str | bytes) or not isinstance(pair, Iterable) or len(both := list(pair)) != 2:  # noqa: PLR2004 - a pair
            raise wrong("markers", pair, expected)
        try:
            when = parse_time(both[0], now=now, name="markers")
            found.append((when, clean(text("markers", both[1], empty=False))))
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError):
            raise wrong("markers", both[0], expected) from None
    return tuple(sorted(found))
