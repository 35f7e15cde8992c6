"""Convert pandas frames to Arrow tables, with errors that name the column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.base.errors import InputError
from toolkit.tables import schemas
from toolkit.tables.schemas import UNFIT

_SCHEMAS: Final = (schemas.EVENTS, schemas.RUNS, schemas.CALLBACKS, schemas.FAILURES)


def _kinds() -> dict[str, str]:
    """Return "times", "texts" or "numbers" for each column that loaders write."""
    kinds = dict.fromkeys(("first_seen_at", "gone_after", "gone_before"), "times")
    for field in chain(*_SCHEMAS, schemas.vectors(), schemas.hits()):
        if pa.types.is_timestamp(field.type):
            kinds[field.name] = "times"
        elif pa.types.is_string(field.type):
            kinds[field.name] = "texts"
        elif not (pa.types.is_boolean(field.type) or pa.types.is_list(field.type)):
            kinds[field.name] = "numbers"

    return kinds


KINDS: Final = _kinds()
"""Kinds of values in the columns that loaders write, as errors name them."""


def pandas_table(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as an Arrow table. Raise InputError for a column with values of several types."""
    return pa.table(
        {str(name): _arrow_or_error(name, column) for name, column in _columns(frame)}
    )


def pandas_schema(frame: pd.DataFrame) -> pa.Schema:
    """Return the schema of `pandas_table` of no rows of a frame."""
    fields = []
    for name, dtype in frame.dtypes.items():
        # an interval or another type that Arrow does not have
        with _unfit_column_named(name):
            fields.append(pa.field(str(name), _type_without_rows(dtype)))

    return pa.schema(fields)


def _type_without_rows(dtype: Any) -> pa.DataType:
    """Return the Arrow type of a column without rows."""
    # categories are data of the user, which nothing keeps
    if isinstance(dtype, pd.CategoricalDtype):
        return _converted_type(dtype)
    return _known_type(dtype)


def _converted_type(dtype: Any) -> pa.DataType:
    return _arrow(pd.Series([], dtype=dtype)).type


# Analyses open a frame several times, and pandas takes longer to make a column than Arrow to convert it.
_known_type: Final = lru_cache(maxsize=256)(_converted_type)


def _columns(frame: pd.DataFrame) -> Iterator[tuple[Any, pd.Series[Any]]]:
    """Yield names and columns. They have no `attrs`, which pandas would copy with each column."""
    yield from pd.DataFrame(frame, copy=False).items()


def _arrow_or_error(name: Any, column: pd.Series[Any]) -> pa.Array:
    with _unfit_column_named(name):
        return _arrow(column)


@contextmanager
def _unfit_column_named(name: Any) -> Iterator[None]:
    """Raise InputError with the name of a column whose values do not fit into one type."""
    try:
        yield
    except UNFIT as error:
        raise InputError(
            "reading a frame",
            got=f"column {name} with values of several types ({str(error)[:120]})",
            expected=f"{KINDS.get(name, 'values of one type')} there",
        ) from None


def _arrow(column: pd.Series[Any]) -> pa.Array:
    """Return a column as Arrow. Raise TypeError for a mixture of dates and times, which Arrow would cut."""
    array = pa.Array.from_pandas(_plain(column))
    if pa.types.is_date(array.type):
        types = set(map(type, column.dropna()))
        if len(types) > 1:
            raise TypeError("dates and times")

    return array


def _plain(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column in a type of Arrow. Intervals and periods become strings, for example "(0, 5]"."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        return column.astype(dtype.subtype)

    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if isinstance(dtype, pd.IntervalDtype | pd.PeriodDtype):
        return column.astype("str")

    return column
