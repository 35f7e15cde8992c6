r"""Find the secret parts of URLs: user info, values of the query, fragments, parameters and random segments.

Example (the secret parts are between ``«`` and ``»``)::

    https://«ann:s3cr3t»@app.example/reset/«k3J9x0Q2v7B1m5»;id=«17»?page=«2»&flag#«part»

Scheme, host, port, path and names of parameters stay readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from toolkit.secrets.names import is_random, is_secret_name

Part = tuple[int, int]  # start and end

# A mask that replaces a part of a URL (\x1f, see `spans.MASKED`) is part of the URL.
URL: Final = re.compile(
    r"(?i)(?<![a-z])[a-z][a-z0-9+.\-]{0,40}+://(?:\x1f|[^\s\"'<>\\^`{|}])+"
)
RELATIVE_URL: Final = re.compile(r"[/?](?:\x1f|\S)*")
_QUERY: Final = re.compile(r"\?(?=[\w.\-~%\[\]]{1,100}=)(?:\x1f|[^\s\"'<>\\^`{|}])+")
# User info ends at the last "@" of the authority. If a password contains "/", "?" or "#", it ends at the next
# "@" after a colon that begins no port.
_USER_INFO: Final = re.compile(
    r"(?<=//)(?:(?:\x1f|[^\s/?#\"<>]){1,1000}(?=@)"
    r"|(?:\x1f|[^\s/?#\"<>@:\[]){0,500}:(?!\d{0,5}(?:[/?#\s]|$))(?:\x1f|[^\s\"<>@]){1,200}(?=@))"
)
# The same after slashes that browsers correct: "https:\\", "https:/", "https:".
_CORRECTED_USER_INFO: Final = re.compile(
    r"(?i)(?:[/\\]\\|:[/\\]|(?<![a-z])(?:https?|wss?|ftp):)"
    r"([^\s/?#\"<>@:\[\\]{1,500}:(?!\d{0,5}(?:[/?#\s]|$))[^\s\"<>@/\\]{1,200})(?=@)"
)
_PATH_PARAMETER: Final = re.compile(r";[\w.\-~%]{1,100}+=([^;/?#\s]+)")

GIVES_ACCESS: Final = (
    "reset|verif|confirm|activat|invit|magic|unsubscribe|unlock|recover|hooks?"
)
"""Words of a path before a segment that may be a secret, for example ``/reset/…``."""

_GIVES_ACCESS: Final = re.compile(f"(?i){GIVES_ACCESS}$")
# Characters of a query that may be a secret: without "=", as "?debug" is a flag; and if "=" only ends it, as
# base64 does, but "?next=" is a name without a value.
_LEAST_LENGTHS: Final = {"": 6, "=": 16}


def user_info_spans(text: str) -> Iterator[Part]:
    """Yield the spans of user names and passwords in URLs.

    >>> list(user_info_spans("amqp://ann:pw@mq.example/"))
    [(7, 13)]
    """
    if "@" in text:
        yield from map(re.Match.span, _USER_INFO.finditer(text))
        for match in _CORRECTED_USER_INFO.finditer(text):
            yield match.span(1)


def spans_in_urls(text: str) -> Iterator[Part]:
    """Yield the secret parts of all URLs, and of queries that stand alone, without user info."""
    if "://" in text:
        yield from _spans_of_matches(URL, text)
    if "?" in text:
        yield from _spans_of_matches(_QUERY, text)


def _spans_of_matches(expression: re.Pattern[str], text: str) -> Iterator[Part]:
    for match in expression.finditer(text):
        yield from spans_of_url(match[0], match.start())


def spans_of_url(url: str, offset: int) -> Iterator[Part]:
    """Yield the secret parts of a URL that begins at this offset, without user info.

    >>> list(spans_of_url("/a?x=1#end", 0))
    [(7, 10), (5, 6)]
    """
    begin = _end_of_user_info(url)
    address, hash_sign, _ = url[begin:].partition("#")
    path, _, query = address.partition("?")
    path_start = offset + begin
    query_start = path_start + len(path) + 1
    fragment_start = path_start + len(address) + 1
    if hash_sign:
        yield fragment_start, offset + len(url)
    yield from _spans_of_query(query, query_start)
    yield from _spans_of_path(path, path_start)


def _end_of_user_info(url: str) -> int:
    """Return the index after the user info of a URL, or 0 if it has none."""
    if "@" not in url:
        return 0
    return max(map(re.Match.end, _USER_INFO.finditer(url)), default=0)


def _spans_of_query(query: str, offset: int) -> Iterator[Part]:
    """Yield the values of a query, and the parts without a value that are too long for a flag."""
    start = offset
    for pair in query.split("&"):
        end = start + len(pair)
        name, equals, value = pair.partition("=")
        if value.strip("="):
            yield start + len(name) + 1, end
        elif len(pair) >= _LEAST_LENGTHS[equals]:
            yield start, end
        start = end + 1


def _spans_of_path(path: str, offset: int) -> Iterator[Part]:
    """Yield the values of parameters in a path, and random segments after words such as "reset"."""
    if ";" in path:
        for match in _PATH_PARAMETER.finditer(path):
            yield offset + match.start(1), offset + match.end(1)
    start = offset
    previous = ""
    for segment in path.split("/"):
        end = start + len(segment)
        if _precedes_secret(previous) and is_random(segment):
            yield start, end
        start = end + 1
        previous = segment


@lru_cache(4096)
def _precedes_secret(segment: str) -> bool:
    """Return whether the next segment of a path may be a secret, for example after ``reset`` or ``token``."""
    return is_secret_name(segment) or _GIVES_ACCESS.search(segment) is not None
