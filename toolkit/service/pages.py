"""Read the envelope of a page: the raw bytes of the rows, undecoded, and the cursor of the next page.

The rows stay the bytes of the response; the tables decode them. Nearly all bytes of a range are numbers of
dense vectors, so these are cut out first, by searching for the end of each array.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from toolkit.base.cut_vectors import CUT, cut_vectors
from toolkit.base.errors import MalformedResponseError
from toolkit.base.members import elements, kind_of, members, read_json
from toolkit.base.times import http_date_ms
from toolkit.service.responses import (
    MOST_CURSOR,
    SHORTEST,
    Request,
    Response,
    envelope,
    names,
    not_json,
    raise_malformed,
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a listing. `rows` is a JSON array, undecoded."""

    rows: bytes = field(repr=False)
    # cursor of the next page; None at the end (absent, null or empty)
    cursor: str | None
    size: int  # bytes of the body
    tries: int
    # Date of the response in Unix milliseconds, by the clock of the service
    sent_at: int | None = None
    # JSON of dense vectors cut out of `rows`
    cut: tuple[memoryview, ...] = field(default=(), repr=False)
    # numbers of these vectors if they have been read
    numbers: Any = field(default=None, repr=False)

    @property
    def is_empty(self) -> bool:
        """Return True if the page has no rows."""
        return _EMPTY.match(self.rows) is not None


class _Range(msgspec.Struct):
    vectors: msgspec.Raw
    nextCursor: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the wire's name


class _RangeResult(msgspec.Struct):
    result: _Range


_EMPTY: Final = re.compile(rb"\s*\[\s*\]")

_HEAD: Final = re.compile(
    rb'\s*\{\s*"result"\s*:\s*\{\s*"nextCursor"\s*:\s*("(?:[^"\\]|\\.)*")'
)
_LONGEST_HEAD: Final = 1 << 16
_RANGE_ALONE: Final = len('{"result":{"nextCursor":,"vectors":}}')

# Made at import, because the first access to a struct is not thread-safe.
_RANGE: Final = msgspec.json.Decoder(_RangeResult)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def failures_page(request: Request, response: Response) -> Page:
    """Return the page of a DLQ listing."""
    return _page(
        request, response, envelope(request, response.body), "messages", "cursor"
    )


def runs_page(request: Request, response: Response) -> Page:
    """Return the page of a run log."""
    return _page(request, response, envelope(request, response.body), "runs", "cursor")


def events_page(request: Request, response: Response) -> Page:
    """Return the page of an event log. The rows are ``events`` or, in the documentation, ``logs``."""
    fields = envelope(request, response.body)
    rows = "events"
    if "logs" in fields:
        rows = "logs"
    return _page(request, response, fields, rows, "cursor")


def range_page(request: Request, response: Response) -> Page:
    """Return the page of a range of vectors, with the dense vectors cut out of the rows."""
    body, cut = cut_vectors(response.body)
    if not cut:
        return _range(request, response, response.body)

    try:
        page = _range(request, response, body)
    except MalformedResponseError:
        # The cut was wrong or the response is malformed: the complete body shows which.
        return _range(request, response, response.body)

    # If the counts differ, a string of the data equals the placeholder, and nothing shows which vector
    # belongs where.
    if page.rows.count(CUT) != len(cut):
        return _range(request, response, response.body)

    return replace(page, cut=cut)


def _range(request: Request, response: Response, body: bytes) -> Page:
    try:
        result = _RANGE.decode(body).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _exact_range(request, response, body)

    cursor, rows = bytes(result.nextCursor), bytes(result.vectors)
    # As in `envelope`: the other bytes are too few to contain a member a second time.
    if not cursor or len(body) - len(rows) - len(cursor) >= _RANGE_ALONE + SHORTEST:
        return _exact_range(request, response, body)

    fields = {"vectors": rows, "nextCursor": cursor}
    return _page(request, response, fields, "vectors", "nextCursor")


def _exact_range(request: Request, response: Response, body: bytes) -> Page:
    """Return the page of a range after checking all members for repeated names."""
    result = envelope(request, _result_member(request, body))
    return _page(request, response, result, "vectors", "nextCursor")


def _result_member(request: Request, body: bytes) -> bytes:
    fields = envelope(request, body)
    if "result" not in fields:
        raise_malformed(
            request,
            got=f"an object of {names(fields)}",
            expected="an object with 'result'",
        )

    return fields["result"]


def entry_bytes(request: Request, response: Response) -> bytes:
    """Return a single JSON object, undecoded: an entry by id."""
    try:
        fields, _ = members(response.body.decode("utf-8", "surrogateescape"))
    except ValueError:
        not_json(request, response.body, expected="an entry")

    if not fields:
        raise_malformed(request, got="an object of no fields", expected="an entry")
    return response.body


def result_bytes(request: Request, response: Response) -> bytes:
    """Return the JSON under ``result``, undecoded."""
    return _result_member(request, response.body)


def result_arrays(
    request: Request, response: Response, count: int | None = None
) -> list[bytes]:
    """Return the JSON arrays under ``result``, undecoded: an array of `count` arrays, or a single array."""
    raw = result_bytes(request, response)
    arrays = [raw]

    expected = "an array"
    if count is not None:
        arrays = []
        expected = f"an array of {count} arrays"
        with suppress(ValueError):
            arrays = _elements(raw)

    if len(arrays) != (count or 1) or not all(map(_is_array, arrays)):
        raise_malformed(request, got=f"{raw[:40]!r} under 'result'", expected=expected)
    return arrays


def _is_array(raw: bytes) -> bool:
    return raw.lstrip().startswith(b"[")


def _elements(raw: bytes) -> list[bytes]:
    """Return the JSON of each element of an array. Raise ValueError if it is not an array."""
    try:
        return list(map(bytes, _ARRAY.decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # slower, but also reads bytes that are not UTF-8 and values nested very deeply
        texts = elements(raw.decode("utf-8", "surrogateescape"))
        return [text.encode("utf-8", "surrogateescape") for text in texts]


def _page(
    request: Request,
    response: Response,
    fields: Mapping[str, bytes],
    rows: str,
    cursor: str,
) -> Page:
    """Return a page from the members of an envelope. `rows` and `cursor` are the names of the members."""
    following = _cursor(request, fields, cursor)
    array = fields.get(rows)
    if array is None:
        raise_malformed(
            request,
            got=f"an object of {names(fields)}",
            expected=f"an array under {rows!r}",
        )

    if not array.startswith(b"["):
        raise_malformed(
            request,
            got=f"{rows!r} of {array[:40]!r}",
            expected=f"an array under {rows!r}",
        )

    return Page(
        rows=array,
        cursor=following,
        size=len(response.body),
        tries=response.tries,
        sent_at=http_date_ms(response.headers.get("Date", "")),
    )


def _cursor(request: Request, fields: Mapping[str, bytes], name: str) -> str | None:
    """Return the cursor of the next page, or None at the end."""
    try:
        cursor = read_json(fields.get(name, b"null"))
    except ValueError:
        raise_malformed(
            request,
            got=f"{name!r} of text that is not JSON",
            expected="a string or null",
        )

    if not isinstance(cursor, str | None):
        raise_malformed(
            request, got=f"{name!r} of {kind_of(cursor)}", expected="a string or null"
        )

    if not cursor:
        return None

    # a lone surrogate cannot be sent back in the next request
    if any("\ud800" <= letter <= "\udfff" for letter in cursor):
        raise_malformed(
            request, got=f"{name!r} of bytes that are not UTF-8", expected="a string"
        )

    if len(cursor) > MOST_CURSOR:
        length = f"a cursor of {len(cursor):,} characters"
        raise_malformed(
            request,
            got=length,
            expected=f"a cursor of at most {MOST_CURSOR:,} characters",
        )

    return cursor


def head_cursor(body: bytes | bytearray) -> str | None:
    """Return the next cursor from the start of the response of a range, before the rest has arrived.

    Return None if the cursor has not arrived, if it is the end, or if it is too long.

    >>> head_cursor(b'{"result": {"nextCursor": "7", "vectors": [{"id"')
    '7'
    """
    match = _HEAD.match(bytes(body[:_LONGEST_HEAD]))
    if match is None:
        return None

    try:
        cursor = msgspec.json.decode(match.group(1), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None

    if len(cursor) > MOST_CURSOR:
        return None

    # an empty cursor is the end
    return cursor or None
