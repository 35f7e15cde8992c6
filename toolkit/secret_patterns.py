"""Which names say that a value is secret, and which texts look like a secret wherever they stand."""

from __future__ import annotations

import re
from typing import Final

_SECRET_WORDS: Final = re.compile(
    r"auth|token|secret|passw|passcode|passphrase|pwd|credential|cookie|session|signature|key|jwt|otp|csrf|xsrf"
    r"|bearer|private|hmac|(?:^|-)(?:sig|sid|pin|pass)(?:-|$)"
)
# Names that hold a secret word without holding a secret.
_PLAIN_NAMES: Final = re.compile(
    r"(?:^|-)(?:flow-?control-?key|idempotency-?key|author|authority|sec-websocket-key)$|^:authority$"
)

# Each has a part that is kept and a part that is masked. Searching stays linear also in hostile text: runs of
# letters have one start each, and what was matched is not given back.
PATTERNS: Final = (
    re.compile(
        r"(?P<kept>)(?P<secret>-----BEGIN [A-Z0-9 ]{3,40}-----.*?(?:-----END [A-Z0-9 ]{3,40}-----|\Z))",
        re.DOTALL,
    ),
    re.compile(r"(?P<kept>(?i:bearer)(?:[ \t]{1,9}|%20|\+))(?P<secret>[\w.~+/=:\-]{6,})", re.ASCII),
    # not one plain word: "a basic example"
    re.compile(
        r"(?P<kept>(?i:basic)(?:[ \t]{1,9}|%20|\+))(?![A-Z]?[a-z]+(?![\w+/=\-]))(?P<secret>[\w+/=\-]{6,})",
        re.ASCII,
    ),
    re.compile(
        r"(?P<kept>)(?P<secret>(?<![\w\-])(?=[\w\-]*eyJ[\w\-]{5})[\w\-]++\.[\w\-]{5,}+\.[\w\-]*)", re.ASCII
    ),
    re.compile(r"(?P<kept>)(?P<secret>(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9]))"),
)
SUSPICIOUS: Final = r"(?i)^[/?]|://|-----BEGIN|bearer|basic|eyJ|AKIA|ASIA"
"""A cheap test (RE2 syntax): text without a match holds no pattern that `Redactor.text` would mask."""
SUSPICIOUS_URL: Final = r"(?i)[?#@]|-----BEGIN|bearer|basic|eyJ|AKIA|ASIA"
"""The same for `Redactor.url`."""

# What a mask looks like inside a URL is part of the URL, so that masking twice changes nothing.
URL: Final = re.compile(
    r"(?i)(?<![a-z])[a-z][a-z0-9+.\-]{0,40}+://(?:\[masked len=\d+ tag=[0-9a-f]{8}\]|[^\s\"'<>\\^`{|}])+"
)
RELATIVE: Final = re.compile(r"[/?](?:\[masked len=\d+ tag=[0-9a-f]{8}\]|\S)*")
# Up to the last @ of the authority; or, where a password holds / ? or #, up to the next @. Not a port.
USER_INFO: Final = re.compile(
    r"(?<=//)(?:[^\s/?#\"<>]+(?=@)|[^\s/?#\"<>@:\[]*:(?!\d{0,5}(?:[/?#\s]|$))[^\s\"<>@]{0,200}(?=@))"
)


def normalise_header(name: str) -> str:
    """Lower case, ``_`` as ``-``: the form in which header names are compared.

    >>> normalise_header("X_Api_Key")
    'x-api-key'
    """
    return name.strip().lower().replace("_", "-")


def is_secret_name(name: str) -> bool:
    """Whether a header or field of this name is expected to hold a secret, also behind a forwarding prefix.

    >>> is_secret_name("Upstash-Forward-X-Api-Key"), is_secret_name("Content-Type")
    (True, False)
    """
    plain = normalise_header(name)
    return bool(_SECRET_WORDS.search(plain)) and not _PLAIN_NAMES.search(plain)
