"""How the functions of this room read a frame: named columns, lazily, and small results as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import narwhals as nw
import pyarrow as pa
from narwhals.typing import IntoFrame

from toolkit.arguments import nearest, shown, wrong
from toolkit.errors import InputError
from toolkit.times import parse_time

NONE: Final = "(none)"
"""How a missing value is named where a text is needed."""

EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""Times outside are no times of failures (0, or seconds taken for milliseconds), and would squeeze every
axis."""

_NESTED: Final = (nw.List, nw.Array, nw.Struct, nw.Binary, nw.Object, nw.Unknown)


def select(
    frame: IntoFrame,
    columns: Iterable[str],
    *,
    doing: str,
    name: str = "failures",
    chosen: Mapping[str, object] = MappingProxyType({}),
) -> nw.LazyFrame[Any]:
    """The named columns of a frame, lazily.

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
        When the frame is none, or lacks a column; it names the argument.
    """
    try:
        lazy = nw.from_native(frame).lazy()
        known = [str(column) for column in lazy.collect_schema().names()]
    except (TypeError, ValueError, nw.exceptions.NarwhalsError):
        raise InputError(
            doing,
            got=f"{shown(frame)} for {name}",
            expected="a frame",
            next_step="Use a frame made by a loader.",
        ) from None
    for argument, column in chosen.items():
        if not isinstance(column, str) or column not in known:
            raise wrong(argument, column, f"a column of {name}", nearest(column, known, what="It has"))
    names = list(dict.fromkeys([*columns, *map(str, chosen.values())]))
    missing = [column for column in names if column not in known]
    if missing:
        raise InputError(
            doing,
            got=f"{name} with the columns {', '.join(known) or 'none'}",
            expected=f"also {', '.join(missing)}",
            next_step="Use a frame made by a loader.",
        )
    return lazy.select(names)


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
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
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
