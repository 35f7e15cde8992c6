"""Decode and encode columns of header maps without a Python object per map.

A header map is an object of lists of strings, for example ``{"Age":["1","2"],"Via":[]}``. A load has two of
them per failure, so this module works on the JSON text of all maps at once:

1. Join the maps into one text, separated by a character that no JSON contains (shown as ``␞`` below).
2. Find the quotes that begin and end strings, with numpy. They cut the text into strings and the gaps between
   them::

       {"Age":["1","2"],"Via":[]}␞{"Age":["3"]}
       strings: Age   1   2   Via        Age   3
       gaps:       ":["  ","  "],"  ":[]}␞{"  ":["

3. A page of thousands of maps has only a few distinct gaps. Parse each of them once: does a name come before
   it, does a name come after it, and how many maps end in it?
4. With these three numbers per gap, numpy finds the map, the name and the role (name or value) of each
   string.

If any gap is not in the grammar, one of the maps is not as specified. The caller then decodes value by value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.tables.column_values import clean

HeaderMap = dict[str, list[str]]

_ROW_END: Final = b"\x1e"  # between maps: a character that no JSON contains
# Before the first map and after the last, so that every map is between two strings.
_FENCE: Final = b'{"":[""]}'
_SPACE: Final = re.compile(rb"[ \t\r\n]+")
_GAP: Final = re.compile(
    rb"""
    "
    (?: (?P<first_value>:\[)                                # {"Age":["1"  before the first value
      | ,                                                   # "1","2"      between two values
      | (?P<no_values>:\[)? \]                              # "Via":[]     after the last value, or no value
        (?: (?P<next_name>,)                                # "],"Via"     before another name of the map
          | (?P<next_map>\}\x1e(?:(?:null|\{\})\x1e)*\{)    # "]},{"Age"   before another map
        )
    )
    "
    """,
    re.VERBOSE,
)
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_NOT_A_MAP: Final = "not a map of names to lists of strings"
# Counting all pairs of map and name is faster than sorting the headers if there are at most this many pairs
# per header.
_COUNTABLE_PAIRS: Final = 16

_Indices = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_Offsets = npt.NDArray[np.int32]


@dataclass(frozen=True)
class HeaderColumn:
    """A column of header maps, unmasked: their JSON, with the positions of names and values."""

    names: pa.DictionaryArray
    """Name of every header of every map."""
    rows: _Indices
    """Row of each name."""
    values: pa.Array
    """Every value of every header."""
    headers: _Indices
    """Header of each value, as an index of `names`."""
    _json: bytes
    """Compact JSON, with `_ROW_END` after each map."""
    _value_starts: _Offsets
    _value_ends: _Offsets
    _missing: _Flags
    _indices: pa.Array | None = None
    """Map of each row, if equal maps are stored once."""

    def first_values(self, name: str) -> pa.Array:
        """Return the first value of a header in each map, or null. Names are compared without case.

        >>> column = header_maps([b'{"Date": ["a", "b"]}', b"null", b'{"Age": ["1"], "date": ["c"]}'])
        >>> column.first_values("date").to_pylist()
        ['a', None, 'c']
        """
        spellings = self.names.dictionary.to_pylist()
        is_spelling = np.array(
            [spelling.lower() == name for spelling in spellings], dtype=bool
        )
        value_of_map = np.full(len(self._missing), -1)

        if is_spelling.any():
            has_name = is_spelling[self.names.indices.to_numpy()]
            # assigned from the last to the first, so that the first value of a map stays
            matching_values = np.flatnonzero(has_name[self.headers])[::-1]
            value_of_map[self.rows[self.headers[matching_values]]] = matching_values

        return self._repeated(
            self.values.take(pa.array(value_of_map, mask=value_of_map < 0))
        )

    def texts(self, values: pa.Array | None = None) -> pa.Array:
        """Return the maps as compact JSON, or null. `values` replace the values of the maps."""
        joined = self._json
        if values is not None and values is not self.values:
            joined = self._with_values(values)
        # each row end that is removed moves the rest of the text by one
        row_ends = np.flatnonzero(np.frombuffer(joined, np.uint8) == _ROW_END[0])
        offsets = np.append(0, row_ends - np.arange(len(self._missing))).astype(
            np.int32
        )
        buffers = [
            pa.py_buffer(np.packbits(~self._missing, bitorder="little")),
            pa.py_buffer(offsets),
            pa.py_buffer(joined.replace(_ROW_END, b"")),
        ]
        texts = pa.Array.from_buffers(pa.binary(), len(self._missing), buffers)

        return self._repeated(texts.cast(pa.string()))

    def _repeated(self, column: pa.Array) -> pa.Array:
        """Return one value per row from one value per map."""
        if self._indices is None:
            return column
        return column.take(self._indices)

    def _with_values(self, values: pa.Array) -> bytes:
        """Return the JSON with other values. Only the values that differ are encoded, the rest is copied."""
        differs = pc.not_equal(values, self.values)
        changed = np.flatnonzero(differs.to_numpy(zero_copy_only=False))
        # segments: unchanged JSON, a changed value, unchanged JSON, a changed value, …, unchanged JSON
        cuts = np.empty(2 * len(changed) + 2, np.int32)
        cuts[0] = 0
        cuts[1:-1:2] = self._value_starts[changed]
        cuts[2:-1:2] = self._value_ends[changed]
        cuts[-1] = len(self._json)
        segments = _cut(self._json, cuts)
        new_values = values.filter(differs).dictionary_encode()
        encoded = [
            msgspec.json.encode(value)[1:-1]
            for value in new_values.dictionary.to_pylist()
        ]

        return _with_odd_segments(segments, encoded, new_values.indices.to_numpy())


class _GapMeaning(NamedTuple):
    """Meaning of the characters between two strings."""

    follows_name: bool
    precedes_name: bool
    maps_ended: int


@dataclass(frozen=True)
class _Gaps:
    """All gaps between strings, as indices of the distinct ones."""

    distinct: list[bytes]
    kinds: _Indices

    def meanings(self) -> tuple[_Flags, _Flags, _Indices]:
        """Return `_GapMeaning` as one array per field. Raise ValueError if a gap is not in the grammar."""
        parsed = [_parse_gap(gap) for gap in self.distinct]
        follows_name, precedes_name, maps_ended = (
            np.array(field)[self.kinds] for field in zip(*parsed, strict=True)
        )
        return follows_name, precedes_name, maps_ended

    def missing_maps(self, map_after: _Indices, count: int) -> _Flags:
        """Return which maps are null. `map_after` is the number of the map after each gap.

        A null or empty map has no strings, so it is part of a gap. For example, the gap ``]}␞null␞{}␞{``
        before map 7 contains maps 5 (null) and 6 (empty).
        """
        missing = np.zeros(count, bool)
        for kind, gap in enumerate(self.distinct):
            maps_inside = gap.split(_ROW_END)[1:-1]
            for index, text in enumerate(maps_inside):
                if b"null" in text:
                    first_inside = map_after[self.kinds == kind] - len(maps_inside)
                    missing[first_inside + index] = True

        return missing


def header_column(maps: Sequence[Mapping[str, Sequence[str]] | None]) -> HeaderColumn:
    """Return a column of maps that are Python objects. None is null."""
    return header_maps([msgspec.json.encode(headers) for headers in maps])


def header_map(value: Any) -> HeaderMap | None:
    """Return a decoded JSON value as a header map, or None if it is not a map.

    A single string counts as a list of one: ``{"Age": "1"}`` is ``{"Age": ["1"]}``.
    """
    if not isinstance(value, dict):
        return None

    headers: HeaderMap = {}
    for name, header in value.items():
        values = header
        if isinstance(header, str):
            values = [header]
        if not isinstance(values, list) or not all(
            isinstance(item, str) for item in values
        ):
            return None

        headers[clean(name)] = [clean(item) for item in values]

    return headers


def header_maps(raws: Sequence[bytes | msgspec.Raw]) -> HeaderColumn:
    """Return raw header maps, which are well-formed JSON, as a column.

    A map is an object of lists of strings, or null. Raise ValueError if a row is something else, if a map has
    a name twice, or if a string is not UTF-8 or contains a lone surrogate.

    >>> rows = [b'{"A": ["x", "y"], "B": []}', b"null"]
    >>> header_maps(rows).texts().to_pylist()
    ['{"A":["x","y"],"B":[]}', None]
    """
    joined = _joined(raws)
    cuts = _string_bounds(joined)
    if len(cuts) % 2 or joined.count(_ROW_END) != len(raws) + 1:
        raise ValueError(_NOT_A_MAP)

    # segment 0 is the first string, segment 1 the first gap, and so on
    segments = _cut(joined, cuts)
    gaps = _gaps(segments)
    follows_name, precedes_name, maps_ended = gaps.meanings()
    if any(_SPACE.search(gap) for gap in gaps.distinct):
        joined, cuts, segments = _without_spaces(segments, gaps)
    map_after = np.cumsum(maps_ended) - 1
    # every name is followed by its values, and the last map is the last one given
    if map_after[-1] != len(raws) or (precedes_name[:-1] != follows_name[1:]).any():
        raise ValueError(_NOT_A_MAP)

    # Skip the strings of both fences. The string after gap 0 is the value of the first fence, so the first
    # string of a map comes after gap 1 and is segment 4.
    inner = slice(1, -2)
    is_name = precedes_name[inner]
    name_positions, value_positions = np.flatnonzero(is_name), np.flatnonzero(~is_name)
    name_segments, value_segments = 2 * name_positions + 4, 2 * value_positions + 4
    has_escapes = b"\\" in joined
    start = len(_FENCE) + len(_ROW_END)
    column = HeaderColumn(
        names=_strings(
            segments, name_segments, has_escapes=has_escapes
        ).dictionary_encode(),
        rows=map_after[inner][name_positions],
        values=_strings(segments, value_segments, has_escapes=has_escapes),
        headers=np.cumsum(is_name)[value_positions] - 1,
        _json=joined[start : len(joined) - len(_FENCE)],
        _value_starts=cuts[value_segments] - start,
        _value_ends=cuts[value_segments + 1] - start,
        _missing=gaps.missing_maps(map_after, len(raws)),
    )
    if _has_repeated_name(column.rows, column.names):
        raise ValueError("a map with the same name twice")

    return column


def distinct_header_maps(raws: pa.Array) -> HeaderColumn:
    """Return a column of raw maps. If at least half of them are repetitions, equal maps are stored once."""
    encoded = raws.dictionary_encode()
    if 2 * len(encoded.dictionary) > len(raws):
        return header_maps(raws.to_pylist())

    return replace(
        header_maps(encoded.dictionary.to_pylist()), _indices=encoded.indices
    )


def _joined(raws: Sequence[bytes | msgspec.Raw]) -> bytes:
    """Return all maps as one text, between two fences. Equal strings have equal escapes in it."""
    joined = _ROW_END.join([_FENCE, *raws, _FENCE])
    if b"\\" not in joined:
        return joined

    rows = [_STRING.sub(_with_fewest_escapes, bytes(row)) for row in raws]
    return _ROW_END.join([_FENCE, *rows, _FENCE])


def _with_fewest_escapes(string: re.Match[bytes]) -> bytes:
    r"""Return a JSON string with only the necessary escapes, for example ``"a/b"`` for ``"a\/b"``."""
    if b"\\" not in string[0]:
        return string[0]
    return msgspec.json.encode(msgspec.json.decode(string[0], type=str))


def _string_bounds(joined: bytes) -> _Offsets:
    """Return the positions that separate strings and gaps.

    An opening quote belongs to the gap before the string, a closing quote to the gap after it.
    """
    quotes = _quotes(joined)
    quotes[::2] += 1
    return quotes


def _quotes(joined: bytes) -> _Offsets:
    """Return the positions of quotes that begin or end a string."""
    characters = np.frombuffer(joined, np.uint8)
    quotes = np.flatnonzero(characters == _QUOTE).astype(np.int32)
    backslashes = np.flatnonzero(characters == _BACKSLASH)
    if not len(backslashes):
        return quotes

    # A quote after an odd number of backslashes is part of the string: \" is a quote, \\" ends a string.
    run_starts = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    run_lengths = np.diff(run_starts, append=len(backslashes))
    after_run = backslashes[run_starts] + run_lengths
    escaped = after_run[run_lengths % 2 == 1]

    return np.setdiff1d(quotes, escaped, assume_unique=True).astype(np.int32)


def _cut(joined: bytes, cuts: _Offsets) -> pa.Array:
    """Return the segments between consecutive positions, without a copy."""
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(cuts) - 1, buffers)


def _gaps(segments: pa.Array) -> _Gaps:
    odd_segments = segments.take(pa.array(np.arange(1, len(segments), 2)))
    encoded = odd_segments.dictionary_encode()
    return _Gaps(encoded.dictionary.to_pylist(), encoded.indices.to_numpy())


def _parse_gap(gap: bytes) -> _GapMeaning:
    match = _GAP.fullmatch(_SPACE.sub(b"", gap))
    if match is None:
        raise ValueError(_NOT_A_MAP)

    follows_name = match["first_value"] is not None or match["no_values"] is not None
    precedes_name = match["next_name"] is not None or match["next_map"] is not None
    return _GapMeaning(follows_name, precedes_name, gap.count(_ROW_END))


def _without_spaces(
    segments: pa.Array, gaps: _Gaps
) -> tuple[bytes, _Offsets, pa.Array]:
    """Return the text, the cuts and the segments with compact gaps.

    For example, ``{"A": ["x"]}`` becomes ``{"A":["x"]}``.
    """
    compact_gaps = [_SPACE.sub(b"", gap) for gap in gaps.distinct]
    compact = _replace_odd_segments(segments, compact_gaps, gaps.kinds)
    _, offsets, data = compact.buffers()
    # the first segment is the first string, so the two characters before it and three after the last are
    # missing
    joined = _FENCE[:2] + data.to_pybytes() + _FENCE[-3:]
    cuts = np.frombuffer(offsets, np.int32)[: len(compact) + 1] + 2

    return joined, cuts, compact


def _replace_odd_segments(
    segments: pa.Array, replacements: list[bytes], choices: _Indices
) -> pa.Array:
    """Replace segments 1, 3, 5, … by the chosen replacements."""
    candidates = pa.concat_arrays([segments, pa.array(replacements, pa.binary())])
    order = np.arange(len(segments))
    order[1::2] = len(segments) + choices

    return candidates.take(pa.array(order))


def _with_odd_segments(
    segments: pa.Array, replacements: list[bytes], choices: _Indices
) -> bytes:
    """Return the text that the segments make after `_replace_odd_segments`."""
    replaced = _replace_odd_segments(segments, replacements, choices)
    joined: bytes = replaced.buffers()[2].to_pybytes()
    return joined


def _strings(
    segments: pa.Array, indices: npt.NDArray[Any], *, has_escapes: bool
) -> pa.Array:
    """Return segments as strings, without escapes."""
    strings = segments.take(pa.array(indices)).cast(pa.string())
    if not has_escapes:
        return strings

    is_escaped = pc.match_substring(strings, "\\")
    if not is_escaped.true_count:
        return strings

    escaped = strings.filter(is_escaped).to_pylist()
    decoded = [msgspec.json.decode(f'"{string}"') for string in escaped]
    return pc.replace_with_mask(strings, is_escaped, pa.array(decoded, pa.string()))


def _has_repeated_name(rows: npt.NDArray[Any], names: pa.DictionaryArray) -> bool:
    """Return True if a map has the same name twice."""
    if not len(rows):
        return False

    # one number per pair of map and name
    pairs = rows.astype(np.int64) * len(names.dictionary) + names.indices.to_numpy()
    if pairs[-1] < _COUNTABLE_PAIRS * len(pairs):
        return bool(np.bincount(pairs).max() > 1)

    return len(np.unique(pairs)) < len(pairs)
