"""Read bodies that are text, but not UTF-8: compressed, in UTF-16, or in a Western European encoding.

Frames and files keep the bytes as base64. Only what is derived from a body, such as the column `error` and
the id of the group, uses the text, which is masked like any other body. A body is decoded by what the bytes
show, because many services name no encoding, or a wrong one:

| bytes | text |
|---|---|
| begin as gzip or zlib | at most 400,000 bytes are decompressed, then as below |
| a byte order mark | UTF-16 or UTF-32 |
| UTF-8, except for a last character that was cut off | UTF-8 |
| every second byte is zero | UTF-16 |
| printable in Windows-1252, and mostly ASCII | Windows-1252, which has the letters of Latin-1 |

All other bytes, such as images, are no text.
"""

from __future__ import annotations

import base64
import codecs
import zlib
from typing import Final

from toolkit.signatures.headlines import LONGEST_READ

_MOST_BYTES: Final = 2 * LONGEST_READ
"""Bytes that are decompressed and decoded. A compressed body can be a thousand times as large."""
_MOST_BASE64: Final = 4 * _MOST_BYTES
"""Characters of base64 that are decoded, in groups of four."""
_ZERO: Final = "\x00"
_COMPRESSED: Final = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda")
"""How gzip, and zlib of three levels, begin."""
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE: Final = 2_000
"""Bytes in which zeros are counted."""
_LEAST: Final = 4
_LEAST_WESTERN: Final = 8
"""Characters of a text, and of a text in Windows-1252. A few arbitrary bytes are printable by chance."""
_MANY_ZEROS, _FEW_ZEROS = 0.6, 0.05
"""Shares of the bytes at even or odd places. Of text in UTF-16, those of ASCII letters are zero."""
_LEAST_ASCII: Final = 0.7
"""Share of characters in ASCII. Of arbitrary bytes without control characters, .43 are ASCII."""
_BLANKS: Final = dict.fromkeys(map(ord, "\t\n\v\f\r\x1b\xa0\u200b\u2028\u2029\ufeff"))
"""Characters of text that are not printable."""


def readable_body(body: str | None, encoded: str | None) -> str | None:
    """Return a body as text: the text, or the text of bytes that are not UTF-8; None if they are no text.

    >>> readable_body(None, "Y2Fm6SBjbG9zZWQ="), readable_body(None, "/w==")
    ('café closed', None)
    """
    if body:
        return _without_zeros(body)
    if not encoded:
        return body

    part = encoded[:_MOST_BASE64]
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
    except ValueError:  # no base64
        return body

    return _text_of(raw) or body


def _without_zeros(body: str) -> str:
    """Return the text of ASCII in UTF-16, which is also UTF-8, with a zero next to each letter."""
    if _ZERO not in body:
        return body

    raw = body[:_MOST_BYTES].encode("utf-8", "surrogatepass")
    return _of_two_bytes(raw) or body


def _text_of(raw: bytes) -> str | None:
    """Return bytes as text, or None if they are no text."""
    if raw.startswith(_COMPRESSED):
        try:
            raw = zlib.decompressobj(wbits=47).decompress(raw, _MOST_BYTES)
        except zlib.error:
            return None

    raw = raw[:_MOST_BYTES]
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return _if_printable(_decoded(raw, encoding))

    text = _decoded(raw, "utf-8")
    if text is not None and _ZERO not in text:
        return _if_printable(text)

    return _of_two_bytes(raw) or _western(raw)


def _decoded(raw: bytes, encoding: str) -> str | None:
    """Return decoded bytes without a last character that was cut off; None if other bytes are wrong."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        return decoder.decode(raw)
    except UnicodeDecodeError:
        return None


def _of_two_bytes(raw: bytes) -> str | None:
    """Return text in UTF-16 without a byte order mark."""
    sample = raw[:_SAMPLE]
    even, odd = sample[::2], sample[1::2]
    if _has_zeros(odd, even):
        return _if_printable(_decoded(raw, "utf-16-le"))
    if _has_zeros(even, odd):
        return _if_printable(_decoded(raw, "utf-16-be"))

    return None


def _has_zeros(high: bytes, low: bytes) -> bool:
    """Return whether the high bytes of characters are mostly zero, and the low ones are not."""
    return high.count(0) >= _MANY_ZEROS * max(1, len(high)) and low.count(
        0
    ) <= _FEW_ZEROS * len(low)


def _western(raw: bytes) -> str | None:
    """Return text in Windows-1252."""
    text = _if_printable(_decoded(raw, "cp1252"))
    if text is None or len(text) < _LEAST_WESTERN:
        return None

    ascii_count = len(text.encode("ascii", "ignore"))
    if ascii_count < _LEAST_ASCII * len(text):
        return None
    return text


def _if_printable(text: str | None) -> str | None:
    """Return text that has some printable characters, and none that are not; else None."""
    if text is None or len(text.strip()) < _LEAST:
        return None
    if not text.translate(_BLANKS).isprintable():
        return None

    return text
