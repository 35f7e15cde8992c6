"""Columns of older schema versions as those of today: what lets a newer toolkit read every older snapshot.

Versions 1 to 4 had the same columns, and differed in the index alone, which a sync makes again from the rows.
Then headers were maps, labels lists, bodies that are not UTF-8 bytes, and the times between which an entry
left the queue a struct (see ``docs/decisions/0013-columns-that-pandas-can-use.md``).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.snapshots.columns import FAILURES_AT_REST, GONE_AFTER, GONE_BEFORE, TABLES
from toolkit.snapshots.manifest import SCHEMA_VERSION, Kind, Manifest
from toolkit.tables.schemas import TIME
from toolkit.tables.text import labels_json

_RENAMED: Final = {
    "gone_between": (GONE_AFTER, GONE_BEFORE),
    "body_bytes": ("body_base64",),
    "response_body_bytes": ("response_body_base64",),
    "source_body_bytes": ("source_body_base64",),
}
_ADDED: Final = frozenset({"body_truncated", "source_body_truncated"})
"""Columns of callbacks that older versions had not: they are null there."""
_BODIES: Final = ("body", "response_body", "source_body")


def is_older(manifest: Manifest) -> bool:
    """Whether a snapshot was written in an older schema version."""
    return manifest.schema_version < SCHEMA_VERSION


def current_names(names: Iterable[str]) -> list[str]:
    """What columns are called today, in today's order where they are those of one of the toolkit's tables.

    >>> current_names(["body", "body_bytes"])
    ['body', 'body_base64']
    """
    found = [new for name in names for new in _RENAMED.get(name, (name,))]
    known = (list(table.names) for table in TABLES if set(table.names) == {*found, *_ADDED & {*table.names}})
    return next(known, found)


def current_scope(manifest: Manifest) -> dict[str, Any]:
    """What a snapshot is bound to, in today's terms."""
    if not is_older(manifest) or "columns" not in manifest.scope:
        return manifest.scope
    return manifest.scope | {"columns": current_names(manifest.scope["columns"])}


def current_columns(table: pa.Table, kind: Kind) -> pa.Table:
    r"""Rows of an older version with the columns of today.

    Parameters
    ----------
    table : pyarrow.Table
    kind : {"frame", "failures", "vectors"}
        Of the snapshot. What a sync stored has all columns of today: those that its version had not are null.

    Returns
    -------
    pyarrow.Table
        Headers and labels are JSON text, as the decoders of today write it, and bytes of bodies base64 text.
        What needs no change is not copied.

    Examples
    --------
    >>> old = pa.table({"labels": [["eu", "beta"], []], "body_bytes": [b"\xff", None]})
    >>> current_columns(old, "frame").to_pylist()
    [{'labels': '["eu","beta"]', 'body_base64': '/w=='}, {'labels': None, 'body_base64': None}]
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        columns |= zip(_RENAMED.get(name, (name,)), _current(name, column), strict=True)
    if kind == "failures":
        columns = {field.name: pa.nulls(table.num_rows, field.type) for field in FAILURES_AT_REST} | columns
    names = current_names(columns)
    schema = next((known for known in TABLES if known.names == names), None)
    if schema is not None:
        columns = {field.name: pa.nulls(table.num_rows, field.type) for field in schema} | columns
    types = {name: column.type for name, column in columns.items()}
    if schema is None and types == dict(zip(table.schema.names, table.schema.types, strict=True)):
        return table
    if schema is not None and "extra" in names:  # text that is empty is missing today, but for bodies
        texts = [name for name in names if pa.types.is_string(types[name]) and name not in _BODIES]
        columns |= {name: pc.if_else(pc.equal(columns[name], ""), None, columns[name]) for name in texts}
    return pa.table({name: columns[name] for name in names}, schema=schema)


def _current(name: str, column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    kind = column.type
    if name == "gone_between":
        times = [pc.struct_field(column, part) for part in ("last_seen", "first_missed")]
        return [time.cast(TIME) for time in times]
    if name in _RENAMED:
        return [_texts(column, lambda content: base64.b64encode(content).decode())]
    if pa.types.is_map(kind):
        return [_texts(column, lambda headers: msgspec.json.encode(dict(headers)).decode())]
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return [_texts(column, lambda labels: labels_json(labels, None))]
    return [column]


def _texts(column: pa.ChunkedArray, text: Callable[[Any], str | None]) -> pa.ChunkedArray:
    """The column as text, what is null staying so."""
    read = [None if value is None else text(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(read, pa.string())])
