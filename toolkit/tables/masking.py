"""Mask complete columns in the same way as `Redactor` masks single values, each distinct value once.

Most values contain nothing to mask. A search with one regular expression finds the distinct values that could
contain a secret, and only these go to the `Redactor`. For example, of 10,000 URLs with 50 distinct values,
two with a query are masked. A column without suspicious values is returned unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.members import read_json
from toolkit.base.own_tokens import likely
from toolkit.secrets.hints import LIKELY, SUSPICIOUS, SUSPICIOUS_URL
from toolkit.secrets.names import WORDS, is_secret_name
from toolkit.secrets.personal_data import PERSONAL_HINT
from toolkit.secrets.redaction import Redactor
from toolkit.tables.header_maps import HeaderColumn
from toolkit.tables.json_cells import labels_json, masked_json
from toolkit.tables.schemas import JSON_COLUMNS, Column, Kind, schema

_SUSPICIOUS: Final = re.compile(SUSPICIOUS)
_SUSPICIOUS_URL: Final = re.compile(SUSPICIOUS_URL)
_SUSPICIOUS_OR_PERSONAL: Final = re.compile(
    f"{SUSPICIOUS_URL}|{SUSPICIOUS}|{PERSONAL_HINT}"
)
_SUSPICIOUS_JSON: Final = re.compile(SUSPICIOUS.replace("|^/", '|^"/'))
# Values can also be masked because of the name before them, for example "password":, in any spelling.
_LIKELY_JSON: Final = (
    rf'{LIKELY}|"[/?]|"(?:name|key|header|field)"'
    rf"|(?i:{'|'.join(WORDS)})"
    rf'|(?:[^\x00-\x7f]|\\u)[^"]*"\s*:'
)
# JSON that stays as it is: ASCII strings without escapes, and numbers that Python writes with the same
# digits.
_PLAIN_JSON: Final = r'\A(?:"[ !#-\[\]-~]*"|0|-?[1-9][0-9]{0,17}|true|false|null)\z'


@dataclass(frozen=True)
class MaskingTuning:
    """Constants of masking columns, with their reasons."""

    cache_size: int = 10_000
    """Masked values of each kind that are kept for the next batch of a load."""
    longest_cached: int = 2_000
    """Bytes of JSON that are cached; longer values rarely repeat."""
    most_nested: int = 3
    """Layers of escapes that are read: JSON in JSON in JSON."""
    few: int = 32
    """Compiling a matcher of Arrow takes as long as searching this many values with `re`."""
    short: int = 30_000
    """Bytes of all values together: Arrow searches long values in a hundredth of the time of `re`."""


_TUNING: Final = MaskingTuning()

_LABELS: Final = msgspec.json.Decoder(list[str] | None)

Rows = npt.NDArray[np.int64]


class ColumnMasker:
    """Mask the Arrow columns of one load. Without a redactor, columns are returned unchanged.

    >>> masker = ColumnMasker(Redactor(key=b"example"))
    >>> masker.urls(pa.array(["https://a.example/x", "https://a.example/?q=1", None])).to_pylist()
    ['https://a.example/x', 'https://a.example/?q=[masked len=1 tag=e426ee1c]', None]
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        if redactor is not None:
            self._text = lru_cache(_TUNING.cache_size)(redactor.text)
            self._url = lru_cache(_TUNING.cache_size)(redactor.url)
            self._mask = lru_cache(_TUNING.cache_size)(redactor.mask)

        self._cached_member = lru_cache(_TUNING.cache_size)(_member)

    def texts(self, column: pa.Array) -> pa.Array:
        """Mask a column of strings as `Redactor.text` does."""
        if self._redactor is None:
            return column
        if self._redactor.masks_personal:
            return self._where_likely(column, self._text, _SUSPICIOUS_OR_PERSONAL)

        return self._where_likely(column, self._text, _SUSPICIOUS, LIKELY)

    def urls(self, column: pa.Array) -> pa.Array:
        """Mask a column of URLs as `Redactor.url` does."""
        if self._redactor is None:
            return column

        quick = _SUSPICIOUS_URL
        if self._redactor.masks_personal:
            quick = _SUSPICIOUS_OR_PERSONAL
        return self._where_likely(column, self._url, quick)

    def own(self, column: pa.Array) -> pa.Array:
        """Mask only the live tokens of this process in a column of strings."""
        redactor = self._redactor
        if redactor is None:
            return column

        rows = holding_own(column)
        if not len(rows):
            return column

        has_token = np.zeros(len(column), bool)
        has_token[rows] = True
        masked = each_distinct(column.take(pa.array(rows)), redactor.own)

        return pc.replace_with_mask(column, pa.array(has_token), masked)

    def own_json(self, column: pa.Array) -> pa.Array:
        """Mask only the live tokens of this process in a column of JSON text.

        Masking can break JSON, for example if a token is a number. Broken JSON becomes a JSON string.
        """
        masked = self.own(column)
        if masked is column:
            return column

        pairs = zip(masked.to_pylist(), column.to_pylist(), strict=True)
        texts = [
            after if after == before else _as_json(after) for after, before in pairs
        ]
        return pa.array(texts, column.type)

    def labels(self, column: pa.Array) -> pa.Array:
        """Mask each string of raw JSON lists as `Redactor.text` does. Empty lists become null."""

        def masked(raw: bytes) -> str | None:
            return labels_json(_LABELS.decode(raw), self._redactor)

        return each_distinct(column, masked, kind=pa.string())

    def masked_table(
        self, columns: Sequence[Column], values: Mapping[str, Any]
    ) -> pa.Table:
        """Return a table from unmasked columns. Columns of a kind that can contain secrets are masked.

        The live tokens of this process in bodies, JSON and ids are left to the caller. A column can be a
        `Future`.
        """
        masks: dict[Kind, Callable[[Any], pa.Array]] = {
            Kind.TEXT: self.texts,
            Kind.URL: self.urls,
            Kind.HEADERS: self.headers,
            Kind.LABELS: self.labels,
        }
        masked = {}
        for name, kind, _ in columns:
            mask = masks.get(kind)
            masked[name] = values[name] if mask is None else mask(values[name])

        single_labels = values.get("label")
        if single_labels is not None and masked["labels"].null_count:
            # `label` was replaced by `labels`; an entry that has only `label` gets a list of one
            lists = each_distinct(
                single_labels, lambda label: labels_json([label], self._redactor)
            )
            masked["labels"] = pc.coalesce(masked["labels"], lists)

        arrays = [
            column.result() if isinstance(column, Future) else column
            for column in masked.values()
        ]
        return pa.Table.from_arrays(arrays, schema=schema(columns))

    def table(self, table: pa.Table) -> pa.Table:
        """Mask the live tokens of this process in all strings of a table, including ids and names in JSON."""
        pattern = None
        if self._redactor is not None:
            pattern = likely()
        if pattern is None:
            return table

        # Columns of base64 are left out, because `base64_text` has masked the bytes: a mask is not base64.
        fields = [
            field
            for field in table.schema
            if pa.types.is_string(field.type) and not field.name.endswith("_base64")
        ]
        suspects = _with_match([table.column(field.name) for field in fields], pattern)
        for field in compress(fields, suspects):
            mask = self.own
            if field.name in JSON_COLUMNS:
                mask = self.own_json
            chunks = [mask(chunk) for chunk in table.column(field.name).chunks]
            position = table.schema.get_field_index(field.name)
            table = table.set_column(
                position, field, pa.chunked_array(chunks, field.type)
            )

        return table

    def headers(self, column: HeaderColumn) -> pa.Array:
        """Return header maps as JSON text, with the values masked as `Redactor.header` does."""
        if self._redactor is None:
            return column.texts()

        names = column.names.dictionary.to_pylist()
        is_secret = np.array([is_secret_name(name) for name in names], dtype=bool)
        if not is_secret.any():
            return column.texts(self.texts(column.values))

        # From names to headers to values: a secret header is masked completely, the others in parts.
        hidden = pa.array(is_secret[column.names.indices.to_numpy()][column.headers])
        masks = each_distinct(column.values.filter(hidden), self._mask)
        other_values = self.texts(pc.if_else(hidden, None, column.values))

        return column.texts(pc.replace_with_mask(other_values, hidden, masks))

    def objects(self, fields: Mapping[str, pa.Array], rows: int) -> pa.Array:
        """Return the fields of each row as one JSON object, as `masked_json` does, or null.

        Fields are raw JSON by name, null if a row does not have the field. Raise ValueError if one is not
        JSON.

        >>> fields = {"b": pa.array([b"1", None]), "a": pa.array([b'"x"', None])}
        >>> ColumnMasker(None).objects(fields, rows=2).to_pylist()
        ['{"a":"x","b":1}', None]
        """
        used_fields = [
            (name, raws)
            for name, raws in sorted(fields.items())
            if raws.null_count < rows
        ]
        if not used_fields:
            return pa.nulls(rows, pa.string())

        members = [self._members(name, raws) for name, raws in used_fields]
        # ',"a":"x",",b":1' per row; null_handling="skip" would leave out rows without any member
        joined = pc.binary_join_element_wise(
            *members, "", null_handling="replace", null_replacement=""
        )
        # the first comma becomes the opening brace
        opened = pc.binary_replace_slice(joined, 0, 1, "{")
        closed = pc.binary_join_element_wise(opened, "}", "")

        return pc.if_else(pc.equal(joined, ""), None, closed)

    def _members(self, name: str, raws: pa.Array) -> pa.Array:
        """Return each value as a member of an object, for example ``,"code":7``. Null stays null."""
        encoded = raws.dictionary_encode()
        distinct = encoded.dictionary
        must_mask = self._may_need_masking(name, distinct)
        is_plain = pc.match_substring_regex(distinct, _PLAIN_JSON).to_numpy(
            zero_copy_only=False
        )

        must_write = must_mask | ~is_plain
        if must_write.any():
            raw_values = distinct.filter(pa.array(must_write)).to_pylist()
            written = [
                self._written(name, raw, self._redactor if masks else None)
                for raw, masks in zip(raw_values, must_mask[must_write], strict=True)
            ]
            distinct = pc.replace_with_mask(
                distinct, pa.array(must_write), pa.array(written, pa.binary())
            )

        prefix = f",{json.dumps(name)}:"
        members = pc.binary_join_element_wise(prefix, distinct.cast(pa.string()), "")
        return members.take(encoded.indices)

    def _may_need_masking(self, name: str, distinct: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which raw JSON values of a field have to go to the redactor."""
        if self._redactor is None:
            return np.zeros(len(distinct), bool)
        if is_secret_name(name) or self._redactor.masks_personal:
            return np.ones(len(distinct), bool)

        suspects = np.array(_suspects(distinct, _SUSPICIOUS_JSON, _LIKELY_JSON))
        suspects[holding_own(distinct)] = True
        return suspects

    def _written(self, name: str, raw: bytes, redactor: Redactor | None) -> bytes:
        if len(raw) > _TUNING.longest_cached:
            return _member(name, raw, redactor)
        return self._cached_member(name, raw, redactor)

    def _where_likely(
        self,
        column: pa.Array,
        mask: Callable[[str], str],
        quick: re.Pattern[str],
        closer: str | None = None,
    ) -> pa.Array:
        """Mask the distinct values that a search with `quick`, then with `closer`, finds suspicious."""
        encoded = column.dictionary_encode()
        distinct = self.own(encoded.dictionary)

        suspicious = _suspects(distinct, quick, closer)
        if suspicious.true_count:
            masked = [mask(text) for text in distinct.filter(suspicious).to_pylist()]
            distinct = pc.replace_with_mask(
                distinct, suspicious, pa.array(masked, pa.string())
            )

        if distinct is encoded.dictionary:  # nothing was masked
            return column

        return distinct.take(encoded.indices)


def holding_own(column: pa.Array) -> Rows:
    """Return the rows of a column (strings, or JSON as bytes) that could contain an own live token."""
    pattern = likely()
    if pattern is None or not len(column) or not any(_with_match([column], pattern)):
        return np.empty(0, np.int64)

    rows: Rows = np.flatnonzero(
        _matching(column, pattern).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return rows


def plain_escapes_read(column: pa.Array) -> pa.Array:
    """Return a column of strings with escaped quotes and slashes unescaped, layer by layer."""
    for _ in range(_TUNING.most_nested):
        if not pc.match_substring_regex(column, r'\\["/]').true_count:
            break
        column = pc.replace_substring(column, '\\"', '"')
        column = pc.replace_substring(column, "\\/", "/")

    return column


def _suspects(
    distinct: pa.Array, quick: re.Pattern[str], closer: str | None
) -> pa.Array:
    """Return which values could contain a secret: they match `quick`, and, unescaped, `closer`.

    `quick` is fast and finds too much. `closer` is slower, so it only searches what `quick` has found.
    """
    if pa.types.is_binary(distinct.type):
        # RE2 reads strings as UTF-8, and bytes as Latin-1
        distinct = distinct.view(pa.string())
    suspects = _matching(distinct, quick)
    if closer is None or suspects.true_count <= _TUNING.few:
        return suspects

    narrowed = pc.match_substring_regex(
        plain_escapes_read(distinct.filter(suspects)), closer
    )
    return pc.replace_with_mask(suspects, suspects, narrowed)


def _matching(column: pa.Array, pattern: re.Pattern[str]) -> pa.Array:
    """Return which values match. Null stays null."""
    if len(column) >= _TUNING.few or column.nbytes > _TUNING.short:
        return pc.match_substring_regex(column, pattern.pattern)

    matches = [_is_match(value, pattern) for value in column.to_pylist()]
    return pa.array(matches, pa.bool_())


def _is_match(value: str | bytes | None, pattern: re.Pattern[str]) -> bool | None:
    if value is None:
        return None

    text = value
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return pattern.search(text) is not None


def _with_match(
    columns: Sequence[pa.Array | pa.ChunkedArray], pattern: re.Pattern[str]
) -> list[bool]:
    """Return which columns of strings contain a match.

    All values of a column are searched as one string, so that the pattern is compiled and called only once.
    """
    if not columns or len(columns[0]) < _TUNING.few:
        return [True for _ in columns]  # few values are searched one by one

    contents: list[memoryview] = []
    ends = np.zeros(len(columns) + 1, np.int64)
    for number, column in enumerate(columns):
        chunks = [column]
        if isinstance(column, pa.ChunkedArray):
            chunks = column.chunks
        column_bytes = list(filter(len, map(_bytes, chunks)))
        contents.extend(column_bytes)
        ends[number + 1] = ends[number] + sum(map(len, column_bytes))

    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(contents))]
    joined = pa.Array.from_buffers(pa.large_binary(), len(columns), buffers)
    matches: list[bool] = pc.match_substring_regex(joined, pattern.pattern).to_pylist()

    return matches


def _bytes(column: pa.Array) -> memoryview:
    """Return the bytes of all values, one after another, without a copy."""
    _, offsets, data = column.buffers()
    if data is None:
        return memoryview(b"")

    ends = np.frombuffer(offsets, np.int32, column.offset + len(column) + 1)
    return memoryview(data)[ends[column.offset] : ends[-1]]


def each_distinct(
    column: pa.Array, function: Callable[[Any], Any], *, kind: pa.DataType | None = None
) -> pa.Array:
    """Call a function once per distinct value and return the results as a column. Null stays null.

    The column has the type `kind`; if omitted, the type of the original column.
    """
    encoded = column.dictionary_encode()
    values = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, kind or column.type).take(encoded.indices)


def _as_json(text: str | None) -> str | None:
    """Return JSON text unchanged, and any other text as a JSON string."""
    try:
        msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return json.dumps(text)

    return text


def _member(name: str, raw: bytes, redactor: Redactor | None) -> bytes:
    """Return the masked JSON of a value, as it is written in an object after the name."""
    json_object = masked_json({name: read_json(raw)}, redactor) or ""
    prefix_length = len(json.dumps(name)) + 2  # {"name":
    return json_object[prefix_length:-1].encode()
