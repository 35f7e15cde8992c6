"""The parts of a publish: values become header text, bodies become bytes, and URLs are checked.

An error names the header and never shows a value that may be a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from toolkit.base.arguments import as_json, plain
from toolkit.base.errors import InputError
from toolkit.base.times import parse_duration, parse_time

Duration = int | str | timedelta
"""Whole seconds, text such as ``"50s"`` or ``"1d12h"``, or a timedelta of whole seconds."""
Method = Literal["GET", "POST", "PUT", "DELETE", "PATCH"]

_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~\-]{1,200}")
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?")
_URL: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")


def invalid_header(
    header: str, got: str, expected: str, next_step: str | None = None
) -> InputError:
    """Return the error for a header that cannot be made from an argument."""
    return InputError(
        f"making the header {header}", got=got, expected=expected, next_step=next_step
    )


def content_of(body: Any) -> tuple[bytes | None, str | None]:
    """Return the bytes of a body and the content type."""
    if body is None:
        return None, None
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), "application/octet-stream"

    try:
        return _encoded(body)
    except UnicodeEncodeError:
        reason = "text with lone surrogates"
    except (TypeError, ValueError, RecursionError) as error:
        reason = f"{type(body).__name__} ({error})"

    raise InputError(
        "making the body of a message",
        got=reason,
        expected="bytes, text that can be UTF-8, or JSON-able values",
    )


def _encoded(body: Any) -> tuple[bytes, str]:
    """Return text in UTF-8, or another value as JSON, and the content type."""
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return as_json(body).encode(), "application/json"


def web_address(what: str, url: Any, *, doing: str = "publishing a message") -> str:
    """Return a checked URL that has the same meaning after a path or in a header."""
    problem = _url_problem(url, in_path=what == "destination")
    if problem:
        raise InputError(
            doing,
            got=f"a {what} {problem}",
            expected="an http(s) URL of host, optional port, path and query, in ASCII",
            next_step="Percent-encode other characters; send credentials as headers.",
        )

    return str(url)


def _url_problem(url: Any, *, in_path: bool) -> str | None:
    if not isinstance(url, str):
        return f"of the type {type(url).__name__}"

    try:
        parts = urlsplit(url)
        _ = parts.port
        host = parts.hostname
    except ValueError:
        return "whose host or port cannot be read"

    checks = (
        (parts.scheme not in {"http", "https"}, f"of the scheme {parts.scheme[:20]!r}"),
        ("@" in parts.netloc, "with user info"),
        (not host, "without a host"),
        # an HTTP library percent-encodes the brackets
        (
            in_path and "[" in parts.netloc,
            "of an IPv6 address, which cannot be in a path: name its host",
        ),
        ("#" in url, "with a fragment, which is never sent"),
        (not _URL.fullmatch(url), "with characters that no URL contains"),
        # an HTTP library resolves them, and the request would go to another path of the service itself
        (
            any(unquote(segment) in {".", ".."} for segment in parts.path.split("/")),
            "with the path segments '.' or '..'",
        ),
    )
    return next((problem for wrong, problem in checks if wrong), None)


def header_name(name: Any) -> str:
    """Return a checked header name."""
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise invalid_header(
            ascii(name)[:60], "characters that no header name contains", "a header name"
        )

    return name


def header_value(name: str, value: Any) -> str:
    """Return a checked header value. An error never shows the value, because it may be a secret."""
    if not isinstance(value, str):
        raise invalid_header(
            name, f"a value of the type {type(value).__name__}", "text"
        )

    if not _HEADER_VALUE.fullmatch(value):
        raise invalid_header(
            name,
            "line ends, control characters, other than ASCII, or white space at an end",
            "visible ASCII text",
            "Percent-encode what is not ASCII.",
        )

    return value


def forwarded(prefix: str, headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers under a forwarding prefix, checked."""
    if not isinstance(headers, Mapping):
        raise invalid_header(
            f"{prefix}headers", type(headers).__name__, "a mapping of names to values"
        )

    return [
        (f"{prefix}{header_name(name)}", header_value(f"{prefix}{name}", value))
        for name, value in headers.items()
    ]


def count(header: str, value: Any, *, least: int = 0) -> str:
    """Return a whole number as header text."""
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise invalid_header(
            header, repr(value)[:60], f"a whole number of {least} or more"
        )

    return str(int(number))


def method_name(header: str, value: Any) -> str:
    """Return an HTTP method as header text."""
    if not isinstance(value, str) or value not in _METHODS:
        raise invalid_header(header, repr(value)[:60], f"one of {', '.join(_METHODS)}")
    return value


def retry_delay(header: str, value: Any) -> str:
    """Return milliseconds as header text, or an expression of milliseconds unchanged."""
    if isinstance(value, str):
        return value
    return count(header, value)


def duration(header: str, value: Any) -> str:
    """Return a duration as header text, for example ``50s``.

    >>> duration("Delay", timedelta(minutes=2))
    '120s'
    """
    value = plain(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and value >= 0:
        return f"{value}s"

    expected = "whole seconds, text such as '50s' or '1d12h', or a timedelta of whole seconds; not negative"
    error = invalid_header(header, repr(value)[:60], expected)
    try:
        span = parse_duration(value, zero=True)
    except InputError:
        raise error from None

    if span.microseconds:
        raise error

    seconds = span // timedelta(seconds=1)
    return f"{seconds}s"


def not_before_seconds(header: str, value: datetime) -> str:
    """Return a datetime as Unix seconds, rounded up, because the message must not be delivered earlier."""
    seconds = parse_time(
        value, exact=True, name=f"the header {header}, from delay"
    ).timestamp()
    # `parse_time` truncates to milliseconds
    if value.microsecond % 1000 > 0:
        seconds += 0.001
    return count(header, math.ceil(seconds))


def listed(header: str, values: Any) -> str | None:
    """Return strings as one header, separated by commas, or None without strings."""
    items = values
    if isinstance(values, str):
        items = [values]
    is_several = isinstance(items, Iterable) and not isinstance(items, bytes | Mapping)
    if not is_several:
        got = type(values).__name__
        raise invalid_header(header, got, "a string, or several strings")

    checked_items = [_checked_item(header, item) for item in items]
    return ",".join(checked_items) or None


def _checked_item(header: str, item: Any) -> str:
    """Return one of several strings of a header, which commas separate."""
    is_text = isinstance(item, str) and item.strip() != ""
    if is_text and "," not in item:
        return header_value(header, item)

    expected = "strings that are not empty, without commas, which separate them"
    raise invalid_header(header, repr(item)[:60], expected)


def flow_control(
    parallelism: int | None, rate: int | None, period: Duration | None
) -> str | None:
    """Return the value of ``Flow-Control-Value``, or None without a limit."""
    header = "Flow-Control-Value"
    positive_count = partial(count, least=1)
    limits: tuple[tuple[str, Any, Callable[[str, Any], str]], ...] = (
        ("parallelism", parallelism, positive_count),
        ("rate", rate, positive_count),
        ("period", period, duration),
    )
    parts = [
        f"{name}={convert(f'{header}, {name}', limit)}"
        for name, limit, convert in limits
        if limit is not None
    ]

    return ", ".join(parts) or None


MESSAGE_HEADERS: Final[dict[str, tuple[str, Callable[[str, Any], Any]]]] = {
    "Method": ("method", method_name),
    "Retries": ("retries", count),
    "Retry-Delay": ("retry_delay", retry_delay),
    "Timeout": ("timeout", duration),
    "Delay": ("delay", duration),
    "Not-Before": ("not_before", not_before_seconds),
    "Label": ("labels", listed),
    "Redact-Fields": ("redact", listed),
}
"""Headers of a message, each with the argument that it is made of, and how."""
