"""When to ask again, and how long to wait: pure functions of an answer's headers, and one policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Final

from toolkit.errors import ResponseError, ServiceError
from toolkit.times import http_date_ms, wait_ms

_MAX_BURST_WAIT: Final = 60.0
_MOST_DOUBLINGS: Final = 60  # beyond, a float would overflow long after any wait is the longest


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often and how long one request is tried.

    Attributes
    ----------
    tries : int
        How often a request is sent at most.
    total : float
        Seconds all tries and waits of one request may take together.
    deadline : float
        Seconds one whole answer may take, head and body.
    first_wait, longest_wait : float
        Seconds of the first and of the longest wait of our own; each is drawn between half and whole.
    most_bytes : int
        Bytes an answer may have after decompression.
    """

    tries: int = 6
    total: float = 180.0
    deadline: float = 60.0
    first_wait: float = 0.25
    longest_wait: float = 20.0
    most_bytes: int = 512 * 1024 * 1024

    def wait_before(self, try_number: int, error: ServiceError, random: Random) -> float:
        """Seconds to wait before try `try_number` (the second try is 2), after `error`.

        What the service asked for is waited exactly; otherwise the wait doubles, with jitter.
        """
        if isinstance(error, ResponseError) and error.wait is not None:
            return error.wait
        whole = min(self.longest_wait, self.first_wait * 2.0 ** min(try_number - 2, _MOST_DOUBLINGS))
        return whole * random.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds a 429 or 503 asks to wait, at most 36,500 days; None when it says nothing that can be followed.

    ``Retry-After`` as seconds, as a duration such as ``6m5s``, or as an HTTP date, and
    ``Burst-RateLimit-Reset`` in Unix seconds. Dates are compared with the answer's own ``Date``, so that a
    wrong local clock changes nothing.

    >>> retry_after({"Retry-After": "6m5s"})
    365.0
    """
    wait = wait_ms(headers.get("Retry-After", ""), _server_ms(headers))
    if wait is not None:
        return wait / 1000
    reset = headers.get("Burst-RateLimit-Reset", "").strip()
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", reset, re.ASCII):
        return min(_MAX_BURST_WAIT, max(0.0, float(reset) - _server_ms(headers) / 1000))
    return None


def burst_limit(headers: Mapping[str, str]) -> int | None:
    """Requests a second that a 429 names as the limit; None when it names none.

    >>> burst_limit({"Burst-RateLimit-Limit": "100"})
    100
    """
    told = headers.get("Burst-RateLimit-Limit", "").strip()
    return int(told) if re.fullmatch(r"[1-9]\d{0,6}", told) else None


def daily_reset(headers: Mapping[str, str]) -> datetime | None:
    """When a used-up daily limit is renewed, for a 429 that names one; None for any other.

    >>> daily_reset({"RateLimit-Limit": "500", "RateLimit-Remaining": "0", "RateLimit-Reset": "1767225600"})
    datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    if headers.get("RateLimit-Remaining", "0").strip() != "0":
        return None
    reset = headers.get("RateLimit-Reset", "").strip()
    if "RateLimit-Limit" not in headers or not re.fullmatch(r"\d{1,11}", reset):
        return None
    return datetime.fromtimestamp(int(reset), UTC)


def _server_ms(headers: Mapping[str, str]) -> int:
    """The response's Date in Unix milliseconds, or the local time when it has none that can be read."""
    told = http_date_ms(headers.get("Date", ""))
    return round(datetime.now(UTC).timestamp() * 1000) if told is None else told
