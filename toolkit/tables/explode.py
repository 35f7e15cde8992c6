"""Child tables: one row a header value, one row a label, one column a metadata field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.errors import InputError
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import HEADERS_EXPLODED, LABELS_EXPLODED

_INT64: Final = 1 << 63


def explode_headers(failures: pd.DataFrame, *, column: str = "headers") -> pd.DataFrame:
    """One row a header value.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` gives it.
    column : {"headers", "response_headers"}
        Which headers.

    Returns
    -------
    pandas.DataFrame
        Columns ``dlq_id`` (str), ``name`` (str, as it came), ``value`` (str), ``position`` (Int64, counting
        the values of one name from 0). Entries without headers have no row.

    Raises
    ------
    InputError
        When the frame lacks the columns.

    Examples
    --------
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import FAILURES
    >>> failures = frame_from_rows([{"dlq_id": "a", "headers": [("Accept", ["x", "y"])]}], FAILURES)
    >>> explode_headers(failures)
      dlq_id    name value  position
    0      a  Accept     x         0
    1      a  Accept     y         1
    """
    rows = [
        {"dlq_id": dlq_id, "name": name, "value": value, "position": position}
        for dlq_id, headers in _pairs(failures, column)
        for name, values in headers
        for position, value in enumerate(values or ())
    ]
    return to_frame(pa.Table.from_pylist(rows, schema=HEADERS_EXPLODED))


def explode_labels(failures: pd.DataFrame) -> pd.DataFrame:
    """One row a label.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` gives it.

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
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import FAILURES
    >>> explode_labels(frame_from_rows([{"dlq_id": "a", "labels": ["eu", "beta"]}], FAILURES))
      dlq_id label
    0      a    eu
    1      a  beta
    """
    rows = [
        {"dlq_id": dlq_id, "label": label}
        for dlq_id, labels in _pairs(failures, "labels")
        for label in labels
    ]
    return to_frame(pa.Table.from_pylist(rows, schema=LABELS_EXPLODED))


def explode_metadata(frame: pd.DataFrame, *, fields: Iterable[str] | None = None) -> pd.DataFrame:
    """One column a metadata field, nested fields under dotted names.

    Parameters
    ----------
    frame : pandas.DataFrame
        With ``id`` and ``metadata`` columns, as `load_vectors` or `query` gives.
    fields : iterable of str, optional
        Which fields, by dotted name. Default: all that occur, sorted.

    Returns
    -------
    pandas.DataFrame
        ``namespace`` (where the frame has it) and ``id``, then the fields: ``Int64`` where all values are
        whole numbers, ``Float64`` where all are numbers, ``boolean``, or ``str``. Arrays, and fields of mixed
        kinds, are JSON text. A field named like one of the first two becomes ``metadata.<name>``. One row a
        row of `frame`, with its index.

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
    if "metadata" not in frame.columns:
        raise InputError(
            "exploding metadata",
            got="a frame without a metadata column",
            expected="one loaded with metadata",
            next_step="Load with include_metadata=True.",
        )
    rows = [dict(_flat(json.loads(text))) if isinstance(text, str) else {} for text in frame["metadata"]]
    wanted = sorted({name for row in rows for name in row}) if fields is None else list(dict.fromkeys(fields))
    keys = [name for name in ("namespace", "id") if name in frame.columns]
    columns = {
        f"metadata.{name}" if name in keys else name: _column([row.get(name) for row in rows], frame.index)
        for name in wanted
    }
    return pd.concat([frame[keys], pd.DataFrame(columns, index=frame.index)], axis=1)


def _pairs(failures: pd.DataFrame, column: str) -> Iterator[tuple[str, Any]]:
    for name in ("dlq_id", column):
        if name not in failures.columns:
            raise InputError(
                f"exploding {column}",
                got=f"a frame without a {name!r} column",
                expected="a frame of failures",
            )
    for dlq_id, value in zip(failures["dlq_id"], failures[column], strict=True):
        if value is not None and value is not pd.NA:
            yield dlq_id, value


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not prefix):
        for name, inner in value.items():
            yield from _flat(inner, f"{prefix}.{name}" if prefix else name)
    elif value is not None and prefix:
        yield prefix, value


def _column(values: list[Any], index: pd.Index[Any]) -> pd.Series[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pd.Series(values, index=index, dtype="boolean")
    if kinds == {int} and all(value is None or -_INT64 <= value < _INT64 for value in values):
        return pd.Series(values, index=index, dtype="Int64")
    if kinds and kinds <= {int, float}:
        floats = [None if value is None else float(value) for value in values]
        return pd.Series(floats, index=index, dtype="Float64")
    texts = [value if isinstance(value, str | None) else json.dumps(value) for value in values]
    return pd.Series(texts, index=index, dtype="str")
