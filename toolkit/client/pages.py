"""A page's envelope: the raw bytes of its rows, undecoded, and the cursor of the next page.

Rows are passed on as the bytes that came: the tables decode them. Nearly all bytes of a range are the numbers
of dense vectors, so those are cut out first, by searching for the end of each array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import msgspec

from toolkit.client.members import elements, kind_of, members, read_json
from toolkit.client.responses import (
    MOST_CURSOR,
    SHORTEST,
    Request,
    Response,
    envelope,
    names,
    not_json,
    raise_malformed,
)
from toolkit.errors import MalformedResponseError


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a listing: `rows` is a JSON array, undecoded."""

    rows: bytes = field(repr=False)
    cursor: str | None  # of the next page; None at the end (absent, null and empty all are the end)
    size: int  # bytes of the response's body
    tries: int
    cut: tuple[memoryview, ...] = field(default=(), repr=False)  # JSON of dense vectors cut out of `rows`
    numbers: Any = field(default=None, repr=False)  # of those vectors, where they have been read

    @property
    def is_empty(self) -> bool:
        """Whether a page of a listing has no rows."""
        return _EMPTY.match(self.rows) is not None


class _Range(msgspec.Struct):
    vectors: msgspec.Raw
    nextCursor: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the wire's name


class _RangeResult(msgspec.Struct):
    result: _Range


_EMPTY: Final = re.compile(rb"\s*\[\s*\]")

CUT: Final = '"\u2702 dense vector"'.encode()
"""The JSON that replaces a dense vector's numbers."""
_NAME: Final = re.compile(rb'"vector"\s*:\s*\[')
_HEAD: Final = re.compile(rb'\s*\{\s*"result"\s*:\s*\{\s*"nextCursor"\s*:\s*("(?:[^"\\]|\\.)*")')
_LONGEST_HEAD: Final = 1 << 16
_RANGE_ALONE: Final = len('{"result":{"nextCursor":,"vectors":}}')

# made here, as the first use of a struct by several threads at once is not safe
_RANGE: Final = msgspec.json.Decoder(_RangeResult)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def failures_page(request: Request, response: Response) -> Page:
    """The page of a DLQ listing."""
    return _page(request, response, envelope(request, response.body), "messages", "cursor")


def runs_page(request: Request, response: Response) -> Page:
    """The page of a run log."""
    return _page(request, response, envelope(request, response.body), "runs", "cursor")


def events_page(request: Request, response: Response) -> Page:
    """The page of the event log of messages, whose rows are ``events`` or, in the documents, ``logs``."""
    whole = envelope(request, response.body)
    return _page(request, response, whole, "logs" if "logs" in whole else "events", "cursor")


def range_page(request: Request, response: Response) -> Page:
    """The page of a range over vectors, its dense vectors cut out of the rows."""
    body, cut = cut_vectors(response.body)
    if cut:
        try:
            page = _range(request, response, body)
        except MalformedResponseError:
            pass  # cut at the wrong index, or malformed: the complete body shows which
        else:
            if page.rows.count(CUT) == len(cut):
                return replace(page, cut=cut)
    return _range(request, response, response.body)


def _range(request: Request, response: Response, body: bytes) -> Page:
    try:
        result = _RANGE.decode(body).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        cursor, rows = bytes(result.nextCursor), bytes(result.vectors)
        # as in `envelope`: the rest is too short to hold a name a second time
        if cursor and len(body) - len(rows) - len(cursor) < _RANGE_ALONE + SHORTEST:
            whole = {"vectors": rows, "nextCursor": cursor}
            return _page(request, response, whole, "vectors", "nextCursor")
    whole = envelope(request, body)
    if "result" not in whole:
        raise_malformed(request, got=f"an object of {names(whole)}", expected="an object under 'result'")
    return _page(request, response, envelope(request, whole["result"]), "vectors", "nextCursor")


def entry_bytes(request: Request, response: Response) -> bytes:
    """A single JSON object, undecoded: an entry by its id."""
    try:
        fields, _ = members(response.body.decode("utf-8", "surrogateescape"))
    except ValueError:
        not_json(request, response.body, expected="an entry")
    if not fields:
        raise_malformed(request, got="an object of no fields", expected="an entry")
    return response.body


def result_bytes(request: Request, response: Response) -> bytes:
    """The JSON under ``result``, undecoded."""
    whole = envelope(request, response.body)
    if "result" not in whole:
        raise_malformed(request, got=f"an object of {names(whole)}", expected="an object with 'result'")
    return whole["result"]


def result_arrays(request: Request, response: Response, count: int | None = None) -> list[bytes]:
    """The JSON arrays under ``result``, undecoded: `count` of them in an array, or a single one."""
    raw = result_bytes(request, response)
    try:
        result = [raw] if count is None else list(map(bytes, _ARRAY.decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            result = [
                text.encode("utf-8", "surrogateescape")
                for text in elements(raw.decode("utf-8", "surrogateescape"))
            ]
        except ValueError:
            raise_malformed(request, got=f"{raw[:40]!r} under 'result'", expected="an array of arrays")
    if len(result) != (count or 1) or not all(each.lstrip().startswith(b"[") for each in result):
        expected = "an array" if count is None else f"an array of {count} arrays"
        raise_malformed(request, got=f"{raw[:40]!r} under 'result'", expected=expected)
    return result


def _page(request: Request, response: Response, whole: Mapping[str, bytes], rows: str, cursor: str) -> Page:
    try:
        after = read_json(whole.get(cursor, b"null"))
    except ValueError:
        raise_malformed(request, got=f"{cursor!r} of something that is not JSON", expected="text or nothing")
    if not isinstance(after, str | None):
        raise_malformed(request, got=f"{cursor!r} of {kind_of(after)}", expected="text or nothing")
    if after and any("\ud800" <= letter <= "\udfff" for letter in after):
        raise_malformed(request, got=f"{cursor!r} of bytes that are not UTF-8", expected="text")
    array = whole.get(rows)
    if array is None or not array.startswith(b"["):
        got = f"an object of {names(whole)}" if array is None else f"{rows!r} of {array[:40]!r}"
        raise_malformed(request, got=got, expected=f"an array under {rows!r}")
    if after and len(after) > MOST_CURSOR:
        expected = f"at most {MOST_CURSOR:,}"
        raise_malformed(request, got=f"a cursor of {len(after):,} characters", expected=expected)
    return Page(rows=array, cursor=after or None, size=len(response.body), tries=response.tries)


def cut_vectors(body: bytes) -> tuple[bytes, tuple[memoryview, ...]]:
    """The JSON with each dense vector replaced by `CUT`, and views of the vectors' JSON in order.

    All arrays under the name "vector" are cut out, each up to its first closing bracket. That is right where
    what was cut out is an array of numbers and the rest is JSON: users of the parts check both, and join them
    with `uncut` where they are not. Nothing is cut out of a body that contains `CUT` already.

    >>> rest, vectors = cut_vectors(b'[{"id": "a", "vector": [1, 2]}, {"id": "b"}]')
    >>> [vector.tobytes() for vector in vectors]
    [b'[1, 2]']
    >>> uncut(rest, vectors)
    b'[{"id": "a", "vector": [1, 2]}, {"id": "b"}]'
    """
    match = _NAME.search(body)
    if match is None:
        return body, ()
    # a service spells all its rows alike; another spelling is not cut out, and costs only time
    name = match.group()
    size, find = len(name) - 1, body.find
    rest, vectors, done = [], [], 0
    view = memoryview(body)
    start = match.start()
    while start >= 0:
        begin = start + size
        end = find(b"]", begin) + 1
        if not end:
            break
        rest.append(body[done:begin])
        vectors.append(view[begin:end])
        done = end
        start = find(name, end)
    rest.append(body[done:])
    whole = CUT.join(rest)
    return (whole, tuple(vectors)) if whole.count(CUT) == len(vectors) else (body, ())


def uncut(rest: bytes, vectors: tuple[memoryview, ...]) -> bytes:
    """The original JSON, from the parts that `cut_vectors` made of it."""
    if not vectors:
        return rest
    parts = rest.split(CUT)
    pairs: Iterator[tuple[bytes, bytes | memoryview]] = zip(parts, (*vectors, b""), strict=True)
    return b"".join(chain.from_iterable(pairs))


def head_cursor(body: bytes | bytearray) -> str | None:
    """The next cursor at the head of a range's response, of which only the beginning may have arrived.

    None when it has not arrived, is the end, or is too long for a cursor.

    >>> head_cursor(b'{"result": {"nextCursor": "7", "vectors": [{"id"')
    '7'
    """
    match = _HEAD.match(bytes(body[:_LONGEST_HEAD]))
    try:
        cursor = None if match is None else msgspec.json.decode(match.group(1), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return cursor if cursor and len(cursor) <= MOST_CURSOR else None
