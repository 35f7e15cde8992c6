"""Verify that a callback, or any other delivery, comes from the service unchanged.

The service signs each delivery with a JWT (HS256) in the header ``Upstash-Signature`` or
``Service-Signature``. The subject is the destination, and the claim ``body`` is the SHA-256 of the raw body.
Two keys are valid at a time, the current and the next one, so that you can rotate keys.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from heapq import heappop, heappush
from threading import Lock
from typing import Any, Final

import jwt
import msgspec

from toolkit.base.arguments import instance, plain, text, wrong
from toolkit.base.errors import InputError, SettingsError, SignatureError
from toolkit.base.times import parse_time
from toolkit.secrets.names import normalise_header
from toolkit.secrets.redaction import Secret
from toolkit.service.address_checks import MIN_SIGNING_KEY
from toolkit.service.settings import Service

REGION_HEADERS: Final = ("upstash-region", "service-region")
"""Names of the header that says which region signed a delivery; in lower case."""

SIGNATURE_HEADERS: Final = ("upstash-signature", "service-signature", "signature")
"""Names of the header that carries the signature, by dialect; in lower case."""

_DOING: Final = "verifying a signature"
_MOST_CHARACTERS: Final = 8_192
_LONGEST_LIFE: Final = 3_600
_MOST_LEEWAY: Final = 300
_SIGNED_FOR: Final = 300  # seconds
_LATEST: Final = 253_402_300_799  # the last second of the year 9999
_REQUIRED: Final = ("iss", "sub", "exp", "nbf", "body")


class ReplayGuard:
    """Remember the ids of verified signatures until they expire, so that none is accepted twice.

    You can share it between threads. It contains one entry per verified delivery of the last hour at most.

    Examples
    --------
    >>> guard = ReplayGuard()
    >>> guard.is_new("jwt_1", until=60.0, now=0.0), guard.is_new("jwt_1", until=60.0, now=30.0)
    (True, False)
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._expiring: list[tuple[float, str]] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, token_id: object) -> bool:
        return token_id in self._seen

    def __repr__(self) -> str:
        return f"ReplayGuard({len(self)} remembered)"

    def is_new(self, token_id: str, *, until: float, now: float) -> bool:
        """Return True if this id is new. It is remembered until `until` (Unix seconds) has passed."""
        with self._lock:
            while self._expiring and self._expiring[0][0] < now:
                self._seen.discard(heappop(self._expiring)[1])
            if token_id in self._seen:
                return False
            self._seen.add(token_id)
            heappush(self._expiring, (until, token_id))
            return True


def verify_signature(
    signature: str,
    body: bytes,
    *,
    url: str,
    keys: Sequence[Secret | str] | Service,
    region: str | None = None,
    now: float | datetime | None = None,
    leeway: float = 5.0,
    issuer: str = "Upstash",
    seen: ReplayGuard | None = None,
) -> dict[str, Any]:
    """Verify the signature of a delivery and return its claims.

    Parameters
    ----------
    signature : str
        Value of the signature header.
    body : bytes
        The raw body. One that was parsed and serialised again does not verify.
    url : str
        The address the service was told to call, exactly as it was published.
    keys : sequence of Secret or str, or Service
        The signing keys, the current one first, each of 32 characters or more; or a service that knows them.
    region : str, optional
        Value of the header ``Upstash-Region`` of the delivery, for example ``"US_EAST_1"``. If the service
        knows the keys of this region, they are used. It has no effect if `keys` is a sequence.
    now : float or datetime, optional
        Unix seconds, or a datetime with a time zone. Default: now.
    leeway : float
        Seconds by which the two clocks may differ, 0 to 300.
    issuer : str
        Required value of the claim ``iss``.
    seen : ReplayGuard, optional
        Remembers accepted signatures, so that each is accepted once. Without it, an observed delivery can be
        replayed until it expires.

    Returns
    -------
    dict
        The claims: ``iss``, ``sub``, ``exp``, ``nbf``, ``body``, and any other claims.

    Raises
    ------
    SignatureError
        If the signature does not verify. The error shows neither the signature nor a key.
    InputError
        If an argument is invalid: no key, a short key, a body that is not bytes.
    SettingsError
        If the service has no signing keys.

    Examples
    --------
    >>> import base64, hashlib, jwt
    >>> key, body = "k" * 32, b'{"status": 200}'
    >>> claims = {"iss": "Upstash", "sub": "https://app.example/done", "nbf": 1000, "exp": 1300,
    ...           "body": base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()}
    >>> signature = jwt.encode(claims, key, algorithm="HS256")
    >>> verify_signature(signature, body, url="https://app.example/done", keys=[key], now=1100)["sub"]
    'https://app.example/done'
    >>> verify_signature(signature, b"{}", url="https://app.example/done", keys=[key], now=1100)
    Traceback (most recent call last):
    ...
    toolkit.errors.SignatureError: verifying a signature: got another body than the one signed; ...

    Sources: RFC 7519 (JWT), RFC 7515 (JWS); HS256 keys of 32 bytes or more: RFC 7518, section 3.2.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise InputError(
            _DOING,
            got=f"a body of the type {type(body).__name__}",
            expected="the raw bytes",
            next_step="Hand over the request's body before it is parsed.",
        )

    instance("seen", seen, ReplayGuard, "a ReplayGuard", optional=True)
    # replaced, so that a traceback with variables does not show plain ones
    keys = signing_keys(keys, region)
    timestamp = _unix_seconds(now)

    claims = verify_claims(
        signature, url=url, keys=keys, now=timestamp, leeway=leeway, issuer=issuer
    )
    if not _same_hash(claims["body"], bytes(body)):
        raise _invalid(
            "another body than the one signed",
            "the raw bytes as they came",
            "Hand over the request's body before it is parsed.",
        )

    if seen is not None:
        token_id = claims.get("jti")
        if not isinstance(token_id, str) or not token_id:
            raise _invalid("no id (jti)", "one, to know it when it comes again")
        # within the leeway an expired signature is still accepted, so it is remembered that much longer
        if not seen.is_new(token_id, until=claims["exp"] + leeway, now=timestamp):
            raise _invalid("a signature that was used before", "a new one")

    return claims


def sign_delivery(body: bytes, *, url: str, key: Secret) -> str:
    """Return the signature of a delivery, as `verify_signature` accepts it for the next five minutes."""
    issued = int(time.time())
    claims = {
        "iss": "Upstash",
        "sub": url,
        "exp": issued + _SIGNED_FOR,
        "nbf": issued,
        "iat": issued,
        "jti": f"jwt_{secrets.token_hex(11)}",
        "body": base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode(),
    }
    return jwt.encode(claims, key.reveal(), algorithm="HS256")


def verify_claims(
    signature: str,
    *,
    url: str,
    keys: tuple[Secret, ...],
    now: float,
    leeway: float = 5.0,
    issuer: str = "Upstash",
) -> dict[str, Any]:
    """Verify all but the body at `now` (Unix seconds), and return the claims; see `verify_signature`."""
    if not isinstance(url, str) or not url:
        raise InputError(_DOING, got=f"url={url!r}", expected="the published address")

    leeway = plain(leeway)
    if (
        isinstance(leeway, bool)
        or not isinstance(leeway, int | float)
        or not 0 <= leeway <= _MOST_LEEWAY
    ):
        raise InputError(
            _DOING, got=f"leeway={leeway!r}", expected=f"0 to {_MOST_LEEWAY} seconds"
        )

    issuer = text("issuer", issuer)
    _check_header(signature)
    claims = _signed_claims(signature, keys)
    _check_claims(claims, issuer=issuer, now=now, leeway=leeway)

    if not _are_equal(claims["sub"], url):
        raise _invalid(
            "a signature for another address",
            "the address given as url=",
            "Give the address exactly as it was published, also behind a proxy.",
        )

    return claims


def signing_keys(
    keys: Sequence[Secret | str] | Service, region: str | None = None
) -> tuple[Secret, ...]:
    """Return the keys as secrets. Raise if there are no keys, or if one is too short."""
    known = (
        _service_keys(keys, region) if isinstance(keys, Service) else _given_keys(keys)
    )
    if not known:
        raise _no_key("no keys")
    if min(len(key.reveal()) for key in known) < MIN_SIGNING_KEY:
        raise _no_key("a key that is empty or short")

    return known


def _no_key(got: str) -> InputError:
    return InputError(
        _DOING, got=got, expected=f"keys of {MIN_SIGNING_KEY} characters or more"
    )


def _service_keys(service: Service, region: str | None) -> tuple[Secret, ...]:
    keys = service.need("queue").keys_of(region)
    if not keys:
        raise SettingsError(
            _DOING,
            got="a service without signing keys",
            expected="the current and the next signing key",
            next_step="Give connect() current_signing_key= and next_signing_key=, or set the variables.",
        )

    return keys


def _given_keys(keys: object) -> tuple[Secret, ...]:
    if isinstance(keys, str | Secret):
        raise InputError(
            _DOING,
            got="one key",
            expected="a sequence of keys",
            next_step="Write keys=[key].",
        )

    if isinstance(keys, bytes | Mapping) or not isinstance(keys, Iterable):
        raise wrong("keys", keys, "a sequence of keys, or a Service")

    return tuple(map(_as_secret, keys))


def _as_secret(key: object) -> Secret:
    if isinstance(key, Secret):
        return key
    return Secret(_key(key))


def signature_in(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the signature among the headers of a request, or None. Names are compared without case."""
    return _one_value(headers, SIGNATURE_HEADERS)


def region_in(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the region in the header of a delivery. Return None without a header, or with two."""
    return _one_value(headers, REGION_HEADERS)


def _one_value(
    headers: Iterable[tuple[str, str]], names: tuple[str, ...]
) -> str | None:
    values = {text for name, text in headers if normalise_header(name) in names}
    if len(values) == 1:
        return values.pop()

    return None


def _invalid(got: str, expected: str, next_step: str | None = None) -> SignatureError:
    return SignatureError(_DOING, got=got, expected=expected, next_step=next_step)


def _check_header(signature: Any) -> None:
    """Refuse everything but a JWT of HS256 before any key is used."""
    if (
        not isinstance(signature, str)
        or not signature.isascii()
        or not 0 < len(signature) <= _MOST_CHARACTERS
    ):
        raise _invalid(
            "no text that could be a signature",
            f"a JWT of at most {_MOST_CHARACTERS} characters",
        )

    try:
        header = jwt.get_unverified_header(signature)
    except (jwt.PyJWTError, RecursionError):
        header = {}

    # The sender must not choose the algorithm: "none" would need no key (algorithm confusion).
    if header != {"alg": "HS256", "typ": "JWT"}:
        raise _invalid(
            "no JWT of the fixed kind",
            "a header of alg HS256 and typ JWT, and nothing else",
        )


def _signed_claims(signature: str, keys: tuple[Secret, ...]) -> dict[str, Any]:
    """Return the claims after checking that one of the keys signed them."""
    # while keys are rotated, some messages are signed with the current key and some with the next one
    payloads = (_signed_payload(signature, key) for key in keys)
    payload = next((payload for payload in payloads if payload is not None), None)
    if payload is None:
        raise _invalid(
            f"a signature that none of {len(keys)} keys made",
            "one made with the current or the next signing key",
            "If the keys were rotated, connect with the new ones.",
        )

    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _invalid("claims that are not a JSON object", "a JSON object") from None


def _signed_payload(signature: str, key: Secret) -> bytes | None:
    """Return the content of a signature that was made with this key, or None."""
    try:
        decoded = jwt.PyJWS().decode_complete(
            signature, key.reveal(), algorithms=["HS256"]
        )
    except jwt.PyJWTError:
        return None

    payload: bytes = decoded["payload"]
    return payload


def _check_claims(
    claims: Mapping[str, Any], *, issuer: str, now: float, leeway: float
) -> None:
    """Raise SignatureError if a claim is missing, has the wrong type or issuer, or is not valid now."""
    missing = [name for name in _REQUIRED if name not in claims]
    if missing:
        raise _invalid(f"no claim {', '.join(missing)}", ", ".join(_REQUIRED))

    texts = (claims["iss"], claims["sub"], claims["body"])
    if set(map(type, texts)) != {str}:
        raise _invalid("claims of the wrong type", "iss, sub and body as text")

    # "iat" may be missing
    times = [claims[name] for name in ("exp", "nbf", "iat") if name in claims]
    if not all(map(_is_time, times)):
        raise _invalid("times that are not numbers", "exp, nbf and iat in Unix seconds")
    # compared in constant time, so that nobody can guess the issuer letter by letter
    if not _are_equal(claims["iss"], issuer):
        raise _invalid("another issuer", issuer)

    _check_lifetime(times, now, leeway)


def _is_time(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value <= _LATEST


def _check_lifetime(times: list[float], now: float, leeway: float) -> None:
    """Raise SignatureError if the lifetime is too long, is over, or has not begun."""
    expires, *starts = times
    not_before = starts[0]
    if not not_before < expires <= min(starts) + _LONGEST_LIFE:
        raise _invalid(
            f"a lifetime of {expires - not_before:,} s",
            f"more than 0, at most {_LONGEST_LIFE:,} s",
        )

    # the clocks of two machines can differ by `leeway`
    if now >= expires + leeway:
        raise _invalid(
            f"a signature that expired {now - expires:,.0f} s ago",
            f"a valid one, give or take {leeway:g} s",
            "Verify on arrival; if the clock of this machine is wrong, set it.",
        )

    if max(starts) > now + leeway:
        raise _invalid(
            f"a signature that is valid in {max(starts) - now:,.0f} s",
            f"a valid one, give or take {leeway:g} s",
            "If the clock of this machine is wrong, set it.",
        )


def _same_hash(claimed: str, body: bytes) -> bool:
    """Compare the claim with the hash of the body (base64url with or without padding) in constant time."""
    padded = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    return any([_are_equal(claimed, padded), _are_equal(claimed, padded.rstrip("="))])


def _are_equal(claimed: str, expected: str) -> bool:
    """Compare two strings in constant time."""
    return hmac.compare_digest(
        *(text.encode("utf-8", "surrogatepass") for text in (claimed, expected))
    )


def _unix_seconds(now: float | datetime | None) -> float:
    if now is None:
        return time.time()
    if isinstance(now, datetime):
        return parse_time(now, exact=True, name="now").timestamp()

    seconds = math.nan
    if not isinstance(now, bool | str | bytes):
        with suppress(TypeError, ValueError, OverflowError):
            seconds = float(now)

    if not math.isfinite(seconds):
        raise wrong("now", now, "Unix seconds, or a datetime")

    return seconds


def _key(key: object) -> str:
    """Return a key as a string. A value of another type is not shown."""
    if not isinstance(key, str):
        raise InputError(
            _DOING, got=f"{type(key).__name__} in keys", expected="strings or Secrets"
        )

    return key
