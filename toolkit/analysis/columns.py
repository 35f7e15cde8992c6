"""How the functions of this room read a frame: named columns, lazily, and small results as Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import narwhals as nw
import pyarrow as pa
from narwhals.typing import IntoFrame

from toolkit.errors import InputError
from toolkit.times import parse_time

NONE: Final = "(none)"
"""How a missing value is named where a text is needed."""

EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""Times outside are no times of failures (0, or seconds taken for milliseconds), and would squeeze every
axis."""

_NESTED: Final = (nw.List, nw.Array, nw.Struct, nw.Binary, nw.Object, nw.Unknown)


def select(frame: IntoFrame, columns: Iterable[str], *, doing: str) -> nw.LazyFrame[Any]:
    """The named columns of a frame, lazily.

    Raises
    ------
    InputError
        When the frame is none, or lacks a column; `doing` starts the message.
    """
    try:
        lazy = nw.from_native(frame).lazy()
    except TypeError:
        raise InputError(
            doing,
            got=type(frame).__name__,
            expected="a frame",
            next_step="Use a frame made by a loader.",
        ) from None
    names = list(dict.fromkeys(columns))
    known = lazy.collect_schema().names()
    missing = [name for name in names if name not in known]
    if missing:
        raise InputError(
            doing,
            got=f"a frame with the columns {', '.join(known) or 'none'}",
            expected=f"also {', '.join(missing)}",
            next_step="Use a frame made by a loader, or name a column it has.",
        )
    return lazy.select(names)


def select_retained(frame: IntoFrame, columns: Iterable[str], *, doing: str) -> nw.LazyFrame[Any]:
    """The named columns of the rows that are still in the queue: a snapshot also keeps those that left it."""
    names = list(columns)
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
    return lazy.collect("pyarrow").to_arrow()


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
