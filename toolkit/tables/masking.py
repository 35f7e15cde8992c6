"""Whole columns masked as `Redactor` masks single values, each distinct value once.

Most values hold nothing to mask. A quick look over the distinct values of a column finds those that may; only
they are given to the `Redactor`, and a column without any is handed back as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.redaction import Redactor
from toolkit.secret_patterns import SUSPICIOUS, SUSPICIOUS_URL, is_secret_name
from toolkit.tables.header_maps import HeaderColumn

_SUSPICIOUS: Final = re.compile(SUSPICIOUS)
_SUSPICIOUS_URL: Final = re.compile(SUSPICIOUS_URL)
_REMEMBERED: Final = 10_000  # masks of each kind that are at hand for the next piece of a load
_FEW: Final = 32  # values for which making Arrow's matcher costs more than it saves


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
        return self._where_likely(column, _SUSPICIOUS, self._text)

    def urls(self, column: pa.Array) -> pa.Array:
        """A column of URLs, masked as by `Redactor.url`."""
        if self._redactor is None:
            return column
        return self._where_likely(column, _SUSPICIOUS_URL, self._url)

    def own(self, column: pa.Array) -> pa.Array:
        """A column of text with our own live tokens masked, and nothing else."""
        redactor = self._redactor
        if redactor is None or not self.may_hold_own(column):
            return column
        # a search of the bytes is much quicker than the substitution that most rows do not need
        kept = [
            redactor.own(text) if text and redactor.holds_own(text.encode()) else text
            for text in column.to_pylist()
        ]
        return pa.array(kept, column.type)

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

    def may_hold_own(self, column: pa.Array) -> bool:
        """Whether a column of text may hold one of our own live tokens; never misses one."""
        data = column.buffers()[-1]
        return self._redactor is not None and data is not None and self._redactor.holds_own(data.to_pybytes())

    def _where_likely(
        self, column: pa.Array, likely: re.Pattern[str], mask: Callable[[str], str]
    ) -> pa.Array:
        encoded = column.dictionary_encode()
        distinct = encoded.dictionary
        if self.may_hold_own(distinct):
            return _each(column, mask)
        touched = _matching(distinct, likely)
        if touched.true_count == 0:
            return column
        masked = pa.array([mask(text) for text in distinct.filter(touched).to_pylist()], pa.string())
        return pc.replace_with_mask(distinct, touched, masked).take(encoded.indices)


def _matching(column: pa.Array, pattern: re.Pattern[str]) -> pa.Array:
    """Which values match, without nulls among them."""
    if len(column) < _FEW:
        return pa.array([pattern.search(text) is not None for text in column.to_pylist()], pa.bool_())
    return pc.match_substring_regex(column, pattern.pattern)


def _each(column: pa.Array, mask: Callable[[str], str]) -> pa.Array:
    """Every value masked, each distinct one once."""
    encoded = column.dictionary_encode()
    masked = pa.array([mask(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return masked.take(encoded.indices)
