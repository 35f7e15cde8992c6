"""Check addresses, tokens and signing keys before anything is sent."""

from __future__ import annotations

import re
import secrets
from typing import Final
from urllib.parse import SplitResult, urlsplit

from toolkit.base.errors import SettingsError
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.service.settings import TITLES, Endpoint

# least characters of a signing key for HS256 (RFC 7518, section 3.2)
MIN_SIGNING_KEY: Final = 32


def settings_error(
    got: str, expected: str, then: str | None = None, *, doing: str = "connecting"
) -> SettingsError:
    """Return the error for a setting that cannot be used; `then` is the next step."""
    return SettingsError(doing, got=got, expected=expected, next_step=then)


def checked_address(url: str, doing: str) -> SplitResult:
    """Return the parts of an http(s) address. Raise SettingsError if it is not one, or has user info."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a port that is not a number
    except ValueError:
        raise _not_an_address(url, doing) from None

    is_web_address = parts.scheme in {"http", "https"} and parts.hostname
    if not is_web_address or not _ADDRESS.fullmatch(url):
        raise _not_an_address(url, doing)

    if parts.username or parts.password:
        raise settings_error(
            "an address with user info",
            "an address without user info: the token authenticates",
            doing=doing,
        )

    return parts


def _not_an_address(url: str, doing: str) -> SettingsError:
    # Text without "://" is not shown: it may be the token, passed as the address.
    shown = "text that is no address"
    if "://" in url:
        shown = repr(Redactor(key=secrets.token_bytes(32)).url(url))
    return settings_error(
        shown, "an http(s) address of host, port and path only", doing=doing
    )


def check_secrets(endpoint: Endpoint, origin: str) -> None:
    """Raise SettingsError if the token or a signing key cannot be sent, or if a key is too short."""
    token, *keys = endpoint.secrets
    _check_characters(endpoint, "token", token)
    for key in keys:
        _check_characters(endpoint, "signing key", key)
    if any(len(key.reveal()) < MIN_SIGNING_KEY for key in keys):
        raise SettingsError(
            f"reading the signing keys {origin}",
            got=f"a key of fewer than {MIN_SIGNING_KEY} characters",
            expected="keys that cannot be guessed",
            next_step="Copy the complete keys again.",
        )


def _check_characters(endpoint: Endpoint, what: str, secret: Secret) -> None:
    if _TOKEN.fullmatch(secret.reveal()):
        return

    source = endpoint.source
    prefix = source.removesuffix("_URL").removesuffix("_TOKEN")
    is_from_variables = prefix != source
    if is_from_variables:
        # name the variable of the secret
        source = f"{prefix}{_ENDINGS_OF_VARIABLES[what]}"

    got = "white space or characters that no header can contain"
    if not secret.reveal():
        got = "an empty string"
    raise SettingsError(
        f"reading the {what} of the {TITLES[endpoint.name]} from {source}",
        got=got,
        expected=f"only the {what}",
        next_step="Copy it again. The usual cause is a line end after it.",
    )


_ENDINGS_OF_VARIABLES: Final = {"token": "_TOKEN", "signing key": "_…_SIGNING_KEY"}


# No query, no fragment, no characters that a URL cannot contain, and no placeholder such as {zone}.
_ADDRESS: Final = re.compile(r"""[^\s?#\\{}<>"^`|\x00-\x1f\x7f]+""")


_TOKEN: Final = re.compile(r"[!-~]+")
