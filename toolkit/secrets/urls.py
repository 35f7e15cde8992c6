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
    if "@" not in text:
        return

    yield from map(re.Match.span, _USER_INFO.finditer(text))
    # browsers read https:\\ann:pw@app.example as https://ann:pw@app.example
    for match in _CORRECTED_USER_INFO.finditer(text):
        yield match.span(1)


def spans_in_urls(text: str) -> Iterator[Part]:
    """Yield the secret parts of all URLs, and of queries that stand alone, without user info."""
    # For example, both parts of "https://a.example/?x=1 redirects to ?x=2" are searched. The query of the URL
    # is found twice, so callers merge the spans.
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
    # The parts of https://ann:pw@app.example/a;id=17?page=2#end, and the function that finds their secrets:
    #   ann:pw            `user_info_spans`
    #   /a;id=17          `_spans_of_path`
    #   page=2            `_spans_of_query`
    #   end               here
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

    ends = map(re.Match.end, _USER_INFO.finditer(url))
    return max(ends, default=0)


def _spans_of_query(query: str, offset: int) -> Iterator[Part]:
    """Yield the values of a query, and the parts without a value that are too long for a flag."""
    # In page=2&debug&k3J9x0Q2v7B1m5, "2" is a value, "debug" is a flag (too short), and the last part is as
    # long as a secret.
    start = offset
    for pair in query.split("&"):
        end = start + len(pair)
        name, equals, value = pair.partition("=")

        has_value = value.strip("=") != ""
        if has_value:
            start_of_value = start + len(name) + 1
            yield start_of_value, end
        elif len(pair) >= _LEAST_LENGTHS[equals]:
            yield start, end

        start = end + 1


def _spans_of_path(path: str, offset: int) -> Iterator[Part]:
    """Yield the values of parameters in a path, and random segments after words such as "reset"."""
    if ";" in path:
        yield from _spans_of_path_parameters(path, offset)
    # in /reset/k3J9x0Q2v7B1m5, the second segment is random and follows "reset"
    start = offset

    previous = ""
    for segment in path.split("/"):
        end = start + len(segment)
        is_secret = _precedes_secret(previous) and is_random(segment)
        if is_secret:
            yield start, end
        start = end + 1
        previous = segment


def _spans_of_path_parameters(path: str, offset: int) -> Iterator[Part]:
    """Yield the values of parameters after a semicolon, as in ``/a;id=17``."""
    for match in _PATH_PARAMETER.finditer(path):
        start, end = match.span(1)
        yield offset + start, offset + end


@lru_cache(4096)
def _precedes_secret(segment: str) -> bool:
    """Return whether the next segment of a path may be a secret, for example after ``reset`` or ``token``."""
    gives_access = _GIVES_ACCESS.search(segment) is not None
    return gives_access or is_secret_name(segment)
