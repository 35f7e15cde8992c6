"""Make child tables: one row per header value, one row per label, one column per metadata field."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.arguments import choice as checked_choice
from toolkit.base.arguments import nearest
from toolkit.base.arguments import texts as checked_texts
from toolkit.base.errors import UnexpectedResultWarning
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.column_values import INT64, clean
from toolkit.tables.frame_parts import frame_parts
from toolkit.tables.frames import (
    checked_frame,
    label_lists,
    texts_of,
    to_frame,
    unreadable_column,
)
from toolkit.tables.header_maps import (
    HeaderColumn,
    HeaderMap,
    header_column,
    header_map,
    header_maps,
)
from toolkit.tables.metadata_fields import metadata_values
from toolkit.tables.schemas import HEADERS_EXPLODED, LABELS_EXPLODED

# rows of headers, so that their text stays below 2 GB, the limit of Arrow
_AT_ONCE: Final = 50_000


def explode_headers(failures: FrameLike, *, column: str = "headers") -> pd.DataFrame:
    """Return one row per header value.

    Parameters
    ----------
    failures : frame
        A frame from `load_failures`, or failures of any engine, for example of `open_snapshot`. They are read
        in parts, and on the workers of Dask; only the result has to fit into memory.
    column : {"headers", "response_headers"}
        Headers of the request or of the response.

    Returns
    -------
    pandas.DataFrame
        Columns ``dlq_id`` (str), ``name`` (str, as received), ``value`` (str), ``position`` (Int64, number of
        the value of a name, from 0). Entries without headers have no row.

    Raises
    ------
    InputError
        If the frame lacks the columns.

    Examples
    --------
    >>> explode_headers(pd.DataFrame({"dlq_id": ["a"], "headers": ['{"Accept":["x","y"]}']}))
      dlq_id    name value  position
    0      a  Accept     x         0
    1      a  Accept     y         1
    """
    checked_choice("column", column, ("headers", "response_headers"))
    return _exploded(failures, column, partial(_header_rows, column), HEADERS_EXPLODED)


def _header_rows(column: str, failures: pd.DataFrame) -> pa.Table:
    """Return one row per header value of a part of the failures."""
    ids, texts = texts_of(failures["dlq_id"]), texts_of(failures[column])
    tables = [HEADERS_EXPLODED.empty_table()]
    for start in range(0, len(texts), _AT_ONCE):
        # many rows have equal headers, so each distinct map is exploded once
        encoded = texts.slice(start, _AT_ONCE).dictionary_encode("encode")
        headers = _header_column(encoded.dictionary, column)
        is_first = np.diff(headers.headers, prepend=-1) > 0
        start_of_header = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
        positions = np.arange(len(is_first)) - start_of_header
        values = pa.StructArray.from_arrays(
            [
                headers.names.take(pa.array(headers.headers)).cast(pa.string()),
                headers.values,  # noqa: PD011 - no frame
                pa.array(positions, pa.int64()),
            ],
            fields=list(HEADERS_EXPLODED)[1:],
        )
        ends = np.searchsorted(
            headers.rows[headers.headers], np.arange(len(encoded.dictionary) + 1)
        )
        maps = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values).take(
            encoded.indices
        )
        columns = [
            ids.slice(start).take(pc.list_parent_indices(maps)),
            *maps.flatten().flatten(),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=HEADERS_EXPLODED))

    return pa.concat_tables(tables)


def explode_labels(failures: FrameLike) -> pd.DataFrame:
    """Return one row per label.

    Parameters
    ----------
    failures : frame
        A frame from `load_failures`, or failures of any engine, for example of `open_snapshot`. They are read
        in parts, and on the workers of Dask; only the result has to fit into memory.

    Returns
    -------
    pandas.DataFrame
        Columns ``dlq_id`` and ``label`` (str). Entries without labels have no row.

    Raises
    ------
    InputError
        If the frame lacks the columns.

    Examples
    --------
    >>> explode_labels(pd.DataFrame({"dlq_id": ["a"], "labels": ['["eu","beta"]']}))
      dlq_id label
    0      a    eu
    1      a  beta
    """
    return _exploded(failures, "labels", _label_rows, LABELS_EXPLODED)


def _label_rows(failures: pd.DataFrame) -> pa.Table:
    """Return one row per label of a part of the failures."""
    ids, texts = texts_of(failures["dlq_id"]), texts_of(failures["labels"])
    lists = label_lists(texts)
    columns = [ids.take(pc.list_parent_indices(lists)), lists.flatten()]

    return pa.Table.from_arrays(columns, schema=LABELS_EXPLODED)


PREFIX: Final = "metadata."
"""Begins the column of a field that has the name of another column."""
KEPT_OF_HITS: Final = frozenset({"query", "rank", "namespace", "id", "score"})
"""Columns that identify a row and, for query results, contain the score."""


def explode_metadata(
    frame: FrameLike, *, fields: Iterable[str] | None = None
) -> pd.DataFrame:
    """Return one column per metadata field. Nested fields have dotted names.

    Parameters
    ----------
    frame : pandas.DataFrame
        A frame with ``id`` and ``metadata`` columns, from `load_vectors` or `query`.
    fields : iterable of str, optional
        Fields by dotted name. If omitted, all fields that occur, sorted.

    Returns
    -------
    pandas.DataFrame
        One row per row of `frame`, with the same index. First the columns ``query``, ``rank``, ``namespace``,
        ``id`` and ``score`` that the frame has, in the same order. Then the fields: ``Int64`` if all values
        are integers, ``Float64`` if all are numbers, ``boolean``, or ``str``. Arrays, fields of mixed kinds,
        and numbers with an integer that a float would change, are JSON text: the number 1 is ``1`` and the
        text is ``"1"``, with quotes.
        ``attrs["json_fields"]`` lists these columns; `collect_metadata` is the inverse. A field with the name
        of one of the first columns becomes ``metadata.<name>``.

    Raises
    ------
    InputError
        If the frame has no metadata column.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": ["a", "b"], "metadata": ['{"city": {"name": "Izmir"}, "n": 3}', None]})
    >>> explode_metadata(frame)
      id city.name     n
    0  a     Izmir     3
    1  b       NaN  <NA>
    """
    frame = checked_frame("frame", frame, "metadata")
    members = [list(_flat(value)) for value in metadata_values(frame["metadata"])]
    rows = list(map(dict, members))
    occurring = sorted(set[str]().union(*rows))
    names = occurring
    if fields is not None:
        names = list(dict.fromkeys(checked_texts("fields", fields)))
    for message in [*_collisions(members), *_unknown(names, occurring)]:
        warnings.warn(message, UnexpectedResultWarning, stacklevel=2)
    kept_columns = [name for name in frame.columns if name in KEPT_OF_HITS]
    columns = {}
    json_fields = []
    for name in names:
        column_name = name
        if name in kept_columns:
            column_name = f"{PREFIX}{name}"
        values = [row.get(name) for row in rows]
        column_type = _column_type(values)
        columns[column_name] = _column(values, column_type, frame.index)
        if column_type is _JSON:
            json_fields.append(column_name)

    exploded = pd.concat(
        [frame[kept_columns], pd.DataFrame(columns, index=frame.index)], axis=1
    )
    exploded.attrs["json_fields"] = json_fields
    return exploded


def _unknown(requested: list[str], occurring: list[str]) -> list[str]:
    """Return a message per requested field that no metadata have; none if no metadata have any field."""
    if not occurring:
        return []

    return [
        f"No metadata has a field {name!r}. {nearest(name, occurring)}"
        for name in requested
        if name not in occurring
    ]


def _collisions(members: list[list[tuple[str, Any]]]) -> list[str]:
    """Return a message if a row has a field twice, for example ``{"a.b": 1, "a": {"b": 2}}``."""
    colliding = [pairs for pairs in members if len(dict(pairs)) < len(pairs)]
    if not colliding:
        return []

    counts = Counter(name for name, _ in colliding[0])
    name = counts.most_common(1)[0][0]
    message = (
        f"In {len(colliding):,} of {len(members):,} rows, a field named {name!r} and a nested one have the "
        "same column: the last is kept."
    )

    return [message]


def _header_column(texts: pa.Array, column: str) -> HeaderColumn:
    """Return JSON text as a column of header maps. Edited columns are decoded value by value."""
    with suppress(ValueError):
        return header_maps(texts.cast(pa.binary()).fill_null(b"null").to_pylist())
    return header_column([_header_map(text, column) for text in texts.to_pylist()])


def _header_map(text: str | None, column: str) -> HeaderMap | None:
    if text is None:
        return None

    value: Any = text
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
    headers = header_map(value)
    if headers is None and value is not None:
        expected = 'a JSON object of lists of strings, for example {"Accept":["*/*"]}'
        raise unreadable_column(column, text, expected)

    return headers


def _exploded(
    failures: FrameLike,
    column: str,
    rows_of: Callable[[pd.DataFrame], pa.Table],
    schema: pa.Schema,
) -> pd.DataFrame:
    """Return the rows that a function makes of each part of the failures."""
    names = ["dlq_id", column]
    parts = frame_parts(failures)
    if parts is None:
        return to_frame(rows_of(checked_frame("failures", failures, *names)))

    checked_frame("failures", parts.empty, *names)
    tables = [schema.empty_table(), *parts.map(rows_of, names)]
    return to_frame(pa.concat_tables(tables))


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each field with a dotted name. Empty nested objects are values, null is left out."""
    if value and isinstance(value, Mapping):
        for key, inner in value.items():
            name = clean(key)
            if prefix:
                name = f"{prefix}.{name}"
            yield from _flat(inner, name)
    elif prefix and value is not None:
        yield prefix, value


class _ColumnType(NamedTuple):
    """The type of a column of metadata, and the function that converts a value to it."""

    dtype: str
    convert: Callable[[Any], Any]


_BOOLEANS: Final = _ColumnType("boolean", bool)
_INTEGERS: Final = _ColumnType("Int64", int)
_NUMBERS: Final = _ColumnType("Float64", float)
_TEXTS: Final = _ColumnType("str", clean)
# all values become JSON, strings included: otherwise 1 and "1" would be the same
_JSON: Final = _ColumnType("str", json.dumps)

_TYPES_BY_KINDS: Final[dict[frozenset[type], _ColumnType]] = {
    frozenset({bool}): _BOOLEANS,
    frozenset({int}): _INTEGERS,
    frozenset({float}): _NUMBERS,
    frozenset({int, float}): _NUMBERS,
    frozenset({str}): _TEXTS,
    frozenset(): _TEXTS,
}
"""The narrowest type of column by the types of the values; `_JSON` for all other mixtures."""


def _column_type(values: list[Any]) -> _ColumnType:
    """Return the narrowest type that fits all values.

    The types of Python decide, not the values: True is no 1, and 1.0 is no integer. For example, [1, None] is
    Int64, [1, 2.5] is Float64, and [1, "a"] is JSON text. So is [2**53 + 1, 2.5]: no integer loses digits.
    """
    kinds = frozenset(map(type, values)) - {type(None)}
    column_type = _TYPES_BY_KINDS.get(kinds, _JSON)
    if int not in kinds or column_type is _JSON:
        return column_type

    integers = [value for value in values if type(value) is int]
    if column_type is _INTEGERS and min(integers) >= -INT64 and max(integers) < INT64:
        return _INTEGERS
    # a float would change the last digits of these integers, so they stay text
    if not all(map(_is_exact_as_float, integers)):
        return _JSON

    return _NUMBERS


def _is_exact_as_float(number: int) -> bool:
    """Return whether a float keeps all digits: 2**53 is exact, and 2**53 + 1 is not."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _column(
    values: list[Any], column_type: _ColumnType, index: pd.Index[Any]
) -> pd.Series[Any]:
    """Return values as a column of a type. None is missing."""
    convert = column_type.convert
    converted = [None if value is None else convert(value) for value in values]
    return pd.Series(converted, index=index, dtype=column_type.dtype)
