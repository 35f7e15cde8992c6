"""Reading columns of a frame: lazily, with the types that loaders write; results as Arrow or pandas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.arguments import nearest, shown, wrong
from toolkit.errors import InputError
from toolkit.receipt import Receipt
from toolkit.tables import schemas
from toolkit.tables.frames import UNFIT
from toolkit.times import parse_time

NONE: Final = "(none)"
"""How a missing value is named where a text is needed."""

EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""Times outside are not times of failures (but 0, or seconds read as milliseconds): they would squeeze every
axis."""

_TIMES: Final = (nw.Datetime, nw.Date)
_TEXTS: Final = (nw.String, nw.Categorical, nw.Enum)
_KINDS: Final[dict[str, tuple[str, Any]]] = {
    "first_seen_at": ("times", _TIMES),
    "gone_before": ("times", _TIMES),
} | {
    field.name: (
        ("times", _TIMES)
        if pa.types.is_timestamp(field.type)
        else ("texts", _TEXTS)
        if pa.types.is_string(field.type)
        else ("numbers", nw.dtypes.NumericType)
    )
    for schema in (schemas.RUNS, schemas.CALLBACKS, schemas.FAILURES, schemas.vectors(), schemas.hits())
    for field in schema
    if not (pa.types.is_boolean(field.type) or pa.types.is_list(field.type))
}
"""What the values of a column that loaders write are called, and the types of frames that hold them."""

_NESTED: Final = (nw.List, nw.Array, nw.Struct, nw.Binary, nw.Object, nw.Unknown)


def select(
    frame: IntoFrame,
    columns: Iterable[str],
    *,
    doing: str,
    name: str = "failures",
    chosen: Mapping[str, object] = MappingProxyType({}),
) -> nw.LazyFrame[Any]:
    """The named columns of a frame, lazily: times in UTC, texts as texts, whatever types hold them.

    `chosen` maps the names of the caller's arguments to further columns, `name` is what the frame's argument
    is called and `doing` begins the sentence of an error: a wrong frame, a column that is missing, there
    twice or holds values of another kind is an `InputError` that names the argument.
    """
    try:
        lazy = nw.from_native(frame).lazy()
        schema = lazy.collect_schema()
    except (TypeError, ValueError, AttributeError, nw.exceptions.NarwhalsError) as error:
        repeated = isinstance(error, nw.exceptions.DuplicateError)
        raise InputError(
            doing,
            got=f"{shown(frame)} for {name}" + ", with two columns of one name" * repeated,
            expected="a frame" + " whose columns have names of their own" * repeated,
            next_step="Use a frame made by a loader.",
        ) from None
    known = list(map(str, schema.names()))
    for argument, column in chosen.items():
        if not isinstance(column, str) or column not in known:
            raise wrong(argument, column, f"a column of {name}", nearest(column, known, what="It has"))
    names = list(dict.fromkeys([*columns, *map(str, chosen.values())]))
    missing = [column for column in names if column not in known]
    if missing:
        raise InputError(
            doing,
            got=f"{name} with the columns {', '.join(known) or 'none'}",
            expected=f"also {', '.join(map(str, missing))}",
            next_step="Use a frame made by a loader.",
        )
    lazy = _with_pandas_times(lazy.select(names))
    schema = lazy.collect_schema()
    casts = [_cast(lazy, column, schema[column], doing, name) for column in names if column in _KINDS]
    changed = [expression for expression in casts if expression is not None]
    return lazy.with_columns(*changed) if changed else lazy


def _with_pandas_times(lazy: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """A pandas frame with all times in pandas' own type: narwhals cannot combine those with Arrow's."""
    if not lazy.implementation.is_pandas():
        return lazy
    frame: pd.DataFrame = lazy.collect().to_native()
    arrow = {
        name: f"datetime64[ns{', UTC' * (dtype.pyarrow_dtype.tz is not None)}]"
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.ArrowDtype) and pa.types.is_timestamp(dtype.pyarrow_dtype)
    }
    return nw.from_native(frame.astype(arrow)).lazy() if arrow else lazy


def _cast(lazy: nw.LazyFrame[Any], column: str, dtype: Any, doing: str, name: str) -> nw.Expr | None:
    """The expression that casts a column to the type that loaders write; None where it has that already."""
    kind, types = _KINDS[column]
    read = nw.col(column)
    if not isinstance(dtype, types):
        if not lazy.select(read.is_null().all()).collect().item():
            raise InputError(
                doing,
                got=f"{name} whose column {column} has the type {str(dtype)[:80]}",
                expected=f"{kind} there",
                next_step="Use a frame made by a loader, or convert the column.",
            )
        nothing: Any = {"times": nw.Datetime("ms", "UTC"), "texts": nw.String(), "numbers": nw.Float64()}[
            kind
        ]
        return nw.lit(None, dtype=nothing).alias(column)
    if isinstance(dtype, nw.Date):
        return read.cast(nw.Datetime("ms")).dt.replace_time_zone("UTC")
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is None:
        return read.dt.replace_time_zone("UTC")
    if isinstance(dtype, nw.Datetime) and dtype.time_zone != "UTC" and not lazy.implementation.is_duckdb():
        return read.dt.convert_time_zone("UTC")  # DuckDB has one zone for all columns
    return read.cast(nw.String) if isinstance(dtype, nw.Categorical | nw.Enum) else None


def select_retained(frame: IntoFrame, columns: Iterable[str], *, doing: str) -> nw.LazyFrame[Any]:
    """The named columns of the rows still in the queue: a snapshot also stores those that left it."""
    names = list(columns)
    select(frame, names, doing=doing)  # raises where it is not a frame, or lacks one of them
    if "gone_before" not in nw.from_native(frame).lazy().collect_schema().names():
        return select(frame, names, doing=doing)
    kept = select(frame, [*names, "gone_before"], doing=doing)
    return kept.filter(nw.col("gone_before").is_null()).select(names)


def check_scalar(lazy: nw.LazyFrame[Any], columns: Iterable[str], *, doing: str) -> None:
    """Raise where a column to group by holds lists, maps or bytes."""
    schema = lazy.collect_schema()
    nested = [name for name in columns if isinstance(schema[name], _NESTED)]
    if nested:
        raise InputError(
            doing,
            got=f"{', '.join(nested)}, which holds lists, maps or bytes",
            expected="columns of single values",
            next_step="Use count_labels for labels, or explode_headers for headers.",
        )


def collect(lazy: nw.LazyFrame[Any]) -> pa.Table:
    """The rows as an Arrow table, whatever the frame is made of."""
    try:
        return lazy.collect("pyarrow").to_arrow()
    except UNFIT as error:
        raise InputError(
            "reading a frame", got=str(error)[:120], expected="columns with values of one type each"
        ) from None


def effective_time() -> nw.Expr:
    """When a row counts as failed: `failed_at`, else `created_at`; null where neither is a plausible time."""
    when = nw.coalesce(nw.col("failed_at"), nw.col("created_at"))
    return nw.when(when.is_between(EARLIEST, LATEST, closed="left")).then(when)


def when_counted(now: datetime | None) -> datetime:
    """The time that spans and ages are counted from: the clock's by default, UTC."""
    return datetime.now(UTC) if now is None else parse_time(now, exact=True, name="now")


def collect_timed(
    frame: IntoFrame, columns: Iterable[str], *, doing: str, name: str = "failures"
) -> pa.Table:
    """The named columns as an Arrow table, with `when_`: when each row counts as failed."""
    names = [*columns, "failed_at", "created_at"]
    return collect(select(frame, names, doing=doing, name=name).with_columns(when_=effective_time()))


def timestamps(table: pa.Table, column: str) -> pd.Series[pd.Timestamp]:
    """A column of times as a pandas Series in UTC."""
    return pd.Series(pd.to_datetime(table[column].to_pandas(), utc=True))


def typed_frame(**columns: tuple[str, Any]) -> pd.DataFrame:
    """A small frame of columns, each a dtype and its values: without rows it has all its types, too."""
    return pd.DataFrame({name: pd.Series(values, dtype=dtype) for name, (dtype, values) in columns.items()})


def receipt_of(frame: object) -> Receipt | None:
    """The receipt a frame carries, or None."""
    attributes = getattr(frame, "attrs", None)
    values = attributes.get("receipt") if isinstance(attributes, Mapping) else None
    return Receipt.from_dict(values) if isinstance(values, Mapping) else None


def named(value: object) -> str:
    """The name of a group: its value as text."""
    return NONE if value is None else str(value)


def largest_groups(
    values: Sequence[object], counts: NDArray[np.int64], top: int
) -> tuple[tuple[str, ...], NDArray[np.int64], int]:
    """Merge the rarest values into one group ``other (n)``.

    Returns the names of the groups, largest first; the position of each value's group; how many were merged.
    """
    totals: Counter[object] = Counter()
    for value, count in zip(values, counts.tolist(), strict=True):
        totals[value] += count
    ordered = sorted(totals, key=lambda value: (-totals[value], named(value)))
    merged = max(len(ordered) - top, 0)
    positions = {value: min(position, top) for position, value in enumerate(ordered)}
    names = [named(value) for value in ordered[:top]] + ([f"other ({merged})"] if merged else [])
    return tuple(names), np.array([positions[value] for value in values], dtype=np.int64), merged
