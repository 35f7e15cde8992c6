"""A page's envelope: the raw bytes of its rows, undecoded, and the cursor of the next page.

The envelope is found at the ends of a page, which is then handed on whole, or by taking the page apart. Rows
are handed on as the bytes that came, whatever an application put into them: the tables decide what to do
with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from toolkit.client.dense import CUT, cut_vectors
from toolkit.client.members import elements, members, read
from toolkit.client.request import Answer, Request, not_as_specified
from toolkit.client.shapes import MOST_CURSOR, SHORTEST, envelope, kind_of, names, not_json
from toolkit.errors import MalformedResponseError


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a listing.

    Attributes
    ----------
    rows : bytes
        A JSON array, undecoded; of a DLQ listing mostly the whole answer, with the array under ``messages``.
    cursor : str or None
        Of the next page; None at the end (absent, null and empty all are the end).
    size : int
        Bytes of the answer's body.
    tries : int
        How often the request was sent.
    cut : tuple of memoryview
        Of a range: the JSON of the dense vectors that were cut out of `rows`.
    """

    rows: bytes = field(repr=False)
    cursor: str | None
    size: int
    tries: int
    cut: tuple[memoryview, ...] = field(default=(), repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether a page of a listing has no rows."""
        return _EMPTY.match(self.rows) is not None


class _Range(msgspec.Struct):
    vectors: msgspec.Raw
    nextCursor: str | None = None  # noqa: N815 - the wire's name


class _RangeResult(msgspec.Struct):
    result: _Range


_BEGINNING: Final = re.compile(rb'\s*\{\s*"messages"\s*:\s*\[')
_END: Final = re.compile(rb'\]\s*,\s*"cursor"\s*:\s*(?:null|"([ !#-\[\]-~]*)")\s*\}\s*\Z')
_EMPTY: Final = re.compile(rb'\s*(?:\{\s*"messages"\s*:\s*)?\[\s*\]')
_LONGEST_END: Final = 2000  # bytes that are searched for it

_RANGE_ALONE: Final = len('{"result":{"nextCursor":"","vectors":}}')

# made here, because the first look at a struct is not safe when several threads take it at once
_RANGE: Final = msgspec.json.Decoder(_RangeResult)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def failures_page(request: Request, answer: Answer) -> Page:
    """The page of a DLQ listing.

    A response that begins with ``messages`` and ends with the end of an array and ``cursor`` is handed on
    whole, unread: whatever lies in between, if it is one array then this is its cursor, and the decoder sees
    whether it is (`listed`). A truncated response has no such end, except where it was cut right behind an
    array and a ``cursor`` inside an entry. Every other response is checked as a whole.
    """
    end = _END.search(answer.body, max(0, len(answer.body) - _LONGEST_END))
    if end is not None and _BEGINNING.match(answer.body):
        cursor = None if end[1] is None else end[1].decode()
        return Page(rows=answer.body, cursor=cursor or None, size=len(answer.body), tries=answer.tries)
    return _checked(request, answer, envelope(request, answer.body), "messages", "cursor")


def listed(rows: bytes) -> bytes | memoryview:
    """The array of a DLQ page that was handed on whole; of other rows, the rows.

    Whatever is read of such a page is read from this: an array that is not the only one of its name would be
    more than one value, which no reader takes.
    """
    begin = _BEGINNING.match(rows)
    end = _END.search(rows, max(0, len(rows) - _LONGEST_END)) if begin else None
    return memoryview(rows)[begin.end() - 1 : end.start() + 1] if begin and end else rows


def runs_page(request: Request, answer: Answer) -> Page:
    """The page of a run log."""
    return _checked(request, answer, envelope(request, answer.body), "runs", "cursor")


def range_page(request: Request, answer: Answer) -> Page:
    """The page of a range over vectors, its dense vectors cut out of the rows."""
    body, cut = cut_vectors(answer.body)
    if cut:
        try:
            page = _range(request, answer, body)
        except MalformedResponseError:
            pass  # cut in the wrong place, or really malformed: the whole tells
        else:
            if page.rows.count(CUT) == len(cut):
                return replace(page, cut=cut)
    return _range(request, answer, answer.body)


def _range(request: Request, answer: Answer, body: bytes) -> Page:
    try:
        found = _RANGE.decode(body).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        cursor, rows = found.nextCursor, bytes(found.vectors)
        # as in `envelope`: what else there is, is too short to hold a name a second time
        if cursor is not None and len(body) - len(rows) - len(cursor.encode()) < _RANGE_ALONE + SHORTEST:
            return _page(request, answer, {"vectors": rows}, "vectors", cursor)
    whole = envelope(request, body)
    if "result" not in whole:
        not_as_specified(request, got=f"an object of {names(whole)}", expected="an object under 'result'")
    return _checked(request, answer, envelope(request, whole["result"]), "vectors", "nextCursor")


def entry_bytes(request: Request, answer: Answer) -> bytes:
    """A single JSON object, undecoded: an entry by its id."""
    try:
        fields, _ = members(answer.body.decode("utf-8", "surrogateescape"))
    except ValueError:
        not_json(request, answer.body, expected="an entry")
    if not fields:
        not_as_specified(request, got="an object of no fields", expected="an entry")
    return answer.body


def result_bytes(request: Request, answer: Answer) -> bytes:
    """The JSON under ``result``, undecoded."""
    whole = envelope(request, answer.body)
    if "result" not in whole:
        not_as_specified(request, got=f"an object of {names(whole)}", expected="an object with 'result'")
    return whole["result"]


def result_arrays(request: Request, answer: Answer, count: int | None = None) -> list[bytes]:
    """The JSON arrays under ``result``, undecoded: `count` of them in an array, or a single one."""
    raw = result_bytes(request, answer)
    try:
        found = [raw] if count is None else list(map(bytes, _ARRAY.decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            found = [
                text.encode("utf-8", "surrogateescape")
                for text in elements(raw.decode("utf-8", "surrogateescape"))
            ]
        except ValueError:
            not_as_specified(request, got=f"{raw[:40]!r} under 'result'", expected="an array of arrays")
    if len(found) != (count or 1) or not all(each.lstrip().startswith(b"[") for each in found):
        expected = "an array" if count is None else f"an array of {count} arrays"
        not_as_specified(request, got=f"{raw[:40]!r} under 'result'", expected=expected)
    return found


def _checked(request: Request, answer: Answer, whole: Mapping[str, bytes], rows: str, cursor: str) -> Page:
    try:
        after = read(whole.get(cursor, b"null"))
    except ValueError:
        not_as_specified(request, got=f"{cursor!r} of something that is not JSON", expected="text or nothing")
    if not isinstance(after, str | None):
        not_as_specified(request, got=f"{cursor!r} of {kind_of(after)}", expected="text or nothing")
    if after and not _is_utf8(after):
        not_as_specified(request, got=f"{cursor!r} of bytes that are not UTF-8", expected="text")
    return _page(request, answer, whole, rows, after)


def _page(
    request: Request, answer: Answer, whole: Mapping[str, bytes], rows: str, cursor: str | None
) -> Page:
    found = whole.get(rows)
    if found is None or not found.startswith(b"["):
        got = f"an object of {names(whole)}" if found is None else f"{rows!r} of {found[:40]!r}"
        not_as_specified(request, got=got, expected=f"an array under {rows!r}")
    if cursor and len(cursor) > MOST_CURSOR:
        expected = f"at most {MOST_CURSOR:,}"
        not_as_specified(request, got=f"a cursor of {len(cursor):,} characters", expected=expected)
    return Page(rows=found, cursor=cursor or None, size=len(answer.body), tries=answer.tries)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
