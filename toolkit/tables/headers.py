"""Header maps as Arrow map columns, and what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.tables.schemas import HEADERS
from toolkit.tables.text import clean

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


@dataclass(frozen=True)
class HeaderColumn:
    """Header maps as an Arrow column, unmasked, and what their names are.

    Attributes
    ----------
    maps : pyarrow.MapArray
        Of ``map<string, list<string>>``, one a row.
    names : pyarrow.DictionaryArray
        Of every header, one map's behind the other's.
    """

    maps: pa.MapArray
    names: pa.DictionaryArray

    @classmethod
    def of(cls, maps: Sequence[HeaderMap | None]) -> HeaderColumn:
        """A column of these maps; None is null."""
        there = [headers for headers in maps if headers]
        names = pa.array(chain.from_iterable(there), HEADERS.key_type)
        lists = pa.array(chain.from_iterable(map(dict.values, there)), HEADERS.item_type)
        starts = np.cumsum([0, *(len(headers or ()) for headers in maps)], dtype=np.int32)
        return cls.joined(starts, [headers is None for headers in maps], names, lists)

    @classmethod
    def joined(
        cls,
        starts: npt.NDArray[np.int32],
        missing: Sequence[bool] | npt.NDArray[np.bool_],
        names: pa.Array,
        lists: pa.ListArray,
    ) -> HeaderColumn:
        """A column of its parts: where each map begins and the last one ends, and which are null."""
        mask = np.append(missing, False)
        offsets = pa.array(starts, mask=mask) if mask.any() else pa.array(starts)
        maps = pa.MapArray.from_arrays(offsets, names, lists)
        return cls(maps, names.dictionary_encode())

    def first_values(self, name: str) -> pa.Array:
        """The first value of a header in each map, its name compared without case; null where it has none.

        >>> column = HeaderColumn.of([{"Date": ["a", "b"]}, None, {"Age": ["1"], "date": ["c"]}])
        >>> column.first_values("date").to_pylist()
        ['a', None, 'c']
        """
        wanted = np.array([found.lower() == name for found in self.names.dictionary.to_pylist()], dtype=bool)
        found = np.full(len(self.maps), -1)
        if wanted.any():
            at = np.flatnonzero(wanted[self.names.indices.to_numpy()])
            starts = self.maps.items.offsets.to_numpy()
            at = at[starts[at + 1] > starts[at]]
            rows = np.searchsorted(self.maps.offsets.to_numpy(), at, side="right") - 1
            # from the last to the first, so that the first one of a map is what stays
            found[rows[::-1]] = starts[at][::-1]
        return self.maps.items.values.take(pa.array(found, mask=found < 0))
