"""Header maps as Arrow map columns, masked on the way in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, repeat
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
    """Masks header values as `Redactor.header` does.

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

    def values(self, names: list[str], values: list[str]) -> list[str]:
        """Values as they may be kept, the name of each beside it."""
        masks = self._masks
        return values if masks is None else [masks[pair] for pair in zip(names, values, strict=True)]


def header_column(maps: list[HeaderMap | None], masker: HeaderMasker | None = None) -> pa.Array:
    """Header maps as an Arrow column of ``map<string, list<string>>``, masked; None is null."""
    there = [headers for headers in maps if headers]
    names = list(chain.from_iterable(there))
    lists = list(chain.from_iterable(headers.values() for headers in there))
    values = list(chain.from_iterable(lists))
    sizes = [len(found) for found in lists]
    if masker is not None:
        values = masker.values(list(chain.from_iterable(map(repeat, names, sizes))), values)
    return pa.MapArray.from_arrays(
        _offsets([None if headers is None else len(headers) for headers in maps]),
        pa.array(names, HEADERS.key_type),
        pa.ListArray.from_arrays(_offsets(sizes), pa.array(values, pa.string())),
    )


def _offsets(sizes: list[int] | list[int | None]) -> pa.Array:
    """Where each list begins, from their sizes; null where one is null."""
    ends = np.cumsum([size or 0 for size in sizes], dtype=np.int32)
    starts = np.concatenate([np.zeros(1, dtype=np.int32), ends]).astype(np.int32)
    if None not in sizes:
        return pa.array(starts)
    return pa.array(starts, mask=np.array([*(size is None for size in sizes), False]))


def first_value(headers: Mapping[str, list[str]] | None, name: str) -> str | None:
    """The first value of a header, its name compared without case."""
    for found, values in (headers or {}).items():
        if found.lower() == name and values:
            return values[0]
    return None
