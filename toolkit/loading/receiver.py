"""Receive callbacks with a small HTTP server on this machine, for notebooks and tests.

Requests cannot use more memory or connections than `CallbackReceiver` documents, even if they come through a
tunnel. A signature is verified before the body is read, except for the hash of the body, and all bodies that
are still arriving share a bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Condition
from typing import TYPE_CHECKING, Final, Self

import msgspec

from toolkit.base.arguments import instance, text, whole, wrong
from toolkit.base.errors import (
    InputError,
    LocalServiceError,
    ProtocolError,
    SignatureError,
    ToolkitError,
)
from toolkit.base.times import from_milliseconds
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.service.settings import Service
from toolkit.service.signatures import (
    ReplayGuard,
    region_in,
    signature_in,
    verify_claims,
    verify_signature,
)
from toolkit.tables.callback_rows import ReceivedCallback, callback_fields

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from toolkit.base.serving import Background, BoundedHttp

_HOST: Final = "127.0.0.1"
_METHODS: Final = ("POST", "PUT", "PATCH")
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_BYTES_KEPT: Final = 512 * 1024 * 1024
_MOST_ARRIVING: Final = 32 * 1024 * 1024  # bytes of large bodies that are arriving
_SMALL: Final = 256 * 1024  # bytes that each connection may buffer in any case
_MOST_WAITING: Final = 64
# larger bodies are not decoded leniently, which needs a multiple of their size
_MAX_LENIENT: Final = 1024 * 1024
_MOST_CONNECTIONS: Final = 128
# seconds for a complete request, enough for 16 MB through a tunnel
_REQUEST_TIMEOUT: Final = 30.0


_Headers = list[tuple[str, str]]
_Refusal = tuple[int, str, *tuple[str, ...]]


class _Object(msgspec.Struct):
    """Any JSON object. The members are checked, but not kept."""


_read_object: Final = msgspec.json.Decoder(_Object).decode


class CallbackReceiver:
    """Receive callbacks on this machine and keep the bodies in memory, for `load_callbacks`.

    If the service has signing keys, every request must have a valid signature that was not used before. If
    the keys of the region in the header ``Upstash-Region`` are known, they are used. Other requests get a
    401, and the body is not read. Without keys, anyone who can reach the port can send, and ``verified`` is
    null. A callback that got a 200 is kept. If the receiver is full, callbacks get a 503, and the service
    retries.

    The receiver needs uvicorn (the extra ``[local]``). It runs in a thread with a separate event loop.

    Parameters
    ----------
    service : Service, optional
        Its signing keys verify requests, and its redactor masks values.
    port : int
        With 0, a free port is used.
    keep : int
        Maximum number of callbacks. A body can have 16 MB, all bodies together 512 MB, and all bodies that
        are still arriving 64 MB.
    path : str
        Path of the callbacks.
    public_url : str, optional
        The address that the service calls, for example of a tunnel. Default: the address on this machine.
    clock : callable
        Unix seconds, for signatures and ``received_at``.

    Attributes
    ----------
    refused : int
        Number of refused requests: without or with an invalid signature, or without a callback body.
    turned_away : int
        Number of callbacks that got a 503 because the receiver was full.
    last_refusal : str or None
        Reason of the last refusal.

    Raises
    ------
    InputError
        For options that cannot be used.
    LocalServiceError
        When the receiver starts, if the port is in use or uvicorn is not installed.

    Notes
    -----
    A request must arrive within 30 s, and the head within 10 s. At most 128 connections without a valid
    signature stay open. If there are more, the oldest is closed.

    Examples
    --------
    >>> import requests
    >>> with CallbackReceiver() as receiver:
    ...     response = requests.post(receiver.url, json={"status": 200, "sourceMessageId": "msg_1"})
    ...     response.status_code, receiver.wait(1, timeout=5), len(receiver)
    (200, True, 1)
    """

    def __init__(
        self,
        service: Service | None = None,
        *,
        port: int = 0,
        keep: int = 10_000,
        path: str = "/callbacks",
        public_url: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        instance(
            "service",
            service,
            Service,
            "a Service, as connect() returns, or None",
            optional=True,
        )
        port = whole("port", port, least=0, most=65_535)
        keep = whole("keep", keep)
        if not text("path", path).startswith("/"):
            raise wrong("path", path, "a path that starts with a slash")

        if public_url is not None:
            public_url = text("public_url", public_url, empty=False)
        if not callable(clock):
            raise wrong("clock", clock, "a callable that returns Unix seconds")

        self.refused = 0
        self.turned_away = 0
        self.last_refusal: str | None = None
        self._service = service
        self._endpoint = (
            service.queue
            if service and service.queue and service.queue.secrets[1:]
            else None
        )
        self._port = port
        self._keep = keep
        self._path = path
        self._public_url = public_url
        self._clock = clock
        self._seen = ReplayGuard()
        self._changed = Condition()
        self._kept: list[ReceivedCallback] = []
        self._size = 0  # bytes kept, and reserved for bodies that are arriving
        self._arriving = self._waiting = 0  # bytes, and bodies, that are not small
        self._serving: Background | None = None

    def start(self) -> Self:
        """Start to listen in a separate thread. A ``with`` statement also does this.

        Raises
        ------
        LocalServiceError
            When the port is in use.
        """
        if self._serving is not None:
            return self

        try:
            from toolkit.base.serving import Background, listen  # noqa: PLC0415 - it needs an extra
        except ImportError as error:
            raise LocalServiceError(
                "receiving callbacks",
                got=f"no module {error.name}",
                expected="the HTTP server that receives them",
                next_step="Install it: pip install uvicorn.",
            ) from None

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            # uvicorn misreads a bound method as ASGI 2
            await self._serve(scope, receive, send)

        listening = listen(self._port)
        self._port = listening.getsockname()[1]
        self._arrived = asyncio.Condition()  # it belongs to one event loop
        self._serving = Background(
            application,
            listening,
            name="callback-receiver",
            connections=_MOST_CONNECTIONS,
            request_timeout=_REQUEST_TIMEOUT,
        )

        return self

    def close(self) -> None:
        """Stop listening, and end requests that have not arrived. Received callbacks are kept."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Return the address to publish as callback."""
        if self._public_url is not None:
            return self._public_url

        if not self._port:
            raise InputError(
                "reading a receiver's address",
                got="a receiver that does not listen yet",
                expected="one that was started",
                next_step="Use it in a with statement, or call start().",
            )

        return f"http://{_HOST}:{self._port}{self._path}"

    @property
    def redactor(self) -> Redactor | None:
        """Return the redactor of the service, or a new one without a service."""
        if self._service:
            return self._service.redactor
        return None

    def wait(self, count: int = 1, timeout: float = 30.0) -> bool:
        """Wait at most `timeout` seconds for `count` callbacks; True if they have arrived."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._kept) >= count, timeout)

    def received(self) -> list[ReceivedCallback]:
        """Return the callbacks received so far, in order of arrival."""
        with self._changed:
            return list(self._kept)

    def clear(self) -> None:
        """Forget the received callbacks. Signatures stay remembered."""
        with self._changed:
            self._size -= sum(len(callback.body) for callback in self._kept)
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def __bool__(self) -> bool:
        return True  # also when nothing has come yet

    def __repr__(self) -> str:
        url = "not started"
        if self._public_url is not None or self._port:
            url = (self.redactor or Redactor()).url(self.url)
        signatures = "signatures not verified: no keys known"
        if self._endpoint:
            signatures = "signatures verified"
        is_closed = self._port and not self._serving
        facts = {
            repr(url): True,
            f"{len(self)} received": True,
            f"{self.refused} refused": self.refused,
            f"{self.turned_away} turned away": self.turned_away,
            "closed": is_closed,
            signatures: True,
        }
        shown = [fact for fact, applies in facts.items() if applies]

        return f"CallbackReceiver({', '.join(shown)})"

    def _signing_keys(self, headers: _Headers) -> tuple[Secret, ...]:
        if self._endpoint:
            return self._endpoint.keys_of(region_in(headers))
        return ()

    def _check_signature(self, headers: _Headers, now: float) -> None:
        """Verify what can be verified of a signature before the body is read; raises SignatureError."""
        signature = signature_in(headers)
        if signature is None:
            raise SignatureError(
                "verifying a signature", got="none", expected="one signature header"
            )

        claims = verify_claims(
            signature, url=self.url, keys=self._signing_keys(headers), now=now
        )
        token_id = claims.get("jti")
        if isinstance(token_id, str) and token_id in self._seen:
            got = "a signature that was used before"
            raise SignatureError("verifying a signature", got=got, expected="a new one")

    def _reserve(self, length: int) -> bool:
        with self._changed:
            fits = (
                len(self._kept) < self._keep and self._size + length <= _MOST_BYTES_KEPT
            )
            self._size += length if fits else 0
            return fits

    def _accept(
        self, headers: _Headers, body: bytes, now: float
    ) -> tuple[int, str | None]:
        """Check a request with a body that fits. Return the status of the response and the problem."""
        try:
            if self._endpoint:
                keys, signature = (
                    self._signing_keys(headers),
                    signature_in(headers) or "",
                )
                # again, now with the hash of the body; `seen` remembers a signature after these checks only
                verify_signature(
                    signature, body, url=self.url, keys=keys, now=now, seen=self._seen
                )

            _check_body(body)
        except ToolkitError as error:
            return self._refused(error)

        received_at = from_milliseconds(round(self._clock() * 1000))
        verified = None
        if self._endpoint:
            verified = True
        with self._changed:
            if len(self._kept) < self._keep:  # unless others arrived first
                self._kept.append(
                    ReceivedCallback(
                        body=body, received_at=received_at, verified=verified
                    )
                )
                self._changed.notify_all()
                return 200, None

        return self._turned_away()

    def _turned_away(self) -> tuple[int, str]:
        with self._changed:
            self.turned_away += 1
        return 503, "the receiver is full"

    def _refused(self, error: ToolkitError) -> tuple[int, str]:
        with self._changed:
            self.refused += 1
            self.last_refusal = str(error)

        status = 400
        if isinstance(error, SignatureError):
            status = 401
        return status, str(error)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept or refuse one callback (ASGI application)."""
        caller: BoundedHttp = scope["extensions"]["toolkit.caller"]
        now = self._clock()
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
        ]
        if refusal := self._head_refusal(scope, headers, now):
            caller.refuse(*refusal)
            return

        length = int(dict(headers)["content-length"])
        if self._endpoint:
            # with a valid signature, the connection does not give way to newer ones any more
            caller.admit()

        async with self._room(length) as granted:
            if not granted or not self._reserve(length):
                caller.refuse(*self._turned_away())
                return
            status, problem = 0, None
            try:
                body = await _whole(receive)
                if body is None:
                    return
                status, problem = self._accept(headers, body, now)
            finally:
                if status != 200:  # noqa: PLR2004 - not kept
                    with self._changed:
                        self._size -= length

        content = json.dumps({"error": problem} if problem else {}).encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": content})

    def _head_refusal(
        self, scope: Scope, headers: _Headers, now: float
    ) -> _Refusal | None:
        """Status, message and headers of the response to a request whose body need not be read."""
        stated = dict(headers)
        if scope["method"] not in _METHODS:
            return 405, "callbacks are sent with POST", f"allow: {', '.join(_METHODS)}"
        if scope["raw_path"].decode("ascii") != self._path:
            return 404, f"callbacks are expected at {self._path}"
        if "content-length" not in stated or "transfer-encoding" in stated:
            return 411, "a body of a stated length is expected"
        # a number of few digits: h11 has seen to it
        if int(stated["content-length"]) > _MOST_BYTES:
            return 413, f"a body has at most {_MOST_BYTES} bytes"

        try:
            if self._endpoint:
                self._check_signature(headers, now)
        except ToolkitError as error:
            return self._refused(error)

        return None

    @asynccontextmanager
    async def _room(self, length: int) -> AsyncIterator[bool]:
        """Wait until another body may be read; False if too many requests wait.

        TCP flow control pauses its sender meanwhile.
        """
        if length <= _SMALL:
            yield True
            return

        async with self._arrived:
            if self._waiting >= _MOST_WAITING:
                yield False
                return
            self._waiting += 1
            try:
                await self._arrived.wait_for(
                    lambda: self._arriving + length <= _MOST_ARRIVING
                )
            finally:
                self._waiting -= 1

            self._arriving += length

        try:
            yield True
        finally:
            async with self._arrived:
                self._arriving -= length
                self._arrived.notify_all()


async def _whole(receive: Receive) -> bytes | None:
    """Return the body, or None if the sender disconnected or was too slow."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)


def _check_body(body: bytes) -> None:
    """Refuse a body that is not a JSON object, without decoding all values."""
    try:
        _read_object(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(body) <= _MAX_LENIENT:
            callback_fields(body)
            return
        raise ProtocolError(
            "reading a callback body",
            got=f"{len(body):,} bytes that are not a JSON object ({type(error).__name__})",
            expected="a JSON object",
        ) from None
