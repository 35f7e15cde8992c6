"""Which columns rest in a snapshot: the table's own, and for failures when an entry was there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd
import pyarrow as pa

from toolkit.errors import InputError
from toolkit.tables import schemas

FIRST_SEEN_AT: Final = "first_seen_at"
GONE_BETWEEN: Final = "gone_between"

GONE: Final = pa.struct([pa.field("last_seen", schemas.TIME), pa.field("first_missed", schemas.TIME)])

FAILURES_AT_REST: Final = pa.schema(
    [
        *schemas.FAILURES,
        pa.field(FIRST_SEEN_AT, schemas.TIME, nullable=False),
        pa.field(GONE_BETWEEN, GONE),
    ]
)
"""Failures at rest. `first_seen_at` is when the first load that saw the entry began. `gone_between` is null
while the entry is in the DLQ; afterwards it holds two times between which it went: the beginning of the last
complete load that still saw it, and the end of the first that did not."""

_TABLES: Final = (
    schemas.FAILURES,
    FAILURES_AT_REST,
    schemas.HEADERS_EXPLODED,
    schemas.LABELS_EXPLODED,
    schemas.RUNS,
    schemas.CALLBACKS,
)


def schema_of(frame: pd.DataFrame) -> pa.Schema:
    """The schema of the toolkit's table whose columns a frame has.

    Raises
    ------
    InputError
        When it has the columns of none: types are never guessed from values.
    """
    columns = list(frame.columns)
    for schema in (*_TABLES, schemas.vectors(_dimension(frame)), schemas.hits(_dimension(frame))):
        if columns == schema.names:
            return schema
    raise InputError(
        "choosing the schema of a frame",
        got=f"columns {', '.join(map(str, columns)) or 'none'}",
        expected="the columns of a frame made by a loader, in their order",
        next_step="Give schema=, a pyarrow.Schema; types are not guessed from values.",
    )


def _dimension(frame: pd.DataFrame) -> int | None:
    kind = getattr(frame.dtypes.get("vector"), "pyarrow_dtype", None)
    return int(kind.list_size) if kind is not None and pa.types.is_fixed_size_list(kind) else None


def extension_column(schema: pa.Schema) -> str | None:
    """Name of the first field of an extension type, at any depth; None where there is none.

    Reading an extension type may run code that the file chose, so snapshots hold plain types only.
    """
    for field in _fields(schema):
        if isinstance(field.type, pa.BaseExtensionType) or b"ARROW:extension:name" in (field.metadata or {}):
            return str(field.name)
    return None


def _fields(parent: pa.Schema | pa.DataType) -> Iterator[pa.Field]:
    fields = (
        list(parent) if isinstance(parent, pa.Schema) else [parent.field(i) for i in range(parent.num_fields)]
    )
    for field in fields:
        yield field
        if not isinstance(field.type, pa.BaseExtensionType):
            yield from _fields(field.type)
