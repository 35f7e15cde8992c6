"""Header maps as Arrow map columns, and what is read from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from toolkit.redaction import SUSPICIOUS, Redactor, is_secret_name
from toolkit.tables.schemas import HEADERS
from toolkit.tables.text import clean

_SUSPICIOUS: Final = re.compile(SUSPICIOUS)
_MOST_REMEMBERED: Final = 50_000  # pairs of name and value whose mask is kept at hand

HeaderMap = dict[str, list[str]]


def header_map(value: Any) -> HeaderMap | None:
    """A header map from the wire: name to values, a single text being one value; None when it is no map."""
    if not isinstance(value, dict):
        return None
    found: HeaderMap = {}
    for name, values in value.items():
        several = [values] if isinstance(values, str) else values
        if not isinstance(several, list) or not all(isinstance(item, str) for item in several):
            return None
        found[clean(name)] = [clean(item) for item in several]
    return found


class _Masks(dict[tuple[str, str], str]):
    """From name and value to what is kept, worked out when first asked for: headers repeat."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor
        self._secret: dict[str, bool] = {}

    def __missing__(self, pair: tuple[str, str]) -> str:
        name, value = pair
        secret = self._secret.get(name)
        if secret is None:
            secret = self._secret.setdefault(name, is_secret_name(name))
        if secret:
            kept = self._redactor.mask(value)
        else:
            kept = self._redactor.text(value) if _SUSPICIOUS.search(value) else self._redactor.own(value)
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
            self._secret.clear()
        self[pair] = kept
        return kept


class HeaderMasker:
    """Masks single header maps as `Redactor.headers` does; columns of them are `ColumnMasker`'s.

    Parameters
    ----------
    redactor : Redactor or None
        None reveals everything.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._masks = None if redactor is None else _Masks(redactor)

    def masked(self, headers: Mapping[str, list[str]]) -> HeaderMap:
        """The header map as it may be kept."""
        masks = self._masks
        if masks is None:
            return dict(headers)
        return {name: [masks[name, value] for value in values] for name, values in headers.items()}


def header_column(maps: Sequence[HeaderMap | None]) -> pa.MapArray:
    """Header maps as an Arrow column of ``map<string, list<string>>``, unmasked; None is null."""
    there = [headers for headers in maps if headers]
    names = list(chain.from_iterable(there))
    lists = list(chain.from_iterable(map(dict.values, there)))
    sizes = [0 if headers is None else len(headers) for headers in maps]
    starts = np.cumsum([0, *sizes], dtype=np.int32)
    missing = np.array([*(headers is None for headers in maps), False])
    return pa.MapArray.from_arrays(
        pa.array(starts, mask=missing) if missing.any() else pa.array(starts),
        pa.array(names, HEADERS.key_type),
        pa.array(lists, HEADERS.item_type),
    )


def first_values(column: pa.MapArray, name: str) -> pa.Array:
    """The first value of a header in each map, its name compared without case; null where it has none.

    >>> maps = header_column([{"Date": ["a", "b"]}, None, {"Age": ["1"], "date": ["c"]}])
    >>> first_values(maps, "date").to_pylist()
    ['a', None, 'c']
    """
    encoded = column.keys.dictionary_encode()
    wanted = np.array([found.lower() == name for found in encoded.dictionary.to_pylist()], dtype=bool)
    found = np.full(len(column), -1)
    if wanted.any():
        at = np.flatnonzero(wanted[encoded.indices.to_numpy()])
        starts = column.items.offsets.to_numpy()
        at = at[starts[at + 1] > starts[at]]
        rows = np.searchsorted(column.offsets.to_numpy(), at, side="right") - 1
        # from the last to the first, so that the first one of a map is what stays
        found[rows[::-1]] = starts[at][::-1]
    return column.items.values.take(pa.array(found, mask=found < 0))
