"""Define requests and responses, read small responses, and map statuses to errors, retries and delays.

A response that is not as specified raises `MalformedResponseError`. An envelope (the object around rows) is
split without reading the rows; a small response is read completely. In both, a repeated name is an error,
because JSON readers would silently keep one of the two values and drop the other, for example a whole array
of rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from random import Random
from typing import Any, Final, NoReturn

import msgspec

from toolkit.base.errors import (
    AuthenticationError,
    BadRequestError,
    DailyLimitError,
    MalformedResponseError,
    NotFoundError,
    RateLimitError,
    RedirectError,
    ResponseError,
    ServerError,
    ServiceError,
    UnprocessableError,
)
from toolkit.base.members import SHOWN, integer_or_raw, kind_of, pairs, read_json, shown
from toolkit.base.own_tokens import masked
from toolkit.base.times import delay_ms, http_date_ms
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import REGIONS, Endpoint

MOST_CURSOR: Final = 4_096
"""Maximum length of a cursor. It is part of an address, and servers accept about 8,000 characters."""

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
SHORTEST: Final = len(',"runs":0')
"""Bytes of the shortest member that an envelope could contain twice."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request below a base address."""

    doing: str  # purpose, which begins the message of an error
    method: str
    path: str  # starts with a slash, already quoted
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    # if False, the request is not retried once it may have arrived
    repeatable: bool = True


@dataclass(frozen=True, kw_only=True)
class Response:
    """A complete response. Names of headers ignore case, the body is decompressed."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    tries: int


def raise_malformed(
    request: Request, *, got: str, expected: str, next_step: str | None = None
) -> NoReturn:
    """Raise a `MalformedResponseError`."""
    raise MalformedResponseError(
        request.doing,
        request=f"{request.method} {request.path.split('?', maxsplit=1)[0][:80]}",
        got=got,
        expected=expected,
        next_step=next_step
        or "Is this the address of the service, and not of a proxy or a web page?",
    )


def envelope(request: Request, raw: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, undecoded. Raise if it is not an object, or has a name twice."""
    try:
        result = {name: bytes(value) for name, value in _OBJECT.decode(raw).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _exact_envelope(request, raw)

    # The opening brace, and 4 bytes per member: two quotes, a colon, and a comma or the closing brace. For
    # example, the 7 bytes of {"a":1} are 1 + (1 + 4 + 1) + 0 others.
    known = 1 + sum(
        len(name.encode()) + 4 + len(value) for name, value in result.items()
    )
    # The decoder keeps the last of two members with the same name. The bytes that are not part of a known
    # member are punctuation. If they are too few for another member, no member was dropped.
    if len(raw) - known < SHORTEST:
        return result

    return _exact_envelope(request, raw)


def _exact_envelope(request: Request, raw: bytes) -> dict[str, bytes]:
    """Return the members of an object as bytes, and raise if two of them have the same name."""
    text = raw.decode("utf-8", "surrogateescape")
    try:
        members, end = pairs(text)
    except ValueError:
        not_json(request, raw, expected="a JSON object")

    has_more = text[end:].strip() != ""
    if has_more:
        not_json(request, raw, expected="a JSON object")
    _check_unique(request, map(itemgetter(0), members))

    return {name: value.encode("utf-8", "surrogateescape") for name, value in members}


def not_json(request: Request, raw: bytes, *, expected: str) -> NoReturn:
    """Raise for a response that is not JSON, or JSON of another kind."""
    try:
        got = kind_of(read_json(raw))
    except (ValueError, RecursionError):
        start = raw[:SHOWN].decode("utf-8", "replace")
        got, expected = (
            f"{len(raw):,} bytes that are not JSON, starting {start!r}",
            "JSON",
        )

    raise_malformed(request, got=got, expected=expected)


def _check_unique(request: Request, names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            got = f"{name[:SHOWN]!r} twice in one object"
            raise_malformed(request, got=got, expected="each name once")

        seen.add(name)


def read_body(request: Request, response: Response, kind: type = dict) -> Any:
    """Return the JSON of a small response: an object or an array, without a repeated name at any depth."""
    expected = "a JSON array"
    if kind is dict:
        expected = "a JSON object"

    def made(members: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_unique(request, map(itemgetter(0), members))
        return dict(members)

    try:
        text = response.body.decode("utf-8", "surrogateescape")
        value = json.loads(text, object_pairs_hook=made, parse_int=integer_or_raw)
    except (ValueError, RecursionError):
        not_json(request, response.body, expected=expected)

    if not isinstance(value, kind):
        raise_malformed(request, got=kind_of(value), expected=expected)
    return value


def object_field(
    request: Request, name: str, value: Any, *, required: bool = False
) -> dict[str, Any]:
    """Return the object under a name, or an empty object for null."""
    if value is None and not required:
        return {}

    if not isinstance(value, dict):
        raise_malformed(
            request, got=f"{name!r} of {shown(value)}", expected="an object"
        )

    return value


def count_field(
    request: Request,
    name: str,
    *sources: dict[str, Any],
    most: int = (1 << 63) - 1,
    required: bool = False,
) -> int:
    """Return the first number of the sources that is not absent, null or 0. 256.0 counts as 256."""
    values = [source[name] for source in sources if source.get(name) is not None]
    if not required:
        values.append(0)
    # the first that is not 0, else the last; False equals 0, but is an error
    *_, last = (None, *values)
    count: Any = next(filter(_is_not_zero, values), last)
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    # the type of True is bool, which is no number here
    if type(count) is not int or not 0 <= count <= most:
        expected = f"a whole number from 0 to {most:,}"
        raise_malformed(request, got=f"{name!r} of {shown(count)}", expected=expected)

    return count


def _is_not_zero(value: Any) -> bool:
    return value is False or value != 0


def text_field(
    request: Request,
    name: str,
    *sources: dict[str, Any],
    required: bool = False,
    next_step: str | None = None,
) -> str:
    """Return the first string of the sources that is not absent, null or empty.

    Own tokens in it are masked.
    """
    values = (source.get(name) for source in sources)
    result = next(filter(_is_given, values), "")
    got = f"{name!r} of {shown(result)}"
    if result == "":
        got = f"no {name!r}"
    if not isinstance(result, str) or (required and not result):
        raise_malformed(request, got=got, expected="text", next_step=next_step)
    return masked(result)


def _is_given(value: Any) -> bool:
    return value not in (None, "")


def names(whole: Mapping[str, Any]) -> str:
    """Return the first names of an object, for errors."""
    listed = [repr(name)[:40] for name in islice(whole, 5)]
    return ", ".join(listed) or "no fields"


MOST_SHOWN: Final = 500
"""Maximum number of characters of a response or address that an error shows."""

_MAX_BURST_DELAY: Final = 60.0
_SECOND: Final = 2  # the number of the first try after a failure
# 2.0 to a higher power could overflow; the longest delay is reached long before
_MOST_DOUBLINGS: Final = 60
_KINDS: Final[dict[int, tuple[type[ResponseError], str | None]]] = {
    400: (BadRequestError, None),
    401: (
        AuthenticationError,
        "Check the token: connect() with a valid one, then call again.",
    ),
    403: (AuthenticationError, "This token lacks the permission."),
    404: (NotFoundError, None),
    422: (UnprocessableError, None),
}


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Limits of the tries of one request. Times are in seconds."""

    tries: int = 8
    total: float = 180.0  # all tries and delays of a request
    deadline: float = 60.0  # one complete response, head and body
    first_delay: float = 0.25  # first backoff, before jitter shortens it by up to half
    longest_delay: float = 4.0
    most_bytes: int = 512 * 1024 * 1024  # largest response after decompression

    def delay_before(
        self, try_number: int, error: ServiceError, random: Random
    ) -> float:
        """Return the seconds before a try (the second is 2): as the service demands, or by backoff."""
        demanded = None
        if isinstance(error, ResponseError):
            demanded = error.wait
        # A delay of zero is kept once. If it were kept each time, all tries would be over in a moment, and a
        # limit of a second would end the load.
        if demanded is not None and (demanded > 0 or try_number == _SECOND):
            return demanded

        # Exponential backoff with jitter: 0.25, 0.5, 1, 2, 4, 4, … s, each shortened at random, so that
        # clients which failed at the same time do not come back at the same time.
        backoff = min(
            self.longest_delay,
            self.first_delay * 2.0 ** min(try_number - 2, _MOST_DOUBLINGS),
        )
        return backoff * random.uniform(0.5, 1.0)


def status_error(
    response: Response,
    *,
    doing: str,
    request: str,
    redactor: Redactor,
    endpoint: Endpoint | None = None,
) -> ServiceError:
    """Return the error for a response that is not a success, with the masked message of the service."""
    status, headers = response.status, response.headers
    if 300 <= status < 400:  # noqa: PLR2004 - the redirects
        return RedirectError(
            doing,
            request=request,
            got=f"{status} to {redactor.url(headers.get('Location', 'nowhere'))[:MOST_SHOWN]}",
            expected="a response from this address",
            next_step="If the service has moved, connect to the new address.",
        )

    message = redactor.text(_message(response.body))[:MOST_SHOWN]
    if status == 429:  # noqa: PLR2004 - the status for too many requests
        return _limit_error(doing, message, request, headers)

    kind, next_step = _KINDS.get(
        status,
        (ServerError if status >= 500 else ResponseError, None),  # noqa: PLR2004
    )
    if status == 401 and endpoint is not None and endpoint.region:  # noqa: PLR2004 - no valid token
        (other,) = (region for region in REGIONS if region != endpoint.region)
        next_step = (
            f"This is the address of {endpoint.region}, and each region has its own token: check the token, "
            f"or, if it is one of {other}, connect(region={other!r})."
        )

    delay = retry_after(headers) if status == 503 else None  # noqa: PLR2004 - temporarily unavailable
    return kind(
        doing,
        status=status,
        message=message,
        request=request,
        next_step=next_step,
        wait=delay,
    )


def _limit_error(
    doing: str, message: str, request: str, headers: Mapping[str, str]
) -> RateLimitError:
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
        doing,
        status=429,
        message=message,
        request=request,
        wait=delay,
        limit=burst_limit(headers),
    )


class _Error(msgspec.Struct):
    """An error response of the service."""

    error: str


_ERROR: Final = msgspec.json.Decoder(_Error)


def _message(body: bytes) -> str:
    """Return the message of the service: the `error` field, or the start of the body."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ERROR.decode(body).error
    return " ".join(body[: 4 * MOST_SHOWN].decode("utf-8", "replace").split())[
        :MOST_SHOWN
    ]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of delay that a 429 or 503 requires, at most 36,500 days; None without a usable header.

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
        return min(
            _MAX_BURST_DELAY, max(0.0, float(reset) - _server_ms(headers) / 1000)
        )

    return None


def burst_limit(headers: Mapping[str, str]) -> int | None:
    """Return the requests per second that a 429 names as the limit, or None."""
    limit = headers.get("Burst-RateLimit-Limit", "").strip()
    if re.fullmatch(r"[1-9]\d{0,6}", limit):
        return int(limit)

    return None


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
    """Return the Date of a response in Unix milliseconds, or the local time if it cannot be read."""
    date = http_date_ms(headers.get("Date", ""))
    if date is None:
        return round(datetime.now(UTC).timestamp() * 1000)

    return date
