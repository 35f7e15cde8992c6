"""Header maps by the column: raw JSON of many maps is cut at its quotes, without an object for any of them.

Between two texts of such maps stand few different things: ``": ["`` behind a name, ``", "`` between values,
``"], "`` before the next name, and so on. Each distinct one is understood once; one that is not understood
means that some map is not as specified, and the whole is left to those who look at every value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.tables.headers import HeaderColumn
from toolkit.tables.schemas import HEADERS

_ROW: Final = b"\x1e"  # between rows: a character that stands nowhere in JSON
_FENCE: Final = b'{"":[""]}'  # before the first row and behind the last: every row lies between two texts
_SPACE: Final = re.compile(rb"[ \t\r\n]+")
_GAP: Final = re.compile(
    rb'"(?:'
    rb"(?P<opens>:\[)|,|"
    rb"(?P<empty>:\[)?\](?:(?P<next>,)|(?P<ends>\}\x1e(?:(?:null|\{\})\x1e)*\{))"
    rb')"'
)
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_COUNTED: Final = 16  # rows by names, to the headers there are, up to which counting is quicker than sorting


def header_maps(raws: Sequence[msgspec.Raw]) -> HeaderColumn | None:
    """Raw header maps as a column.

    Parameters
    ----------
    raws : sequence of msgspec.Raw
        For each row an object of lists of text, or null: JSON that was found to be well-formed.

    Returns
    -------
    HeaderColumn or None
        One map a row, its names in their order; None where a row is anything else, or has a name twice.

    Raises
    ------
    pyarrow.ArrowInvalid, msgspec.DecodeError
        When a text is not UTF-8, or stands for what UTF-8 cannot write.

    Examples
    --------
    >>> rows = [msgspec.Raw(b'{"A": ["x", "y"], "B": []}'), msgspec.Raw(b"null")]
    >>> header_maps(rows).maps.to_pylist()
    [[('A', ['x', 'y']), ('B', [])], None]
    >>> header_maps([msgspec.Raw(b'{"A": 1}')])
    """
    whole = _ROW.join([_FENCE, *raws, _FENCE])
    cuts = _quotes(whole)
    if len(cuts) % 2:
        return None
    cuts[::2] += 1  # behind a quote that opens, before one that closes: texts and gaps by turns
    pieces = pa.Array.from_buffers(
        pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(whole)]
    )
    gaps = pieces.take(pa.array(np.arange(1, len(pieces), 2))).dictionary_encode()
    understood = [_understood(gap) for gap in gaps.dictionary.to_pylist()]
    if None in understood:
        return None
    kinds = gaps.indices.to_numpy()
    follows_name, precedes_name, rows = (
        np.array(meaning)[kinds] for meaning in zip(*understood, strict=True)
    )
    row = np.cumsum(rows) - 1  # of the text behind each gap
    if row[-1] != len(raws) or (precedes_name[:-1] != follows_name[1:]).any():
        return None

    inner = slice(1, -2)  # without the texts of the fences; the text behind gap 1 is piece 4
    is_name = precedes_name[inner]
    names_at, values_at = np.flatnonzero(is_name), np.flatnonzero(~is_name)
    escapes = b"\\" in whole
    names = _texts(pieces, 2 * names_at + 4, escapes=escapes)
    values = _texts(pieces, 2 * values_at + 4, escapes=escapes)
    row_of_name = row[inner][names_at]
    starts = np.searchsorted(row_of_name, np.arange(len(raws) + 1)).astype(np.int32)
    missing = np.zeros(len(raws), bool)
    for place in np.flatnonzero(starts[1:] == starts[:-1]).tolist():
        missing[place] = bytes(raws[place]) == b"null"
    first_values = np.append(names_at - np.arange(len(names_at)), len(values_at)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(first_values), values)
    found = HeaderColumn.joined(starts, missing, names, lists.cast(HEADERS.item_type))
    return None if _repeated(row_of_name, found.names) else found


def _quotes(whole: bytes) -> npt.NDArray[np.int32]:
    """Where the quotes stand that begin or end a text."""
    characters = np.frombuffer(whole, np.uint8)
    quotes = np.flatnonzero(characters == _QUOTE).astype(np.int32)
    slashes = np.flatnonzero(characters == _BACKSLASH)
    if not len(slashes):
        return quotes
    # what stands behind an odd number of backslashes is part of its text
    runs = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    lengths = np.diff(runs, append=len(slashes))
    escaped = (slashes[runs] + lengths)[lengths % 2 == 1]
    return np.setdiff1d(quotes, escaped, assume_unique=True).astype(np.int32)


def _understood(gap: bytes) -> tuple[bool, bool, int] | None:
    """Of what stands between two texts: whether a name is before it, and behind it, and how many rows end."""
    found = _GAP.fullmatch(_SPACE.sub(b"", gap))
    if found is None:
        return None
    after_name = found["opens"] is not None or found["empty"] is not None
    before_name = found["next"] is not None or found["ends"] is not None
    return after_name, before_name, gap.count(_ROW)


def _texts(pieces: pa.Array, places: npt.NDArray[Any], *, escapes: bool) -> pa.Array:
    texts = pieces.take(pa.array(places)).cast(pa.string())
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
