"""Which fields the metadata of a frame has: their kinds, how many rows have them, and frequent values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from toolkit.errors import InputError
from toolkit.filters.metadata.paths import is_path
from toolkit.tables.matching import metadata_values

_DEEPEST: Final = 8
_FREQUENT: Final = 12
_TRACKED: Final = 500  # different values of a field that are counted; ids would fill the memory
_LONGEST: Final = 200  # characters of a value worth offering

Value = str | int | float | bool


@dataclass(frozen=True)
class MetadataField:
    """A field of the filter language, as metadata has it.

    Attributes
    ----------
    name : str
        Such as ``address.city``, ``tags`` or ``tags[0]``.
    kinds : tuple of str
        Of ``text``, ``number``, ``boolean``, ``array``, ``object`` and ``null``, the most frequent first.
    rows : int
        How many rows have it.
    frequent : tuple of (value, int)
        Frequent values and how often each was seen, the most frequent first; of an array, its elements.
    """

    name: str
    kinds: tuple[str, ...]
    rows: int
    frequent: tuple[tuple[Value, int], ...]


@dataclass
class _Seen:
    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    counts: Counter[tuple[str, Value]] = field(default_factory=Counter)  # by kind, as 1 == True

    def take(self, value: Any) -> None:
        self.rows += 1
        self.kinds[_kind(value)] += 1
        for item in value if isinstance(value, list) else [value]:
            key = (_kind(item), item) if isinstance(item, str | int | float) else None
            short = not isinstance(item, str) or len(item) <= _LONGEST
            if key is not None and short and (key in self.counts or len(self.counts) < _TRACKED):
                self.counts[key] += 1


def metadata_fields(frame: pd.DataFrame, *, rows: int = 2_000, most: int = 200) -> list[MetadataField]:
    """The fields that a metadata filter can ask for, learnt from the first rows of a frame.

    Parameters
    ----------
    frame : pandas.DataFrame
        With a ``metadata`` column (JSON text), as `load_vectors` or `query` gives.
    rows : int
        How many rows are looked at.
    most : int
        How many fields are given, those in the most rows.

    Returns
    -------
    list of MetadataField
        By name. Nested fields have dotted names; of arrays, the first and the last place are fields too
        (``tags[0]``, ``tags[#-1]``). Names that the filter language cannot write are left out.

    Raises
    ------
    InputError
        When the frame has no metadata column, or a row's metadata is no JSON.

    Examples
    --------
    >>> frame = pd.DataFrame({"metadata": ['{"city": "Izmir", "tags": ["eu"]}', '{"city": "Izmir"}']})
    >>> [(found.name, found.kinds, found.frequent) for found in metadata_fields(frame)][:2]
    [('city', ('text',), (('Izmir', 2),)), ('tags', ('array',), (('eu', 1),))]
    """
    if "metadata" not in frame.columns:
        raise InputError(
            "looking for metadata fields",
            got="a frame without a metadata column",
            expected="one loaded with metadata",
            next_step="Load with include_metadata=True.",
        )
    seen: dict[str, _Seen] = {}
    for read in metadata_values(frame["metadata"].head(rows)):
        for name, value in _walk(read, "", _DEEPEST):
            seen.setdefault(name, _Seen()).take(value)
    kept = sorted(seen.items(), key=lambda item: (-item[1].rows, item[0]))[:most]
    return sorted((_made(name, found) for name, found in kept), key=lambda found: found.name)


def _walk(value: Any, name: str, deeper: int) -> Iterator[tuple[str, Any]]:
    """Every field below a value, and the value itself."""
    if name:
        yield name, value
    if not deeper:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{name}.{key}" if name else key
            if "." not in key and "[" not in key and is_path(path):
                yield from _walk(inner, path, deeper - 1)
    elif isinstance(value, list) and value and name:
        yield from _walk(value[0], f"{name}[0]", deeper - 1)
        yield from _walk(value[-1], f"{name}[#-1]", deeper - 1)


def _made(name: str, seen: _Seen) -> MetadataField:
    kinds = tuple(kind for kind, _ in seen.kinds.most_common())
    frequent = sorted(seen.counts.items(), key=lambda item: (-item[1], item[0][0], item[0][1]))[:_FREQUENT]
    return MetadataField(name, kinds, seen.rows, tuple((value, count) for (_, value), count in frequent))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = ((str, "text"), (int | float, "number"), (list, "array"), (dict, "object"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")
