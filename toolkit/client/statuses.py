"""Answers with an error status become typed errors, with the service's own words in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from toolkit.client.retry import burst_limit, daily_reset, retry_after
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

MOST_SHOWN: Final = 500
"""Characters of foreign text that an error shows at most."""

_KINDS: Final[dict[int, tuple[type[ResponseError], str | None]]] = {
    400: (BadRequestError, None),
    401: (AuthenticationError, "Check the token: connect() with a valid one, then call again."),
    403: (AuthenticationError, "This token may not do that."),
    404: (NotFoundError, None),
    422: (UnprocessableError, None),
}


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
    """The error that an answer with this status is.

    Parameters
    ----------
    status : int
        Not a success.
    headers : mapping
        Of the answer; names compare without case.
    body : bytes
        Of the answer.
    doing, request : str
        What the error says about the request, secrets masked.
    redactor : Redactor
        Masks what the service said.
    endpoint : Endpoint, optional
        Whose token was sent.
    """
    if 300 <= status < 400:  # noqa: PLR2004 - the redirects
        return RedirectError(
            doing,
            request=request,
            got=f"{status} to {redactor.url(headers.get('Location', 'nowhere'))[:MOST_SHOWN]}",
            expected="an answer from this address",
            next_step="If the service has moved, connect to its new address.",
        )
    message = redactor.text(_message(body))[:MOST_SHOWN]
    if status == 429:  # noqa: PLR2004 - the status for too many requests
        return _limit(doing, message, request, headers)
    kind, next_step = _KINDS.get(status, (ServerError if status >= 500 else ResponseError, None))  # noqa: PLR2004
    if status == 401 and endpoint is not None and endpoint.region:  # noqa: PLR2004 - no valid token
        (other,) = (region for region in REGIONS if region != endpoint.region)
        next_step = (
            f"This is the address of {endpoint.region}, and each region has its own token: check the token, "
            f"or, if it is one of {other}, connect(region={other!r})."
        )
    wait = retry_after(headers) if status == 503 else None  # noqa: PLR2004 - temporarily unavailable
    return kind(doing, status=status, message=message, request=request, next_step=next_step, wait=wait)


def _limit(doing: str, message: str, request: str, headers: Mapping[str, str]) -> RateLimitError:
    wait, renewed = retry_after(headers), daily_reset(headers)
    if wait is None and renewed is not None:
        return DailyLimitError(
            doing,
            status=429,
            message=message,
            request=request,
            next_step=f"The daily limit is used up; it is renewed at {renewed.isoformat()}. Call again then.",
        )
    return RateLimitError(
        doing, status=429, message=message, request=request, wait=wait, limit=burst_limit(headers)
    )


def _message(body: bytes) -> str:
    """The service's own words: its `error` field, or the start of whatever it sent."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        return str(value["error"])
    return " ".join(body[: 4 * MOST_SHOWN].decode("utf-8", "replace").split())[:MOST_SHOWN]
