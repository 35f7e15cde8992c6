"""The one door to the network: sends a request, returns what its response says or raises a typed error.

One retry policy over the whole exchange: head, body, and reading the body. Redirects are refused, cookies and
``~/.netrc`` are ignored, proxies and CA bundles from the environment work: requests finds them once, and its
pool of connections sends. The token is put on the wire here and shows up nowhere else: errors are raised
without the frames in which it was a local value, and not from the library's own errors, whose requests carry
it.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProxyError,
    SSLError,
)

from toolkit.client.compression import ACCEPTED, CorruptError, UnknownEncodingError, decoded
from toolkit.client.connections import Connections
from toolkit.client.members import end_of
from toolkit.client.request import Answer, Request
from toolkit.client.retry import RetryPolicy
from toolkit.client.statuses import MOST_SHOWN, status_error
from toolkit.errors import (
    DeadlineError,
    MalformedResponseError,
    ProtocolError,
    ServiceError,
    SettingsError,
    TransportError,
)
from toolkit.redaction import Redactor
from toolkit.settings.service import Endpoint, Service, endpoint_of, is_loopback
from toolkit.version import __version__

__all__ = ["CONNECTIONS", "Answer", "Pace", "Request", "Transport", "Watch"]

CONNECTIONS: Final = 32
"""Connections a transport keeps open at most, unless told otherwise."""

_PIECE: Final = 1 << 16
_CONNECT_TIMEOUT: Final = 10.0
_NO_CONTENT: Final = 204
_QUERY: Final = re.compile(r"\?[^\s\"']+")
_HEADER: Final = re.compile(r"(?:[^\s\x00-\x1f\x7f][^\x00-\x08\x0a-\x1f\x7f]*)?")
_LOGGERS: Final = ("urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry")
_ALWAYS: Final = {
    "User-Agent": f"workflow-vector-toolkit/{__version__}",
    "Accept": "*/*",
    "Accept-Encoding": ACCEPTED,
}

Watch = Callable[[bytearray], object]
"""Called with the body so far; True when it has seen enough."""

T = TypeVar("T")

_Failure: TypeAlias = tuple[ServiceError, bool]
"""Why a try failed, and whether the request may have arrived."""


class Pace(Protocol):
    """Decides when a try may begin: how many are under way, and how many start a second.

    Called from every thread that sends. Each `start` is followed by one `end`, also when the try is
    interrupted.
    """

    def start(self) -> None:
        """Block until this try may begin. What it raises goes to the caller of `send`."""

    def end(self, error: ServiceError | None, seconds: float) -> None:
        """A try has ended after `seconds`, with an answer (no error) or without.

        A `RateLimitError` carries in `.wait` what the service asked to wait.
        """


class Transport:
    """Sends requests to one base address, from as many threads as want to.

    Parameters
    ----------
    base_url : str
    redactor : Redactor
        Masks what goes into errors.
    endpoint : Endpoint, optional
        Whose token is sent. Without it nothing of ours is (an application's own endpoint).
    policy : RetryPolicy
    pace : Pace, optional
        Asked before each try, and told how it ended. Waiting for it is not counted in the policy's total.
    connections : int
        Connections kept open for the next request at most. More requests at once open more.
    sleep, monotonic : callable
        Clock and sleep, in seconds. The default sleep ends early when the transport is closed.
    seed : int, optional
        Seed of the jitter.

    Raises
    ------
    SettingsError
        When no connection can be prepared to this address, or through the environment's proxy.
    """

    def __init__(
        self,
        base_url: str,
        *,
        redactor: Redactor,
        endpoint: Endpoint | None = None,
        policy: RetryPolicy | None = None,
        pace: Pace | None = None,
        connections: int = CONNECTIONS,
        sleep: Callable[[float], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        self.base_url = base_url
        self.policy = policy or RetryPolicy()
        self._pace = pace
        self._redactor = redactor
        self._endpoint = endpoint
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait
        self._monotonic = monotonic
        self._random = random.Random(seed)  # noqa: S311 - jitter, not a secret
        self._pool = self._prepared(connections)
        self._connections = Connections(self._pool, monotonic)
        parts = urlsplit(base_url)
        through_proxy = self._pool.proxy is not None and parts.scheme == "http"
        self._before_path = base_url if through_proxy else parts.path
        self._log_filter = _LogFilter(redactor)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._log_filter)

    @classmethod
    def to(
        cls,
        service: Service,
        endpoint: Literal["queue", "vector"],
        *,
        policy: RetryPolicy | None = None,
        pace: Pace | None = None,
        connections: int = CONNECTIONS,
        sleep: Callable[[float], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Transport:
        """A transport to one endpoint of the service."""
        found = endpoint_of(service, endpoint)
        return cls(
            found.url,
            redactor=service.redactor,
            endpoint=found,
            policy=policy,
            pace=pace,
            connections=connections,
            sleep=sleep,
            monotonic=monotonic,
        )

    def close(self) -> None:
        """End it: what other threads wait for fails at once, and nothing is sent any more."""
        self._closed.set()
        self._connections.end()
        self._pool.close()
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

    def send(self, request: Request, *, watch: Watch | None = None) -> Answer:
        """Send a request and return the whole response, unread. Otherwise as `fetch`."""
        return self.fetch(request, _unread, watch=watch)

    def fetch(
        self, request: Request, read: Callable[[Request, Answer], T], *, watch: Watch | None = None
    ) -> T:
        """Send a request and return what `read` makes of the response.

        A response that cannot be read is retried like a 503.

        Parameters
        ----------
        request : Request
        read : callable
            Given the request and a whole response with a success status. Raises `MalformedResponseError` when
            the response is not what the specification says.
        watch : callable, optional
            Called with the body so far, decompressed, whenever more of it has arrived. A retry starts again.
            What it is given must neither be kept nor changed. Once it returns True, it is not called any more
            for this try, and the rest is read faster.

        Raises
        ------
        ResponseError
            The service responded with an error status; the class says which.
        MalformedResponseError
            No response could be read, also after retries.
        TransportError, DeadlineError
            No whole response came, also after retries; or the transport was closed meanwhile.
        RedirectError, ProtocolError
        """
        spent = 0.0
        for number in range(1, self.policy.tries + 1):
            outcome, took = self._paced(request, number, watch, self.policy.total - spent)
            if isinstance(outcome, Answer):
                try:
                    return read(request, outcome)
                except MalformedResponseError as unreadable:
                    outcome = unreadable, True
            error, arrived = outcome
            last = number == self.policy.tries or self._closed.is_set()
            if last or not error.retriable or (arrived and not request.repeatable):
                break
            wait = self.policy.wait_before(number + 1, error, self._random)
            spent += took + wait
            if spent > self.policy.total:
                error.add_note(
                    f"Waiting {wait:,.1f} s more would exceed the {self.policy.total:,.0f} s for a request."
                )
                break
            self._sleep(wait)
        # without the frames it was made in: the token is a local value there
        raise error.with_traceback(None)

    def _paced(
        self, request: Request, number: int, watch: Watch | None, left: float
    ) -> tuple[Answer | _Failure, float]:
        """One try, when the pace allows it, and the seconds that it took."""
        if self._pace is not None:
            self._pace.start()
        start, failure = self._monotonic(), None
        try:
            outcome = self._exchange(request, number, watch, left)
            failure = None if isinstance(outcome, Answer) else outcome[0]
            return outcome, self._monotonic() - start
        except KeyboardInterrupt as stopped:
            raise stopped.with_traceback(None)  # noqa: B904 - the same one, without the frames of the token
        finally:
            if self._pace is not None:
                self._pace.end(failure, self._monotonic() - start)

    def _exchange(self, request: Request, number: int, watch: Watch | None, left: float) -> Answer | _Failure:
        """One try: an answer, or the error and whether the request may have arrived."""
        if not all(_HEADER.fullmatch(text) for header in request.headers for text in header):
            return self._refused_here(request), False
        self._connections.allow(min(self.policy.deadline, left))
        try:
            response = self._open(request)
        except (NewConnectionError, ConnectTimeoutError, ProxyError) as error:
            return self._unreached(request, error), False
        except SSLError as error:
            return self._untrusted(request, error), False
        except (HTTPError, HTTPException, OSError) as error:
            return self._unreached(request, error), True
        try:
            framed = response.chunked or response.length_remaining is not None
            body = self._read(request, response, watch)
        except ServiceError as error:
            return error, True
        finally:
            # a connection whose answer was not read to its end cannot be used again
            response.close()
            response.release_conn()
        status, headers = response.status, response.headers
        if not framed and status != _NO_CONTENT and (self._closed.is_set() or _cut(body)):
            # the HTTP library takes the end of the connection for the end of the answer
            return self._incomplete(request, f"status {status} and an answer without its end"), True
        if 200 <= status < 300:  # noqa: PLR2004 - the success statuses
            return Answer(status=status, headers=headers, body=body, tries=number)
        named, endpoint = self._named(request), self._endpoint
        told = status_error(
            status,
            headers,
            body,
            doing=request.doing,
            request=named,
            redactor=self._redactor,
            endpoint=endpoint,
        )
        return told, True

    def _open(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Send, and read the head of the answer."""
        if self._closed.is_set():
            raise ClosedPoolError(self._pool, "closed")
        query, headers = request.query, urllib3.HTTPHeaderDict(_ALWAYS)
        for name, value in request.headers:
            headers[name] = value
        if self._endpoint is not None:
            if self._endpoint.token_in == "query":  # noqa: S105 - a place, not a password
                query = (*query, (self._endpoint.dialect.query_token, self._endpoint.token.reveal()))
            else:
                headers["Authorization"] = f"Bearer {self._endpoint.token.reveal()}"
        after = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return self._pool.urlopen(
            request.method,
            f"{self._before_path}{request.path}{after}",
            body=request.body,
            headers=headers,
            retries=False,
            redirect=False,
            assert_same_host=False,
            timeout=urllib3.Timeout(connect=min(_CONNECT_TIMEOUT, self._connections.left), read=None),
            preload_content=False,
            decode_content=False,
        )

    def _read(self, request: Request, response: urllib3.BaseHTTPResponse, watch: Watch | None) -> bytes:
        """The body, decoded and whole as far as its framing tells."""
        encoding = response.headers.get("Content-Encoding", "")
        length, body = response.length_remaining, bytearray()
        if length is not None and length > self.policy.most_bytes:
            raise self._too_large(request)
        plain = length is not None and not encoding
        arriving = self._arriving(request, response)
        try:
            if watch is not None or not plain:
                for piece in decoded(arriving, encoding):
                    body += piece
                    if len(body) > self.policy.most_bytes:
                        raise self._too_large(request)
                    if watch is not None and watch(body):
                        watch = None
                        if plain:
                            break
        except CorruptError as error:
            raise self._incomplete(request, f"a compressed answer that is damaged ({error})") from None
        except UnknownEncodingError as error:
            raise ProtocolError(
                request.doing,
                request=self._named(request),
                got=f"a response encoded as {str(error)[:40]!r}",
                expected=ACCEPTED,
            ) from None
        # in one go where nobody looks on: the bytes are not copied from piece to piece
        return bytes(body) + b"".join(self._arriving(request, response, None))

    def _arriving(
        self, request: Request, response: urllib3.BaseHTTPResponse, most: int | None = _PIECE
    ) -> Iterator[bytes]:
        """The body as it comes off the wire, in pieces of so many bytes at most."""
        try:
            while piece := (
                response.read(decode_content=False)
                if most is None
                else response.read1(most, decode_content=False)
            ):
                yield piece
                if self._connections.overdue:
                    raise TimeoutError
        except (HTTPError, HTTPException, OSError) as error:
            raise self._unreached(request, error) from None

    def _prepared(self, connections: int) -> urllib3.HTTPConnectionPool:
        """The pool that requests makes for this address, with the environment's proxies and CA bundle."""
        url = self.base_url
        try:
            with requests.Session() as session:
                found = session.merge_environment_settings(url, {}, None, None, None)
            # a proxy of the environment is for other machines, not for this one
            proxies = {} if is_loopback(urlsplit(url).hostname or "") else found["proxies"]
            adapter = HTTPAdapter(pool_connections=1, pool_maxsize=connections)
            first = requests.Request("GET", url).prepare()
            pool = adapter.get_connection_with_tls_context(first, found["verify"], proxies=proxies)
            adapter.cert_verify(pool, first.url, found["verify"], None)  # type: ignore[no-untyped-call]
        except (requests.RequestException, HTTPError, OSError) as error:
            reason = self._reason(error)
        else:
            return cast("urllib3.HTTPConnectionPool", pool)
        raise SettingsError(
            f"preparing connections to {self._redactor.url(url)[:MOST_SHOWN]}",
            got=reason,
            expected="an http or https address, and a proxy and CA bundle that can be used, if any",
            next_step="Check the address, and HTTPS_PROXY and REQUESTS_CA_BUNDLE in the environment.",
        )

    def _named(self, request: Request) -> str:
        return f"{request.method} {self._redactor.text(self.base_url + request.path)[:MOST_SHOWN]}"

    def _unreached(self, request: Request, error: BaseException) -> TransportError:
        """No whole answer came, as the HTTP library says it."""
        if self._connections.overdue and not self._closed.is_set():
            return DeadlineError(
                request.doing,
                request=self._named(request),
                got=f"no end of the answer within {self._connections.allowed:,.0f} s",
                expected="the whole answer in that time",
                next_step="Ask for fewer rows a page, or raise the deadline.",
            )
        return self._incomplete(request, self._reason(error))

    def _too_large(self, request: Request) -> ProtocolError:
        return ProtocolError(
            request.doing,
            request=self._named(request),
            got=f"an answer of more than {self.policy.most_bytes:,} bytes after decompression",
            expected="at most that",
            next_step="Ask for fewer rows a page.",
        )

    def _untrusted(self, request: Request, error: SSLError) -> ServiceError:
        """What went wrong with TLS before anything was sent: another try does not change a certificate."""
        reason = self._reason(error)
        if "CERTIFICATE_VERIFY_FAILED" not in reason:
            return self._unreached(request, error)
        return ProtocolError(
            request.doing,
            request=self._named(request),
            got=reason,
            expected="a certificate that is trusted here",
            next_step="If the service has an authority of its own, name its file in REQUESTS_CA_BUNDLE.",
        )

    def _incomplete(self, request: Request, got: str) -> TransportError:
        closed = self._closed.is_set()
        return TransportError(
            request.doing,
            request=self._named(request),
            got="the end of this transport" if closed else got,
            expected="a whole answer",
            next_step="It was closed or interrupted: call again."
            if closed
            else "Check that the address is right and the service is up.",
        )

    def _refused_here(self, request: Request) -> ProtocolError:
        return ProtocolError(
            request.doing,
            request=self._named(request),
            got="a header that cannot be sent",
            expected="no line ends or control characters in it",
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
        return self._redactor.text(text)[:MOST_SHOWN]


def _unread(_: Request, answer: Answer) -> Answer:
    return answer


def _cut(body: bytes) -> bool:
    """Whether a body that ended with the connection lacks its end: JSON tells, other text does not."""
    if not body.lstrip().startswith((b"{", b"[")):
        return not body
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        # an application's odd text, which the strict reader refuses, or no end
        text = body.decode("utf-8", "surrogateescape").strip()
        try:
            return end_of(text, 0) < len(text)
        except ValueError:
            return True
    return False


class _LogFilter(logging.Filter):
    """Masks the HTTP library's own log lines, which name whole addresses: tokens, and every query string."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _QUERY.sub("?[masked]", self._redactor.text(record.getMessage())), ()
        return True
