"""Header maps as Arrow map columns, masked on the way in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from toolkit.redaction import SUSPICIOUS, Redactor, is_secret_name
from toolkit.tables.schemas import HEADERS
from toolkit.tables.text import clean

_SUSPICIOUS: Final = re.compile(SUSPICIOUS)

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


class HeaderMasker:
    """Masks header values as `Redactor.header` does, remembering what it has judged: headers repeat.

    Parameters
    ----------
    redactor : Redactor or None
        None reveals everything.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self._names: dict[str, bool] = {}

    def masked(self, headers: Mapping[str, list[str]]) -> HeaderMap:
        """The header map as it may be kept."""
        if self._redactor is None:
            return dict(headers)
        return {name: [self._value(name, value) for value in values] for name, values in headers.items()}

    def _value(self, name: str, value: str) -> str:
        redactor = self._redactor
        secret = self._names.get(name)
        if secret is None:
            secret = self._names.setdefault(name, is_secret_name(name))
        if redactor is None:
            return value
        if secret:
            return redactor.mask(value)
        return redactor.text(value) if _SUSPICIOUS.search(value) else redactor.own(value)


def header_column(maps: list[HeaderMap | None]) -> pa.Array:
    """Header maps as an Arrow column of ``map<string, list<string>>``; None is null."""
    names: list[str] = []
    values: list[list[str]] = []
    offsets: list[int | None] = []
    for headers in maps:
        offsets.append(None if headers is None else len(names))
        if headers:
            names.extend(headers)
            values.extend(headers.values())
    offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(names, HEADERS.key_type),
        pa.array(values, HEADERS.item_type),
    )


def first_value(headers: Mapping[str, list[str]] | None, name: str) -> str | None:
    """The first value of a header, its name compared without case."""
    for found, values in (headers or {}).items():
        if found.lower() == name and values:
            return values[0]
    return None
