"""Signatures of deliveries: a JWT (RFC 7519) with HS256 (RFC 7515) over the address and the body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import Final

ISSUER: Final = "Upstash"
LIFETIME: Final = 300
"""Seconds for which a signature is valid."""


def sign(key: str, *, url: str, body: bytes, now_ms: int) -> str:
    """The signature of one delivery.

    Parameters
    ----------
    key : str
        The current signing key.
    url : str
        The destination as published: the claim ``sub``.
    body : bytes
        The raw body: the claim ``body`` is the base64url of its SHA-256.
    now_ms : int
        Unix milliseconds.

    Returns
    -------
    str
        A compact JWT with the claims iss, sub, exp, nbf, iat, jti and body.

    Examples
    --------
    >>> sign("k" * 32, url="http://127.0.0.1/a", body=b"{}", now_ms=0).count(".")
    2
    """
    issued = now_ms // 1000
    claims = {
        "iss": ISSUER,
        "sub": url,
        "exp": issued + LIFETIME,
        "nbf": issued,
        "iat": issued,
        "jti": f"jwt_{secrets.token_hex(11)}",
        "body": base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode(),
    }
    signed = (
        f"{_part(json.dumps({'alg': 'HS256', 'typ': 'JWT'}).encode())}.{_part(json.dumps(claims).encode())}"
    )
    return f"{signed}.{_part(hmac.digest(key.encode(), signed.encode(), 'sha256'))}"


def _part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
