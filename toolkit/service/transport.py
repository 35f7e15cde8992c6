"""Send requests, and return the content of the response or raise a typed error.

`Transport.fetch` waits for the rate limiter and retries. `_exchange` is one try: it sends (`_open`), reads
the body (`_read`) and checks it. The retry policy covers the complete exchange.

Redirects are refused, and cookies and ``~/.netrc`` are ignored. The requests library prepares the connection
pool with the proxies and CA bundles of the environment, and the pool sends. The token is sent only here.
Errors are raised without the frames that have the token as a local variable, and without the errors of the
library as cause.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from itertools import chain
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

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

from toolkit.base.errors import (
    DeadlineError,
    MalformedResponseError,
    ProtocolError,
    ServiceError,
    SettingsError,
    TransportError,
)
from toolkit.base.members import is_truncated
from toolkit.base.progress import ProgressOption, RetryNotice
from toolkit.secrets.redaction import Redactor
from toolkit.service.connections import (
    ACCEPTED,
    Connections,
    CorruptError,
    UnknownEncodingError,
    decoded,
)
from toolkit.service.responses import (
    MOST_SHOWN,
    Request,
    Response,
    RetryPolicy,
    status_error,
)
from toolkit.service.settings import Endpoint, Service, endpoint_of, is_loopback
from toolkit.version import __version__

__all__ = ["CONNECTIONS", "RateLimiter", "Request", "Response", "Transport", "Watch"]

CONNECTIONS: Final = 32
"""Idle connections that a transport keeps open by default."""

_CHUNK: Final = 1 << 16
_CONNECT_TIMEOUT: Final = 10.0
_NO_CONTENT: Final = 204
_QUERY: Final = re.compile(r"\?[^\s\"']+")
_HEADER: Final = re.compile(r"(?:[^\s\x00-\x1f\x7f][^\x00-\x08\x0a-\x1f\x7f]*)?")
_LOG: Final = logging.getLogger(__name__)
_LOGGERS: Final = ("urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry")
_ALWAYS: Final = {
    "User-Agent": f"workflow-vector-toolkit/{__version__}",
    "Accept": "*/*",
    "Accept-Encoding": ACCEPTED,
}

Watch = Callable[[bytearray], object]
"""Called with the body received so far. Returns True if it does not need more of it."""

T = TypeVar("T")
E = TypeVar("E", bound=ServiceError)

_Failure: TypeAlias = tuple[ServiceError, bool]
"""Why a try failed, and whether the request may have arrived."""


class RateLimiter(Protocol):
    """Decides when a try may begin: limits concurrent tries and tries per second.

    It is called from every thread that sends. Each `start` is followed by one `end`, even if the try is
    interrupted.
    """

    def start(self) -> None:
        """Block until this try may begin. Exceptions propagate to the caller of `send`."""

    def end(self, error: ServiceError | None, seconds: float) -> None:
        """Record the end of a try after `seconds`.

        A `RateLimitError` has the delay of the service in `.wait`.
        """


class Transport:
    """Send requests to one base address with the token of the endpoint, from any number of threads.

    The time spent waiting for the limiter does not count towards the total of the policy. `connections` is
    the number of idle connections that stay open. The default sleep ends early if the transport is closed.
    `progress` decides whether retries are shown. `seed` is the seed of the jitter.
    """

    def __init__(
        self,
        base_url: str,
        *,
        redactor: Redactor,
        endpoint: Endpoint | None = None,
        policy: RetryPolicy | None = None,
        limiter: RateLimiter | None = None,
        connections: int = CONNECTIONS,
        progress: ProgressOption = None,
        sleep: Callable[[float], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        self.base_url = base_url
        self.policy = policy or RetryPolicy()
        self._limiter = limiter
        self._retry_notice = RetryNotice(progress)
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
        cls, service: Service, endpoint: Literal["queue", "vector"], **options: Any
    ) -> Transport:
        """Return a transport to one endpoint of the service. `options` are passed to the class."""
        target = endpoint_of(service, endpoint)
        return cls(target.url, redactor=service.redactor, endpoint=target, **options)

    def close(self) -> None:
        """Close all connections: requests in other threads fail at once, and no more are sent."""
        self._closed.set()
        self._connections.end()
        self._pool.close()
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self._log_filter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Transport({self._redactor.url(self.base_url)!r})"

    def send(self, request: Request, *, watch: Watch | None = None) -> Response:
        """Send a request and return the complete response; otherwise as `fetch`."""
        return self.fetch(request, lambda _, response: response, watch=watch)

    def fetch(
        self,
        request: Request,
        read: Callable[[Request, Response], T],
        *,
        watch: Watch | None = None,
    ) -> T:
        """Send a request and return the result of `read` for the response.

        If `read` raises `MalformedResponseError`, the request is retried as after a 503.

        `watch` is called with the decompressed body received so far whenever more of it has arrived. It must
        neither keep nor change the body. After a retry it starts again. Once it returns True, it is not
        called any more in this try, and the rest is read faster.

        Raise a ServiceError for an error status, or if no complete and readable response arrived after all
        retries, or if the transport was closed.
        """
        try:
            return self._fetch(request, read, watch)
        finally:
            self._retry_notice.ended()

    def _fetch(
        self,
        request: Request,
        read: Callable[[Request, Response], T],
        watch: Watch | None,
    ) -> T:
        # Each try has three possible outcomes:
        #
        #     a response that `read` accepts              return the result
        #     an error that another try cannot help       raise it
        #     an error that another try can help          wait, then try again
        #
        # If an error is retriable, but the request may have arrived, only a repeatable request is sent again:
        # a message that is published twice is worse than an error. `spent` counts tries and pauses, so that a
        # slow service does not exceed `policy.total`.
        spent = 0.0
        for number in range(1, self.policy.tries + 1):
            if self._limiter is not None:
                self._limiter.start()
            start, failure = self._monotonic(), None
            try:
                outcome = self._exchange(
                    request, number, watch, self.policy.total - spent
                )
                failure = None
                if not isinstance(outcome, Response):
                    failure = outcome[0]
            except KeyboardInterrupt as stopped:
                raise stopped.with_traceback(None)  # noqa: B904 - the same, without the frames of the token
            finally:
                # also after an interrupt, as the limiter counts the requests in progress
                seconds = self._monotonic() - start
                if self._limiter is not None:
                    self._limiter.end(failure, seconds)

            if isinstance(outcome, Response):
                try:
                    return read(request, outcome)
                except MalformedResponseError as unreadable:
                    outcome = unreadable, True

            error, arrived = outcome
            last = number == self.policy.tries or self._closed.is_set()
            if last or not error.retriable or (arrived and not request.repeatable):
                break
            delay = self.policy.delay_before(number + 1, error, self._random)
            spent += seconds + delay

            if spent > self.policy.total:
                error.add_note(
                    f"Waiting {delay:,.1f} s more would exceed the {self.policy.total:,.0f} s for a request."
                )
                break

            self._retry_notice.failed(
                f"{error.got} ({error.doing})",
                number=number,
                tries=self.policy.tries,
                delay=delay,
            )
            retry = "%s Try %d of %d failed; the next one in %.1f s."
            _LOG.info(
                retry,
                error,
                number,
                self.policy.tries,
                delay,
                extra={"delay": round(delay, 1)},
            )
            self._sleep(delay)

        # without the frames it was made in: the token is a local value there
        raise error.with_traceback(None)

    def _exchange(
        self, request: Request, number: int, watch: Watch | None, left: float
    ) -> Response | _Failure:
        """Try once. Return a response, or the error and True if the request may have arrived."""
        header_texts = chain.from_iterable(request.headers)
        if not all(map(_HEADER.fullmatch, header_texts)):
            got, expected = (
                "a header that cannot be sent",
                "no line ends or control characters in it",
            )
            return self._error(ProtocolError, request, got, expected), False

        # the second value of each failure tells whether the service may have carried out the request
        self._connections.set_deadline(min(self.policy.deadline, left))
        try:
            received = self._open(request)
        except (NewConnectionError, ConnectTimeoutError, ProxyError, SSLError) as error:
            return self._unreached(request, error), False
        except (HTTPError, HTTPException, OSError) as error:
            return self._unreached(request, error), True

        try:
            framed = received.chunked or received.length_remaining is not None
            body = self._read(request, received, watch)
        except ServiceError as error:
            return error, True
        finally:
            # a connection with an unread rest of a response cannot be used again
            received.close()
            received.release_conn()

        status, headers = received.status, received.headers
        if (
            not framed
            and status != _NO_CONTENT
            and (self._closed.is_set() or is_truncated(body))
        ):
            # the HTTP library treats the end of the connection as the end of the response
            return self._incomplete(
                request, f"status {status} and a truncated response"
            ), True

        response = Response(status=status, headers=headers, body=body, tries=number)
        if 200 <= status < 300:  # noqa: PLR2004 - the success statuses
            return response

        named = self._named(request)
        failure = status_error(
            response,
            doing=request.doing,
            request=named,
            redactor=self._redactor,
            endpoint=self._endpoint,
        )
        return failure, True

    def _open(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Send, and read the head of the response."""
        if self._closed.is_set():
            raise ClosedPoolError(self._pool, "closed")

        query, headers = self._with_token(request)
        after = ""
        if query:
            after = f"?{urlencode(query, quote_via=quote)}"
        # no redirects, because another host would receive the token; tries are counted in `fetch`
        return self._pool.urlopen(
            request.method,
            f"{self._before_path}{request.path}{after}",
            body=request.body,
            headers=headers,
            retries=False,
            redirect=False,
            assert_same_host=False,
            timeout=urllib3.Timeout(
                connect=min(_CONNECT_TIMEOUT, self._connections.left), read=None
            ),
            preload_content=False,
            decode_content=False,
        )

    def _with_token(
        self, request: Request
    ) -> tuple[tuple[tuple[str, str], ...], urllib3.HTTPHeaderDict]:
        """Return the query and the headers of a request, with the token in one of them."""
        headers = urllib3.HTTPHeaderDict(_ALWAYS)
        for name, value in request.headers:
            headers[name] = value
        endpoint = self._endpoint
        if endpoint is None:
            return request.query, headers

        token = endpoint.token.reveal()
        if endpoint.token_in == "query":  # noqa: S105 - a location, not a password
            name_of_token = endpoint.dialect.query_token
            return (*request.query, (name_of_token, token)), headers

        headers["Authorization"] = f"Bearer {token}"
        return request.query, headers

    def _read(
        self, request: Request, received: urllib3.BaseHTTPResponse, watch: Watch | None
    ) -> bytes:
        """Return the decompressed body. It is complete if the framing of the response can show this."""
        encoding = received.headers.get("Content-Encoding", "")
        length = received.length_remaining
        if length is not None and length > self.policy.most_bytes:
            raise self._too_large(request)
        if length is None or encoding:
            return self._read_decoded(request, received, encoding, watch)

        start = b""
        # the wait for the first byte of an empty body would never end
        if watch is not None and length > 0:
            start = self._read_watched(request, received, watch)
        # the rest is read at once: the bytes are not copied chunk by chunk
        with self._reading(request):
            rest = received.read(decode_content=False)
        if not start:
            return rest

        return start + rest

    def _read_watched(
        self, request: Request, received: urllib3.BaseHTTPResponse, watch: Watch
    ) -> bytes:
        """Return the start of a plain body that was read until the callback had enough.

        Mostly the bytes that have arrived already are enough. They are not taken then, and nothing is
        returned.
        """
        with self._reading(request):
            head = self._connections.peek()
        if head and watch(bytearray(head)):
            return b""

        body = bytearray()
        for chunk in self._chunks(request, received):
            body += chunk
            has_more = len(body) > len(head)
            if has_more and watch(body):
                break

        return bytes(body)

    def _read_decoded(
        self,
        request: Request,
        received: urllib3.BaseHTTPResponse,
        encoding: str,
        watch: Watch | None,
    ) -> bytes:
        """Return the decompressed body. The size is checked chunk by chunk, because it was not declared."""
        body = bytearray()
        try:
            for chunk in decoded(self._chunks(request, received), encoding):
                body += chunk
                if len(body) > self.policy.most_bytes:
                    raise self._too_large(request)
                if watch is not None and watch(body):
                    watch = None
        except CorruptError as error:
            got = f"a compressed response that is damaged ({error})"
            raise self._incomplete(request, got) from None
        except UnknownEncodingError as error:
            got = f"a response encoded as {str(error)[:40]!r}"
            raise self._error(ProtocolError, request, got, ACCEPTED) from None

        # after the last chunk, this checks the end of the response
        with self._reading(request):
            rest = received.read(decode_content=False)
        return bytes(body) + rest

    def _chunks(
        self, request: Request, received: urllib3.BaseHTTPResponse
    ) -> Iterator[bytes]:
        while True:
            with self._reading(request):
                chunk = received.read1(_CHUNK, decode_content=False)
            if not chunk:
                return
            yield chunk

    @contextmanager
    def _reading(self, request: Request) -> Iterator[None]:
        """Raise a `ServiceError` if the HTTP library raises while reading, or if the deadline has passed."""
        try:
            yield
            if self._connections.overdue:
                raise TimeoutError
        except (HTTPError, HTTPException, OSError) as error:
            raise self._unreached(request, error) from None

    def _prepared(self, connections: int) -> urllib3.HTTPConnectionPool:
        """Return the pool that requests makes for this address, with the proxies of the environment."""
        url = self.base_url
        try:
            with requests.Session() as session:
                environment = session.merge_environment_settings(
                    url, {}, None, None, None
                )

            # a proxy of the environment is for other machines, not for this one
            proxies = (
                {}
                if is_loopback(urlsplit(url).hostname or "")
                else environment["proxies"]
            )
            adapter = HTTPAdapter(pool_connections=1, pool_maxsize=connections)
            first = requests.Request("GET", url).prepare()
            pool = adapter.get_connection_with_tls_context(
                first, environment["verify"], proxies=proxies
            )
            adapter.cert_verify(pool, first.url, environment["verify"], None)  # type: ignore[no-untyped-call]
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

    def _error(
        self,
        kind: type[E],
        request: Request,
        got: str,
        expected: str,
        next_step: str | None = None,
    ) -> E:
        return kind(
            request.doing,
            request=self._named(request),
            got=got,
            expected=expected,
            next_step=next_step,
        )

    def _unreached(self, request: Request, error: BaseException) -> ServiceError:
        """Return the error of an incomplete response, with the reason of the HTTP library."""
        reason = self._reason(error)
        if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in reason:
            # nothing was sent, and retrying does not change a certificate
            next_step = "If the service has an authority of its own, name its file in REQUESTS_CA_BUNDLE."
            return self._error(
                ProtocolError,
                request,
                reason,
                "a certificate that is trusted here",
                next_step,
            )

        if self._connections.overdue and not self._closed.is_set():
            got = f"no end of the response within {self._connections.allowed:,.0f} s"
            next_step = "Ask for fewer rows a page, or raise the deadline."
            return self._error(
                DeadlineError,
                request,
                got,
                "the complete response in that time",
                next_step,
            )

        proxy = self._pool.proxy
        if (
            isinstance(error, ProxyError)
            and proxy is not None
            and not self._closed.is_set()
        ):
            got = (
                f"{reason}, from the proxy {self._redactor.url(proxy.url)[:MOST_SHOWN]}"
            )
            next_step = "Check the proxy, and HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment."
            return self._error(
                TransportError,
                request,
                got,
                "a connection through the proxy",
                next_step,
            )

        return self._incomplete(request, reason)

    def _incomplete(self, request: Request, got: str) -> TransportError:
        if self._closed.is_set():
            got, next_step = (
                "a closed transport",
                "It was closed or interrupted: call again.",
            )
        else:
            next_step = "Check that the address is right and the service is up."

        return self._error(
            TransportError, request, got, "a complete response", next_step
        )

    def _too_large(self, request: Request) -> ProtocolError:
        got = f"a response of more than {self.policy.most_bytes:,} bytes after decompression"
        return self._error(
            ProtocolError, request, got, "at most that", "Ask for fewer rows a page."
        )

    def _reason(self, error: BaseException) -> str:
        """Return the innermost cause as text.

        The outer errors repeat the address, which may contain a token.
        """
        while True:
            inner = [
                item
                for item in (getattr(error, "reason", None), *error.args)
                if isinstance(item, BaseException)
            ]
            if not inner:
                break
            error = inner[0]

        text = (
            f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        )
        return self._redactor.text(text)[:MOST_SHOWN]


class _LogFilter(logging.Filter):
    """Mask the log lines of the HTTP library, which contain addresses with tokens and query strings."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = (
            _QUERY.sub("?[masked]", self._redactor.text(record.getMessage())),
            (),
        )
        # the log would repeat the message of an exception, which can contain text of the service
        record.exc_info = record.exc_text = None
        return True
