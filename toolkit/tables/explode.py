"""Child tables: one row a header value, one row a label, one column a metadata field."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.arguments import choice as checked_choice
from toolkit.arguments import nearest
from toolkit.arguments import texts as checked_texts
from toolkit.errors import UnexpectedResultWarning
from toolkit.tables.frame_filters import metadata_values
from toolkit.tables.frames import checked_frame, label_lists, texts_of, to_frame, unreadable_column
from toolkit.tables.header_maps import HeaderColumn, header_column, header_map, header_maps
from toolkit.tables.schemas import HEADERS_EXPLODED, LABELS_EXPLODED
from toolkit.tables.text import INT64, clean

_AT_ONCE: Final = 50_000  # rows of headers: few enough for 2 GB of text


def explode_headers(failures: pd.DataFrame, *, column: str = "headers") -> pd.DataFrame:
    """One row a header value.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` returns it.
    column : {"headers", "response_headers"}
        Which headers.

    Returns
    -------
    pandas.DataFrame
        Columns ``dlq_id`` (str), ``name`` (str, as received), ``value`` (str), ``position`` (Int64, counting
        the values of one name from 0). Entries without headers have no row.

    Raises
    ------
    InputError
        When the frame lacks the columns.

    Examples
    --------
    >>> explode_headers(pd.DataFrame({"dlq_id": ["a"], "headers": ['{"Accept":["x","y"]}']}))
      dlq_id    name value  position
    0      a  Accept     x         0
    1      a  Accept     y         1
    """
    checked_choice("column", column, ("headers", "response_headers"))
    ids, texts = _columns(failures, column)
    tables = [HEADERS_EXPLODED.empty_table()]
    for start in range(0, len(texts), _AT_ONCE):
        encoded = texts.slice(start, _AT_ONCE).dictionary_encode("encode")  # many rows have equal headers
        headers = _header_column(encoded.dictionary, column)
        first = np.diff(headers.headers, prepend=-1) > 0  # of the values of a header
        positions = np.arange(len(first)) - np.flatnonzero(first)[np.cumsum(first) - 1]
        values = pa.StructArray.from_arrays(
            [
                headers.names.take(pa.array(headers.headers)).cast(pa.string()),
                headers.values,  # noqa: PD011 - no frame
                pa.array(positions, pa.int64()),
            ],
            fields=list(HEADERS_EXPLODED)[1:],
        )
        ends = np.searchsorted(headers.rows[headers.headers], np.arange(len(encoded.dictionary) + 1))
        maps = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values).take(encoded.indices)
        columns = [ids.slice(start).take(pc.list_parent_indices(maps)), *maps.flatten().flatten()]
        tables.append(pa.Table.from_arrays(columns, schema=HEADERS_EXPLODED))
    return to_frame(pa.concat_tables(tables))


def explode_labels(failures: pd.DataFrame) -> pd.DataFrame:
    """One row a label.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` returns it.

    Returns
    -------
    pandas.DataFrame
        Columns ``dlq_id`` and ``label`` (str). Entries without labels have no row.

    Raises
    ------
    InputError
        When the frame lacks the columns.

    Examples
    --------
    >>> explode_labels(pd.DataFrame({"dlq_id": ["a"], "labels": ['["eu","beta"]']}))
      dlq_id label
    0      a    eu
    1      a  beta
    """
    ids, texts = _columns(failures, "labels")
    lists = label_lists(texts)
    columns = [ids.take(pc.list_parent_indices(lists)), lists.flatten()]
    return to_frame(pa.Table.from_arrays(columns, schema=LABELS_EXPLODED))


_KEPT_OF_HITS: Final = frozenset({"query", "rank", "namespace", "id", "score"})
"""Columns that tell which row it is, and of hits how near it is to the query."""


def explode_metadata(frame: pd.DataFrame, *, fields: Iterable[str] | None = None) -> pd.DataFrame:
    """One column a metadata field, nested fields under dotted names.

    Parameters
    ----------
    frame : pandas.DataFrame
        With ``id`` and ``metadata`` columns, as `load_vectors` or `query` returns.
    fields : iterable of str, optional
        Which fields, by dotted name. Default: all that occur, sorted.

    Returns
    -------
    pandas.DataFrame
        One row per row of `frame`, with the same index. First the columns ``query``, ``rank``, ``namespace``,
        ``id`` and ``score`` that the frame has, in its order. Then the fields: ``Int64`` if all values are
        whole numbers, ``Float64`` if all are numbers, ``boolean``, or ``str``. Arrays, and fields of mixed
        kinds, are JSON text. A field named like one of the first columns becomes ``metadata.<name>``.

    Raises
    ------
    InputError
        When the frame has no metadata column.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": ["a", "b"], "metadata": ['{"city": {"name": "Izmir"}, "n": 3}', None]})
    >>> explode_metadata(frame)
      id city.name     n
    0  a     Izmir     3
    1  b       NaN  <NA>
    """
    checked_frame("frame", frame, "metadata")
    chosen = None if fields is None else list(dict.fromkeys(checked_texts("fields", fields)))
    flat = [list(_flat(value)) for value in metadata_values(frame["metadata"])]
    rows = [dict(pairs) for pairs in flat]
    if lost := [Counter(name for name, _ in pairs) for pairs in flat if len(dict(pairs)) < len(pairs)]:
        name = lost[0].most_common(1)[0][0]
        message = (
            f"In {len(lost):,} of {len(flat):,} rows, a field named {name!r} and a nested one have the same "
            "column: the last is kept."
        )
        warnings.warn(message, UnexpectedResultWarning, stacklevel=2)
    occurring = sorted({name for row in rows for name in row})
    for name in chosen or ():
        if occurring and name not in occurring:
            message = f"No metadata has a field {name!r}. {nearest(name, occurring)}"
            warnings.warn(message, UnexpectedResultWarning, stacklevel=2)
    wanted = occurring if chosen is None else chosen
    keys = [name for name in frame.columns if name in _KEPT_OF_HITS]
    columns = {
        f"metadata.{name}" if name in keys else name: _column([row.get(name) for row in rows], frame.index)
        for name in wanted
    }
    return pd.concat([frame[keys], pd.DataFrame(columns, index=frame.index)], axis=1)


def _header_column(texts: pa.Array, column: str) -> HeaderColumn:
    with suppress(ValueError):
        return header_maps(texts.cast(pa.binary()).fill_null(b"null").to_pylist())
    maps = []
    for text in texts.to_pylist():
        try:
            read = None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            read = text
        headers = header_map(read)
        if headers is None and read is not None:
            raise unreadable_column(
                column, text, 'a JSON object of lists of texts, such as {"Accept":["*/*"]}'
            )
        maps.append(headers)
    return header_column(maps)


def _columns(failures: pd.DataFrame, column: str) -> tuple[pa.Array, pa.Array]:
    checked_frame("failures", failures, "dlq_id", column)
    return texts_of(failures["dlq_id"]), texts_of(failures[column])


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not prefix):
        for name, inner in value.items():
            yield from _flat(inner, f"{prefix}.{clean(name)}" if prefix else clean(name))
    elif value is not None and prefix:
        yield prefix, value


def _column(values: list[Any], index: pd.Index[Any]) -> pd.Series[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pd.Series(values, index=index, dtype="boolean")
    if kinds == {int} and all(value is None or -INT64 <= value < INT64 for value in values):
        return pd.Series(values, index=index, dtype="Int64")
    if kinds and kinds <= {int, float}:
        with suppress(OverflowError):  # an integer beyond all floats: its digits are kept as text
            floats = [None if value is None else float(value) for value in values]
            return pd.Series(floats, index=index, dtype="Float64")
    texts = [
        clean(value) if isinstance(value, str) else None if value is None else json.dumps(value)
        for value in values
    ]
    return pd.Series(texts, index=index, dtype="str")
