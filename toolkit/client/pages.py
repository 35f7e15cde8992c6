"""A page's envelope: the raw bytes of its rows, undecoded, and the cursor of the next page.

The envelope is found at the ends of a page, which is then handed on whole, or by the strict reader, without
building values. Where an application's bytes make that one refuse (lone surrogates, NaN), the lenient one
reads the same page and writes the rows again with every oddity kept as an escape, so that the tables decide
what to do with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from toolkit.client.dense import CUT, cut_vectors
from toolkit.client.members import elements, members
from toolkit.client.request import Answer, Request, not_as_specified


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


class _Listing(msgspec.Struct):
    messages: msgspec.Raw
    cursor: str | None = None


class _Runs(msgspec.Struct):
    runs: msgspec.Raw
    cursor: str | None = None


class _Range(msgspec.Struct):
    vectors: msgspec.Raw
    nextCursor: str | None = None  # noqa: N815 - the wire's name


class _RangeResult(msgspec.Struct):
    result: _Range


class _Result(msgspec.Struct):
    result: msgspec.Raw


_BEGINNING: Final = re.compile(rb'\s*\{\s*"messages"\s*:\s*\[')
_END: Final = re.compile(rb'\]\s*,\s*"cursor"\s*:\s*(?:null|"([ !#-\[\]-~]*)")\s*\}\s*\Z')
_EMPTY: Final = re.compile(rb'\s*(?:\{\s*"messages"\s*:\s*)?\[\s*\]')
_LONGEST_END: Final = 2000  # bytes that are searched for it

# made here, because the first look at a struct is not safe when several threads take it at once
_LISTING: Final = msgspec.json.Decoder(_Listing)
_RUNS: Final = msgspec.json.Decoder(_Runs)
_RANGE: Final = msgspec.json.Decoder(_RangeResult)
_RESULT: Final = msgspec.json.Decoder(_Result)
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def failures_page(request: Request, answer: Answer) -> Page:
    """The page of a DLQ listing.

    A response that begins with ``messages`` and ends with the end of an array and ``cursor`` is handed on
    whole, unread: whatever lies in between, if it is JSON then this is its cursor, and the decoder sees
    whether it is. A truncated response has no such end, except where it was cut right behind an array and a
    ``cursor`` inside an entry. Every other response is checked as a whole.
    """
    end = _END.search(answer.body, max(0, len(answer.body) - _LONGEST_END))
    if end is not None and _BEGINNING.match(answer.body):
        cursor = None if end[1] is None else end[1].decode()
        return Page(rows=answer.body, cursor=cursor or None, size=len(answer.body), tries=answer.tries)
    try:
        found = _LISTING.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(request, answer, lenient_object(request, answer), "messages", "cursor")
    return _page(request, answer, bytes(found.messages), found.cursor, "messages")


def runs_page(request: Request, answer: Answer) -> Page:
    """The page of a run log."""
    try:
        found = _RUNS.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(request, answer, lenient_object(request, answer), "runs", "cursor")
    return _page(request, answer, bytes(found.runs), found.cursor, "runs")


def range_page(request: Request, answer: Answer) -> Page:
    """The page of a range over vectors, its dense vectors cut out of the rows."""
    for body, cut in (cut_vectors(answer.body), (answer.body, ())):
        try:
            found = _RANGE.decode(body).result
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        rows = bytes(found.vectors)
        if rows.count(CUT) == len(cut):
            page = _page(request, answer, rows, found.nextCursor, "vectors")
            return replace(page, cut=cut)
    whole = lenient_object(request, answer).get("result")
    if not isinstance(whole, Mapping):
        not_as_specified(request, got=_shape(whole), expected="an object under 'result'")
    page = _lenient(request, answer, whole, "vectors", "nextCursor")
    outer, _ = members(answer.body.decode("utf-8", "surrogateescape"))
    inner, _ = members(outer["result"])
    return replace(page, rows=inner["vectors"].encode("utf-8", "surrogateescape"))


def entry_bytes(request: Request, answer: Answer) -> bytes:
    """A single JSON object, undecoded: an entry by its id."""
    try:
        fields = _OBJECT.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = lenient_object(request, answer)
    if not fields:
        not_as_specified(request, got="an object of no fields", expected="an entry")
    return answer.body


def result_bytes(request: Request, answer: Answer) -> bytes:
    """The JSON under ``result``, undecoded."""
    try:
        return bytes(_RESULT.decode(answer.body).result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = lenient_object(request, answer)
    if "result" not in whole:
        not_as_specified(request, got=f"an object of {_names(whole)}", expected="an object with 'result'")
    found, _ = members(answer.body.decode("utf-8", "surrogateescape"))
    return found["result"].encode("utf-8", "surrogateescape")


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


def lenient_object(request: Request, answer: Answer) -> dict[str, Any]:
    """The answer as a JSON object, odd text kept as surrogates and NaN kept as it is."""
    try:
        value = json.loads(answer.body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        start = answer.body[:60].decode("utf-8", "replace")
        not_as_specified(
            request, got=f"{len(answer.body):,} bytes that are not JSON, starting {start!r}", expected="JSON"
        )
    if not isinstance(value, dict):
        not_as_specified(request, got=_shape(value), expected="a JSON object")
    return value


def _page(request: Request, answer: Answer, rows: bytes, cursor: str | None, name: str) -> Page:
    if not rows.lstrip().startswith(b"["):
        not_as_specified(request, got=f"{name!r} of {rows[:40]!r}", expected=f"an array under {name!r}")
    return Page(rows=rows, cursor=cursor or None, size=len(answer.body), tries=answer.tries)


def _lenient(request: Request, answer: Answer, whole: Mapping[str, Any], rows: str, cursor: str) -> Page:
    if not isinstance(whole.get(rows), list):
        got = _shape(whole[rows]) if rows in whole else f"an object of {_names(whole)}"
        not_as_specified(request, got=got, expected=f"an array under {rows!r}")
    after = whole.get(cursor)
    if after is not None and not isinstance(after, str):
        not_as_specified(request, got=f"{cursor!r} of {_shape(after)}", expected="text or nothing")
    raw = json.dumps(whole[rows]).encode()
    return Page(rows=raw, cursor=after or None, size=len(answer.body), tries=answer.tries)


def _names(whole: Mapping[str, Any]) -> str:
    return ", ".join(repr(name)[:40] for name in list(whole)[:5]) or "no fields"


def _shape(value: Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
