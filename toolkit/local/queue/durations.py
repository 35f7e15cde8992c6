"""Durations and moments as headers write them: ``50s``, ``1d10h30m``, ``6m5s``, seconds, HTTP dates."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

DAY_MS: Final = 86_400_000

_UNITS: Final = {"d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION: Final = re.compile(
    "".join(rf"(?:(\d{{1,9}}(?:\.\d{{1,9}})?){unit})?" for unit in ("d", "h", "m(?!s)", "s", "ms")),
    re.ASCII,
)
_SECONDS: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)


def duration_ms(text: str) -> int | None:
    """Milliseconds of a duration, or of a bare number of seconds; None when it is neither.

    >>> [duration_ms(text) for text in ("1d10h30m", "6m5s", "120ms", "90", "5x")]
    [124200000, 365000, 120, 90000, None]
    """
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return round(float(text) * 1000)
    found = _DURATION.fullmatch(text)
    if not found or not text:
        return None
    return round(
        sum(float(part) * unit for part, unit in zip(found.groups(), _UNITS.values(), strict=True) if part)
    )


def wait_ms(text: str, now_ms: int) -> int | None:
    """How long an answer asks to wait: seconds, a duration or an HTTP date (a past one means now).

    None when the text is none of these.

    >>> wait_ms("Thu, 01 Jan 1970 00:00:10 GMT", 4000), wait_ms("2", 0), wait_ms("-1", 0)
    (6000, 2000, None)
    """
    wait = duration_ms(text)
    if wait is not None:
        return wait
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000) - now_ms)
