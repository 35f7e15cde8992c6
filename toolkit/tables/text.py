"""Read rows leniently, and convert values to the form that columns contain.

In a page that is read leniently, bytes that are not UTF-8 become lone surrogates. The functions here turn
them back into bytes if the table has a column for bytes, and otherwise into visible escapes.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.errors import MalformedResponseError, ProtocolError
from toolkit.base.members import (
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
from toolkit.base.own_tokens import is_in, is_in_truncated, map_json
from toolkit.base.times import http_date_ms
from toolkit.secrets.names import secret_items, secret_members
from toolkit.secrets.redaction import Redactor
from toolkit.tables.schemas import TIME

LATEST: Final = 253_402_300_799_999
"""Last millisecond of the year 9999."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+")
INT64: Final = 1 << 63
_EPOCH: Final = pa.scalar(0, pa.timestamp("ms"))
_MONTHS: Final = pa.array(
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
)
_MONTH_NUMBERS: Final = pa.array([f"{number:02}" for number in range(1, 13)])
# The usual format of HTTP dates. Other formats are parsed one by one.
_USUAL_DATE: Final = (
    r"\A[A-Z][a-z]{2}, [0-3][0-9] [A-Z][a-z]{2} [1-9][0-9]{3}"
    r" [0-2][0-9]:[0-5][0-9]:[0-5][0-9] GMT\z"
)


def parse_rows(
    rows: bytes, *, what: str, exactly: bool = False
) -> list[dict[str, Any]]:
    """Return the rows of a page, which is a JSON array, as plain objects.

    Integers with too many digits become `RawJson`. If rows are read `exactly`, values that are nested too
    deep also become `RawJson`; this takes several times as long. Raise ProtocolError if it is not an array of
    objects.
    """
    parsed = None
    if not exactly:
        with suppress(ValueError, RecursionError):
            parsed = _rows_quickly(rows)
    if not isinstance(parsed, list):
        parsed = _rows_exactly(rows, what=what)
    if not isinstance(parsed, list):
        raise ProtocolError(
            f"decoding {what}", got=kind_of(parsed), expected="a JSON array"
        )
    for index, row in enumerate(parsed):
        if not isinstance(row, dict):
            got = f"{kind_of(row)} at {index}"
            raise ProtocolError(f"decoding {what}", got=got, expected="objects")
    return parsed


def _rows_quickly(rows: bytes) -> Any:
    """Return the value of a page, read by msgspec or, if that fails, by the standard library."""
    try:
        return msgspec.json.decode(rows)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(
            rows.decode("utf-8", "surrogateescape"), parse_int=integer_or_raw
        )


def _rows_exactly(rows: bytes, *, what: str) -> Any:
    """Return the rows, with each member of a row read separately."""
    text = rows.decode("utf-8", "surrogateescape")
    try:
        if not text.lstrip().startswith("["):
            return read_json(text)
        return list(map(_read_row, elements(text)))
    except ValueError as error:
        raise no_json(rows, error, what) from None


def _read_row(text: str) -> Any:
    """Return a row with each member read separately, so that only a member can be too deep."""
    if text.startswith("{"):
        return read_members(text)
    return read_json(text)


def no_json(raw: bytes, error: Exception, what: str) -> MalformedResponseError:
    """Return the error for bytes that are not JSON."""
    return MalformedResponseError(
        f"decoding {what}",
        got=f"{len(raw):,} bytes that are not JSON ({str(error)[:80]})",
        expected="JSON",
        next_step="Call again. If the error stays, the service or a proxy sends broken pages.",
    )


def read_members(text: str) -> dict[str, Any]:
    """Return the members of a JSON object, each read separately.

    Only a member that is too deep becomes `RawJson`.
    """
    result, _ = members(text)
    return {name: read_json(value) for name, value in result.items()}


def lenient(raw: bytes, *, what: str) -> Any:
    """Return JSON as the standard library accepts it, for example with NaN or invalid UTF-8."""
    try:
        value = read_json(raw)
        if isinstance(value, RawJson) and value.text[0] == "{":
            return read_members(value.text)
    except (ValueError, RecursionError) as error:
        raise no_json(raw, error, what) from None
    return value


def json_value(text: str) -> Any:
    """Return the value of JSON text in a column. Raise ValueError if it is not JSON.

    Integers of more digits than Python reads, and members nested more than 100 levels deep, stay JSON text.

    >>> json_value('{"a": 1, "b": ' + "[" * 200 + "]" * 200 + "}")["b"][:3]
    '[[['
    """
    if not is_deep(text):
        return json.loads(text, parse_int=_integer)
    parsed = read_json(text)
    if not text.lstrip().startswith("{"):
        return parsed.text
    # only the deep members stay text
    member_texts, _ = members(text)
    return {name: _shallow_value(value) for name, value in member_texts.items()}


def _shallow_value(text: str) -> Any:
    """Return the value of JSON text, or the text if it is nested too deep."""
    if is_deep(text):
        return text
    return json_value(text)


def _integer(text: str) -> int | str:
    value = integer_or_raw(text)
    if isinstance(value, int):
        return value
    return text


def required_id(row: Mapping[str, Any], name: str, *, what: str, index: int) -> str:
    """Return the id of a row. Raise ProtocolError if there is no id."""
    identity = row.get(name)
    if not isinstance(identity, str) or not identity:
        raise ProtocolError(
            f"decoding {what}",
            got=f"{name}={shown(identity)} in row {index} of a page",
            expected="a string of at least one character",
            next_step="Call again. No row of this page was kept, and no row is lost.",
        )
    return clean(identity)


def is_clean(text: str) -> bool:
    """Return True if text can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str) -> str:
    r"""Return text that can be written as UTF-8.

    Lone surrogates become visible escapes, for example ``\\udc80``.
    """
    if is_clean(text):
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def as_bytes(text: str) -> bytes:
    """Return the bytes of text with surrogates: escaped bytes of a response, or lone surrogates."""
    return b"".join(map(_character_bytes, text))


def _character_bytes(character: str) -> bytes:
    # `surrogateescape` made these characters from single bytes that were not UTF-8
    if "\udc80" <= character <= "\udcff":
        return character.encode("utf-8", "surrogateescape")
    return character.encode("utf-8", "surrogatepass")


def text_and_bytes(plain: Any, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """Read a body from a plain field and a base64 field.

    Return it as text if it is UTF-8, else as bytes, and True if both fields had a usable value.
    """
    if not isinstance(plain, str | None) or not isinstance(encoded, str | None):
        return _usable_text(plain), None, False
    # the service fills one of the two fields: plain for UTF-8, base64 for all other bytes
    if encoded and not plain:
        return _decoded_body(encoded)
    if plain is None:
        # an empty base64 field is an empty body, and a missing one is no body
        return encoded, None, True
    has_one_value = not encoded
    if is_clean(plain):
        return plain, None, has_one_value
    return None, as_bytes(plain), has_one_value


def _usable_text(value: Any) -> str | None:
    if isinstance(value, str) and is_clean(value):
        return value
    return None


def _decoded_body(encoded: str) -> tuple[str | None, bytes | None, bool]:
    raw = base64_bytes(encoded)
    if raw is None:
        return None, None, False
    try:
        return raw.decode(), None, True
    except UnicodeDecodeError:
        return None, raw, True


def base64_bytes(encoded: str) -> bytes | None:
    """Return the decoded bytes, or None if it is not base64. Padding may be missing."""
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def is_cut_base64(encoded: Any) -> bool | None:
    """Return True if base64 ends within a group of four characters, because the service truncated it."""
    if encoded is None:
        return None
    return len(encoded) % 4 != 0


def base64_body(_: None, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """Read a body that is always base64, as `text_and_bytes` does.

    A truncated body is decoded up to the end.
    """
    if not isinstance(encoded, str) or not is_cut_base64(encoded):
        return text_and_bytes(None, encoded)
    digits = encoded.rstrip("=")
    if not _BASE64.fullmatch(digits):  # not truncated base64, but other text
        return None, None, False
    # a single digit of a group is less than one byte
    complete = digits
    if len(digits) % 4 == 1:
        complete = digits[:-1]
    text, raw, fits = text_and_bytes(None, complete)
    if raw is None:
        return text, None, fits
    cut_text = _without_cut_character(raw)
    if cut_text is None:
        return text, raw, fits
    return cut_text, None, fits


def _without_cut_character(raw: bytes) -> str | None:
    """Return bytes as text if only the last character is incomplete UTF-8, else None."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if error.end != len(raw) or error.reason != "unexpected end of data":
            return None
        return raw[: error.start].decode()


def base64_column(raws: pa.Array, redactor: Redactor | None) -> pa.Array:
    """Return a column of bytes as base64, as `base64_text` does for one value."""
    bodies = raws.drop_null().to_pylist()
    texts: list[str | None] = [base64.b64encode(body).decode() for body in bodies]
    # All bodies are searched at once, because few of them contain an own token.
    joined_bodies = b"\n".join(bodies).decode("latin-1")
    joined_texts = "\n".join(filter(None, texts))
    if redactor is not None and (is_in(joined_bodies) or is_in_truncated(joined_texts)):
        texts = [base64_text(body, redactor) for body in bodies]
    empty_column = pa.nulls(len(raws), pa.string())
    return pc.replace_with_mask(
        empty_column, raws.is_valid(), pa.array(texts, pa.string())
    )


def base64_text(raw: bytes | None, redactor: Redactor | None) -> str | None:
    """Return bytes as base64, with own live tokens masked."""
    if raw is None:
        return None
    if redactor is not None:
        raw = redactor.own(raw.decode("latin-1")).encode("latin-1")
    text = base64.b64encode(raw).decode()
    # a token that is base64 itself can be present without the bits of an incomplete byte
    if redactor is not None and is_in_truncated(text):
        return base64.b64encode(redactor.mask(text).encode()).decode()
    return text


def labels_json(labels: Sequence[str] | None, redactor: Redactor | None) -> str | None:
    """Return labels as compact JSON, masked, or None without labels.

    >>> labels_json(["eu", "beta"], None)
    '["eu","beta"]'
    """
    if not labels:
        return None
    mask: Callable[[str], str] = str
    if redactor:
        mask = redactor.text
    return msgspec.json.encode(list(map(mask, labels))).decode()


def whole_number(value: Any) -> int | None:
    """Return the value as a 64-bit integer, or None if it is not an integer.

    True and False are not integers.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= 1 << 53:
        return int(value)
    # a subclass is a boolean, or an enumeration
    if type(value) is int and -INT64 <= value < INT64:
        return value
    return None


def unix_ms(value: Any) -> int | None:
    """Return Unix milliseconds for a timestamp column, or None outside the years 1970 to 9999."""
    number = whole_number(value)
    if number is not None and 0 <= number <= LATEST:
        return number
    return None


def http_dates(column: pa.Array) -> pa.Array:
    """Return a column of HTTP dates as times, null if a date cannot be read (see `http_date_ms`).

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
        others = [
            unix_ms(http_date_ms(text)) for text in distinct.filter(missing).to_pylist()
        ]
        times = pc.replace_with_mask(times, missing, pa.array(others, TIME))
    return times.take(encoded.indices)


def _usual_dates(dates: pa.Array) -> pa.Array:
    """Return dates of the usual format as times, null for days that do not exist. The weekday is ignored."""
    day = pc.utf8_slice_codeunits(dates, 5, 7)
    month = _MONTH_NUMBERS.take(
        pc.index_in(pc.utf8_slice_codeunits(dates, 8, 11), _MONTHS)
    )
    year, time = (
        pc.utf8_slice_codeunits(dates, 12, 16),
        pc.utf8_slice_codeunits(dates, 17, 25),
    )
    iso = pc.binary_join_element_wise(year, month, day, time, "-")
    times = pc.strptime(iso, format="%Y-%m-%d-%H:%M:%S", unit="ms", error_is_null=True)
    # strptime reads 31 June as 1 July
    exists = pc.and_(
        pc.equal(pc.day(times), day.cast(pa.int64())), pc.greater_equal(times, _EPOCH)
    )
    return pc.if_else(exists, times, None).cast(TIME)


def masked_json(fields: Mapping[str, Any], redactor: Redactor | None) -> str | None:
    """Return fields that fit no column as JSON text, or None without fields.

    Numbers keep all digits. NaN and Infinity stay as the standard library accepts them. `RawJson` is written
    as a string, so that every JSON reader can read the result. Secrets are masked in every string, and values
    under secret names are masked completely. Raise `TooDeepError` beyond `MOST_DEPTH` levels of nesting.
    """
    if not fields:
        return None

    def masked(value: Any, secret: bool) -> Any:  # noqa: FBT001 - as `map_json` calls it
        if isinstance(value, RawJson):
            value = value.text
        if redactor is None:
            return value
        return redactor.leaf(value, secret)

    name: Callable[[str], str] = str
    if redactor:
        name = redactor.text
    kept = map_json(
        fields,
        masked,
        name,
        hidden=secret_members,
        hidden_items=secret_items,
        levels=MOST_DEPTH + 1,
    )
    return json.dumps(kept, ensure_ascii=True, separators=(",", ":"), sort_keys=True)


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


class JsonTuple(tuple[Any, ...]):
    """A tuple in a frame. As text, in CSV and SQLite, it is JSON."""

    __slots__ = ()
    __str__ = _json


class JsonDict(dict[str, Any]):
    """A dict in a frame that pandas can hash and sort. As text, in CSV and SQLite, it is JSON."""

    __str__ = _json

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __lt__(self, other: dict[str, Any]) -> bool:
        return sorted(self.items()) < sorted(other.items())


sqlite3.register_adapter(JsonTuple, str)
sqlite3.register_adapter(JsonDict, str)
