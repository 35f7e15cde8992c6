"""Which columns rest in a snapshot: the table's own, and for failures when an entry was there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.errors import InputError
from toolkit.tables import schemas
from toolkit.tables.vector_dtype import VectorDtype, missing

FIRST_SEEN_AT: Final = "first_seen_at"
GONE_AFTER: Final = "gone_after"
GONE_BEFORE: Final = "gone_before"

FAILURES_AT_REST: Final = pa.schema(
    [
        *schemas.FAILURES,
        pa.field(FIRST_SEEN_AT, schemas.TIME, nullable=False),
        pa.field(GONE_AFTER, schemas.TIME),
        pa.field(GONE_BEFORE, schemas.TIME),
    ]
)
"""Stored failures. `first_seen_at` is when the first load that saw the entry began. `gone_after` and
`gone_before` are null while the entry is in the DLQ; afterwards it left the queue between the two: the
beginning of the last complete load that still saw it, and the end of the first that did not."""

TABLES: Final = (
    schemas.FAILURES,
    FAILURES_AT_REST,
    schemas.HEADERS_EXPLODED,
    schemas.LABELS_EXPLODED,
    schemas.RUNS,
    schemas.CALLBACKS,
)
_DOING: Final = "choosing the columns of a snapshot"


def stored(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without `error`, where that can be derived again: reading puts it behind the status."""
    names = list(frame.columns)
    if set(schemas.FAILURES.names).issubset(names) and schemas.ERROR in names:
        place = names.index(schemas.ERROR)
        if names[place - 1] == "response_status":
            return frame.drop(columns=schemas.ERROR)
    return frame


def schema_of(frame: pd.DataFrame) -> pa.Schema:
    """The Arrow types of a frame's columns, in their order; of a whole table of the toolkit, its schema.

    Types are those of the columns, never guessed from values. A column of objects is kept where all of them
    are text or missing.

    Raises
    ------
    InputError
        For columns that cannot be kept: it names them.
    """
    names = list(frame.columns)
    odd = [name for name in names if not isinstance(name, str) or not is_utf8(name)]
    repeated = sorted({name for name in names if names.count(name) > 1} - set(odd))
    if odd or repeated or not names:
        raise InputError(
            _DOING,
            got=f"names that are no text, such as {odd[0]!r}"
            if odd
            else f"{', '.join(repeated)} more than once"
            if repeated
            else "a frame without columns",
            expected="columns with names that are text, each once",
            next_step="Rename them, as with frame.rename(columns=str).",
        )
    found = pa.schema([pa.field(name, _type(frame[name])) for name in names])
    dimension = getattr(frame.dtypes.get("vector"), "dimension", None)
    for schema in (*TABLES, schemas.vectors(dimension), schemas.hits(dimension)):
        if names == schema.names and found.types == schema.types:
            return schema
    return found


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: one with a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _type(column: pd.Series[Any]) -> pa.DataType:
    kind = column.dtype
    if isinstance(kind, VectorDtype):
        return kind.arrow_type
    if isinstance(kind, pd.CategoricalDtype):
        return _type(column.cat.categories.to_series())
    if isinstance(kind, pd.StringDtype):
        return pa.string()
    if pd.api.types.is_object_dtype(kind):
        others = {type(value).__name__ for value in column if not (isinstance(value, str) or missing(value))}
        if not others:
            return pa.string()
        raise _unkept(column, f"objects of the type {', '.join(sorted(others))}")
    try:
        found = pa.Array.from_pandas(column.iloc[:0]).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise _unkept(column, f"values of the type {kind}") from None
    if pa.types.is_nested(found) or isinstance(found, pa.BaseExtensionType) or pa.types.is_null(found):
        raise _unkept(column, f"values of the type {kind}")
    return found


def _unkept(column: pd.Series[Any], got: str) -> InputError:
    return InputError(
        _DOING,
        got=f"{column.name!r} with {got}",
        expected="text, numbers, booleans, times or vectors",
        next_step="Convert it, as with frame[name].astype(str), leave it out, or give schema=.",
    )


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
