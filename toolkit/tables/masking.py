"""Whole columns masked as `Redactor` masks single values, each distinct value once.

Most values hold nothing to mask. Searching the distinct values of a column finds those that may; only these
are given to the `Redactor`, and a column without any is returned as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from itertools import compress
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.members import read_json
from toolkit.own_tokens import likely
from toolkit.personal_data import PERSONAL_HINT
from toolkit.redaction import Redactor
from toolkit.secret_patterns import LIKELY, SUSPICIOUS, SUSPICIOUS_URL, WORDS, is_secret_name
from toolkit.tables.header_maps import HeaderColumn
from toolkit.tables.schemas import JSON_COLUMNS, Column, Kind, schema
from toolkit.tables.text import labels_json, masked_json

_SUSPICIOUS: Final = re.compile(SUSPICIOUS)
_SUSPICIOUS_URL: Final = re.compile(SUSPICIOUS_URL)
_SUSPICIOUS_OR_PERSONAL: Final = re.compile(f"{SUSPICIOUS_URL}|{SUSPICIOUS}|{PERSONAL_HINT}")
_SUSPICIOUS_JSON: Final = re.compile(SUSPICIOUS.replace("|^/", '|^"/'))
# also what may be masked because of a name around it, whatever follows the name, and however it is spelled
_LIKELY_JSON: Final = (
    rf'{LIKELY}|"[/?]|"(?:name|key|header|field)"|(?i:{"|".join(WORDS)})|(?:[^\x00-\x7f]|\\u)[^"]*"\s*:'
)
# JSON that is written unchanged: plain text, and numbers that Python writes with the same digits
_PLAIN_JSON: Final = r'\A(?:"[ !#-\[\]-~]*"|0|-?[1-9][0-9]{0,17}|true|false|null)\z'
_REMEMBERED: Final = 10_000  # masks of each kind that are cached for the next batch of a load
_SHORT: Final = 2_000  # bytes of JSON, up to which what is written of it is cached
_NESTED: Final = 3  # JSON in JSON in JSON
_FEW: Final = 32  # values for which compiling Arrow's matcher costs more than it saves

_LABELS: Final = msgspec.json.Decoder(list[str] | None)

Rows = npt.NDArray[np.int64]


class ColumnMasker:
    """Masks Arrow columns of one load; without a redactor they are returned as they are.

    >>> masker = ColumnMasker(Redactor(key=b"example"))
    >>> masker.urls(pa.array(["https://a.example/x", "https://a.example/?q=1", None])).to_pylist()
    ['https://a.example/x', 'https://a.example/?q=[masked len=1 tag=e426ee1c]', None]
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        if redactor is not None:
            remembering = lru_cache(_REMEMBERED)
            self._text, self._url, self._mask = map(remembering, (redactor.text, redactor.url, redactor.mask))
        self._member = lru_cache(_REMEMBERED)(_member)

    def texts(self, column: pa.Array) -> pa.Array:
        """A column of text, masked as by `Redactor.text`."""
        if self._redactor is None:
            return column
        if self._redactor.masks_personal:
            return self._where_likely(column, self._text, _SUSPICIOUS_OR_PERSONAL)
        return self._where_likely(column, self._text, _SUSPICIOUS, LIKELY)

    def urls(self, column: pa.Array) -> pa.Array:
        """A column of URLs, masked as by `Redactor.url`."""
        if self._redactor is None:
            return column
        quick = _SUSPICIOUS_OR_PERSONAL if self._redactor.masks_personal else _SUSPICIOUS_URL
        return self._where_likely(column, self._url, quick)

    def own(self, column: pa.Array) -> pa.Array:
        """A column of text with our own live tokens masked, and nothing else."""
        redactor = self._redactor
        if redactor is None or not len(rows := holding_own(column)):
            return column
        held = np.zeros(len(column), bool)
        held[rows] = True
        return pc.replace_with_mask(
            column, pa.array(held), each_distinct(column.take(pa.array(rows)), redactor.own)
        )

    def own_json(self, column: pa.Array) -> pa.Array:
        """The same for a column of JSON text: what is not JSON once masked becomes a JSON string."""
        masked = self.own(column)
        if masked is column:
            return column
        pairs = zip(masked.to_pylist(), column.to_pylist(), strict=True)
        return pa.array([new if new == old else _as_json(new) for new, old in pairs], column.type)

    def labels(self, column: pa.Array) -> pa.Array:
        """Lists of text as raw JSON, each text masked as by `Redactor.text`; null for none and empty ones."""
        return each_distinct(
            column, lambda raw: labels_json(_LABELS.decode(raw), self._redactor), kind=pa.string()
        )

    def masked_table(self, columns: Sequence[Column], values: Mapping[str, Any]) -> pa.Table:
        """A table of these columns from unmasked values, those masked whose kind holds secrets of others.

        Our own tokens in bodies, JSON and ids are left to the caller. A column may still be in the making.
        """
        masks: dict[Kind, Callable[[Any], pa.Array]] = {
            Kind.TEXT: self.texts,
            Kind.URL: self.urls,
            Kind.HEADERS: self.headers,
            Kind.LABELS: self.labels,
        }
        masked = {
            name: masks[kind](values[name]) if kind in masks else values[name] for name, kind, _ in columns
        }
        if (single := values.get("label")) is not None and masked["labels"].null_count:
            # the field that lists of labels replaced: where only it is there, it is the list
            alone = each_distinct(single, lambda label: labels_json([label], self._redactor))
            masked["labels"] = pc.coalesce(masked["labels"], alone)
        arrays = [column.result() if isinstance(column, Future) else column for column in masked.values()]
        return pa.Table.from_arrays(arrays, schema=schema(columns))

    def table(self, table: pa.Table) -> pa.Table:
        """A table with our own live tokens masked in all its text: also in ids, and in names within JSON."""
        pattern = None if self._redactor is None else likely()
        if pattern is None:
            return table
        # base64 that held one would be none any more: see `base64_text`
        texts = [
            index
            for index, field in enumerate(table.schema)
            if pa.types.is_string(field.type) and not field.name.endswith("_base64")
        ]
        suspects = _with_match([table.column(index) for index in texts], pattern)
        for index in compress(texts, suspects):
            field = table.field(index)
            mask = self.own_json if field.name in JSON_COLUMNS else self.own
            chunks = [mask(chunk) for chunk in table.column(index).chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
        return table

    def headers(self, column: HeaderColumn) -> pa.Array:
        """The header maps as JSON text, their values masked as by `Redactor.header`."""
        if self._redactor is None:
            return column.texts()
        secret = np.array([is_secret_name(name) for name in column.names.dictionary.to_pylist()], dtype=bool)
        if not secret.any():
            return column.texts(self.texts(column.values))
        hidden = pa.array(secret[column.names.indices.to_numpy()][column.headers])
        whole = each_distinct(column.values.filter(hidden), self._mask)
        others = self.texts(pc.if_else(hidden, None, column.values))
        return column.texts(pc.replace_with_mask(others, hidden, whole))

    def objects(self, fields: Mapping[str, pa.Array], rows: int) -> pa.Array:
        """The JSON text that `masked_json` makes of each row's fields; null in rows that have none of them.

        Fields are raw JSON by name, null where a row does not have it. ValueError where one is not JSON.

        >>> fields = {"b": pa.array([b"1", None]), "a": pa.array([b'"x"', None])}
        >>> ColumnMasker(None).objects(fields, rows=2).to_pylist()
        ['{"a":"x","b":1}', None]
        """
        members = [
            self._members(name, raws) for name, raws in sorted(fields.items()) if raws.null_count < rows
        ]
        if not members:
            return pa.nulls(rows, pa.string())
        # not null_handling="skip", which leaves out rows that have nothing
        inner = pc.binary_join_element_wise(*members, "", null_handling="replace", null_replacement="")
        whole = pc.binary_join_element_wise(pc.binary_replace_slice(inner, 0, 1, "{"), "}", "")
        return pc.if_else(pc.equal(inner, ""), None, whole)

    def _members(self, name: str, raws: pa.Array) -> pa.Array:
        """The values as members of an object, a comma and the name before each; null stays null."""
        encoded = raws.dictionary_encode()
        distinct = encoded.dictionary
        hidden = np.full(len(distinct), self._redactor is not None)
        if self._redactor is not None and not is_secret_name(name):
            if not self._redactor.masks_personal:
                hidden = np.array(_suspects(distinct, _SUSPICIOUS_JSON, _LIKELY_JSON))
            hidden[holding_own(distinct)] = True
        other = hidden | ~pc.match_substring_regex(distinct, _PLAIN_JSON).to_numpy(zero_copy_only=False)
        if other.any():
            pairs = zip(distinct.filter(pa.array(other)).to_pylist(), hidden[other], strict=True)
            written = [self._written(name, raw, self._redactor if secret else None) for raw, secret in pairs]
            distinct = pc.replace_with_mask(distinct, pa.array(other), pa.array(written, pa.binary()))
        named = pc.binary_join_element_wise(f",{json.dumps(name)}:", distinct.cast(pa.string()), "")
        return named.take(encoded.indices)

    def _written(self, name: str, raw: bytes, redactor: Redactor | None) -> bytes:
        return (self._member if len(raw) <= _SHORT else _member)(name, raw, redactor)

    def _where_likely(
        self, column: pa.Array, mask: Callable[[str], str], quick: re.Pattern[str], closer: str | None = None
    ) -> pa.Array:
        encoded = column.dictionary_encode()
        distinct = self.own(encoded.dictionary)
        touched = _suspects(distinct, quick, closer)
        if touched.true_count == 0:
            return column if distinct is encoded.dictionary else distinct.take(encoded.indices)
        masked = pa.array([mask(text) for text in distinct.filter(touched).to_pylist()], pa.string())
        return pc.replace_with_mask(distinct, touched, masked).take(encoded.indices)


def holding_own(column: pa.Array) -> Rows:
    """The rows of a column of text, or of JSON as bytes, that may hold one of our own live tokens."""
    pattern = likely()
    if pattern is None or not len(column) or not any(_with_match([column], pattern)):
        return np.empty(0, np.int64)
    rows: Rows = np.flatnonzero(_matching(column, pattern).fill_null(False).to_numpy(zero_copy_only=False))
    return rows


def plain_escapes_read(column: pa.Array) -> pa.Array:
    """A column of text with its quotes and slashes as they are without escapes; those nested deeply stay."""
    for _ in range(_NESTED):
        if not pc.match_substring_regex(column, r'\\["/]').true_count:
            break
        for sign in '"/':
            column = pc.replace_substring(column, f"\\{sign}", sign)
    return column


def _suspects(distinct: pa.Array, quick: re.Pattern[str], closer: str | None) -> pa.Array:
    """Which values may hold something to mask: all that do match `quick`, and `closer` once unescaped."""
    suspects = _matching(distinct, quick)
    if closer is not None and suspects.true_count > _FEW:
        narrowed = pc.match_substring_regex(plain_escapes_read(distinct.filter(suspects)), closer)
        suspects = pc.replace_with_mask(suspects, suspects, narrowed)
    return suspects


def _matching(column: pa.Array, pattern: re.Pattern[str]) -> pa.Array:
    """Which values match; null for those that are null."""
    if len(column) < _FEW:
        texts = (text.decode("latin-1") if isinstance(text, bytes) else text for text in column.to_pylist())
        return pa.array([None if text is None else bool(pattern.search(text)) for text in texts], pa.bool_())
    return pc.match_substring_regex(column, pattern.pattern)


def _with_match(columns: Sequence[pa.Array | pa.ChunkedArray], pattern: re.Pattern[str]) -> list[bool]:
    """Which columns of text have a match: each is searched as one text, and the pattern compiled once."""
    if not columns or len(columns[0]) < _FEW:
        return [True] * len(columns)
    parts: list[memoryview] = []
    ends = np.zeros(len(columns) + 1, np.int64)
    for number, column in enumerate(columns):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        present = [text for text in map(_bytes, chunks) if text]
        parts += present
        ends[number + 1] = ends[number] + sum(map(len, present))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(columns), buffers)
    matches: list[bool] = pc.match_substring_regex(texts, pattern.pattern).to_pylist()
    return matches


def _bytes(column: pa.Array) -> memoryview:
    """The bytes of all values, one after another."""
    _, offsets, data = column.buffers()
    if data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32, column.offset + len(column) + 1)
    return memoryview(data)[ends[column.offset] : ends[-1]]


def each_distinct(
    column: pa.Array, function: Callable[[Any], Any], *, kind: pa.DataType | None = None
) -> pa.Array:
    """What a function returns of each value, in a column of the same type or another; null of null.

    It is called once for each distinct value.
    """
    encoded = column.dictionary_encode()
    values = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, kind or column.type).take(encoded.indices)


def _as_json(text: str | None) -> str | None:
    try:
        msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return json.dumps(text)
    return text


def _member(name: str, raw: bytes, redactor: Redactor | None) -> bytes:
    whole = masked_json({name: read_json(raw)}, redactor) or ""
    return whole[len(json.dumps(name)) + 2 : -1].encode()
