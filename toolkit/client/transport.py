"""The one door to the network: sends a request, gives back the whole answer or a typed error.

One retry policy over the whole exchange, head and body. Redirects are refused, ``~/.netrc`` is ignored,
proxies and CA bundles from the environment work. The token is put on the wire here and shows up nowhere
else: errors are raised outside the handling of the library's own, whose requests carry it.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import requests
from requests.auth import AuthBase
from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import HTTPError

from toolkit.client.retry import RetryPolicy, daily_reset, retry_after
from toolkit.errors import (
    AuthenticationError,
    BadRequestError,
    DailyLimitError,
    DeadlineError,
    NotFoundError,
    ProtocolError,
    RateLimitError,
    RedirectError,
    ResponseError,
    ServerError,
    ServiceError,
    TransportError,
    UnprocessableError,
)
from toolkit.redaction import Redactor
from toolkit.settings.service import Half, Service, is_loopback
from toolkit.version import __version__

_PIECE: Final = 1 << 18
_CONNECT_TIMEOUT: Final = 10.0
_MOST_SHOWN: Final = 500
_NO_CONTENT: Final = 204
_QUERY: Final = re.compile(r"\?[^\s\"']+")
_LOGGERS: Final = ("urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request below a base address.

    Attributes
    ----------
    doing : str
        What this is for, as the start of an error's sentence.
    method : str
    path : str
        Below the base address; starts with a slash, already quoted.
    query, headers : tuple of (name, value)
    body : bytes or None
    repeatable : bool
        Whether sending it twice does no harm. Others are not sent again once they may have arrived.
    """

    doing: str
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    repeatable: bool = True


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer with a success status.

    Attributes
    ----------
    status : int
    headers : mapping
        Names compare without case.
    body : bytes
        Decompressed.
    tries : int
        How often the request was sent.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    tries: int


class Transport:
    """Sends requests to one base address.

    Parameters
    ----------
    base_url : str
    redactor : Redactor
        Masks what goes into errors.
    half : Half, optional
        Whose token is sent. Without it nothing of ours is (an application's own endpoint).
    policy : RetryPolicy
    sleep, monotonic : callable
        Clock and sleep, in seconds.
    seed : int, optional
        Seed of the jitter.
    """

    def __init__(
        self,
        base_url: str,
        *,
        redactor: Redactor,
        half: Half | None = None,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        self.base_url = base_url
        self.policy = policy or RetryPolicy()
        self._redactor = redactor
        self._sleep = sleep
        self._monotonic = monotonic
        self._random = random.Random(seed)  # noqa: S311 - jitter, not a secret
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"workflow-vector-toolkit/{__version__}"
        self._session.auth = _Token(half) if half else _NoToken()
        # a proxy of the environment is for other machines, not for this one
        own = is_loopback(urlsplit(base_url).hostname or "")
        self._proxies: Any = dict.fromkeys(("http", "https", "all")) if own else None
        self._log_filter = _LogFilter(redactor)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._log_filter)

    @classmethod
    def to(
        cls, service: Service, half: Literal["queue", "vector"], *, policy: RetryPolicy | None = None
    ) -> Transport:
        """A transport to one half of the service."""
        found = service.need(half)
        return cls(found.url, redactor=service.redactor, half=found, policy=policy)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self._log_filter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Transport({self._redactor.url(self.base_url)!r})"

    def send(self, request: Request) -> Answer:
        """Send a request and give back the whole answer.

        Raises
        ------
        ResponseError
            The service answered with an error status; the class says which.
        TransportError, DeadlineError
            No whole answer came, also after retries.
        RedirectError, ProtocolError
        """
        start = self._monotonic()
        for number in range(1, self.policy.tries + 1):
            outcome = self._exchange(request, number)
            if isinstance(outcome, Answer):
                return outcome
            error, arrived = outcome
            if not error.retriable or number == self.policy.tries or (arrived and not request.repeatable):
                break
            wait = self.policy.wait_before(number + 1, error, self._random)
            if self._monotonic() - start + wait > self.policy.total:
                error.add_note(
                    f"Waiting {wait:,.1f} s more would exceed the {self.policy.total:,.0f} s for a request."
                )
                break
            self._sleep(wait)
        raise error

    def _exchange(self, request: Request, number: int) -> Answer | tuple[ServiceError, bool]:
        """One try: an answer, or the error and whether the request may have arrived."""
        until = self._monotonic() + self.policy.deadline
        query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
        try:
            with self._session.request(
                request.method,
                f"{self.base_url}{request.path}{query}",
                headers=dict(request.headers),
                data=request.body,
                stream=True,
                allow_redirects=False,
                proxies=self._proxies,
                timeout=(_CONNECT_TIMEOUT, self.policy.deadline),
            ) as response:
                body = self._read(request, response, until)
                status, headers = response.status_code, CaseInsensitiveDict(response.headers)
        except ServiceError as error:
            return error, True
        except requests.exceptions.ConnectTimeout:
            return self._unreached(request, "no connection within 10 s"), False
        except (
            requests.exceptions.InvalidHeader,
            requests.exceptions.InvalidURL,
            requests.exceptions.InvalidSchema,
        ):
            return self._refused_here(request), False
        except (requests.exceptions.RequestException, HTTPError, OSError) as error:
            reason = self._reason(error)
            arrived = "refused" not in reason and "resolve" not in reason
            return self._unreached(request, reason), arrived
        framed = "Content-Length" in headers or "Transfer-Encoding" in headers
        if not body and not framed and status != _NO_CONTENT:
            # the HTTP library takes a head that was cut for a whole one
            return self._unreached(request, f"status {status} and a head without an end"), True
        if 200 <= status < 300:  # noqa: PLR2004 - the success statuses
            return Answer(status=status, headers=headers, body=body, tries=number)
        return self._error_status(request, status, headers, body), True

    def _read(self, request: Request, response: requests.Response, until: float) -> bytes:
        body = bytearray()
        while True:
            piece = response.raw.read1(_PIECE, decode_content=True)
            if not piece:
                return bytes(body)
            body += piece
            if len(body) > self.policy.most_bytes:
                raise ProtocolError(
                    request.doing,
                    request=self._named(request),
                    got=f"an answer of more than {self.policy.most_bytes:,} bytes after decompression",
                    expected="at most that",
                    next_step="Ask for fewer rows a page.",
                )
            if self._monotonic() > until:
                raise DeadlineError(
                    request.doing,
                    request=self._named(request),
                    got=f"{len(body):,} bytes within {self.policy.deadline:,.0f} s and no end",
                    expected="the whole answer in that time",
                    next_step="Ask for fewer rows a page, or raise the deadline.",
                )

    def _named(self, request: Request) -> str:
        return f"{request.method} {self._redactor.text(self.base_url + request.path)[:_MOST_SHOWN]}"

    def _unreached(self, request: Request, reason: str) -> TransportError:
        return TransportError(
            request.doing,
            request=self._named(request),
            got=reason,
            expected="a whole answer",
            next_step="Check that the address is right and the service is up.",
        )

    def _refused_here(self, request: Request) -> ProtocolError:
        return ProtocolError(
            request.doing,
            request=self._named(request),
            got="an address or header that cannot be sent",
            expected="no line ends or control characters in them",
        )

    def _reason(self, error: BaseException) -> str:
        """The innermost cause in words. The outer ones repeat the address, which may hold a token."""
        while True:
            inner = [
                item
                for item in (getattr(error, "reason", None), *error.args)
                if isinstance(item, BaseException)
            ]
            if not inner:
                break
            error = inner[0]
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return self._redactor.text(text)[:_MOST_SHOWN]

    def _error_status(
        self, request: Request, status: int, headers: Mapping[str, str], body: bytes
    ) -> ServiceError:
        named, doing = self._named(request), request.doing
        if 300 <= status < 400:  # noqa: PLR2004 - the redirects
            return RedirectError(
                doing,
                request=named,
                got=f"{status} to {self._redactor.url(headers.get('Location', 'nowhere'))[:_MOST_SHOWN]}",
                expected="an answer from this address",
                next_step="If the service has moved, connect to its new address.",
            )
        message = self._redactor.text(_message(body))[:_MOST_SHOWN]
        if status == 429:  # noqa: PLR2004 - the status for too many requests
            return _limit(doing, message, named, headers)
        kind, next_step = _KINDS.get(status, (ServerError if status >= 500 else ResponseError, None))  # noqa: PLR2004
        return kind(doing, status=status, message=message, request=named, next_step=next_step)


_KINDS: Final[dict[int, tuple[type[ResponseError], str | None]]] = {
    400: (BadRequestError, None),
    401: (AuthenticationError, "Check the token: connect() with a valid one, then call again."),
    403: (AuthenticationError, "This token may not do that."),
    404: (NotFoundError, None),
    422: (UnprocessableError, None),
}


def _limit(doing: str, message: str, named: str, headers: Mapping[str, str]) -> RateLimitError:
    wait, renewed = retry_after(headers), daily_reset(headers)
    if wait is None and renewed is not None:
        return DailyLimitError(
            doing,
            status=429,
            message=message,
            request=named,
            next_step=f"The daily limit is used up; it is renewed at {renewed.isoformat()}. Call again then.",
        )
    return RateLimitError(doing, status=429, message=message, request=named, wait=wait)


def _message(body: bytes) -> str:
    """The service's own words: its `error` field, or the start of whatever it sent."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        return str(value["error"])
    return " ".join(body[: 4 * _MOST_SHOWN].decode("utf-8", "replace").split())[:_MOST_SHOWN]


class _Token(AuthBase):
    """Puts the token on the wire. Being an AuthBase, it also keeps ``~/.netrc`` from overriding it."""

    def __init__(self, half: Half) -> None:
        self._half = half

    def __call__(self, prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._half.token_in == "query":  # noqa: S105 - a place, not a password
            prepared.prepare_url(prepared.url, {self._half.dialect.query_token: self._half.token.reveal()})
        else:
            prepared.headers["Authorization"] = f"Bearer {self._half.token.reveal()}"
        return prepared


class _NoToken(AuthBase):
    """Sends nothing of ours, not even what ``~/.netrc`` says."""

    def __call__(self, prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        return prepared


class _LogFilter(logging.Filter):
    """Masks the HTTP library's own log lines, which name whole addresses: tokens, and every query string."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _QUERY.sub("?[masked]", self._redactor.text(record.getMessage())), ()
        return True


def not_as_specified(request: Request, *, got: str, expected: str, next_step: str | None = None) -> NoReturn:
    """Raise a `ProtocolError` for an answer that is not what the specification says."""
    raise ProtocolError(
        request.doing,
        request=f"{request.method} {request.path.split('?', maxsplit=1)[0][:80]}",
        got=got,
        expected=expected,
        next_step=next_step or "Is this the address of the service, and not of a proxy or a web page?",
    )
