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
# characters of a query without "=" that may be a secret: "?debug" is a flag
_LEAST_BARE: Final = 6
# characters if "=" only ends it, as base64 does: "?next=" is a name without a value
_LEAST_PADDED: Final = 16


def user_info_spans(text: str) -> Iterator[Part]:
    """Yield the spans of user names and passwords in URLs.

    >>> list(user_info_spans("amqp://ann:pw@mq.example/"))
    [(7, 13)]
    """
    if "@" not in text:
        return
    for match in _USER_INFO.finditer(text):
        yield match.span()
    for match in _CORRECTED_USER_INFO.finditer(text):
        yield match.span(1)


def spans_in_urls(text: str) -> Iterator[Part]:
    """Yield the secret parts of all URLs, and of queries that stand alone, without user info."""
    if "://" in text:
        for url in URL.finditer(text):
            yield from spans_of_url(url[0], url.start())
    if "?" in text:
        for query in _QUERY.finditer(text):
            yield from spans_of_url(query[0], query.start())


def spans_of_url(url: str, offset: int) -> Iterator[Part]:
    """Yield the secret parts of a URL that begins at this offset, without user info.

    >>> list(spans_of_url("/a?x=1#end", 0))
    [(7, 10), (5, 6)]
    """
    begin = 0
    if "@" in url:
        for match in _USER_INFO.finditer(url):
            begin = match.end()
    address_end = len(url)
    fragment = url.find("#", begin)
    if fragment >= 0:
        address_end = fragment
        yield offset + fragment + 1, offset + len(url)
    path_end = address_end
    question = url.find("?", begin, address_end)
    if question >= 0:
        path_end = question
        query_start = question + 1
        yield from _spans_of_query(url[query_start:address_end], offset + query_start)
    yield from _spans_of_path(url[begin:path_end], offset + begin)


def _spans_of_query(query: str, offset: int) -> Iterator[Part]:
    """Yield the values of a query, and the parts without a value that are too long for a flag."""
    start = offset
    for pair in query.split("&"):
        end = start + len(pair)
        name, equals, value = pair.partition("=")
        if value.strip("="):
            yield start + len(name) + 1, end
        elif len(pair) >= _LEAST_PADDED or (not equals and len(pair) >= _LEAST_BARE):
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
