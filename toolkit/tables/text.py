"""What all tables share: rows read leniently, and values as columns hold them.

Bytes that are not UTF-8 become lone surrogates when a page is read leniently. The functions here turn them
back into bytes where a table has a column for those, and into visible escapes where it has none.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.members import (
    MOST_DEPTH,
    RawJson,
    elements,
    integer_or_raw,
    is_deep,
    kind_of,
    members,
    read_json,
    shown,
)
from toolkit.errors import MalformedResponseError, ProtocolError
from toolkit.own_tokens import is_in, is_in_truncated, map_json
from toolkit.redaction import Redactor
from toolkit.secret_names import secret_items, secret_members
from toolkit.tables.schemas import TIME
from toolkit.times import http_date_ms

LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+")
INT64: Final = 1 << 63
_EPOCH: Final = pa.scalar(0, pa.timestamp("ms"))
_MONTHS: Final = pa.array(
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
)
_MONTH_NUMBERS: Final = pa.array([f"{number:02}" for number in range(1, 13)])
# The usual format; any other is parsed one by one.
_USUAL_DATE: Final = (
    r"\A[A-Z][a-z]{2}, [0-3][0-9] [A-Z][a-z]{2} [1-9][0-9]{3} [0-2][0-9]:[0-5][0-9]:[0-5][0-9] GMT\z"
)


def parse_rows(rows: bytes, *, what: str, exactly: bool = False) -> list[dict[str, Any]]:
    """The rows of a page, a JSON array, as plain objects.

    Integers of too many digits are `RawJson`, and so are values that are nested too deep where rows are read
    `exactly`, which takes several times as long. ProtocolError where there is no array of objects.
    """
    parsed = None
    if not exactly:
        with suppress(ValueError, RecursionError):
            try:
                parsed = msgspec.json.decode(rows)
            except (msgspec.DecodeError, UnicodeDecodeError):
                parsed = json.loads(rows.decode("utf-8", "surrogateescape"), parse_int=integer_or_raw)
    if not isinstance(parsed, list):
        parsed = _rows_exactly(rows, what=what)
    if not isinstance(parsed, list):
        raise ProtocolError(f"decoding {what}", got=kind_of(parsed), expected="a JSON array")
    for index, row in enumerate(parsed):
        if not isinstance(row, dict):
            got = f"{kind_of(row)} at {index}"
            raise ProtocolError(f"decoding {what}", got=got, expected="objects")
    return parsed


def _rows_exactly(rows: bytes, *, what: str) -> Any:
    """The rows, each member of a row read by itself."""
    text = rows.decode("utf-8", "surrogateescape")
    try:
        if not text.lstrip().startswith("["):
            return read_json(text)
        return [read_members(row) if row.startswith("{") else read_json(row) for row in elements(text)]
    except ValueError as error:
        raise no_json(rows, error, what) from None


def no_json(raw: bytes, error: Exception, what: str) -> MalformedResponseError:
    """The error for bytes that are not JSON."""
    return MalformedResponseError(
        f"decoding {what}",
        got=f"{len(raw):,} bytes that are not JSON ({str(error)[:80]})",
        expected="JSON",
        next_step="Call again. If it stays, the service, or something between, sends broken pages.",
    )


def read_members(text: str) -> dict[str, Any]:
    """The members of a JSON object, each read by itself, so that only one that is too deep is `RawJson`."""
    result, _ = members(text)
    return {name: read_json(value) for name, value in result.items()}


def lenient(raw: bytes, *, what: str) -> Any:
    """JSON as Python's own reader accepts it: NaN and Infinity, lone surrogates, bytes that are not UTF-8."""
    try:
        value = read_json(raw)
        return read_members(value.text) if isinstance(value, RawJson) and value.text[0] == "{" else value
    except (ValueError, RecursionError) as error:
        raise no_json(raw, error, what) from None


def json_value(text: str) -> Any:
    """The value of JSON text in a column; ValueError where it is none.

    Integers of more digits than Python reads, and members nested more than 100 levels deep, stay JSON text.

    >>> json_value('{"a": 1, "b": ' + "[" * 200 + "]" * 200 + "}")["b"][:3]
    '[[['
    """
    if not is_deep(text):
        return json.loads(text, parse_int=_integer)
    parsed = read_json(text)
    if not text.lstrip().startswith("{"):
        return parsed.text
    return {name: value if is_deep(value) else json_value(value) for name, value in members(text)[0].items()}


def _integer(text: str) -> int | str:
    value = integer_or_raw(text)
    return value if isinstance(value, int) else text


def required_id(row: Mapping[str, Any], name: str, *, what: str, index: int) -> str:
    """The id of a row; ProtocolError without one."""
    identity = row.get(name)
    if not isinstance(identity, str) or not identity:
        raise ProtocolError(
            f"decoding {what}",
            got=f"{name}={shown(identity)} in row {index} of a page",
            expected="text that is not empty",
            next_step="Nothing was kept of this page, and nothing of it is lost: call again.",
        )
    return clean(identity)


def is_clean(text: str) -> bool:
    """Whether text can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str) -> str:
    r"""Text that can be written as UTF-8: lone surrogates become visible escapes such as ``\\udc80``."""
    return text if is_clean(text) else text.encode("utf-8", "backslashreplace").decode()


def as_bytes(text: str) -> bytes:
    """The bytes of text with surrogates: those of a response that were not UTF-8, and lone surrogates."""
    return b"".join(
        character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass")
        for character in text
    )


def text_and_bytes(plain: Any, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """A body from its plain and its base64 field: text when it is UTF-8, else bytes; and whether both fit."""
    if not isinstance(plain, str | None) or not isinstance(encoded, str | None):
        return (plain if isinstance(plain, str) and is_clean(plain) else None), None, False
    if encoded and not plain:
        raw = base64_bytes(encoded)
        if raw is None:
            return None, None, False
        try:
            return raw.decode(), None, True
        except UnicodeDecodeError:
            return None, raw, True
    if plain is None:
        return (None if encoded is None else ""), None, True
    fits = not encoded
    return (plain, None, fits) if is_clean(plain) else (None, as_bytes(plain), fits)


def base64_bytes(encoded: str) -> bytes | None:
    """The decoded bytes; None when it is not base64. Missing padding is forgiven."""
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def is_cut_base64(encoded: Any) -> bool | None:
    """Whether base64 ends inside a group of four: the service truncates it."""
    return None if encoded is None else len(encoded) % 4 != 0


def base64_body(_: None, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """As `text_and_bytes` of a body that is always base64; what is truncated is decoded as far as it goes."""
    if not isinstance(encoded, str) or not is_cut_base64(encoded):
        return text_and_bytes(None, encoded)
    kept = encoded.rstrip("=")
    if not _BASE64.fullmatch(kept):  # not truncated, but no base64: kept as it is
        return None, None, False
    text, raw, fits = text_and_bytes(None, kept[:-1] if len(kept) % 4 == 1 else kept)
    if raw is not None:
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            if error.end == len(raw) and error.reason == "unexpected end of data":
                text, raw = raw[: error.start].decode(), None
    return text, raw, fits


def base64_column(raws: pa.Array, redactor: Redactor | None) -> pa.Array:
    """A column of bytes as `base64_text` makes it of each."""
    there = raws.drop_null().to_pylist()
    texts: list[str | None] = [base64.b64encode(raw).decode() for raw in there]
    # searched as one, as a token is in few of them
    whole, written = b"\n".join(there).decode("latin-1"), "\n".join(filter(None, texts))
    if redactor is not None and (is_in(whole) or is_in_truncated(written)):
        texts = [base64_text(raw, redactor) for raw in there]
    return pc.replace_with_mask(
        pa.nulls(len(raws), pa.string()), raws.is_valid(), pa.array(texts, pa.string())
    )


def base64_text(raw: bytes | None, redactor: Redactor | None) -> str | None:
    """Bytes as base64 text, our own live tokens in them masked."""
    if raw is None:
        return None
    if redactor is not None:
        raw = redactor.own(raw.decode("latin-1")).encode("latin-1")
    text = base64.b64encode(raw).decode()
    # a token that is base64 itself may be there without the bits of an incomplete byte
    if redactor is not None and is_in_truncated(text):
        return base64.b64encode(redactor.mask(text).encode()).decode()
    return text


def labels_json(labels: Sequence[str] | None, redactor: Redactor | None) -> str | None:
    """Labels as compact JSON, what looks like a secret masked; None when there are none.

    >>> labels_json(["eu", "beta"], None)
    '["eu","beta"]'
    """
    mask = redactor.text if redactor else str
    return msgspec.json.encode([mask(label) for label in labels]).decode() if labels else None


def whole_number(value: Any) -> int | None:
    """The value as a 64-bit integer; None when it is not such a number (a boolean is none)."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 1 << 53:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -INT64 <= value < INT64:
        return value
    return None


def unix_ms(value: Any) -> int | None:
    """Unix milliseconds as a timestamp column accepts them; None outside the years 1970 to 9999."""
    number = whole_number(value)
    return number if number is not None and 0 <= number <= LATEST else None


def http_dates(column: pa.Array) -> pa.Array:
    """A column of HTTP dates as times; null where one cannot be read, as by `http_date_ms`.

    >>> http_dates(pa.array(["Thu, 01 Jan 2026 00:00:00 GMT", "soon"])).cast(pa.int64()).to_pylist()
    [1767225600000, None]
    """
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    times = pa.nulls(len(distinct), TIME)
    usual = pc.match_substring_regex(distinct, _USUAL_DATE)
    if usual.true_count:
        times = pc.replace_with_mask(times, usual, _usual_dates(distinct.filter(usual)))
    missing = times.is_null()
    if missing.true_count:
        others = [unix_ms(http_date_ms(text)) for text in distinct.filter(missing).to_pylist()]
        times = pc.replace_with_mask(times, missing, pa.array(others, TIME))
    return times.take(encoded.indices)


def _usual_dates(dates: pa.Array) -> pa.Array:
    """Dates of the usual form as times, whatever day of the week they name; null where one is not a day."""
    day = pc.utf8_slice_codeunits(dates, 5, 7)
    month = _MONTH_NUMBERS.take(pc.index_in(pc.utf8_slice_codeunits(dates, 8, 11), _MONTHS))
    year, time = pc.utf8_slice_codeunits(dates, 12, 16), pc.utf8_slice_codeunits(dates, 17, 25)
    iso = pc.binary_join_element_wise(year, month, day, time, "-")
    times = pc.strptime(iso, format="%Y-%m-%d-%H:%M:%S", unit="ms", error_is_null=True)
    # 31 June was read as 1 July
    there = pc.and_(pc.equal(pc.day(times), day.cast(pa.int64())), pc.greater_equal(times, _EPOCH))
    return pc.if_else(there, times, None).cast(TIME)


def masked_json(fields: Mapping[str, Any], redactor: Redactor | None) -> str | None:
    """Fields that fit no column, as JSON text; None when there are none.

    Numbers keep all their digits; NaN and Infinity stay as Python's own reader accepts them. `RawJson` is
    written as text, so that every reader of JSON can read the whole. Secrets are masked in every text, and
    whole texts under secret names. `TooDeepError` beyond `MOST_DEPTH` levels of nesting.
    """
    if not fields:
        return None

    def masked(value: Any, secret: bool) -> Any:  # noqa: FBT001 - as `map_json` calls it
        value = value.text if isinstance(value, RawJson) else value
        return redactor.leaf(value, secret) if redactor else value

    name = redactor.text if redactor else str
    kept = map_json(
        fields, masked, name, hidden=secret_members, hidden_items=secret_items, levels=MOST_DEPTH + 1
    )
    return json.dumps(kept, ensure_ascii=True, separators=(",", ":"), sort_keys=True)


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


class JsonTuple(tuple[Any, ...]):
    """A tuple in a frame: as text, in CSV and SQLite, it is JSON."""

    __slots__ = ()
    __str__ = _json


class JsonDict(dict[str, Any]):
    """A dict in a frame, which pandas can hash and sort: as text, in CSV and SQLite, it is JSON."""

    __str__ = _json

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __lt__(self, other: dict[str, Any]) -> bool:
        return sorted(self.items()) < sorted(other.items())


sqlite3.register_adapter(JsonTuple, str)
sqlite3.register_adapter(JsonDict, str)
