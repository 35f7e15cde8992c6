"""Whole columns masked as `Redactor` masks single values, each distinct value once.

Most values hold nothing to mask. A quick look over the distinct values of a column finds those that may; only
they are given to the `Redactor`, and a column without any is handed back as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.own_tokens import likely
from toolkit.redaction import Redactor
from toolkit.secret_patterns import LIKELY, SUSPICIOUS, SUSPICIOUS_URL, is_secret_name
from toolkit.tables.header_maps import HeaderColumn

_SUSPICIOUS: Final = re.compile(SUSPICIOUS)
_SUSPICIOUS_URL: Final = re.compile(SUSPICIOUS_URL)
_REMEMBERED: Final = 10_000  # masks of each kind that are at hand for the next piece of a load
_NESTED: Final = 3  # JSON in JSON in JSON
_FEW: Final = 32  # values for which making Arrow's matcher costs more than it saves

_JSON: Final = frozenset({"extra", "headers", "labels", "metadata", "response_headers", "source_headers"})

Places = npt.NDArray[np.int64]


class ColumnMasker:
    """Masks Arrow columns of one load.

    Parameters
    ----------
    redactor : Redactor or None
        None reveals everything: columns come back as they are.

    Examples
    --------
    >>> masker = ColumnMasker(Redactor(key=b"example"))
    >>> masker.urls(pa.array(["https://a.example/x", "https://a.example/?q=1", None])).to_pylist()
    ['https://a.example/x', 'https://a.example/?q=[masked len=1 tag=e426ee1c]', None]
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        if redactor is not None:
            remembering = lru_cache(_REMEMBERED)
            self._text, self._url, self._mask = map(remembering, (redactor.text, redactor.url, redactor.mask))

    def texts(self, column: pa.Array) -> pa.Array:
        """A column of text, masked as by `Redactor.text`."""
        if self._redactor is None:
            return column
        return self._where_likely(column, _SUSPICIOUS, self._text, closer=LIKELY)

    def urls(self, column: pa.Array) -> pa.Array:
        """A column of URLs, masked as by `Redactor.url`."""
        if self._redactor is None:
            return column
        return self._where_likely(column, _SUSPICIOUS_URL, self._url)

    def own(self, column: pa.Array) -> pa.Array:
        """A column of text with our own live tokens masked, and nothing else."""
        redactor = self._redactor
        if redactor is None or not len(rows := holding_own(column)):
            return column
        texts = column.take(pa.array(rows)).to_pylist()
        other = np.zeros(len(column), bool)
        other[rows] = True
        masked = pa.array([redactor.own(text) for text in texts], column.type)
        return pc.replace_with_mask(column, pa.array(other), masked)

    def own_json(self, column: pa.Array) -> pa.Array:
        """The same for a column of JSON text: what is no JSON once masked becomes a JSON string."""
        masked = self.own(column)
        if masked is column:
            return column
        pairs = zip(masked.to_pylist(), column.to_pylist(), strict=True)
        return pa.array([new if new == old else _as_json(new) for new, old in pairs], column.type)

    def table(self, table: pa.Table) -> pa.Table:
        """A table with our own live tokens masked in all its text: also in ids, and in names within JSON."""
        pattern = None if self._redactor is None else likely()
        for place, field in enumerate(table.schema):
            # base64 that held one would be none any more: see `base64_text`
            text = pa.types.is_string(field.type) and not field.name.endswith("_base64")
            if pattern is not None and text and _matches_anywhere(table.column(place), pattern):
                mask = self.own_json if field.name in _JSON else self.own
                chunks = [mask(chunk) for chunk in table.column(place).chunks]
                table = table.set_column(place, field, pa.chunked_array(chunks, field.type))
        return table

    def headers(self, column: HeaderColumn) -> pa.Array:
        """The header maps as JSON text, their values masked as by `Redactor.header`."""
        if self._redactor is None:
            return column.texts()
        values, encoded = column.values, column.names
        secret = np.array([is_secret_name(name) for name in encoded.dictionary.to_pylist()], dtype=bool)
        if secret.any():
            hidden = pa.array(secret[encoded.indices.to_numpy()][column.headers])
            whole = _each(values.filter(hidden), self._mask)
            others = self.texts(pc.if_else(hidden, None, values))
            values = pc.replace_with_mask(others, hidden, whole)
        else:
            values = self.texts(values)
        return column.texts(values)

    def _where_likely(
        self,
        column: pa.Array,
        suspicious: re.Pattern[str],
        mask: Callable[[str], str],
        closer: str | None = None,
    ) -> pa.Array:
        encoded = column.dictionary_encode()
        distinct = self.own(encoded.dictionary)
        touched = _matching(distinct, suspicious)
        if closer is not None and touched.true_count > _FEW:
            narrowed = pc.match_substring_regex(plain_escapes_read(distinct.filter(touched)), closer)
            touched = pc.replace_with_mask(touched, touched, narrowed)
        if touched.true_count == 0:
            return column if distinct is encoded.dictionary else distinct.take(encoded.indices)
        masked = pa.array([mask(text) for text in distinct.filter(touched).to_pylist()], pa.string())
        return pc.replace_with_mask(distinct, touched, masked).take(encoded.indices)


def holding_own(column: pa.Array) -> Places:
    """The rows of a column of text, or of JSON as bytes, that may hold one of our own live tokens.

    None that holds one is left out.
    """
    pattern = likely()
    if pattern is None or not len(column) or not _matches_anywhere(column, pattern):
        return np.empty(0, np.int64)
    rows: Places = np.flatnonzero(_matching(column, pattern).fill_null(False).to_numpy(zero_copy_only=False))
    return rows


def _as_json(text: str | None) -> str | None:
    try:
        msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return json.dumps(text)
    return text


def _matching(column: pa.Array, pattern: re.Pattern[str]) -> pa.Array:
    """Which values match; null for those that are null."""
    if len(column) < _FEW:
        texts = (text.decode("latin-1") if isinstance(text, bytes) else text for text in column.to_pylist())
        return pa.array([None if text is None else bool(pattern.search(text)) for text in texts], pa.bool_())
    return pc.match_substring_regex(column, pattern.pattern)


def _matches_anywhere(column: pa.Array | pa.ChunkedArray, pattern: re.Pattern[str]) -> bool:
    """Whether all values, read as one text, have a match: looking at each costs more than at their text."""
    if len(column) < _FEW:
        return True
    texts = map(_as_one_text, column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    found = pc.match_substring_regex(pa.chunked_array(texts, pa.large_binary()), pattern.pattern)
    return bool(pc.any(found).as_py())


def _as_one_text(column: pa.Array) -> pa.Array:
    """The bytes of all values, one behind the other, as a column of one value; nothing is copied."""
    _, offsets, data = column.buffers()
    if data is None:
        return pa.nulls(1, pa.large_binary())
    ends = np.frombuffer(offsets, np.int32, column.offset + len(column) + 1)
    around = ends[[column.offset, -1]].astype(np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(around), data])


def plain_escapes_read(column: pa.Array) -> pa.Array:
    """A column of text with its quotes and slashes as they are without escapes; those nested deeply stay."""
    for _ in range(_NESTED):
        if not pc.match_substring(column, "\\").true_count:
            break
        for sign in '"/':
            column = pc.replace_substring(column, f"\\{sign}", sign)
    return column


def _each(column: pa.Array, mask: Callable[[str], str]) -> pa.Array:
    """Every value masked, each distinct one once."""
    encoded = column.dictionary_encode()
    masked = pa.array([mask(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return masked.take(encoded.indices)
