"""Header maps by the column: JSON text in and out, without a Python object for any of the maps.

Raw JSON of many maps is split at its quotes into texts and the gaps between them. There are few distinct
gaps: ``":["`` after a name, ``","`` between values, ``"],"`` before the next name, and so on. Each is parsed
once; any other means that some map is not as specified, and the caller decodes value by value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.tables.text import clean

HeaderMap = dict[str, list[str]]

_ROW: Final = b"\x1e"  # between rows: a character that no JSON contains
_FENCE: Final = b'{"":[""]}'  # before the first row and after the last: every row is between two texts
_SPACE: Final = re.compile(rb"[ \t\r\n]+")
_GAP: Final = re.compile(
    rb'"(?:'
    rb"(?P<opens>:\[)|,|"
    rb"(?P<empty>:\[)?\](?:(?P<next>,)|(?P<ends>\}\x1e(?:(?:null|\{\})\x1e)*\{))"
    rb')"'
)
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_NO_MAP: Final = "no map of names to lists of text"
_COUNTED: Final = 16  # rows by names, to the headers there are, up to which counting is quicker than sorting

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HeaderColumn:
    """Header maps as a column, unmasked: their JSON, and where in it names and values are."""

    names: pa.DictionaryArray  # of every header of every map
    rows: _Indices  # the row of each name
    values: pa.Array  # of every header
    headers: _Indices  # the header of each value: an index of `names`
    _json: bytes  # compact, `_ROW` after each map
    _begins: npt.NDArray[np.int32]  # where the JSON of each value begins, and where it ends
    _ends: npt.NDArray[np.int32]
    _missing: npt.NDArray[np.bool_]
    _indices: pa.Array | None = None  # of the map of each row, where maps that come again are held once

    def first_values(self, name: str) -> pa.Array:
        """The first value of a header in each map, its name compared without case; null where it has none.

        >>> column = header_maps([b'{"Date": ["a", "b"]}', b"null", b'{"Age": ["1"], "date": ["c"]}'])
        >>> column.first_values("date").to_pylist()
        ['a', None, 'c']
        """
        wanted = np.array([first.lower() == name for first in self.names.dictionary.to_pylist()], dtype=bool)
        first = np.full(len(self._missing), -1)
        if wanted.any():
            at = np.flatnonzero(wanted[self.names.indices.to_numpy()[self.headers]])
            # from the last to the first, so that the first one of a map is what stays
            first[self.rows[self.headers[at[::-1]]]] = at[::-1]
        return self._of_rows(self.values.take(pa.array(first, mask=first < 0)))

    def texts(self, values: pa.Array | None = None) -> pa.Array:
        """The maps as compact JSON, null where there is none; with other `values`, if any."""
        whole = self._json if values is None or values is self.values else self._with(values)
        ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == _ROW[0]) - np.arange(len(self._missing))
        buffers = [
            pa.py_buffer(np.packbits(~self._missing, bitorder="little")),
            pa.py_buffer(np.append(0, ends).astype(np.int32)),
            pa.py_buffer(whole.replace(_ROW, b"")),
        ]
        return self._of_rows(
            pa.Array.from_buffers(pa.binary(), len(self._missing), buffers).cast(pa.string())
        )

    def _of_rows(self, column: pa.Array) -> pa.Array:
        return column if self._indices is None else column.take(self._indices)

    def _with(self, values: pa.Array) -> bytes:
        """The JSON with other values in it; what is between them is copied."""
        other = pc.not_equal(values, self.values)
        changed = np.flatnonzero(other.to_numpy(zero_copy_only=False))
        cuts = np.empty(2 * len(changed) + 2, np.int32)
        cuts[0], cuts[-1] = 0, len(self._json)
        cuts[1:-1:2], cuts[2:-1:2] = self._begins[changed], self._ends[changed]
        encoded = values.filter(other).dictionary_encode()
        written = [msgspec.json.encode(text)[1:-1] for text in encoded.dictionary.to_pylist()]
        segments = _cut(self._json, cuts)
        choice = np.arange(len(segments))
        choice[1::2] = len(segments) + encoded.indices.to_numpy()
        joined = pa.concat_arrays([segments, pa.array(written, pa.binary())]).take(pa.array(choice))
        data: bytes = joined.buffers()[2].to_pybytes()
        return data


def header_column(maps: Sequence[Mapping[str, Sequence[str]] | None]) -> HeaderColumn:
    """A column of maps that are Python objects; None is null."""
    return header_maps([msgspec.json.encode(headers) for headers in maps])


def header_map(value: Any) -> HeaderMap | None:
    """A header map from the wire: name to values, a single text as one value; None where it is not a map."""
    if not isinstance(value, dict):
        return None
    headers: HeaderMap = {}
    for name, values in value.items():
        several = [values] if isinstance(values, str) else values
        if not isinstance(several, list) or not all(isinstance(item, str) for item in several):
            return None
        headers[clean(name)] = [clean(item) for item in several]
    return headers


def header_maps(raws: Sequence[bytes | msgspec.Raw]) -> HeaderColumn:
    """Raw header maps, well-formed JSON, as a column.

    A map is an object of lists of text, or null. ValueError where a row is something else, has a name twice,
    or a text that is not UTF-8 or represents what UTF-8 cannot write.

    >>> rows = [b'{"A": ["x", "y"], "B": []}', b"null"]
    >>> header_maps(rows).texts().to_pylist()
    ['{"A":["x","y"],"B":[]}', None]
    """
    whole = _ROW.join([_FENCE, *raws, _FENCE])
    if b"\\" in whole:
        rows = [_TEXT.sub(_plainly, row) if b"\\" in row else row for row in map(bytes, raws)]
        whole = _ROW.join([_FENCE, *rows, _FENCE])
    cuts = _quotes(whole)
    if len(cuts) % 2 or whole.count(_ROW) != len(raws) + 1:
        raise ValueError(_NO_MAP)
    cuts[::2] += 1  # after a quote that opens, before one that closes: texts and gaps in turn
    segments = _cut(whole, cuts)
    gaps = segments.take(pa.array(np.arange(1, len(segments), 2))).dictionary_encode()
    distinct = gaps.dictionary.to_pylist()
    parsed = [_parsed(gap) for gap in distinct]
    kinds = gaps.indices.to_numpy()
    if any(_SPACE.search(gap) for gap in distinct):  # as many writers space JSON: written without
        compact = pa.array([_SPACE.sub(b"", gap) for gap in distinct], pa.binary())
        choice = np.arange(len(segments))
        choice[1::2] = len(segments) + kinds
        segments = pa.concat_arrays([segments, compact]).take(pa.array(choice))
        _, offsets, data = segments.buffers()
        whole = _FENCE[:2] + data.to_pybytes() + _FENCE[-3:]
        cuts = np.frombuffer(offsets, np.int32)[: len(segments) + 1] + 2
    follows_name, precedes_name, ended = (np.array(meaning)[kinds] for meaning in zip(*parsed, strict=True))
    row = np.cumsum(ended) - 1  # of the text after each gap
    if row[-1] != len(raws) or (precedes_name[:-1] != follows_name[1:]).any():
        raise ValueError(_NO_MAP)

    missing = np.zeros(len(raws), bool)
    for kind, gap in enumerate(distinct):
        # what is between the ends of two rows in a gap is a row without any text: null, or empty
        between = gap.split(_ROW)[1:-1]
        for index, text in enumerate(between):
            missing[row[kinds == kind] - len(between) + index] = b"null" in text
    inner = slice(1, -2)  # without the texts of the fences; the text after gap 1 is segment 4
    is_name = precedes_name[inner]
    names_at, values_at = np.flatnonzero(is_name), np.flatnonzero(~is_name)
    escapes = b"\\" in whole
    start = len(_FENCE) + len(_ROW)
    column = HeaderColumn(
        names=_texts(segments, 2 * names_at + 4, escapes=escapes).dictionary_encode(),
        rows=row[inner][names_at],
        values=_texts(segments, 2 * values_at + 4, escapes=escapes),
        headers=np.cumsum(is_name)[values_at] - 1,
        _json=whole[start : len(whole) - len(_FENCE)],
        _begins=cuts[2 * values_at + 4] - start,
        _ends=cuts[2 * values_at + 5] - start,
        _missing=missing,
    )
    if _repeated(column.rows, column.names):
        raise ValueError("a name twice")
    return column


def distinct_header_maps(raws: pa.Array) -> HeaderColumn:
    """The same of a column of raw maps, in which those that come again are held once if they are many."""
    encoded = raws.dictionary_encode()
    if 2 * len(encoded.dictionary) > len(raws):
        return header_maps(raws.to_pylist())
    return replace(header_maps(encoded.dictionary.to_pylist()), _indices=encoded.indices)


def _plainly(text: re.Match[bytes]) -> bytes:
    """A JSON text with no more escapes than it needs, so that equal texts are written alike."""
    return msgspec.json.encode(msgspec.json.decode(text[0], type=str)) if b"\\" in text[0] else text[0]


def _cut(whole: bytes, cuts: npt.NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(whole)])


def _quotes(whole: bytes) -> npt.NDArray[np.int32]:
    """The positions of quotes that begin or end a text."""
    characters = np.frombuffer(whole, np.uint8)
    quotes = np.flatnonzero(characters == _QUOTE).astype(np.int32)
    slashes = np.flatnonzero(characters == _BACKSLASH)
    if not len(slashes):
        return quotes
    # a quote after an odd number of backslashes is part of its text
    runs = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    lengths = np.diff(runs, append=len(slashes))
    escaped = (slashes[runs] + lengths)[lengths % 2 == 1]
    return np.setdiff1d(quotes, escaped, assume_unique=True).astype(np.int32)


def _parsed(gap: bytes) -> tuple[bool, bool, int]:
    """Whether a name is before a gap, whether one is after it, and how many rows end in it."""
    match = _GAP.fullmatch(_SPACE.sub(b"", gap))
    if match is None:
        raise ValueError(_NO_MAP)
    after_name = match["opens"] is not None or match["empty"] is not None
    before_name = match["next"] is not None or match["ends"] is not None
    return after_name, before_name, gap.count(_ROW)


def _texts(segments: pa.Array, indices: npt.NDArray[Any], *, escapes: bool) -> pa.Array:
    texts = segments.take(pa.array(indices)).cast(pa.string())
    if not escapes:
        return texts
    written = pc.match_substring(texts, "\\")
    if not written.true_count:
        return texts
    read = [msgspec.json.decode(f'"{text}"') for text in texts.filter(written).to_pylist()]
    return pc.replace_with_mask(texts, written, pa.array(read, pa.string()))


def _repeated(rows: npt.NDArray[Any], names: pa.DictionaryArray) -> bool:
    """Whether a row has a name twice."""
    pairs = rows.astype(np.int64) * len(names.dictionary) + names.indices.to_numpy()
    if len(pairs) and pairs[-1] < _COUNTED * len(pairs):
        return bool(np.bincount(pairs).max() > 1)
    return len(np.unique(pairs)) < len(pairs)
