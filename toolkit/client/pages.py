"""A page's envelope: the raw bytes of its rows, undecoded, and the cursor of the next page.

The strict reader finds the envelope without building values. Where an application's bytes make it refuse
(lone surrogates, NaN), the lenient one reads the same page and writes the rows again with every oddity kept
as an escape, so that the tables decide what to do with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from toolkit.client.transport import Answer, Request, not_as_specified


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a listing.

    Attributes
    ----------
    rows : bytes
        A JSON array, undecoded.
    cursor : str or None
        Of the next page; None at the end (absent, null and empty all are the end).
    size : int
        Bytes of the answer's body.
    tries : int
        How often the request was sent.
    """

    rows: bytes = field(repr=False)
    cursor: str | None
    size: int
    tries: int


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


def failures_page(request: Request, answer: Answer) -> Page:
    """The page of a DLQ listing."""
    try:
        found = msgspec.json.decode(answer.body, type=_Listing)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(request, answer, lenient_object(request, answer), "messages", "cursor")
    return _page(request, answer, bytes(found.messages), found.cursor, "messages")


def runs_page(request: Request, answer: Answer) -> Page:
    """The page of a run log."""
    try:
        found = msgspec.json.decode(answer.body, type=_Runs)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(request, answer, lenient_object(request, answer), "runs", "cursor")
    return _page(request, answer, bytes(found.runs), found.cursor, "runs")


def range_page(request: Request, answer: Answer) -> Page:
    """The page of a range over vectors."""
    try:
        found = msgspec.json.decode(answer.body, type=_RangeResult).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = lenient_object(request, answer).get("result")
        if not isinstance(whole, Mapping):
            not_as_specified(request, got=_shape(whole), expected="an object under 'result'")
        return _lenient(request, answer, whole, "vectors", "nextCursor")
    return _page(request, answer, bytes(found.vectors), found.nextCursor, "vectors")


def result_bytes(request: Request, answer: Answer) -> bytes:
    """The JSON under ``result``, undecoded."""
    try:
        return bytes(msgspec.json.decode(answer.body, type=_Result).result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = lenient_object(request, answer)
    if "result" not in whole:
        not_as_specified(request, got=f"an object of {_names(whole)}", expected="an object with 'result'")
    return json.dumps(whole["result"]).encode()


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
