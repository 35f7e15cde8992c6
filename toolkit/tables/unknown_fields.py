"""Fields that no schema knows, from raw JSON to one JSON text a row.

Most of them are a plain word or number, which stands in the text as it came. Those are told by the column;
everything else is read and written value by value, each distinct one once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.members import read
from toolkit.redaction import Redactor
from toolkit.secret_patterns import LIKELY, SUSPICIOUS, WORDS, is_secret_name
from toolkit.tables.masking import holding_own, plain_escapes_read
from toolkit.tables.text import masked_json

# Text that JSON writes as it stands, and numbers whose digits Python would write again.
_PLAIN: Final = r'\A(?:"[ !#-\[\]-~]*"|0|-?[1-9][0-9]{0,17}|true|false|null)\z'
ABSENT: Final = msgspec.Raw(b"")
"""Stands where a row has a field not: no JSON is empty."""

_SUSPICIOUS: Final = SUSPICIOUS.replace("|^/", '|^"/')
# also what may be masked for a name around it, however the name goes on
_LIKELY: Final = f'{LIKELY}|"[/?]|(?i:{"|".join(WORDS)})'
_FEW: Final = 32  # values for which the closer test costs more than it saves


def unknown_json(
    fields: Mapping[str, Sequence[msgspec.Raw]], redactor: Redactor | None, *, rows: int
) -> pa.Array:
    """What `masked_json` makes of each row's unknown fields, as a column.

    Parameters
    ----------
    fields : mapping
        Name of a field to its raw JSON in each row, `ABSENT` where the row has it not.
    redactor : Redactor or None
    rows : int
        How many rows there are, for when there are no fields.

    Returns
    -------
    pyarrow.Array
        JSON text, null in rows that have none of the fields.

    Raises
    ------
    ValueError
        When a value is no JSON.

    Examples
    --------
    >>> unknown_json({"b": [msgspec.Raw(b"1"), ABSENT], "a": [msgspec.Raw(b'"x"'), ABSENT]}, None, rows=2)[0]
    <pyarrow.StringScalar: '{"a":"x","b":1}'>
    """
    members = []
    for name in sorted(fields):
        column = _column(fields[name])
        if column.null_count < rows:
            members.append(_members(name, column, redactor))
    if not members:
        return pa.nulls(rows, pa.string())
    # not null_handling="skip", which leaves out rows that have nothing
    inner = pc.binary_join_element_wise(*members, "", null_handling="replace", null_replacement="")
    whole = pc.binary_join_element_wise(pc.binary_replace_slice(inner, 0, 1, "{"), "}", "")
    return pc.if_else(pc.equal(inner, ""), None, whole)


def _column(raws: Sequence[msgspec.Raw]) -> pa.Array:
    """Raw values as a column, made of their bytes without an object for any."""
    sizes = np.fromiter(map(len, raws), np.int32, len(raws))
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
    there = np.packbits(sizes > 0, bitorder="little")
    buffers = [pa.py_buffer(there), pa.py_buffer(ends), pa.py_buffer(b"".join(raws))]
    return pa.Array.from_buffers(pa.binary(), len(raws), buffers)


def _members(name: str, column: pa.Array, redactor: Redactor | None) -> pa.Array:
    """The column's values as members of an object, a comma and the name before each; null stays null."""
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    hidden = np.full(len(distinct), redactor is not None)
    if redactor is not None and not is_secret_name(name):
        hidden = _likely_secret(distinct)
    odd = hidden | ~pc.match_substring_regex(distinct, _PLAIN).to_numpy(zero_copy_only=False)
    if odd.any():
        values = map(read, distinct.filter(pa.array(odd)).to_pylist())
        maskers = (redactor if one else None for one in hidden[odd])
        written = [_value(name, value, masker) for value, masker in zip(values, maskers, strict=True)]
        distinct = pc.replace_with_mask(distinct, pa.array(odd), pa.array(written, pa.binary()))
    named = pc.binary_join_element_wise(f",{json.dumps(name)}:", distinct.cast(pa.string()), "")
    return named.take(encoded.indices)


def _likely_secret(distinct: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values may hold something to mask; none that does is left out."""
    suspicious = pc.match_substring_regex(distinct, _SUSPICIOUS)
    if suspicious.true_count > _FEW:
        narrowed = pc.match_substring_regex(plain_escapes_read(distinct.filter(suspicious)), _LIKELY)
        suspicious = pc.replace_with_mask(suspicious, suspicious, narrowed)
    likely: npt.NDArray[np.bool_] = np.array(suspicious)
    likely[holding_own(distinct)] = True
    return likely


def _value(name: str, value: object, redactor: Redactor | None) -> bytes:
    whole = masked_json({name: value}, redactor) or ""
    return whole[len(json.dumps(name)) + 2 : -1].encode()
