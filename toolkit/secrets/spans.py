r"""Find the secret parts of any text: in URLs, after secret names, and by their looks.

`text_spans` and `url_spans` join the spans that `urls`, `named_values` and `patterns` find.
Escapes of JSON, HTML and URLs are decoded by the caller, layer by layer, with `decoded`: for example,
``password\u003dhunter2`` becomes ``password=hunter2``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from toolkit.base.own_tokens import MASK, MASK_START, DecodedText
from toolkit.secrets.named_values import named_spans
from toolkit.secrets.names import plain_letters, speaks_of_secrets
from toolkit.secrets.pairs import NO_QUOTE, Span
from toolkit.secrets.patterns import pattern_spans
from toolkit.secrets.urls import (
    RELATIVE_URL,
    URL,
    spans_in_urls,
    spans_of_url,
    user_info_spans,
)

MASKED: Final = "\x1f"
"""Replaces masks during the search: white space to regular expressions, which no secret contains."""

_ESCAPE: Final = re.compile(
    r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[/\"'\\nrtbf])"
    r"|&(?:\#[0-9]{1,7};?|\#[xX][0-9a-fA-F]{1,6};?|[A-Za-z]{2,31};)"
    r"|%[c-fC-F][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){1,3}|%[0-9a-fA-F]{2}"
)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def without_masks(view: DecodedText) -> DecodedText:
    """Return the text with `MASKED` in place of each mask."""
    if MASK_START not in view.text:
        return view
    return view.replaced(MASK, lambda _: MASKED) or view


def decoded(view: DecodedText) -> DecodedText | None:
    """Return the text with one layer of escapes decoded, or None if it contains no escape."""
    return view.replaced(_ESCAPE, _character)


def _character(match: re.Match[str]) -> str:
    """Return the character that an escape stands for."""
    escape = match[0]
    return _DECODERS[escape[0]](escape)


def _percent_decoded(escape: str) -> str:
    """Return the character of ``%3D``, or of the two to four bytes of UTF-8 as in ``%C3%A9``."""
    encoded = bytes.fromhex(escape.replace("%", ""))
    encoding = "utf-8"
    if len(encoded) == 1:
        encoding = "latin-1"
    return encoded.decode(encoding, "replace")[0]


def _backslash_decoded(escape: str) -> str:
    r"""Return the character of ``\u003d``, ``\x3d``, ``\n`` or ``\"``."""
    kind, digits = escape[1], escape[2:]
    if digits:
        return chr(int(digits, 16))

    return _CONTROLS.get(kind, kind)


_DECODERS: Final[dict[str, Callable[[str], str]]] = {
    "%": _percent_decoded,
    "&": html.unescape,
    "\\": _backslash_decoded,
}
"""The function for an escape by its first character."""


def text_spans(text: str) -> list[Span]:
    """Return the secret parts of any text, in order, without overlaps.

    >>> text_spans("see https://h.example/?token=abc and password=xyz")
    [(29, 32, -1), (46, 49, -1)]
    """
    if RELATIVE_URL.fullmatch(text):
        return url_spans(text)
    return _merged(_spans_in_text(text))


def url_spans(url: str) -> list[Span]:
    """Return the secret parts of one URL: every value of the query, and the whole fragment."""
    parts = map(without_quote, spans_of_url(url, 0))
    is_absolute = URL.fullmatch(url) is not None
    return _merged(chain(parts, _spans_in_text(url, is_url=is_absolute)))


def without_quote(part: tuple[int, int]) -> Span:
    """Return the span of a secret whose mask needs no quotes."""
    start, end = part
    return start, end, NO_QUOTE


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order; overlapping ones are joined, and empty ones left out."""
    # Method: sort the intervals by the start, and join each one that begins before the end of the last one.
    # For example, for 0-5, 12-14, 3-9 and 7-7 (the third index is left out here):
    #   sorted, without the empty one   0-5   3-9   12-14
    #   joined                          0-9         12-14
    merged: list[Span] = []
    last_end = 0
    for start, end, quote in sorted(spans):
        is_empty = start >= end
        if is_empty:
            continue
        if start >= last_end:
            merged.append((start, end, quote))
        else:
            first_start, _, first_quote = merged[-1]
            merged[-1] = (first_start, max(last_end, end), first_quote)

        last_end = max(last_end, end)

    return merged


def _spans_in_text(text: str, *, is_url: bool = False) -> Iterator[Span]:
    """Yield all secret parts of text; if it is one URL, without the parts that `spans_of_url` finds."""
    # For example, in "GET https://ann:s3cr3t@app.example/?id=17 Bearer k3J9x0Q2v7B1m5, password=hunter2":
    #   user info      ann:s3cr3t
    #   looks secret   k3J9x0Q2v7B1m5
    #   in a URL       17
    #   secret name    hunter2
    lowered = plain_letters(text).lower()
    yield from map(without_quote, user_info_spans(text))
    yield from map(without_quote, pattern_spans(text, lowered))

    if is_url:
        # the values of the query are masked anyway
        text, _, _ = text.partition("?")
        lowered = plain_letters(text).lower()
    else:
        yield from map(without_quote, spans_in_urls(text))

    if speaks_of_secrets(lowered):
        yield from named_spans(text, lowered)
