"""How the functions of this room read a frame: named columns, lazily, and small results as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import narwhals as nw
import pandas as pd
import pyarrow as pa
from narwhals.typing import IntoFrame

from toolkit.arguments import nearest, shown, wrong
from toolkit.errors import InputError
from toolkit.tables import schemas
from toolkit.tables.frames import UNFIT
from toolkit.times import parse_time

NONE: Final = "(none)"
"""How a missing value is named where a text is needed."""

EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""Times outside are no times of failures (0, or seconds taken for milliseconds), and would squeeze every
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

    Parameters
    ----------
    frame : frame
    columns : iterable of str
    doing : str
        What for, as the start of an error's sentence.
    name : str
        What the frame's argument is called.
    chosen : mapping
        Further columns that the caller chose: from the argument's name to its value.

    Raises
    ------
    InputError
        When the frame is none, lacks a column, has it twice, or has values of another kind in it; it names
        the argument.
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
    lazy = _alike(lazy.select(names))
    schema = lazy.collect_schema()
    read = [_read(lazy, column, schema[column], doing, name) for column in names if column in _KINDS]
    changed = [expression for expression in read if expression is not None]
    return lazy.with_columns(*changed) if changed else lazy


def _alike(lazy: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """A pandas frame with all its times in pandas' own type: a column cannot have those and Arrow's."""
    if not lazy.implementation.is_pandas():
        return lazy
    frame: pd.DataFrame = lazy.collect().to_native()
    arrow = {
        name: f"datetime64[ns{', UTC' * (dtype.pyarrow_dtype.tz is not None)}]"
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.ArrowDtype) and pa.types.is_timestamp(dtype.pyarrow_dtype)
    }
    return nw.from_native(frame.astype(arrow)).lazy() if arrow else lazy


def _read(lazy: nw.LazyFrame[Any], column: str, dtype: Any, doing: str, name: str) -> nw.Expr | None:
    """A column that loaders write, as what they write into it; None where it is that already."""
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
    """The named columns of the rows that are still in the queue: a snapshot also keeps those that left it."""
    names = list(columns)
    select(frame, names, doing=doing)  # what is no frame, or lacks one of them, is said here
    if "gone_before" not in nw.from_native(frame).lazy().collect_schema().names():
        return select(frame, names, doing=doing)
    kept = select(frame, [*names, "gone_before"], doing=doing)
    return kept.filter(nw.col("gone_before").is_null()).select(names)


def check_scalar(lazy: nw.LazyFrame[Any], columns: Iterable[str], *, doing: str) -> None:
    """Refuse to group by columns that hold lists, maps or bytes."""
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


def named(value: object) -> str:
    """A group's value as text."""
    return NONE if value is None else str(value)
