"""Decoding rules that all tables share: strict first, lenient where that fails, and nothing thrown away.

A page is read by the strict, fast reader. Where an application's bytes make it refuse, the page is read
again leniently: bytes that are not UTF-8 become lone surrogates, which the functions here turn back into
bytes where a table has a column for them, and into visible escapes where it has not.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.members import (
    MOST_DEPTH,
    Unread,
    elements,
    is_deep,
    members,
    pairs,
    read,
    unread_integer,
)
from toolkit.client.pages import listed
from toolkit.client.responses import kind_of, shown
from toolkit.errors import MalformedResponseError, ProtocolError
from toolkit.own_tokens import is_in_truncated, map_json
from toolkit.redaction import Redactor
from toolkit.secret_patterns import secret_members
from toolkit.tables.schemas import TIME
from toolkit.times import http_date_ms

LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_INT64: Final = 1 << 63
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# What nearly every server sends; all else is read one by one.
_USUAL_DATE: Final = (
    r"\A[A-Z][a-z]{2}, [0-3][0-9] [A-Z][a-z]{2} [1-9][0-9]{3} [0-2][0-9]:[0-5][0-9]:[0-5][0-9] GMT\z"
)
_DATE_WIDTH: Final = 29


def parse_rows(
    rows: bytes, *, what: str, under: str | None = None, exactly: bool = False
) -> list[dict[str, Any]]:
    """The rows of a page as plain objects.

    Parameters
    ----------
    rows : bytes
        A JSON array of objects.
    what : str
        Named in errors.
    under : str, optional
        Of a whole response: the member that is the array.
    exactly : bool
        Whether values that are nested too deep are told from others, which takes several times as long. They,
        and integers of too many digits, are `toolkit.client.members.Unread`.

    Raises
    ------
    ProtocolError
        When they are no JSON array of objects.
    """
    found = _rows_exactly(rows, what=what, under=under) if exactly else _rows(rows, what=what, under=under)
    if not isinstance(found, list):
        raise ProtocolError(f"decoding {what}", got=kind_of(found), expected="a JSON array")
    for place, row in enumerate(found):
        if not isinstance(row, dict):
            got = f"{kind_of(row)} at {place}"
            raise ProtocolError(f"decoding {what}", got=got, expected="objects")
    return found


def _rows(rows: bytes, *, what: str, under: str | None) -> Any:
    """The rows as one value, where that is possible."""
    array = rows if under is None else bytes(listed(rows))
    try:
        try:
            found = msgspec.json.decode(array)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = json.loads(array.decode("utf-8", "surrogateescape"), parse_int=unread_integer)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, list) else _rows_exactly(rows, what=what, under=under)


def _rows_exactly(rows: bytes, *, what: str, under: str | None) -> Any:
    """The rows, each member of a row read by itself."""
    text = rows.decode("utf-8", "surrogateescape")
    try:
        if under is not None and text.lstrip().startswith("{"):
            whole, end = pairs(text)
            arrays = [value for name, value in whole if name == under]
            if len(arrays) > 1:
                raise MalformedResponseError(
                    f"decoding {what}", got=f"{under!r} twice in one object", expected="each name once"
                )
            text = arrays[0] if arrays and not text[end:].strip() else text
        if not text.lstrip().startswith("["):
            return read(text)
        return [read_members(row) if row.startswith("{") else read(row) for row in elements(text)]
    except ValueError as error:
        raise no_json(rows, error, what) from None


def no_json(raw: bytes, error: Exception, what: str) -> MalformedResponseError:
    """The error for bytes that are no JSON."""
    return MalformedResponseError(
        f"decoding {what}",
        got=f"{len(raw):,} bytes that are not JSON ({str(error)[:80]})",
        expected="JSON",
        next_step="Call again. If it stays, the service, or something between, sends broken pages.",
    )


def read_members(text: str) -> dict[str, Any]:
    """The members of a JSON object, each read by itself: `Unread` is what no Python value stands for.

    Raises
    ------
    ValueError
        When it is no JSON object.
    """
    found, _ = members(text)
    return {name: read(value) for name, value in found.items()}


def lenient(raw: bytes, *, what: str) -> Any:
    """JSON as Python's own reader takes it: NaN and Infinity, lone surrogates, bytes that are not UTF-8.

    What is too deep to be read, or has too many digits, is `Unread`; in an object, only the member that is.
    """
    try:
        found = read(raw)
        return read_members(found.text) if isinstance(found, Unread) and found.text[0] == "{" else found
    except (ValueError, RecursionError) as error:
        raise no_json(raw, error, what) from None


def json_value(text: str) -> Any:
    """What a column of JSON text holds in a row, for whoever looks into it.

    Parameters
    ----------
    text : str

    Returns
    -------
    object
        Integers of more digits than Python reads, and members that are nested more than 100 levels deep, are
        their JSON text.

    Raises
    ------
    ValueError
        When the text is no JSON.

    Examples
    --------
    >>> json_value('{"a": 1, "b": ' + "[" * 200 + "]" * 200 + "}")["b"][:3]
    '[[['
    """
    if not is_deep(text):
        return json.loads(text, parse_int=_integer)
    found = read(text)
    if not text.lstrip().startswith("{"):
        return found.text
    return {name: value if is_deep(value) else json_value(value) for name, value in members(text)[0].items()}


def _integer(text: str) -> int | str:
    found = unread_integer(text)
    return found if isinstance(found, int) else text


def required_id(row: Mapping[str, Any], name: str, *, what: str, place: int) -> str:
    """The id of a row: without one, it cannot be told apart from others."""
    found = row.get(name)
    if not isinstance(found, str) or not found:
        raise ProtocolError(
            f"decoding {what}",
            got=f"{name}={shown(found)} in row {place} of a page",
            expected="text that is not empty",
            next_step="Nothing was kept of this page, and nothing of it is lost: call again.",
        )
    return clean(found)


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
    """The bytes that odd text stands for: what was no UTF-8 on the wire, and lone surrogates as they are."""
    return b"".join(
        character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass")
        for character in text
    )


def text_and_bytes(plain: Any, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """A body from its two fields: text when it is UTF-8, else bytes; and whether both fields made sense.

    Parameters
    ----------
    plain, encoded
        Values of the plain and of the base64 field, None when absent. At most one of them is not empty.

    Returns
    -------
    tuple
        Text or None, bytes or None, and False when a field could not be used (its text is kept as it came).
    """
    if not isinstance(plain, str | None) or not isinstance(encoded, str | None):
        return (plain if isinstance(plain, str) and is_clean(plain) else None), None, False
    if encoded and not plain:
        raw = base64_bytes(encoded)
        return (None, None, False) if raw is None else (*split(raw), True)
    if plain is None:
        return (None if encoded is None else ""), None, True
    fits = not encoded
    return (plain, None, fits) if is_clean(plain) else (None, as_bytes(plain), fits)


def base64_bytes(encoded: str) -> bytes | None:
    """The decoded bytes; None when it is no base64. Missing padding is forgiven."""
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def split(raw: bytes) -> tuple[str | None, bytes | None]:
    """Text when the bytes are UTF-8, else the bytes."""
    try:
        return raw.decode(), None
    except UnicodeDecodeError:
        return None, raw


def base64_text(raw: bytes | None, redactor: Redactor | None) -> str | None:
    """Bytes as base64 text, our own live tokens in them masked."""
    if raw is None:
        return None
    if redactor is not None:
        raw = redactor.own(raw.decode("latin-1")).encode("latin-1")
    text = base64.b64encode(raw).decode()
    if redactor is not None and is_in_truncated(
        text
    ):  # what a token stands for as base64, without a part of a byte
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
    """The value as a 64-bit integer; None when it is no such number (a boolean is none)."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 1 << 53:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
        return value
    return None


def moment(value: Any) -> int | None:
    """Unix milliseconds as a timestamp column takes them; None when it is none of the years 1970 to 9999."""
    number = whole_number(value)
    return number if number is not None and 0 <= number <= LATEST else None


def http_date(text: str) -> int | None:
    """Unix milliseconds of an HTTP date; None when it cannot be read.

    >>> http_date("Thu, 01 Jan 2026 00:00:00 GMT")
    1767225600000
    """
    found = http_date_ms(text)
    return None if found is None else moment(found)


def http_dates(column: pa.Array) -> pa.Array:
    """A column of HTTP dates as times; null where one cannot be read. The same as `http_date` of each.

    >>> http_dates(pa.array(["Thu, 01 Jan 2026 00:00:00 GMT", "soon"])).cast(pa.int64()).to_pylist()
    [1767225600000, None]
    """
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    found = pa.nulls(len(distinct), pa.int64())
    fixed = pc.match_substring_regex(distinct, _USUAL_DATE)
    if fixed.true_count:
        found = pc.replace_with_mask(found, fixed, _milliseconds(distinct.filter(fixed)))
    missing = found.is_null()
    if missing.true_count:
        others = [http_date(text) for text in distinct.filter(missing).to_pylist()]
        found = pc.replace_with_mask(found, missing, pa.array(others, pa.int64()))
    return found.cast(TIME).take(encoded.indices)


def _milliseconds(dates: pa.Array) -> pa.Array:
    """Unix milliseconds of dates that are all of the fixed form; null where it is no day since 1970."""
    characters = np.frombuffer(dates.buffers()[2], np.uint8, len(dates) * _DATE_WIDTH).reshape(
        -1, _DATE_WIDTH
    )
    digits = characters.astype(np.int64) - ord("0")

    def number(start: int, end: int) -> npt.NDArray[np.int64]:
        return digits[:, start:end] @ 10 ** np.arange(end - start - 1, -1, -1)

    names = np.ascontiguousarray(characters[:, 8:11]).view("S3").ravel()
    months = np.full(len(dates), -1)
    for index, name in enumerate(_MONTHS):
        months[names == name.encode()] = index
    first = ((number(12, 16) - 1970) * 12 + months).astype("datetime64[M]")
    days = first.astype("datetime64[D]") + (number(5, 7) - 1)
    seconds = ((days.astype(np.int64) * 24 + number(17, 19)) * 60 + number(20, 22)) * 60 + number(23, 25)
    there = (months >= 0) & (days.astype("datetime64[M]") == first) & (number(17, 19) < 24) & (seconds >= 0)  # noqa: PLR2004 - hours
    return pa.array(seconds * 1000, mask=~there)


def masked_json(fields: Mapping[str, Any], redactor: Redactor | None) -> str | None:
    """Fields that fit no column, as JSON text; None when there are none.

    Numbers keep all their digits; NaN and Infinity stay as Python's own reader takes them. What is `Unread`
    is its JSON as text, so that every reader of JSON can read the whole. Secrets are masked in every text,
    and whole texts under secret names.

    Raises
    ------
    TooDeepError
        When a value is nested more than `MOST_DEPTH` levels deep.
    """
    if not fields:
        return None

    def masked(value: Any, secret: bool) -> Any:  # noqa: FBT001 - as `map_json` calls it
        value = value.text if isinstance(value, Unread) else value
        return redactor.value(value, secret=secret) if redactor else value

    name = redactor.text if redactor else str
    kept = map_json(fields, masked, name, hidden=secret_members, levels=MOST_DEPTH + 1)
    return json.dumps(kept, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
