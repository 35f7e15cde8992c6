"""What a response's status and headers mean: a typed error, whether to retry, and after which delay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Final

import msgspec

from toolkit.errors import (
    AuthenticationError,
    BadRequestError,
    DailyLimitError,
    NotFoundError,
    RateLimitError,
    RedirectError,
    ResponseError,
    ServerError,
    ServiceError,
    UnprocessableError,
)
from toolkit.redaction import Redactor
from toolkit.settings.service import REGIONS, Endpoint
from toolkit.times import delay_ms, http_date_ms

MOST_SHOWN: Final = 500
"""Characters of foreign text that an error shows at most."""

_MAX_BURST_DELAY: Final = 60.0
_MOST_DOUBLINGS: Final = 60  # beyond, a float would overflow long after any delay is the longest
_KINDS: Final[dict[int, tuple[type[ResponseError], str | None]]] = {
    400: (BadRequestError, None),
    401: (AuthenticationError, "Check the token: connect() with a valid one, then call again."),
    403: (AuthenticationError, "This token may not do that."),
    404: (NotFoundError, None),
    422: (UnprocessableError, None),
}


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often and how long one request is tried; times are in seconds."""

    tries: int = 8
    total: float = 180.0  # of all tries and delays of a request
    deadline: float = 60.0  # of one complete response, head and body
    first_delay: float = 0.25  # our own backoff, before jitter shortens it by up to half
    longest_delay: float = 4.0
    most_bytes: int = 512 * 1024 * 1024  # of a response after decompression

    def delay_before(self, try_number: int, error: ServiceError, random: Random) -> float:
        """Seconds before try `try_number` (the second try is 2): the service's delay, or our own backoff."""
        if isinstance(error, ResponseError) and error.wait is not None:
            return error.wait
        backoff = min(self.longest_delay, self.first_delay * 2.0 ** min(try_number - 2, _MOST_DOUBLINGS))
        return backoff * random.uniform(0.5, 1.0)


def status_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    doing: str,
    request: str,
    redactor: Redactor,
    endpoint: Endpoint | None = None,
) -> ServiceError:
    """The error for a response with this status, with the service's own message, masked.

    `doing` and `request` describe the request in the error; `endpoint` is the one whose token was sent.
    """
    if 300 <= status < 400:  # noqa: PLR2004 - the redirects
        return RedirectError(
            doing,
            request=request,
            got=f"{status} to {redactor.url(headers.get('Location', 'nowhere'))[:MOST_SHOWN]}",
            expected="a response from this address",
            next_step="If the service has moved, connect to its new address.",
        )
    message = redactor.text(_message(body))[:MOST_SHOWN]
    if status == 429:  # noqa: PLR2004 - the status for too many requests
        return _limit_error(doing, message, request, headers)
    kind, next_step = _KINDS.get(status, (ServerError if status >= 500 else ResponseError, None))  # noqa: PLR2004
    if status == 401 and endpoint is not None and endpoint.region:  # noqa: PLR2004 - no valid token
        (other,) = (region for region in REGIONS if region != endpoint.region)
        next_step = (
            f"This is the address of {endpoint.region}, and each region has its own token: check the token, "
            f"or, if it is one of {other}, connect(region={other!r})."
        )
    delay = retry_after(headers) if status == 503 else None  # noqa: PLR2004 - temporarily unavailable
    return kind(doing, status=status, message=message, request=request, next_step=next_step, wait=delay)


def _limit_error(doing: str, message: str, request: str, headers: Mapping[str, str]) -> RateLimitError:
    delay, renewed = retry_after(headers), daily_reset(headers)
    if delay is None and renewed is not None:
        return DailyLimitError(
            doing,
            status=429,
            message=message,
            request=request,
            next_step=f"The daily limit is used up; it is renewed at {renewed.isoformat()}. Call again then.",
        )
    return RateLimitError(
        doing, status=429, message=message, request=request, wait=delay, limit=burst_limit(headers)
    )


def _message(body: bytes) -> str:
    """The service's own message: the `error` field, or the start of the body."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        return str(value["error"])
    return " ".join(body[: 4 * MOST_SHOWN].decode("utf-8", "replace").split())[:MOST_SHOWN]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of delay that a 429 or 503 asks for, at most 36,500 days; None without a usable header.

    ``Retry-After`` as seconds, as a duration such as ``6m5s``, or as an HTTP date, and
    ``Burst-RateLimit-Reset`` in Unix seconds. Dates are compared with the response's own ``Date``, so that a
    wrong local clock changes nothing.

    >>> retry_after({"Retry-After": "6m5s"})
    365.0
    """
    delay = delay_ms(headers.get("Retry-After", ""), _server_ms(headers))
    if delay is not None:
        return delay / 1000
    reset = headers.get("Burst-RateLimit-Reset", "").strip()
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", reset, re.ASCII):
        return min(_MAX_BURST_DELAY, max(0.0, float(reset) - _server_ms(headers) / 1000))
    return None


def burst_limit(headers: Mapping[str, str]) -> int | None:
    """Requests a second that a 429 names as the limit; None when it names none."""
    limit = headers.get("Burst-RateLimit-Limit", "").strip()
    return int(limit) if re.fullmatch(r"[1-9]\d{0,6}", limit) else None


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
    """The response's Date in Unix milliseconds, or the local time without a readable one."""
    date = http_date_ms(headers.get("Date", ""))
    return round(datetime.now(UTC).timestamp() * 1000) if date is None else date
