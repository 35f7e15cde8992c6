"""Arrow tables as pandas frames, and back. One mapping of types for all tables.

Scalars become pandas' own types (``str``, ``datetime64[ms, UTC]``, nullable ``Int64`` and ``boolean``),
nested and binary columns stay Arrow (``ArrowDtype``). No integer ever becomes a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from toolkit.errors import InputError
from toolkit.receipt import Receipt


def to_frame(table: pa.Table, receipt: Receipt | None = None) -> pd.DataFrame:
    """The table as a frame, with its receipt in ``attrs``.

    Parameters
    ----------
    table : pyarrow.Table
    receipt : Receipt, optional

    Returns
    -------
    pandas.DataFrame
        The same columns in the same order, with their types also when there are no rows.
    """
    frame: pd.DataFrame = table.to_pandas(types_mapper=_pandas_type)
    if receipt is not None:
        frame.attrs["receipt"] = receipt.to_dict()
    return frame


def to_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """The frame as a table of exactly this schema.

    Raises
    ------
    InputError
        When a column is missing or does not fit its type.
    """
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(
            "reading a frame",
            got=f"columns {', '.join(map(str, frame.columns))}",
            expected=f"also {', '.join(missing)}",
            next_step="Use a frame made by a loader.",
        )
    try:
        table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InputError(
            "reading a frame", got=str(error), expected=f"columns of the types {schema}"
        ) from None
    return table.replace_schema_metadata(None)


def frame_from_rows(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pd.DataFrame:
    """A frame of this schema from plain rows; missing values are null.

    >>> from toolkit.tables.schemas import LABELS_EXPLODED
    >>> frame_from_rows([{"dlq_id": "a", "label": "x"}], LABELS_EXPLODED)
      dlq_id label
    0      a     x
    """
    return to_frame(pa.Table.from_pylist(list(rows), schema=schema))


def _pandas_type(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return pd.StringDtype(na_value=float("nan"))
    if pa.types.is_int64(kind):
        return pd.Int64Dtype()
    if pa.types.is_boolean(kind):
        return pd.BooleanDtype()
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return pd.ArrowDtype(kind)
    return None
